"""A sparse graph that grows, with the best flow on it: matchings for equal weights, trees for all others (same
interface)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from otformer.transport.compiled import by_row
from otformer.transport.exact.assignment import Floats, Ints, match, settle
from otformer.transport.exact.simplex import LEVEL, Span, pivot, plant, potentials

PORTION, FIRST_PORTION = 0.1, 64  # seconds of work between two looks at the clock; rows or pivots of the first
MOST_PIVOTS = 2**62
SURE_PIVOTS, PIVOTS_PER_NODE = 10**5, 100  # of a simplex in float64, whose rounding may lead it around in a circle
AGAIN = 3  # times that pivots go on from potentials made anew


class Clock:
    """When to stop, in seconds from now; never if None."""

    def __init__(self, seconds: float | None) -> None:
        self.end = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def rung(self) -> bool:
        return time.monotonic() > self.end

    @property
    def left(self) -> float:
        return max(0.0, self.end - time.monotonic())

    def portions(self, many: int) -> Iterator[tuple[int, int]]:
        """Parts of range(many) in order, each as large as takes PORTION seconds, until it is time; one at least.

        >>> list(Clock(None).portions(100)), list(Clock(1e-9).portions(100))
        ([(0, 64), (64, 100)], [(0, 64)])
        """
        first, size = 0, FIRST_PORTION
        while first < many:
            start = time.monotonic()
            yield first, min(first + size, many)
            first += size
            if self.rung:
                return
            size = max(1, int(size * min(4.0, PORTION / max(time.monotonic() - start, 1e-6))))


class Sent(NamedTuple):
    """What goes where: rows, columns, how much (whole numbers), and what a unit costs, [E] each."""

    i: Ints
    j: Ints
    units: Ints
    cost: Floats

    def gap(self, f: Floats, g: Floats) -> float:
        """Σ units |c − f_i − g_j|; rounded as f_i = min (c − g_j) is: none is negative, but of a forbidden pair."""
        return float(self.units @ abs((self.cost - g[self.j]) - f[self.i]))


class Graph(Protocol):
    """Edges with costs, a flow on them that nothing on them improves, and potentials that prove it."""

    method: str

    @property
    def f(self) -> Floats: ...

    @property
    def g(self) -> Floats: ...

    def add(self, i: Ints, j: Ints, cost: Floats) -> None:
        """Append edges (i, j) with their costs."""
        ...

    def run(self, clock: Clock, far: float) -> None:
        """The best flow on all edges. What cannot be sent stays, and potentials there are ``far`` from those of the rest."""
        ...

    def pairs(self) -> tuple[Ints, Ints]:
        """The edges (i, j), [E] each."""
        ...

    def sent(self) -> Sent: ...

    def unsent(self) -> tuple[Ints, Ints]:
        """What rows still have and columns still want."""
        ...


def empty_graph(supply: Ints, demand: Ints, u: Floats, v: Floats) -> Graph:
    """Without edges yet; u [n] and v [m] are the potentials to begin with."""
    one_to_one = len(supply) == len(demand) and (supply == 1).all() and (demand == 1).all()
    return Matching(len(supply), v) if one_to_one else Tree(supply, demand, u, v)


class Matching:
    """One to one (assignment.py)."""

    method = "successive shortest paths"

    def __init__(self, n: int, v: Floats) -> None:
        self.to, self.back = np.full(n, -1), np.full(n, -1)
        self.f, self.g = np.zeros(n), v.copy()
        self.i, self.start, self.column, self.cost = _no_edges()

    def add(self, i: Ints, j: Ints, cost: Floats) -> None:
        i, j, cost = np.append(self.i, i), np.append(self.column, j), np.append(self.cost, cost)
        self.start, order = by_row(i, len(self.to))
        self.i, self.column, self.cost = i[order], j[order], cost[order]

    def run(self, clock: Clock, far: float) -> None:
        edges = self.start, self.column, self.cost, self.to, self.back, self.f, self.g
        self.g -= np.median(self.g)  # most are small then, and have their digits, however far away a few points are
        settle(*edges)
        stuck = np.zeros(len(self.to), np.bool_)
        for first, last in clock.portions(len(self.to)):
            match(*edges, stuck, far, first, last)

    def pairs(self) -> tuple[Ints, Ints]:
        return self.i, self.column

    def sent(self) -> Sent:
        e = np.flatnonzero(self.to[self.i] == self.column)
        e = e[np.append(True, self.i[e][1:] != self.i[e][:-1])] if len(e) else e  # an edge that was added twice
        return Sent(self.i[e], self.column[e], np.ones(len(e), np.int64), self.cost[e])

    def unsent(self) -> tuple[Ints, Ints]:
        return (self.to < 0).astype(np.int64), (self.back < 0).astype(np.int64)


class Tree:
    """Any weights, whole numbers (simplex.py)."""

    method = "a network simplex"

    def __init__(self, supply: Ints, demand: Ints, u: Floats, v: Floats) -> None:
        n, m = self.shape = len(supply), len(demand)
        root = n + m
        self.source = np.concatenate([np.arange(n), np.full(m, root)])  # artificial arcs come first
        self.target = np.concatenate([np.full(n, root), np.arange(n, root)])
        self.cost, self.flow = np.concatenate([u, v]), np.zeros(root, np.int64)
        self.left = np.concatenate([supply, demand])
        self.tree: Span | None = None
        self.p, self.far = np.zeros(root + 1), 0.0

    def add(self, i: Ints, j: Ints, cost: Floats) -> None:
        self.source, self.target = np.append(self.source, i), np.append(self.target, j + self.shape[0])
        self.cost, self.flow = np.append(self.cost, cost), np.append(self.flow, np.zeros(len(i), np.int64))

    def run(self, clock: Clock, far: float) -> None:
        n, root = self.shape[0], len(self.p) - 1
        tree, self.far = self.tree, far
        if tree is None:
            i, j = self.source[root:], self.target[root:]
            order = root + np.argsort(self.cost[root:] - self.cost[i] - self.cost[j], kind="stable")
            tree = self.tree = plant(self.source, self.target, order, self.cost, self.flow, self.left, n)
        arcs = self.source, self.target, self.cost, self.flow, tree, self.p
        block, at = 2 * math.isqrt(len(self.cost)) + 1, root - 1
        for _ in range(AGAIN):
            self._anew(tree)
            total = 0
            for first, last in clock.portions(SURE_PIVOTS + PIVOTS_PER_NODE * root):
                made, at = pivot(*arcs, at, block, last - first)
                total += made
                if made < last - first:
                    break
            if total == 0:
                return
        self._anew(tree)

    def _anew(self, tree: Span) -> None:
        """Potentials without the rounding of many changes, most of them small (as in `Matching.run`)."""
        potentials(tree, self.p, self.cost)
        self.p[-1] -= np.median(self.p)
        potentials(tree, self.p, self.cost)

    @property
    def f(self) -> Floats:
        n = self.shape[0]
        return self.p[:n] + self.far * (self._level(slice(n)) - 1)

    @property
    def g(self) -> Floats:
        n, m = self.shape
        return -self.p[n : n + m] - self.far * (self._level(slice(n, n + m)) - 1)

    def _level(self, nodes: slice) -> Span:
        assert self.tree is not None
        return self.tree[nodes, LEVEL]

    def pairs(self) -> tuple[Ints, Ints]:
        n, root = self.shape[0], len(self.p) - 1
        return self.source[root:], self.target[root:] - n

    def sent(self) -> Sent:
        n, root = self.shape[0], len(self.p) - 1
        return carried(self.source, self.target, self.flow, self.cost[root:], *np.split(self.left, [n]))

    def unsent(self) -> tuple[Ints, Ints]:
        sent, (out, into) = self.sent(), np.split(self.left.copy(), [self.shape[0]])
        np.subtract.at(out, sent.i, sent.units)
        np.subtract.at(into, sent.j, sent.units)
        return out, into


def carried(source: Ints, target: Ints, flow: Ints, cost: Floats, supply: Ints, demand: Ints) -> Sent:
    """What arcs carry of ``supply`` to ``demand``. Those of ``cost`` [E] come after one artificial arc per node.

    As long as artificial arcs carry something a node may pass on more than it has: then only so much counts.
    """
    n, root = len(supply), len(supply) + len(demand)
    e = np.flatnonzero(flow[root:])
    i, j, units = source[root + e], target[root + e] - n, flow[root + e]
    if flow[:root].any():
        units = within(j, within(i, units, supply), demand)
    return Sent(i, j, units, cost[e])


def within(at: Ints, units: Ints, most: Ints) -> Ints:
    """As much of ``units`` [E] as every node can have, first come first served.

    >>> within(np.array([0, 1, 0, 0]), np.array([3, 5, 4, 2]), np.array([5, 9])).tolist()
    [3, 5, 2, 0]
    """
    order = np.argsort(at, kind="stable")
    before = np.cumsum(units[order]) - units[order]
    first = np.searchsorted(at[order], at[order])
    kept = np.empty_like(units)
    kept[order] = np.clip(most[at[order]] - (before - before[first]), 0, units[order])
    return kept


def _no_edges() -> tuple[Ints, Ints, Ints, Floats]:
    none = np.empty(0, np.int64)
    return none, none, none, np.empty(0)
