r"""All pairs of two clouds of points, c_ij = ‖x_i − y_j‖² or ‖x_i − y_j‖, never formed into a matrix.

Costs are sums of squared differences of coordinates in any dimension: nothing cancels, and a compiled loop over a tile of
columns, four coordinates at a time, is as fast as a matrix product and a look at what it gives.

The columns lie along a curve (`morton`), and a tile of neighbours J is left out of a row's list if all of it is above the
last of the list. Potentials v are steep where mass goes far, so a line is taken off them: with any slopes s, c_J the middle
of the box around the tile, and top_J = max_J (v_j − s·(y_j − c_J)),

    c_ij − v_j ≥ min over y in the box of  ‖x_i − y‖² − s·(y − c_J)  − top_J,

a sum over coordinates, each at y = x_i + s/2 pushed into the box. Plain distances are not such a sum, but they are convex:
with e from x_i to c_J, ‖e‖ = 1, and w_J half the width of the box, ‖x_i − y‖ ≥ e·(y − x_i), and

    c_ij − v_j ≥ ‖c_J − x_i‖ − Σ_k |e_k − s_k| w_Jk − top_J;      and also  ≥ distance of the box − max_J v_j.

s comes from regressions, one coordinate after the other. Bounds are lowered by more than rounding can have raised them.
The tile that promises least is looked into first, then all others whose bounds are below the last of the list by then.

Points of one label lie together, and no tile has two labels: a row's tiles are one range, or all but one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from otformer.transport.compiled import compiled, in_threads
from otformer.transport.costs.by_product import squares_by_product
from otformer.transport.costs.clouds import PLAIN, Rule, morton
from otformer.transport.costs.pairs import no_pairs, offer

WIDTH = 64  # places of a tile
RUN = 32  # rows that go through the tiles together
FIRST = 32  # tiles that are taken by what they promise
UNSURE = 2.0**-44  # of what a bound is summed from: 128 roundings and more


@dataclass(frozen=True)
class TiledCloud:
    """One cloud: by labels, then along the curve, in tiles, of which the last of a label may have empty places."""

    order: np.ndarray  # [n], where each point stood in the list given
    points: np.ndarray  # [n, d], in this order
    labels: np.ndarray  # [n], in this order
    places: np.ndarray  # [tiles, WIDTH], which points of the list given they hold; −1 in empty places
    tiles: np.ndarray  # [tiles, d, WIDTH], their coordinates; empty places repeat a point
    low: np.ndarray  # [d, tiles], corners of the boxes
    high: np.ndarray
    names: np.ndarray  # [groups], the labels there are, ascending
    firsts: np.ndarray  # [groups + 1], the first tile of every label

    @classmethod
    def build(cls, points: np.ndarray, labels: np.ndarray) -> TiledCloud:
        order = morton(torch.from_numpy(points)).numpy()
        order = order[labels[order].argsort(kind="stable")]
        names, counts = np.unique(labels, return_counts=True)
        firsts = np.append(0, np.cumsum(-(-counts // WIDTH)))
        places = np.full(firsts[-1] * WIDTH, -1)
        places[np.arange(len(order)) + np.repeat(firsts[:-1] * WIDTH - (np.cumsum(counts) - counts), counts)] = order
        places = places.reshape(-1, WIDTH)
        tiles = points[np.where(places < 0, places[:, :1], places)].transpose(0, 2, 1)  # [tiles, d, WIDTH]
        low, high = (np.ascontiguousarray(corner.T) for corner in (tiles.min(2), tiles.max(2)))
        return cls(order, points[order], labels[order], places, np.ascontiguousarray(tiles), low, high, names, firsts)

    def allowed(self, labels: np.ndarray, same: bool) -> np.ndarray:
        """The tiles that may match these labels [n]: from 0 up to 1 and from 2 up to 3, [n, 4]."""
        group = np.searchsorted(self.names, labels)
        known = self.names[np.minimum(group, len(self.names) - 1)] == labels
        begin, end, last = self.firsts[group], self.firsts[group + known], np.full(len(labels), self.firsts[-1])
        return np.stack((begin, end, last, last) if same else (np.zeros_like(begin), begin, end, last), 1)

    def boxes(self, h: np.ndarray, span: np.ndarray, root: bool) -> np.ndarray:
        """Per tile: low and high corners of the box, slopes of h [tiles, WIDTH], max h and top, [3 d + 2, tiles].

        The last two are raised by what rounding may do. ``span`` [d] is the size of the box around both clouds. Potentials
        of transport are no steeper than its costs, so slopes need not be either.
        """
        there = self.places >= 0
        left, counts = np.where(there, h, 0.0), there.sum(1)
        size, slopes = np.abs(left).max(1), np.zeros_like(self.low)
        highest = h.max(1) + UNSURE * size
        for k, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            y = self.tiles[:, k] - 0.5 * (low + high)[:, None]  # [tiles, WIDTH]
            off = (y - (y * there).sum(1, keepdims=True) / counts[:, None]) * there
            width = np.abs(off).max(1)
            off /= np.where(width > 0, width, 1.0)[:, None]  # or squares of large numbers are too large
            steepest = 1.0 if root else 2 * span[k]
            with np.errstate(over="ignore"):
                rise = (off * left).sum(1) / (off * off).sum(1).clip(1.0) / np.where(width > 0, width, np.inf)
            slopes[k] = rise.clip(-steepest, steepest)
            left -= slopes[k][:, None] * y
            size += np.abs(slopes[k]) * (span[k] + np.abs(low) + np.abs(high))
        top = np.where(there, left, -np.inf).max(1) + UNSURE * size
        return np.concatenate([self.low, self.high, slopes, [highest, top]])


class PointPairs:
    """All pairs of points x [n, d] and y [m, d], float64, that ``rule`` allows.

    >>> pairs = PointPairs(np.array([[0.0], [1.0]]), np.array([[0.0], [1.0], [3.0]]))
    >>> values, places = pairs.least(np.array([0.0, 0.0, 5.0]), 2, rows=True)
    >>> values.tolist(), places.tolist()
    ([[0.0, 1.0], [-1.0, 0.0]], [[0, 1], [2, 1]])
    >>> pairs.costs(np.array([0, 1]), np.array([2, 2])).tolist()
    [9.0, 4.0]
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, rule: Rule = PLAIN) -> None:
        self.shape = len(x), len(y)
        self.x, self.y = (np.ascontiguousarray(points, dtype=np.float64) for points in (x, y))
        self.root, self.same = bool(rule.root), bool(rule.same or rule.labels is None)
        given = rule.labels or tuple(torch.zeros(n, dtype=torch.int64, device="cpu") for n in self.shape)
        self.labels = given[0].numpy(force=True), given[1].numpy(force=True)

    @cached_property
    def sides(self) -> tuple[TiledCloud, TiledCloud]:
        """Both clouds in tiles, made when they are first looked at."""
        return TiledCloud.build(self.x, self.labels[0]), TiledCloud.build(self.y, self.labels[1])

    def least(self, potential: np.ndarray, k: int, rows: bool) -> tuple[np.ndarray, np.ndarray]:
        own, other = self.sides if rows else self.sides[::-1]
        values, places = no_pairs(len(own.order), k)
        h = np.where(other.places < 0, -np.inf, np.asarray(potential, dtype=np.float64)[other.places])  # [tiles, WIDTH]
        span = np.maximum(other.high.max(1), own.high.max(1)) - np.minimum(other.low.min(1), own.low.min(1))
        boxes, allowed = other.boxes(h, span, self.root), other.allowed(own.labels, self.same)
        tiles = other.tiles, h, other.places, boxes, allowed

        def work(first: int, last: int) -> None:
            _least_of_rows(own.points, own.order, *tiles, self.root, values, places, first, last)

        in_threads(work, -(-len(own.order) // RUN), len(own.order) * len(other.order))
        return values, places

    def costs(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        i, j = np.ascontiguousarray(i, dtype=np.int64), np.ascontiguousarray(j, dtype=np.int64)
        may_match = (self.labels[0][i] == self.labels[1][j]) == self.same
        found = np.empty(len(i))
        in_threads(lambda first, last: _costs(self.x, self.y, i, j, self.root, found, first, last), len(i), len(i))
        return np.where(may_match, found, np.inf)

    def matrix(self) -> np.ndarray:
        """All costs [n, m], of pairs that are all allowed: by a matrix product where that is as good (by_product.py)."""
        C = squares_by_product(torch.from_numpy(self.x), torch.from_numpy(self.y)).numpy()
        return np.sqrt(C, out=C) if self.root else C


@compiled
def _costs(
    x: np.ndarray, y: np.ndarray, i: np.ndarray, j: np.ndarray, root: bool, found: np.ndarray, first: int, last: int
) -> None:
    """Summed in the order of `_look`: to the last bit the same."""
    for e in range(first, last):
        c = 0.0
        for k in range(x.shape[1]):
            gap = x[i[e], k] - y[j[e], k]
            c += gap * gap
        found[e] = np.sqrt(c) if root else c


@compiled
def _bounds(x: np.ndarray, boxes: np.ndarray, begin: int, end: int, root: bool, out: np.ndarray) -> None:
    """What pairs of x with the tiles from ``begin`` up to ``end`` have at least as values, into ``out`` [end − begin]."""
    d = len(x)
    highest, top = boxes[-2, begin:end], boxes[-1, begin:end]
    far, lean = np.empty(len(out)), np.empty(len(out))  # ‖c_J − x‖, and what e bounds
    for t in range(len(out)):
        out[t] = far[t] = 0.0
    for k in range(d):
        low, high, slope = boxes[k, begin:end], boxes[d + k, begin:end], boxes[2 * d + k, begin:end]
        if root:
            for t in range(len(out)):
                lo, hi = low[t] - x[k], high[t] - x[k]
                gap, middle = max(max(lo, -hi), 0.0), 0.5 * (lo + hi)
                out[t] += gap * gap
                far[t] += middle * middle
        else:
            for t in range(len(out)):
                lo, hi, s = low[t] - x[k], high[t] - x[k], slope[t]
                z = min(max(0.5 * s, lo), hi)
                out[t] += (1 - UNSURE) * z * z - s * (z - 0.5 * (lo + hi))
    if not root:
        for t in range(len(out)):
            out[t] -= top[t]
        return
    for t in range(len(out)):
        far[t] = np.sqrt(far[t])
        lean[t] = (1 - UNSURE) * far[t] - top[t]
    for k in range(d):
        low, high, slope = boxes[k, begin:end], boxes[d + k, begin:end], boxes[2 * d + k, begin:end]
        for t in range(len(out)):
            lo, hi = low[t] - x[k], high[t] - x[k]
            e = 0.5 * (lo + hi) / max(far[t], 1e-300)  # a shorter one bounds too
            lean[t] -= (1 + UNSURE) * abs(e - slope[t]) * 0.5 * (hi - lo)
    for t in range(len(out)):
        out[t] = max((1 - UNSURE) * np.sqrt(out[t]) - highest[t], lean[t])


@compiled
def _look(
    x: np.ndarray, y: np.ndarray, h: np.ndarray, columns: np.ndarray, root: bool, c: np.ndarray,
    values: np.ndarray, places: np.ndarray,
) -> None:  # fmt: skip
    """Pairs of x with a tile y [d, WIDTH] into the list of x; c [WIDTH] is room for their costs."""
    d = len(x)
    for j in range(WIDTH):
        c[j] = 0.0
    for k in range(0, d - 3, 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        for j in range(WIDTH):
            g0, g1, g2, g3 = x0 - y[k, j], x1 - y[k + 1, j], x2 - y[k + 2, j], x3 - y[k + 3, j]
            c[j] = c[j] + g0 * g0 + g1 * g1 + g2 * g2 + g3 * g3
    for k in range(d - d % 4, d):
        for j in range(WIDTH):
            gap = x[k] - y[k, j]
            c[j] += gap * gap
    if root:
        for j in range(WIDTH):
            c[j] = np.sqrt(c[j])
    last, below = values[-1], 0
    for j in range(WIDTH):
        below += c[j] - h[j] < last
    if below:
        for j in range(WIDTH):
            if c[j] - h[j] < values[-1]:
                offer(values, places, c[j] - h[j], columns[j])


@compiled
def _least_of_run(
    start: int, stop: int, x: np.ndarray, order: np.ndarray, y: np.ndarray, h: np.ndarray, columns: np.ndarray,
    boxes: np.ndarray, allowed: np.ndarray, root: bool, values: np.ndarray, places: np.ndarray,
) -> None:  # fmt: skip
    """Rows that are neighbours go through the tiles together: a tile is read once for all of them."""
    tiles, c = len(y), np.empty(WIDTH)
    bounds, promise = np.full((stop - start, tiles), np.inf), np.full(tiles, np.inf)
    for i in range(start, stop):
        mine, list_i, places_i = bounds[i - start], values[order[i]], places[order[i]]
        for part in range(2):
            begin, end = allowed[i, 2 * part], allowed[i, 2 * part + 1]
            _bounds(x[i], boxes, begin, end, root, mine[begin:end])
        best = 0
        for t in range(tiles):
            best = t if mine[t] < mine[best] else best
        if mine[best] < np.inf:
            _look(x[i], y[best], h[best], columns[best], root, c, list_i, places_i)
            mine[best] = np.inf
        for t in range(tiles):
            promise[t] = min(promise[t], mine[t] if mine[t] < list_i[-1] else np.inf)
    first, firsts = np.full(FIRST, np.inf), np.full(FIRST, -1)
    for t in range(tiles):
        if promise[t] < first[-1]:
            offer(first, firsts, promise[t], t)
    for turn in range(FIRST + tiles):  # the most promising, then all, of which those are done
        t = firsts[turn] if turn < FIRST else turn - FIRST
        if t >= 0 and promise[t] < np.inf:
            promise[t] = np.inf
            for i in range(start, stop):
                if bounds[i - start, t] < values[order[i], -1]:
                    _look(x[i], y[t], h[t], columns[t], root, c, values[order[i]], places[order[i]])


@compiled
def _least_of_rows(
    x: np.ndarray, order: np.ndarray, y: np.ndarray, h: np.ndarray, columns: np.ndarray, boxes: np.ndarray,
    allowed: np.ndarray, root: bool, values: np.ndarray, places: np.ndarray, first: int, last: int,
) -> None:  # fmt: skip
    """Fill the lists of the runs ``first`` to ``last``."""
    for run in range(first, last):
        stop = min(run * RUN + RUN, len(x))
        _least_of_run(run * RUN, stop, x, order, y, h, columns, boxes, allowed, root, values, places)
