r"""Partial transport: a given mass moves, no point gives or takes more than it has, as in POT's
``entropic_partial_wasserstein``. Over P ≥ 0 with P1 ≤ a, Pᵀ1 ≤ b and ΣP = mass,

    min  Σ P M + λ Σ P log P,      solved by  P_ij = exp((f_i + g_j + t − M_ij)/λ),   f, g ≤ 0.

f_i < 0 only where row i is full. With s_i = Σ_j exp((g_j − M_ij)/λ) the best f and t for a given g are

    f_i = −λ relu(t/λ + log s_i − log a_i),      Σ_i min(a_i, s_i exp(t/λ)) = mass,

a block followed by a ReLU, and a level t that is found as water finds it: rows fill up in the order of a_i/s_i. The same for
g and t with columns. Both steps climb the dual exactly, and t is never left to creep. (With a dummy point for what stays
behind, as for exact partial transport, the entropy of what stays would be part of the problem, and the plan another one.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.transport.executors.dense import Dense
from otformer.transport.solvers.fixed_point import approach, descend, fixed_point
from otformer.transport.solvers.newton import falling
from otformer.transport.variants.unbalanced import Parts, UnbalancedResult


def solve_partial(
    M: Any,
    a: Any = None,
    b: Any = None,
    reg: float | Tensor = 0.1,
    mass: float | None = None,
    tol: float = 1e-6,
    max_depth: int = 10_000,
) -> UnbalancedResult:
    """Entropic partial transport: min Σ P M + λ Σ P log P with P1 ≤ a, Pᵀ1 ≤ b and Σ P = mass.

    Parameters: as `solve_unbalanced`; mass, at most the lesser of Σ a and Σ b, which is the default. The value is
    differentiable, once, in tensors M and reg, where its derivatives are P and Σ P log P; other gradients are an error.
    Potentials: P_ij = exp((f_i + g_j − M_ij)/λ), t being part of g. ``error`` is the mass by which the next step would
    change the columns, 0 at the solution only; ``tol`` is for it. Rows never exceed a, and the mass is exact.

    >>> r = solve_partial([[0.0, 4.0], [4.0, 1.0]], reg=0.05, mass=0.6)
    >>> r.converged, r.plan.round(3).tolist()
    (True, [[0.5, 0.0], [0.0, 0.1]])
    """
    problem = Parts.of(M, a, b, reg, tol, max_depth)
    for name, given in (("a", a), ("b", b), ("mass", mass)):
        if isinstance(given, Tensor) and given.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} must not require a gradient: a partial problem has gradients in M and reg only")
    most = min(float(problem.log_a.exp().sum()), float(problem.log_b.exp().sum()))
    mass = most if mass is None else checks.positive("mass", mass)
    if mass > most * (1 + 1e-12):
        raise ValueError(f"mass must be at most the lesser sum of a and b, {most:g}, got {mass:g}")
    f, g, error, depth = _partial(problem, mass, tol, max_depth)
    log_P = (f[:, None] + g - problem.C) / problem.reg
    P = log_P.exp()
    entropy = torch.where(P > 0, P * log_P, 0.0).sum()
    gradients = torch.zeros_like(f), torch.zeros_like(g), entropy
    network = "capped Sinkhorn blocks, Anderson-mixed"
    return problem.result(P, f, g, problem.reg * entropy, gradients, error, tol, depth, network)


def _partial(problem: Parts, mass: float, tol: float, max_depth: int) -> tuple[Tensor, Tensor, float, int]:
    """(f [n], g + t [m], error, layers)."""
    executor, spread = Dense(problem.C, problem.log_a, problem.log_b), float(problem.C.max() - problem.C.min())
    g, depth = torch.zeros_like(problem.log_b), 0
    for lam in falling(spread, problem.reg):
        blocks = _CappedBlocks(executor, mass, lam)
        steps = fixed_point(blocks.step, g, problem.log_b.exp(), spread + 100 * lam)
        if lam == problem.reg:
            g, error, depth = descend(steps, g, depth, max_depth - 1, tol)
        else:
            g, depth = approach(steps, g, depth, max_depth // 2, 1e-3 * mass)
    f, t = blocks.rows(g)
    return f, g.clamp_max(0.0) + t, float(error), depth + 1


@dataclass(frozen=True)
class _CappedBlocks:
    """T of a partial problem: g → (f, t) → (g, t), at one λ, for P = exp((f + g + t − C)/λ) with f, g ≤ 0."""

    executor: Dense
    mass: float
    reg: float

    def rows(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """The best f and t for g, or for g without what is above 0."""
        nothing, log_a = torch.zeros_like(self.executor.log_a), self.executor.log_a
        log_s = self.executor.excess(nothing, g.clamp_max(0.0) + self.reg, self.reg, rows=True) + log_a
        level = _level(log_s, log_a, self.mass)
        return self.reg * (log_a - log_s - level).clamp_max(0.0), self.reg * level

    def step(self, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (f, t), log_b = self.rows(g), self.executor.log_b
        log_s = self.executor.excess(f, torch.full_like(g, self.reg), self.reg, rows=False) + log_b
        level = _level(log_s, log_b, self.mass)
        before = log_s + (t + g.clamp_max(0.0)) / self.reg
        after = torch.minimum(log_s + level, log_b)
        error = (after.exp() - before.exp()).abs().sum()
        return self.reg * (log_b - log_s - level).clamp_max(0.0), error, error


def _level(log_s: Tensor, log_cap: Tensor, mass: float) -> Tensor:
    """log κ with Σ min(cap, κ s) = mass. With the k smallest of cap/s full, κ = (mass − their caps)/(the other s)."""
    full_at, order = (log_cap - log_s).sort()
    caps = log_cap[order].exp()
    left = mass - (caps.cumsum(0) - caps)  # before the k-th is full, k = 0, …
    level = left.log() - log_s[order].flip(0).logcumsumexp(0).flip(0)
    fits = (level <= full_at).nonzero()  # not a number once nothing is left
    return level[fits[0, 0]] if len(fits) else full_at[-1]
