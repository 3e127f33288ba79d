"""A problem of exact transport: points with a metric, or a cost matrix, and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from otformer.lab.benchmarks.problems import Array


def _cosine(x: Array, y: Array) -> Array:
    return 1 - (x * y).sum(1) / (np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1))


METRICS: dict[str, Callable[[Array, Array], Array]] = {  # x [E, d], y [E, d] -> the costs of E pairs, [E]
    "sqeuclidean": lambda x, y: np.square(x - y).sum(1),
    "euclidean": lambda x, y: np.sqrt(np.square(x - y).sum(1)),
    "cosine": _cosine,
}


@dataclass(frozen=True)
class Problem:
    """Points x [n, d], y [m, d] and a metric of `METRICS`, or a cost matrix M [n, m]; weights are None where uniform."""

    x: Array | None = None
    y: Array | None = None
    a: Array | None = None
    b: Array | None = None
    M: Array | None = None
    metric: Any = "sqeuclidean"  # a name

    def __iter__(self) -> Iterator[Array | None]:
        """Yield x, y, a, b: a problem of points can be unpacked."""
        return iter((self.x, self.y, self.a, self.b))

    @property
    def points(self) -> tuple[Array, Array]:
        assert self.x is not None
        assert self.y is not None
        return self.x, self.y

    @property
    def shape(self) -> tuple[int, int]:
        if self.M is not None:
            return self.M.shape[0], self.M.shape[1]
        return len(self.points[0]), len(self.points[1])

    @property
    def assigns(self) -> bool:
        """Whether the optimum is an assignment: as many rows as columns, all of one weight."""
        return self.a is None and self.b is None and self.shape[0] == self.shape[1]

    def weights(self) -> tuple[Array, Array]:
        n, m = self.shape
        return np.full(n, 1 / n) if self.a is None else self.a, np.full(m, 1 / m) if self.b is None else self.b

    def rows(self, part: slice = slice(None)) -> Array:
        """Costs of some of the rows with all columns; by default the whole matrix."""
        return self.M[part] if self.M is not None else cdist(self.points[0][part], self.points[1], self.metric)

    def costs(self, i: Array, j: Array) -> Array:
        """Costs of pairs, [E]."""
        return self.M[i, j] if self.M is not None else METRICS[self.metric](self.points[0][i], self.points[1][j])
