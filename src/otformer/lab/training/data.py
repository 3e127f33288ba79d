r"""Problems to learn from, with their exact answers; every number is a function of a `torch.Generator`.

The target of a problem is the permutation that transport gives: row i (the point y_i) → column j (its x_j). On the line
that is the order of x against the order of y; in the plane and above, scipy's assignment solver.

====================== ========================= ==========================================================
kind                   x                         y
====================== ========================= ==========================================================
``permutations``       a permutation of y        i/n (the paper's)
``values``             uniform on [0, 1]         i/n: real-valued lists, which a nearest match does not sort
``subsets``            a permutation of y        n distinct points of the grid 1/m, …, 1; m ≤ ``SPREAD`` · n
``value-windows``      uniform on the window     n neighbours of that grid: a ``values`` problem, shrunk and moved
``draws``              n distinct of {0, …,      j/n, j = 0, …, n − 1: the data of the author's notebook
                       49}/50
``clouds``             Gaussian in d dimensions  Gaussian in d dimensions
====================== ========================= ==========================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from otformer import checks
from otformer.learning.trained import SPREAD

# Purposes of random numbers, see `generator`: first weights; the fixed training set; the problems of a chunk; test problems.
START, SET, DRAW, TEST = 1, 2, 3, 4
DRAWN_FROM = 50  # numbers from which ``draws`` takes n
NO_MEMORY = torch.empty(0)


class Batch(NamedTuple):
    """Problems, padded behind: x, y [..., n, d]; present [..., n]; target [..., n], the column of every row; memory
    [..., n, 2], what u and v start from, or [..., n, 0]."""

    x: Tensor
    y: Tensor
    present: Tensor
    target: Tensor
    memory: Tensor = NO_MEMORY

    def plan(self) -> Tensor:
        """P*, [..., n, n]: a permutation matrix on the points that are there, 0 elsewhere."""
        columns = torch.arange(self.target.shape[-1], device=self.target.device)
        return ((self.target[..., None] == columns) & self.present[..., None]).to(self.x)

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The same change to all tensors."""
        return Batch(*(change(t) for t in self))


@dataclass(frozen=True)
class Problems:
    """A distribution of problems: the kind and the size of each are drawn uniformly from those listed."""

    kinds: tuple[str, ...] = ("permutations",)
    sizes: tuple[int, ...] = (7,)
    dim: int = 1

    def __post_init__(self) -> None:
        if not self.kinds or not self.sizes:
            raise ValueError("kinds and sizes must not be empty")
        for kind in self.kinds:
            checks.choice("kind", kind, KINDS)
        for n in self.sizes:
            checks.count("n", n, least=2, most=DRAWN_FROM if "draws" in self.kinds else None)  # one point has one answer
        if checks.count("dim", self.dim) > 1 and self.kinds != ("clouds",):
            raise ValueError(f"dim must be 1 for {', '.join(self.kinds)}, got {self.dim}")

    def draw(self, count: int, generator: Generator, memory: bool = False) -> Batch:
        """``count`` problems; with ``memory``, u standard normal and v uniform on [0, 1] are drawn for every point.

        >>> batch = Problems(sizes=(3,)).draw(1, torch.Generator().manual_seed(0))
        >>> batch.x[0, batch.target[0], 0].tolist() == batch.y[0, :, 0].tolist()
        True
        """
        longest = max(self.sizes)
        size = torch.tensor(self.sizes)[torch.randint(len(self.sizes), (count,), generator=generator)]
        kind = torch.randint(len(self.kinds), (count,), generator=generator)
        present = torch.arange(longest) < size[:, None]
        drawn = [KINDS[each](size, present, self.dim, generator) for each in self.kinds]
        x, y = (torch.stack(side)[kind, torch.arange(count)] * present[..., None] for side in zip(*drawn, strict=True))
        held = [draw(present.shape, generator=generator) for draw in (torch.randn, torch.rand) if memory]
        started = torch.stack(held, -1) * present[..., None] if memory else x.new_empty(*present.shape, 0)
        return Batch(x, y, present, match(x, y, present), started)


Drawn = tuple[Tensor, Tensor]


def _shuffled(y: Tensor, present: Tensor, generator: Generator) -> Tensor:
    """The points that are there, in random order; the absent ones stay behind."""
    order = torch.rand(present.shape, generator=generator).masked_fill(~present, 2).argsort(-1)
    return y.gather(1, order[..., None])


def _grid(size: Tensor, present: Tensor) -> Tensor:
    return ((torch.arange(present.shape[1]) + 1) / size[:, None])[..., None]


def _permutations(size: Tensor, present: Tensor, dim: int, generator: Generator) -> Drawn:
    y = _grid(size, present)
    return _shuffled(y, present, generator), y


def _values(size: Tensor, present: Tensor, dim: int, generator: Generator) -> Drawn:
    return torch.rand(*present.shape, 1, generator=generator), _grid(size, present)


def _subsets(size: Tensor, present: Tensor, dim: int, generator: Generator) -> Drawn:
    spread = 1 + (SPREAD - 1) * torch.rand(size.shape, generator=generator)
    m = (spread * size).round()[:, None]  # points in the grid, at least n
    cells = torch.arange(SPREAD * present.shape[1])
    score = torch.rand(len(size), len(cells), generator=generator).masked_fill(cells >= m, 2)
    chosen = score.argsort(-1)[:, : present.shape[1]].masked_fill(~present, len(cells)).sort(-1).values
    y = ((chosen + 1) / m)[..., None]
    return _shuffled(y, present, generator), y


def _value_windows(size: Tensor, present: Tensor, dim: int, generator: Generator) -> Drawn:
    """A ``values`` problem shrunk to the spacing 1/m and moved by a multiple of it, inside [0, 1]."""
    points = _values(size, present, dim, generator)
    m = ((1 + (SPREAD - 1) * torch.rand(size.shape, generator=generator)) * size).round()
    first = (torch.rand(size.shape, generator=generator) * (m - size + 1)).floor()
    x, y = ((t * size[:, None, None] + first[:, None, None]) / m[:, None, None] for t in points)
    return x, y


def _draws(size: Tensor, present: Tensor, dim: int, generator: Generator) -> Drawn:
    order = torch.rand(len(size), DRAWN_FROM, generator=generator).argsort(-1)
    x = order[:, : present.shape[1], None] / DRAWN_FROM
    return x, _grid(size, present) - 1 / size[:, None, None]


def _clouds(size: Tensor, present: Tensor, dim: int, generator: Generator) -> Drawn:
    shape = (*present.shape, dim)
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


KINDS: dict[str, Callable[[Tensor, Tensor, int, Generator], Drawn]] = {
    "permutations": _permutations,
    "values": _values,
    "subsets": _subsets,
    "value-windows": _value_windows,
    "draws": _draws,
    "clouds": _clouds,
}


def match(x: Tensor, y: Tensor, present: Tensor) -> Tensor:
    """The optimal assignment for the squared distance, [B, n]: the column (x) of every row (y); absent rows keep their own.

    On the line: the k-th smallest y takes the k-th smallest x.
    """
    if x.shape[-1] == 1:
        by_x, by_y = (t[..., 0].masked_fill(~present, torch.inf).argsort(dim=-1, stable=True) for t in (x, y))
        return torch.empty_like(by_x).scatter_(-1, by_y, by_x)
    from scipy.optimize import linear_sum_assignment

    target = torch.arange(x.shape[1]).repeat(len(x), 1)
    costs, sizes = torch.cdist(y.double(), x.double()).square().numpy(), present.sum(-1).tolist()
    for k, n in enumerate(sizes):
        target[k, :n] = torch.from_numpy(linear_sum_assignment(costs[k, :n, :n])[1])
    return target


def generator(*key: int) -> Generator:
    """A generator for a key of whole numbers (seed, purpose, step, …): distinct keys, independent streams."""
    return Generator().manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1))
