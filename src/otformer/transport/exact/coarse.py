r"""Potentials to begin with, from coarse to fine: what goes far is settled where points are few.

**Particles.** Along an order in which neighbours are near (`tree_order`), the mass of each side is cut into K segments of
equal mass; a *particle* is the mean of one. Between K and K particles transport is an assignment, whatever the weights are.
Segments of 4K lie within those of K, so particle 4p + r of one level is a part of particle p of the level before.

**Down.** Let (f, g) be potentials of one level and π its assignment. On the next one

    f_i = min_J (‖x_i − Y_J‖² − g_J),      g_j = min_i (c_ij − f_i)

are feasible, and the parts of p can be sent to those of π(p): with these pairs a graph of pairs of small reduced cost
carries all mass. An auction (scaling.py) finds the best assignment on it to within a share of what near pairs differ by.
Then all pairs are looked at, those that undercut it are added, and it goes on, a few times. After the last particles come
the points themselves, where they are to be matched one to one. For other weights the last particles are nearly as many as
the points, and their potentials nearly those of the points.

What comes out are potentials only; the rounds start from them (rounds.py), and their proof rests on nothing here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer.transport.exact.assignment import Floats, Ints
from otformer.transport.exact.flow_graph import Clock
from otformer.transport.exact.repeated import staircase
from otformer.transport.exact.scaling import Edges, scale
from otformer.transport.types import to_numpy

if TYPE_CHECKING:
    from otformer.transport.costs.points import PointsCost

FIRST_LEVEL, CHILDREN = 1024, 4  # particles of the first level at most, and parts of one on the next
FEWEST = 256  # particles of the last level that are worth their making
LAST, LAST_WEIGHTED = 0.5, 2.0  # particles of the last level, for every point of the side that has fewer
LISTED, ADDED_AT_ONCE = 8, 6  # of least reduced cost for every point in the graph, and added by a look at all pairs
AXES, POWERS = 8, 6  # of the tree in many dimensions, and steps that find them
LOOKS = 12  # at all pairs, for one level
START, END = 0.5, 0.02  # ε of a level, as a share of what its first plan pays too much, and of what near pairs differ by
LEFT_UNDERCUT = 0.01  # of the points may be undercut in the end


class Side(NamedTuple):
    """Points in the order of the tree, [n, d], their weights, and where they stood."""

    points: Tensor
    weights: Tensor
    order: Tensor

    @classmethod
    def build(cls, points: Tensor, weights: Tensor, axes: Tensor | None) -> Side:
        order = tree_order(points if axes is None else points @ axes)
        return cls(points[order], weights.to(points)[order], order)

    def particles(self, many: int) -> Tensor:
        """Means of ``many`` segments of equal mass."""
        none = self.points.new_zeros(1, self.points.shape[1])
        mass = torch.cat([none[:, 0], self.weights.cumsum(0)])
        moment = torch.cat([none, (self.weights[:, None] * self.points).cumsum(0)])
        ends = mass[-1] * torch.arange(many + 1, device=mass.device, dtype=mass.dtype) / many
        at = torch.searchsorted(mass, ends, right=True).clamp(1, len(self.points)) - 1
        return (moment[at] + (ends - mass[at])[:, None] * self.points[at]).diff(dim=0) * (many / mass[-1])


def tree_order(points: Tensor) -> Tensor:
    """Indices that put points [n, d] in the order of the leaves of a tree that halves its nodes along their longest side.

    >>> tree_order(torch.tensor([[0.0], [3.0], [1.0], [2.0]])).tolist()
    [0, 2, 3, 1]
    """
    n, d = points.shape
    order, node = torch.arange(n, device=points.device), torch.zeros(n, dtype=torch.int64, device=points.device)
    for _ in range(max(0, n - 1).bit_length()):
        some, nodes = points[order], int(node[-1]) + 1
        index = node[:, None].expand(n, d)
        low, high = (
            some.new_empty(nodes, d).scatter_reduce(0, index, some, how, include_self=False) for how in ("amin", "amax")
        )
        along = some.gather(1, (high - low).argmax(1)[node][:, None])[:, 0]
        sort = along.argsort(stable=True)
        sort = sort[node[sort].argsort(stable=True)]
        order, node = order[sort], node[sort]
        first = torch.searchsorted(node, torch.arange(nodes + 1, device=node.device))
        half = (torch.arange(n, device=node.device) - first[node]) * 2 >= first.diff()[node]
        node = torch.unique_consecutive(2 * node + half, return_inverse=True)[1]
    return order


def main_axes(points: Tensor) -> Tensor:
    """Return directions [d, AXES] along which points [n, d] lie far apart: steps of the power method on their covariance."""
    off = points - points.mean(0)
    axes = torch.eye(points.shape[1], AXES, dtype=points.dtype, device=points.device)
    for _ in range(POWERS):
        axes = torch.linalg.qr(off.mT @ (off @ (axes + 1e-3)))[0]
    return axes


def from_coarse(cost: PointsCost, a: Tensor, b: Tensor, clock: Clock) -> Floats | None:
    """Return potentials of the columns, [m]; None if one side has only a few points, since particles then carry no
    information."""
    axes = None if cost.near else main_axes(torch.cat([cost.x, cost.y]))
    sides = [Side.build(points, weights, axes) for points, weights in ((cost.x, a), (cost.y, b))]
    one_to_one = cost.shape[0] == cost.shape[1] and all(bool((w == w[0]).all()) for w in (a, b))
    share = LAST if one_to_one else LAST_WEIGHTED
    last, level = int(share * min(_effective(side.weights) for side in sides)), None
    if last < FEWEST:
        return None
    many = last // CHILDREN ** max(0, math.ceil(math.log(last / FIRST_LEVEL, CHILDREN)))
    while many <= last and not clock.expired:
        x, y = (side.particles(many) for side in sides)
        here = cost.between(x, y)
        level = _level(here, *_prices(here, level), *_parts(level, many), clock)
        many *= CHILDREN
    f, g = _prices(cost, level)
    if one_to_one:
        i, j = (to_numpy(side.order) for side in sides)
        first, second = _parts_of_points(len(i), level)
        g = _level(cost, f, g, i[first], j[second], clock).g
    return g


def _effective(weights: Tensor) -> float:
    """Return how many points there would be if all weighed alike: of more particles many would lie in one place."""
    return float(weights.sum() ** 2 / (weights @ weights))


class Level(NamedTuple):
    """A level that is done: its columns, their potentials, and the column of every row."""

    y: Tensor
    g: Floats
    to: Ints


def _prices(cost: PointsCost, before: Level | None) -> tuple[Floats, Floats]:
    """Return feasible potentials (f, g) from those of the level before."""
    f = np.zeros(cost.shape[0])
    if before is not None:
        f = cost.between(cost.x, before.y).least(before.g, 1, rows=True)[0][:, 0]
    return f, cost.least(f, 1, rows=False)[0][:, 0]


def _parts(before: Level | None, many: int) -> tuple[Ints, Ints]:
    """Return pairs that carry all mass: of the parts of every particle with those of its column, or all there are."""
    if before is None:
        i, j = np.divmod(np.arange(many * many), many)
        return i, j
    parent, part, other = np.indices((many // CHILDREN, CHILDREN, CHILDREN)).reshape(3, -1)
    return CHILDREN * parent + part, CHILDREN * before.to[parent] + other


def _parts_of_points(n: int, before: Level | None) -> tuple[Ints, Ints]:
    """Return pairs of points, in the orders of the trees, that carry all mass: segment by segment, as the particles go.

    On a line every point is K long, and every segment n. The columns' segments are put in the order of the rows'.
    """
    before_to = np.zeros(1, np.int64) if before is None else before.to
    lengths = np.full(n, len(before_to)), np.full(len(before_to), n)
    point, segment, pieces = staircase(*lengths)
    turn = np.argsort(np.argsort(before_to)[segment], kind="stable")
    first, second, _ = staircase(pieces, pieces[turn])
    return point[first], point[turn][second]


def _level(cost: PointsCost, f: Floats, g: Floats, i: Ints, j: Ints, clock: Clock) -> Level:
    """Find nearly the best assignment from feasible potentials and pairs (i, j) that carry one."""
    n = cost.shape[0]
    along = np.arange(n)[:, None]
    values, near = cost.least(g, min(LISTED, n), rows=True)
    last = END * float(np.median(values[:, -1] - values[:, 0]))
    first = START * float((cost.costs(i, j) - f[i] - g[j]).mean())
    back = cost.least(f, min(LISTED, n), rows=False)[1]
    places = _union(cost, i * n + j, along * n + near, back * n + along)
    to, free = np.full((2, n), -1)
    for look in range(LOOKS):
        i, j = np.divmod(places, n)
        on = Edges(np.searchsorted(i, np.arange(n + 1)), j, cost.costs(i, j), to, free, np.empty(n), g.copy())
        scale(on, first, last, clock)
        g = on.g
        values, near = cost.least(g, min(ADDED_AT_ONCE, n), rows=True)
        below = on.f[:, None] - values > last
        if below[:, 0].mean() <= LEFT_UNDERCUT or look == LOOKS - 1 or clock.expired:
            break
        first = float((on.f - values[:, 0])[below[:, 0]].mean())
        places = _union(cost, places, (along * n + near)[below])
    to[to < 0] = np.flatnonzero(free < 0)[: (to < 0).sum()]
    return Level(cost.y, g, to)


def _union(cost: PointsCost, *places: Ints) -> Ints:
    """Return all of these numbers once, ascending; sorted where the points are."""
    parts = [torch.from_numpy(np.ascontiguousarray(p).reshape(-1)).to(cost.device) for p in places]
    return to_numpy(torch.unique(torch.cat(parts)))
