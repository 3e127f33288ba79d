"""The table of a probe (words/probe/probe.py), from the tallies of its chunks: a list of rows, and a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from otformer import checks
from otformer.files import written
from otformer.words.models.models import Model
from otformer.words.probe.probe import AT, LIKENESS, Settings, Tally, probe_chunk
from otformer.words.text.dictionary import Dictionary
from otformer.words.text.gold import Gold, rates
from otformer.words.text.text import Pair

Array = np.ndarray[Any, np.dtype[Any]]
METRICS = ("MRR", *(f"Hits@{k}" for k in AT))


def probe(
    model: Model,
    pairs: Iterable[Pair],
    dictionary: Dictionary | None = None,
    gold: Iterable[Gold] | None = None,
    settings: Settings | None = None,
) -> list[dict[str, Any]]:
    """The table of a model and a corpus, in one go: `probe_chunk`, then `summarise`."""
    return summarise([probe_chunk(model, pairs, dictionary, gold, settings)])


def summarise(tallies: Iterable[Tally], level: float = 0.95, draws: int = 1000, seed: int = 0) -> list[dict[str, Any]]:
    """A dict for every `Row`: its name, then what `summarize` says of each metric, AER and its kin, and OT-likeness.

    For a metric q: ``q`` is the mean over sentences, with ``q_std`` across them and ``q_low``, ``q_high``, its bootstrap
    interval; ``q_pooled`` with its own is the mean over all gold pairs. All rows are drawn alike. AER, precision, recall and
    F1 are there where links were scored. Likeness is the mean over sentences, None for rows that are not attention.

    ``lost`` words have no subwords and are left out (`Tally`). ``tied`` is the share of gold pairs whose rank ties decide:
    a word that stands twice has one embedding, and a window that ends before the source gives all of it 0.
    """
    tally = Tally.joined(tallies)
    scored = tally.pairs > 0
    if not scored.any():
        raise ValueError(f"there is nothing to score: no gold pairs of words in {len(tally.pairs)} sentence pairs")
    weights = tally.pairs[scored].astype(float)
    sums, tied = np.split(tally.scores[scored].astype(float), [len(METRICS)], -1)
    values = sums / weights[:, None, None]  # [N, rows, metrics]
    columns = np.concatenate([values, sums], -1).reshape(len(values), -1)
    drawn = _drawn(np.column_stack([columns, np.ones_like(weights), weights]), draws, seed)
    single, pooled = np.split(drawn[:, :-2].reshape(len(drawn), *values.shape[1:-1], -1), 2, axis=-1)
    ends = [(1 - level) / 2, (1 + level) / 2]
    estimates = {
        "": values.mean(0),
        "_std": values.std(0),
        **_ends("", np.quantile(single / drawn[:, -2, None, None], ends, axis=0)),
        "_pooled": sums.sum(0) / weights.sum(),
        **_ends("_pooled", np.quantile(pooled / drawn[:, -1, None, None], ends, axis=0)),
    }
    table: list[dict[str, Any]] = []
    for r, row in enumerate(tally.rows):
        line = row._asdict() | {"sentences": len(values), "pairs": int(weights.sum()), "lost": int(tally.lost.sum())}
        line |= {metric + part: float(x[r, q]) for q, metric in enumerate(METRICS) for part, x in estimates.items()}
        table.append(line | {"tied": float(tied[:, r].sum() / weights.sum())})
    _add_links(table, tally.links, ends, draws, seed)
    _add_likeness(table, tally.likeness)
    return table


def _drawn(rows: Array, draws: int, seed: int) -> Array:
    """Sums [draws, c] of rows [N, c] drawn again with replacement; the draws of `scores.bootstrap`, for many columns."""
    rng, N = np.random.default_rng(seed), len(rows)
    counts = [np.bincount(rng.integers(N, size=N), minlength=N) for _ in range(checks.count("draws", draws))]
    return np.concatenate([np.stack(counts[k : k + 100]) @ rows for k in range(0, len(counts), 100)])


def _ends(name: str, ends: Array) -> dict[str, Array]:
    return {f"{name}_low": ends[0], f"{name}_high": ends[1]}


def _add_links(table: list[dict[str, Any]], counts: Array, ends: Sequence[float], draws: int, seed: int) -> None:
    """AER with its interval, precision, recall, F1 from counts [N, rows, 4]."""
    if not counts.any():
        return
    drawn = _drawn(counts.reshape(len(counts), -1).astype(float), draws, seed).reshape(-1, *counts.shape[1:])
    low, high = np.quantile(rates(drawn)[0], ends, axis=0)
    found = rates(counts.sum(0, dtype=float))
    for r, line in enumerate(table):
        aer, precision, recall, f1 = (float(rate[r]) for rate in found)
        line |= {"AER": aer, "AER_low": float(low[r]), "AER_high": float(high[r])}
        line |= {"precision": precision, "recall": recall, "F1": f1}


def _add_likeness(table: list[dict[str, Any]], alike: Array) -> None:
    """Means over the sentences [N, rows, 6] that have words."""
    there = ~np.isnan(alike[:, :, 0]).all(1)
    means = alike[there].mean(0, dtype=float)  # nan in the rows without
    for line, row in zip(table, means, strict=True):
        line |= {name: None if np.isnan(x) else float(x) for name, x in zip(LIKENESS, row, strict=True)}


def best(
    table: Sequence[dict[str, Any]], metric: str = "Hits@1", method: str = "attention", heads: bool = False
) -> dict[str, Any]:
    """The row of a method with the highest metric (lowest for AER), of means over heads or of single heads."""
    rows = [line for line in table if line["method"] == method and (line["head"] > 0) == heads]
    if not rows or metric not in rows[0]:
        raise ValueError(f"table must have {metric} of {method}, got {len(rows)} rows of it")
    return min(rows, key=lambda line: line[metric] * (1 if metric == "AER" else -1))


def write_csv(table: Sequence[dict[str, Any]], file: str | Path) -> None:
    """The table as CSV, a line a row, whole or not at all; six digits."""
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: f"{x:.6g}" if isinstance(x, float) else x for k, x in line.items()} for line in table)
    with written(Path(file)) as out:
        out.write(stream.getvalue().encode())
