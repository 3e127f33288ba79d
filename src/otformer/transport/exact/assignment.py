r"""Assignment on a sparse graph, exactly: successive shortest paths from the network's potentials.

Rows i and columns j, equally many, are to be matched one to one along edges e = (i, j) of cost c_e. Potentials (f, g) are
*feasible* if c_e − f_i − g_j ≥ 0 on every edge. A matching that uses only tight edges, c_e = f_i + g_j, is then optimal,
and so are they:

    Σ c_e over its edges = Σ f_i + Σ g_j ≤ Σ c_e over those of every other one.

From any g, f_i = min_e (c_e − g_j) is feasible, and rows whose tight edge leads to a free column are matched along it. From
a row that is left a shortest path is sought, in the lengths c_e − f_i − g_j along edges to columns and 0 back to the row
that is matched with them, to the nearest free column (Dijkstra). With D the length of the path, f_i += D − dist_i of the
rows and g_j −= D − dist_j of the columns nearer than D keep all lengths ≥ 0 and make the path tight; its edges then change
sides.

The better g is, the shorter the paths: after rough layers of the network a search sees a few dozen edges.

A row from which no free column can be reached is *stuck*, and so is all that it reaches: no edge leads out of there. All
potentials f there rise by ``far``, and all g fall by as much. Edges stay feasible, and a
pair that leads out and is not yet an edge stands out: next time all pairs are looked at, it is found if there is one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from otformer.transport.compiled import compiled

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
COST_ROUNDING = 2.0**-46  # of what a cost is compared with: sums of a few numbers as large
ARITY = 4  # children of a node of the heap


def middle(p: Floats) -> float:
    """Return a median, in less time than numpy's takes to look at its arguments."""
    return float(np.partition(p, len(p) // 2)[len(p) // 2])


@compiled
def _push(lengths: Floats, items: Ints, size: int, length: float, item: int) -> int:
    """Add an item to the heap, in place; return its new size."""
    k = size
    while k > 0:
        above = (k - 1) // ARITY
        if lengths[above] <= length:
            break
        lengths[k], items[k] = lengths[above], items[above]
        k = above
    lengths[k], items[k] = length, item
    return size + 1


@compiled
def _pop(lengths: Floats, items: Ints, size: int) -> tuple[float, int, int]:
    """Return the least length, its item, and the size of the heap without it."""
    least, item = lengths[0], items[0]
    size -= 1
    length, last, k = lengths[size], items[size], 0
    while ARITY * k + 1 < size:
        first = ARITY * k + 1
        below = first
        for child in range(first + 1, min(first + ARITY, size)):
            if lengths[child] < lengths[below]:
                below = child
        if lengths[below] >= length:
            break
        lengths[k], items[k] = lengths[below], items[below]
        k = below
    lengths[k], items[k] = length, last
    return least, item, size


@compiled
def settle(start: Ints, column: Ints, cost: Floats, to: Ints, back: Ints, f: Floats, g: Floats) -> None:
    """Set f_i = min (c_e − g_j), keep the matched pairs that are tight, and match free rows along tight edges.

    Edges of row i are start[i] … start[i + 1] − 1. ``to`` has the column of every row, ``back`` the row of every column, −1
    if none.
    """
    for i in range(len(to)):
        least, own, room = np.inf, np.inf, 0.0
        for e in range(start[i], start[i + 1]):
            reduced = cost[e] - g[column[e]]
            least = min(least, reduced)
            if column[e] == to[i]:
                own, room = reduced, abs(cost[e]) + abs(g[column[e]])
        f[i] = least
        if to[i] >= 0 and own - least > COST_ROUNDING * (room + abs(least)):
            back[to[i]], to[i] = -1, -1
    for i in range(len(to)):
        for e in range(start[i], start[i + 1]):
            j = column[e]
            if to[i] < 0 and back[j] < 0 and cost[e] - g[j] <= f[i]:
                to[i], back[j] = j, i


@compiled
def match(
    start: Ints, column: Ints, cost: Floats, to: Ints, back: Ints, f: Floats, g: Floats, stuck: Flags, far: float,
    first: int, last: int,
) -> None:  # fmt: skip
    """Match the rows first … last − 1 along shortest paths, in place; columns of stuck rows become ``stuck`` too."""
    m = len(back)
    # Distances of columns, infinite where not reached, and the rows they come from.
    at, by = np.full(m, np.inf), np.empty(m, np.int64)
    done, seen, scanned_columns = np.zeros(m, np.bool_), np.empty(m, np.int64), np.empty(m, np.int64)
    lengths, items = np.empty(1024), np.empty(1024, np.int64)
    for source in range(first, last):
        if to[source] >= 0:
            continue
        reached, scanned, size = 0, 0, 0
        i, base, end, nearest = source, 0.0, -1, np.inf
        while True:
            for e in range(start[i], start[i + 1]):
                j = column[e]
                length = base + max(0.0, cost[e] - f[i] - g[j])
                if length < at[j] and length < nearest and not done[j] and not stuck[j]:
                    if at[j] == np.inf:
                        seen[reached] = j
                        reached += 1
                    at[j], by[j] = length, i
                    if back[j] < 0:
                        nearest, end = length, j
                    else:
                        if size == len(lengths):
                            lengths = np.concatenate((lengths, np.empty(size)))
                            items = np.concatenate((items, np.empty(size, np.int64)))
                        size = _push(lengths, items, size, length, j)
            j = -1
            while size > 0 and j < 0:
                base, j, size = _pop(lengths, items, size)
                if done[j]:
                    j = -1
            if j < 0 or base >= nearest:
                break
            done[j], scanned_columns[scanned], i = True, j, back[j]
            scanned += 1
        if end < 0:
            nearest = base + far
        f[source] += nearest
        for k in range(scanned):
            j = scanned_columns[k]
            g[j] -= nearest - at[j]
            f[back[j]] += nearest - at[j]
            stuck[j] = end < 0
        for k in range(reached):
            at[seen[k]], done[seen[k]] = np.inf, False
        while end >= 0:  # the edges of the path change sides
            i = by[end]
            back[end], to[i], end = i, end, to[i]
            if i == source:
                break
