r"""Clouds of points, as a stream reads them: about the origin, along a curve, in tiles of neighbours, thinned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.network.features import Features

TILE = 128  # points in a tile of the torch path
MASKS = 0x1F00000000FFFF, 0x1F0000FF0000FF, 0x100F00F00F00F00F, 0x10C30C30C30C30C3, 0x1249249249249249  # of `morton`


class Rule(NamedTuple):
    """Which cost a stream has between two points, and which pairs may match.

    c_ij = ‖x_i − y_j‖², or ‖x_i − y_j‖ with ``root``. Given ``labels``, whole numbers [n] and [m], a pair is allowed only
    if its labels are equal (``same``), or only if they differ (not ``same``).
    """

    root: bool = False
    labels: tuple[Tensor, Tensor] | None = None
    same: bool = True

    def cost(self, squares: Tensor) -> Tensor:
        """Turn squared distances into costs."""
        return squares.sqrt() if self.root else squares

    def may_match(self, own: Tensor, other: Tensor) -> Tensor:
        """Which pairs of labels [n] and [m] are allowed, [n, m]."""
        equal = own[:, None] == other
        return equal if self.same else ~equal


PLAIN = Rule()


@dataclass(frozen=True)
class Cloud:
    """One side's points in Morton order, those of one label together if asked for, with the boxes around its tiles."""

    points: Tensor  # [n, d]
    order: Tensor  # [n], where each point stood in the list given
    shift: Tensor  # [n], p or q: the part of the cost that is this side's own
    low: Tensor  # [tiles, d], corners of the boxes
    high: Tensor
    labels: Tensor | None = None  # [n], in this order

    @classmethod
    def build(cls, points: Tensor, shift: Tensor, labels: Tensor | None = None, together: bool = False) -> Cloud:
        order = morton(points)
        if labels is not None:
            order = order[labels[order].argsort(stable=True)] if together else order
            labels = labels[order]
        points = points[order].contiguous()
        tiles = _tiles(points)
        return cls(points, order, shift[order], tiles.amin(1), tiles.amax(1), labels)

    def sort(self, potential: Tensor) -> Tensor:
        """h = potential − shift, in this order, [n]."""
        return potential[self.order] - self.shift

    def tops(self, h: Tensor) -> Tensor:
        """The greatest h of every tile, [tiles]."""
        return torch.nn.functional.pad(h, (0, -len(h) % TILE), value=-torch.inf).view(-1, TILE).amax(1)

    @cached_property
    def label_ranges(self) -> Tensor:
        """The least and the greatest label of every tile, [2, tiles]."""
        assert self.labels is not None
        return torch.stack(_tiles(self.labels).aminmax(dim=1))

    @cached_property
    def box(self) -> Tensor:
        """Opposite corners of the box around all points, [2, d]."""
        return torch.stack([self.low.amin(0), self.high.amax(0)])


def _tiles(numbers: Tensor) -> Tensor:
    """Numbers [n, ...] cut into tiles, the last filled up with copies: [tiles, TILE, ...]."""
    fill = numbers[-1:].expand(-len(numbers) % TILE, *numbers.shape[1:])
    return torch.cat([numbers, fill]).view(-1, TILE, *numbers.shape[1:])


def morton(points: Tensor) -> Tensor:
    """Indices that put points [n, d] in the order of a Z-shaped curve through their three widest coordinates, 20 bits each.

    >>> morton(torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.1, 0.0], [0.9, 1.0]])).tolist()
    [0, 2, 3, 1]
    """
    low, high = points.amin(0), points.amax(0)
    axes = (high - low).topk(min(3, points.shape[1])).indices
    size = (high - low)[axes].clamp_min(torch.finfo(points.dtype).tiny)
    cell = ((points[:, axes] - low[axes]).double() / size * (2**20 - 1)).long()  # [n, ≤ 3]
    for shift, mask in zip((32, 16, 8, 4, 2), MASKS, strict=True):  # two zeros come before every bit: halves move apart, …
        cell = (cell | cell << shift) & mask
    return (cell << torch.arange(len(axes), device=cell.device)).sum(1).argsort(stable=True)


def thin(cloud: Cloud, log_weights: Tensor, stride: int) -> tuple[Tensor, Tensor, Tensor]:
    """Means of every ``stride`` neighbours: points, x_sq and log of the mass. C is linear in (x, x_sq): its mean too."""
    numbers = torch.cat([cloud.points, ((cloud.points * cloud.points).sum(1) + cloud.shift)[:, None]], 1)
    if stride == 1:  # in the order given
        numbers = numbers[cloud.order.argsort()]
        return numbers[:, :-1], numbers[:, -1], log_weights
    pad, fill = torch.nn.functional.pad, -len(numbers) % stride
    logs = pad(log_weights[cloud.order], (0, fill), value=-torch.inf).view(-1, stride)
    groups = pad(numbers, (0, 0, 0, fill)).view(-1, stride, numbers.shape[1])
    means = (logs.softmax(1)[..., None] * groups).sum(1)
    return means[:, :-1], means[:, -1], logs.logsumexp(1)


def box_spread(x: Tensor, y: Tensor, rule: Rule = PLAIN) -> float:
    """A bound on c between two sets of points, [·, d]: from the boxes around them, or in many dimensions the balls."""
    far = torch.maximum(x.amax(0) - y.amin(0), y.amax(0) - x.amin(0))
    reach = float((far * far).sum())
    if x.shape[1] > 8:
        reach = min(reach, sum(float(torch.linalg.vector_norm(points, dim=1).max()) for points in (x, y)) ** 2)
    return reach**0.5 if rule.root else reach


def own_costs(features: Features) -> tuple[Tensor, Tensor]:
    """p [n] and q [m]; the norms as `squared_euclidean` takes them, so that they vanish exactly for its features."""
    return features.x_sq - (features.x * features.x).sum(-1), features.y_sq - (features.y * features.y).sum(-1)


def ends(x: Tensor, y: Tensor) -> np.ndarray:
    """The least and the greatest coordinates of x and of y, [4, d], in float64: one wait for a GPU."""
    return torch.stack([*torch.aminmax(x.detach(), dim=0), *torch.aminmax(y.detach(), dim=0)]).double().cpu().numpy()


def middles(known: np.ndarray, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """Where the two clouds of these `ends` lie, [d] each; plain distances change unless both move alike: one place."""
    if rule.root:
        both = _middle(np.stack([known[::2].min(0), known[1::2].max(0)]))
        return both, both
    return _middle(known[:2]), _middle(known[2:])


def moved(x: Tensor, y: Tensor, p: Tensor, q: Tensor, c: np.ndarray, e: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Clouds less their middles c and e, and what this adds to the squared distances' p and q.

    With x = x' + c, y = y' + e and δ = c − e:  ‖x − y‖² = ‖x' − y'‖² + 2 δ·x' + ‖δ‖² − 2 δ·y', cross terms of one side each.

    >>> x, y = torch.tensor([[7.0], [9.0]]), torch.tensor([[1.0]])
    >>> x, y, p, q = moved(x, y, torch.zeros(2), torch.zeros(1), *middles(ends(x, y), PLAIN))
    >>> x.tolist(), y.tolist(), (p + q).tolist()
    ([[-1.0], [1.0]], [[0.0]], [35.0, 63.0])
    """
    at = checks.local(np.stack([c, e])).to(x)
    x, y, gap = x - at[0], y - at[1], at[0] - at[1]
    if c is e:
        return x, y, p, q
    return x, y, p + (2 * (x @ gap) + gap @ gap), q - 2 * (y @ gap)


def _middle(box: np.ndarray) -> np.ndarray:
    """The middle of a box [2, d], to a thousandth of its size: with so few digits, points lose none by x − middle."""
    low, high = box
    size = float((high - low).max(initial=0.0))
    if not 0 < size < math.inf:
        return low
    step = 2.0 ** (math.frexp(size)[1] - 10)
    return ((low / 2 + high / 2) / step).round() * step
