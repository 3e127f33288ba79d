r"""Assignments of matrices C [n, n], exactly: bids and shortest paths on short lists of columns.

Of every row i a *list* has the `ON_LIST` columns of least c_ij − g_j, and a *floor*: no other column was below it when the
list was made. Potentials g only fall here, by bids and by searches, so c_ij − g_j only rises, and a floor stays true. Hence

- the least and the second of a row are those of its list, as long as both are at or below its floor; otherwise the list is
  made anew. Most bids and most steps of a search look at a few pairs instead of n.
- every *block* of columns has a floor too, and a new list is made of blocks whose floor is below its last.
- in a search the floor stands for all columns that are not listed. Only where the search comes as far as a floor, and a new
  list has the same, it looks at the whole row.

**First** comes an auction [1], in phases of ε, ε/5, …, as in exact/scaling.py. A phase ends after so many bids, and what is
free then is matched along shortest paths. **At the end** rows whose column is not their least are free, and take it where
that lowers a price, as in exact/small_assignments.py. From all others a shortest path is sought, as on a whole matrix.

[1] D. P. Bertsekas: The auction algorithm: a distributed relaxation method for the assignment problem. Annals of OR, 1988.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from otformer.transport.compiled import compiled
from otformer.transport.exact.assignment import Floats, Ints

ON_LIST = 16  # columns of a row
LANES = 32  # columns of a block
EPS_FIRST, EPS_LAST, EPS_DIVISOR = (
    0.2,
    0.01,
    5.0,
)  # ε as a share of how far the costs of a list lie apart, and from one ε to the next
BIDS_EACH, TAKEN_EACH = 8, 2  # for every row: bids in a phase at most, and at the end
EDGE_ROUNDING = 2.0**-50  # of costs: an edge that is so much above the least of its row is tight


class Rows(NamedTuple):
    """All that a search reads and writes: C [n, n], potentials g, the matching both ways (−1: none), and the lists."""

    C: Floats
    g: Floats
    to: Ints
    back: Ints
    column: Ints  # [n, k], of least c − g when the list was made, in that order
    cost: Floats  # [n, k]
    floor: Floats  # [n]
    block: Floats  # [n, n/LANES]: no column of a block was below it when it was looked at
    room: Floats  # [k]
    queue: Ints  # [n]


class Search(NamedTuple):
    """Room for a search: distances of columns j and of floors n + i, inf where not reached; all else is overwritten."""

    distance: Floats  # [2n]
    by: Ints  # [n]: the row that a column is reached from
    open: Ints  # [2n]: items that are reached and not passed
    passed: Ints  # [n]: columns
    begin: Floats  # [n]: the distance of a row
    f: Floats  # [n]


def rows(C: Floats, g: Floats) -> Rows:
    """Return C [n, n] and potentials g [n], which will fall, with nothing matched and no lists yet."""
    n, k = len(C), min(ON_LIST, len(C))
    to, back, queue = (np.full(n, -1) for _ in range(3))
    lists, block = (np.zeros((n, k), np.int64), np.full((n, k), np.inf)), np.full((n, -(-n // LANES)), -np.inf)
    return Rows(C, g, to, back, *lists, np.full(n, -np.inf), block, np.empty(k), queue)


def room(n: int) -> Search:
    """Return room for searches among n rows."""
    by, items, passed = (np.empty(size, np.int64) for size in (n, 2 * n, n))
    return Search(np.full(2 * n, np.inf), by, items, passed, np.empty(n), np.empty(n))


@compiled
def _list(on: Rows, i: int) -> None:
    """Make the list of row i. Those that are on it, or on that of the row before, bound what comes."""
    g, row, least, column = on.g, on.C[i], on.room, on.column[i]
    k, bound = len(least), np.inf
    before = i if on.floor[i] > -np.inf else i - 1
    if before >= 0 and on.floor[before] > -np.inf:
        bound = -np.inf
        for j in on.column[before]:
            bound = max(bound, row[j] - g[j])
        bound = np.nextafter(bound, np.inf)  # the pairs themselves will be found below it
    least[:] = bound
    for b in range(on.block.shape[1]):
        if on.block[i, b] >= least[k - 1]:
            continue
        first = b * LANES
        some, h, low = row[first : first + LANES], g[first : first + LANES], np.inf
        for t in range(len(some)):
            value = some[t] - h[t]
            low = value if value < low else low
        on.block[i, b] = low
        if low < least[k - 1]:
            for t in range(len(some)):
                value = some[t] - h[t]
                if value < least[k - 1]:
                    at = k - 1
                    while at > 0 and value < least[at - 1]:
                        least[at], column[at] = least[at - 1], column[at - 1]
                        at -= 1
                    least[at], column[at] = value, first + t
    for t in range(k):
        on.cost[i, t] = row[column[t]]
    on.floor[i] = least[k - 1] if k < len(g) else np.inf


@compiled
def _two_least(on: Rows, i: int) -> tuple[int, float, float]:
    """Return where on the list the least c_ij − g_j of row i is, it, and the second."""
    while True:
        place, least, second = 0, np.inf, np.inf
        for t in range(len(on.room)):
            value = on.cost[i, t] - on.g[on.column[i, t]]
            if value < least:
                place, least, second = t, value, least
            elif value < second:
                second = value
        if second <= on.floor[i]:
            return place, least, second
        _list(on, i)


@compiled
def _free(on: Rows, slack: float) -> int:
    """Free the rows whose column is not within ``slack`` of their least; queue all free rows and return their number."""
    many = 0
    for i in range(len(on.to)):
        j = on.to[i]
        if j >= 0 and on.C[i, j] - on.g[j] - _two_least(on, i)[1] > slack:
            on.back[j], on.to[i] = -1, -1
        if on.to[i] < 0:
            on.queue[many] = i
            many += 1
    return many


@compiled
def _bid(on: Rows, eps: float, many: int, most: int) -> None:
    """Let the rows of the queue, a ring of ``many``, bid in turn, up to ``most`` times."""
    at, n = 0, len(on.to)
    while many > 0 and most > 0:
        i, at, many, most = on.queue[at], (at + 1) % n, many - 1, most - 1
        place, least, second = _two_least(on, i)
        j = on.column[i, place]
        on.g[j] -= eps + (second - least if second < np.inf else 0.0)
        other, on.back[j], on.to[i] = on.back[j], i, j
        if other >= 0:
            on.to[other], on.queue[(at + many) % n] = -1, other
            many += 1


@compiled
def _reduce(on: Rows, many: int, most: int) -> None:
    """Let rows of the queue take their least column while its g falls by that: two rows would take one from each other."""
    for q in range(many):
        i = on.queue[q]
        while i >= 0 and most > 0:
            most -= 1
            place, least, second = _two_least(on, i)
            j = on.column[i, place]
            if second == least and on.back[j] >= 0:
                for t in range(len(on.room)):
                    other = on.column[i, t]
                    if on.cost[i, t] - on.g[other] == least and on.back[other] < 0:
                        j = other
            owner = on.back[j]
            if owner >= 0 and second == least:
                break
            on.g[j] -= second - least if second < np.inf else 0.0
            on.back[j], on.to[i] = i, j
            if owner >= 0:
                on.to[owner] = -1
            i = owner


@compiled
def _match(on: Rows, space: Search, source: int) -> None:
    """Match a free row along a shortest path."""
    n, (distance, by, items, passed, begin, f) = len(on.g), space
    i, base, many, fixed, nearest, end, whole = source, 0.0, 0, 0, np.inf, -1, False
    f[i], begin[i] = _two_least(on, i)[1], 0.0
    while True:
        if on.floor[i] == -np.inf:
            _list(on, i)
        shift = begin[i] - f[i]
        for b in range(on.block.shape[1] if whole else 1):
            first, last = (b * LANES, min(b * LANES + LANES, n)) if whole else (0, len(on.room))
            if whole and on.block[i, b] + shift >= nearest:
                continue
            for t in range(first, last):
                j = t if whole else on.column[i, t]
                length = (on.C[i, j] if whole else on.cost[i, t]) - on.g[j] + shift
                length = length if length > base else base
                if length < distance[j] and length < nearest:
                    if distance[j] == np.inf:
                        items[many] = j
                        many += 1
                    distance[j], by[j] = length, i
                    if on.back[j] < 0:
                        nearest, end = length, j
        if not whole and on.floor[i] + shift < nearest:
            distance[n + i], items[many] = max(base, on.floor[i] + shift), n + i
            many += 1
        least, at = np.inf, -1
        for t in range(many):
            if distance[items[t]] < least:
                least, at = distance[items[t]], t
        if least >= nearest:
            break
        item, base, many = items[at], least, many - 1
        items[at], whole = items[many], False
        if item >= n:
            i, distance[item] = item - n, np.inf
            floor = on.floor[i]
            _list(on, i)
            whole = on.floor[i] <= floor
        else:
            passed[fixed], i = item, on.back[item]
            fixed, begin[i], f[i] = fixed + 1, base, on.C[i, item] - on.g[item]
    for t in range(fixed):
        on.g[passed[t]] -= nearest - distance[passed[t]]
        distance[passed[t]] = np.inf
    for t in range(many):
        distance[items[t]] = np.inf
    while end >= 0:  # the edges of the path change sides
        i = by[end]
        on.back[end] = i
        end, on.to[i] = on.to[i], end


@compiled
def assign(on: Rows, space: Search) -> None:
    """Find the best matching of all rows, starting from potentials g."""
    n, width, top = len(on.g), 0.0, 0.0
    for i in range(n):
        _list(on, i)
        width += (on.room[-1] - on.room[0]) / n
        top = max(top, on.room[-1])
    eps = EPS_FIRST * width
    while eps > EPS_LAST * width:
        _bid(on, eps, _free(on, eps), BIDS_EACH * n)
        for i in range(n):
            if on.to[i] < 0:
                _match(on, space, i)
        eps /= EPS_DIVISOR
    end(on, space, _free(on, EDGE_ROUNDING * top))


@compiled
def end(on: Rows, space: Search, many: int) -> None:
    """Match the rows of the queue exactly."""
    _reduce(on, many, TAKEN_EACH * len(on.g))
    for i in range(len(on.g)):
        if on.to[i] < 0:
            _match(on, space, i)
