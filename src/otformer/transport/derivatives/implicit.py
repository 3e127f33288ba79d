r"""Derivatives of an entropic plan, without going back through the layers that found it.

At the solution P_ij = exp((u_i + v_j − C_ij)/λ − 1) has P1 = a and Pᵀ1 = b.

**Value**, Σ P C + λ Σ P log P. It is the maximum over (u, v) of Σ a u + Σ b v − λ Σ P, so by the envelope theorem its
derivatives are those with (u, v) held still:

    ∂/∂C = P,      ∂/∂a = u,      ∂/∂b = v,      ∂/∂λ = Σ P log P.

**Potentials**, and through them the plan. Differentiate the marginals; with H = [diag(P1) P; Pᵀ diag(Pᵀ1)],

    H (du, dv)/λ = (da, db) + (E1, Eᵀ1)/λ,      E = P ∘ (dC + (log P + 1) dλ).

which is the derivative in forward mode. H is symmetric: a loss with gradient g in (u, v) needs one solution of H w = g, and
its gradients are then

    λ w_i in a_i,      λ w_j in b_j,      P_ij (w_i + w_j) in C_ij,      Σ P_ij (w_i + w_j) (log P_ij + 1) in λ.

u + t, v − t is the same plan: H has that null direction, and gradients in a and b are defined up to a constant t, −t.
problem/read.py scales b to the mass of a; with the derivative of that scaling the sum no longer depends on t.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from otformer import callers
from otformer.transport.derivatives.envelope import forward_alone

Product = Callable[[Tensor], Tensor]
DIRECT_UP_TO = 128  # points on the smaller side: there elimination is faster than conjugate gradients
DIRECT_RIDGE = 1e-14  # share of the diagonal added to it: parts that exchange no mass must not make the matrix singular
CG_RESIDUAL, CG_STEPS = 1e-12, 2000  # relative residual at which conjugate gradients stop, and their most steps
CG_WORST = 1e-6  # relative residual that is no reason for a warning


def log_plan(C: Tensor, u: Tensor, v: Tensor, reg: Tensor) -> Tensor:
    """log P_ij = (u_i + v_j − C_ij)/λ − 1."""
    return (u[..., :, None] + v[..., None, :] - C) / reg - 1


class Potentials(Function):
    """(u, v), as found, with their derivatives in C, a, b and λ; for one problem or a stack of them, C [..., n, m]."""

    @staticmethod
    def forward(ctx: Any, C: Tensor, a: Tensor, b: Tensor, reg: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(C, reg, u, v)
        ctx.save_for_forward(C, a, b, reg, u, v)
        return u.clone(), v.clone()

    @staticmethod
    def jvp(ctx: Any, dC: Tensor, da: Tensor, db: Tensor, dreg: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        C, a, b, reg, u, v = ctx.saved_tensors
        forward_alone(C, a, b, reg)
        log_P = log_plan(C, u, v, reg)
        P = log_P.exp()
        E = P * (dC + (log_P + 1) * dreg)
        return solve_plan(P, reg * da + E.sum(-1), reg * db + E.sum(-2))

    @staticmethod
    def backward(ctx: Any, g_u: Tensor, g_v: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # torch's once_differentiable would leave this part out without a word (functional.hvp)
            raise RuntimeError(
                "value can be differentiated twice, by grad of grad (or functional.vhp), plans and their products only once"
            )
        C, reg, u, v = ctx.saved_tensors
        log_P = log_plan(C, u, v, reg)
        P = log_P.exp()
        w_u, w_v = solve_plan(P, g_u, g_v)
        in_C = P * (w_u[..., :, None] + w_v[..., None, :])
        return in_C, reg * w_u, reg * w_v, (in_C * (log_P + 1)).sum(), None, None


class Value(Function):
    """Σ P C + λ Σ P log P with the derivatives of the envelope theorem, themselves differentiable once."""

    @staticmethod
    def forward(
        ctx: Any, value: float, C: Tensor, a: Tensor, b: Tensor, reg: Tensor, u: Tensor, v: Tensor, low: float
    ) -> Tensor:
        """``value`` is known; u, v belong to C, which is ``low`` below the cost that it is the value of."""
        ctx.save_for_backward(C, a, b, reg, u, v)
        ctx.save_for_forward(C, a, b, reg, u, v)
        ctx.low = low
        return C.new_tensor(value)

    @staticmethod
    def jvp(ctx: Any, _: Any, dC: Tensor, da: Tensor, db: Tensor, dreg: Tensor, *__: Any) -> Tensor:
        C, a, b, reg, u, v = ctx.saved_tensors
        forward_alone(C, a, b, reg)
        log_P = log_plan(C, u, v, reg)
        P = log_P.exp()
        return (P * dC).sum() + (u + ctx.low) @ da + v @ db + (P * log_P).sum() * dreg

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        C, a, b, reg, u, v = ctx.saved_tensors
        u, v = Potentials.apply(C, a, b, reg, u, v)
        log_P = log_plan(C, u, v, reg)
        P = log_P.exp()
        return None, g * P, g * (u + ctx.low), g * v, g * (P * log_P).sum(), None, None, None


def solve_plan(P: Tensor, g_u: Tensor, g_v: Tensor) -> tuple[Tensor, Tensor]:
    """w with H w = g for plans [..., n, m]."""
    if min(P.shape[-2:]) <= DIRECT_UP_TO:
        return decompose_marginals(P, g_u, g_v)
    return solve_marginals(lambda w: _times(P, w), lambda w: _times(P.mT, w), g_u, g_v)


def decompose_marginals(P: Tensor, g_u: Tensor, g_v: Tensor) -> tuple[Tensor, Tensor]:
    """w with H w = g for plans [..., n, m] in float64, by elimination in S + c cᵀ/Σc, S = diag c − Pᵀ diag(1/r) P.

    S is what `solve_marginals` derives, the smaller side left in it. Its null vector is 1: the sum of the equations says
    Σ_j c_j w_j = 0. Points without mass have w = 0.
    """
    if P.shape[-2] < P.shape[-1]:
        w_v, w_u = decompose_marginals(P.mT, g_v, g_u)
        return w_u, w_v
    tiny = torch.finfo(P.dtype).tiny
    r, c = P.sum(-1).clamp_min(tiny), P.sum(-2)
    S = c[..., :, None] * (c / c.sum(-1, keepdim=True).clamp_min(tiny))[..., None, :] - _gram(P / r.sqrt()[..., None])
    S.diagonal(dim1=-2, dim2=-1).add_(torch.where(c > 0, (1 + DIRECT_RIDGE) * c, 1.0))
    w_v, _ = torch.linalg.solve_ex(S, (g_v - _times(P.mT, g_u / r))[..., None])
    return (g_u - _times(P, w_v[..., 0])) / r, w_v[..., 0]


def solve_marginals(
    right: Product, left: Product, g_u: Tensor, g_v: Tensor, enough: float = CG_RESIDUAL
) -> tuple[Tensor, Tensor]:
    """w with H w = g, by conjugate gradients; the plan comes as its products right(w) = P w, left(w) = Pᵀ w, two per step.

    ``enough``: the relative residual at which they stop; products in float32 cannot tell less than 1e-6.

    Take w_u = (g_u − P w_v)/r out, r = P1; what is left is (diag c − Pᵀ diag(1/r) P) w_v = g_v − Pᵀ(g_u/r), c = Pᵀ1. In
    z = √c w_v its matrix is I − KᵀK, with K the plan scaled to the largest singular value 1, at the null vector √c, which
    is kept out. The next one, σ, is the σ of the layers' rate: a gradient takes about as many steps as an accelerated solve.
    """
    eps, tiny = torch.finfo(g_u.dtype).eps, torch.finfo(g_u.dtype).tiny
    r, c = right(torch.ones_like(g_v)).clamp_min(tiny), left(torch.ones_like(g_u)).clamp_min(tiny)
    scale, null = c.rsqrt(), c.sqrt() / c.sum(-1, keepdim=True).sqrt()
    # What rounding leaves where two large terms cancel is not to be solved for.
    rounding = eps * (_norm(scale * g_v) + _norm(scale * left((g_u / r).abs())))
    z = conjugate_gradients(
        lambda z: scale * left(right(scale * z) / r), scale * (g_v - left(g_u / r)), null, enough, rounding
    )
    w_v = scale * z
    return (g_u - right(w_v)) / r, w_v


def conjugate_gradients(
    product: Product, y: Tensor, null: Tensor | None, enough: float, rounding: Tensor | float = 0.0,
    worst: float = CG_WORST, instead: str = "raise reg",
) -> Tensor:  # fmt: skip
    """z [..., m] with z − product(z) = y, the product that of a positive matrix up to 1; ``null`` [..., m] is kept out.

    Stops at a residual of ``enough`` times that of 0, or of ``rounding``, and warns of one above ``worst``.
    Axes in front hold separate problems; one that is done stands still.
    """

    def project(z: Tensor) -> Tensor:
        return z if null is None else z - null * _dot(null, z)

    eps = torch.finfo(y.dtype).eps
    residual = direction = project(y)
    z, size = torch.zeros_like(residual), _dot(residual, residual)
    start, target = size, (enough * size.sqrt()).clamp_min(rounding).square()
    going = size > target
    for _ in range(CG_STEPS):
        image = project(direction - product(direction))
        bend = _dot(direction, image)
        going = going & (bend > eps * _dot(direction, direction))  # unless it moves mass between parts that exchange none
        if not bool(going.any()):
            break
        step = torch.where(going, size / bend, 0.0)
        z, residual = z + step * direction, residual - step * image
        size, before = _dot(residual, residual), size
        direction = residual + torch.where(going, size / before, 0.0) * direction
        going = going & (size > target)
    lost = ~(size <= torch.maximum(target, worst**2 * start)) & start.isfinite()  # an infinite y is the caller's
    if bool(lost.any()):
        left = float((size / start)[lost].max()) ** 0.5
        callers.warn(f"gradient not accurate: conjugate gradients left {left:.2g} of the residual; {instead}")
    return z


def _times(matrix: Tensor, x: Tensor) -> Tensor:
    return (matrix @ x[..., None])[..., 0]


@np.errstate(under="ignore")
def _gram(K: Tensor) -> Tensor:
    """KᵀK [..., m, m]; numpy knows that it is symmetric and computes one half."""
    return K.mT @ K if K.is_cuda else torch.from_numpy(K.mT.numpy() @ K.numpy())


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1, keepdim=True)


def _norm(x: Tensor) -> Tensor:
    return x.norm(dim=-1, keepdim=True)
