r"""Potentials of OT(α, β) and of OT(α, α), the terms of a debiased loss (transport/compat/like_geomloss.py has the
definitions).

OT(α, β) takes the engine of `solve`.

**OT(α, α)** has f = g, and one block relaxed by θ, f ← f + θ (T(f) − f) with T(f) = f − ε log(P1/α), solves it. T never
increases distances, so this converges for every θ < 1. At the solution T has the Jacobian −D_α⁻¹P; the kernels
exp(−‖x − y‖ᵖ/pε), p = 1 or 2, are positive definite, so the step has eigenvalues in [1 − 2θ, 1 − θ]: with θ = ⅔ every step
leaves a third of the error, at any ε. The first takes θ = ½, which is right where f is the same all around a point. With
``reach`` T is damped by d < 1, and θ = 2/(2 + d).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otformer import callers
from otformer.transport.executors.absorbed import Absorbed, Watched
from otformer.transport.executors.dense import Dense
from otformer.transport.executors.open import AnyStream
from otformer.transport.problem.problem import ABSENT_WEIGHT
from otformer.transport.solvers.annealing import annealed
from otformer.transport.solvers.fixed_point import Least
from otformer.transport.variants.unbalanced import damped, slack

MAX_DEPTH = 10_000  # layers
MEANINGLESS = 0.01  # of the mass: no plan with such an error counts as found, whatever rounding allows
STALLED = 0.8  # of the error left by a step that should leave a third of it: rounding is all there is


def transport(C: Tensor, a: Tensor, b: Tensor, eps: float, rho: float | None, tol: float) -> tuple[Tensor, Tensor]:
    """f [B, n] and g [B, m] for costs [B, n, m]; balanced (rho None) with Σ a f = Σ b g."""
    log_a, log_b, spread = logs(a), logs(b), _spread(C, eps)
    tol = max(tol, rounding(spread, eps, rho))
    if rho is not None:
        f, g, error, _ = damped(C, log_a, log_b, (log_a, log_b), eps, (rho, rho), tol, MAX_DEPTH)
        warn(error, tol)
        return levelled(f, g, a, b, eps, rho)
    executor, mass = Watched(C, log_a, log_b), b.sum(-1)
    best = Least(eps * log_a, eps * log_b)
    for u, v, _, _ in annealed(executor, spread, eps, 0.0, MAX_DEPTH):
        best.see(executor.gaps.abs().sum(-1) / mass, u, v)
        if bool((best.error < tol).all()):
            break
    warn(best.error, tol)
    return balanced(best.state[0] - eps * log_a, best.state[1] - eps * (log_b + 1), a, b)


def balanced(f: Tensor, g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """With the constant that makes Σ a f = Σ b g."""
    half = ((a * f).sum(-1, keepdim=True) - (b * g).sum(-1, keepdim=True)) / (2 * b.sum(-1, keepdim=True))
    return f - half, g + half


def levelled(f: Tensor, g: Tensor, a: Tensor, b: Tensor, eps: float, rho: float) -> tuple[Tensor, Tensor]:
    """(f + p, g + q) of the best levels, as in `averaged`: A = Σ α exp(−f/ρ) and B = Σ β exp(−g/ρ) are the mass of the plan.

    A is that already, for f is that of g: with A exp(−p/ρ) = B exp(−q/ρ) = A exp((p + q)/ε), p = −ρ q/(ρ + ε).
    """
    mass_a, mass_b = (torch.logsumexp(w.log() - h / rho, -1, keepdim=True) for w, h in ((a, f), (b, g)))
    q = (mass_b - mass_a) * rho * (rho + eps) / (2 * rho + eps)
    return f - rho / (rho + eps) * q, g + q


def self_transport(C: Tensor, a: Tensor, eps: float, rho: float | None, tol: float) -> Tensor:
    """f = g [B, n] of measures with themselves, by the relaxed step; C [B, n, n] symmetric."""
    log_a, spread = logs(a), _spread(C, eps)
    near = rho is None or spread < 50 * (rho + eps)  # as in unbalanced.py
    executor = Absorbed(C, log_a, log_a) if near else Dense(C, log_a, log_a)
    return averaged(executor, a, spread, eps, rho, tol)


def averaged(
    executor: Absorbed | Dense | AnyStream, a: Tensor, spread: float, eps: float, rho: float | None, tol: float,
    rough: AnyStream | None = None,
) -> Tensor:  # fmt: skip
    """f = g [..., n] of the measures that an executor holds on both sides; ``spread``: the range of costs.

    ``rough`` is one of less exact, faster passes, which are followed as far as they lead.
    """
    damping = 1.0 if rho is None else 1 / (1 + eps / rho)
    tol = max(tol, rounding(spread, eps, rho))
    f = -damping / (1 + damping) * eps * executor.log_a.to(a)  # the solution where points are far apart
    if rough is not None:
        f, _, _ = _relaxed(rough, a, f, eps, damping, tol, STALLED)
    f, log_ratio, error = _relaxed(executor, a, f, eps, damping, tol, math.inf, first=rough is None)
    warn(error, tol)
    # The best level: with it Σ α exp(−f/ρ) is the mass of the plan, and the loss stationary, its error of second order.
    allowed = a.sum(-1) if rho is None else (a * (-f / rho).exp()).sum(-1)
    level = (allowed / (a * log_ratio.exp()).sum(-1)).log() / (2 / eps + (0 if rho is None else 1 / rho))
    return f + level[..., None]


def _relaxed(
    executor: Absorbed | Dense | AnyStream, a: Tensor, f: Tensor, eps: float, damping: float, tol: float, stalled: float,
    first: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Relaxed steps from f to an error of ``tol``, or until one leaves more than ``stalled`` of it: f, log(P1/a), the error.

    The ``first`` of all steps takes θ = ½.
    """
    log_a, mass = executor.log_a.to(a), a.sum(-1)
    last = torch.full_like(mass, math.inf)
    for layers in range(MAX_DEPTH):
        u = f + eps * (log_a + 0.5)
        log_ratio = executor.log_ratio(u, u, eps, rows=True).to(a)
        move = damping * (f - eps * log_ratio) - f
        error = (a * torch.expm1(move / eps).abs()).sum(-1) / mass
        if bool((error < tol).all()) or (stalled < math.inf and not bool((error < stalled * last).all())):
            break
        f, last = f + (1 / 2 if first and not layers else 2 / (2 + damping)) * move, error
    return f, log_ratio, error


def phi(f: Tensor, eps: float, rho: float | None) -> Tensor:
    """[2, ..., n]: what a unit of mass with potential f adds to the loss, and the derivative of the loss in that mass."""
    if rho is None:
        return torch.stack([f, f])
    lost = -torch.expm1(-f / rho)
    return torch.stack([(rho + eps / 2) * lost, (rho + eps) * lost - eps / 2])


def rounding(spread: float, eps: float, rho: float | None) -> float:
    """The least error that can be told from rounding: potentials of the size of costs, divided by ε."""
    contraction = 1.0 if rho is None else slack(eps, rho, rho)
    return 16 * torch.finfo(torch.float64).eps * spread / (eps * contraction)


def _spread(C: Tensor, eps: float) -> float:
    """max C − min C of costs that are finite."""
    low, high = (float(end) for end in torch.aminmax(C))  # not a number if any cost is none
    finite(max(abs(low), abs(high)), eps)
    return high - low


def finite(largest: float, eps: float) -> None:
    if not math.isfinite(largest / eps):
        raise ValueError(f"costs must be finite, divided by ε too: got costs up to {largest:g}, ε = {eps:g}")


def logs(weights: Tensor) -> Tensor:
    return weights.clamp_min(ABSENT_WEIGHT * float(weights.sum(-1).max())).log()


def warn(error: Tensor, tol: float) -> None:
    """A warning where the error is above ``tol``, or where rounding, which ``tol`` never goes below, is all there is."""
    tol = min(tol, MEANINGLESS)
    if not bool((error < tol).all()):
        callers.warn(f"not converged: error {float(error.max()):.3g}, tol is {tol:g}; raise blur or tol")
