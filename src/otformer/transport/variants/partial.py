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
from otformer.callers import own_keywords
from otformer.memory import needs
from otformer.transport.costs.cost import priced
from otformer.transport.costs.matrix import Dense, MatrixProducts
from otformer.transport.needs import VARIANT, of_cost
from otformer.transport.problem.read import read_cost
from otformer.transport.result.finish import finish, made
from otformer.transport.result.result import Result
from otformer.transport.solvers.blocks import fixed_point
from otformer.transport.types import Goal, Solved

MASS_ROUNDING = 1e-9  # of the mass, up to which the sum of a plan is as it should be


@own_keywords
@needs(lambda M, **_: of_cost(M, VARIANT, "give fewer points"))
def solve_partial(
    M: Any,
    a: Any = None,
    b: Any = None,
    reg: float | Tensor = 0.1,
    mass: float | None = None,
    tol: float = 1e-6,
    max_depth: int = 10_000,
) -> Result:
    """Entropic partial transport: min Σ P M + λ Σ P log P with P1 ≤ a, Pᵀ1 ≤ b and Σ P = mass.

    Parameters
    ----------
    M, a, b, reg, max_depth
        As in `solve_unbalanced`.
    mass : float, optional
        At most min(Σ a, Σ b), the default.
    tol : float
        For ``error``, the mass by which the next step would change the columns; it is 0 only at the solution. Rows never
        exceed a, and the mass is exact.

    Returns
    -------
    Result
        ``potentials`` are (f, g) with P_ij = exp((f_i + g_j − M_ij)/λ); g includes t. The value is differentiable,
        once, in tensors M and reg, where its derivatives are P and Σ P log P; other gradients are an error.

    Examples
    --------
    >>> r = solve_partial([[0.0, 4.0], [4.0, 1.0]], reg=0.05, mass=0.6)
    >>> r.converged, r.plan.round(3).tolist()
    (True, [[0.5, 0.0], [0.0, 0.1]])
    """
    for name, given in (("a", a), ("b", b), ("mass", mass)):
        if checks.derivative_wanted(given):
            raise checks.ArgumentError(name, "not require a gradient", advice="only M and reg may in a partial problem")
    problem, goal = read_cost(M, a, b, reg, balanced=False).as_tensors(), Goal.read(tol, max_depth)
    C, lam, log_a, log_b = problem.cost.matrix("solve_partial"), problem.entropy, problem.a.log(), problem.b.log()
    if not len(log_a):
        return finish(problem, Solved(log_a, log_b, 0, "no layers: no points"), goal)
    most = min(float(problem.a.sum()), float(problem.b.sum()))
    mass = most if mass is None else checks.positive("mass", mass)
    if mass > most * (1 + 1e-12):
        raise checks.ArgumentError("mass", f"be at most the smaller sum of a and b, {most:g}", f"{mass:g}")
    goal = Goal.read(tol, max_depth, mass)
    kernel, moved, start = Dense(C, log_a, log_b), mass, torch.zeros_like(log_b)
    rows, g, error, depth = fixed_point(
        lambda reg: _CappedBlocks(kernel, moved, reg).step, start, problem.b, moved, problem.cost.spread, lam, *goal
    )
    f, g = rows[:-1], g.clamp_max(0.0) + rows[-1]
    plan = MatrixProducts.of(((f[:, None] + g - C) / lam).exp(), C)
    r, c = plan.marginals()
    off = abs(float(r.sum()) - mass)  # the blocks know nothing of how P is rounded where costs are λ times 10¹⁶
    worst = max(error, off if off > MASS_ROUNDING * mass else 0.0)
    low = sum(problem.cost.gauge())
    value = r @ f + c @ g + low * r.sum()  # λ log P = f + g − C
    apart = float((r - problem.a).abs().sum() + (c - problem.target).abs().sum())
    answer = priced(
        problem, plan, (r, c), (f, g + low), value, [torch.zeros_like(f), torch.zeros_like(g)],
        lambda linear: (value - linear) / lam, apart,
    )  # fmt: skip
    return made(answer, Solved(f, g, depth, "capped Sinkhorn blocks, Anderson-mixed"), goal, problem, worst, name="error")


@dataclass(frozen=True)
class _CappedBlocks:
    """T of a partial problem: g → (f, t) → (g, t), at one λ, for P = exp((f + g + t − C)/λ) with f, g ≤ 0."""

    kernel: Dense
    mass: float
    reg: float

    def rows(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best f and t for g, or for g without what is above 0."""
        nothing, log_a = torch.zeros_like(self.kernel.log_a), self.kernel.log_a
        log_s = self.kernel.log_ratio(nothing, g.clamp_max(0.0) + self.reg, self.reg, rows=True) + log_a
        level = _level(log_s, log_a, self.mass)
        return self.reg * (log_a - log_s - level).clamp_max(0.0), self.reg * level

    def step(self, g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        (f, t), log_b = self.rows(g), self.kernel.log_b
        log_s = self.kernel.log_ratio(f, torch.full_like(g, self.reg), self.reg, rows=False) + log_b
        level = _level(log_s, log_b, self.mass)
        before = log_s + (t + g.clamp_max(0.0)) / self.reg
        after = torch.minimum(log_s + level, log_b)
        error = (after.exp() - before.exp()).abs().sum()
        return self.reg * (log_b - log_s - level).clamp_max(0.0), error, error, torch.cat([f, t[None]])


def _level(log_s: Tensor, log_cap: Tensor, mass: float) -> Tensor:
    """log κ with Σ min(cap, κ s) = mass. With the k smallest of cap/s full, κ = (mass − their caps)/(the other s)."""
    full_at, order = (log_cap - log_s).sort()
    caps = log_cap[order].exp()
    unfilled = mass - (caps.cumsum(0) - caps)  # before the k-th is full, k = 0, …
    level = unfilled.log() - log_s[order].flip(0).logcumsumexp(0).flip(0)
    fits = (level <= full_at).nonzero()  # not a number once nothing is unfilled
    return level[fits[0, 0]] if len(fits) else full_at[-1]
