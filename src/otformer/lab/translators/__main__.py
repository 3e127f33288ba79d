"""``python -m otformer.lab.translators prepare | train | ship | score | curve | hmm | vectors``: see the package."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from otformer import checks, figures
from otformer.files import check_ending, checked_out, write_csv
from otformer.lab.training_loop import CHUNK
from otformer.lab.translators import corpus, networks
from otformer.lab.translators.alignment_over_training import curve, draw
from otformer.lab.translators.evaluate import score
from otformer.lab.translators.export import set_languages, ship
from otformer.lab.translators.loop import Task, train
from otformer.words.align.bilingual import VectorRecipe, train_vectors
from otformer.words.align.hmm.file import SETTINGS, write_models
from otformer.words.align.hmm.model import train_model
from otformer.words.align.hmm.word_parts import training_parts
from otformer.words.align.vectors import write_npz_vectors
from otformer.words.text.languages import LANGUAGES, STORED, LanguagePair
from otformer.words.text.training_text import training_text

ENCODER = "bert-en-fr"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m otformer.lab.translators", description="make the models that ship")
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="vocabularies and token numbers from OTFORMER_DATA")
    learn = commands.add_parser("train", help="train one model; continues where it stopped")
    learn.add_argument("--steps", type=int, help="default: the recipe's")
    learn.add_argument("--seed", type=int, default=0)
    learn.add_argument("--device", default="cuda")
    learn.add_argument("--seconds", type=float, default=math.inf, help="stop after this time; run again to continue")
    learn.add_argument("--snapshots", type=int, nargs="*", default=[], help="steps whose weights are kept")
    put = commands.add_parser("ship", help="a folder for transformers from a finished run")
    put.add_argument("--weights", type=Path, required=True, help="model.safetensors of a run, or a snapshot")
    grade = commands.add_parser("score", help="BLEU of a translator, masked words guessed by the encoder")
    grade.add_argument("--folder", type=Path, required=True, help="a folder made by ship")
    grade.add_argument("--size", type=int, default=300, help="sentence pairs of each kind")
    over = commands.add_parser("curve", help="alignment against training time, from a translator's snapshots: CSV and PNG")
    over.add_argument("--run", type=Path, required=True, help="folder of the training run")
    over.add_argument("--pairs", type=int, default=500, help="WMT news pairs")
    for command in (learn, put, grade, over):
        command.add_argument("model", choices=LANGUAGES if command is over else (*LANGUAGES, ENCODER))
        command.add_argument("--text", type=Path, required=True, help="folder made by prepare")
    hmm = commands.add_parser("hmm", help="the two alignment models of a language pair, of words and of stems: npz")
    hmm.add_argument("--least", type=float, default=0.03, help="keep pairs of words with √(t t') of at least this")
    hmm.add_argument("--pairs", type=int, help="use only this many sentence pairs")
    vectors = commands.add_parser("vectors", help="bilingual word vectors: npz")
    vectors.add_argument("--words", type=int, default=VectorRecipe.vocabulary, help="words per side")
    vectors.add_argument("--dim", type=int, default=VectorRecipe.dim)
    vectors.add_argument("--dtype", choices=("float32", "float16", "int8"), default="float16")
    for command in (hmm, vectors):
        command.add_argument("--languages", default="en-fr", help=", ".join(LANGUAGES))
    for command in (prepare, learn, put, over, hmm, vectors):
        command.add_argument("--out", type=Path, required=True)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; a line on the standard output for what was made."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        COMMANDS[given.command](given)
    except ValueError as error:
        parser.error(str(error))


def _prepare(given: argparse.Namespace) -> None:
    for languages in STORED:
        print(corpus.prepare_translator(languages, given.out), flush=True)
    print(corpus.prepare_encoder("en-fr", given.out))


def _score(given: argparse.Namespace) -> None:
    for what, value in score(given.model, given.folder, given.text, given.size).items():
        print(f"{given.model}: {what}: {value:.3f}")


def _train(given: argparse.Namespace) -> None:
    def progress(done: int, steps: int, loss: float) -> None:
        if done % CHUNK == 0 or done == steps:
            print(f"{given.model}: step {done} of {steps}, loss {loss:.3f}", flush=True)

    checks.device(given.device)
    kind: type[Task] = networks.MaskedPairs if given.model == ENCODER else networks.Translation
    task = kind(given.model, given.text, given.device)
    steps = task.steps if given.steps is None else checks.count("steps", given.steps)
    options = {name: getattr(given, name) for name in ("device", "seed", "seconds", "snapshots")}
    done = train(task, given.out, steps, progress=progress, **options)
    print(f"{given.out}: {'finished' if done else 'stopped; run the same command to go on'}")


def _ship(given: argparse.Namespace) -> None:
    if given.model == ENCODER:
        size = ship(networks.build_encoder(), given.weights, given.text / ENCODER, given.out)
    else:
        languages = LanguagePair.of(given.model)
        size = ship(networks.build_translator(), given.weights, given.text / str(languages.stored), given.out)
        set_languages(given.out, languages)
    print(f"{given.out}: {size / 1e6:.1f} MB of weights")


def _curve(given: argparse.Namespace) -> None:
    if given.out.suffix != ".csv":
        raise ValueError(f"out must end in .csv (the figure lies beside it, .png), got {given.out}")
    rows = curve(given.model, given.run, given.text, given.pairs, tell=lambda line: print(line, flush=True))
    write_csv(given.out, rows, digits=6)
    about = f"{given.model}: a small model, trained here; {given.pairs:,} WMT news pairs, MUSE gold; mean over heads"
    figures.save(lambda: draw(rows, about), given.out.with_suffix(".png"), dpi=120)


def _hmm(given: argparse.Namespace) -> None:
    check_ending("out", given.out, ".npz")
    checked_out(given.out)
    text = list(islice(training_parts(LanguagePair.of(given.languages)), given.pairs))
    print(f"{len(text):,} sentence pairs", flush=True)
    models = []
    for settings in SETTINGS:
        models.append(train_model(text, settings).pruned(given.least))
        what = f"first {settings.stem_letters} letters" if settings.stem_letters else "words"
        print(f"{what}: {len(models[-1].pair_keys):,} pairs kept", flush=True)
    write_models(given.out, models)
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.2f} MB")


def _vectors(given: argparse.Namespace) -> None:
    languages = LanguagePair.of(given.languages)
    sides = train_vectors(training_text(languages), VectorRecipe(vocabulary=given.words, dim=given.dim))
    named = dict(zip((languages.source, languages.target), sides, strict=True))
    write_npz_vectors(given.out, named, given.dtype)
    sizes = " and ".join(f"{len(side)} {name}" for name, side in named.items())
    print(f"{given.out}: {sizes} words, {sides[0].dim} numbers each, {given.out.stat().st_size / 1e6:.1f} MB")


COMMANDS = dict(prepare=_prepare, train=_train, ship=_ship, score=_score, curve=_curve, hmm=_hmm, vectors=_vectors)

if __name__ == "__main__":
    main()
