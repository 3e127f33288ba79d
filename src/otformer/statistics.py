r"""Confidence intervals: the percentile bootstrap (Efron 1979) for sums over sentences, and Student's for a mean.

**Bootstrap.** Rows x_1 … x_N (a sentence each) are drawn again with replacement, N at a time; a row drawn k times counts k
times, so a resample is a vector of counts c and its sums are cᵀ x. The interval of a statistic of the sums,

    [q_{(1 − level)/2}, q_{(1 + level)/2}]  of  f(cᵀ x)  over the resamples,

draws sentences and not pairs of words, since the pairs of a sentence go together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from otformer import checks

Array = np.ndarray[Any, np.dtype[Any]]
TOGETHER = 100  # resamples whose counts are in memory at a time


def bootstrap(
    rows: Any, statistic: Callable[[Array], Any], level: float = 0.95, draws: Any = 1000, seed: int = 0
) -> tuple[Any, Any]:
    """The ends of the bootstrap interval of a statistic of sums over rows [N, ...], one row per sentence.

    statistic maps sums [draws, ...] to values [draws, ...], all of the same resamples; level is the share of them between
    the ends; draws is their number, or the resamples themselves as places [draws, N] in 0 … N − 1.

    >>> bootstrap([[0.0], [1.0], [1.0]], lambda sums: sums[:, 0] / 3)
    (0.0, 1.0)
    """
    table = np.asarray(rows, dtype=float)
    if table.ndim < 2 or not len(table):
        raise checks.ArgumentError("rows", "have shape (N, c) with N ≥ 1", table.shape)
    if not 0 < level < 1:
        raise checks.ArgumentError("level", "be between 0 and 1", repr(level))
    N, flat = len(table), table.reshape(len(table), -1)
    sums = np.concatenate([counts @ flat for counts in _counts(N, draws, seed)])
    values = statistic(sums.reshape(-1, *table.shape[1:]))
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return (float(low), float(high)) if low.ndim == 0 else (low, high)


def _counts(N: int, draws: Any, seed: int) -> Iterator[Array]:
    """How often each row is in each resample, [≤ TOGETHER, N] at a time."""
    rng, given = np.random.default_rng(seed), None if np.ndim(draws) == 0 else np.asarray(draws)
    total = checks.count("draws", draws) if given is None else len(given)
    for first in range(0, total, TOGETHER):
        size = min(TOGETHER, total - first)
        drawn = rng.integers(N, size=(size, N)) if given is None else given[first : first + size]
        yield np.bincount((drawn + N * np.arange(size)[:, None]).ravel(), minlength=size * N).reshape(size, N)


def ratio(parts: Any, wholes: Any, level: float = 0.95, draws: int = 1000, seed: int = 0) -> tuple[Any, Any, Any]:
    """Σ parts / Σ wholes over sentences, for parts [N, ...] and wholes [N], and the ends of its bootstrap interval.

    A sentence is drawn with both.

    >>> ratio([1, 1, 0], [1, 2, 1])[0]
    0.5
    """
    table = np.asarray(parts, dtype=float)

    def share(sums: Array) -> Array:
        return np.asarray(sums[..., :-1] / sums[..., -1:]).reshape(sums.shape[:-1] + table.shape[1:])

    both = np.column_stack([table.reshape(len(table), -1), wholes])
    found = share(both.sum(0))
    return found if found.ndim else float(found), *bootstrap(both, share, level, draws, seed)


def student(values: Any, level: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean of values [K], with K − 1 degrees of freedom.

    >>> low, high = student([1.0, 2.0, 3.0])
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    from scipy.stats import ttest_1samp

    low, high = ttest_1samp(np.asarray(values, dtype=float), 0.0).confidence_interval(level)
    return float(low), float(high)
