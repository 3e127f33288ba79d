r"""Sinkhorn blocks at one λ, with safeguarded Anderson mixing.

A row block (attention + feed-forward, network/sinkhorn_block.py) sets u_i ← u_i − λ log(S_i/a_i): the rows of the plan
are then exact, so the column block that follows sees the *true* marginal error of that plan, |Σ_i P_ij − b_j|, at no
extra cost. Its residual f = −λ log(S_j/b_j) is mixed (transport/solvers/anderson.py), less the constant that is free.

[1] M. Cuturi: Sinkhorn distances. NeurIPS 2013.
[2] A. Thibault, L. Chizat, C. Dossal, N. Papadakis: Overrelaxed Sinkhorn–Knopp algorithm. Algorithms 14(5), 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from otformer.network.alternating import iterate
from otformer.transport.costs.kernel import Kernel, Steps, reach
from otformer.transport.solvers.anderson import Safeguarded

LAYERS = 2  # layers, passes over the cost, in one step


def steps(kernel: Kernel, reg: float, v: Tensor, memory: int, ridge: float) -> Steps:
    """(u, v, marginal error) from v, for ever: `Blocks`, or what a kernel has of its own in their place."""
    own = kernel.steps(reg, v, memory, ridge)
    if own is not None:
        return own
    return ((u, here, float(errors.sum())) for u, here, errors in Blocks(kernel, reg, v, memory, ridge))


class Blocks:
    """Steps from v [..., m] at one λ, for ever: (u, v, error) with exact rows and error_j = |Σ_i P_ij − b_j|.

    ``memory`` (0: no mixing) and ``ridge`` are those of `Anderson`.
    """

    def __init__(self, kernel: Kernel, reg: float, v: Tensor, memory: int = 32, ridge: float = 1e-12) -> None:
        self.kernel, self.reg, self.v = kernel, reg, v
        self.b, self._nothing = kernel.log_b.exp(), torch.zeros_like(kernel.log_a)
        self.share = self.b / self.b.sum(-1, keepdim=True)
        self.follow = Safeguarded(self.b, reach(kernel.spread, reg), memory, ridge) if memory else None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        return ((u, v, error) for v, (_, _, error, u) in iterate(self.step, self.v, self.follow))

    def step(self, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        u = -self.reg * self.kernel.log_ratio(self._nothing, v, self.reg, rows=True)
        log_ratio = self.kernel.log_ratio(u, v, self.reg, rows=False)
        error = self.b * torch.expm1(log_ratio).abs()
        centred = log_ratio - (log_ratio * self.share).sum(-1, keepdim=True)
        return v - self.reg * centred, error.sum(-1), error, u
