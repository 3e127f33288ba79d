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
of a matrix is made 0. Between points no matrix is needed (variants/unbalanced_streamed.py).

**Gradients** of the value are those of the envelope theorem, in the dual Σ a φ_a(f) + Σ b φ_b(g) + λ (ΣR − ΣP) with
φ(f) = ρ (1 − exp(−f/ρ)), or f where ρ is infinite:

    P in M,      KL(P|R) in λ,      φ_a(f_i), and for "kl" λ (Σb − Σ_j P_ij/a_i) more, in a_i,      the same in b_j.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.memory import needs
from otformer.transport.derivatives.envelope import Envelope, NotDifferentiable
from otformer.transport.executors.absorbed import Absorbed
from otformer.transport.executors.dense import Dense
from otformer.transport.needs import VARIANT, of_cost
from otformer.transport.problem.finish import tell
from otformer.transport.problem.problem import Goal, Problem, Sides, to_numpy
from otformer.transport.problem.read import read_cost
from otformer.transport.problem.result import Result
from otformer.transport.solvers.blocks import Executor
from otformer.transport.solvers.fixed_point import descend

AnyExecutor = Absorbed | Dense | Executor
REFUSED = "value has gradients; plan, value_linear and potentials of an unbalanced or partial problem have none"


@needs(lambda M, **_: of_cost(M, VARIANT))
def solve_unbalanced(
    M: Any,
    a: Any = None,
    b: Any = None,
    reg: float | Tensor = 0.1,
    reg_m: float | tuple[float, float] = 1.0,
    tol: float = 1e-6,
    max_depth: int = 10_000,
    reg_type: str = "kl",
    mask: Any = None,
) -> Result:
    """Entropic transport with penalised marginals: min Σ P M + λ KL(P|R) + ρ_a KL(P1|a) + ρ_b KL(Pᵀ1|b).

    Parameters
    ----------
    M, a, b, reg, max_depth, mask
        As in `solve`, but a and b may have any masses; by default uniform with mass 1.
    reg_m : float or pair
        ρ or (ρ_a, ρ_b), one of which may be infinite: that marginal is then exact.
    tol : float
        For ``error``, which bounds max|g − g*|/λ, and the same for f: every entry of the plan is within a factor
        exp(2·error) of the exact one.
    reg_type : str
        As in POT, ``"kl"`` (R = a bᵀ, POT's default) or ``"entropy"`` (R = 1).

    Returns
    -------
    Result
        ``potentials`` are (f, g) with P_ij = R_ij exp((f_i + g_j − M_ij)/λ); ``value`` is the minimum, KL with its masses.
        It is differentiable, once, in tensors M, a, b and reg; to differentiate anything else of the result is an error.

    Examples
    --------
    >>> r = solve_unbalanced([[0.0, 4.0], [4.0, 0.0]], [1.0, 1.0], [1.0, 2.0], reg=0.1, reg_m=1.0)
    >>> r.converged, [round(s, 3) for s in r.plan.sum(0).tolist()]
    (True, [1.0, 1.438])
    """
    problem = M if isinstance(M, Problem) else read_cost(M, a, b, reg, None, mask, balanced=False)
    goal, problem = Goal.read(tol, max_depth), problem.as_tensors()
    checks.choice("reg_type", reg_type, ("kl", "entropy"))
    strength = _strength(reg_m)
    if isinstance(problem.cost, Sides):
        from otformer.transport.variants.unbalanced_streamed import solve_unbalanced_streamed

        return solve_unbalanced_streamed(problem, goal, strength, reg_type)
    lam, C = problem.reg, problem.cost
    log_a, log_b = problem.a.log(), problem.b.log()
    log_R = (log_a, log_b) if reg_type == "kl" else (log_a * 0, log_b * 0)
    if not len(log_a):
        none = [log_a, log_b, log_a.sum()]
        return finish_variant(problem, C, (log_a, log_b), 0.0, none, 0.0, goal, 0, "no layers: no points")
    shape = problem.low, problem.spread
    f, g, error, depth = damped(C, log_a, log_b, log_R, lam, strength, goal.tol, goal.max_depth, *shape)
    log_ratio = (f[:, None] + g - C - problem.low) / lam
    P = (log_R[0][:, None] + log_R[1] + log_ratio).exp()
    r, s = (log_weights.exp() for log_weights in log_R)
    apart = torch.where(P > 0, P * log_ratio, 0.0).sum() - P.sum() + r.sum() * s.sum()  # KL(P|R)
    rest, slopes = lam * apart, []
    sides = (f, P.sum(1), log_a.exp(), s), (g, P.sum(0), log_b.exp(), r)
    for rho, (h, marginal, weights, other) in zip(strength, sides, strict=True):
        rest = rest + (0.0 if rho == math.inf else rho * relative_entropy(marginal, weights))
        slope = marginal_slope(h, rho)
        slopes.append(slope + lam * (other.sum() - marginal / weights) if reg_type == "kl" else slope)
    method = "damped Sinkhorn blocks, Anderson-mixed"
    return finish_variant(problem, P, (f, g), rest, [*slopes, apart], float(error), goal, depth, method)


def _strength(reg_m: Any) -> tuple[float, float]:
    """(ρ_a, ρ_b)."""
    if isinstance(reg_m, Tensor):
        checks.no_transforms("reg_m", reg_m)
    try:
        given = np.empty(0) if checks.derivative_wanted(reg_m) else to_numpy(checks.array("reg_m", reg_m))
    except ValueError:
        given = np.empty(0)
    good = given.dtype.kind in "iuf" and given.ndim <= 1 and given.size in (1, 2)
    if not good or not bool((given > 0).all()) or float(given.min()) == math.inf:
        expected = "one or two positive numbers (no gradient), at most one of them infinite"
        raise ValueError(f"reg_m, or unbalanced, must be {expected}, got {' '.join(repr(reg_m).split())}")
    return float(given.flat[0]), float(given.flat[-1])


def finish_variant(
    problem: Problem, P: Tensor, potentials: tuple[Tensor, Tensor], rest: Any, gradients: Sequence[Tensor], error: float,
    goal: Goal, depth: int, method: str,
) -> Result:  # fmt: skip
    """The result of a problem whose marginals need not be a and b.

    ``rest`` is the value beside Σ P M, ``gradients`` are those of the value in a, b and λ, ``error`` is what tol is for.
    """
    form, wanted = problem.form, problem.wanted
    linear = torch.where(P > 0, P * problem.cost, 0.0).sum() + problem.low * P.sum()
    value, mass = linear + rest, float(P.sum())
    largest = torch.finfo(torch.float32 if form.single else torch.float64).max
    if not (abs(float(value)) <= largest and (not P.numel() or float(P.max()) <= largest)):
        raise ValueError(f"M is too low: the mass of the plan overflows, got costs down to {problem.low:g}")
    converged = error < goal.tol or not P.numel()
    if not converged:
        tell(error, depth, goal, problem.reg, name="error")
    off = float((P.sum(1) - problem.a).abs().sum() + (P.sum(0) - problem.target).abs().sum())
    plan, u, v = problem.whole_plan(P), problem.whole(potentials[0], 0), problem.whole(potentials[1], 1)
    if wanted is not None:
        inputs = (*wanted.cost, wanted.a, wanted.b, wanted.reg)
        value = Envelope.apply(value, [P, *gradients], *inputs)
        plan, u, v, linear = NotDifferentiable.apply(REFUSED, (plan, u, v, linear), *inputs)
    parts = {"plan": form.give(plan), "value_linear": form.number(linear) if wanted is None else form.give(linear)}
    number = form.number(value) if wanted is None else form.give(value)
    potentials_given = form.give(u, double=True), form.give(v, double=True)
    return Result(potentials_given, number, off, converged, depth, method, mass, error, parts)


def damped(
    C: Tensor, log_a: Tensor, log_b: Tensor, log_R: tuple[Tensor, Tensor], reg: float, strength: tuple[float, float],
    tol: float, max_depth: int, lower: float = 0.0, spread: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, int]:  # fmt: skip
    """(f [..., n], g [..., m], error [...], layers) of unbalanced problems with R_ij = r_i s_j, one or a batch of them.

    The cost is C + ``lower``; ``spread``, by default the range of C, is that of its finite entries.
    """
    low = C.amin((-2, -1))[..., None]
    C = C - low[..., None]
    spread = float(C.max()) if spread is None else spread
    # A kernel in memory will do where no sum can underflow: where the damping is within its range.
    near = spread < 50 * (min(strength) + reg)
    executor = Absorbed(C, log_a, log_b) if near else Dense(C, log_a, log_b)
    f, g, error, depth = damped_blocks(executor, log_R, spread, reg, strength, tol, max_depth)
    total = reg + sum(strength)
    share_a, share_b = (rho / total if total < math.inf else float(rho == math.inf) for rho in strength)
    return f + share_a * (low + lower), g + share_b * (low + lower), error, depth


def damped_blocks(
    executor: AnyExecutor, log_R: tuple[Tensor, Tensor], spread: float, reg: float, strength: tuple[float, float],
    tol: float, max_depth: int, start: Tensor | None = None, patience: float = math.inf,
) -> tuple[Tensor, Tensor, Tensor, int]:  # fmt: skip
    """`damped` for any executor; ``spread``: the range of its costs, or a bound on it; ``start``: a g near the solution."""
    b, first = executor.log_b.exp(), torch.zeros_like(executor.log_b) if start is None else start
    g, f, error, depth = descend(
        lambda lam: _DampedBlocks(executor, *log_R, lam, *strength).step, first, b, b.sum(-1), spread, reg, tol, max_depth,
        start is not None, patience,
    )  # fmt: skip
    return f, g, error, depth


def slack(reg: float, rho_a: float, rho_b: float) -> float:
    """1 − d: the share of a distance to the solution by which a step is sure to come closer."""
    more = reg / rho_a + reg / rho_b + (reg / rho_a) * (reg / rho_b)  # 1/d − 1: the difference itself is 0 where ρ ≫ λ
    return more / (1 + more) if more < math.inf else 1.0


@dataclass(frozen=True)
class _DampedBlocks:
    """g → f → g with its level set, at one λ, for P = r s exp((f + g − C)/λ); the error is that of g without the level."""

    executor: AnyExecutor
    log_r: Tensor
    log_s: Tensor
    reg: float
    rho_a: float
    rho_b: float

    def rows(self, g: Tensor) -> Tensor:
        """f from g."""
        u, v = self.reg * (self.log_r + 1), g + self.reg * self.log_s
        return -self.reg / (1 + self.reg / self.rho_a) * self.executor.log_ratio(u, v, self.reg, rows=True)

    def step(self, g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        f = self.rows(g)
        u, v = f + self.reg * (self.log_r + 1), g + self.reg * self.log_s
        log_ratio = self.executor.log_ratio(u, v, self.reg, rows=False)
        image = (g - self.reg * log_ratio) / (1 + self.reg / self.rho_b)
        error = (image - g).abs().amax(-1) / (self.reg * slack(self.reg, self.rho_a, self.rho_b))
        before = self.executor.log_b + log_ratio
        after = before + (image - g) / self.reg
        level = self._level(f, image, torch.logsumexp(after, -1, keepdim=True))
        return image + level, (after.exp() - before.exp()).abs().sum(-1), error, f

    def _level(self, f: Tensor, g: Tensor, log_mass: Tensor) -> Tensor:
        """q; where a ρ is infinite its marginal decides the mass: L = log Σ a or log Σ b."""
        log_A = torch.logsumexp(self.executor.log_a - f / self.rho_a, -1, keepdim=True)
        log_B = torch.logsumexp(self.executor.log_b - g / self.rho_b, -1, keepdim=True)
        if self.rho_b == math.inf:
            return self.reg * (log_B - log_mass) - self.rho_a * (log_A - log_B)
        if self.rho_a == math.inf:
            return self.rho_b * (log_B - log_A)
        total = self.reg + self.rho_a + self.rho_b
        # ρ_b (log B − L), without the difference of large numbers.
        return self.rho_b / total * (self.reg * (log_B - log_mass) + self.rho_a * (log_B - log_A))


def marginal_slope(f: Tensor, rho: float) -> Tensor:
    """φ(f), the part of the value's gradient in a weight that its penalty has."""
    return f if rho == math.inf else -rho * torch.expm1(-f / rho)


def relative_entropy(p: Tensor, q: Tensor) -> Tensor:
    """KL(p|q) = Σ p log(p/q) − p + q."""
    return (torch.special.xlogy(p, p / q) - p + q).sum()
