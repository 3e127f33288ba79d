"""Families that nobody chose: a grammar composes them at random, and a seed reproduces them.

``drawn-17-3`` is the fourth of the ten families that seed 17 draws. A family is

    clouds (of one shape, or x of one and y of another) × dimension × metric, or a matrix
    × up to two changes of the costs × weights of both sides × a ratio m/n

Its problems, of any n and seed, are drawn as those of the other families are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from otformer.lab.benchmarks.exact_problem import METRICS, Problem
from otformer.lab.benchmarks.exact_shapes import CHANGES, CLOUDS, MATRICES, WEIGHTS
from otformer.lab.benchmarks.problems import Array

TEN = 10  # families of a seed
DIMENSIONS = (1, 2, 2, 3, 3, 10, 30)
DISTANCES = ("sqeuclidean", "sqeuclidean", "euclidean", "cosine", "cityblock", "chebyshev")
RATIOS = (1.0, 1.0, 1.0, 0.2, 0.7, 1.5, 3.0)  # m / n
Rng = np.random.Generator


@dataclass(frozen=True)
class Drawn:
    """``clouds``, one or two names, with dimension and metric, or one name of ``matrix``; weights are "" where uniform."""

    clouds: tuple[str, ...]
    dimension: int
    metric: Any  # a name
    matrix: str
    changes: tuple[str, ...]
    weights: tuple[str, str]
    ratio: float

    @property
    def words(self) -> str:
        """What was drawn, in a sentence."""
        of = f"{' → '.join(self.clouds)} in {self.dimension}-D, {self.metric}" if self.clouds else self.matrix
        changed = "".join(f", {change}" for change in self.changes)
        a, b = (weights or "equal" for weights in self.weights)
        weighted = f"{a} weights" if a == b else f"{a} → {b} weights"
        return f"{of[0].upper()}{of[1:]}{changed}; {weighted}; m = {self.ratio:g} n."

    def make(self, n: int, rng: Rng) -> Problem:
        m = max(2, round(self.ratio * n))
        sides = zip(self.weights, (n, m), strict=True)
        a, b = (None if not name else _normalised(WEIGHTS[name](k, rng)) for name, k in sides)
        if (a is None) != (b is None):
            a, b = (np.full(k, 1 / k) if w is None else w for w, k in ((a, n), (b, m)))
        if not self.clouds:
            return Problem(a=a, b=b, M=self._changed(MATRICES[self.matrix](n, m, rng), rng))
        x, y = CLOUDS[self.clouds[0]](n, m, self.dimension, rng)
        if len(self.clouds) == 2:
            y = CLOUDS[self.clouds[1]](n, m, self.dimension, rng)[1]
        if not self.changes and self.metric in METRICS:
            return Problem(x, y, a, b, metric=self.metric)
        return Problem(a=a, b=b, M=self._changed(cdist(x, y, self.metric), rng))

    def _changed(self, C: Array, rng: Rng) -> Array:
        for change in self.changes:
            C = CHANGES[change](C, rng)
        return C


def drawn(seed: int, k: int) -> Drawn:
    """The family number k of a seed.

    >>> drawn(17, 3) == drawn(17, 3)
    True
    """
    rng = np.random.default_rng([seed, k])

    def pick(options: Sequence[Any]) -> Any:
        return options[int(rng.integers(len(options)))]

    of_points = rng.random() < 0.7
    clouds = (pick([*CLOUDS]), *([pick([*CLOUDS])] if rng.random() < 0.3 else [])) if of_points else ()
    dimension = pick(DIMENSIONS)
    metric = pick(DISTANCES if dimension > 1 else DISTANCES[:3])  # a cosine of numbers is 0 or 2
    changes = tuple(pick([*CHANGES]) for _ in range(pick((0, 0, 1, 1, 2) if of_points else (0, 0, 1))))
    kind = rng.random()
    one = pick([*WEIGHTS])
    weights = ("", "") if kind < 0.4 else (one, one) if kind < 0.7 else (one, pick(["", *WEIGHTS]))
    matrix = "" if of_points else pick([*MATRICES])
    return Drawn(
        tuple(dict.fromkeys(clouds)), dimension, metric, matrix, tuple(dict.fromkeys(changes)), weights, pick(RATIOS)
    )


def place(name: str) -> tuple[int, int] | None:
    """Seed and number of the name of one drawn family; None of any other name.

    >>> place("drawn-17-3"), place("ring")
    ((17, 3), None)
    """
    found = re.fullmatch(r"drawn-(\d{1,9})-(\d)", name, re.ASCII)
    return None if found is None else (int(found[1]), int(found[2]))


def expanded(name: str) -> list[str]:
    """The ten names that drawn-SEED stands for; the name itself if it is of one drawn family; of any other name nothing."""
    if place(name) is not None:
        return [name]
    return [f"{name}-{k}" for k in range(TEN)] if re.fullmatch(r"drawn-\d{1,9}", name, re.ASCII) else []


def _normalised(w: Array) -> Array:
    total: Array = w / w.sum()
    return total
