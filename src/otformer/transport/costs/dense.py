r"""The dense kernel: a layer as two lines on the cost matrix.

Layer by layer the same numbers as the matrices of network/transformer.py: with S_i = Σ_j exp((u_i + v_j − C_ij)/λ − 1),
head ``rows`` does u_i ← u_i − γ tanh(½ log(S_i/a_i)), head ``columns`` the same for v with column sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from otformer.network.schedule import Layer
from otformer.transport.costs.kernel import Kernel


@dataclass(frozen=True, eq=False)
class Dense(Kernel):
    """A cost C [..., n, m] with the logs of positive weights a [..., n], b [..., m]. A leading batch axis is allowed."""

    C: Tensor
    log_a: Tensor
    log_b: Tensor
    spread: float = math.inf

    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """log(S/a) of the rows [..., n], or of the columns [..., m]: what a head reads, before tanh(½ ·)."""
        # The side's own dual is constant along the sum: it stays outside of the n × m array.
        if rows:
            H = (v[..., None, :] - self.C).mul_(1 / reg)
            return torch.logsumexp(H, dim=-1) + u / reg - 1 - self.log_a
        H = (u[..., :, None] - self.C).mul_(1 / reg)
        return torch.logsumexp(H, dim=-2) + v / reg - 1 - self.log_b

    def plan(self, u: Tensor, v: Tensor, reg: float) -> Tensor:
        """P_ij = exp((u_i + v_j − C_ij)/λ − 1), [..., n, m]."""
        return ((u[..., :, None] + v[..., None, :] - self.C) / reg - 1).exp()


def run(
    problem: Dense, layers: Iterable[Layer], start: tuple[Tensor, Tensor] | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """(u, v) before the first layer and after every layer of a network, from u = v = 0 unless told otherwise."""
    u, v = start or (torch.zeros_like(problem.log_a), torch.zeros_like(problem.log_b))
    yield u, v
    for layer in layers:
        new_u, new_v = u, v
        if layer.rows:
            new_u = u - layer.rows * torch.tanh(problem.log_ratio(u, v, layer.reg, rows=True) / 2)
        if layer.columns:
            new_v = v - layer.columns * torch.tanh(problem.log_ratio(u, v, layer.reg, rows=False) / 2)
        u, v = new_u, new_v
        yield u, v
