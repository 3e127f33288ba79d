"""Train and score all variants of cross-attention (lab/translators/variants.py) on one GPU, in a stated time.

    python -m otformer.lab.translators.compare prepare --out carry/translator            # text and tests from OTFORMER_DATA
    python -m otformer.lab.translators.compare run --text carry/translator --out OUT --seconds 525 --device cuda
    python -m otformer.lab.translators.compare shipped --text carry/translator --out OUT   # scores of the shipped translator
    python -m otformer.lab.translators.compare digest --text carry/translator --out OUT --to FILE.json   # needs sacrebleu

`run` starts a process for each variant and seed. When all are ready they train together for a while to see how fast they
are; from that comes one number of steps for all, so that the slowest is done in time. If ``--steps`` says it, and not all
will be done in time, the last ones are given up. OUT has
``logs.tar``, with a folder for each process (``log.csv``: step, loss, seconds; ``scores.jsonl``: compare_scores.py), brought
up to date while they run; ``summary.json``: the steps, and the seconds of a step of each process while all run; and
weights in the small form of export.py. A process that does not reach its steps in time says so in its
scores.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from otformer.lab import training_loop
from otformer.lab.translators import compare_scores, corpus
from otformer.lab.translators.compare_digest import digest
from otformer.lab.translators.compare_scores import LANGUAGE_PAIR, Sizes, add
from otformer.lab.translators.export import ship
from otformer.lab.translators.loop import Run
from otformer.lab.translators.variants import VARIANTS, CrossAttention
from otformer.tensor_files import write_tensors
from otformer.words.models.models import load
from otformer.words.text.text import data_folder

NEEDED = ("wmt_newstest/eng-fra.new*", "muse_dict/en-fr.txt.gz", "gold_alignments/hansards_en-fr/test.*")  # of OTFORMER_DATA
WARM = 800  # steps of rising rate: the recipe's 2,000 would be a large part of so short a training
PROVISIONAL = 20_000  # steps, while how many there will be is not known: the rate still rises
PATIENCE = 300.0  # seconds to wait for others
SYNC = 5  # steps between two waits for the device, while steps are timed
LOOK = 0.2  # seconds between two looks whether a file is there
LEAST = Sizes(4, 4, 4, 4, 4)
EARLY = 1 / 3  # of the steps: when the weights for the set ``early`` are kept


class Small(Run):
    """A run whose checkpoint is what is asked for in the end: the averaged weights, small."""

    def save(self) -> None:
        write_tensors(self.out / training_loop.MODEL, self.weights(), {"format": "pt"})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m otformer.lab.translators.compare", description="compare variants")
    commands = parser.add_subparsers(dest="command", required=True)
    prepare, run, one, shipped, short = (commands.add_parser(name) for name in DOINGS)
    for command in (prepare, run, one, shipped, short):
        command.add_argument("--out", type=Path, required=True)
    for command in (run, one, shipped, short):
        command.add_argument("--text", type=Path, required=True, help="folder made by prepare")
    everything = [f"{variant}-{seed}" for seed in (0, 1) for variant in VARIANTS]
    run.add_argument("--runs", nargs="+", default=everything, help=f"variant-seed; default: {' '.join(everything)}")
    run.add_argument("--seconds", type=float, default=525.0, help="in all, training, scores and start")
    run.add_argument("--scoring", type=float, default=120.0, help="seconds of these for the scores and the end")
    run.add_argument("--work", type=Path, default=Path("runs/compare"), help="where processes put their folders")
    short.add_argument("--to", type=Path, required=True, help="the file to write, .json")
    one.add_argument("--variant", choices=VARIANTS, required=True)
    one.add_argument("--seed", type=int, required=True)
    one.add_argument("--until", type=float, required=True, help="when training must end: time.monotonic()")
    for command in (run, one, shipped):
        command.add_argument("--device", default="cuda")
        command.add_argument("--least", action="store_true", help="score a few sentences only, to try the command")
    for command in (run, one):
        command.add_argument("--steps", type=int, help="default: as many as the time allows")
        command.add_argument("--tokens", type=int, help="default: that of the recipe")
        command.add_argument("--trial", type=float, default=12.0, help="seconds to see how fast all are")
        command.add_argument("--settle", type=int, default=0, help="steps before that: an epoch, until all graphs are made")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        DOINGS[given.command](given)
    except ValueError as error:
        parser.error(str(error))


def _prepare(given: argparse.Namespace) -> None:
    """The training text as `training prepare` makes it, and the files of OTFORMER_DATA that the scores need."""
    print(corpus.prepare_translator(LANGUAGE_PAIR, given.out))
    for pattern in NEEDED:
        for file in sorted(data_folder().glob(pattern)):
            place = given.out / "data" / file.relative_to(data_folder())
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
    print(f"{given.out}: {sum(f.stat().st_size for f in given.out.rglob('*') if f.is_file()) / 2**20:.1f} MiB")


# One process


def _one(given: argparse.Namespace) -> None:
    """Train and score one variant in the folder ``out``, in step with the others."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # as in loop.py
    torch.manual_seed(given.seed)
    task = CrossAttention(LANGUAGE_PAIR, given.text, given.device, given.variant, given.tokens)
    if given.steps != task.steps:
        task.warm = WARM
    run = Small(task, given.out, given.steps or PROVISIONAL, given.device, given.seed)
    for _ in range(2):
        run.step()  # kernels are loaded, or made
    (given.out / "ready").touch()
    _wait(given.out.parent / "go")
    while run.done < given.settle:  # graphs are made
        run.step()
    (given.out / "settled").touch()
    _wait(given.out.parent / "trial")
    begun, begin = time.monotonic(), run.done
    while time.monotonic() - begun < given.trial and run.done < run.steps:
        loss = run.step()
        if run.done % SYNC == 0:
            loss.item()  # waits for the device
    _write(given.out / "rate", {"step": (time.monotonic() - begun) / max(1, run.done - begin)})
    _wait(given.out.parent / "steps")
    chosen = json.loads((given.out.parent / "steps").read_text())
    run.steps = chosen["steps"]
    if given.out.name not in chosen["runs"]:
        return
    run.snapshots = (max(int(EARLY * run.steps), run.done + 1),)
    done = training_loop.train(run, run.steps, seconds=given.until - time.monotonic())
    about: dict[str, Any] = {"set": "run", "variant": given.variant, "seed": given.seed, "finished": done}
    add(given.out, about | {"steps": run.steps, "done": run.done, "seconds": round(run.spent, 1)})
    sizes = LEAST if given.least else Sizes()
    model = _exported(task, given, given.out / training_loop.MODEL)
    for line in compare_scores.evaluate(model, given.text, sizes):
        add(given.out, line)
    for file in (given.out / "snapshots").glob("*.safetensors"):
        table = compare_scores.news(_exported(task, given, file), sizes.early)
        add(given.out, {"set": "early", "step": int(file.stem), "table": table})


def _exported(task: CrossAttention, given: argparse.Namespace, weights: Path) -> Any:
    """The model as anyone would load it: from the rounded weights."""
    ship(task.build(), weights, given.text / LANGUAGE_PAIR, given.out / "folder")
    return load(given.out / "folder", given.device)


def _wait(file: Path) -> None:
    began = time.monotonic()
    while not file.exists():
        if time.monotonic() - began > PATIENCE:
            raise ValueError(f"{file} did not come")
        time.sleep(LOOK)


def _write(file: Path, what: Any) -> None:
    """JSON that is there as a whole or not at all."""
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(what, indent=1) + "\n")
    part.rename(file)


# All of them


def _run(given: argparse.Namespace) -> None:
    began, names = time.monotonic(), [_named(run) for run in given.runs]
    shutil.rmtree(given.work, ignore_errors=True)
    given.out.mkdir(parents=True, exist_ok=True)
    until = began + given.seconds - given.scoring
    running = {run: _start(given, *name, until) for run, name in zip(given.runs, names, strict=True)}
    _gather(given.work, running, "ready")
    _write(given.work / "go", {})
    print(f"all ready after {time.monotonic() - began:.0f} s", flush=True)
    _gather(given.work, running, "settled")
    _write(given.work / "trial", {})
    rates = {name: line["step"] for name, line in _gather(given.work, running, "rate").items()}
    steps = list(rates.values())
    left = until - time.monotonic()
    # If the GPU is shared fairly, all end together after the mean; if processors are what is waited for, after the slowest.
    most = int(left / ((sum(steps) / len(steps) + max(steps)) / 2)) if steps else 0
    chosen = most if given.steps is None else given.steps
    kept = given.runs[: max(1, min(len(names), len(names) * most // max(chosen, 1)))]
    print(
        f"a step takes {min(steps):.3f} to {max(steps):.3f} s: {most} steps in {left:.0f} s; {chosen} for {kept}", flush=True
    )
    _write(given.work / "steps", {"steps": chosen, "runs": kept})
    told = time.monotonic()
    while any(process.poll() is None for process in running.values()) and time.monotonic() < began + given.seconds:
        time.sleep(LOOK)
        if time.monotonic() - told > 20:
            told = time.monotonic()
            _collect(given)
            print(f"{time.monotonic() - began:.0f} s:", {name: _last(given.work / name) for name in running}, flush=True)
    _collect(given)
    failed = [name for name, process in running.items() if process.poll() != 0 and name in kept]
    for process in running.values():
        process.kill()
    _write(given.out / "summary.json", {"steps": chosen, "together": rates, "failed": failed})
    print(f"done after {time.monotonic() - began:.0f} s; failed: {failed or 'none'}")


def _named(run: str) -> tuple[str, int]:
    """Variant and seed of a run."""
    variant, _, seed = run.rpartition("-")
    if variant not in VARIANTS or not seed.isdigit():
        raise ValueError(f"runs must be variant-seed, the variant one of {', '.join(VARIANTS)}, got {run!r}")
    return variant, int(seed)


def _start(given: argparse.Namespace, variant: str, seed: int, until: float) -> subprocess.Popen[bytes]:
    folder = given.work / f"{variant}-{seed}"
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "otformer.lab.translators.compare", "one", "--variant", variant, "--seed", str(seed)]
    command += ["--out", str(folder), "--text", str(given.text), "--until", str(until), "--device", given.device]
    command += ["--trial", str(given.trial), "--settle", str(given.settle)]
    for name in ("steps", "tokens"):
        command += [] if getattr(given, name) is None else [f"--{name}", str(getattr(given, name))]
    with (folder / "said").open("wb") as said:
        return subprocess.Popen(command + ["--least"] * given.least, stdout=said, stderr=subprocess.STDOUT)


def _gather(work: Path, running: dict[str, subprocess.Popen[bytes]], what: str) -> dict[str, Any]:
    """What the processes have written into the file ``what``, when all that still run have, or after PATIENCE."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        if all((work / name / what).exists() or process.poll() is not None for name, process in running.items()):
            break
        time.sleep(LOOK)
    there = {name: work / name / what for name in running if (work / name / what).exists()}
    if not there:
        raise ValueError(f"no process is left: {(work / next(iter(running)) / 'said').read_text()[-2000:]}")
    return {name: json.loads(file.read_text() or "{}") for name, file in there.items()}


def _last(folder: Path) -> str:
    """How far a process is: its last line of the log, or the last thing it said."""
    said = (folder / "said").read_text(errors="replace").strip().split("\n")[-1]
    log = folder / training_loop.LOG
    logged = log.read_text().strip().split("\n")[-1] if log.exists() else ""
    return said.partition(": ")[2] if said.startswith(folder.name) else f"{logged} {said[-60:]}".strip()


def _collect(given: argparse.Namespace) -> None:
    """Logs and scores so far, and weights."""
    part = given.out / "logs.tar.part"
    with tarfile.open(part, "w") as tar:
        for name in (training_loop.LOG, "scores.jsonl", "said"):
            for file in sorted(given.work.glob(f"*/{name}")):
                tar.add(file, f"{file.parent.name}/{name}")
    part.rename(given.out / "logs.tar")
    for run in given.runs:
        if (given.work / run / training_loop.MODEL).exists():
            shutil.copy(given.work / run / training_loop.MODEL, given.out / f"{run}.safetensors")


def _shipped(given: argparse.Namespace) -> None:
    compare_scores.score_shipped(given.out, given.text, given.device, LEAST if given.least else Sizes())


def _digest(given: argparse.Namespace) -> None:
    """Logs, scores and BLEU of OUT in one file."""
    found = digest(given.out, given.text)
    given.to.write_text(json.dumps(found, separators=(",", ":")).replace('{"variant"', '\n{"variant"') + "\n")
    print(f"{given.to}: {len(found['runs'])} runs of {found['steps']} steps, {given.to.stat().st_size / 1e3:.0f} kB")


DOINGS = {"prepare": _prepare, "run": _run, "one": _one, "shipped": _shipped, "digest": _digest}

if __name__ == "__main__":
    main()
