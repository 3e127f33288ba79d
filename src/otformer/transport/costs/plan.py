r"""A plan that is never formed: its products and their derivatives, in O(n + m) memory.

With features C_ij = p_i + q_j − 2 x_i·y_j (network/features.py), log P_ij = (u_i − p_i + v_j − q_j + 2 x_i·y_j)/λ − 1. If
the derivatives of a loss in log P_ij are M_ij = P_ij Σ_k G_ik W_jk, of low rank, then those in the rest are

    Σ_j M_ij/λ  in u_i and −p_i,      2 Σ_j M_ij y_j/λ  in x_i,      −Σ_ij M_ij (log P_ij + 1)/λ  in λ,

likewise for v, q and y; and Σ_j M_ij y_j = Σ_k G_ik (P (W_k ∘ y))_i: every sum is P or Pᵀ times a few columns. Three losses
have this form (transport/derivatives/implicit.py has the derivations, H and w):

    a product P W whose own gradient is G:              M = P ∘ (G Wᵀ);
    the value, by the envelope theorem that of −λ Σ P:  M = −λ P;
    the potentials, with H w = g:                       M_ij = −λ P_ij (w_i + w_j), and λ w_i in a_i, λ w_j in b_j.

H w = g is solved by conjugate gradients, two passes per step.

For plain distances, c_ij = ‖x_i − y_j‖ and log P_ij = (u_i + v_j − c_ij)/λ − 1, the derivative in x_i has the unit vectors
(x_i − y_j)/c_ij instead (0 where points coincide), so its sums are products with P_ij/c_ij, the ``inverse`` ones:

    −Σ_j M_ij (x_i − y_j)/(λ c_ij) = −(x_i Σ_j M_ij/c_ij − Σ_j M_ij y_j/c_ij)/λ  in x_i.

c is homogeneous, c = x·∂c/∂x + y·∂c/∂y, so Σ M_ij c_ij, a part of the derivative in λ, is −λ Σ x_i·g_i − λ Σ y_j·g_j with
those gradients g in x_i and y_j.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from otformer.transport.costs.distances import distances
from otformer.transport.costs.kernel import returned
from otformer.transport.costs.lazy_plan import LazyPlan
from otformer.transport.derivatives.envelope import forward_alone
from otformer.transport.derivatives.implicit import CG_RESIDUAL, solve_marginals
from otformer.transport.types import Problem

Parts = tuple[Tensor, ...]  # x [n, d], y [m, d], p [n], q [m], u [n], v [m], λ []: what a plan is a function of
WIDTH = 64  # columns in one product, about
SINGLE_RESIDUAL = 1e-6  # where conjugate gradients stop if products have the exponentials of float32


@dataclass(frozen=True, eq=False)
class PlanProducts:
    """P and Pᵀ as products, float64; ``turned`` exchanges the two. ``parts`` are numbers only, without derivatives.

    ``kernel``, or a cost, computes them (``products``, ``cost_sums``); the last three parts are u [n], v [m] and λ.
    """

    kernel: Any
    parts: Parts
    turned: bool = False

    @property
    def T(self) -> Any:
        return replace(self, parts=self.turn(self.parts), turned=not self.turned)

    @staticmethod
    def turn(parts: Parts) -> Parts:
        """The parts of the transposed plan."""
        u, v, reg = parts
        return v, u, reg

    def right(self, w: Tensor, **gain: bool) -> Tensor:
        """P @ w, for w [m] or [m, k]; with ``inverse=True`` every P_ij is divided by ‖x_i − y_j‖, between points only."""
        columns = w.reshape(len(w), -1)
        found: Tensor = self.kernel.products(*self._potentials, values=columns, rows=not self.turned, **gain)
        returned(self.kernel, "products", found, (len(self.parts[-3]), columns.shape[1]))
        return found.reshape(len(found), *w.shape[1:])

    def left(self, w: Tensor, **gain: bool) -> Tensor:
        """Pᵀ @ w, for w [n] or [n, k]; ``inverse`` as in `right`."""
        return self.T.right(w, **gain)

    def cost_sums(self) -> Tensor:
        """Σ_j P_ij c_ij, [n]."""
        found: Tensor = self.kernel.cost_sums(*self._potentials, rows=not self.turned)
        return returned(self.kernel, "cost_sums", found, (len(self.parts[-3]),))

    @property
    def _potentials(self) -> tuple[Tensor, Tensor, float]:
        """u, v and λ as the kernel knows them, whether this plan is turned or not."""
        *_, u, v, reg = self.parts
        return (v, u, float(reg)) if self.turned else (u, v, float(reg))

    def marginals(self) -> tuple[Tensor, Tensor]:
        """P1 [n] and Pᵀ1 [m]."""
        *_, u, v, _ = self.parts
        return self.right(torch.ones_like(v)), self.left(torch.ones_like(u))

    def pull(self, G: Tensor, W: Tensor, needed: tuple[bool, ...]) -> Parts:
        raise RuntimeError("products of this plan have gradients only in the vector")

    def block(self, parts: Parts, low: int, high: int) -> Tensor:
        """Rows low to high, [high − low, m]."""
        units = torch.zeros(len(self.parts[-3]), high - low, dtype=torch.float64, device=self.parts[-3].device)
        units[low:high].fill_diagonal_(1.0)
        return self.left(units).mT

    def given(self, problem: Problem, parts: Parts | None = None) -> StreamedPlan:
        """The plan as a result has it; ``parts`` are those with derivatives."""
        rows, columns = (
            problem.support[:2]
            if problem.support is not None
            else (torch.arange(len(w), device=w.device) for w in (problem.a, problem.b))
        )
        return StreamedPlan(self, parts or self.parts, (rows, columns), problem.shape, problem.form.device is None)


@dataclass(frozen=True, eq=False)
class Operator(PlanProducts):
    """The products of a plan between points, of which the parts are x, y, p, q, u, v and λ.

    ``residual``: where conjugate gradients stop, relative to their start; what the products' own precision allows.
    """

    residual: float = CG_RESIDUAL

    @staticmethod
    def turn(parts: Parts) -> Parts:
        x, y, p, q, u, v, reg = parts
        return y, x, q, p, v, u, reg

    def block(self, parts: Parts, low: int, high: int) -> Tensor:
        logs, allowed = self.logs(parts, low, high), self.allowed(low, high)
        return (logs if allowed is None else logs.masked_fill(~allowed, -torch.inf)).exp()

    def logs(self, parts: Parts, low: int, high: int) -> Tensor:
        """Logs of the rows low to high, [high − low, m]."""
        x, y, p, q, u, v, reg = parts
        inner = -distances(x[low:high], y) if self.kernel.rule.root else 2 * x[low:high] @ y.mT
        return (inner + (u - p)[low:high, None] + (v - q)) / reg - 1

    def allowed(self, start: int, stop: int) -> Tensor | None:
        """Which pairs of rows start to stop labels allow, [stop − start, m]; None for all."""
        rule = self.kernel.rule
        if rule.labels is None:
            return None
        own, other = rule.labels[::-1] if self.turned else rule.labels
        return rule.may_match(own[start:stop], other)

    def pull(self, G: Tensor, W: Tensor, needed: tuple[bool, ...]) -> Parts:
        """Gradients in the parts of a loss with M = P ∘ (G Wᵀ), G [n, k], W [m, k]; 0 for x, y and λ if not ``needed``."""
        x, y, p, q, u, v, reg = self.parts
        root = self.kernel.rule.root
        in_x, in_y = needed[0] or needed[6], needed[1] or (root and needed[6])
        rows, near_x = _sums(self.right, G, W, y if in_x and not root else y[:, :0])
        columns, near_y = _sums(self.left, W, G, x if in_y and not root else x[:, :0])
        g_x, g_y = torch.zeros_like(x), torch.zeros_like(y)
        if root:
            g_x = units(self.right, G, W, x, y) / reg if in_x else g_x
            g_y = units(self.left, W, G, y, x) / reg if in_y else g_y
        else:
            g_x, g_y = 2 / reg * near_x if in_x else g_x, 2 / reg * near_y if in_y else g_y
        moments = (g_x * x).sum() + ((g_y * y).sum() if root else 0.0)  # Σ M (2 x·y)/λ, or −Σ M c/λ
        logs = (rows * (u - p)).sum() + (columns * (v - q)).sum() + reg * moments  # λ Σ M (log P + 1)
        return g_x, g_y, -rows / reg, -columns / reg, rows / reg, columns / reg, -logs / reg**2


def _sums(product: Callable[[Tensor], Tensor], G: Tensor, W: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_j M_ij [n] and Σ_j M_ij points_j [n, d]."""
    points = torch.cat([torch.ones_like(W[:, :1]), points], 1)  # [m, 1 + d]
    d, total = points.shape[1], G.new_zeros(len(G), points.shape[1])
    for g, w in zip(*(t.split(max(1, WIDTH // d), 1) for t in (G, W)), strict=True):
        columns = product((w[:, :, None] * points[:, None]).flatten(1)).unflatten(1, (-1, d))  # [n, k, 1 + d]
        total += (g[:, :, None] * columns).sum(1)
    return total[:, 0], total[:, 1:]


def units(product: Callable[..., Tensor], G: Tensor, W: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """−Σ_j M_ij (x_i − y_j)/‖x_i − y_j‖, [n, d]."""
    sums, near = _sums(partial(product, inverse=True), G, W, y)
    return near - x * sums[:, None]


class Product(Function):
    """P @ W, W [m, k]."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, W: Tensor, *parts: Tensor) -> Tensor:
        ctx.save_for_backward(W)
        ctx.save_for_forward(W, *parts)
        ctx.operator = operator
        return operator.right(W)

    @staticmethod
    def jvp(ctx: Any, _: Any, dW: Tensor, *parts: Tensor) -> Tensor:
        """In W alone: parts of a plan carry no tangents (problem/read_points.py)."""
        forward_alone(*ctx.saved_tensors)
        return ctx.operator.right(dW)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        only_once()
        (W,) = ctx.saved_tensors
        _, in_W, *in_parts = ctx.needs_input_grad
        through = ctx.operator.pull(G, W, in_parts) if any(in_parts) else (None,) * len(in_parts)
        return None, ctx.operator.left(G) if in_W else None, *through


class StreamedPotentials(Function):
    """(u, v), as found, with their derivatives in a, b, x, y, p, q and λ."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, a: Tensor, b: Tensor, *sides: Tensor) -> tuple[Tensor, Tensor]:
        ctx.operator = operator
        return operator.parts[4].clone(), operator.parts[5].clone()

    @staticmethod
    def backward(ctx: Any, g_u: Tensor, g_v: Tensor) -> tuple[Tensor | None, ...]:
        only_once()
        operator: Operator = ctx.operator
        reg, (*in_sides, in_reg) = operator.parts[6], ctx.needs_input_grad[3:]
        w_u, w_v = solve_marginals(operator.right, operator.left, g_u, g_v, operator.residual)
        G, W = torch.stack([w_u, torch.ones_like(w_u)], 1), torch.stack([torch.ones_like(w_v), w_v], 1)
        x, y, p, q, _, _, lam = (-reg * t for t in operator.pull(G, W, (*in_sides, False, False, in_reg)))
        return None, reg * w_u, reg * w_v, x, y, p, q, lam


def only_once() -> None:
    if torch.is_grad_enabled():  # gradients are numbers here: a derivative of them would be wrong without a word
        raise RuntimeError("a streamed result's plan and products can be differentiated only once, its value twice")


@dataclass(frozen=True, eq=False, repr=False)
class StreamedPlan(LazyPlan):
    """A plan known by its potentials: products (in the dtype of the vector) and rows are differentiable.

    ``plan.argmax(axis)`` is where rows, or columns, are greatest.
    """

    operator: PlanProducts
    parts: Parts  # of the points that have mass
    present: tuple[Tensor, Tensor]  # indices of those, [n'] and [m']
    shape: tuple[int, int]
    numpy: bool

    @property
    def T(self) -> StreamedPlan:
        return replace(
            self, operator=self.operator.T, parts=self.operator.turn(self.parts), present=self.present[::-1],
            shape=self.shape[::-1],
        )  # fmt: skip

    def _product(self, w: Tensor) -> Tensor:
        rows, columns = self.present
        W = w.to(rows.device).double()[columns].reshape(len(columns), -1)
        out = Product.apply(self.operator, W, *self.parts)
        if len(rows) < self.shape[0]:
            out = out.new_zeros(self.shape[0], out.shape[1]).index_put((rows,), out)
        return out.reshape(len(out), *w.shape[1:]).to(w.dtype)

    def _rows(self, start: int, stop: int) -> Tensor:
        rows, columns = self.present
        low, high = torch.searchsorted(rows, torch.tensor([start, stop], device=rows.device)).tolist()
        block = self.operator.block(self.parts, low, high)
        shape = stop - start, self.shape[1]
        if tuple(block.shape) == shape:
            return block
        return block.new_zeros(shape).index_put((rows[low:high, None] - start, columns[None]), block)
