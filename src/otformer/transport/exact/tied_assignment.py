r"""Assignments of a matrix of small whole numbers, where most pairs tie with others: all free rows search at once.

Shortest paths one by one see every tie. As in the Hungarian method [1], with phases as in [2], let f and g be feasible,
f_i + g_j ≤ c_ij, and a matching use only *tight* pairs, where it is equal.

1. From all free rows at once, distances of all columns in the lengths c_ij − f_i − g_j along rows, and 0 back from a column
   to its row, up to the distance D of the nearest free column. Then f_i += D − dist_i of the rows and g_j −= D − dist_j of
   the columns nearer than D keep all lengths ≥ 0, and a path to a free column is tight.
2. Along tight pairs as many disjoint paths as are found by searching in depth, each column once, change sides.

Whole numbers are exact in float64, and so is the proof. Small ones have few distances, so there are few phases, of one look
at all pairs at most. Costs that are not small would take a phase for nearly every row.

[1] H. W. Kuhn: The Hungarian method for the assignment problem. Naval Research Logistics Quarterly, 1955.
[2] J. E. Hopcroft, R. M. Karp: An n^{5/2} algorithm for maximum matchings in bipartite graphs. SIAM J. Comput., 1973.
"""

from __future__ import annotations

import numpy as np

from otformer.transport.compiled import compiled
from otformer.transport.costs.cost import Cost
from otformer.transport.exact.assignment import Floats, Ints
from otformer.transport.exact.flow_graph import Clock, Sent
from otformer.transport.types import to_numpy

SMALL_RANGE = 128.0  # of costs: larger ones take too many phases
EXACT = 2.0**40  # costs up to here: sums of them are exact in float64
PHASES = 8  # in which half of the free rows, or more, must be matched; otherwise a simplex is faster
LOOK = 64  # entries that say no for most matrices


def tied_assignment(cost: Cost, clock: Clock) -> tuple[Sent, Floats] | None:
    """Return an assignment of a matrix [n, n] of small whole numbers and potentials g [n].

    None if the matrix is none, or allows no assignment, or time is up, or phases do not match enough.
    """
    n, along = cost.shape[0], np.arange(LOOK)
    if cost.dense is None or not cost.spread <= SMALL_RANGE or not _is_whole(cost.costs(along % n, along * along % n)[None]):
        return None
    C = np.ascontiguousarray(to_numpy(cost.dense))
    if not _is_whole(C):
        return None
    f, g, to, back = np.empty(n), np.empty(n), np.full(n, -1), np.full(n, -1)
    _start(C, f, g, to, back)
    free = int(np.count_nonzero(to < 0))
    while free:
        for _ in range(PHASES):
            if clock.expired or not _phase(C, f, g, to, back):
                return None
        before, free = free, int(np.count_nonzero(to < 0))
        if 2 * free > before:
            return None
    i = np.arange(n)
    return Sent(i, to, np.ones(n, np.int64), C[i, to]), g


@compiled
def _is_whole(C: Floats) -> bool:
    """Return whether all costs are whole numbers that are exact in sums, or inf."""
    for row in C:
        for c in row:
            if not (c == np.floor(c) and (abs(c) <= EXACT or c == np.inf)):
                return False
    return True


@compiled
def _start(C: Floats, f: Floats, g: Floats, to: Ints, back: Ints) -> None:
    """Set g and f to the least costs of columns, and of rows less g; match rows with free columns along tight pairs."""
    n = len(C)
    for j in range(n):
        g[j] = np.inf
    for i in range(n):
        for j in range(n):
            g[j] = C[i, j] if C[i, j] < g[j] else g[j]
    for i in range(n):
        least = np.inf
        for j in range(n):
            reduced = C[i, j] - g[j]
            least = reduced if reduced < least else least
        f[i] = least
        for j in range(n):
            if back[j] < 0 and C[i, j] - g[j] == least:
                to[i], back[j] = j, i
                break


@compiled
def _phase(C: Floats, f: Floats, g: Floats, to: Ints, back: Ints) -> bool:
    """Move the potentials, and match more rows, in place; return False if no free column can be reached from those left."""
    n = len(C)
    at, row_at, level = np.full(n, np.inf), np.full(n, np.inf), np.zeros(n, np.int64)
    nearest = _distances(C, f, g, to, back, at, row_at, level)
    if nearest == np.inf:
        return bool((to >= 0).all())
    for k in range(n):
        if row_at[k] < nearest:
            f[k] += nearest - row_at[k]
        if at[k] < nearest:
            g[k] -= nearest - at[k]
    free, next_column = np.flatnonzero(back < 0), np.zeros(n, np.int64)
    path, levels = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        if to[i] < 0:
            free = _path(C, f, g, to, back, i, free, level, next_column, path, levels)
    return True


@compiled
def _distances(
    C: Floats, f: Floats, g: Floats, to: Ints, back: Ints, at: Floats, row_at: Floats, level: Ints
) -> float:  # fmt: skip
    """Write distances of columns and rows, inf where not reached; return that of the nearest free column.

    Columns have a ``level`` above that of a row on the way to them, 0 where not reached; a row has that of its column.
    """
    n, turn = len(C), 0
    for i in np.flatnonzero(to < 0):
        row_at[i] = 0.0
        _scan(C[i], f[i], g, 0.0, at)
    while True:
        turn += 1
        base = np.inf
        for j in range(n):
            base = at[j] if level[j] == 0 and at[j] < base else base
        if base == np.inf:
            return base
        nearest = np.flatnonzero((at == base) & (level == 0))
        level[nearest] = turn
        if (back[nearest] < 0).any():
            return base
        for i in back[nearest]:
            row_at[i] = base
            _scan(C[i], f[i], g, base, at)


@compiled
def _scan(c: Floats, f: float, g: Floats, base: float, at: Floats) -> None:
    """Lower the distances of columns to those along a row that is at ``base``."""
    shift = base - f
    for j in range(len(c)):
        length = c[j] - g[j] + shift
        at[j] = length if length < at[j] else at[j]


@compiled
def _path(
    C: Floats, f: Floats, g: Floats, to: Ints, back: Ints, source: int, free: Ints, level: Ints, next_column: Ints,
    path: Ints, levels: Ints,
) -> Ints:  # fmt: skip
    """Match a free row along tight pairs, if a path of growing levels leads to one of the free columns; return the others.

    A column that has been tried gets level 0. A row looks at the free columns first.
    """
    n, depth = len(C), 0
    path[0], levels[0] = source, 0
    while depth >= 0:
        i = path[depth]
        end = _tight(C[i], f[i], g, free) if next_column[i] == 0 else -1
        if end >= 0:
            _change_sides(path[: depth + 1], to, back, end)
            return free[free != end]
        j = next_column[i]
        while j < n and (level[j] <= levels[depth] or back[j] < 0 or C[i, j] - g[j] != f[i]):
            j += 1
        next_column[i] = j + 1
        depth += 1 if j < n else -1
        if j < n:
            path[depth], levels[depth], level[j] = back[j], level[j], 0
    return free


@compiled
def _tight(c: Floats, f: float, g: Floats, columns: Ints) -> int:
    """Return the first of these columns whose pair with a row is tight, −1 if none is."""
    for j in columns:
        if c[j] - g[j] == f:
            return int(j)
    return -1


@compiled
def _change_sides(rows: Ints, to: Ints, back: Ints, end: int) -> None:
    """Match the last of the rows of a path with the column ``end``, and every other with the column of the next."""
    for k in range(len(rows) - 1, -1, -1):
        i = rows[k]
        own = to[i]
        back[end], to[i], end = i, end, own
