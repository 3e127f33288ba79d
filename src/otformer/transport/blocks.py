r"""Sinkhorn blocks at one λ, Anderson-mixed: the engine of `solve` and `sort`.

A row block (attention + feed-forward, network/sinkhorn_block.py) sets u_i ← u_i − λ log(S_i/a_i): the rows of the plan
are then exact, so the column block that follows sees the *true* marginal error of that plan, |Σ_i P_ij − b_j|, at no
extra cost. Its residual f = −λ log(S_j/b_j) is mixed (transport/anderson.py); if the error doubles, the mixing forgets
and goes on from the best plain step.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from otformer.transport.anderson import Anderson

LAYERS = 2  # layers, passes over the cost, in one step


class Executor(Protocol):
    """Anything that can run a head: it holds a cost and the logs of the weights, [..., n] and [..., m]."""

    log_a: Tensor
    log_b: Tensor

    def excess(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """log(S/a) of the rows [..., n] or log(S/b) of the columns [..., m], S the sums of exp((u + v − C)/λ − 1)."""
        ...


class Blocks:
    """Steps from v [..., m] at one λ, for ever: (u, v, error) with exact rows and error_j = |Σ_i P_ij − b_j|.

    ``spread`` is the range of the costs, or a bound on it; ``memory`` that of the mixing.
    """

    def __init__(self, executor: Executor, reg: float, v: Tensor, spread: float, memory: int = 32) -> None:
        self.executor, self.reg, self.v = executor, reg, v
        self.reach = spread + 100 * reg  # potentials of a plan differ by no more than costs do, and a little entropy
        self.b = executor.log_b.exp()
        self.mixing = Anderson(self.b, memory)
        self.least = torch.full(v.shape[:-1], torch.inf, dtype=v.dtype, device=v.device)
        self.best = v
        self._nothing = torch.zeros_like(executor.log_a)

    def __iter__(self) -> Blocks:
        return self

    def __next__(self) -> tuple[Tensor, Tensor, Tensor]:
        v = self.v
        u = -self.reg * self.executor.excess(self._nothing, v, self.reg, rows=True)
        excess = self.executor.excess(u, v, self.reg, rows=False)
        error = self.b * torch.expm1(excess).abs()
        self._advance(v, -self.reg * excess, error.sum(-1))
        return u, v, error

    def _advance(self, v: Tensor, f: Tensor, size: Tensor) -> None:
        """The next v: mixed, or back to the best plain step where the error has doubled."""
        lost = ~(size <= 2 * self.least)  # also where it is not a number
        better = size < self.least
        plain = v + f
        self.best = torch.where(better[..., None], plain, self.best)
        self.least = torch.where(lost, torch.inf, torch.where(better, size, self.least))
        f = f - ((f * self.b).sum(-1) / self.b.sum(-1))[..., None]
        mixed = self.mixing.step(v, f, lost)
        wild = (mixed - v).abs().amax(-1) > self.reach  # followed rounding, not the map
        self.v = torch.where(lost[..., None], self.best, torch.where(wild[..., None], plain, mixed))
