r"""Σ P c of a streamed plan for plain distances c_ij = ‖x_i − y_j‖, and its derivatives, in O(n + m) memory.

Its derivative is P_ij in c_ij and, in the notation of costs/plan.py, M = P ∘ c in log P. This M is not of low rank as
other losses' are, but in the derivatives of log P in x_i its c cancels, and what is left is an ordinary product:

    −Σ_j M_ij (x_i − y_j)/(λ c_ij) = −Σ_j P_ij (x_i − y_j)/λ  in x_i,      Σ_j P_ij c_ij/λ  in u_i,
    −Σ_ij M_ij (u_i + v_j − c_ij)/λ²  in λ,   with   Σ_ij M_ij c_ij = Σ_ij P_ij ‖x_i − y_j‖².
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from otformer.transport.costs.plan import Operator, only_once, units


class Distances(Function):
    """Σ P c for plain distances c."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, *parts: Tensor) -> Tensor:
        ctx.operator = operator
        return operator.cost_sums().sum()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """P in c, and M = P ∘ c in log P."""
        only_once()
        operator: Operator = ctx.operator
        x, y, _, _, u, v, reg = operator.parts
        rows, columns = operator.cost_sums(), operator.T.cost_sums()
        near_x, near_y = (_differences(one) for one in (operator, operator.T))
        ones = torch.ones_like(u)[:, None], torch.ones_like(v)[:, None]
        toward_x, toward_y = units(operator.right, *ones, x, y), units(operator.left, *ones[::-1], y, x)
        squares = (x * near_x).sum() + (y * near_y).sum()  # Σ P c²
        lam = -((rows * u).sum() + (columns * v).sum() - squares) / reg**2
        in_x, in_y = -toward_x - near_x / reg, -toward_y - near_y / reg
        return None, g * in_x, g * in_y, None, None, g * rows / reg, g * columns / reg, g * lam


def _differences(operator: Operator) -> Tensor:
    """Σ_j P_ij (x_i − y_j), [n, d]."""
    x, y = operator.parts[:2]
    sums = operator.right(torch.cat([torch.ones_like(y[:, :1]), y], 1))
    return x * sums[:, :1] - sums[:, 1:]
