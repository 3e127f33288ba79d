r"""Attention whose columns have sums too is softmax attention with a bias for each key. This file finds the biases.

For logits X [n, m] with −∞ where attention is forbidden, rows of sum 1, wanted column sums b and a penalty ρ, let A maximise

    Σ_ij A_ij X_ij − Σ_ij A_ij log A_ij − ρ KL(Aᵀ1 | b)      over A ≥ 0 with A1 = 1,      KL(c|b) = Σ c log(c/b) − c + b.

The derivative in A_ij, with a multiplier for each row, vanishes where

    A_ij = exp(X_ij + g_j) / Σ_k exp(X_ik + g_k),      g_j = −ρ log(c_j/b_j),      c = Aᵀ1:

ρ = 0 is softmax attention (g = 0), ρ = ∞ is transport, c = b, with g up to a constant. The bias is a fixed point of

    T(g)_j = κ (g_j − log(c_j(g)/b_j)),      κ = ρ/(1 + ρ)  (1 for ρ = ∞),

and one look at all rows, each with its softmax, gives c: a pass. g_j − log c_j = −log Σ_i exp(X_ij + f_i) with
f_i = −log Σ_k exp(X_ik + g_k): two logsumexps in turn, neither of which moves by more than its argument does (sup norm), so
T contracts by κ. Anderson mixing is for speed. The error is max_j |log(c_j/b_j) + g_j/ρ|, computed at the g that is
returned: every column sum is within that factor, e^±error, of what it should be, b_j e^(−g_j/ρ).

**Gradient.** With E = A ∘ dX and S = diag((1 + 1/ρ) c) − AᵀA, differentiating the columns gives S dg = −(Eᵀ1 − AᵀE1). S is
symmetric, so a loss with gradient y in g needs w = S⁻¹y, and has the gradient

    A_ij ((A w)_i − w_j) in X_ij,      and with X = q kᵀ + 1 oᵀ:   Σ_j of it times k_j in q_i,   Σ_i of it times q_i in k_j,

Σ_i of it in o_j, what is added to the logits of a key.

w comes from conjugate gradients in z = √((1 + 1/ρ) c) w, one pass a step; for ρ = ∞ √c is a null vector, and kept out.
Everything else is ordinary autograd through softmax(X + g). `Passes` holds a block of rows at a time, never the matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from otformer import callers
from otformer.network.alternating import iterate
from otformer.nn.balance import Gradient, merged
from otformer.transport.costs.plan import SINGLE_RESIDUAL
from otformer.transport.derivatives.implicit import CG_RESIDUAL, conjugate_gradients
from otformer.transport.solvers.anderson import Least, Safeguarded
from otformer.transport.solvers.annealing import temperatures
from otformer.transport.solvers.precision import PATIENCE

BLOCK_ENTRIES = {"cpu": 2**20, "cuda": 2**23}  # of the matrices, held at once
BLOCK_ROWS = 64  # of a block, at least, before fewer problems are taken together
SINGLE_ERROR = 1e-5  # of column sums, as a factor: as far as passes in float32 go
SINGLE_ROUNDING = 2**-24  # of a logit in float32, as a share of it
STUCK = 300  # passes in float64 without a better error, after which there is none
STAGE_OFF = 0.1  # error of a column sum, as a factor, at which a stage above the final temperature ends


@dataclass(frozen=True)
class Wanted:
    """ρ, and when to stop."""

    rho: float  # inf: columns are exact
    tol: float
    max_depth: int


@dataclass(frozen=True)
class Passes:
    """Softmax attention of B problems, a block of rows at a time."""

    x: Tensor  # queries [B, n, d], already scaled; or logits [B, n, m], −∞ where forbidden
    y: Tensor | None  # keys [B, m, d]; None: x are logits
    own: Tensor  # [B, m], added to the logits of each key; −∞ for one that is not there
    rows: Tensor  # [B, n], true for a row that is there; the others are 0 in A
    causal: bool = False  # row i sees keys up to i

    def to(self, dtype: torch.dtype) -> Passes:
        y = None if self.y is None else self.y.to(dtype)
        return replace(self, x=self.x.to(dtype), y=y, own=self.own.to(dtype))

    def at(self, problems: slice) -> Passes:
        y = None if self.y is None else self.y[problems]
        return Passes(self.x[problems], y, self.own[problems], self.rows[problems], self.causal)

    def parts(self) -> list[slice]:
        """The problems that are taken together."""
        step = max(1, BLOCK_ENTRIES[self.x.device.type] // (BLOCK_ROWS * max(1, self.own.shape[1])))
        return [slice(start, start + step) for start in range(0, len(self.x), step)]

    @cached_property
    def wanted(self) -> Tensor:
        """b [B, m] in float64: rows that are there over keys that are there; 0 for others."""
        there = self.own > -torch.inf
        return there * (self.rows.sum(1, keepdim=True).double() / there.sum(1, keepdim=True))

    def spread(self) -> float:
        """A bound on the range of finite logits."""
        if self.y is None:
            finite = torch.where(self.x.isfinite(), self.x, 0.0)
            return float(finite.max() - finite.min())
        sizes = [torch.linalg.vector_norm(t.detach(), dim=2).max() for t in (self.x, self.y)]
        return 2 * float(sizes[0] * sizes[1])

    @cached_property
    def reached(self) -> Tensor:
        """Which keys some row may attend to, [B, m]."""
        there = self.own > -torch.inf
        if self.y is None:
            return there & ((self.x > -torch.inf) & self.rows[:, :, None]).any(1)
        if self.causal:
            last = torch.where(self.rows, torch.arange(self.rows.shape[1], device=self.own.device), -1).amax(1, keepdim=True)
            return there & (torch.arange(self.own.shape[1], device=self.own.device) <= last)
        return there

    def blocks(self, g: Tensor, heat: float = 1.0) -> Iterator[tuple[slice, Tensor]]:
        """Rows, and A [B, r, m] of these, for logits divided by ``heat``, with biases g [B, m]."""
        (B, n), m = self.rows.shape, self.own.shape[1]
        bias = (self.own / heat + g)[:, None]
        step = max(1, BLOCK_ENTRIES[self.x.device.type] // max(1, B * m))
        for start in range(0, n, step):
            rows = slice(start, min(n, start + step))
            if self.y is None:
                logits = self.x[:, rows] / heat + bias
            else:
                logits = torch.baddbmm(bias, self.x[:, rows], self.y.mT, alpha=1 / heat)
            if self.causal:
                places = torch.arange(m, device=g.device)
                logits.masked_fill_(places > torch.arange(rows.start, rows.stop, device=g.device)[:, None], -torch.inf)
            yield rows, logits.softmax(2).masked_fill_(~self.rows[:, rows, None], 0.0)

    def columns(self, g: Tensor, heat: float = 1.0) -> Tensor:
        """c = Aᵀ1, [B, m], in float64."""
        total = torch.zeros_like(self.own, dtype=torch.float64)
        for _, A in self.blocks(g, heat):
            total += A.sum(1)
        return total

    def gram(self, g: Tensor, w: Tensor) -> Tensor:
        """AᵀA w for w [B, m]."""
        total = torch.zeros_like(self.own, dtype=torch.float64)
        for _, A in self.blocks(g):
            total += (A.mT @ (A @ w[:, :, None]))[:, :, 0]
        return total.to(w)

    def residual(self, g: Tensor, slack: float, heat: float = 1.0) -> Tensor:
        """log(b_j/c_j) − g_j/ρ [B, m] in float64 at g, in float64 too, slack = 1/ρ; 0 for keys that are not reached."""
        c = self.columns(g.to(self.own.dtype), heat).clamp_min(torch.finfo(self.own.dtype).tiny)
        return torch.where(self.reached, self.wanted.log() - c.log() - slack * g, 0.0)


class KeyBias(Function):
    """g [B, m] in float64 of queries and keys, or of logits; 0 for a key that is not there, or that no row may attend to."""

    @staticmethod
    def forward(x: Tensor, y: Tensor | None, own: Tensor, rows: Tensor, causal: bool, wanted: Wanted) -> Tensor:
        passes = Passes(x, y, own, rows, causal)
        found = [_solve(passes.at(part), wanted) for part in passes.parts()]
        g, error = (torch.cat(parts) for parts in zip(*found, strict=True))
        if not bool((error <= wanted.tol).all()):
            callers.warn(
                f"not converged: {int((~(error <= wanted.tol)).sum())} of {len(error)} heads, column sums off by a factor "
                f"of up to {math.exp(min(float(error.max()), 700.0)):.6g}, tol is {wanted.tol:g}; "
                "raise the temperature, tol or max_depth"
            )
        return g

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.causal, wanted = inputs
        ctx.save_for_backward(*tensors, output)
        ctx.rho = wanted.rho

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        x, y, own, rows, g = ctx.saved_tensors
        in_x, in_own, *in_y = KeyBiasBackward.apply(G, g, x, own, rows, y, ctx.causal, ctx.rho)
        return in_x, in_y[0] if in_y else None, in_own, None, None, None


class KeyBiasBackward(Gradient):
    """The gradients in x, own and, where there are keys, y; they have none themselves."""

    @staticmethod
    def forward(
        G: Tensor, g: Tensor, x: Tensor, own: Tensor, rows: Tensor, y: Tensor | None, causal: bool, rho: float
    ) -> tuple[Tensor, ...]:
        passes = Passes(x, y, own, rows, causal)
        found = [_pull(passes.at(part), g[part], G[part], rho) for part in passes.parts()]
        to = (x, own) if y is None else (x, own, y)
        return tuple(torch.cat(parts).to(t) for parts, t in zip(zip(*found, strict=True), to, strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        V, keys = info.batch_size, inputs[5] is not None
        tensors = merged(V, inputs[: 5 + keys], in_dims)
        found = KeyBiasBackward.apply(*tensors, *(() if keys else (None,)), *inputs[6:])
        return tuple(t.unflatten(0, (V, -1)) for t in found), (0,) * len(found)


def _solve(passes: Passes, wanted: Wanted) -> tuple[Tensor, Tensor]:
    """g [B, m] and its error [B]: in float32 as far as that leads where input has no more, then in float64."""
    log_b, double = passes.wanted.log(), passes.x.dtype == torch.float64
    first = passes.to(torch.float64 if double else torch.float32)
    tol = wanted.tol if double else wanted.tol / 2  # the other half is for how float32 rounds what comes after
    enough, patience = (tol, STUCK) if double else (max(tol, SINGLE_ERROR), PATIENCE)
    g, depth = torch.zeros_like(log_b), wanted.max_depth
    for heat in temperatures(first.spread(), 1.0):
        final = heat == 1  # before it at most half of the passes: the next stage needs no more than a rough answer
        goal, most = (enough, max(1, depth)) if final else (STAGE_OFF, max(1, depth // 2))
        g, error, taken = _mixed(first, g / heat, log_b, wanted.rho / heat, heat, goal, most, patience)
        g, depth = g * heat, depth - taken
    if not double:  # the logits are rounded, and g may have been fitted to how
        error = error + SINGLE_ROUNDING * first.spread()
    if not double and depth > 0 and not bool((error <= tol).all()):
        g, error, _ = _mixed(passes.to(torch.float64), g, log_b, wanted.rho, 1.0, tol, depth, STUCK)
    return g, error


def _mixed(
    passes: Passes, g: Tensor, log_b: Tensor, rho: float, heat: float, tol: float, most: int, patience: int
) -> tuple[Tensor, Tensor, int]:
    """The best g seen, from g on, in float64, its error [B], and the passes taken."""
    slack, b, best = 1 / rho, log_b.exp(), Least(g)

    def step(g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        f = passes.residual(g, slack, heat)
        error = f.abs().amax(1)
        f = f / (1 + slack)
        if rho == math.inf:  # a constant is free
            f = torch.where(passes.reached, f - (f * b).sum(1, keepdim=True) / b.sum(1, keepdim=True), 0.0)
        return g + f, error, error, g

    seen = 0  # the pass that last brought a better error
    for depth, (g, (_, error, _, _)) in enumerate(iterate(step, g, Safeguarded(b), most), 1):  # noqa: B020
        if best.see(error, g):
            seen = depth
        if bool((best.error <= tol).all()) or depth - seen >= patience:
            break
    return best.state[0], best.error, depth


def _pull(passes: Passes, g: Tensor, y: Tensor, rho: float) -> tuple[Tensor, ...]:
    """Gradients in x, own and, where there are keys, y, of a loss with the gradient y in g, [B, m]."""
    double = passes.x.dtype == torch.float64
    passes = passes.to(torch.float64 if double else torch.float32)
    g, y = g.to(passes.own.dtype), y.to(passes.own.dtype)
    w = _solve_columns(passes, g, y, 1 / rho, CG_RESIDUAL if double else SINGLE_RESIDUAL)
    in_x, in_own = torch.empty_like(passes.x), torch.zeros_like(passes.own)
    in_y = None if passes.y is None else torch.zeros_like(passes.y)
    for rows, A in passes.blocks(g):
        Y = A * (A @ w[:, :, None] - w[:, None])
        in_x[:, rows] = Y if passes.y is None else Y @ passes.y
        in_own += Y.sum(1)
        if in_y is not None:
            in_y += Y.mT @ passes.x[:, rows]
    return (in_x, in_own) if in_y is None else (in_x, in_own, in_y)


def _solve_columns(passes: Passes, g: Tensor, y: Tensor, slack: float, enough: float) -> Tensor:
    """w [B, m] with S w = y; 0 for keys without attention."""
    c = passes.columns(g).to(g)
    scale = torch.where(c > 0, ((1 + slack) * c.clamp_min(torch.finfo(c.dtype).tiny)).rsqrt(), 0.0)
    null = c.sqrt() / c.sum(1, keepdim=True).sqrt() if slack == 0 else None
    return scale * conjugate_gradients(
        lambda z: scale * passes.gram(g, scale * z), scale * y, null, enough, worst=1e3 * enough,
        instead="raise the temperature",
    )  # fmt: skip
