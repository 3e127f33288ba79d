"""Fixed points of blocks that are not Sinkhorn's own (damped, capped), by Anderson mixing that is kept in check."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from otformer.transport.solvers.anderson import Anderson
from otformer.transport.solvers.blocks import LAYERS

Step = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]  # z [..., k] → T(z) [..., k], mass still to move, error of z [...]


def fixed_point(step: Step, z: Tensor, weight: Tensor, reach: float) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Iterates z, the mass still to move and their errors, for ever: mixed; plain where mixing would lead further than
    ``reach`` away; back at the best plain step where the mass to move has doubled."""
    mixing = Anderson(weight)
    least, best = torch.full(z.shape[:-1], torch.inf, dtype=z.dtype, device=z.device), z
    while True:
        image, size, error = step(z)
        yield z, size, error
        lost, better = ~(size <= 2 * least), size < least
        best = torch.where(better[..., None], image, best)
        least = torch.where(lost, torch.inf, torch.where(better, size, least))
        mixed = mixing.step(z, image - z, lost)
        wild = ~((mixed - z).abs().amax(-1, keepdim=True) <= reach)
        z = torch.where(lost[..., None], best, torch.where(wild, image, mixed))


def approach(
    steps: Iterator[tuple[Tensor, Tensor, Tensor]], z: Tensor, depth: int, limit: int, enough: Tensor | float
) -> tuple[Tensor, int]:
    """A start for the next λ: the last iterate, when little mass is still to move, after 200 layers, or at the limit."""
    limit = min(depth + 200, limit)
    while depth + LAYERS <= limit:
        z, size, _ = next(steps)
        depth += LAYERS
        if bool((size < enough).all()):
            break
    return z, depth


def descend(
    steps: Iterator[tuple[Tensor, Tensor, Tensor]], z: Tensor, depth: int, limit: int, enough: float
) -> tuple[Tensor, Tensor, int]:
    """The iterate of least error (of each problem), down to ``enough`` or to ``limit`` layers."""
    least = torch.full(z.shape[:-1], torch.inf, dtype=z.dtype, device=z.device)
    while depth + LAYERS <= limit:
        now, _, error = next(steps)
        depth += LAYERS
        z = torch.where((error < least)[..., None], now, z)
        least = torch.where(error < least, error, least)
        if bool((least < enough).all()):
            break
    return z, least, depth
