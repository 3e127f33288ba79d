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

the log of the mass that then moves. Anderson mixing (transport/solvers/anderson.py) is for the rest. In the same way
costs that
are all higher by s are met by f and g that are s ρ_a/(λ + ρ_a + ρ_b) and s ρ_b/(λ + ρ_a + ρ_b) higher: the least is made 0.

**Gradients** of the value are those of the envelope theorem, in the dual Σ a φ_a(f) + Σ b φ_b(g) + λ (ΣR − ΣP) with
φ(f) = ρ (1 − exp(−f/ρ)), or f where ρ is infinite:

    P in M,      KL(P|R) in λ,      φ_a(f_i), and for "kl" λ (Σb − Σ_j P_ij/a_i) more, in a_i,      the same in b_j.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.derivatives.envelope import Envelope, NotDifferentiable
from otformer.transport.executors.absorbed import Absorbed
from otformer.transport.executors.dense import Dense
from otformer.transport.problem.problem import like_input
from otformer.transport.problem.result import Result
from otformer.transport.solvers.fixed_point import approach, descend, fixed_point
from otformer.transport.solvers.newton import falling

REFUSED = "value has gradients; plan, value_linear and potentials of an unbalanced or partial problem have none"


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
    reg: float | Tensor = 0.1,
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
    It is differentiable, once, in tensors M, a, b and reg; to differentiate anything else of the result is an error.

    >>> r = solve_unbalanced([[0.0, 4.0], [4.0, 0.0]], [1.0, 1.0], [1.0, 2.0], reg=0.1, reg_m=1.0)
    >>> r.converged, [round(s, 3) for s in r.plan.sum(0).tolist()]
    (True, [1.0, 1.438])
    """
    problem = Parts.of(M, a, b, reg, tol, max_depth)
    checks.choice("reg_type", reg_type, ("kl", "entropy"))
    strength, lam, log_a, log_b = _strength(reg_m), problem.reg, problem.log_a, problem.log_b
    log_R = (log_a, log_b) if reg_type == "kl" else (log_a * 0, log_b * 0)
    f, g, error, depth = damped(problem.C, log_a, log_b, log_R, lam, strength, tol, max_depth)
    log_ratio = (f[:, None] + g - problem.C) / lam
    P = (log_R[0][:, None] + log_R[1] + log_ratio).exp()
    r, s = (log_weights.exp() for log_weights in log_R)
    apart = (P * log_ratio).sum() - P.sum() + r.sum() * s.sum()  # KL(P|R)
    rest, slopes = lam * apart, []
    sides = (f, P.sum(1), log_a.exp(), s), (g, P.sum(0), log_b.exp(), r)
    for rho, (h, marginal, weights, other) in zip(strength, sides, strict=True):
        rest = rest + (0.0 if rho == math.inf else rho * _kl(marginal, weights))
        slope = h if rho == math.inf else -rho * torch.expm1(-h / rho)
        slopes.append(slope + lam * (other.sum() - marginal / weights) if reg_type == "kl" else slope)
    gradients = (slopes[0], slopes[1], apart)
    return problem.result(P, f, g, rest, gradients, float(error), tol, depth, "damped Sinkhorn blocks, Anderson-mixed")


def _strength(reg_m: Any) -> tuple[float, float]:
    """(ρ_a, ρ_b)."""
    try:
        given = np.asarray(reg_m.cpu() if isinstance(reg_m, Tensor) else reg_m)
    except (TypeError, ValueError, RuntimeError):
        given = np.empty(0)
    good = given.dtype.kind in "iuf" and given.ndim <= 1 and given.size in (1, 2)
    if not good or not bool((given > 0).all()) or float(given.min()) == math.inf:
        expected = "one or two positive numbers without a gradient, at most one of them infinite"
        raise ValueError(f"reg_m must be {expected}, got {reg_m!r}")
    return float(given.flat[0]), float(given.flat[-1])


@dataclass(frozen=True)
class Parts:
    """The points with mass of a checked problem, in float64, and where they belong."""

    C: Tensor
    log_a: Tensor
    log_b: Tensor
    reg: float
    rows: Tensor
    columns: Tensor
    inputs: tuple[Tensor, ...]  # M, a, b and λ, whole, in float64, with their gradients to be
    given: Any  # M: results are what it is

    @classmethod
    def of(cls, M: Any, a: Any, b: Any, reg: Any, tol: float, max_depth: int) -> Parts:
        like = checks.tensor("M", M)
        whole = like.double()
        lam = checks.positive("reg", reg.detach() if isinstance(reg, Tensor) else reg)
        if whole.ndim != 2 or 0 in whole.shape:
            raise ValueError(f"M must have shape (n, m) with n, m of at least 1, got {tuple(whole.shape)}")
        checks.not_negative("tol", tol)
        checks.count("max_depth", max_depth, least=4)
        C = whole.detach()
        low, high = float(C.min()), float(C.max())
        if not math.isfinite(max(high - low, abs(low)) / lam):
            raise ValueError(f"reg is too small: cost/reg overflows, got reg = {lam:g}, costs from {low:g} to {high:g}")
        n, m = C.shape
        w_a, w_b = (
            C.new_full((size,), 1 / size)
            if w is None
            # a tensor must agree with M; other numbers are taken in full precision
            else checks.weights(name, w, (size,), like if isinstance(w, Tensor) else C).double()
            for name, w, size in (("a", a, n), ("b", b, m))
        )
        for name, w in (("a", w_a), ("b", w_b)):
            if not 0 < float(w.detach().sum()) < math.inf:
                raise ValueError(f"{name} must have a positive sum that is finite, got {float(w.detach().sum()):g}")
        inputs = whole, w_a, w_b, torch.as_tensor(reg).to(C).reshape(())
        w_a, w_b = w_a.detach(), w_b.detach()
        rows, columns = w_a > 0, w_b > 0
        return cls(C[rows][:, columns], w_a[rows].log(), w_b[columns].log(), lam, rows, columns, inputs, M)

    def result(
        self,
        P: Tensor,
        f: Tensor,
        g: Tensor,
        rest: Tensor,
        gradients: tuple[Tensor, Tensor, Tensor],
        error: float,
        tol: float,
        depth: int,
        network: str,
    ) -> UnbalancedResult:
        """With zeros where there is no mass; ``rest`` is the value beside Σ P M, ``gradients`` its own in a, b and λ."""
        linear = (P * self.C).sum()
        value = linear + rest
        if not math.isfinite(float(value)):
            raise ValueError(f"M is too low: the mass of the plan overflows, got costs down to {float(self.C.min()):g}")
        if not error < tol:
            message = f"not converged: error {error:.3g} after {depth} layers, tol is {tol:g} (reg = {self.reg:g})"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        plan = torch.zeros_like(self.inputs[0], requires_grad=False)
        plan[self.rows.nonzero(), self.columns.nonzero().T] = P
        u, v, in_a, in_b = (
            P.new_zeros(len(w)).masked_scatter(w, t)
            for w, t in ((self.rows, f), (self.columns, g), (self.rows, gradients[0]), (self.columns, gradients[1]))
        )
        off = (P.sum(1) - self.log_a.exp()).abs().sum() + (P.sum(0) - self.log_b.exp()).abs().sum()
        learning = torch.is_grad_enabled() and any(t.requires_grad for t in self.inputs)
        if learning:
            value = Envelope.apply(value, [plan, in_a, in_b, gradients[2]], *self.inputs)
            plan, u, v, linear = NotDifferentiable.apply(REFUSED, (plan, u, v, linear), *self.inputs)
        given = plan if learning else self.given
        found = UnbalancedResult(
            plan=like_input(given, plan),
            potentials=(like_input(given, u), like_input(given, v)),
            value=value if isinstance(given, Tensor) else float(value),
            value_linear=linear if isinstance(given, Tensor) else float(linear),
            marginal_error=float(off),
            converged=error < tol,
            depth=depth,
            network=network,
            mass=float(P.sum()),
            error=error,
        )
        return found.to(checks.tensor("M", self.given).dtype)  # type: ignore[return-value]


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
    low = C.amin((-2, -1))[..., None]
    C = C - low[..., None]
    spread = float(C.max())
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
    total = reg + sum(strength)
    share_a, share_b = (rho / total if total < math.inf else float(rho == math.inf) for rho in strength)
    return blocks.rows(g) + share_a * low, g + share_b * low, error, depth + 1


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


def _kl(p: Tensor, q: Tensor) -> Tensor:
    """Σ p log(p/q) − p + q."""
    return (torch.special.xlogy(p, p / q) - p + q).sum()
