"""Are links right as often as their probabilities say? A reliability table, and the curves of words/align/confidence.py.

    OTFORMER_DATA=… python bench/calibration.py --figure docs/calibration.png      # the table, as CSV too, and its figure
    OTFORMER_DATA=… python bench/calibration.py --fit --own OWN                    # the numbers of CURVES, TRAINED

The table is of Hansards and RWTH: links that `align` makes, in tenths of their probability, and how many are possible
or sure in the gold. Curves are fitted by logistic regression of "right" on the log odds of scores above LEAST, on

    a language pair that ships    the shipped examples, and news of which the dictionary's links are the gold, as in
                                  bench/aligners_text.py; only pairs of words of which one is in such a link
    a model that does not ship    all gold made by hand but the test sets': the shipped examples, and with ``--own``, which
                                  bench/own_text_data.py makes, the pairs of OWN, each by a model of its training text

so that every material weighs the same for each of its links.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from aligners_text import TESTS, example_set, gold_set, news_set
from scipy.optimize import minimize

from otformer import figures
from otformer.words.align.aligners import Array, join
from otformer.words.align.confidence import TRAINED, Curve, curve, log_odds
from otformer.words.align.hmm.model import AlignmentSettings, train_model
from otformer.words.align.methods import METHODS, method
from otformer.words.align.own_text import STEMS
from otformer.words.text.gold import Gold, read_gold
from otformer.words.text.text import read_lines

LEAST = 0.05  # score from which on a pair of words counts for a fit
MOST_TEXT, MOST_GOLD = 35_000, 500  # pairs that a model of OWN is trained on, and of its gold
OWN = "es-en", "cs-en", "fr-en-stories"  # folders of OWN


class Material(NamedTuple):
    """Scores of pairs of words, and whether they are linked in the gold."""

    scores: Array
    right: Array


def material(plans: Sequence[Array], gold: Sequence[Gold], partial: bool = False) -> Material:
    """All pairs of words; partial: those that share a word with a link, where the gold says nothing of other words."""
    scores, right = [], []
    for P, (_, possible) in zip(plans, gold, strict=True):
        linked = np.zeros(P.shape, bool)
        for i, j in possible:
            linked[j, i] = True
        used = linked.any(1, keepdims=True) | linked.any(0, keepdims=True) if partial else np.ones(P.shape, bool)
        scores.append(P[used])
        right.append(linked[used])
    return Material(np.concatenate(scores), np.concatenate(right))


def fitted(given: Sequence[Material]) -> Curve:
    """The curve of least cross-entropy, the mean over materials of that per link."""
    kept = [each.scores > LEAST for each in given]
    odds = np.concatenate([log_odds(each.scores[k]) for each, k in zip(given, kept, strict=True)])
    right = np.concatenate([each.right[k] for each, k in zip(given, kept, strict=True)])
    weight = np.concatenate([np.full(k.sum(), 1 / each.right[k].sum()) for each, k in zip(given, kept, strict=True)])

    def loss(line: Array) -> tuple[float, Array]:
        z = line[0] * odds + line[1]
        wrong = weight * (1 / (1 + np.exp(-z)) - right)
        return float(weight @ (np.logaddexp(0, z) - right * z)), np.array([wrong @ odds, wrong.sum()])

    slope, offset = minimize(loss, np.array([1.0, 0.0]), jac=True).x
    return Curve(round(float(slope), 2), round(float(offset), 2))


def shipped_materials(name: str, languages: str) -> list[Material]:
    way = method(name, languages)
    sets = example_set(languages), news_set(languages)
    return [material(way.scores(which.words), which.gold, which.name == "news") for which in sets]


class Posteriors(NamedTuple):
    """Both directions of sentence pairs, [m, n] each, and their gold."""

    forward: list[Array]
    backward: list[Array]
    gold: list[Gold]


def own_posteriors(folder: Path) -> Iterator[Posteriors]:
    """The gold of each pair of languages, aligned by models of its training text."""
    for name in OWN:
        sides = [[line.split() for line in read_lines(folder / name / f"train.{side}")] for side in ("src", "tgt")]
        text = [(e, f) for e, f in zip(*sides, strict=True) if e and f and max(len(e), len(f)) <= 50][:MOST_TEXT]
        tested = [[line.split() for line in read_lines(folder / name / f"test.{side}")] for side in ("src", "tgt")]
        pairs = list(zip(*tested, strict=True))[:MOST_GOLD]
        kinds = [AlignmentSettings(stem_letters=letters) for letters in (None, *STEMS)]
        found = [train_model(text, settings).pruned().posteriors(pairs) for settings in kinds]
        A, B = ([np.mean(same, axis=0) for same in zip(*side, strict=True)] for side in zip(*found, strict=True))
        yield Posteriors(A, B, read_gold(folder / name / "test.gold")[: len(pairs)])


def hand_made(own: Sequence[Posteriors], null: float) -> list[Material]:
    """All gold made by hand but the test sets', joined at one price of no link."""
    joined = list(own)
    for languages in TESTS:
        which = example_set(languages)
        joined.append(Posteriors(*method("hmm", languages).directions(which.words), which.gold))
    return [material(join(A, [b.T for b in B], null), gold) for A, B, gold in joined]


class Bin(NamedTuple):
    """Links whose probabilities lie in one tenth."""

    method: str
    set: str
    least: float
    links: int
    probability: float
    right: float

    @property
    def off(self) -> float:
        return abs(self.probability - self.right)


def reliability(name: str, languages: str) -> list[Bin]:
    """The bins of a method's links on the gold set."""
    way, which = method(name, languages), gold_set(languages)
    line, found = curve(name, languages), []
    for P, (_, possible) in zip(way.scores(which.words), which.gold, strict=True):
        found += [(float(line.probability(P[j, i])), (i, j) in possible) for i, j in way.links(P)]
    p, right = np.array(found).T
    tenth = np.minimum((10 * p).astype(int), 9)
    bins = [(k, tenth == k) for k in range(10) if (tenth == k).any()]
    return [
        Bin(name, which.name, k / 10, int(b.sum()), *(round(float(x[b].mean()), 3) for x in (p, right))) for k, b in bins
    ]


def drawn(bins: Sequence[Bin], least: int) -> Any:
    """A curve for each method and gold set, of bins with enough links, beside the diagonal."""
    figure, axes = figures.figure(5.2, 4.2)
    axes.plot([0, 1], [0, 1], color=figures.GREY, lw=1)
    axes.fill_between([0, 1], [-0.05, 0.95], [0.05, 1.05], color=figures.GREY, alpha=0.15, lw=0, label="within 0.05")
    for k, key in enumerate(dict.fromkeys((b.method, b.set) for b in bins)):
        points = [(b.probability, b.right) for b in bins if (b.method, b.set) == key and b.links >= least]
        axes.plot(*zip(*points, strict=True), "o-", color=figures.CYCLE[k], ms=4, label=", ".join(key))
    axes.set(xlabel="probability of a link", ylabel="share of links that are right", xlim=(0.2, 1), ylim=(0.2, 1.02))
    axes.legend(loc="lower right")
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--fit", action="store_true", help="print the curves")
    parser.add_argument("--own", type=Path, help="the folder of gold and text that bench/own_text_data.py makes")
    parser.add_argument("--least", type=int, default=100, help="links that a bin needs to count")
    parser.add_argument("--out", type=Path, default=Path("bench/results/calibration.csv"))
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args(arguments)
    if given.fit:
        for name in given.methods:
            for languages in TESTS:
                print(name, languages, fitted(shipped_materials(name, languages)), flush=True)
        own = list(own_posteriors(given.own)) if given.own else []
        for null in TRAINED:
            print(f"hmm that does not ship, null {null:g}", fitted(hand_made(own, null)), flush=True)
        return
    bins = [b for name in given.methods for languages in TESTS for b in reliability(name, languages)]
    print("| method | gold | probability | links | mean probability | right | off by |", "| --- " * 7 + "|", sep="\n")
    for b in bins:
        far = f"{b.off:.3f}" if b.links >= given.least else "–"
        print(
            f"| {b.method} | {b.set} | {b.least:.1f}–{b.least + 0.1:.1f} | {b.links} | {b.probability} | {b.right} | {far} |"
        )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([Bin._fields, *bins])
    if given.figure is not None:
        figures.save(lambda: drawn(bins, given.least), given.figure)


if __name__ == "__main__":
    main()
