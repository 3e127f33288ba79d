"""One coupling of the batches of all ranks of a process group: the first rank solves, every rank gets its own pairs."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from otformer.nn.coupling_points import Batch, Labels, check_carried, read_points, taken
from otformer.transport.costs.ranks import Ranks
from otformer.transport.sharded import agreed


def couple_ranks(
    ranks: Ranks, pairs: Callable[..., tuple[Tensor, Tensor]], x0: Tensor, x1: Tensor, y0: Labels, y1: Labels
) -> Batch:
    """(x0, x1, y0, y1) of this rank, by the ``pairs`` of the points and labels of all ranks; every rank calls this."""
    given = x0, x1, y0, y1
    agreed(ranks, lambda: _kinds(*given), str)
    counts = torch.zeros(ranks.size, 2, dtype=torch.int64, device=x0.device)
    counts[ranks.rank] = torch.tensor([len(x0), len(x1)], device=x0.device)
    ranks.reduce(counts)
    x0, x1, y0, y1 = (None if t is None else _gathered(ranks, t, counts[:, k % 2]) for k, t in enumerate(given))  # type: ignore[assignment]
    side = int(len(x0) <= len(x1))
    partner = torch.full((max(len(x0), len(x1)),), -1, device=x0.device)

    def couple() -> None:
        if ranks.rank == 0:
            pair = pairs(x0, x1, y0, y1)
            partner[pair[side]] = pair[1 - side]

    agreed(ranks, couple, str)
    ranks.reduce(partner if ranks.rank == 0 else partner.zero_())
    first, last = int(counts[: ranks.rank, side].sum()), int(counts[: ranks.rank + 1, side].sum())
    mine = torch.arange(first, last, device=x0.device)
    mine = mine[partner[mine] >= 0]
    i, j = (partner[mine], mine) if side else (mine, partner[mine])
    return taken(x0, x1, y0, y1, i, j)


def _kinds(*given: Tensor | None) -> str:
    """What must be the same on every rank of checked points and labels."""
    read_points(*given[:2])
    check_carried(*given)
    return ", ".join("None" if t is None else f"{t.dtype} (…, {tuple(t.shape[1:])}) on {t.device.type}" for t in given)


def _gathered(ranks: Ranks, t: Tensor, counts: Tensor) -> Tensor:
    """The rows of all ranks, as bytes, which every backend adds exactly to zeros."""
    own = t.detach().reshape(len(t), math.prod(t.shape[1:])).contiguous().view(torch.uint8)
    whole = own.new_zeros(int(counts.sum()), own.shape[1])
    first = int(counts[: ranks.rank].sum())
    whole[first : first + len(own)] = own
    return ranks.reduce(whole).view(t.dtype).reshape(-1, *t.shape[1:])
