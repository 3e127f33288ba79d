"""The table of a probe (words/probe/probe.py), from the tallies of its chunks: a list of rows, and a CSV file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from otformer.statistics import bootstrap
from otformer.words.models.models import Model
from otformer.words.probe.probe import AT, IDENTITY, LIKENESS, ProbeSettings, Tally, probe_chunk
from otformer.words.probe.scores import estimate
from otformer.words.text.dictionary import Dictionary
from otformer.words.text.gold import Gold, rates
from otformer.words.text.text import Pair

METRICS = ("MRR", *(f"Hits@{k}" for k in AT))


def probe(
    model: Model,
    pairs: Iterable[Pair],
    dictionary: Dictionary | None = None,
    gold: Iterable[Gold] | None = None,
    settings: ProbeSettings | None = None,
) -> list[dict[str, Any]]:
    """Score every layer and head of a model as a word aligner, and measure the distance of its attention to transport.

    Parameters
    ----------
    model : Model
        A network that `models.load` loaded.
    pairs : iterable of Pair
        Sentences and their translations.
    dictionary : Dictionary, optional
        Gives the gold pairs of words: those of its entries that occur in both sentences (`gold_pairs`).
    gold : iterable of Gold, optional
        Links made by hand, one per pair; they are the gold pairs where there is no dictionary, and give the AER.
    settings : ProbeSettings, optional
        How to read the model, to take gold pairs and to solve for the plans.

    Returns
    -------
    list of dict
        The table of `tabulate`, one dict per way to get a matrix of words.

    Examples
    --------
    >>> import pytest; _ = pytest.importorskip("transformers")
    >>> from otformer.words.models.models import load
    >>> from otformer.words.models.shipped import folder
    >>> from otformer.words.text.gold import parse_links
    >>> table = probe(load(folder("en-fr")), [Pair("the cat sleeps", "le chat dort")], gold=[parse_links("0-0 1-1 2-2")])
    >>> [line["Hits@1"] for line in table if (line["reading"], line["layer"], line["head"]) == ("cross-input", 2, 6)]
    [1.0]
    """
    return tabulate([probe_chunk(model, pairs, dictionary, gold, settings)])


def tabulate(tallies: Iterable[Tally], level: float = 0.95, draws: int = 1000, seed: int = 0) -> list[dict[str, Any]]:
    """A dict for every `TableRow`: its name, then the `scores.estimate` of each metric, AER and its kin, and OT-likeness.

    For a metric q: ``q`` is the mean over sentences, with ``q_std`` across them and ``q_low``, ``q_high``, its bootstrap
    interval; ``q_pooled`` with its own is the mean over all gold pairs. All rows are drawn alike. AER, precision, recall and
    F1 are there where links were scored. Likeness is the mean over sentences, None for rows that are not attention;
    ``identity_cosine`` and ``matched`` (of transport alone) are means over sentences too (words/probe/identity.py).

    ``lost`` words have no subwords and are left out (`Tally`). ``tied`` is the share of gold pairs whose rank ties decide:
    a repeated word has one embedding, and a window that ends before the source gives 0 everywhere.
    """
    tally = Tally.joined(tallies)
    if not tally.pairs.any():
        raise ValueError(f"there is nothing to score: no gold pairs of words in {len(tally.pairs)} sentence pairs")
    shares = tally.scores.astype(float) / np.maximum(tally.pairs, 1)[:, None, None]  # [N, rows, metrics and ties]
    e = estimate(shares, tally.pairs, level, draws, seed)
    parts = {"": e.mean, "_std": e.std, "_low": e.interval[0], "_high": e.interval[1]}
    parts |= {"_pooled": e.pooled, "_pooled_low": e.pooled_interval[0], "_pooled_high": e.pooled_interval[1]}
    table: list[dict[str, Any]] = []
    for r, row in enumerate(tally.rows):
        line = row._asdict() | {"sentences": e.sentences, "pairs": e.pairs, "lost": int(tally.lost.sum())}
        line |= {metric + part: float(x[r, q]) for q, metric in enumerate(METRICS) for part, x in parts.items()}
        table.append(line | {"tied": float(e.pooled[r, len(METRICS)])})
    if tally.links.any():
        ends = bootstrap(tally.links, lambda sums: rates(sums)[0], level, draws, seed)
        aer, *others = rates(tally.links.sum(0, dtype=float))
        names = ("AER", "AER_low", "AER_high", "precision", "recall", "F1")
        for r, line in enumerate(table):
            line |= {name: float(x[r]) for name, x in zip(names, (aer, *ends, *others), strict=True)}
    with_words = ~np.isnan(tally.likeness[:, :, 0]).all(1)  # [N]
    for line, row in zip(table, tally.likeness[with_words].mean(0, dtype=float), strict=True):  # nan in rows without
        line |= {name: None if np.isnan(x) else float(x) for name, x in zip(LIKENESS, row, strict=True)}
    known = ~np.isnan(tally.identity)  # not without gold pairs, nor where attention to all of them is 0
    sums, counts = np.where(known, tally.identity, 0).sum(0, dtype=float), known.sum(0)
    for line, total, count in zip(table, sums, counts, strict=True):
        line |= {name: float(x / k) if k else None for name, x, k in zip(IDENTITY, total, count, strict=True)}
    return table
