r"""The value of a streamed plan, in O(n + m) memory: its gradients, and theirs (costs/plan.py has the notation).

By the envelope theorem the value Σ P C + λ Σ P log P has the derivatives of −λ Σ P with u and v held still: M = −λ P.

**Second derivatives** are first ones of that gradient, −2 P y in x, u in a, v in b. In p it is P1, which is a whatever else
moves: as a function of the problem, a itself. A Hessian-vector product is thus the derivative of one product, and one
solution of H w = g.

**Σ P c of plain distances** c_ij = ‖x_i − y_j‖ has the derivative P_ij in c_ij and M = P ∘ c in log P. This M is not of low
rank as other losses' are, but in the derivatives of log P in x_i its c cancels, and what is left is an ordinary product:

    −Σ_j M_ij (x_i − y_j)/(λ c_ij) = −Σ_j P_ij (x_i − y_j)/λ  in x_i,      Σ_j P_ij c_ij/λ  in u_i,
    −Σ_ij M_ij (u_i + v_j − c_ij)/λ²  in λ,   with   Σ_ij M_ij c_ij = Σ_ij P_ij ‖x_i − y_j‖².
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from otformer.transport.costs.clouds import Rule
from otformer.transport.costs.plan import Operator, Product, StreamedPotentials, only_once, units


def own_squares(x: Tensor, y: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """What each side adds to −2 x·y in ‖x − y‖²; nothing to ‖x − y‖ itself."""
    return ((x * x).sum(-1), (y * y).sum(-1)) if not rule.root else (torch.zeros_like(x[:, 0]), torch.zeros_like(y[:, 0]))


def cost_slope(operator: Operator, apart: Tensor | float = 0.0) -> Tensor:
    """Σ_j P_ij ∂c_ij/∂x_i [n, d]: 2 (x_i r_i − (P y)_i), r = P1; of plain distances half of that, with P_ij/‖x_i − y_j‖.

    ``apart``, [d], is added to x: where p and q are what is left of moving the clouds, theirs is a part of the slope.
    """
    x, y = operator.parts[0] + apart, operator.parts[1]
    root = operator.kernel.rule.root
    sums = operator.right(torch.cat([torch.ones_like(y[:, :1]), y], 1), inverse=root)
    return (1 if root else 2) * (x * sums[:, :1] - sums[:, 1:])


class StreamedValue(Function):
    """A value already known, Σ P C + λ Σ P log P, with the derivatives of the envelope theorem in a, b, x, y, p, q and λ.

    Those of squared distances can be differentiated once more.
    """

    @staticmethod
    def forward(ctx: Any, operator: Operator, value: Tensor, a: Tensor, b: Tensor, *sides: Tensor) -> Tensor:
        ctx.save_for_backward(a, b, *sides)
        ctx.operator = operator
        return value.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            moving = _moving_gradients(ctx.operator, ctx.needs_input_grad[4:], *ctx.saved_tensors)
            return None, None, *(None if t is None else g * t for t in moving)
        *_, u, v, reg = ctx.operator.parts
        *in_sides, in_reg = ctx.needs_input_grad[4:]
        if not any((*in_sides, in_reg)):
            return None, None, g * u, g * v, *((None,) * 5)
        ones = torch.ones_like(u)[:, None], torch.ones_like(v)[:, None]
        *sides, rows, _, lam = (-reg * g * t for t in ctx.operator.pull(*ones, (*in_sides, False, False, in_reg)))
        return None, None, g * u, g * v, *sides, lam + rows.sum()  # rows: −λ Σ_j P_ij/λ


def _moving_gradients(
    operator: Operator, needed: tuple[bool, ...], a: Tensor, b: Tensor, *sides: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of the value in a, b, x, y, p, q and λ, with derivatives of their own; None for sides not ``needed``."""
    if operator.kernel.rule.root:
        raise RuntimeError("a streamed value can be differentiated once for plain distances, twice for squared distances")
    x, y, p, q, reg = sides
    in_x, in_y, *_, in_reg = needed
    u, v = StreamedPotentials.apply(operator, a, b, *sides)
    parts = (x, y, p, q, u, v, reg)
    with torch.no_grad():
        off_a, off_b = operator.right(torch.ones_like(b)) - a, operator.left(torch.ones_like(a)) - b
    r, c = a + off_a, b + off_b
    g_x = -2 * Product.apply(operator, y, *parts) if in_x or in_reg else None
    g_y = -2 * Product.apply(operator.T, x, *operator.turn(parts)) if in_y else None
    if g_x is None or not in_reg:
        return u, v, g_x, g_y, r, c, None
    logs = (r * (u - p)).sum() + (c * (v - q)).sum() - (g_x * x).sum()  # λ Σ P (log P + 1)
    return u, v, g_x, g_y, r, c, logs / reg - r.sum()


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
