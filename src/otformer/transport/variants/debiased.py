r"""Potentials of OT(α, β) and of OT(α, α), the terms of a debiased loss (transport/compat/like_geomloss.py has the
definitions).

OT(α, β) takes the engine of `solve`.

**OT(α, α)** has f = g, and one block averaged with the identity, f ← f − ½ ε log(P1/α), solves it. At the solution its
Jacobian is ½(I − D_α⁻¹P); the kernels exp(−‖x − y‖ᵖ/pε), p = 1 or 2, are positive definite, so its eigenvalues lie in [0, ½]
and every step at least halves the error, at any ε. (It is the paper's layer with both heads and γ = λ, without its tanh.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otformer import callers
from otformer.network.features import squared_euclidean
from otformer.transport.executors.absorbed import Absorbed, Watched
from otformer.transport.executors.dense import Dense
from otformer.transport.executors.stream import Stream
from otformer.transport.problem.problem import ABSENT_WEIGHT
from otformer.transport.solvers.annealing import annealed, least_error
from otformer.transport.solvers.fixed_point import Least
from otformer.transport.variants.unbalanced import damped

MAX_DEPTH = 10_000  # layers


def transport(C: Tensor, a: Tensor, b: Tensor, eps: float, rho: float | None, tol: float) -> tuple[Tensor, Tensor]:
    """f [B, n] and g [B, m] for costs [B, n, m]; balanced (rho None) with Σ a f = Σ b g."""
    log_a, log_b, spread = _logs(a), _logs(b), _spread(C, eps)
    tol = max(tol, _rounding(spread, eps, rho))
    if rho is not None:
        f, g, error, _ = damped(C, log_a, log_b, (log_a, log_b), eps, (rho, rho), tol, MAX_DEPTH)
        _warn(error, tol)
        return f, g
    executor, mass = Watched(C, log_a, log_b), b.sum(-1)
    best = Least(eps * log_a, eps * log_b)
    for u, v, _, _ in annealed(executor, spread, eps, 0.0, MAX_DEPTH):
        best.see(executor.gaps.abs().sum(-1) / mass, u, v)
        if bool((best.error < tol).all()):
            break
    _warn(best.error, tol)
    return _balanced(best.state[0] - eps * log_a, best.state[1] - eps * (log_b + 1), a, b)


def _balanced(f: Tensor, g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """With the constant that makes Σ a f = Σ b g."""
    half = ((a * f).sum(-1, keepdim=True) - (b * g).sum(-1, keepdim=True)) / (2 * b.sum(-1, keepdim=True))
    return f - half, g + half


def self_transport(C: Tensor, a: Tensor, eps: float, rho: float | None, tol: float) -> Tensor:
    """f = g [B, n] of measures with themselves, by the averaged step; C [B, n, n] symmetric."""
    log_a, spread = _logs(a), _spread(C, eps)
    near = rho is None or spread < 50 * (rho + eps)  # as in unbalanced.py
    executor = Absorbed(C, log_a, log_a) if near else Dense(C, log_a, log_a)
    return averaged(executor, a, spread, eps, rho, tol)


def averaged(
    executor: Absorbed | Dense | Stream, a: Tensor, spread: float, eps: float, rho: float | None, tol: float
) -> Tensor:
    """f = g [..., n] of the measures that an executor holds on both sides; ``spread``: the range of costs."""
    log_a, mass = executor.log_a, a.sum(-1)
    damping = 1.0 if rho is None else 1 / (1 + eps / rho)
    tol = max(tol, _rounding(spread, eps, rho))
    f = -damping / (1 + damping) * eps * log_a  # the solution where points are far apart
    for _ in range(MAX_DEPTH):
        u = f + eps * (log_a + 0.5)
        log_ratio = executor.log_ratio(u, u, eps, rows=True)
        move = damping * (f - eps * log_ratio) - f
        error = (a * torch.expm1(move / eps).abs()).sum(-1) / mass
        if bool((error < tol).all()):
            break
        f = f + move / 2
    _warn(error, tol)
    if rho is not None:
        return f
    # With the mass of the plan exact, Σ α f is stationary: its error is of second order.
    return f - eps / 2 * ((a * log_ratio.exp()).sum(-1) / mass).log()[..., None]


def streamed(
    x: Tensor, y: Tensor, a: Tensor, b: Tensor, scale: float, eps: float, tol: float, debias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """F [n], G [m] of one balanced problem with cost scale·‖x − y‖², and the loss's gradients in x and y, without matrices.

    OT(α, β) has the derivative P in C, so in x_i Σ_j P_ij ∂C_ij/∂x_i = 2 scale (x_i Σ_j P_ij − (P y)_i).
    """
    middle = y.mean(0)
    x, y = (scale**0.5 * (points - middle) for points in (x, y))
    far = 2 * max(float(points.abs().max()) for points in (x, y))
    _finite(far * far * x.shape[1], eps)
    log_a, log_b = _logs(a), _logs(b)
    stream = Stream(squared_euclidean(x, y), log_a, log_b)
    enough = max(tol, _rounding(stream.spread, eps, None))
    u, v, error, _ = least_error(annealed(stream, stream.spread, eps, enough * float(b.sum()), MAX_DEPTH))
    _warn(u.new_tensor(error / float(b.sum())), enough)
    F, G = _balanced(u - eps * log_a, v - eps * (log_b + 1), a, b)
    in_x = _pull(x, stream.apply(u, v, eps, _beside_one(y)))
    in_y = _pull(y, stream.apply_transposed(u, v, eps, _beside_one(x)))
    if debias:
        f, self_x = _streamed_self(x, a, log_a, eps, tol)
        g, self_y = _streamed_self(y, b, log_b, eps, tol)
        F, G, in_x, in_y = F - f, G - g, in_x - self_x, in_y - self_y
    return F, G, scale**0.5 * in_x, scale**0.5 * in_y


def _streamed_self(x: Tensor, a: Tensor, log_a: Tensor, eps: float, tol: float) -> tuple[Tensor, Tensor]:
    """f of OT(α, α), and the gradient of ½ OT(α, α) in the points: two equal halves, one for each side."""
    stream = Stream(squared_euclidean(x, x), log_a, log_a)
    f = averaged(stream, a, stream.spread, eps, None, tol)
    u = f + eps * (log_a + 0.5)
    return f, _pull(x, stream.apply(u, u, eps, _beside_one(x)))


def _beside_one(points: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(points[:, :1]), points], 1)


def _pull(x: Tensor, sums: Tensor) -> Tensor:
    """2 (x_i Σ_j P_ij − (P y)_i), from P [1, y]."""
    return 2 * (x * sums[:, :1] - sums[:, 1:])


def _rounding(spread: float, eps: float, rho: float | None) -> float:
    """The least error that can be told from rounding: potentials of the size of costs, divided by ε."""
    contraction = 1.0 if rho is None else 1 - (1 / (1 + eps / rho)) ** 2
    return 16 * torch.finfo(torch.float64).eps * spread / (eps * contraction)


def _spread(C: Tensor, eps: float) -> float:
    """max C − min C of costs that are finite."""
    low, high = (float(end) for end in torch.aminmax(C))  # not a number if any cost is none
    _finite(max(abs(low), abs(high)), eps)
    return high - low


def _finite(largest: float, eps: float) -> None:
    if not math.isfinite(largest / eps):
        raise ValueError(f"costs must be finite, divided by ε too: got costs up to {largest:g}, ε = {eps:g}")


def _logs(weights: Tensor) -> Tensor:
    return weights.clamp_min(ABSENT_WEIGHT * float(weights.sum(-1).max())).log()


def _warn(error: Tensor, tol: float) -> None:
    if not bool((error < tol).all()):
        reached = f"error {float(error.max()):.3g} after {MAX_DEPTH} layers"
        callers.warn(f"not converged: {reached}, tol is {tol:g}; raise blur or tol")
