r"""Plain references: exact transport, log-domain Sinkhorn, the dual objective and its gradient descent.

They are oracles for tests and figures: short, dense, one problem at a time. Nothing in the solver uses them.
Conventions of the paper: P_ij = exp((u_i + v_j − C_ij)/λ − 1), and the dual is

    L(u, v) = λ Σ_ij P_ij − Σ_i a_i u_i − Σ_j b_j v_j,     ∂L/∂u_i = Σ_j P_ij − a_i.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from otformer import checks


def plan(C: Tensor, u: Tensor, v: Tensor, reg: float) -> Tensor:
    """P_ij = exp((u_i + v_j − C_ij)/λ − 1), [n, m]."""
    return ((u[:, None] + v[None, :] - C) / reg - 1).exp()


def dual(C: Tensor, u: Tensor, v: Tensor, reg: float, a: Tensor | None = None, b: Tensor | None = None) -> Tensor:
    """L(u, v); with a = b = 1 the paper's objective."""
    a, b = _ones(C, a, b)
    return reg * plan(C, u, v, reg).sum() - (a * u).sum() - (b * v).sum()


def gradient_descent(
    C: Tensor, reg: float, step: float, a: Tensor | None = None, b: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The paper's iteration u ← u − D ∇_u L, v ← v − D' ∇_v L with D_ii = γ/(S_i + a_i), from u = v = 0, for ever.

    >>> C = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    >>> iterates = gradient_descent(C, reg=0.5, step=0.5)
    >>> u, v = [next(iterates) for _ in range(200)][-1]
    >>> plan(C, u, v, 0.5).sum(1)
    tensor([1., 1.], dtype=torch.float64)
    """
    a, b = _ones(C, a, b)
    u, v = torch.zeros_like(a), torch.zeros_like(b)
    while True:
        yield u, v
        P = plan(C, u, v, reg)
        rows, columns = P.sum(1), P.sum(0)
        u, v = u - step * (rows - a) / (rows + a), v - step * (columns - b) / (columns + b)


def sinkhorn_half_steps(
    C: Tensor, reg: float, a: Tensor | None = None, b: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Sinkhorn in the log domain, a half-step at a time: rows exact, then columns exact, …, from u = v = 0, for ever."""
    a, b = _ones(C, a, b)
    u, v = torch.zeros_like(a), torch.zeros_like(b)
    while True:
        yield u, v
        u = u - reg * (torch.logsumexp((u[:, None] + v - C) / reg - 1, dim=1) - a.log())
        yield u, v
        v = v - reg * (torch.logsumexp((u[:, None] + v - C) / reg - 1, dim=0) - b.log())


def sinkhorn(
    C: Tensor, reg: float, a: Tensor | None = None, b: Tensor | None = None, tol: float = 1e-13, limit: int = 200_000
) -> tuple[Tensor, Tensor]:
    """The entropic potentials (u*, v*) by plain Sinkhorn, to an L1 marginal error of ``tol`` times the mass."""
    a_, _ = _ones(C, a, b)
    for k, (u, v) in enumerate(sinkhorn_half_steps(C, reg, a, b)):
        if k % 20 == 0 and float((plan(C, u, v, reg).sum(1) - a_).abs().sum()) < tol * float(a_.sum()) and k:
            return u, v
        if k >= limit:
            break
    raise ArithmeticError(f"Sinkhorn did not reach {tol:g} in {limit} half-steps (reg = {reg:g})")


def assignment(C: Tensor) -> Tensor:
    """The exact optimal permutation (scipy): row i goes to column assignment[i]."""
    from scipy.optimize import linear_sum_assignment

    return checks.local(linear_sum_assignment(C.detach().cpu().double().numpy())[1])


def _ones(C: Tensor, a: Tensor | None, b: Tensor | None) -> tuple[Tensor, Tensor]:
    """The paper's unit marginals unless weights are given."""
    return torch.ones_like(C[:, 0]) if a is None else a, torch.ones_like(C[0]) if b is None else b
