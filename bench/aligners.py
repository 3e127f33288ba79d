"""Word aligners side by side, on the same text and both gold sets:

    OTFORMER_DATA=… python bench/aligners.py --languages en-fr de-en --out bench/results/aligners.csv

prints a Markdown table, and how far the method that ships is ahead of eflomal on the same sentences; the table is written as
CSV. Every setting is chosen on the shipped examples and on news (`chooser` of aligners_text.py), never on the gold. What was
trained is kept beside the CSV, under ``models``, and a run that was stopped goes on from there. ``--encoder FOLDER`` adds a
BERT-like model of concatenated pairs (lab/translators/networks.py), ``--translators FOLDER`` the translation models in its
folders en-fr, fr-en, de-en and en-de (lab/translators/networks.py), of which there may be one for a language pair.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import aligners_eflomal as eflomal
import aligners_encoder as encoder
import aligners_translator as translator
import numpy as np
from aligners_systems import (
    NULLS,
    Choices,
    System,
    Together,
    Trained,
    best_link_choices,
    joined_choices,
    mean,
    mean_choices,
    our_choices,
    posteriors,
    shipped_choices,
    shipped_directions,
    simalign_choices,
    simalign_missing,
    symmetrised,
    vector_similarities,
    word_directions,
)
from aligners_text import TESTS, Set, chooser, example_set, gold_set, news_set

from otformer.statistics import bootstrap
from otformer.words.align import aligners as ways
from otformer.words.align.aligners import MATCHES
from otformer.words.align.hmm.file import SETTINGS
from otformer.words.align.hmm.model import AlignmentSettings
from otformer.words.align.hmm.word_parts import training_parts
from otformer.words.text.gold import AlignmentScore, rates, score_links
from otformer.words.text.languages import LanguagePair
from otformer.words.text.training_text import TokenPair

DIAGONAL = AlignmentSettings(order="diagonal", rounds=(5, 0), p_null=0.08)
OURS = "HMM of words and of stems, joined by transport"
STEM = 5  # first letters, as in SETTINGS
PEERS = ("eflomal", f"eflomal of stems (first {STEM} letters)")
SHIPPED = (f"{OURS}: method hmm, as shipped", "attention of one head and those HMMs: method attention, as shipped")


@dataclass(frozen=True)
class Row:
    """One system on one gold set, in per cent; sees_text: its training text had the gold set's sentences, without links."""

    set: str
    system: str
    sees_text: str
    setting: str
    examples_aer: float
    news_aer: float
    aer: float
    low: float
    high: float
    precision: float
    recall: float
    f1: float
    seconds: float


def systems(
    languages: str,
    text: Sequence[TokenPair],
    sets: Sequence[Set],
    kept: Path,
    folder: Path | None = None,
    translators: Path | None = None,
) -> Iterator[System]:
    """All systems of a language pair; ``folder`` is that of an encoder, ``translators`` that of translators."""

    def trained(name: str, make: Any, *given: Any) -> Trained:
        return Trained(make, *given, keep=(kept, f"{languages}.{name}"))

    for name, sees, make in (("text", True, eflomal.with_text), ("priors", False, eflomal.with_priors)):
        for peer, kind, letters in ((PEERS[0], name, ()), (PEERS[1], f"stems-{name}", (STEM,))):
            learned = trained(f"eflomal-{kind}", make, text, sets, *letters)
            yield System(peer, sees, learned, partial(symmetrised, sets), eflomal.missing)
    words = partial(word_directions, sets)
    diagonal, whole, stems = (
        trained(name, posteriors, text, sets, settings)
        for name, settings in zip(("ibm-2", "hmm-words", "hmm-stems"), (DIAGONAL, *SETTINGS), strict=True)
    )
    for name, model in (("IBM-2, diagonal (as fast_align)", diagonal), ("HMM", whole)):
        yield System(name, False, model, partial(best_link_choices, sets))
        yield System(f"{name}, joined by transport", False, model, lambda found: joined_choices(words(found)))
    both = Together(whole, stems)
    yield System(OURS, False, both, lambda models: mean_choices(*map(words, models)))
    for name, way, missing in zip(SHIPPED, ("hmm", "attention"), (lambda: None, encoder.missing), strict=True):
        yield System(name, False, Trained(str, way), partial(shipped_choices, languages, sets), missing)
        parts = Trained(shipped_directions, languages, sets, way)
        yield System(f"method {way}, settings chosen again", False, parts, joined_choices, missing)
    yield from on_similarities("vectors", trained("vectors", vector_similarities, text, sets))
    yield System(
        "vectors: method vectors, as shipped", False, Trained(lambda: "vectors"), partial(shipped_choices, languages, sets)
    )
    if folder is not None:
        yield from on_encoder(trained("encoder", encoder.layers, folder, sets), sets, both)
    if translators is not None:
        places = {name: translators / name for name in (languages, str(LanguagePair.of(languages).reversed))}
        heads = [
            trained(f"translator-{name}", translator.best_head, place, sets, name != languages)
            for name, place in places.items()
            if place.is_dir()
        ]
        yield from on_translators(heads, sets, both)


def on_similarities(name: str, matrices: Trained) -> Iterator[System]:
    """SimAlign's ways and ours, on the same similarities."""
    for method in ("argmax", "itermax", "match"):
        yield System(f"{name}: SimAlign {method}", False, matrices, partial(simalign_choices, method), simalign_missing)
    for how in MATCHES:
        yield System(f"{name}: {how}", False, matrices, partial(our_choices, how))


def on_encoder(read: Trained, sets: Sequence[Set], hmm: Together) -> Iterator[System]:
    """Hidden states of the best layer, attention joined, and the mean of that attention and the HMM's posteriors."""
    if (why := encoder.missing()) is not None:
        yield System("encoder", False, read, lambda _: {}, lambda: why)
        return
    layer = encoder.best_layer(read.value, sets)
    yield from on_similarities(f"encoder, hidden states of layer {layer}", Trained(lambda: read.value.hidden[layer]))
    attention = partial(encoder.attention_choices, choices=joined_choices)
    yield System("encoder, attention of one layer, joined by transport", False, read, attention)

    def together(made: Any) -> Choices:
        directions = [word_directions(sets, found) for found in made[0]]
        return encoder.attention_choices(made[1], lambda both: mean_choices(*directions, both))

    yield System(
        "encoder's attention and HMM of words and of stems, joined by transport", False, Together(hmm, read), together
    )


def on_translators(heads: Sequence[Trained], sets: Sequence[Set], hmm: Together) -> Iterator[System]:
    """One head of a translator, or one of each direction's, and the mean of that and the HMM's posteriors."""
    if (why := encoder.missing()) is not None:
        yield System("translator", False, Together(), lambda _: {}, lambda: why)
        return
    for count in range(1, len(heads) + 1):
        few = heads[:count]
        chosen = " and ".join(each.value.name for each in few)
        name = f"attention of {'one translator' if count == 1 else 'both translators'} ({chosen})"

        def alone(made: Any) -> Choices:
            return joined_choices(translator.directions(*made))

        def together(made: Any) -> Choices:
            return mean_choices(mean(*(word_directions(sets, each) for each in made[0])), translator.directions(*made[1:]))

        yield System(f"{name}, joined by transport", False, Together(*few), alone)
        yield System(f"{name} and HMM of words and of stems, joined by transport", False, Together(hmm, *few), together)


def measure(system: System, sets: Sequence[Set]) -> tuple[Row, AlignmentScore]:
    """Chosen on the examples and news, then scored on the gold; seconds are those of training and of aligning the gold."""
    choices = system.choices(system.trained.value)
    errors = {setting: chooser(answer(0), answer(1), sets) for setting, answer in choices.items()}
    setting = min(errors, key=lambda s: sum(errors[s]))
    start = time.perf_counter()
    answer = choices[setting](2)
    seconds = system.trained.seconds + time.perf_counter() - start
    score = score_links(answer, sets[2].gold)
    rates = (score.aer, *score.interval(), score.precision, score.recall, score.f1)
    percent = [round(100 * value, 1) for value in (*errors[setting], *rates)]
    sees = "yes" if system.sees_text else "no"
    return Row(sets[2].name, system.name, sees, setting, *percent, round(seconds, 1)), score


def ahead(ours: AlignmentScore, other: AlignmentScore) -> tuple[float, float, float]:
    """The AER of another system less ours, and its 95 % bootstrap interval: sentences are drawn with the links of both."""

    def less(sums: Any) -> Any:
        return rates(sums[..., 4:])[0] - rates(sums[..., :4])[0]

    both = np.hstack([ours.counts, other.counts])
    return float(less(both.sum(0))), *bootstrap(both, less)


def compared(scores: dict[tuple[str, str], AlignmentScore]) -> Iterator[str]:
    """Lines on what ships beside the peers; scores by a system's name and whether it sees the text."""
    for mine, ((name, sees), score) in itertools.product(SHIPPED, scores.items()):
        ours = scores.get((mine, "no"))
        if ours is not None and name in PEERS:
            points, low, high = (100 * value for value in ahead(ours, score))
            yield f"{mine}, ahead of {name} (sees text: {sees}) by {points:.1f} points of AER ({low:.1f} to {high:.1f})"


def by_length(scores: dict[tuple[str, str], AlignmentScore], gold: Set) -> Iterator[str]:
    """Lines on what ships in short and long sentences, by their source words."""
    words = np.array([len(source) for source, _ in gold.words])
    for (name, _), score in scores.items():
        if name in SHIPPED:
            parts = []
            for least, most in ((1, 15), (16, 30), (31, 1000)):
                inside = (least <= words) & (words <= most)
                if inside.any():
                    counts = score.counts[inside].sum(0)
                    aer, links = 100 * rates(counts)[0], counts[2] / words[inside].sum()
                    parts.append(f"from {least} words: AER {aer:.1f}, {links:.2f} links per word")
            yield f"{name}; {'; '.join(parts)}"


def table(rows: Sequence[Row], name: str) -> list[str]:
    """The Markdown table of a gold set."""
    head = ["system", "sees text", "chosen setting", "AER examples", "AER news", f"AER {name}"]
    head += ["precision", "recall", "F1", "seconds"]
    lines = [" | ".join(head), " | ".join(["---"] * 3 + ["---:"] * 7)]
    for r in rows:
        if r.set == name:
            aer = f"{r.aer} ({r.low}–{r.high})"
            rates = (r.examples_aer, r.news_aer, aer, r.precision, r.recall, r.f1, r.seconds)
            lines.append(" | ".join(map(str, (r.system, r.sees_text, r.setting, *rates))))
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
    parser.add_argument("--encoder", type=Path, help="folder of an encoder for en-fr")
    parser.add_argument("--translators", type=Path, help="folder with translation models in folders en-fr, fr-en, …")
    parser.add_argument("--nulls", type=float, nargs="+", default=NULLS, help="prices of no link that joined systems try")
    parser.add_argument("--long", type=int, default=ways.LONG, help="words from which on that price stays what it is")
    parser.add_argument("--pairs", type=int, help="use so many training pairs only: quick, and not the comparison")
    parser.add_argument("--only", default="", help="systems whose name holds this")
    given = parser.parse_args(arguments)
    NULLS[:], ways.LONG = given.nulls, given.long
    rows: list[Row] = []
    start = time.perf_counter()
    for languages in given.languages:
        text = list(training_parts(languages))[: given.pairs]
        sets = example_set(languages), news_set(languages), gold_set(languages)
        folder = given.encoder if languages == "en-fr" else None
        sizes = ", ".join(f"{sum(bool(g.possible) for g in which.gold)} of {which.name}" for which in sets)
        print(f"\n## {languages}: {len(text):,} training pairs; gold pairs: {sizes}\n", flush=True)
        absent, scores = [], {}
        for system in systems(languages, text, sets, given.out.parent / "models", folder, given.translators):
            if given.only not in system.name:
                continue
            if (why := system.missing()) is not None:
                absent.append(f"{system.name}: missing, {why}")
                continue
            row, score = measure(system, sets)
            scores[row.system, row.sees_text] = score
            rows.append(row)
            print(f"{time.perf_counter() - start:6.0f} s  {rows[-1]}", file=sys.stderr, flush=True)
            write_csv(given.out, rows)
        said = [*table(rows, sets[2].name), "", *compared(scores), *by_length(scores, sets[2]), *sorted(set(absent))]
        print("\n".join(said), flush=True)


if __name__ == "__main__":
    main()
