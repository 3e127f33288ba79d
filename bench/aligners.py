"""Word aligners side by side, on the same text and both gold sets:

    OTFORMER_DATA=… python bench/aligners.py --languages en-fr de-en --out bench/results/aligners.csv

prints a Markdown table and writes it as CSV. Every setting is chosen on the shipped examples (words/examples.py), never on
the gold. ``--matrices 'NAME=hidden-{languages}.npz'`` adds matrices made elsewhere (hidden states, attention), in the form
of `read_matrices`.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path

import aligners_eflomal as eflomal
from aligners_systems import (
    System,
    Together,
    Trained,
    best_link_choices,
    joined_choices,
    mean_choices,
    our_choices,
    pairs_of,
    posteriors,
    read_matrices,
    simalign_choices,
    simalign_missing,
    symmetrised,
    vector_similarities,
    word_directions,
)
from aligners_text import TESTS, Set, example_set, gold_set, training

from otformer.words.aligners import MATCHES
from otformer.words.bilingual import TokenPair
from otformer.words.gold import score_links
from otformer.words.ibm import Settings

DIAGONAL = Settings(order="diagonal", rounds=(5, 0), none=0.08)
HMM = Settings()
STEMS = Settings(letters=5)


@dataclass(frozen=True)
class Row:
    """One system on one gold set, in per cent; sees_text: its training text had the gold set's sentences, without links."""

    set: str
    system: str
    sees_text: str
    setting: str
    examples_aer: float
    aer: float
    low: float
    high: float
    precision: float
    recall: float
    f1: float
    seconds: float


def systems(text: Sequence[TokenPair], sets: Sequence[Set], elsewhere: dict[str, str]) -> Iterator[System]:
    """All systems of a language pair, and those on matrices from files."""
    own = [pair for which in sets for pair in pairs_of(which)]
    words = partial(word_directions, sets)
    for sees in (True, False):
        peer = Trained(eflomal.with_text if sees else eflomal.with_priors, text, sets)
        yield System("eflomal", sees, peer, partial(symmetrised, sets), eflomal.missing)
        seen = [*text, *own] if sees else text
        diagonal, whole, stems = (Trained(posteriors, seen, sets, settings) for settings in (DIAGONAL, HMM, STEMS))
        for name, model in (("IBM-2, diagonal (as fast_align)", diagonal), ("HMM", whole)):
            yield System(name, sees, model, partial(best_link_choices, sets))
            yield System(f"{name}, joined by transport", sees, model, lambda found: joined_choices(words(found)))
        both = Together(whole, stems)
        name = "HMM of words and of stems, joined by transport"
        yield System(name, sees, both, lambda models: mean_choices(*map(words, models)))
    yield from on_similarities("vectors", Trained(vector_similarities, text, sets))
    for name, file in elsewhere.items():
        found = read_matrices(Path(file), sets)
        if len(found) == 1:
            yield from on_similarities(name, Trained(lambda found=found: found[0]))
            continue
        yield System(f"{name}: joined by transport", False, Trained(lambda found=found: found), joined_choices)
        together = Together(both, Trained(lambda found=found: found))
        name = f"{name}, HMM of words and of stems: joined by transport"
        yield System(name, False, together, lambda made: mean_choices(*map(words, made[0]), made[1]))


def on_similarities(name: str, matrices: Trained) -> Iterator[System]:
    """SimAlign's ways and ours, on the same similarities."""
    for method in ("argmax", "itermax", "match"):
        yield System(f"{name}: SimAlign {method}", False, matrices, partial(simalign_choices, method), simalign_missing)
    for how in MATCHES:
        yield System(f"{name}: {how}", False, matrices, partial(our_choices, how))


def measure(system: System, sets: Sequence[Set]) -> Row:
    """Chosen on the examples, then scored on the gold; the seconds are those of training and of aligning the gold."""
    examples, gold = sets
    choices = system.choices(system.trained.value)
    on_examples = {setting: score_links(answer(0), examples.gold).aer for setting, answer in choices.items()}
    setting = min(on_examples, key=lambda s: on_examples[s])
    start = time.perf_counter()
    answer = choices[setting](1)
    seconds = system.trained.seconds + time.perf_counter() - start
    score = score_links(answer, gold.gold)
    rates = (score.aer, *score.interval(), score.precision, score.recall, score.f1)
    percent = [round(100 * value, 1) for value in (on_examples[setting], *rates)]
    return Row(gold.name, system.name, "yes" if system.sees_text else "no", setting, *percent, round(seconds, 1))


def table(rows: Sequence[Row], name: str) -> list[str]:
    """The Markdown table of a gold set."""
    head = ["system", "sees text", "chosen on the examples", "AER there", f"AER {name}"]
    head += ["precision", "recall", "F1", "seconds"]
    lines = [" | ".join(head), " | ".join(["---"] * 3 + ["---:"] * 6)]
    for r in rows:
        if r.set == name:
            aer = f"{r.aer} ({r.low}–{r.high})"
            cells = (r.system, r.sees_text, r.setting, r.examples_aer, aer, r.precision, r.recall, r.f1, r.seconds)
            lines.append(" | ".join(map(str, cells)))
    return [f"| {line} |" for line in lines]


def write_csv(file: Path, rows: Sequence[Row]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--languages", nargs="+", choices=list(TESTS), default=list(TESTS))
    parser.add_argument("--out", type=Path, default=Path("bench/results/aligners.csv"))
    parser.add_argument("--matrices", action="append", default=[], metavar="NAME=FILE", help="npz, see above")
    parser.add_argument("--pairs", type=int, help="use so many training pairs only: quick, and not the comparison")
    parser.add_argument("--only", default="", help="systems whose name holds this")
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    for languages in given.languages:
        text, sets = training(languages)[: given.pairs], (example_set(languages), gold_set(languages))
        files = dict(matrices.replace("{languages}", languages).split("=", 1) for matrices in given.matrices)
        wanted = list(systems(text, sets, files))
        print(f"\n## {languages}: {len(text):,} training pairs, {len(sets[1].gold)} gold pairs of {sets[1].name}\n")
        absent = []
        for system in (s for s in wanted if given.only in s.name):
            why = system.missing()
            if why:
                absent.append(f"{system.name}: missing, {why}")
                continue
            rows.append(measure(system, sets))
            print(rows[-1], file=sys.stderr, flush=True)
            write_csv(given.out, rows)
        print("\n".join([*table(rows, sets[1].name), "", *sorted(set(absent))]), flush=True)


if __name__ == "__main__":
    main()
