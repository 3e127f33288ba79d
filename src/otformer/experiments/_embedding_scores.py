"""Scores of transport and of nearest neighbours between word vectors, for the experiment ``embedding-ot``.

For a sentence pair with unit vectors y (target words, rows) and x (source words, columns), S = y xᵀ:

    OT        the entropic plan for the cost ‖y − x‖² = 2 − 2 S, λ = 0.05, uniform weights
    nearest   S itself

Both are ranked row by row over the same source words, so that they differ only in what transport adds: every word has its
share. The paper does not say which words enter, nor which dictionary pairs count where words stand there twice or have
several translations. Three readings, all reported, on the same sentences:

    sentence      all words that have a vector; gold pairs are one to one
    permutation   only the words of those pairs, as many on each side, as in the paper's equation (1): easier
    every pair    all words that have a vector; every dictionary pair (every hand-made link) counts, at every place
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from otformer.experiments import _sentences as sentences
from otformer.experiments._sentences import NAMES, Corpus
from otformer.experiments.experiment import Context, Row
from otformer.statistics import ratio
from otformer.transport.ragged.batch import solve_batch
from otformer.words.align.vectors import Array, WordVectors, as_unit
from otformer.words.probe.scores import estimate, ranks, sentence_scores
from otformer.words.text.gold import Link
from otformer.words.text.text import words

REG = 0.05
METRICS = ("MRR", "Hits@1", "Hits@3")
METHODS = ("OT", "nearest")
SENTENCE, PERMUTATION, EVERY = GOLD_READINGS = ("sentence", "permutation", "every pair")
GAIN = tuple(f"OT − nearest{pooled}{end}" for pooled in ("", ", pooled") for end in ("", ", low", ", high"))
LEAST_WORDS, LEAST_PAIRS = 3, 2  # "enough vocabulary": a side's words with a vector, and one-to-one gold pairs among them
GROUP = 256  # sentences whose plans are solved together


class Setting(NamedTuple):
    """Vectors of two languages and the sentence pairs they are used on."""

    vectors: str
    languages: str
    source: WordVectors
    target: WordVectors
    corpus: Corpus

    @property
    def label(self) -> str:
        return f"{self.vectors}, {NAMES[self.languages]}"


class Known(NamedTuple):
    """The words of a sentence pair that have vectors: cosines [m, n], the gold pairs among them, and every pair."""

    source: list[str]
    target: list[str]
    cosines: Array
    gold: list[Link]
    every: list[Link]


class Scores(NamedTuple):
    """values [N, methods, metrics] of sentences, and their numbers of gold pairs [N]."""

    values: Array
    pairs: Array


def sentences_with_vectors(setting: Setting, context: Context) -> list[Known]:
    """The sentence pairs with enough vocabulary; with ``full`` 10,000 of them, drawn by the seed, or all that there are."""
    given = setting.corpus
    kept = [k for k in range(len(given.pairs)) if _enough(setting, k)]
    if context.full and len(kept) > sentences.NEWS:
        drawn = np.random.default_rng(context.seed).choice(kept, sentences.NEWS, replace=False)
        kept = sorted(drawn.tolist())
    if not kept:
        raise ValueError(f"no sentence pair of {given.label} has enough words with a vector: {setting.label}")
    return [known(setting, k) for k in kept]


def _enough(setting: Setting, number: int) -> bool:
    source, target = _places(setting, number)
    pairs = sum(i in source and j in target for i, j in setting.corpus.gold[number])
    return min(len(source), len(target)) >= LEAST_WORDS and pairs >= LEAST_PAIRS


def _places(setting: Setting, number: int) -> tuple[dict[int, int], dict[int, int]]:
    """Of each side of a sentence pair, the places of words with a vector, and its row."""
    pair, by = setting.corpus.pairs[number], setting.corpus.by
    source, target = (
        {k: row for k, row in enumerate(vectors.rows(words(side, by))) if row is not None}
        for vectors, side in zip((setting.source, setting.target), pair, strict=True)
    )
    return source, target


def known(setting: Setting, number: int) -> Known:
    """A sentence pair without the words that have no vector."""
    source, target = sides = _places(setting, number)
    given = setting.corpus
    x = as_unit(setting.source.matrix[list(source.values())].astype(float))
    y = as_unit(setting.target.matrix[list(target.values())].astype(float))
    i_at, j_at = ({old: new for new, old in enumerate(side)} for side in sides)

    def there(pairs: Sequence[Link]) -> list[Link]:
        return [(i_at[i], j_at[j]) for i, j in pairs if i in i_at and j in j_at]

    e, f = ([words(side, given.by)[k] for k in kept] for side, kept in zip(given.pairs[number], sides, strict=True))
    return Known(e, f, y @ x.T, there(given.gold[number]), there(given.every[number]))


def permutation(given: Known) -> Known:
    """The words of the gold pairs alone, in the order of the pairs: gold is the diagonal."""
    i, j = (list(side) for side in zip(*given.gold, strict=True))
    diagonal = [(k, k) for k in range(len(i))]
    e, f = [given.source[k] for k in i], [given.target[k] for k in j]
    return Known(e, f, given.cosines[np.ix_(j, i)], diagonal, diagonal)


def plans(given: Sequence[Known]) -> list[Array]:
    """The entropic plan of every sentence pair, mass 1."""
    costs = [2 - 2 * each.cosines for each in given]
    groups = (costs[k : k + GROUP] for k in range(0, len(costs), GROUP))
    return [result.plan for group in groups for result in solve_batch(group, reg=REG, tol=1e-6)]


def score_readings(given: Sequence[Known]) -> dict[str, Scores]:
    """All readings of the same sentences."""
    alone = [permutation(each) for each in given]
    found = plans(given)
    return {
        SENTENCE: score(given, found, [each.gold for each in given]),
        PERMUTATION: score(alone, plans(alone), [each.gold for each in alone]),
        EVERY: score(given, found, [each.every for each in given]),
    }


def score(given: Sequence[Known], found: Sequence[Array], gold: Sequence[Sequence[Link]]) -> Scores:
    """Both methods on the same words of every sentence."""
    matrices = [np.stack([plan, each.cosines]) for plan, each in zip(found, given, strict=True)]
    values = [sentence_scores(ranks(both, pairs)) for both, pairs in zip(matrices, gold, strict=True)]
    return Scores(np.stack(values), np.array([len(pairs) for pairs in gold]))


def table(setting: Setting, reading: str, found: Scores, seed: int) -> list[Row]:
    """A line for each method: what `estimate` says of each metric, and `gain`."""
    rows: list[Row] = []
    for m, method in enumerate(METHODS):
        row: Row = {"vectors": setting.vectors, "languages": setting.languages, "reading": reading, "method": method}
        row |= {"sentences": len(found.pairs), "pairs": int(found.pairs.sum())}
        for q, metric in enumerate(METRICS):
            e = estimate(found.values[:, m, q], found.pairs, seed=seed)
            row |= {metric: e.mean, f"{metric}_std": e.std, f"{metric}_pooled": e.pooled}
            row |= {f"{metric}_low": e.interval[0], f"{metric}_high": e.interval[1]}
            row |= dict(zip((f"{metric}_pooled_low", f"{metric}_pooled_high"), e.pooled_interval, strict=True))
        rows.append(row | dict(zip(GAIN, gain(found, seed) if method == "OT" else [None] * len(GAIN), strict=True)))
    return rows


def gain(found: Scores, seed: int) -> list[float]:
    """Hits@1 of OT less that of nearest neighbours with its bootstrap interval, sentences drawn with both their scores:
    mean over sentences, then over all gold pairs."""
    difference = found.values[:, 0, 1] - found.values[:, 1, 1]
    out: list[float] = []
    for weight in (np.ones(len(difference)), found.pairs):
        out += ratio(difference * weight, weight, seed=seed)
    return out
