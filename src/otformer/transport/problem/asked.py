"""What was asked, kept beside the result so that it can be shown with it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeVar

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


class HasParts(Protocol):
    """A result, which this file may not import: it imports this one."""

    @property
    def parts(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=HasParts)


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


def told(result: R, reg: Any, cost: Any, X_a: Any = None, X_b: Any = None, unbalanced: Any = None) -> R:
    """The result with what was asked, of arguments that a solve has accepted.

    λ and points are copied, as whoever gave them may change them. All in one function: every small solve goes through it.
    """
    reg = reg.detach().clone() if isinstance(reg, Tensor) else reg
    if X_a is None:
        asked = Asked(cost if isinstance(cost, Features) else None, reg, unbalanced is None)
    else:
        x, y = (t if isinstance(t, (np.ndarray, Tensor)) else checks.tensor("points", t) for t in (X_a, X_b))
        dim, points = x.shape[-1], None
        if dim <= 2 and max(len(x), len(y)) <= KEPT_POINTS:
            x, y = (t.detach().clone() if isinstance(t, Tensor) else t.copy() for t in (x, y))
            points = x, y
        asked = Asked(cost, reg, unbalanced is None, dim, points)
    result.parts["asked"] = asked
    return result
