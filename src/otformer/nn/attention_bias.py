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

w comes from conjugate gradients in z = √((1 + 1/ρ) c) w, one pass per step; for ρ = ∞ √c is a null vector, and kept out.
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
from otformer.transport.solvers.blocks import temperatures
from otformer.transport.solvers.precision import PATIENCE

BLOCK_ENTRIES = {"cpu": 2**20, "cuda": 2**23}  # of the matrices, held at once
BLOCK_ROWS = 64  # of a block, at least, before fewer problems are taken together
SINGLE_ERROR = 1e-5  # of column sums, as a factor: as far as passes in float32 go
SINGLE_ROUNDING = 2**-24  # of a logit in float32, as a share of it
STUCK = 300  # passes in float64 without a better error, after which there is none
STAGE_OFF = 0.1  # error of a column sum, as a factor, at which a stage above the final temperature ends


@dataclass(frozen=True)
class BiasGoal:
    """Hold ρ, the tolerance and the pass limit."""

    rho: float  # inf: columns are exact
    tol: float
    max_depth: int


@dataclass(frozen=True)
class Passes:
    """Softmax attention of B problems, a block of rows at a time."""

    x: Tensor  # queries [B, n, d], already scaled; or logits [B, n, m], −∞ where forbidden
    y: Tensor | None  # keys [B, m, d]; None: x are logits
    key_mask: Tensor  # [B, m], added to the logits of each key; −∞ for an absent one
    rows: Tensor  # [B, n], false for absent rows, which are 0 in A
    causal: bool = False  # row i sees keys up to i

    def to(self, dtype: torch.dtype) -> Passes:
        y = None if self.y is None else self.y.to(dtype)
        return replace(self, x=self.x.to(dtype), y=y, key_mask=self.key_mask.to(dtype))

    def at(self, problems: slice) -> Passes:
        y = None if self.y is None else self.y[problems]
        return Passes(self.x[problems], y, self.key_mask[problems], self.rows[problems], self.causal)

    def parts(self) -> list[slice]:
        """Split the problems into groups that are solved together."""
        step = max(1, BLOCK_ENTRIES[self.x.device.type] // (BLOCK_ROWS * max(1, self.key_mask.shape[1])))
        return [slice(start, start + step) for start in range(0, len(self.x), step)]

    @cached_property
    def keys(self) -> Tensor:
        """Which keys are present, [B, m]."""
        return self.key_mask > -torch.inf

    @cached_property
    def target(self) -> Tensor:
        """b [B, m] in float64: the number of present rows over that of present keys; 0 for absent keys."""
        return self.keys * (self.rows.sum(1, keepdim=True).double() / self.keys.sum(1, keepdim=True))

    def spread(self) -> float:
        """Bound the range of finite logits."""
        if self.y is None:
            finite = torch.where(self.x.isfinite(), self.x, 0.0)
            return float(finite.max() - finite.min())
        sizes = [torch.linalg.vector_norm(t.detach(), dim=2).max() for t in (self.x, self.y)]
        return 2 * float(sizes[0] * sizes[1])

    @cached_property
    def reached(self) -> Tensor:
        """Which keys some row may attend to, [B, m]."""
        if self.y is None:
            return self.keys & ((self.x > -torch.inf) & self.rows[:, :, None]).any(1)
        if self.causal:
            places = torch.arange(max(self.rows.shape[1], self.keys.shape[1]), device=self.keys.device)
            last = torch.where(self.rows, places[: self.rows.shape[1]], -1).amax(1, keepdim=True)
            return self.keys & (places[: self.keys.shape[1]] <= last)
        return self.keys

    def blocks(self, g: Tensor, heat: float = 1.0) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of rows, and A [B, r, m] of them, for logits divided by ``heat``, with biases g [B, m]."""
        (B, n), m = self.rows.shape, self.key_mask.shape[1]
        bias = (self.key_mask / heat + g)[:, None]
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
        """Sum the columns of A: c = Aᵀ1 [B, m], in float64."""
        total = torch.zeros_like(self.key_mask, dtype=torch.float64)
        for _, A in self.blocks(g, heat):
            total += A.sum(1)
        return total

    def gram(self, g: Tensor, w: Tensor) -> Tensor:
        """Multiply w [B, m] by AᵀA."""
        total = torch.zeros_like(self.key_mask, dtype=torch.float64)
        for _, A in self.blocks(g):
            total += (A.mT @ (A @ w[:, :, None]))[:, :, 0]
        return total.to(w)

    def residual(self, g: Tensor, slack: float, heat: float = 1.0) -> Tensor:
        """Return log(b_j/c_j) − g_j/ρ [B, m] at g, both in float64; slack = 1/ρ; 0 for keys that no row may attend to."""
        c = self.columns(g.to(self.key_mask.dtype), heat).clamp_min(torch.finfo(self.key_mask.dtype).tiny)
        return torch.where(self.reached, self.target.log() - c.log() - slack * g, 0.0)


class KeyBias(Function):
    """Find g [B, m] in float64 for queries and keys, or for logits; 0 for keys that are absent or seen by no row."""

    @staticmethod
    def forward(x: Tensor, y: Tensor | None, key_mask: Tensor, rows: Tensor, causal: bool, goal: BiasGoal) -> Tensor:
        passes = Passes(x, y, key_mask, rows, causal)
        found = [_solve(passes.at(part), goal) for part in passes.parts()]
        g, error = (torch.cat(parts) for parts in zip(*found, strict=True))
        if not bool((error <= goal.tol).all()):
            callers.warn(
                f"not converged: {int((~(error <= goal.tol)).sum())} of {len(error)} heads, column sums off by a factor "
                f"of up to {math.exp(min(float(error.max()), 700.0)):.6g}, tol is {goal.tol:g}; "
                "raise the temperature, tol or max_depth"
            )
        return g

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.causal, goal = inputs
        ctx.save_for_backward(*tensors, output)
        ctx.rho = goal.rho

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        x, y, key_mask, rows, g = ctx.saved_tensors
        in_x, in_mask, *in_y = KeyBiasBackward.apply(G, g, x, key_mask, rows, y, ctx.causal, ctx.rho)
        return in_x, in_y[0] if in_y else None, in_mask, None, None, None


class KeyBiasBackward(Gradient):
    """Compute the gradients in x, key_mask and, where there are keys, y; they are not differentiable themselves."""

    @staticmethod
    def forward(
        G: Tensor, g: Tensor, x: Tensor, key_mask: Tensor, rows: Tensor, y: Tensor | None, causal: bool, rho: float
    ) -> tuple[Tensor, ...]:
        passes = Passes(x, y, key_mask, rows, causal)
        found = [_pull(passes.at(part), g[part], G[part], rho) for part in passes.parts()]
        to = (x, key_mask) if y is None else (x, key_mask, y)
        return tuple(torch.cat(parts).to(t) for parts, t in zip(zip(*found, strict=True), to, strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        V, keys = info.batch_size, inputs[5] is not None
        tensors = merged(V, inputs[: 5 + keys], in_dims)
        found = KeyBiasBackward.apply(*tensors, *(() if keys else (None,)), *inputs[6:])
        return tuple(t.unflatten(0, (V, -1)) for t in found), (0,) * len(found)


def _solve(passes: Passes, goal: BiasGoal) -> tuple[Tensor, Tensor]:
    """Find g [B, m] and its error [B]: where the input is no float64, first in float32 as far as that leads."""
    log_b, double = passes.target.log(), passes.x.dtype == torch.float64
    first = passes.to(torch.float64 if double else torch.float32)
    tol = goal.tol if double else goal.tol / 2  # the other half is for how float32 rounds what comes after
    enough, patience = (tol, STUCK) if double else (max(tol, SINGLE_ERROR), PATIENCE)
    g, depth = torch.zeros_like(log_b), goal.max_depth
    for heat in temperatures(first.spread(), 1.0):
        final = heat == 1  # before it at most half of the passes: the next stage needs no more than a rough answer
        until, most = (enough, max(1, depth)) if final else (STAGE_OFF, max(1, depth // 2))
        g, error, taken = _mixed(first, g / heat, log_b, goal.rho / heat, heat, until, most, patience)
        g, depth = g * heat, depth - taken
    if not double:  # the logits are rounded, and g may have been fitted to how
        error = error + SINGLE_ROUNDING * first.spread()
    if not double and depth > 0 and not bool((error <= tol).all()):
        g, error, _ = _mixed(passes.to(torch.float64), g, log_b, goal.rho, 1.0, tol, depth, STUCK)
    return g, error


def _mixed(
    passes: Passes, g: Tensor, log_b: Tensor, rho: float, heat: float, tol: float, most: int, patience: int
) -> tuple[Tensor, Tensor, int]:
    """Iterate from g, in float64; return the best g seen, its error [B], and the passes taken."""
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
    """Return the gradients in x, key_mask and, where there are keys, y, of a loss with the gradient y [B, m] in g."""
    double = passes.x.dtype == torch.float64
    passes = passes.to(torch.float64 if double else torch.float32)
    g, y = g.to(passes.key_mask.dtype), y.to(passes.key_mask.dtype)
    w = _solve_columns(passes, g, y, 1 / rho, CG_RESIDUAL if double else SINGLE_RESIDUAL)
    in_x, in_mask = torch.empty_like(passes.x), torch.zeros_like(passes.key_mask)
    in_y = None if passes.y is None else torch.zeros_like(passes.y)
    for rows, A in passes.blocks(g):
        Y = A * (A @ w[:, :, None] - w[:, None])
        in_x[:, rows] = Y if passes.y is None else Y @ passes.y
        in_mask += Y.sum(1)
        if in_y is not None:
            in_y += Y.mT @ passes.x[:, rows]
    return (in_x, in_mask) if in_y is None else (in_x, in_mask, in_y)


def _solve_columns(passes: Passes, g: Tensor, y: Tensor, slack: float, enough: float) -> Tensor:
    """Solve S w = y for w [B, m]; 0 for keys without attention."""
    c = passes.columns(g).to(g)
    scale = torch.where(c > 0, ((1 + slack) * c.clamp_min(torch.finfo(c.dtype).tiny)).rsqrt(), 0.0)
    null = c.sqrt() / c.sum(1, keepdim=True).sqrt() if slack == 0 else None
    return scale * conjugate_gradients(
        lambda z: scale * passes.gram(g, scale * z), scale * y, null, enough, worst=1e3 * enough,
        instead="raise the temperature",
    )  # fmt: skip
