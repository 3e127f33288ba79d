"""Does the coverage of a sentence pair (words/align/filtering.py) tell translations from what is none?

    OTFORMER_DATA=… python bench/filtering.py

Of news, which no model was trained on, half of the pairs stay, and half are spoiled in one of four ways: another sentence of
about the same length, the first half of the translation, the source itself, a sentence in another language. For each way it
prints the AUC, the probability that a translation has more coverage than a spoiled pair; for all of them together, precision
and recall of the pairs that ``otformer align --keep P`` leaves.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from otformer.words.aligning import Alignment, AlignWork
from otformer.words.text.text import Pair, news_pairs, sample, words

OTHER = {"en-fr": "de-en", "de-en": "en-fr"}  # where the sentences in another language come from
WAYS = ("shuffled", "truncated", "copied", "another language")
NEAREST = 40  # sentences drawn, of which the one of the nearest length is the wrong one


def spoiled(pairs: Sequence[Pair], way: str, others: Sequence[str], draw: random.Random) -> list[Pair]:
    """The sources of pairs with what is no translation."""
    if way == "copied":
        return [Pair(pair.source, pair.source) for pair in pairs]
    if way == "truncated":
        cut = [pair.target.split() for pair in pairs]
        return [
            Pair(pair.source, " ".join(target[: max(1, len(target) // 2)])) for pair, target in zip(pairs, cut, strict=True)
        ]
    if way == "another language":
        return [Pair(pair.source, other) for pair, other in zip(pairs, others, strict=True)]
    found = []
    for k, pair in enumerate(pairs):
        drawn = [draw.randrange(len(pairs) - 1) for _ in range(NEAREST)]
        targets = [pairs[n + (n >= k)].target for n in drawn]
        found.append(Pair(pair.source, min(targets, key=lambda text: abs(len(text) - len(pair.target)))))
    return found


def covered(found: Sequence[Alignment]) -> list[float]:
    return [pair.coverage or 0.0 for pair in found]


def auc(right: Sequence[float], wrong: Sequence[float]) -> float:
    """The probability that one of ``right`` is above one of ``wrong``, ties counting half (Mann and Whitney)."""
    ranks = rankdata([*right, *wrong])[: len(right)]
    return float((ranks.mean() - (len(right) + 1) / 2) / len(wrong))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--languages", nargs="+", choices=list(OTHER), default=list(OTHER))
    parser.add_argument("--method", default="hmm")
    parser.add_argument("--pairs", type=int, default=2000, help="news pairs of 3 to 60 words, half of which are spoiled")
    parser.add_argument("--keep", type=float, nargs="+", default=[0.4, 0.5, 0.55, 0.6, 0.65])
    given = parser.parse_args(arguments)
    for languages in given.languages:
        news = (pair for pair in news_pairs(languages) if all(3 <= len(words(side)) <= 60 for side in pair))
        drawn, draw = sample(news, given.pairs, seed=11), random.Random(0)
        draw.shuffle(drawn)
        pairs, rest = drawn[: given.pairs // 2], drawn[given.pairs // 2 :]
        side = 0 if OTHER[languages] == "de-en" else 1  # German, or French
        others = [pair[side] for pair in sample(news_pairs(OTHER[languages]), len(rest), seed=12)]
        align = AlignWork(languages, given.method)()
        right = covered(align(pairs))
        wrong = {way: covered(align(spoiled(rest, way, others, draw))) for way in WAYS}
        print(f"\n{languages}, {given.method}: {len(pairs)} translations, {len(rest)} pairs spoiled in each way")
        for way, values in wrong.items():
            print(f"  AUC, {way}: {auc(right, values):.3f}")
        every = np.concatenate([wrong[way][k :: len(WAYS)] for k, way in enumerate(WAYS)])  # as many of each as translations
        print(f"  AUC, a quarter of each: {auc(right, every):.3f}")
        for least in given.keep:
            kept, bad = np.mean(np.array(right) >= least), np.mean(every >= least)
            precision = kept * len(right) / max(kept * len(right) + bad * len(every), 1)
            print(f"  --keep {least:g}: precision {precision:.3f}, recall {kept:.3f}")


if __name__ == "__main__":
    main()
