"""Section 4.2 and figure 7 of the paper: transport between word vectors finds translated words, beside nearest neighbours.

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

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from otformer import figures
from otformer.lab.experiments import _sentences as sentences
from otformer.lab.experiments._sentences import NAMES, Corpus, percent
from otformer.lab.experiments._texts import ends, joined
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.statistics import ratio
from otformer.transport.ragged.batch import solve_batch
from otformer.words.align.methods import Vectors
from otformer.words.align.vectors import Array, WordVectors, as_unit, read_vectors
from otformer.words.probe.scores import estimate, ranks, sentence_scores
from otformer.words.text.gold import Link
from otformer.words.text.text import data_folder, words

REG = 0.05
METRICS = ("MRR", "Hits@1", "Hits@3")
ENDS = ("", "_std", "_pooled", "_low", "_high", "_pooled_low", "_pooled_high")  # of a metric's columns
METHODS = {"OT": figures.GREEN, "nearest": figures.PURPLE}  # with their colours
SENTENCE, PERMUTATION, EVERY = GOLD_READINGS = ("sentence", "permutation", "every pair")
GAIN = tuple(f"OT − nearest{pooled}{end}" for pooled in ("", ", pooled") for end in ("", ", low", ", high"))
LEAST_WORDS, LEAST_PAIRS = 3, 2  # "enough vocabulary": a side's words with a vector, and one-to-one gold pairs among them
GROUP = 256  # sentences whose plans are solved together
PAPER_HITS = 0.9  # Hits@1


def run(context: Context) -> Outcome:
    settings = list(_settings(context))
    rows: list[Row] = []
    for setting in context.each(settings, 0.95):
        for reading, scores in score_readings(sentences_with_vectors(setting, context)).items():
            rows += table(setting, reading, scores, context.seed)
    checks = {}
    for setting in settings:
        for reading in GOLD_READINGS:
            low = pick(rows, setting, reading)["OT − nearest, pooled, low"]
            checks[f"OT finds more than nearest neighbours: {setting.label}, {reading} (paired interval above 0)"] = low > 0
        hits = pick(rows, setting, SENTENCE)["Hits@1"]
        checks[f"Hits@1 of OT is at least 0.85, near the paper's {PAPER_HITS}: {setting.label}, {SENTENCE}"] = hits >= 0.85
    corpora = {setting.label: setting.corpus.label for setting in settings}
    plain = {"λ": REG, "corpora": corpora, "least words": LEAST_WORDS, "least pairs": LEAST_PAIRS}
    return Outcome(rows, _draw(settings, rows), _numbers(settings, rows), checks, plain)


def _settings(context: Context) -> Iterator[Setting]:
    """Our vectors in both language pairs; with ``full`` fasttextM as well, which has English and French.

    With ``full`` all of the news, of which sentences with enough vocabulary are taken later.
    """
    corpora = {languages: sentences.corpus(languages, context, size=10**6) for languages in NAMES}
    if context.full:
        file = data_folder() / "word_vectors" / "fasttextM_aligned_en_fr_300d.npz"
        english, french = (read_vectors(file, language) for language in ("en", "fr"))
        yield Setting("fasttextM", "en-fr", english, french, corpora["en-fr"])
    for languages in NAMES:
        ours = Vectors.shipped(languages)
        yield Setting("ours", languages, ours.source, ours.target, corpora[languages])


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
        kept = sorted(np.random.default_rng(context.seed).choice(kept, sentences.NEWS, replace=False).tolist())
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
            parts = (e.mean, e.std, e.pooled, *e.interval, *e.pooled_interval)
            row |= {metric + end: part for end, part in zip(ENDS, parts, strict=True)}
        rows.append(row | dict(zip(GAIN, gain(found, seed) if method == "OT" else [None] * len(GAIN), strict=True)))
    return rows


def gain(found: Scores, seed: int) -> list[float]:
    """Hits@1 of OT less that of nearest neighbours with its bootstrap interval, sentences drawn with both their scores:
    mean over sentences, then over all gold pairs."""
    difference = found.values[:, 0, 1] - found.values[:, 1, 1]
    weights = (np.ones(len(difference)), found.pairs)
    return [each for weight in weights for each in ratio(difference * weight, weight, seed=seed)]


def pick(rows: list[Row], setting: Setting, reading: str, method: str = "OT") -> Row:
    wanted = {"vectors": setting.vectors, "languages": setting.languages, "reading": reading, "method": method}
    return next(row for row in rows if wanted.items() <= row.items())


def _numbers(settings: list[Setting], rows: list[Row]) -> Numbers:
    found = [
        {
            "label": setting.label,
            "corpus": setting.corpus.label,
            "sentences": pick(rows, setting, SENTENCE)["sentences"],
            "readings": [_compared(rows, setting, reading) for reading in GOLD_READINGS],
        }
        for setting in settings
    ]
    least, most = ends(reading["hits"] for setting in found for reading in setting["readings"])
    more = [r for r in GOLD_READINGS if all(pick(rows, s, r)[GAIN[4]] > 0 for s in settings)]
    return {
        "settings": found,
        "hits": (least, most),
        "within": least <= 100 * PAPER_HITS <= most,
        "more": f"the readings {joined(more)}" if more else "no reading",
    }


def _compared(rows: list[Row], setting: Setting, reading: str) -> Numbers:
    """Transport and nearest neighbours in one reading."""
    ot, nearest = (pick(rows, setting, reading, method) for method in METHODS)
    gained = [100 * ot[name] for name in GAIN[3:]]
    return {"reading": reading, "hits": 100 * ot["Hits@1"], "ot": percent(ot), "nearest": percent(nearest), "gain": gained}


def _draw(settings: list[Setting], rows: list[Row]) -> figures.Figure:
    made, (left, hits, gains) = figures.figure(13, 4.8, columns=3, width_ratios=(1, 1.5, 0.8))
    ours = settings[-2]._replace(corpus=sentences.shipped("en-fr"))
    fox = known(ours, 0)
    sentences.heatmap(left, plans([fox])[0], (fox.source, fox.target), fox.gold, "OT plan of the fox pair")
    places = [(setting, reading) for setting in settings for reading in GOLD_READINGS]
    for y, (setting, reading) in enumerate(places):
        for (method, colour), marker, shift in zip(METHODS.items(), "os", (-0.14, 0.14), strict=True):
            _mark(hits, pick(rows, setting, reading, method), y + shift, colour, marker, "" if y else method)
        gained, low, high = (100 * pick(rows, setting, reading)[name] for name in GAIN[3:])
        gains.plot([low, high], [y, y], color=figures.GREEN, linewidth=2.4)
        gains.plot(gained, y, "o", color=figures.GREEN)
    hits.axvline(100 * PAPER_HITS, color=figures.INK, linestyle=":", linewidth=1.2, label=f"the paper's {PAPER_HITS}")
    gains.axvline(0, color=figures.INK, linewidth=0.8)
    for ax in (hits, gains):
        ax.set_yticks(range(len(places)), [f"{setting.label}, {reading}" for setting, reading in places], size=8)
        ax.tick_params(axis="y", length=0, labelleft=ax is hits)
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
    hits.set(xlabel="Hits@1 (%); thick: 95 %, thin: ± std of sentences", title="Translated words found", xlim=(50, 101))
    gains.set(xlabel="points of Hits@1, pooled, 95 %", title="OT less nearest, paired")
    sentences.legend(made)
    return made


def _mark(axes: Any, row: Row, y: float, colour: str, marker: str, label: str) -> None:
    """A method's Hits@1: the mean, its interval, and the standard deviation across sentences, the paper's error bar."""
    mean, std, low, high = (100 * row["Hits@1" + end] for end in ("", "_std", "_low", "_high"))
    axes.plot([mean - std, min(mean + std, 100)], [y, y], color=figures.GREY, linewidth=0.8)
    axes.plot([low, high], [y, y], color=colour, linewidth=2.4)
    axes.plot(mean, y, marker, color=colour, label=label)
