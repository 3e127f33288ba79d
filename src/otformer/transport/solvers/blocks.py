r"""Sinkhorn blocks at one λ, with safeguarded Anderson mixing.

A row block (attention + feed-forward, network/sinkhorn_block.py) sets u_i ← u_i − λ log(S_i/a_i): the rows of the plan
are then exact, so the column block that follows sees the *true* marginal error of that plan, |Σ_i P_ij − b_j|, at no
extra cost. Its residual f = −λ log(S_j/b_j) is mixed (transport/solvers/anderson.py); if the error doubles, the mixing
forgets and goes on from the best plain step.

[1] M. Cuturi: Sinkhorn distances. NeurIPS 2013.
[2] A. Thibault, L. Chizat, C. Dossal, N. Papadakis: Overrelaxed Sinkhorn–Knopp algorithm. Algorithms 14(5), 2021.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from otformer.transport.solvers.anderson import Anderson

LAYERS = 2  # layers, passes over the cost, in one step


class Executor(Protocol):
    """Anything that can run a head: it holds a cost and the logs of the weights, [..., n] and [..., m]."""

    log_a: Tensor
    log_b: Tensor

    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """log(S/a) of the rows [..., n] or log(S/b) of the columns [..., m], S the sums of exp((u + v − C)/λ − 1)."""
        ...


def steps(
    executor: Executor, reg: float, v: Tensor, spread: float, memory: int, ridge: float
) -> Iterator[tuple[Tensor, Tensor, float]]:
    """(u, v, marginal error) from v, for ever: `Blocks`, or what an executor has of its own in their place."""
    own = getattr(executor, "steps", None)
    if own is not None:
        return own(reg, v, memory, ridge)
    return ((u, here, float(errors.sum())) for u, here, errors in Blocks(executor, reg, v, spread, memory, ridge))


def mass_of(executor: Executor) -> float:
    """Σ b, which an executor may know: on a GPU to ask is to wait."""
    known = getattr(executor, "mass", None)
    return float(executor.log_b.exp().sum()) if known is None else known


def nothing(log_weights: Tensor) -> Tensor:
    """Potentials 0, and −∞ where there is no mass."""
    return torch.where(log_weights > -math.inf, 0.0, log_weights)


class Blocks:
    """Steps from v [m] at one λ, for ever: (u, v, error) with exact rows and error_j = |Σ_i P_ij − b_j|.

    ``spread`` is the range of the costs, or a bound on it; ``memory`` (0: no mixing) and ``ridge`` are those of `Anderson`.
    """

    def __init__(
        self, executor: Executor, reg: float, v: Tensor, spread: float, memory: int = 32, ridge: float = 1e-12
    ) -> None:
        self.executor, self.reg, self.v = executor, reg, v
        self.reach = spread + 100 * reg  # potentials of a plan differ by no more than costs do, and a little entropy
        self.b = executor.log_b.exp()
        self.share = self.b / self.b.sum()
        self.mixing = Anderson(self.b, memory, ridge) if memory else None
        self.least, self.best = math.inf, (v, torch.zeros_like(v))  # an error, and where it was seen: v and its residual
        self._seen: tuple[Tensor, Tensor, Tensor] | None = None
        self._nothing = torch.zeros_like(executor.log_a)

    def __iter__(self) -> Blocks:
        return self

    def __next__(self) -> tuple[Tensor, Tensor, Tensor]:
        if self._seen is not None:  # not before: after the last step no other is needed
            self.v = self._next(*self._seen)
        v = self.v
        u = -self.reg * self.executor.log_ratio(self._nothing, v, self.reg, rows=True)
        log_ratio = self.executor.log_ratio(u, v, self.reg, rows=False)
        error = self.b * torch.expm1(log_ratio).abs()
        self._seen = v, -self.reg * log_ratio, error
        return u, v, error

    def _next(self, v: Tensor, f: Tensor, error: Tensor) -> Tensor:
        """The v after this one: mixed, or the best plain step where the error has doubled."""
        if self.mixing is None:
            return v + f
        size = float(error.sum())
        lost = not size <= 2 * self.least  # also where it is not a number
        if size < self.least:
            self.least, self.best = size, (v, f)
        centred = f - (f * self.share).sum()
        mixed = self.mixing.step(v, centred, torch.tensor(True, device=v.device) if lost else None)
        if lost:
            self.least = math.inf
            return self.best[0] + self.best[1]
        wild = not float(torch.linalg.vector_norm(mixed - v, torch.inf)) <= self.reach  # followed rounding, not the map
        return v + f if wild else mixed
