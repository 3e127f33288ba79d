"""What was solved, in words: a result keeps this to show it."""

from __future__ import annotations

from typing import Any, NamedTuple

from otformer.network.features import Features

KEPT_POINTS = 20_000  # points of a side at most: more are not copied, and drawn where they are given again
COST_NAMES = {
    "sqeuclidean": "squared Euclidean distances", "euclidean": "Euclidean distances", "cosine": "1 − cosine",
    "inner": "−x·y",
}  # fmt: skip
GIVEN_SUMS, PRICED_SUMS = "over plans with the given row and column sums", "and a penalty for every inexact sum"


class Description(NamedTuple):
    """cost : a matrix, features, or how costs are made of points.   reg : λ, 0 of an exact solve.

    dim : coordinates of the points, or None.   points : copies of x (n, d) and y (m, d), d ≤ 2, or None.
    """

    cost: Any
    reg: Any
    balanced: bool
    dim: int | None = None
    points: tuple[Any, Any] | None = None

    def sentence(self) -> str:
        """What was minimised, in a line.

        >>> Description(None, 0.5, True).sentence()
        'Minimised: Σ P C + λ Σ P log P, λ = 0.5, over plans with the given row and column sums. Costs C: as given.'
        """
        entropy = f" + λ Σ P log P, λ = {float(self.reg):.4g}," if float(self.reg) else ""
        return f"Minimised: Σ P C{entropy} {GIVEN_SUMS if self.balanced else PRICED_SUMS}. Costs C: {self._costs()}."

    def _costs(self) -> str:
        if isinstance(self.cost, Features):
            return "of the features given"
        if self.dim is None:
            return "as given"
        name = COST_NAMES[self.cost] if isinstance(self.cost, str) else "a function"
        return f"{name} of points with {self.dim} coordinate{'s' * (self.dim != 1)}"
