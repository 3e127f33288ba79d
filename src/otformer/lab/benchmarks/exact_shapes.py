"""Parts of drawn problems (exact_drawn.py), as people have them: clouds, matrices, weights, and what is done to costs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from otformer.lab.benchmarks.problems import Array, Points

Rng = np.random.Generator


def _box(n: int, m: int, d: int, rng: Rng) -> Points:
    return rng.random((n, d)), rng.random((m, d))


def _gaussian(n: int, m: int, d: int, rng: Rng) -> Points:
    """Two Gaussians that differ in mean and scale."""
    return rng.standard_normal((n, d)), 0.3 + 1.5 * rng.standard_normal((m, d))


def _tails(n: int, m: int, d: int, rng: Rng) -> Points:
    """Student's t of 1.5 degrees of freedom: no variance."""
    return rng.standard_t(1.5, (n, d)), rng.standard_t(1.5, (m, d))


def _lognormal(n: int, m: int, d: int, rng: Rng) -> Points:
    return rng.lognormal(0, 1.5, (n, d)), rng.lognormal(0.2, 1.5, (m, d))


def _grid(n: int, m: int, d: int, rng: Rng) -> Points:
    """Pixels, voxels, bins: points of a lattice with about twice as many places."""
    side = max(2, round((2 * max(n, m)) ** (1 / d)))
    return rng.integers(1, side + 1, (n, d)).astype(float), rng.integers(1, side + 1, (m, d)).astype(float)


def _cells(n: int, m: int, d: int, rng: Rng) -> Points:
    """Single cells: a dozen types of uneven shares that change, each a narrow Gaussian in a few of the directions."""
    centres, axes = 4 * rng.standard_normal((12, d)), 0.7 ** np.arange(d)
    shares = rng.dirichlet(np.full(12, 0.7), 2)
    sides = [
        centres[rng.choice(12, k, p=s)] * axes + 0.5 * rng.standard_normal((k, d))
        for k, s in zip((n, m), shares, strict=True)
    ]
    return sides[0], sides[1]


def _tracks(n: int, m: int, d: int, rng: Rng) -> Points:
    """Positions by GPS: random walks from a few places, far from the origin, to five decimals."""
    towns, sides = 50 + rng.random((6, d)), []
    for k in (n, m):
        steps, which = 1e-3 * rng.standard_normal((k, d)), np.sort(rng.integers(0, 6, k))
        sides.append(np.round(towns[which] + np.cumsum(steps, 0) - 0.5 * steps, 5))
    return sides[0], sides[1]


def _words(n: int, m: int, d: int, rng: Rng) -> Points:
    """Word vectors: unit vectors in a cone; y has the words of x in another order, with noise, and some twice."""
    x = rng.standard_normal((n, d)) + rng.standard_normal(d)
    y = x[rng.integers(0, n, m)] + 0.5 * rng.standard_normal((m, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True), y / np.linalg.norm(y, axis=1, keepdims=True)


def _near_duplicates(n: int, m: int, d: int, rng: Rng) -> Points:
    """A few places, each given many times with noise of 1e-7."""
    places = rng.random((max(2, n // 20), d))
    sides = [places[rng.integers(0, len(places), k)] + 1e-7 * rng.standard_normal((k, d)) for k in (n, m)]
    return sides[0], sides[1]


def _nearly_equal(n: int, m: int, d: int, rng: Rng) -> Points:
    """The points of one cloud, shuffled and moved by a thousandth."""
    pool = rng.random((max(n, m), d))
    return pool[:n], rng.permutation(pool[:m]) + 1e-3 * rng.standard_normal((m, d))


def _collinear(n: int, m: int, d: int, rng: Rng) -> Points:
    """Groups of points on straight lines."""
    starts, ways, sides = rng.random((5, d)), rng.standard_normal((5, d)), []
    for k in (n, m):
        which = rng.integers(0, 5, k)
        sides.append(starts[which] + rng.random((k, 1)) * ways[which])
    return sides[0], sides[1]


def _far_cluster(n: int, m: int, d: int, rng: Rng) -> Points:
    """A hundredth of both clouds, one point at least, lies 1,000 times as far away as the rest."""
    x, y = _box(n, m, d, rng)
    x[: 1 + n // 100] += 1e3
    y[: 1 + m // 100] += 1e3
    return x, y


def _curve(n: int, m: int, d: int, rng: Rng) -> Points:
    """A wound curve → a ball."""
    t = np.sqrt(rng.random((n, 1))) * 4 * np.pi
    turn = rng.standard_normal((m, d))
    x = t * np.cos(t + np.arange(d) * np.pi / 2) / 12
    return x, turn * (rng.random((m, 1)) ** (1 / d) / np.linalg.norm(turn, axis=1, keepdims=True))


def _strings(n: int, m: int, d: int, rng: Rng) -> Points:
    """Letters as numbers: one-hot codes and categories; y are strings of x with one letter in five changed."""
    letters = max(2, d)
    x = rng.integers(0, letters, (n, 8))
    y = np.where(rng.random((m, 8)) < 0.2, rng.integers(0, letters, (m, 8)), x[rng.integers(0, n, m)])
    return x.astype(float), y.astype(float)


Cloud = Callable[[int, int, int, Rng], Points]
CLOUDS: dict[str, Cloud] = {
    "a box": _box, "two Gaussians": _gaussian, "Student tails": _tails, "lognormal points": _lognormal, "pixels": _grid,
    "single cells": _cells, "GPS tracks": _tracks, "word vectors": _words, "near-duplicates": _near_duplicates,
    "nearly equal clouds": _nearly_equal, "collinear groups": _collinear, "a tiny cluster far away": _far_cluster,
    "a curve and a ball": _curve,
}  # fmt: skip


def _low_rank(n: int, m: int, rng: Rng) -> Array:
    return rng.random((n, 3)) @ rng.random((3, m))


def _graph(n: int, m: int, rng: Rng) -> Array:
    """Shortest paths along a road network: a tree of near places and as many further roads."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    total = n + m
    places, order = rng.random((total, 2)), np.arange(1, total)
    ends = np.concatenate([(order * rng.random(total - 1)).astype(int), rng.integers(0, total, total)])
    begins = np.concatenate([order, np.roll(rng.permutation(total), 1)])
    kept = begins != ends
    begins, ends = begins[kept], ends[kept]
    lengths = np.linalg.norm(places[begins] - places[ends], axis=1)
    return dijkstra(csr_array((lengths, (begins, ends)), shape=(total, total)), directed=False, indices=np.arange(n))[:, n:]


def _strings_apart(n: int, m: int, rng: Rng) -> Array:
    """The number of letters in which two strings differ."""
    x, y = _strings(n, m, 4, rng)
    return sum((np.not_equal.outer(x[:, k], y[:, k]).astype(float) for k in range(x.shape[1])), np.zeros((n, m)))


MATRICES: dict[str, Callable[[int, int, Rng], Array]] = {
    "random costs": lambda n, m, rng: rng.random((n, m)),
    "lognormal costs": lambda n, m, rng: rng.lognormal(0, 2, (n, m)),
    "a low-rank matrix": _low_rank,
    "whole costs of 0 to 20": lambda n, m, rng: rng.integers(0, 21, (n, m)).astype(float),
    "shortest paths": _graph,
    "Hamming distances": _strings_apart,
    "the matrix |i − j|": lambda n, m, rng: np.abs(np.subtract.outer(np.arange(n) * (m / n), np.arange(float(m)))),
    "a rank-one matrix": lambda n, m, rng: np.outer(rng.pareto(2, n), rng.pareto(2, m)),
    "rows given again": lambda n, m, rng: rng.random((max(2, n // 10), m))[rng.integers(0, max(2, n // 10), n)],
}


def _zipf(n: int, rng: Rng) -> Array:
    return rng.permutation(1.0 / np.arange(1, n + 1))


def _counts(n: int, rng: Rng) -> Array:
    """Counts of a histogram, some of them 0."""
    counts = rng.poisson(2.0, n).astype(float)
    counts[rng.integers(n)] += 1
    return counts


def _smooth(n: int, rng: Rng) -> Array:
    """A density along the index, with two bumps."""
    t = np.linspace(0, 1, n)
    return sum((np.exp(-np.square((t - c) / 0.1)) for c in rng.random(2)), np.full(n, 1e-3))


WEIGHTS: dict[str, Callable[[int, Rng], Array]] = {
    "random": lambda n, rng: rng.random(n) + 1e-3,
    "Zipf": _zipf,
    "counts": _counts,
    "a smooth density": _smooth,
    "lognormal": lambda n, rng: rng.lognormal(0, 2, n),
    "nearly equal": lambda n, rng: 1 + 1e-6 * rng.random(n),
    "a few heavy": lambda n, rng: np.where(np.arange(n) < 3, 0.5 * n, 1.0),
}


def _truncated(C: Array, rng: Rng) -> Array:
    return np.minimum(C, np.quantile(C, rng.uniform(0.05, 0.6)))


def _levels(C: Array, rng: Rng) -> Array:
    """Costs rounded to few distinct values."""
    steps = int(rng.integers(3, 12))
    return np.round((C - C.min()) / (np.ptp(C) or 1.0) * steps)


def _big_m(C: Array, rng: Rng) -> Array:
    """All but a tenth of the pairs cost a thousand times the largest; one pair of every row and column is kept."""
    n, m = C.shape
    kept = rng.random((n, m)) < 0.1
    kept[np.arange(n), rng.integers(0, m, n)] = kept[rng.integers(0, n, m), np.arange(m)] = True
    return np.where(kept, C, 1e3 * (np.abs(C).max() + 1))


def _offsets(C: Array, rng: Rng) -> Array:
    """A number for every row and column, which no plan can change, ten times as large as the costs."""
    size = 10 * (np.abs(C).max() or 1.0)
    return C + size * rng.random((len(C), 1)) + size * rng.random(C.shape[1])


def _saturated(C: Array, rng: Rng) -> Array:
    return 1 - np.exp(-np.abs(C) / (np.median(np.abs(C)) or 1.0))


CHANGES: dict[str, Callable[[Array, Rng], Array]] = {
    "cut off at min(c, t)": _truncated,
    "rounded to few values": _levels,
    "a big M on nine pairs in ten": _big_m,
    "offsets of rows and columns": _offsets,
    "1 − exp(−|c|)": _saturated,
    "to the power 1/2": lambda C, rng: np.sqrt(np.abs(C)),
    "to the power 3": lambda C, rng: (C / (np.abs(C).max() or 1.0)) ** 3,
    "log(1 + |c|)": lambda C, rng: np.log1p(np.abs(C)),
    "noise of a hundredth": lambda C, rng: C + 0.01 * (C.std() or 1.0) * rng.standard_normal(C.shape),
    "negated": lambda C, rng: -C,
    "in units of 1e-6": lambda C, rng: 1e6 * C,
}
