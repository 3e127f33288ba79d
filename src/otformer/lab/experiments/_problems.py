"""Problems, oracles and errors shared by the experiments."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from otformer.network.schedule import Layer
from otformer.transport.costs.distances import squared_distances
from otformer.transport.costs.matrix import Dense
from otformer.transport.reference import plan
from otformer.transport.solve import solve
from otformer.transport.solvers.network import run


def unit_cube(*shape: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Two sets of points, uniform in the unit cube, float64 of that shape [..., n, d]; and C_ij = ‖x_i − y_j‖²."""
    x, y = torch.rand(2, *shape, generator=generator, dtype=torch.float64)
    return x, y, squared_distances(x, y)


def pot_plan(C: Tensor, reg: float) -> Tensor:
    """P*_λ with unit marginals, by POT's log-domain Sinkhorn: the oracle that shares no code with the network."""
    import ot

    ones = torch.ones_like(C[0])
    return torch.as_tensor(ot.sinkhorn(ones, ones, C, reg, "sinkhorn_log", numItermax=20_000, stopThr=1e-11, warn=False))


def entropic_plan(C: Tensor, reg: float, tol: float) -> Tensor:
    """P*_λ with unit marginals, which hold to ``tol``. (Not by Sinkhorn: a tie between blocks can cost it e^{1/λ} steps.)"""
    ones = torch.ones_like(C[0])
    result = solve(C, ones, ones, reg=reg, tol=tol)
    if not result.converged:
        raise ArithmeticError(f"P*_λ has a marginal error of {result.error:.1e} at λ = {reg:g}")
    return result.plan


def iterates(C: Tensor, layers: Iterable[Layer]) -> Iterator[tuple[Tensor, Tensor]]:
    """(u, v) before the first layer and after each, unit marginals, on costs C [..., n, m], by the dense executor."""
    return run(Dense(C, torch.zeros_like(C[..., :, 0]), torch.zeros_like(C[..., 0, :])), layers)


def final(C: Tensor, layers: Iterable[Layer]) -> tuple[Tensor, Tensor]:
    """(u, v) after the last layer."""
    return deque(iterates(C, layers), maxlen=1)[0]


def mean_marginal_error(C: Tensor, u: Tensor, v: Tensor, reg: float) -> float:
    """Mean of |row sum − 1| and |column sum − 1| over the 2n marginals of the plan, in the doubly stochastic convention."""
    P = plan(C, u, v, reg)
    return float(torch.cat([P.sum(1) - 1, P.sum(0) - 1]).abs().mean())
