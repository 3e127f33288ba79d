r"""Assignment on a sparse graph to within ε, then ε/8, ε/64, …: an auction in phases, each ended by shortest paths.

Rows i and columns j are matched one to one along edges e = (i, j) of cost c_e (assignment.py). With f_i = min_e (c_e − g_j)
all reduced costs c_e − f_i − g_j are ≥ 0, and a matching of edges where they are ≤ ε is within n·ε of the best.

**A bid** [1]. A free row takes the column whose c_e − g_j is least, from the row that has it, which is free now. Its g
falls to where the row's second column is as good but for ε: g_j = c_e − second − ε. What the row pays, second + ε, is then
within ε of its least, and stays so: other g only fall too.

**The end of a phase.** The last rows bid each other up all across the graph, ε by ε. So bids are counted, and what is free
after so many is matched along shortest paths, which see an edge in use as if it cost f_i + g_j, no more than ε less than it
does. From one phase to the next the edges stay that are within ε/8 of their row's least.

On 20,000 points in space all phases down to 10⁻¹⁰ take 0.2 s on one core, from g = 0. Where ε is small beside what costs
differ by, the shortest paths that end it exactly are short.

[1] D. P. Bertsekas: The auction algorithm: a distributed relaxation method for the assignment problem. Annals of OR, 1988.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otformer.transport.compiled import compiled
from otformer.transport.exact.assignment import Floats, Ints, match

if TYPE_CHECKING:
    from otformer.transport.exact.flow_graph import Clock

STEP = 8.0  # from one ε to the next
BIDS = 32  # for every row in a phase, on average
LEAST_SHARE = 2.0**-47  # of costs and potentials: no ε is less


class Edges(NamedTuple):
    """Edges in the order of rows, those of row i from start[i] on; the matching as `settle` has it; and potentials."""

    start: Ints
    column: Ints
    cost: Floats
    to: Ints
    back: Ints
    f: Floats
    g: Floats


def scale(on: Edges, first: float, last: float, clock: Clock) -> None:
    """Match nearly as well as can be, in place: to within ``last`` of a row's least, in phases from ``first`` on.

    Rows stay free where the graph has no place for them, or time is up.
    """
    n = len(on.to)
    last = max(last, LEAST_SHARE * float(np.abs(on.cost).max(initial=0.0) + np.abs(on.g).max(initial=0.0)))
    eps, queue = max(first, last), np.empty(n, np.int64)
    stuck = np.zeros(len(on.g), np.bool_)
    while not clock.expired:
        _bid(*on, eps, queue, _keep(*on, eps, queue), BIDS * n)
        _floors(*on)
        stuck[:] = False
        for begin, end in clock.portions(n):
            match(*on, stuck, 0.0, begin, end)
        if eps <= last:
            return
        eps = max(eps / STEP, last)


def typical_range(on: Edges) -> float:
    """Return how far the edges of a row lie apart, the median over rows."""
    ranges = np.zeros(len(on.to))
    _ranges(on.start, on.column, on.cost, on.g, ranges)
    return float(np.median(ranges))


@compiled
def _ranges(start: Ints, column: Ints, cost: Floats, g: Floats, ranges: Floats) -> None:
    for i in range(len(ranges)):
        least, most = np.inf, -np.inf
        for e in range(start[i], start[i + 1]):
            value = cost[e] - g[column[e]]
            least, most = min(least, value), max(most, value)
        ranges[i] = max(0.0, most - least)


@compiled
def _floors(start: Ints, column: Ints, cost: Floats, to: Ints, back: Ints, f: Floats, g: Floats) -> None:
    """Set f_i = min (c_e − g_j)."""
    for i in range(len(to)):
        f[i] = np.inf
        for e in range(start[i], start[i + 1]):
            f[i] = min(f[i], cost[e] - g[column[e]])


@compiled
def _keep(
    start: Ints, column: Ints, cost: Floats, to: Ints, back: Ints, f: Floats, g: Floats, eps: float, queue: Ints
) -> int:
    """Free the rows whose edge is not within ε of their least; queue all free ones, and return how many there are."""
    many = 0
    for i in range(len(to)):
        least, own = np.inf, np.inf
        for e in range(start[i], start[i + 1]):
            value = cost[e] - g[column[e]]
            least = min(least, value)
            if column[e] == to[i]:
                own = min(own, value)
        if to[i] >= 0 and own - least > eps:
            back[to[i]], to[i] = -1, -1
        if to[i] < 0:
            queue[many] = i
            many += 1
    return many


@compiled
def _bid(
    start: Ints, column: Ints, cost: Floats, to: Ints, back: Ints, f: Floats, g: Floats, eps: float, queue: Ints,
    many: int, most: int,
) -> None:  # fmt: skip
    """Let the rows of the queue, a ring of ``many``, bid in turn, up to ``most`` times."""
    at, n = 0, len(queue)
    for _ in range(most):
        if many == 0:
            return
        i, at, many = queue[at], (at + 1) % n, many - 1
        best, second, e = np.inf, np.inf, -1
        for k in range(start[i], start[i + 1]):
            value = cost[k] - g[column[k]]
            if value < best:
                best, second, e = value, best, k
            elif value < second:
                second = value
        if e < 0:
            continue
        j = column[e]
        g[j] -= eps + (second - best if second < np.inf else 0.0)
        other, back[j], to[i] = back[j], i, j
        if other >= 0:
            to[other], queue[(at + many) % n] = -1, other
            many += 1
