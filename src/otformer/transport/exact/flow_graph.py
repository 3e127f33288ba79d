"""A sparse graph that grows, with the best flow on it and the potentials that prove it.

Matchings serve equal weights, trees all others; both have the same methods, and `empty_graph` chooses. A matching begins
with an auction (scaling.py).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from otformer.transport.compiled import by_row
from otformer.transport.exact.assignment import Floats, Ints, match, middle, settle
from otformer.transport.exact.scaling import Edges, scale, typical_range
from otformer.transport.exact.simplex import LEVEL, PARENT, Span, no_tree, pivot, plant, recompute

logger = logging.getLogger("otformer")
TELL_EVERY = 1.0  # seconds
PORTION, FIRST_PORTION = 0.1, 64  # seconds of work between two looks at the clock; rows or pivots of the first
SURE_PIVOTS, PIVOTS_PER_NODE = 10**5, 100  # of a simplex in float64, whose rounding may lead it around in a circle
FIRST_ERROR, LAST_ERROR = 0.1, 1e-5  # of an auction before shortest paths, as a share of what a row's edges differ by
AGAIN = 3  # times that pivots go on from recomputed potentials


class Clock:
    """Track a time limit in seconds, None means no limit; and tell the logger ``otformer`` how a long solve goes."""

    def __init__(self, seconds: float | None) -> None:
        self.start = self.told = time.monotonic()
        self.end = math.inf if seconds is None else self.start + seconds

    def tell(self, what: Callable[[], str]) -> None:
        """Log what has been reached, once a second, at level INFO."""
        now = time.monotonic()
        if now >= self.told + TELL_EVERY and logger.isEnabledFor(logging.INFO):
            self.told = now
            logger.info("exact transport, %.0f s: %s", now - self.start, what())

    @property
    def expired(self) -> bool:
        return time.monotonic() > self.end

    @property
    def remaining(self) -> float:
        return max(0.0, self.end - time.monotonic())

    def half(self) -> Clock:
        """Return a clock for half of what remains."""
        return Clock(None if self.end == math.inf else self.remaining / 2)

    def portions(self, many: int) -> Iterator[tuple[int, int]]:
        """Yield parts of range(many) in order, each of about PORTION seconds of work, until time is up; one at least.

        >>> list(Clock(None).portions(100)), list(Clock(1e-9).portions(100))
        ([(0, 64), (64, 100)], [(0, 64)])
        """
        first, size = 0, FIRST_PORTION
        while first < many:
            start = time.monotonic()
            yield first, min(first + size, many)
            first += size
            if self.expired:
                return
            size = max(1, int(size * min(4.0, PORTION / max(time.monotonic() - start, 1e-6))))


class Sent(NamedTuple):
    """Hold what is sent where: rows, columns, how much (whole numbers), and what a unit costs, [E] each."""

    i: Ints
    j: Ints
    units: Ints
    cost: Floats

    def gap(self, f: Floats, g: Floats) -> float:
        """Sum units |c − f_i − g_j|, rounded as f_i = min (c − g_j) is: no term is negative, but of a forbidden pair."""
        return float(self.units @ abs((self.cost - g[self.j]) - f[self.i]))


class Matching:
    """Rows matched with columns one to one (assignment.py)."""

    method = "successive shortest paths"

    def __init__(self, n: int, v: Floats) -> None:
        self.to, self.back = np.full(n, -1), np.full(n, -1)
        self.f, self.g = np.zeros(n), v.copy()
        self.i = self.start = self.column = np.empty(0, np.int64)
        self.cost = np.empty(0)

    def add(self, i: Ints, j: Ints, cost: Floats) -> None:
        """Append edges (i, j) with their costs, [E] each."""
        i, j, cost = np.append(self.i, i), np.append(self.column, j), np.append(self.cost, cost)
        self.start, order = np.empty(len(self.to) + 1, np.int64), np.empty(len(i), np.int64)
        by_row(i, self.start, order)
        self.i, self.column, self.cost = i[order], j[order], cost[order]

    def run(self, clock: Clock, far: float) -> None:
        """Find the best flow on all edges. Unsent mass stays at its point; potentials there are ``far`` from the others."""
        edges = Edges(self.start, self.column, self.cost, self.to, self.back, self.f, self.g)
        self.g -= middle(self.g)  # most are small then, and have their digits, however far away a few points are
        if (self.to < 0).all():
            apart = typical_range(edges)
            scale(edges, FIRST_ERROR * apart, LAST_ERROR * apart, clock)
        settle(*edges)
        stuck = np.zeros(len(self.to), np.bool_)
        for first, last in clock.portions(len(self.to)):
            match(*edges, stuck, far, first, last)

    def pairs(self) -> tuple[Ints, Ints]:
        """Return the edges (i, j), [E] each."""
        return self.i, self.column

    def sent(self) -> Sent:
        """Return the flow."""
        e = np.flatnonzero(self.to[self.i] == self.column)
        e = e[np.append(True, self.i[e][1:] != self.i[e][:-1])] if len(e) else e  # an edge that was added twice
        return Sent(self.i[e], self.column[e], np.ones(len(e), np.int64), self.cost[e])

    def unsent(self) -> tuple[Ints, Ints]:
        """Return what rows still have to send, [n], and columns to receive, [m]."""
        return (self.to < 0).astype(np.int64), (self.back < 0).astype(np.int64)


class Tree:
    """A spanning tree of arcs and its flow, for any weights in whole numbers (simplex.py). Methods are those of `Matching`.

    Nodes are the rows, the columns and a root. Potentials u [n] and v [m] to begin with are the costs of the artificial
    arcs, one for every node, which are on the tree alone.
    """

    method = "a network simplex"

    def __init__(self, supply: Ints, demand: Ints, u: Floats, v: Floats) -> None:
        n, m = self.shape = len(supply), len(demand)
        self.root = n + m
        self.source, self.target, self.cost = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        self.start, self.weights = np.concatenate([u, v]), np.concatenate([supply, demand])
        self.planted, self.on_tree = False, no_tree(self.root)
        self.p, self.far = np.zeros(self.root + 1), 0.0

    @property
    def tree(self) -> Span:
        return self.on_tree[0]

    def add(self, i: Ints, j: Ints, cost: Floats) -> None:
        self.source, self.target = np.append(self.source, i), np.append(self.target, j + self.shape[0])
        self.cost = np.append(self.cost, cost)

    def run(self, clock: Clock, far: float) -> None:
        self.far = far
        if not self.planted:
            self.plant(*np.split(self.start, [self.shape[0]]))
        for _ in range(AGAIN):
            self._renew()
            made, _ = self.pivot(clock, SURE_PIVOTS + PIVOTS_PER_NODE * self.root)
            if made == 0:
                return
        self._renew()

    def plant(self, f: Floats, g: Floats) -> None:
        """Make a tree of the arcs that are nearly tight for these potentials, and send along it what it can carry."""
        i, j = self.pairs()
        order, self.planted = np.argsort(self.cost - f[i] - g[j], kind="stable"), True
        plant(self.source, self.target, self.cost, order, self.start, self.weights, self.shape[0], *self.on_tree)

    def pivot(self, clock: Clock, most: int) -> tuple[int, bool]:
        """Make up to ``most`` pivots, until time is up; return how many, and whether the flow is optimal now."""
        total, at, block = 0, -1, 2 * math.isqrt(len(self.cost)) + 1
        for first, last in clock.portions(most):
            made, at = self._pivot(at, block, last - first)
            total += made
            if made < last - first:
                return total, True
        return total, False

    def _pivot(self, at: int, block: int, most: int) -> tuple[int, int]:
        """Make up to ``most`` pivots, pricing blocks of arcs after the arc ``at``; return how many, and the last arc."""
        return pivot(self.source, self.target, self.cost, *self.on_tree, self.p, at, block, most)

    def _renew(self) -> None:
        """Recompute potentials without the rounding of many changes, most of them small (as in `Matching.run`)."""
        recompute(self.tree, self.on_tree[2], self.p, 1)
        self.p[-1] -= middle(self.p)
        recompute(self.tree, self.on_tree[2], self.p, 1)

    @property
    def f(self) -> Floats:
        n = self.shape[0]
        return self.p[:n] + self.far * (self.tree[LEVEL, :n] - 1)

    @property
    def g(self) -> Floats:
        columns = slice(self.shape[0], self.root)
        return -self.p[columns] - self.far * (self.tree[LEVEL, columns] - 1)

    def pairs(self) -> tuple[Ints, Ints]:
        return self.source, self.target - self.shape[0]

    def artificial(self) -> Ints:
        """Return what artificial arcs carry."""
        tree, _, _, flow = self.on_tree
        return flow[tree[PARENT, :-1] == self.root]

    def sent(self) -> Sent:
        """As long as artificial arcs carry something a node may pass on more than it has: then only so much counts."""
        tree, _, cost, flow = self.on_tree
        above = tree[PARENT, :-1]
        at = np.flatnonzero((above < self.root) & (flow > 0))
        i, j = np.minimum(at, above[at]), np.maximum(at, above[at]) - self.shape[0]
        units = flow[at]
        if self.artificial().any():
            supply, demand = np.split(self.weights, [self.shape[0]])
            units = within(j, within(i, units, supply), demand)
        return Sent(i, j, units, cost[at])

    def unsent(self) -> tuple[Ints, Ints]:
        sent, (out, into) = self.sent(), np.split(self.weights.copy(), [self.shape[0]])
        np.subtract.at(out, sent.i, sent.units)
        np.subtract.at(into, sent.j, sent.units)
        return out, into


Graph = Matching | Tree


def empty_graph(supply: Ints, demand: Ints, u: Floats, v: Floats) -> Graph:
    """Return the graph that suits these weights, without edges; u [n] and v [m] are the potentials to begin with."""
    one_to_one = len(supply) == len(demand) and (supply == 1).all() and (demand == 1).all()
    return Matching(len(supply), v) if one_to_one else Tree(supply, demand, u, v)


def tree_of(matching: Matching, supply: Ints, demand: Ints, clock: Clock) -> Tree:
    """Return a tree with the edges of a matching, and the best flow on them."""
    tree = Tree(supply, demand, matching.f, matching.g)
    tree.add(*matching.pairs(), matching.cost)
    tree.run(clock, 0.0)
    return tree


def within(at: Ints, units: Ints, most: Ints) -> Ints:
    """Return as much of ``units`` [E] as every node can have, first come first served.

    >>> within(np.array([0, 1, 0, 0]), np.array([3, 5, 4, 2]), np.array([5, 9])).tolist()
    [3, 5, 2, 0]
    """
    order = np.argsort(at, kind="stable")
    before = np.cumsum(units[order]) - units[order]
    first = np.searchsorted(at[order], at[order])
    kept = np.empty_like(units)
    kept[order] = np.clip(most[at[order]] - (before - before[first]), 0, units[order])
    return kept
