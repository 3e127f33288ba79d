r"""Unbalanced transport: the marginals are penalised instead of fixed, as in POT's ``sinkhorn_unbalanced``.

Over P ≥ 0, with KL(p|q) = Σ p log(p/q) − p + q,

    min  Σ P M + λ KL(P|R) + ρ_a KL(P1|a) + ρ_b KL(Pᵀ1|b),      R = a bᵀ  ("kl")  or  R = 1  ("entropy").

The plan is P_ij = R_ij exp((f_i + g_j − M_ij)/λ), and a Sinkhorn block becomes a *damped* block,

    f ← ρ_a/(ρ_a + λ) · (f − λ log(P1/a)),      g ← ρ_b/(ρ_b + λ) · (g − λ log(Pᵀ1/b)).

f − λ log(P1/a) is a soft minimum of M − g: it moves by no more than g does (sup norm). So f and then g together are a
contraction by d = ρ_a ρ_b / ((ρ_a + λ)(ρ_b + λ)) < 1, for any start and any cost, and an iterate that the next step moves by
at most r is within r/(1 − d) of the solution: the error below is that bound, in units of λ, computed and not assumed.

Where ρ ≫ λ the contraction is slow in the *levels* of f and g, which decide how much mass moves. They are set in closed form
after every step: (f + p, g + q) is best where, with A = Σ a exp(−f/ρ_a) and B = Σ b exp(−g/ρ_b),

    p = ρ_a (log A − L),   q = ρ_b (log B − L),   L = (λ log ΣP + ρ_a log A + ρ_b log B)/(λ + ρ_a + ρ_b),

the log of the mass that then moves. Anderson mixing (transport/solvers/anderson.py) is for the rest. In the same way costs
that are all higher by s are met by f and g that are s ρ_a/(λ + ρ_a + ρ_b) and s ρ_b/(λ + ρ_a + ρ_b) higher: the least cost
of a matrix is made 0. costs/penalised.py has the value and its gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from otformer.transport.costs.kernel import Kernel
from otformer.transport.costs.penalised import reference
from otformer.transport.solvers.blocks import LAYERS, State, fixed_point
from otformer.transport.solvers.precision import PATIENCE, SINGLE_RANGE
from otformer.transport.types import Goal, Problem, Solved

SINGLE_ROUNDING = 2**-24  # of log(P1/a) in float32, in units of costs/λ
ROUGH_TOL = 1e-6  # error that passes in float32 can lead to where costs are near λ


@dataclass(frozen=True)
class Damped:
    """The solver for penalised marginals: damped Sinkhorn blocks, Anderson-mixed."""

    @torch.no_grad()
    def run(self, problem: Problem, goal: Goal) -> Solved:
        """Find potentials f, g of the caller's cost, and the bound on their error in units of λ."""
        problem, penalty, reg = problem.as_tensors(), problem.penalty, problem.entropy
        assert penalty is not None
        log_a, log_b = problem.a.log(), problem.b.log()
        strength = penalty.rho_a, penalty.rho_b
        kernel = problem.cost.kernel(log_a, log_b, reg, damped=min(strength))
        (f, g, error, depth), certified = damped(
            kernel, problem.cost.gauge(), reference(penalty, log_a, log_b), reg, strength, goal, problem.form.single
        )
        return Solved(f, g, depth, f"damped Sinkhorn blocks, Anderson-mixed{kernel.suffix}", certified, error)


class _Shifted(Kernel):
    """Shift the kernel of c to that of the cost c_ij + p_i + q_j; potentials are in the dtype of its weights."""

    def __init__(self, kernel: Kernel, p: Tensor, q: Tensor) -> None:
        self.kernel, self.log_a, self.log_b = kernel, kernel.log_a, kernel.log_b
        self.p, self.q = p.to(self.log_a), q.to(self.log_b)
        self.spread = kernel.spread + sum(float(own.max() - own.min()) for own in (p, q))

    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        return self.kernel.log_ratio(u - self.p, v - self.q, reg, rows).to(self.log_a)


def damped(
    kernel: Kernel, gauge: tuple[Any, Any], log_R: tuple[Tensor, Tensor], reg: float, strength: tuple[float, float],
    goal: Goal, single: bool = False,
) -> tuple[State, Kernel]:  # fmt: skip
    """Run damped blocks, in float32 first where the kernel has such passes, for R_ij = r_i s_j.

    Returns f [..., n] and g [..., m] of the caller's cost, the bound on their error [...], the layers run, and the kernel
    that decided.
    """
    # The error is what a step moves, over λ and the slack: so much more precise does a step have to be.
    room = slack(reg, *strength)
    exact, coarse = kernel.deciding(goal.tol * room, reg), kernel.rough(single, ROUGH_TOL)
    certified, lower = _gauged(exact, gauge, reg, strength)

    def run(kernel: Kernel, start: Tensor | None, tol: float, most: int, patience: float = math.inf) -> State:
        log_r, log_s = (logs.to(kernel.log_a) for logs in log_R)
        b, first = kernel.log_b.exp(), torch.zeros_like(kernel.log_b) if start is None else start
        return fixed_point(
            lambda lam: _DampedBlocks(kernel, log_r, log_s, lam, *strength).step, first, b, b.sum(-1), kernel.spread, reg,
            tol, most, start is not None, patience,
        )  # fmt: skip

    start, taken = None, 0
    floor = SINGLE_ROUNDING * (1 + certified.spread / reg) / room
    fits = max(certified.spread, 1 / reg) < SINGLE_RANGE and goal.max_depth >= 2 * LAYERS
    if coarse is not None and fits and floor < 1:
        rough, _ = _gauged(coarse, gauge, reg, strength)
        _, g, _, taken = run(rough, None, max(goal.tol, floor), goal.max_depth - LAYERS, PATIENCE)
        start = g.double() if bool(g.isfinite().all()) else None
    off = 2 * exact.rounding(reg) / room  # what two passes may err by
    f, g, error, depth = run(certified, start, max(goal.tol - off, off / 4), goal.max_depth - taken)
    return (f + lower[0], g + lower[1], error + off, depth + taken), exact


def _gauged(
    kernel: Kernel, gauge: tuple[Any, Any], reg: float, strength: tuple[float, float]
) -> tuple[Kernel, tuple[float, float]]:
    """Return the kernel of the caller's cost; where that is c + low, the kernel of c and what low adds to f and g."""
    p, q = gauge
    if isinstance(p, Tensor):
        return _Shifted(kernel, p, q), (0.0, 0.0)
    total = reg + sum(strength)
    share_a, share_b = (rho / total if total < math.inf else float(rho == math.inf) for rho in strength)
    return kernel, (share_a * (p + q), share_b * (p + q))


def slack(reg: float, rho_a: float, rho_b: float) -> float:
    """1 − d: the share of the distance to the solution that a step removes at least."""
    more = reg / rho_a + reg / rho_b + (reg / rho_a) * (reg / rho_b)  # 1/d − 1: the difference itself is 0 where ρ ≫ λ
    return more / (1 + more) if more < math.inf else 1.0


@dataclass(frozen=True)
class _DampedBlocks:
    """g → f → g with its level set, at one λ, for P = r s exp((f + g − C)/λ); the error is that of g without the level."""

    kernel: Kernel
    log_r: Tensor
    log_s: Tensor
    reg: float
    rho_a: float
    rho_b: float

    def rows(self, g: Tensor) -> Tensor:
        """Apply the damped row block to g."""
        u, v = self.reg * (self.log_r + 1), g + self.reg * self.log_s
        return -self.reg / (1 + self.reg / self.rho_a) * self.kernel.log_ratio(u, v, self.reg, rows=True)

    def step(self, g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        f = self.rows(g)
        u, v = f + self.reg * (self.log_r + 1), g + self.reg * self.log_s
        log_ratio = self.kernel.log_ratio(u, v, self.reg, rows=False)
        image = (g - self.reg * log_ratio) / (1 + self.reg / self.rho_b)
        error = (image - g).abs().amax(-1) / (self.reg * slack(self.reg, self.rho_a, self.rho_b))
        before = self.kernel.log_b + log_ratio
        after = before + (image - g) / self.reg
        level = self._level(f, image, torch.logsumexp(after, -1, keepdim=True))
        return image + level, (after.exp() - before.exp()).abs().sum(-1), error, f

    def _level(self, f: Tensor, g: Tensor, log_mass: Tensor) -> Tensor:
        """q; where a ρ is infinite its marginal decides the mass: L = log Σ a or log Σ b."""
        log_A = torch.logsumexp(self.kernel.log_a - f / self.rho_a, -1, keepdim=True)
        log_B = torch.logsumexp(self.kernel.log_b - g / self.rho_b, -1, keepdim=True)
        if self.rho_b == math.inf:
            return self.reg * (log_B - log_mass) - self.rho_a * (log_A - log_B)
        if self.rho_a == math.inf:
            return self.rho_b * (log_B - log_A)
        total = self.reg + self.rho_a + self.rho_b
        # ρ_b (log B − L), without the difference of large numbers.
        return self.rho_b / total * (self.reg * (log_B - log_mass) + self.rho_a * (log_B - log_A))
