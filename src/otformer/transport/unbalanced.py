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

the log of the mass that then moves. Anderson mixing (transport/anderson.py) is for the rest.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.transport.absorbed import Absorbed
from otformer.transport.anderson import Anderson
from otformer.transport.blocks import LAYERS
from otformer.transport.dense import Dense
from otformer.transport.newton import falling
from otformer.transport.problem import like_input
from otformer.transport.result import Result

Step = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]  # z [..., k] → T(z) [..., k], mass still to move, error of z [...]


@dataclass(frozen=True, eq=False, repr=False)
class UnbalancedResult(Result):
    """A `Result` whose marginals need not be a and b: ``marginal_error`` says how far they are, by design.

    mass : Σ P.   error : how far from the solution; see the two functions. converged : error < tol, and nothing else.
    potentials : (f [n], g [m]), see the two functions; 0 where a weight is 0.   value : what was minimised.
    """

    mass: float
    error: float


def solve_unbalanced(
    M: Any,
    a: Any = None,
    b: Any = None,
    reg: float = 0.1,
    reg_m: float | tuple[float, float] = 1.0,
    tol: float = 1e-6,
    max_depth: int = 10_000,
    reg_type: str = "kl",
) -> UnbalancedResult:
    """Entropic transport with penalised marginals: min Σ P M + λ KL(P|R) + ρ_a KL(P1|a) + ρ_b KL(Pᵀ1|b).

    Parameters: M (n, m); a, b of any mass, default uniform with mass 1; reg = λ; reg_m = ρ or (ρ_a, ρ_b), one of which may
    be infinite (that marginal is then exact); reg_type as in POT, "kl" (R = a bᵀ, POT's default) or "entropy" (R = 1).
    Potentials: P_ij = R_ij exp((f_i + g_j − M_ij)/λ). ``error`` bounds max|g − g*|/λ, and the same for f, so every entry of
    the plan is within a factor exp(2·error) of the exact one; ``tol`` is for it. Value: the minimum, KL with its masses.

    >>> r = solve_unbalanced([[0.0, 4.0], [4.0, 0.0]], [1.0, 1.0], [1.0, 2.0], reg=0.1, reg_m=1.0)
    >>> r.converged, [round(s, 3) for s in r.plan.sum(0).tolist()]
    (True, [1.0, 1.438])
    """
    problem = Parts.of(M, a, b, reg, tol, max_depth)
    checks.choice("reg_type", reg_type, ("kl", "entropy"))
    pair = tuple(reg_m) if isinstance(reg_m, (tuple, list)) else (reg_m, reg_m)
    if len(pair) != 2 or not all(float(r) > 0 for r in pair) or min(pair) == math.inf:
        raise ValueError(f"reg_m must be one or two positive numbers, at most one of them infinite, got {reg_m!r}")
    strength = (float(pair[0]), float(pair[1]))
    log_R = (problem.log_a, problem.log_b) if reg_type == "kl" else (problem.log_a * 0, problem.log_b * 0)
    f, g, error, depth = damped(problem.C, problem.log_a, problem.log_b, log_R, problem.reg, strength, tol, max_depth)
    log_P = log_R[0][:, None] + log_R[1] + (f[:, None] + g - problem.C) / problem.reg
    P = log_P.exp()
    penalties = problem.reg * _kl(P, (log_R[0][:, None] + log_R[1]).exp())
    for rho, marginal, log_weights in zip(strength, (P.sum(1), P.sum(0)), (problem.log_a, problem.log_b), strict=True):
        penalties += rho * _kl(marginal, log_weights.exp()) if rho < math.inf else 0.0
    return problem.result(P, f, g, penalties, float(error), tol, depth, M, "damped Sinkhorn blocks, Anderson-mixed")


@dataclass(frozen=True)
class Parts:
    """The points with mass of a checked problem, in float64, and where they belong."""

    C: Tensor
    log_a: Tensor
    log_b: Tensor
    reg: float
    rows: Tensor
    columns: Tensor
    like: Tensor

    @classmethod
    def of(cls, M: Any, a: Any, b: Any, reg: float, tol: float, max_depth: int) -> Parts:
        like, reg = checks.tensor("M", M).detach(), checks.positive("reg", reg)
        if like.ndim != 2 or 0 in like.shape:
            raise ValueError(f"M must have shape (n, m) with n, m of at least 1, got {tuple(like.shape)}")
        checks.not_negative("tol", tol)
        checks.count("max_depth", max_depth, least=4)
        C = like.double()
        if not math.isfinite(float(C.abs().max()) / reg):
            raise ValueError(
                f"reg is too small: cost/reg overflows, got reg = {reg:g}, costs up to {float(C.abs().max()):g}"
            )
        n, m = C.shape
        w_a = C.new_full((n,), 1 / n) if a is None else checks.weights("a", a, (n,), C).detach()
        w_b = C.new_full((m,), 1 / m) if b is None else checks.weights("b", b, (m,), C).detach()
        for name, w in (("a", w_a), ("b", w_b)):
            if float(w.sum()) <= 0:
                raise ValueError(f"{name} must have a positive sum, got all zeros")
        rows, columns = w_a > 0, w_b > 0
        return cls(C[rows][:, columns], w_a[rows].log(), w_b[columns].log(), reg, rows, columns, like)

    def result(
        self, P: Tensor, f: Tensor, g: Tensor, rest: float, error: float, tol: float, depth: int, given: Any, network: str
    ) -> UnbalancedResult:
        """With zeros where there is no mass; ``rest`` is the value beside Σ P M."""
        if not error < tol:
            message = f"not converged: error {error:.3g} after {depth} layers, tol is {tol:g} (reg = {self.reg:g})"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        plan = self.like.new_zeros(self.like.shape)
        plan[self.rows.nonzero(), self.columns.nonzero().T] = P.to(plan)
        u, v = plan.new_zeros(len(self.rows)), plan.new_zeros(len(self.columns))
        u[self.rows], v[self.columns] = f.to(plan), g.to(plan)
        off = (P.sum(1) - self.log_a.exp()).abs().sum() + (P.sum(0) - self.log_b.exp()).abs().sum()
        linear = float((P * self.C).sum())
        return UnbalancedResult(
            plan=like_input(given, plan),
            potentials=(like_input(given, u), like_input(given, v)),
            value=linear + rest,
            value_linear=linear,
            marginal_error=float(off),
            converged=error < tol,
            depth=depth,
            network=network,
            mass=float(P.sum()),
            error=error,
        )


def damped(
    C: Tensor,
    log_a: Tensor,
    log_b: Tensor,
    log_R: tuple[Tensor, Tensor],
    reg: float,
    strength: tuple[float, float],
    tol: float,
    max_depth: int,
) -> tuple[Tensor, Tensor, Tensor, int]:
    """(f [..., n], g [..., m], error [...], layers) of unbalanced problems with R_ij = r_i s_j, one or a batch of them."""
    spread = float(C.max() - C.min())
    # A kernel in memory will do where no sum can underflow: where the damping is within its range.
    near = spread < 50 * (min(strength) + reg)
    executor = Absorbed(C, log_a, log_b) if near else Dense(C, log_a, log_b)
    g, depth = torch.zeros_like(log_b), 0
    for lam in falling(spread, reg):
        blocks = _DampedBlocks(executor, *log_R, lam, *strength)
        steps = fixed_point(blocks.step, g, log_b.exp(), spread + 100 * lam)
        if lam == reg:
            g, error, depth = descend(steps, g, depth, max_depth - 1, tol)
        else:
            g, depth = approach(steps, g, depth, max_depth // 2, 1e-3 * log_b.exp().sum(-1))
    return blocks.rows(g), g, error, depth + 1


@dataclass(frozen=True)
class _DampedBlocks:
    """g → f → g with its level set, at one λ, for P = r s exp((f + g − C)/λ); the error is that of g without the level."""

    executor: Absorbed | Dense
    log_r: Tensor
    log_s: Tensor
    reg: float
    rho_a: float
    rho_b: float

    def rows(self, g: Tensor) -> Tensor:
        """f from g."""
        u, v = self.reg * (self.log_r + 1), g + self.reg * self.log_s
        return -self.reg / (1 + self.reg / self.rho_a) * self.executor.excess(u, v, self.reg, rows=True)

    def step(self, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        f = self.rows(g)
        u, v = f + self.reg * (self.log_r + 1), g + self.reg * self.log_s
        excess = self.executor.excess(u, v, self.reg, rows=False)
        image = (g - self.reg * excess) / (1 + self.reg / self.rho_b)
        slack = 1 - 1 / ((1 + self.reg / self.rho_a) * (1 + self.reg / self.rho_b))
        error = (image - g).abs().amax(-1) / (self.reg * slack)
        before = self.executor.log_b + excess
        after = before + (image - g) / self.reg
        level = self._level(f, image, torch.logsumexp(after, -1, keepdim=True))
        return image + level, (after.exp() - before.exp()).abs().sum(-1), error

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


def fixed_point(step: Step, z: Tensor, weight: Tensor, reach: float) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Iterates z, the mass still to move and their errors, for ever: mixed; plain where mixing would lead further than
    ``reach`` away; back at the best plain step where the mass to move has doubled."""
    mixing = Anderson(weight)
    least, best = torch.full(z.shape[:-1], torch.inf, dtype=z.dtype, device=z.device), z
    while True:
        image, size, error = step(z)
        yield z, size, error
        lost, better = ~(size <= 2 * least), size < least
        best = torch.where(better[..., None], image, best)
        least = torch.where(lost, torch.inf, torch.where(better, size, least))
        mixed = mixing.step(z, image - z, lost)
        wild = ~((mixed - z).abs().amax(-1, keepdim=True) <= reach)
        z = torch.where(lost[..., None], best, torch.where(wild, image, mixed))


def approach(
    steps: Iterator[tuple[Tensor, Tensor, Tensor]], z: Tensor, depth: int, limit: int, enough: Tensor | float
) -> tuple[Tensor, int]:
    """A start for the next λ: the last iterate, when little mass is still to move, after 200 layers, or at the limit."""
    limit = min(depth + 200, limit)
    while depth + LAYERS <= limit:
        z, size, _ = next(steps)
        depth += LAYERS
        if bool((size < enough).all()):
            break
    return z, depth


def descend(
    steps: Iterator[tuple[Tensor, Tensor, Tensor]], z: Tensor, depth: int, limit: int, enough: float
) -> tuple[Tensor, Tensor, int]:
    """The iterate of least error (of each problem), down to ``enough`` or to ``limit`` layers."""
    least = torch.full(z.shape[:-1], torch.inf, dtype=z.dtype, device=z.device)
    while depth + LAYERS <= limit:
        now, _, error = next(steps)
        depth += LAYERS
        z = torch.where((error < least)[..., None], now, z)
        least = torch.where(error < least, error, least)
        if bool((least < enough).all()):
            break
    return z, least, depth


def _kl(p: Tensor, q: Tensor) -> float:
    """Σ p log(p/q) − p + q."""
    return float((torch.special.xlogy(p, p / q) - p + q).sum())
