r"""Passes that compute every plan entry by one formula, so that row and column sums agree to the last bit.

A plan known by its potentials has entries exp((u_i + v_j − c_ij)/λ − 1). Where costs are 10⁸ λ, the eighth digit of an entry
depends on how its exponent was added up. A stream does that differently for rows, columns and single rows of the plan: each
is as good, but marginals made exact in one are exact to eight digits in another. Here an entry has one formula,

    c_ij from the differences x_i − y_j,      ((u_i + v_j) − c_ij)/λ − 1,

in which rows and columns may be exchanged: a sum of floating-point numbers does not depend on the order of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from otformer.transport.costs.clouds import Cloud
from otformer.transport.costs.distances import distances
from otformer.transport.costs.plan import Operator, Parts
from otformer.transport.costs.tiles import Block, Stream
from otformer.transport.types import Problem

if TYPE_CHECKING:
    from otformer.transport.costs.points import PointsCost

SHARPEST = 2.0**-44  # share of the costs' range: tiles whose bounds are beyond a least cost by 40 times that are left out
LEAST_LOG = 5 * math.log(2.0**-52)  # of an entry that counts: near subnormal numbers exp takes a CPU thirty times as long


class Entries(Stream):
    """A streamed problem's passes by that formula, slower than those that solve it."""

    def __init__(self, cost: PointsCost, problem: Problem) -> None:
        x, y, rule = cost.x, cost.y, cost.rule
        self.log_a, self.log_b, self.rule = problem.a.log(), problem.b.log(), rule
        self.block, self.apart = 2**26 if x.is_cuda else 2**18, x.new_zeros(x.shape[1])
        labels = rule.labels or (None, None)
        self.x, self.y = (
            Cloud.build(t, torch.zeros_like(t[:, 0]), of_points, rule.same)
            for t, of_points in zip((x, y), labels, strict=True)
        )
        self.spread = cost.spread

    @torch.no_grad()
    def least(self, potential: Tensor, rows: bool) -> Tensor:
        """min_j c_ij − v_j of the rows [n] for a potential v [m], or min_i c_ij − u_i of the columns: c-transforms."""
        own, other = (self.x, self.y) if rows else (self.y, self.x)
        h, out = other.sort(potential), torch.full_like(own.shift, torch.inf)
        sharp = SHARPEST * max(self.spread, float(potential.abs().max()))
        for tile, chunks in self._tiles(own, other, h, sharp, None):
            i = own.order[tile]
            for places, negative, _ in chunks:
                out[i] = torch.minimum(out[i], -(negative + h[places]).amax(1))
        return out

    @torch.no_grad()
    def totals(
        self, potentials: tuple[Tensor, Tensor], reg: float, scales: tuple[Tensor, Tensor], dual: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, float, float]:
        """Of the plan s_i P_ij t_j: row sums [n], Σ c_ij and Σ (c_ij − f_i − g_j), in which no term is negative.

        That is so in floating point: f and g are minima of the very differences that are taken here (`least`).
        """
        (s, t), (f, g), rows = scales, dual, torch.zeros_like(scales[0])
        cost = gap = 0.0
        for i, j, P, negative in self._pieces(self.x, self.y, *potentials, self.log_a, reg):
            c = torch.where(P > 0, -negative, 0.0)
            P *= s[i, None] * t[j]
            rows[i] += P.sum(1)
            cost += float((P * c).sum())
            gap += float((P * ((c - f[i, None]) - g[j])).sum())
        return rows, cost, gap

    def _apply(
        self, own: Cloud, other: Cloud, u: Tensor, v: Tensor, log_a: Tensor, reg: float, values: Tensor,
        weigh: Callable[[Tensor], Tensor] | None,
    ) -> Tensor:  # fmt: skip
        assert weigh is None, "products with P alone"
        out = values.new_zeros(len(own.order), *values.shape[1:])
        for i, j, P, _ in self._pieces(own, other, u, v, log_a, reg):
            out[i] += P @ values[j]
        return out

    def _pieces(
        self, own: Cloud, other: Cloud, u: Tensor, v: Tensor, log_a: Tensor, reg: float
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """The plan in blocks, but for tiles that do not count: rows [r], columns [k], P and −c [r, k]."""
        mine, h = own.sort(u), other.sort(v)
        enough = reg * (1 + log_a[own.order]) - mine  # where one entry alone would be all of a_i
        for tile, chunks in self._tiles(own, other, h, reg, enough):
            for places, negative, _ in chunks:
                logs = ((mine[tile, None] + h[places]) + negative).div_(reg).sub_(1)
                yield own.order[tile], other.order[places], logs.masked_fill_(logs < LEAST_LOG, -torch.inf).exp_(), negative

    def _blocks(
        self, own: Cloud, rows: Tensor, other: Cloud, h: Tensor, columns: Tensor, centre: Tensor, reg: float, masked: bool
    ) -> Iterator[Block]:
        """−c in blocks, −∞ where a pair is forbidden."""
        for places in columns.split(max(1, self.block // len(rows))):
            negative = costs(own.points[rows], other.points[places], self.rule.root).neg_()
            yield places, self._allowed(negative, own, rows, other, places) if masked else negative, rows


class EntriesProducts(Operator):
    """The same formula for rows of the plan as for its products."""

    def logs(self, parts: Parts, low: int, high: int) -> Tensor:
        x, y, _, _, u, v, reg = parts
        return ((u[low:high, None] + v) - costs(x[low:high], y, self.kernel.rule.root)) / float(reg) - 1


def costs(x: Tensor, y: Tensor, root: bool) -> Tensor:
    """‖x_i − y_j‖² [n, m], or its root: every entry from its own two points alone, in one order."""
    if not x.is_cuda:
        return distances(x, y) if root else distances(x, y).square_()
    squares = x.new_zeros(len(x), len(y))
    for k in range(x.shape[1]):  # torch's kernel for distances takes a block of threads for each of them
        squares += (x[:, k, None] - y[:, k]).square_()
    return squares.sqrt_() if root else squares
