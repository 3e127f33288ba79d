"""The benchmark's problems: every family is a function of a size and a seed, in float64.

Costs are squared Euclidean, except in ``random``; all are scaled so that the largest is 1. Weights are uniform.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from otformer import checks

Array = NDArray[np.float64]
Points = tuple[Array, Array]


@dataclass(frozen=True)
class Problem:
    """A cost C [n, m] with weights a [n], b [m]; x [n, d] and y [m, d] where C_ij = ‖x_i − y_j‖², else None."""

    family: str
    C: Array
    a: Array
    b: Array
    x: Array | None = None
    y: Array | None = None


def make(family: str, n: int, seed: int = 0) -> Problem:
    """The problem of this family with n points per side.

    >>> p = make("uniform-2d", 5)
    >>> p.C.shape, float(p.C.max()), p.x.shape
    ((5, 5), 1.0, (5, 2))
    """
    checks.choice("family", family, FAMILIES)
    rng = np.random.default_rng([seed, list(FAMILIES).index(family), n])
    points = FAMILIES[family](n, rng)
    if points is None:
        C = rng.random((n, n))
        return Problem(family, C / C.max(), *_uniform(n, n))
    return between(family, *points)


def between(family: str, x: Array, y: Array) -> Problem:
    """The problem between two sets of points, moved and scaled so that the largest squared distance is 1."""
    centre = x.mean(0)
    x, y = x - centre, y - centre
    scale = cdist(x, y).max()
    x, y = x / scale, y / scale
    C = cdist(x, y, "sqeuclidean")
    return Problem(family, C / C.max(), *_uniform(len(x), len(y)), x, y)


def _uniform(n: int, m: int) -> Points:
    return np.full(n, 1 / n), np.full(m, 1 / m)


def _gaussian(dim: int) -> Callable[[int, np.random.Generator], Points]:
    return lambda n, rng: (rng.standard_normal((n, dim)), rng.standard_normal((n, dim)))


def _clustered(n: int, rng: np.random.Generator) -> Points:
    """Ten tight clusters per side in the unit cube; x and y have different ones, of different sizes."""

    def side() -> Array:
        centres = rng.random((10, 3))
        return centres[rng.choice(10, n, p=rng.dirichlet(np.full(10, 3.0)))] + 0.02 * rng.standard_normal((n, 3))

    return side(), side()


def _words(n: int, rng: np.random.Generator, m: int | None = None, dim: int = 64) -> Points:
    """Unit vectors in a narrow cone, as word vectors are; y are the same words in another order, with noise.

    Where m > n some words of x have two partners; where m < n some have none.
    """
    m = m or n
    cone = rng.standard_normal(dim)
    x = rng.standard_normal((n, dim)) + cone
    partner = np.concatenate([rng.permutation(n), rng.integers(0, n, max(m - n, 0))])[:m]
    y = x[partner] + 0.5 * rng.standard_normal((m, dim))
    return x / np.linalg.norm(x, axis=1, keepdims=True), y / np.linalg.norm(y, axis=1, keepdims=True)


FAMILIES: dict[str, Callable[[int, np.random.Generator], Points | None]] = {
    "uniform-2d": lambda n, rng: (rng.random((n, 2)), rng.random((n, 2))),
    "sorting-1d": lambda n, rng: (rng.random((n, 1)), np.arange(1, n + 1)[:, None] / n),  # numbers and their ranks, i/n
    "gaussian-10d": _gaussian(10),
    "random": lambda n, rng: None,
    "gaussian-64d": _gaussian(64),
    "clustered": _clustered,
    "words": _words,
}


def sentences(count: int, seed: int = 0) -> list[Problem]:
    """Ragged problems: word-like vectors, n and m from 3 to 60.

    >>> len(sentences(5)), all(3 <= size <= 60 for p in sentences(5) for size in p.C.shape)
    (5, True)
    """
    rng = np.random.default_rng([seed, 1])
    sizes = rng.integers(3, 61, (count, 2))
    return [between("sentences", *_words(int(n), rng, int(m))) for n, m in sizes]
