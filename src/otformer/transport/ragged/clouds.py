r"""Matchings of many point clouds, exactly, in as many threads as there are.

As many points of equal weight on both sides are an assignment of a matrix of costs. Up to `STACKED_UP_TO` points those of
one size are stacked (exact/small_assignments.py), up to `MATRIX_UP_TO` each goes through listed.py. All others go through
solve_exact. An assignment is proved by a scan of all pairs,

    gap = Σ_i (c_i,to(i) − g_to(i) − min_j (c_ij − g_j)),

and what is not proved goes through solve_exact too.

**Start.** Late in a training most rows have a nearest column of their own: then g = 0 is nearly right. Otherwise, along an
order in which neighbours are near (`_tree_order`), the means of C over blocks of 4 × 4 are the costs of a problem of a
quarter of the points (but for terms of a row or a column alone, where costs are squares). Its potentials F are found by the
same method, and g_j = min_I (mean of c_ij over i in I − F_I). Mass that goes far is settled there.

**Squares** depend on the products x_i·y_j alone, but for terms of a row or a column. So ‖x − y‖² and
‖(x − x₀)/r − (y − y₀)/s‖² have the same optimum, and the gap of the second times r·s is that of the first. Clouds that lie
apart, or of which one is far smaller, are brought to mean 0 and variance 1, and are no harder than others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from otformer.transport.compiled import compiled, in_threads
from otformer.transport.costs.distances import squared_distances
from otformer.transport.exact.assignment import Floats, Ints
from otformer.transport.exact.small_assignments import ALL_LOOKS, Assigned, assign_stack
from otformer.transport.problem.read_points import read_points
from otformer.transport.ragged.listed import EDGE_ROUNDING, assign, end, room, rows
from otformer.transport.result.exact_finish import solve_exact

STACKED_UP_TO = 256  # points of a cloud of which many are solved in one call
MATRIX_UP_TO = 4096  # points of a cloud whose matrix is formed, 128 MiB in each thread
TOL_ALONE = 1e-12  # gap of what goes through solve_exact, relative to the value, above which it would warn
PROVED = 1e-11  # of the value: a larger gap is no proof
MERGED = 4  # of so many points of a block one is left
COARSER_FROM = 100  # points from which on there is a coarser problem
OWN_NEAREST = 0.6  # share of the rows with a nearest column of their own from which on g = 0 is the start


@compiled
def _write_stack(x: Floats, y: Floats, root: bool, C: Floats) -> None:
    """Write the costs of many clouds, x [B, n, d] and y [B, d, m]."""
    for k in range(len(C)):
        _write_costs(x[k], y[k], root, C[k])


@compiled
def _nearest(C: Floats, to: Ints, back: Ints, queue: Ints) -> int:
    """Match rows with their nearest columns, as far as these are not taken; queue the others, and return their number."""
    many = 0
    for i in range(len(C)):
        row, least, j = C[i], np.inf, 0
        for value in row:
            least = value if value < least else least
        while row[j] != least:
            j += 1
        if back[j] < 0:
            to[i], back[j] = j, i
        else:
            queue[many] = i
            many += 1
    return many


@compiled
def _prove(C: Floats, g: Floats, to: Ints) -> float:
    """Return Σ (c_i,to(i) − g_to(i) − min_j (c_ij − g_j))."""
    gap = 0.0
    for i in range(len(to)):
        row, least = C[i], np.inf
        for j in range(len(g)):
            value = row[j] - g[j]
            least = value if value < least else least
        gap += row[to[i]] - g[to[i]] - least
    return gap


@compiled
def _means(C: Floats, half: Floats, both: Floats) -> None:
    """Write the means of C [n, n] over blocks of rows, [r, n], and over blocks of both, [r, r]."""
    n, r = len(C), len(half)
    for k in range(r):
        row = half[k]
        row[:] = 0.0
        first, last = k * n // r, (k + 1) * n // r
        for i in range(first, last):
            for j in range(n):
                row[j] += C[i, j]
        for t in range(r):
            total = 0.0
            for j in range(t * n // r, (t + 1) * n // r):
                total += row[j]
            both[k, t] = total / ((last - first) * ((t + 1) * n // r - t * n // r))
        for j in range(n):
            row[j] /= last - first


@compiled
def _write_costs(x: Floats, y: Floats, root: bool, C: Floats) -> None:
    """Write squared distances of points x [n, d] and y [d, m], coordinate by coordinate, or their roots."""
    for i in range(len(x)):
        row = C[i]
        row[:] = 0.0
        for k in range(len(y)):
            at, other = x[i, k], y[k]
            for j in range(len(row)):
                gap = at - other[j]
                row[j] += gap * gap
        if root:
            for j in range(len(row)):
                row[j] = np.sqrt(row[j])


@compiled
def _tree_order(points: Floats, order: Ints) -> None:
    """Write points [n, d] in the order of a tree that halves its nodes along their longest side, down to MERGED points."""
    n, d = points.shape
    ends, more = np.array([0, n]), np.empty(0, np.int64)
    for i in range(n):
        order[i] = i
    while n > MERGED * (len(ends) - 1):
        more = np.empty(2 * len(ends) - 1, np.int64)
        for node in range(len(ends) - 1):
            first, last = ends[node], ends[node + 1]
            some = order[first:last].copy()
            longest, axis = -1.0, 0
            for k in range(d):
                low, high = np.inf, -np.inf
                for i in some:
                    low, high = min(low, points[i, k]), max(high, points[i, k])
                if high - low > longest:
                    longest, axis = high - low, k
            along = np.empty(len(some))
            for t in range(len(some)):
                along[t] = points[some[t], axis]
            order[first:last] = some[np.argsort(along)]
            more[2 * node], more[2 * node + 1] = first, (first + last) // 2
        more[-1] = n
        ends = more


class Found(NamedTuple):
    """The matching of two clouds, as pairs of points with masses; its gap; and potentials where they were asked for."""

    i: Ints
    j: Ints
    mass: Floats
    gap: float
    f: Floats | None = None
    g: Floats | None = None


class Pair(NamedTuple):
    """Points x [n, d] and y [m, d], float64 and finite, and their weights a [n] and b [m], of one sum."""

    x: Floats
    y: Floats
    a: Floats
    b: Floats

    @property
    def assigns(self) -> bool:
        """Whether all weigh alike, and are equally many."""
        a, b = self.a, self.b
        return len(a) == len(b) and bool((a == a[0]).all() and a[0] > 0 and (b == b[0]).all())


def match_clouds(pairs: Sequence[Pair], root: bool, potentials: bool = False) -> list[Found]:
    """Find the best plan of every pair of clouds, for squared distances, or with ``root`` distances.

    >>> w = np.full(2, 0.5)
    >>> match_clouds([Pair(np.array([[0.0], [5.0]]), np.array([[4.0], [1.0]]), w, w)], root=True)[0].j.tolist()
    [1, 0]
    """
    found: list[Found | None] = [None] * len(pairs)
    stacks: dict[int, list[int]] = defaultdict(list)
    for k, pair in enumerate(pairs):
        if len(pair.a) <= STACKED_UP_TO and not potentials and pair.assigns:
            stacks[len(pair.a)].append(k)
    for places in stacks.values():
        for k, one in zip(places, _stack([pairs[k] for k in places], root), strict=True):
            found[k] = one
    rest = [k for k, one in enumerate(found) if one is None]

    def work(first: int, last: int) -> None:
        for k in rest[first:last]:
            found[k] = _alone(pairs[k], root, potentials)

    in_threads(work, len(rest), sum(len(pairs[k].a) * len(pairs[k].b) for k in rest))
    return [one for one in found if one is not None]


def _stack(pairs: Sequence[Pair], root: bool) -> list[Found | None]:
    """Solve assignments of one size; None where one is not proved."""
    x, y = (np.stack([pair[side] for pair in pairs]) for side in range(2))
    (count, n, d), y = x.shape, np.ascontiguousarray(y.transpose(0, 2, 1))
    out = Assigned.empty(count, n)

    def work(first: int, last: int) -> None:
        C = np.empty((last - first, n, n))
        _write_stack(x[first:last], y[first:last], root, C)
        assign_stack(C, *out.part(slice(first, last)), ALL_LOOKS)

    in_threads(work, count, count * n * n * d)
    small = np.maximum(PROVED * (out.total + n * out.low), EDGE_ROUNDING * n * out.spread)
    sure = (out.gap <= small) & (small < np.inf)
    gaps, along = (out.gap * [pair.a[0] for pair in pairs]).tolist(), np.arange(n)
    each = zip(pairs, out.to, gaps, sure.tolist(), strict=True)
    return [Found(along, to, pair.a, gap) if fine else None for pair, to, gap, fine in each]


def _alone(pair: Pair, root: bool, potentials: bool) -> Found:
    """Solve one problem of any kind."""
    x, y, a, b = pair
    if len(a) <= MATRIX_UP_TO and not potentials and pair.assigns:
        to, gap, small = _matched(x, y, root)
        difference = x - y[to]
        squares = (difference * difference).sum(1)
        if gap <= max(PROVED * float((np.sqrt(squares) if root else squares).sum()), small):
            return Found(np.arange(len(a)), to, a, gap * float(a[0]))
    r = solve_exact(read_points(x, y, a, b, None, metric="euclidean" if root else "sqeuclidean", executor="auto"), TOL_ALONE)
    return Found(*r.pairs, r.gap, *(_everywhere(x, y, *r.potentials, root) if potentials else ()))


def _everywhere(x: Floats, y: Floats, f: Floats, g: Floats, root: bool) -> tuple[Floats, Floats]:
    """Give points without weight, where potentials are −inf, the largest that are feasible."""
    f, g = f.copy(), g.copy()
    for own, other, p, q in ((f, g, x, y), (g, f, y, x)):
        absent, there = np.isneginf(own), np.isfinite(other)
        if absent.any():
            c = squared_distances(p[absent], q[there])
            own[absent] = ((np.sqrt(c) if root else c) - other[there]).min(1)
    return f, g


def _matched(x: Floats, y: Floats, root: bool) -> tuple[Ints, float, float]:
    """Return the column of every row, the gap of the sum of costs, and what is rounding of it."""
    n = len(x)
    x, y, factor = _comparable(x, y, root)
    C = np.empty((n, n))
    _write_costs(x, np.ascontiguousarray(y.T), root, C)
    on, space = rows(C, np.zeros(n)), room(n)
    many = _nearest(C, on.to, on.back, on.queue)
    to = on.to
    if many <= (1 - OWN_NEAREST) * n:
        end(on, space, many)
    else:
        first, second = np.empty(n, np.int64), np.empty(n, np.int64)
        _tree_order(x, first)
        _tree_order(y, second)
        _write_costs(x[first], np.ascontiguousarray(y[second].T), root, C)
        on = rows(C, _coarse(C))
        assign(on, space)
        to[first] = second[on.to]
    return to, factor * _prove(C, on.g, on.to), factor * EDGE_ROUNDING * n


def _comparable(x: Floats, y: Floats, root: bool) -> tuple[Floats, Floats, float]:
    """Return points of ordinary size that have the same optimum, and what a gap between these is to be multiplied by.

    Clouds that lie together and are of one size are only scaled, by a power of 2: their differences keep all digits.
    """
    scale = 2.0 ** math.frexp(max(float(abs(x).max()), float(abs(y).max())))[1]
    if not 0 < scale < math.inf:
        scale = 1.0
    x, y = x / scale, y / scale
    if root:
        return x, y, scale
    centres = x.mean(0), y.mean(0)
    centred = x - centres[0], y - centres[1]
    r, s = (math.sqrt(float((t * t).mean())) for t in centred)
    apart = float(abs(centres[0] - centres[1]).max())
    if min(r, s) == 0 or (apart <= max(r, s) / 2 and max(r, s) <= 2 * min(r, s)):
        return x, y, scale * scale
    return centred[0] / r, centred[1] / s, scale * scale * r * s


def _coarse(C: Floats) -> Floats:
    """Return potentials of the columns of C [n, n], in the order of the tree, from those of a problem of fewer."""
    n = len(C)
    if n < COARSER_FROM:
        return np.zeros(n)
    fewer = n // MERGED
    half, both = np.empty((fewer, n)), np.empty((fewer, fewer))
    _means(C, half, both)
    on = rows(both, _coarse(both))
    assign(on, room(fewer))
    f = (both - on.g).min(1)
    return np.asarray((half - f[:, None]).min(0))
