"""Fixed points of blocks that are not Sinkhorn's own (damped, capped), by safeguarded Anderson mixing, at falling λ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from otformer.transport.solvers.anderson import Anderson
from otformer.transport.solvers.annealing import STAGE_ERROR, STAGE_LAYERS, temperatures
from otformer.transport.solvers.blocks import LAYERS

# z [..., k] → T(z) [..., k], mass still to move [...], error of z [...], the other side's potential [..., l]
Step = Callable[[Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]


class Least:
    """The best iterate so far of every problem of a batch: ``state``, tensors [..., k], at the least ``error`` [...]."""

    def __init__(self, *state: Tensor) -> None:
        self.state = state
        self.error = torch.full(state[0].shape[:-1], torch.inf, dtype=state[0].dtype, device=state[0].device)

    def see(self, error: Tensor, *state: Tensor) -> None:
        better = error < self.error
        self.error = torch.where(better, error, self.error)
        self.state = tuple(torch.where(better[..., None], new, old) for new, old in zip(state, self.state, strict=True))


def fixed_point(step: Step, z: Tensor, weight: Tensor, reach: float) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yields (z, mass still to move, error, other side) without end.

    Steps are Anderson-mixed; a step longer than ``reach`` is replaced by a plain one; when the mass to move doubles, the
    mixing forgets and restarts from the best plain step.
    """
    mixing, best = Anderson(weight), Least(z)
    while True:
        image, size, error, other = step(z)
        yield z, size, error, other
        lost = ~(size <= 2 * best.error)
        best.see(size, image)
        best.error = torch.where(lost, torch.inf, best.error)
        mixed = mixing.step(z, image - z, lost)
        wild = ~((mixed - z).abs().amax(-1, keepdim=True) <= reach)
        z = torch.where(lost[..., None], best.state[0], torch.where(wild, image, mixed))


def descend(
    blocks: Callable[[float], Step], z: Tensor, weight: Tensor, mass: Tensor, spread: float, reg: float, tol: float,
    max_depth: int, near: bool = False, patience: float = math.inf,
) -> tuple[Tensor, Tensor, Tensor, int]:  # fmt: skip
    """The fixed point of ``blocks(reg)`` to an error of ``tol``, reached through those of larger λ, unless z is ``near`` it.

    Given up where no error was below nine tenths of the least before it for ``patience`` layers.
    Returns the iterate z of least error (of each problem), the other side's potential, that error, and the layers run.
    """
    depth, last, least = 0, 0, math.inf
    for lam in [reg] if near else temperatures(spread, reg):
        final = lam == reg
        limit, enough = (max_depth, tol) if final else (min(depth + STAGE_LAYERS, max_depth // 2), STAGE_ERROR * mass)
        best, steps = None, fixed_point(blocks(lam), z, weight, spread + 100 * lam)
        while depth + LAYERS <= limit:
            z, size, error, other = next(steps)
            depth += LAYERS
            best = best or Least(z, other)
            best.see(error, z, other)
            if bool(((best.error if final else size) < enough).all()):
                break
            if final and patience < math.inf:
                if (worst := float(best.error.max())) < 0.9 * least:
                    least, last = worst, depth
                elif depth - last >= patience:
                    break
    assert best is not None
    return *best.state, best.error, depth  # type: ignore[return-value]
