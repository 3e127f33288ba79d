"""``python -m otformer.words.training prepare | train | ship | score | curve``: see the package."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from otformer import checks, figures
from otformer.jobs.training import CHUNK
from otformer.words.probe.table import write_csv
from otformer.words.training import corpus, encoder, translator
from otformer.words.training.alignment_over_training import curve
from otformer.words.training.curve_figure import draw
from otformer.words.training.evaluate import score
from otformer.words.training.export import set_languages, ship
from otformer.words.training.loop import Task, train

ENCODER = "bert-en-fr"
MODELS = (*corpus.PAIRS, ENCODER)


def task(name: str, text: Path, device: str) -> Task:
    return (encoder.MaskedPairs if name == ENCODER else translator.Translation)(name, text, device)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m otformer.words.training", description="make the models that ship")
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="vocabularies and token numbers from OTFORMER_DATA")
    learn = commands.add_parser("train", help="train one model; goes on where it stopped")
    learn.add_argument("model", choices=MODELS)
    learn.add_argument("--steps", type=int, help="default: that of the model's recipe")
    learn.add_argument("--seed", type=int, default=0)
    learn.add_argument("--device", default="cuda")
    learn.add_argument("--seconds", type=float, default=math.inf, help="stop after so long; run again to go on")
    learn.add_argument("--snapshots", type=int, nargs="*", default=[], help="steps whose weights are kept")
    put = commands.add_parser("ship", help="a folder for transformers from a finished run")
    put.add_argument("model", choices=MODELS)
    put.add_argument("--weights", type=Path, required=True, help="model.safetensors of a run, or a snapshot")
    grade = commands.add_parser("score", help="BLEU of a translator, masked words guessed by the encoder")
    grade.add_argument("model", choices=MODELS)
    grade.add_argument("--folder", type=Path, required=True, help="what ship made")
    grade.add_argument("--size", type=int, default=300, help="sentence pairs of each kind")
    over = commands.add_parser("curve", help="alignment against training time, from a translator's snapshots: CSV and PNG")
    over.add_argument("model", choices=tuple(corpus.PAIRS))
    over.add_argument("--run", type=Path, required=True, help="folder of the training run")
    over.add_argument("--pairs", type=int, default=500, help="WMT news pairs")
    for command in (learn, put, grade, over):
        command.add_argument("--text", type=Path, required=True, help="folder made by prepare")
    for command in (prepare, learn, put, over):
        command.add_argument("--out", type=Path, required=True)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; a line on the standard output for what was made."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        if given.command == "prepare":
            for languages in dict.fromkeys(corpus.PAIRS.values()):
                print(corpus.prepare(languages, given.out), flush=True)
            print(corpus.prepare_encoder("en-fr", given.out))
        elif given.command == "train":
            _train(given)
        elif given.command == "ship":
            _ship(given)
        elif given.command == "curve":
            _curve(given)
        else:
            for what, value in score(given.model, given.folder, given.text, given.size).items():
                print(f"{given.model}: {what}: {value:.3f}")
    except ValueError as error:
        parser.error(str(error))


def _train(given: argparse.Namespace) -> None:
    def progress(done: int, steps: int, loss: float) -> None:
        if done % CHUNK == 0 or done == steps:
            print(f"{given.model}: step {done} of {steps}, loss {loss:.3f}", flush=True)

    checks.device(given.device)
    chosen = task(given.model, given.text, given.device)
    done = train(
        chosen,
        given.out,
        chosen.steps if given.steps is None else checks.count("steps", given.steps),
        device=given.device,
        seed=given.seed,
        seconds=given.seconds,
        snapshots=tuple(given.snapshots),
        progress=progress,
    )
    print(f"{given.out}: {'finished' if done else 'stopped; run the same command to go on'}")


def _ship(given: argparse.Namespace) -> None:
    if given.model == ENCODER:
        size = ship(encoder.build(), given.weights, given.text / ENCODER, given.out)
    else:
        size = ship(translator.build(), given.weights, given.text / corpus.PAIRS[given.model], given.out)
        set_languages(given.out, *given.model.split("-"))
    print(f"{given.out}: {size / 1e6:.1f} MB of weights")


def _curve(given: argparse.Namespace) -> None:
    if given.out.suffix != ".csv":
        raise ValueError(f"out must end in .csv (the figure lies beside it, .png), got {given.out}")
    rows = curve(given.model, given.run, given.text, given.pairs, tell=lambda line: print(line, flush=True))
    write_csv(rows, given.out)
    about = f"{given.model}: a small model, trained here; {given.pairs:,} WMT news pairs, MUSE gold; mean over heads"
    figures.save(lambda: draw(rows, about), given.out.with_suffix(".png"), dpi=120)


if __name__ == "__main__":
    main()
