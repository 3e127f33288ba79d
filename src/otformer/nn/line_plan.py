r"""Sorting's plans without their n × n entries: for each list the factors of its plan, products with it, and gradients.

For the products out = P T (ranks) or out = Pᵀ T (sorted values) of a loss with the gradient H in out, the gradient in P is
G = L Rᵀ with (L, R) = (H, T) or (T, H). With M = P ∘ G and w of H w = (M1, Mᵀ1) as in balance.py, P_ij (G_ij − w_i − w_j) is
the gradient in log P_ij = 2 x_i y_j/λ + …, so

    (2/λ) (Σ_c L_c ∘ P (y ∘ R_c) − w_u ∘ P y − P (y ∘ w_v)) in x,      w_u + Σ_j b_j w_j in a,      Pᵀ L or P R in T.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from otformer import callers, checks
from otformer.memory import Need
from otformer.nn.balance import Gradient
from otformer.nn.inputs import SMALLER
from otformer.nn.line_factors import BLOCK, FOUND, NO_ROOM, find_factors
from otformer.nn.line_newton import AGAIN, DONE, across, newton, solve_columns
from otformer.transport.compiled import compiled, in_threads
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.types import Array

LINE_FROM = 40  # values from which on factors are faster than the plan itself
LEAST_BLUR = 5.0  # reg n²: below, values hardly mix, and many lists would be given up
LOSS, LEAST_LOSS = 1e-2, 1e-15  # of the plan, relative to tol, and the least that numbers know of
MOST_LOSS = 1e-8
WORST_LEFT = 1e-4  # residual of a gradient, relative, that is no reason for a warning
ROOM, MOST_ROOM = 32, 512  # entries of a factor for each point, at first and at most
LINE_HELD = 2 * ROOM + 36  # numbers for each value: factors and vectors (measured: 100, of equal, even and random values)
MOST_BANDS = 8  # times that factors are found


class LinePlan(NamedTuple):
    """P = diag(p) A Bᵀ diag(q) [n, m] with row sums a, and what solving with it needs."""

    A: Array
    low: Array
    at: Array
    p: Array
    B: Array
    low_b: Array
    at_b: Array
    q: Array
    a: Array
    c: Array  # column sums
    k: Array  # edges of the chain
    y: Array
    t: Array  # room for the nodes


def find_plan(x: Array, a: Array, y: Array, b: Array, psi: Array, reg: float, tol: float, most: int) -> LinePlan | None:
    """Find the plan between sorted x and y with weights a and b, from ψ on; None if this method cannot find it.

    Every column sum is within ``tol`` of b, in units of the greatest weight; rows are exact.

    >>> x, a = np.array([-1.0, 0.0, 1.0]), np.full(3, 1 / 3)
    >>> plan = find_plan(x, a, x, a, np.zeros(3), 0.5, 1e-9, 40)
    >>> abs(plan.c - a).max() < 1e-9
    np.True_
    """
    n, m, psi, room = len(x), len(y), psi.copy(), ROOM
    loss = max(min(MOST_LOSS, LOSS * tol), LEAST_LOSS)
    log_a, log_b = np.log(a), np.log(b)
    low, at, low_b, at_b = (np.empty(size, np.int64) for size in (n, n + 1, m, m + 1))
    p, q, c, k, error, nodes = np.empty(n), np.empty(m), np.empty(m), np.empty(m), np.empty(1), np.empty(1, np.int64)
    for _ in range(MOST_BANDS):
        while True:
            A, B = np.empty(room * n), np.empty(room * m)
            state = find_factors(x, log_a, y, log_b, psi, reg, loss, low, at, A, low_b, at_b, B, nodes)
            if state != NO_ROOM or room >= MOST_ROOM:
                break
            room *= 4
        if state != FOUND:
            return None
        A, B = A[: at[-1]], B[: at_b[-1]]
        np.exp(A, out=A)
        np.exp(B, out=B)
        found = newton(a, y, b, psi, tol, A, low, at, p, B, low_b, at_b, q, c, k, int(nodes[0]), error, most)
        if found != AGAIN:
            break
    return LinePlan(A, low, at, p, B, low_b, at_b, q, a, c, k, y, np.empty(int(nodes[0]) + BLOCK)) if found == DONE else None


@compiled
def _products(
    A: Array, low: Array, at: Array, p: Array, B: Array, low_b: Array, at_b: Array, q: Array, t: Array, T: Array, out: Array
) -> None:
    for c in range(len(T)):
        across(A, low, at, p, B, low_b, at_b, q, T[c], t, out[c])


def products(plan: LinePlan, T: Array, back: bool) -> Array:
    """P T_c for each row T_c of T [C, m], or Pᵀ T_c."""
    sides = [plan[:4], plan[4:8]]
    out = np.empty((len(T), len(sides[back][1])))
    _products(*sides[back], *sides[not back], plan.t, T, out)
    return out


@compiled
def _pull(
    A: Array, low: Array, at: Array, p: Array, B: Array, low_b: Array, at_b: Array, q: Array,
    a: Array, c: Array, k: Array, y: Array, t: Array, L: Array, R: Array, PR: Array, PL: Array,
    reg: float, enough: float, in_x: Array, in_a: Array,
) -> float:  # fmt: skip
    """Write the gradients in x and a, of the formula above; return the residual that conjugate gradients left."""
    m_u, m_v, w_v, row, column = np.zeros_like(a), np.zeros_like(c), np.empty_like(c), np.empty_like(a), np.empty_like(c)
    in_x[:] = 0.0
    for h in range(len(L)):
        m_u += L[h] * PR[h]
        m_v += R[h] * PL[h]
        across(A, low, at, p, B, low_b, at_b, q, y * R[h], t, row)
        in_x += L[h] * row
    across(B, low_b, at_b, q, A, low, at, p, m_u / a, t, column)
    left = solve_columns(A, low, at, p, B, low_b, at_b, q, t, a, c, k, m_v - column, enough, w_v)
    across(A, low, at, p, B, low_b, at_b, q, w_v, t, row)
    in_a[:] = (m_u - row) / a
    across(A, low, at, p, B, low_b, at_b, q, y, t, row)
    in_x -= in_a * row
    across(A, low, at, p, B, low_b, at_b, q, y * w_v, t, row)
    in_x -= row
    in_x *= 2.0 / reg
    in_a += (c * w_v).sum() / a.sum()
    return left


class Lines(NamedTuple):
    """Plans of the lists of a batch; list k has the values order[k, :len(plan.a)], in ascending order."""

    plans: list[LinePlan]
    order: Array  # [B, n]
    reg: float
    loss: float

    def sums(self) -> Tensor:
        """Column sums [B, m], 1 where there is no place."""
        found = np.ones(self.order.shape)
        for row, plan in zip(found, self.plans, strict=True):
            row[: len(plan.c)] = plan.c
        return torch.from_numpy(found)


def suits(x: Tensor, reg: float, tol: float) -> bool:
    """Whether lists x [..., n] are of a size for this, and on a CPU.

    >>> suits(torch.zeros(2, 50), 0.1, 1e-6), suits(torch.zeros(50, 2), 0.1, 1e-6)
    (True, False)
    """
    long = x.shape[-1] >= LINE_FROM and reg * x.shape[-1] ** 2 >= LEAST_BLUR
    return x.device.type == "cpu" and long and tol * LOSS >= LEAST_LOSS


def need(x: Tensor) -> Need:
    """Estimate the memory of the plans of lists x [..., n]."""
    count, n = math.prod(x.shape[:-1]), x.shape[-1]
    return Need(f"{count:,} × {n:,} values" if count > 1 else f"{n:,} values", LINE_HELD * x.numel(), SMALLER)


def usable(x: Tensor, a: Tensor, reg: float, tol: float) -> bool:
    """Whether lists x [B, n] with weights a go here: all their numbers ordinary, in no transform."""
    if torch.compiler.is_compiling() or checks.is_transformed(x) or checks.has_tangent(x) or checks.has_tangent(a):
        return False
    if not len(x) or not suits(x, reg, tol):
        return False
    return bool(x.isfinite().all() & a.isfinite().all() & (a >= 0).all() & (a.amax(1) > 0).all())


@torch.no_grad()
def find_lines(
    x: Tensor, a: Tensor, y: Tensor, b: Tensor, psi: Tensor, reg: float, tol: float, max_depth: int
) -> tuple[Lines, Tensor]:
    """Find the plans of lists x [B, n] onto places y [B, m]: those found, and which they are [B]."""
    keys, order = torch.where(a > 0, x, torch.inf).sort(stable=True, dim=1)
    x_of, a_of, y_of, b_of, psi_of = (t.contiguous().numpy() for t in (keys, a.gather(1, order), y, b, psi))
    found: list[LinePlan | None] = [None] * len(x)

    def work(first: int, last: int) -> None:
        for k in range(first, last):
            n, m = np.count_nonzero(a_of[k]), np.count_nonzero(b_of[k])
            lists = (x_of[k, :n], a_of[k, :n], y_of[k, :m], b_of[k, :m], psi_of[k, :m])
            with np.errstate(all="ignore"):
                found[k] = find_plan(*lists, reg, tol, max_depth // LAYERS)

    in_threads(work, len(x), x.numel() * ROOM)
    done = np.array([plan is not None for plan in found])
    lines = Lines([plan for plan in found if plan is not None], order.numpy()[done], reg, max(LOSS * tol, LEAST_LOSS))
    return lines, torch.from_numpy(done)


class Carry(Function):
    """P T for tables T [B, m, C], or Pᵀ T (``back``) for T [B, n, C], with gradients in x, a [B, n] and T."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, table: Tensor, lines: Lines, back: bool) -> Tensor:
        T = np.ascontiguousarray(table.detach().numpy().swapaxes(1, 2), dtype=np.float64)  # [B, C, ·]
        out, sent = np.zeros(T.shape), []
        for k, plan in enumerate(lines.plans):
            rows = lines.order[k, : len(plan.a)]
            own = T[k][:, rows] if back else T[k][:, : len(plan.c)].copy()
            made = products(plan, own, back)
            out[k][:, slice(len(plan.c)) if back else rows] = made
            sent.append((own, made))
        ctx.lines, ctx.back, ctx.sent = lines, back, sent
        return torch.from_numpy(out).mT.contiguous()

    @staticmethod
    def backward(ctx: Any, *H: Tensor) -> tuple[Tensor | None, ...]:
        return *CarryBackward.apply(H[0], ctx.lines, ctx.back, ctx.sent), None, None


class CarryBackward(Gradient):
    """Compute the derivative of `Carry`."""

    @staticmethod
    def forward(H: Tensor, lines: Lines, back: bool, sent: list[tuple[Array, Array]]) -> Any:
        G = np.ascontiguousarray(H.numpy().swapaxes(1, 2), dtype=np.float64)
        in_x, in_a, in_T = np.zeros(lines.order.shape), np.zeros(lines.order.shape), np.zeros(G.shape)
        left = np.zeros(len(G))

        def work(first: int, last: int) -> None:
            for k in range(first, last):
                plan, (T, out) = lines.plans[k], sent[k]
                rows, places = lines.order[k, : len(plan.a)], slice(len(plan.c))
                own = np.ascontiguousarray(G[k][:, places if back else rows])
                pulled = products(plan, own, not back)
                L, R, PR, PL = (T, own, pulled, out) if back else (own, T, out, pulled)
                x, a = np.empty(len(rows)), np.empty(len(rows))
                with np.errstate(all="ignore"):
                    left[k] = _pull(*plan, L, R, PR, PL, lines.reg, lines.loss, x, a)
                in_x[k, rows], in_a[k, rows] = x, a
                in_T[k][:, rows if back else places] = pulled

        in_threads(work, len(G), lines.order.size * ROOM)
        if (worst := left.max(initial=0.0)) > WORST_LEFT:
            callers.warn(f"gradient not accurate: conjugate gradients left {worst:.2g} of the residual; raise reg")
        return torch.from_numpy(in_x), torch.from_numpy(in_a), torch.from_numpy(in_T).mT.contiguous()

    @staticmethod
    def vmap(info: Any, in_dims: Any, H: Tensor, *rest: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        each = [CarryBackward.apply(own, *rest) for own in H.movedim(in_dims[0], 0)]
        return tuple(torch.stack(t) for t in zip(*each, strict=True)), (0, 0, 0)
