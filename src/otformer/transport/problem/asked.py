"""What was asked, kept beside the result so that it can be shown with it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from otformer import checks
from otformer.network.features import Features

KEPT_POINTS = 20_000  # points of a side at most: more are not copied, and drawn where they are given again
COST_NAMES = {
    "sqeuclidean": "squared Euclidean distances", "euclidean": "Euclidean distances", "cosine": "1 − cosine",
    "inner": "−x·y",
}  # fmt: skip
GIVEN_SUMS, PRICED_SUMS = "over plans with the given row and column sums", "and a price for every sum that is missed"


class Asked(NamedTuple):
    """cost : a matrix, features, or how costs are made of points.   reg : λ, 0 of an exact solve.

    dim : coordinates of the points, or None.   points : copies of x (n, d) and y (m, d), d ≤ 2, or None.
    """

    cost: Any
    reg: Any
    balanced: bool
    dim: int | None = None
    points: tuple[Any, Any] | None = None

    def said(self) -> str:
        """What was minimised, in a line.

        >>> Asked(None, 0.5, True).said()
        'Minimised: Σ P C + λ Σ P log P, λ = 0.5, over plans with the given row and column sums. Costs C: the matrix given.'
        """
        entropy = f" + λ Σ P log P, λ = {float(self.reg):.4g}," if float(self.reg) else ""
        return f"Minimised: Σ P C{entropy} {GIVEN_SUMS if self.balanced else PRICED_SUMS}. Costs C: {self._costs()}."

    def _costs(self) -> str:
        if isinstance(self.cost, Features):
            return "of the features given"
        if self.dim is None:
            return "the matrix given"
        name = COST_NAMES[self.cost] if isinstance(self.cost, str) else "a function"
        return f"{name} of points with {self.dim} coordinate{'s' * (self.dim != 1)}"


def asked(reg: Any, cost: Any, X_a: Any = None, X_b: Any = None, unbalanced: Any = None) -> Asked:
    """Of arguments that a solve has accepted; λ and points are copied, as whoever gave them may change them."""
    reg = reg.detach().clone() if isinstance(reg, Tensor) else reg
    if X_a is None:
        return Asked(cost if isinstance(cost, Features) else None, reg, unbalanced is None)
    x, y = _array("X_a", X_a), _array("X_b", X_b)
    dim = x.shape[-1]
    points = (_copy(x), _copy(y)) if dim <= 2 and max(len(x), len(y)) <= KEPT_POINTS else None
    return Asked(cost, reg, unbalanced is None, dim, points)


def _array(name: str, t: Any) -> Any:
    return t if isinstance(t, (np.ndarray, Tensor)) else checks.tensor(name, t)


def _copy(t: Any) -> Any:
    return t.detach().clone() if isinstance(t, Tensor) else t.copy()
