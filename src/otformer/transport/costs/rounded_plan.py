r"""A rounded plan that is never formed, diag(s) P diag(t) + α βᵀ: its products and its cost, in O(n + m) memory.

What α βᵀ costs, for squared distances, the means x̄, ȳ and the masses |α|, |β| of points with weights α and β tell:

    Σ_ij α_i β_j ‖x_i − y_j‖² = |β| Σ_i α_i ‖x_i − x̄‖² + |α| Σ_j β_j ‖y_j − ȳ‖² + |α| |β| ‖x̄ − ȳ‖²,

all terms positive. Plain distances have no such formula, and are added up in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from otformer.transport.costs.distances import distances
from otformer.transport.costs.lazy_plan import ENTRIES, LazyPlan

ENTRIES_ON_GPU = 2**26  # of a block of distances
SMALLEST = 2.0**-1022  # the least number with all its digits: in place of 0 where something is divided by it


class Correction(NamedTuple):
    """The plan α_i β_j for pairs of one group, 0 for others: of rank one for each group."""

    alpha: Tensor  # [n]
    beta: Tensor  # [m]
    in_x: Tensor  # [n], the number of each row's group
    in_y: Tensor  # [m]

    @property
    def T(self) -> Correction:
        return Correction(self.beta, self.alpha, self.in_y, self.in_x)

    def right(self, w: Tensor) -> Tensor:
        """Products with w [m] or [m, k]."""
        return _times(self.alpha, self._sums(self.in_y, _times(self.beta, w))[self.in_x])

    def cost(self, x: Tensor, y: Tensor, root: bool) -> Tensor:
        """Σ_ij α_i β_j ‖x_i − y_j‖² for points [n, d] and [m, d]; plain distances are computed block by block of rows."""
        if root:
            step = max(1, (ENTRIES_ON_GPU if x.is_cuda else ENTRIES) // len(y))
            blocks = ((self.rows(i, i + step) * distances(x[i : i + step], y)).sum() for i in range(0, len(x), step))
            return torch.stack([*blocks]).sum()
        (alpha, mean_x, var_x), (beta, mean_y, var_y) = (
            self._moments(*side) for side in ((self.in_x, self.alpha, x), (self.in_y, self.beta, y))
        )
        return (beta * var_x + alpha * var_y + alpha * beta * (mean_x - mean_y).square().sum(1)).sum()

    def _moments(self, at: Tensor, w: Tensor, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mass, mean and mass times variance of every group."""
        mass = self._sums(at, w)
        mean = self._sums(at, _times(w, points)) / mass.clamp_min(SMALLEST)[:, None]
        return mass, mean, self._sums(at, w * (points - mean[at]).square().sum(1))

    def _sums(self, at: Tensor, w: Tensor) -> Tensor:
        """Sums over the groups of w [n] or [n, k]."""
        return w.new_zeros(1 + int(torch.cat([self.in_x, self.in_y]).max()), *w.shape[1:]).index_add(0, at, w)

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows start to stop, [stop − start, m]."""
        part = slice(start, stop)
        return torch.where(self.in_x[part, None] == self.in_y, self.alpha[part, None] * self.beta, 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class RoundedPlan(LazyPlan):
    """The plan diag(s) P diag(t) + α βᵀ."""

    plan: LazyPlan  # of tensors
    scales: tuple[Tensor, Tensor]  # s [n], t [m]
    correction: Correction
    numpy: bool

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return self.plan.shape

    @property
    def T(self) -> RoundedPlan:
        return RoundedPlan(self.plan.T, self.scales[::-1], self.correction.T, self.numpy)

    def _product(self, w: Tensor) -> Tensor:
        (s, t), w = self.scales, w.to(self.scales[0])
        return _times(s, self.plan @ _times(t, w)) + self.correction.right(w)

    def _rows(self, start: int, stop: int) -> Tensor:
        s, t = self.scales
        return s[start:stop, None] * self.plan.rows(start, stop) * t + self.correction.rows(start, stop)


def _times(w: Tensor, columns: Tensor) -> Tensor:
    """w [n] times columns [n] or [n, k]."""
    return w * columns if columns.ndim == 1 else w[:, None] * columns
