"""Train and score all variants of cross-attention (lab/translators/variants.py) at once on one GPU.

    python -m otformer.lab.translators.compare prepare --out carry/translator            # text and tests from OTFORMER_DATA
    python -m otformer.lab.translators.compare run --text carry/translator --out OUT --seconds 525 --device cuda
    python -m otformer.lab.translators.compare shipped --text carry/translator --out OUT   # scores of the shipped translator
    python -m otformer.lab.translators.compare digest --text carry/translator --out OUT --to FILE.json   # needs sacrebleu

`run` starts a process for each variant and seed, and ends those that are not done after ``--seconds``. Each has a folder
in OUT: ``log.csv`` (step, loss, seconds), ``scores.jsonl`` (compare_scores.py), ``output.txt`` (its messages), and weights
in the small form of export.py. A process stops training in time for the scores, which say how many steps it had.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
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
STEPS = 2081  # of the short comparison that ships: what eight processes do in six minutes on one H200
WARM = 800  # steps of rising rate: the recipe's 2,000 would be a large part of so short a training
LEAST = Sizes(4, 4, 4, 4, 4)
EARLY = 1 / 3  # of the steps: when the weights for the set ``early`` are kept


class AveragedRun(Run):
    """A run that saves only its averaged weights, in float8."""

    def save(self) -> None:
        write_tensors(self.out / training_loop.MODEL, self.weights(), {"format": "pt"})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m otformer.lab.translators.compare", description="compare variants")
    commands = parser.add_subparsers(dest="command", required=True)
    prepare, run, one, shipped, short = (commands.add_parser(name) for name in SUBCOMMANDS)
    for command in (prepare, run, one, shipped, short):
        command.add_argument("--out", type=Path, required=True)
    for command in (run, one, shipped, short):
        command.add_argument("--text", type=Path, required=True, help="folder made by prepare")
    everything = [f"{variant}-{seed}" for seed in (0, 1) for variant in VARIANTS]
    run.add_argument("--runs", nargs="+", default=everything, help=f"variant-seed; default: {' '.join(everything)}")
    run.add_argument("--seconds", type=float, default=525.0, help="total seconds for start, training and scores")
    run.add_argument("--scoring", type=float, default=120.0, help="seconds of the total reserved for scores and the end")
    short.add_argument("--to", type=Path, required=True, help="the file to write, .json")
    one.add_argument("--variant", choices=VARIANTS, required=True)
    one.add_argument("--seed", type=int, required=True)
    one.add_argument("--until", type=float, required=True, help="when training must end: time.monotonic()")
    for command in (run, one, shipped):
        command.add_argument("--device", default="cuda")
        command.add_argument("--least", action="store_true", help="score a few sentences only, to try the command")
    for command in (run, one):
        command.add_argument("--steps", type=int, default=STEPS, help=f"default: {STEPS}, as shipped")
        command.add_argument("--tokens", type=int, help="default: the recipe's")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        SUBCOMMANDS[given.command](given)
    except ValueError as error:
        parser.error(str(error))


def _prepare(given: argparse.Namespace) -> None:
    """Make the training text as `training prepare` does, and copy the files of OTFORMER_DATA that the scores need."""
    print(corpus.prepare_translator(LANGUAGE_PAIR, given.out))
    for pattern in NEEDED:
        for file in sorted(data_folder().glob(pattern)):
            place = given.out / "data" / file.relative_to(data_folder())
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
    print(f"{given.out}: {sum(f.stat().st_size for f in given.out.rglob('*') if f.is_file()) / 2**20:.1f} MiB")


def _one(given: argparse.Namespace) -> None:
    """Train and score one variant in the folder ``out``."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # as in loop.py
    torch.manual_seed(given.seed)
    task = CrossAttention(LANGUAGE_PAIR, given.text, given.device, given.variant, given.tokens)
    if given.steps != task.steps:
        task.warm = WARM
    run = AveragedRun(task, given.out, given.steps, given.device, given.seed, None, max(1, int(EARLY * given.steps)))
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
    """Load the model as anyone would: from the rounded weights."""
    with TemporaryDirectory() as folder:
        ship(task.build(), weights, given.text / LANGUAGE_PAIR, Path(folder))
        return load(Path(folder), given.device)


def _run(given: argparse.Namespace) -> None:
    began, names = time.monotonic(), {run: _named(run) for run in given.runs}
    for run in names:
        if (given.out / run).exists():
            raise ValueError(f"{given.out / run} exists: move it, or name another out")
    until = began + given.seconds - given.scoring
    running = {run: _start(given, given.out / run, *name, until) for run, name in names.items()}
    try:
        for process in running.values():
            process.wait(max(0.0, began + given.seconds - time.monotonic()))
    except subprocess.TimeoutExpired:
        print(f"stopped after {given.seconds:g} s")
    failed = [run for run, process in running.items() if process.poll() != 0]
    for process in running.values():
        process.kill()
    print(f"done after {time.monotonic() - began:.0f} s; failed: {failed or 'none'}")


def _named(run: str) -> tuple[str, int]:
    """Return the variant and seed of a run."""
    variant, _, seed = run.rpartition("-")
    if variant not in VARIANTS or not seed.isdigit():
        raise ValueError(f"runs must be variant-seed, the variant one of {', '.join(VARIANTS)}, got {run!r}")
    return variant, int(seed)


def _start(given: argparse.Namespace, folder: Path, variant: str, seed: int, until: float) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "otformer.lab.translators.compare", "one", "--variant", variant, "--seed", str(seed)]
    command += ["--out", str(folder), "--text", str(given.text), "--until", str(until), "--device", given.device]
    command += ["--steps", str(given.steps)]
    command += [] if given.tokens is None else ["--tokens", str(given.tokens)]
    with (folder / "output.txt").open("wb") as output:
        return subprocess.Popen(command + ["--least"] * given.least, stdout=output, stderr=subprocess.STDOUT)


def _shipped(given: argparse.Namespace) -> None:
    compare_scores.score_shipped(given.out, given.text, given.device, LEAST if given.least else Sizes())


def _digest(given: argparse.Namespace) -> None:
    """Write the logs, scores and BLEU of OUT into one file."""
    found = digest(given.out, given.text)
    given.to.write_text(json.dumps(found, separators=(",", ":")).replace('{"variant"', '\n{"variant"') + "\n")
    print(f"{given.to}: {len(found['runs'])} runs of {found['steps']} steps, {given.to.stat().st_size / 1e3:.0f} kB")


SUBCOMMANDS = {"prepare": _prepare, "run": _run, "one": _one, "shipped": _shipped, "digest": _digest}

if __name__ == "__main__":
    main()
