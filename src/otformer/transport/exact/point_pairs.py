r"""All pairs of two clouds of points, c_ij = ‖x_i − y_j‖² or ‖x_i − y_j‖, never formed into a matrix.

Costs that come out are sums of squared differences of coordinates. What a pair costs at least, bounds say, and all of them
are lowered by more than rounding can have raised them: pairs are left out only where this is sure.

**Few dimensions.** Columns lie along a curve (`morton`), and a tile of neighbours J is left out of a row's list if all of it
is above the last of the list. Potentials v are steep where mass goes far, so a line is taken off them: with any slopes s,
c_J the middle of the box around the tile, and top_J = max_J (v_j − s·(y_j − c_J)),

    c_ij − v_j ≥ min over y in the box of  ‖x_i − y‖² − s·(y − c_J)  − top_J,

a sum over coordinates, each at y = x_i + s/2 pushed into the box. Plain distances are not such a sum, but convex: with e
from x_i to c_J, ‖e‖ = 1, and w_J half the width of the box, ‖x_i − y‖ ≥ e·(y − x_i), and

    c_ij − v_j ≥ ‖c_J − x_i‖ − Σ_k |e_k − s_k| w_Jk − top_J;      and also  ≥ distance of the box − max_J v_j.

s comes from regressions, one coordinate after the other. The tile that promises least is looked into first, then all others
whose bounds are below the last of the list by then.

**Many dimensions.** A block of rows takes blocks of columns by a matrix product of the points less the middle of the rows,
c_ij = ‖x'_i‖² + ‖y'_j‖² − 2 x'_i·y'_j, which only says which pairs may be below the last of the list: these are subtracted.
Columns are shuffled, so they are few (see pairs.py).

**Labels.** Points of one label lie together and no tile has two labels: a row's columns are one range, or all but one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from otformer.transport.exact.compiled import compiled, parallel, prange
from otformer.transport.exact.pairs import LANES, RUN, golden_step, no_pairs, offer
from otformer.transport.executors.clouds import PLAIN, Rule, morton

FEW = 8  # dimensions in which tiles are left out
ROUNDING = 2.0**-46  # of what is added in few dimensions: 32 roundings and more
ROWS, COLUMNS = 256, 2048  # of a block of products


@dataclass(frozen=True)
class Side:
    """One cloud in order: by labels, then along the curve."""

    points: np.ndarray  # [n, d]
    order: np.ndarray  # [n], where each point stood in the list given
    labels: np.ndarray  # [n], in this order
    names: np.ndarray  # [groups], the labels there are, ascending
    groups: np.ndarray  # [groups + 1], where their points begin

    @classmethod
    def build(cls, points: np.ndarray, labels: np.ndarray) -> Side:
        order = morton(torch.from_numpy(points)).numpy()
        order = order[labels[order].argsort(kind="stable")]
        names, starts = np.unique(labels[order], return_index=True)
        return cls(points[order], order, labels[order], names, np.append(starts, len(order)))

    def tiles(self) -> tuple[np.ndarray, np.ndarray]:
        """Where tiles of about √n/3 points begin, [tiles + 1]; and the first tile of every group, [groups + 1]."""
        size = max(LANES, round(len(self.points) ** 0.5 / 3))
        starts = [np.arange(a, b, size) for a, b in zip(self.groups, self.groups[1:], strict=False)]
        firsts = np.cumsum([0, *map(len, starts)])
        return np.append(np.concatenate(starts), len(self.points)), firsts

    def allowed(self, labels: np.ndarray, same: bool, firsts: np.ndarray) -> np.ndarray:
        """Which places may match these labels: from 0 to 1 and from 2 to 3, [n, 4]; ``firsts`` places begin the groups."""
        group = np.searchsorted(self.names, labels)
        known = self.names[np.minimum(group, len(self.names) - 1)] == labels
        begin, end, last = firsts[group], firsts[group + known], np.full(len(labels), firsts[-1])
        parts = (begin, end, last, last) if same else (np.zeros_like(begin), begin, end, last)
        return np.stack(parts, 1)


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
        self.root, self.same = bool(rule.root), rule.same or rule.labels is None
        labels = [np.zeros(n, dtype=np.int64) for n in self.shape] if rule.labels is None else map(np.asarray, rule.labels)
        self.labels = tuple(labels)
        self.sides = tuple(Side.build(*given) for given in zip((self.x, self.y), self.labels, strict=True))

    def least(self, potential: np.ndarray, k: int, rows: bool) -> tuple[np.ndarray, np.ndarray]:
        own, other = self.sides if rows else self.sides[::-1]
        search = self._near if own.points.shape[1] <= FEW else self._far
        found, columns, order = search(own, other, np.asarray(potential, dtype=np.float64), k)
        values, places = np.empty_like(found), np.empty_like(columns)
        values[own.order], places[own.order] = found, np.where(columns < 0, -1, order[columns])
        return values, places

    def costs(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        c = _costs(
            self.x, self.y, np.ascontiguousarray(i, dtype=np.int64), np.ascontiguousarray(j, dtype=np.int64), self.root
        )
        return np.where((self.labels[0][i] == self.labels[1][j]) == self.same, c, np.inf)

    def _near(self, own: Side, other: Side, potential: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The lists of one side in its order, places in the order of the other, and that order. In few dimensions."""
        values, places = no_pairs(len(own.points), k)
        starts, firsts = other.tiles()
        y, h = np.ascontiguousarray(other.points.T), potential[other.order]
        low, high = (np.ascontiguousarray(f.reduceat(y, starts[:-1], 1)) for f in (np.minimum, np.maximum))
        span = np.maximum(high.max(1), own.points.max(0)) - np.minimum(low.min(1), own.points.min(0))
        tops, slopes = _tops(y, h, starts, low, high, span, self.root)
        allowed = other.allowed(own.labels, self.same, firsts)
        _least_of_tiles(own.points, y, h, starts, low, high, tops, slopes, allowed, self.root, values, places)
        return values, places, other.order

    def _far(self, own: Side, other: Side, potential: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same in many dimensions."""
        n, d = own.points.shape
        values, places = no_pairs(n, k)
        mixed = np.concatenate(
            [
                a + golden_step(b - a) * np.arange(b - a) % (b - a)
                for a, b in zip(other.groups, other.groups[1:], strict=False)
            ]
        )
        order = other.order[mixed]
        y, h = other.points[mixed], potential[order]
        allowed = other.allowed(own.labels, self.same, other.groups)
        unsure = (4 * d + 64) * 2.0**-53
        for i in range(0, n, ROWS):
            here = slice(i, i + ROWS)
            middle = own.points[here].mean(0)
            x = own.points[here] - middle
            norms_x = np.einsum("ij,ij->i", x, x) * (1 - unsure)
            x *= -2
            for j in range(int(allowed[here, 0].min()), int(allowed[here].max()), COLUMNS):
                there = slice(j, j + COLUMNS)
                near = y[there] - middle
                norms_y = np.einsum("ij,ij->i", near, near) * (1 - unsure)
                _least_of_block(
                    x @ near.T, norms_x, norms_y, own.points[here], y[there], h[there], j, allowed[here], unsure, self.root,
                    values[here], places[here],
                )  # fmt: skip
        return values, places, order


@compiled
def _cost(x: np.ndarray, y: np.ndarray, root: bool) -> float:
    c = 0.0
    for k in range(len(x)):
        c += (x[k] - y[k]) * (x[k] - y[k])
    return np.sqrt(c) if root else c


@parallel
def _costs(x: np.ndarray, y: np.ndarray, i: np.ndarray, j: np.ndarray, root: bool) -> np.ndarray:
    c = np.empty(len(i))
    for e in prange(len(i)):
        c[e] = _cost(x[i[e]], y[j[e]], root)
    return c


@parallel
def _tops(
    y: np.ndarray, h: np.ndarray, starts: np.ndarray, low: np.ndarray, high: np.ndarray, span: np.ndarray, root: bool
) -> tuple[np.ndarray, np.ndarray]:
    """max h and top of every tile, raised by what rounding may do, [2, tiles]; and the slopes, [d, tiles].

    A potential of transport is no steeper than the costs, which bounds the slopes.
    """
    d, tiles = low.shape
    tops, slopes = np.empty((2, tiles)), np.zeros((d, tiles))
    for t in prange(tiles):
        left = h[starts[t] : starts[t + 1]].copy()
        most = np.abs(left).max()
        tops[0, t] = left.max() + ROUNDING * most
        for k in range(d):
            y_k = y[k, starts[t] : starts[t + 1]]
            off = y_k - y_k.mean()
            spread = (off * off).sum()
            if spread > 0:
                steepest = 1.0 if root else 2 * span[k]
                s = min(max((off * left).sum() / spread, -steepest), steepest)
                left -= s * (y_k - 0.5 * (low[k, t] + high[k, t]))
                most += abs(s) * span[k]
                slopes[k, t] = s
        tops[1, t] = left.max() + ROUNDING * most
    return tops, slopes


@compiled
def _bounds(
    x: np.ndarray, low: np.ndarray, high: np.ndarray, tops: np.ndarray, slopes: np.ndarray,
    begin: int, end: int, root: bool, bounds: np.ndarray,
) -> None:  # fmt: skip
    """What x's pairs with tiles from ``begin`` to ``end`` have at least as values, into ``bounds`` [tiles]."""
    out = bounds[begin:end]
    out[:] = 0.0
    if not root:
        for k in range(len(x)):
            low_k, high_k, s_k = low[k, begin:end], high[k, begin:end], slopes[k, begin:end]
            for t in range(len(out)):
                lo, hi, s = low_k[t] - x[k], high_k[t] - x[k], s_k[t]
                z = min(max(0.5 * s, lo), hi)
                out[t] += (1 - ROUNDING) * z * z - s * (z - 0.5 * (lo + hi))
        out -= tops[1, begin:end]
        return
    far = np.zeros(end - begin)  # squared distances of the middles
    for k in range(len(x)):
        low_k, high_k = low[k, begin:end], high[k, begin:end]
        for t in range(len(out)):
            lo, hi = low_k[t] - x[k], high_k[t] - x[k]
            gap, middle = max(max(lo, -hi), 0.0), 0.5 * (lo + hi)
            out[t] += gap * gap
            far[t] += middle * middle
    far = np.sqrt(far)
    out[:] = (1 - ROUNDING) * np.sqrt(out) - tops[0, begin:end]
    lean = (1 - ROUNDING) * far - tops[1, begin:end]
    far = 1 / np.maximum(far, 1e-300)
    for k in range(len(x)):
        low_k, high_k, s_k = low[k, begin:end], high[k, begin:end], slopes[k, begin:end]
        for t in range(len(out)):
            lo, hi = low_k[t] - x[k], high_k[t] - x[k]
            lean[t] -= 0.5 * (1 + ROUNDING) * abs(0.5 * (lo + hi) * far[t] - s_k[t]) * (hi - lo)
    for t in range(len(out)):
        out[t] = max(out[t], lean[t])


@compiled
def _look(
    x: np.ndarray, y: np.ndarray, h: np.ndarray, start: int, stop: int, root: bool, room: np.ndarray,
    values: np.ndarray, places: np.ndarray,
) -> None:  # fmt: skip
    """Pairs of x with columns from ``start`` to ``stop`` into its list; ``room`` is for as many numbers."""
    t = room[: stop - start]
    t[:] = 0.0
    for k in range(len(x)):
        y_k, x_k = y[k, start:stop], x[k]
        for j in range(len(t)):
            t[j] += (x_k - y_k[j]) * (x_k - y_k[j])
    if root:
        for j in range(len(t)):
            t[j] = np.sqrt(t[j])
    h_t, last, below = h[start:stop], values[-1], 0
    for j in range(len(t)):
        t[j] -= h_t[j]
        below += t[j] < last
    if below:
        for j in range(len(t)):
            if t[j] < values[-1]:
                offer(values, places, t[j], start + j)


@parallel
def _least_of_tiles(
    x: np.ndarray, y: np.ndarray, h: np.ndarray, starts: np.ndarray, low: np.ndarray, high: np.ndarray, tops: np.ndarray,
    slopes: np.ndarray, allowed: np.ndarray, root: bool, values: np.ndarray, places: np.ndarray,
) -> None:  # fmt: skip
    n, size = len(x), (starts[1:] - starts[:-1]).max()
    for run in prange((n + RUN - 1) // RUN):
        bounds, room = np.empty(len(starts) - 1), np.empty(size)
        for i in range(run * RUN, min(run * RUN + RUN, n)):
            best, least = -1, np.inf
            for part in range(2):
                begin, end = allowed[i, 2 * part], allowed[i, 2 * part + 1]
                _bounds(x[i], low, high, tops, slopes, begin, end, root, bounds)
                for t in range(begin, end):
                    if bounds[t] < least:
                        best, least = t, bounds[t]
            if best < 0:
                continue
            _look(x[i], y, h, starts[best], starts[best + 1], root, room, values[i], places[i])
            for part in range(2):
                for t in range(allowed[i, 2 * part], allowed[i, 2 * part + 1]):
                    if bounds[t] < values[i, -1] and t != best:
                        _look(x[i], y, h, starts[t], starts[t + 1], root, room, values[i], places[i])


@compiled
def _may_be_below(bound: float, h: float, last: float, root: bool) -> bool:
    """Whether c − h < last may be true, c² (``root``) or c being at least ``bound``."""
    w = last + h
    return (bound < w * w) & (w > 0) if root else bound < w


@parallel
def _least_of_block(
    products: np.ndarray, norms_x: np.ndarray, norms_y: np.ndarray, x: np.ndarray, y: np.ndarray, h: np.ndarray, first: int,
    allowed: np.ndarray, unsure: float, root: bool, values: np.ndarray, places: np.ndarray,
) -> None:  # fmt: skip
    """Products + ‖x'_i‖² + ‖y'_j‖² are c² or c at least; column j of the block is ``first`` + j of all."""
    above = h + unsure * np.abs(h)
    for i in prange(len(x)):
        list_i, places_i, norm = values[i], places[i], norms_x[i]
        for part in range(2):
            begin, end = max(allowed[i, 2 * part] - first, 0), min(allowed[i, 2 * part + 1] - first, len(y))
            for start in range(begin, end, LANES):
                some = products[i, start : min(start + LANES, end)]
                norms, tops = norms_y[start:end], above[start:end]
                last, below = list_i[-1] + unsure * abs(list_i[-1]), 0
                for j in range(len(some)):
                    below += _may_be_below(some[j] + norms[j] + norm, tops[j], last, root)
                if below:
                    for j in range(len(some)):
                        if _may_be_below(some[j] + norms[j] + norm, tops[j], list_i[-1] + unsure * abs(list_i[-1]), root):
                            value = _cost(x[i], y[start + j], root) - h[start + j]
                            if value < list_i[-1]:
                                offer(list_i, places_i, value, first + start + j)
