r"""Assignments of many small matrices [B, n, n], exactly: shortest augmenting paths on each.

As on a sparse graph (assignment.py), but every row has every column, so that a step of the search is one pass over a row,
without a heap. Potentials g of the columns are all that is kept. A row i that is matched with a column j has
f_i = c_ij − g_j, and then the length of the way on from there to a column k is

    (c_ik − g_k) − (c_ij − g_j) ≥ 0,

and a row that is not has f_i = 0, as only differences of the ways from it matter. From a row that has no column, the nearest
free one is sought, at D; g_j −= D − dist_j of all columns passed on the way keeps all lengths ≥ 0, and
the path changes sides.

*Rectangles* with n < m (ragged_assignments.py) need no padding. With g_j ≤ 0, and f_i the least c_ij − g_j of its row,
Σ f + Σ g is below the cost of every assignment, and equal to that of one along tight pairs if free columns have g_j = 0. So
g begins at 0, and not at the least of each column: it falls only where a column is taken, and a column once taken stays so.
Most rows have their least column to themselves. As g is never above 0, that c_ij − g_j is the least of c is their proof.

*Row reduction* [1] comes before, and leaves few rows to search from: a row takes the column that is least for it, from
whichever row has it, and g of that column falls until the row's second column would do as well. The row that has lost its
column is next. Where several columns are as good, it takes a free one.

A column that is passed gets g = −∞ for the time of the search: nothing leads there again, without a test. ``x if x < y else
y`` is what a processor does in one instruction, on several numbers at once; min(x, y) asks for more than that of nan.

[1] R. Jonker, A. Volgenant: A shortest augmenting path algorithm for dense and sparse linear assignment problems.
    Computing, 1987.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from otformer.transport.compiled import compiled
from otformer.transport.exact.assignment import Floats, Ints
from otformer.transport.exact.digits import falls_apart

ON_MATRIX = "shortest augmenting paths on the matrix"
ALL_LOOKS = 2**62
STEPS = 2  # of row reduction, times n, at most: searches are better at what is left


class Assigned(NamedTuple):
    """Hold, for B matrices, the columns of all rows, potentials [B, n], and what proves them [B]; see `assign_stack`."""

    to: Ints
    f: Floats
    g: Floats
    low: Floats
    spread: Floats
    total: Floats
    gap: Floats

    @classmethod
    def empty(cls, count: int, n: int) -> Assigned:
        """Allocate result arrays for ``count`` problems."""
        vectors, numbers = (np.empty((count, n)) for _ in range(2)), (np.empty(count) for _ in range(4))
        return cls(np.empty((count, n), np.int64), *vectors, *numbers)

    def part(self, some: slice) -> Assigned:
        """Return writable views of some of the problems."""
        return Assigned(*(t[some] for t in self))  # type: ignore[arg-type]


def assign(C: Floats, most: int = ALL_LOOKS) -> Assigned:
    """Solve the assignments of matrices C [B, n, n], float64 and contiguous, in this thread.

    A matrix that takes more than ``most`` looks at a row in searches has a gap of inf.

    >>> found = assign(np.array([[[3.0, 1.0], [1.0, 0.0]]]))
    >>> found.to.tolist(), found.total.tolist(), found.gap.tolist()
    ([[1, 0]], [2.0], [0.0])
    """
    out = Assigned.empty(len(C), C.shape[1])
    assign_stack(C, *out, most)
    return out


@compiled
def assign_stack(
    C: Floats, to: Ints, f: Floats, g: Floats, low: Floats, spread: Floats, total: Floats, gap: Floats, most: int
) -> None:
    """Compute, for every matrix of C [B, n, n], the columns of all rows, potentials, and the proof, into the other arrays.

    ``to``, ``f``, ``g`` are [B, n], the others [B]: the least cost, which is subtracted from all others first, the range of
    those that are not infinite, Σ_i (c_i,to(i) − low), and primal minus dual, Σ_i (c_i,to(i) − low − f_i − g_to(i)) with
    f_i = min_j (c_ij − low − g_j). ``gap`` is inf where the matrix allows no assignment, is not one of costs, or has
    costs of too different size for float64 (digits.py).
    """
    n = C.shape[1]
    c = np.empty((n, n))
    for k in range(len(C)):
        gap[k] = np.inf
        low[k], spread[k] = _shifted(C[k], c)
        if spread[k] < np.inf and not falls_apart(C[k]) and start(c, f[k], g[k], to[k]) and augment(c, g[k], to[k], most):
            total[k], gap[k] = prove(c, f[k], g[k], to[k])


@compiled
def _shifted(C: Floats, c: Floats) -> tuple[float, float]:
    """Write c = C − low; return low and the range of finite costs: inf if one is nan or −inf, or all are inf."""
    low, high = np.inf, -np.inf
    for row in C:
        for value in row:
            if not value > -np.inf:
                return 0.0, np.inf
            low = min(low, value)
            if value < np.inf:
                high = max(high, value)
    if low == np.inf:
        return 0.0, np.inf
    for i in range(len(c)):
        for j in range(len(c)):
            c[i, j] = C[i, j] - low
    return low, high - low


@compiled
def _least(t: Floats) -> float:
    """Return min t, which has no nan, by four running minima: none waits for the others."""
    a = b = c = d = np.inf
    whole = len(t) // 4 * 4
    for j in range(0, whole, 4):
        a = t[j] if t[j] < a else a
        b = t[j + 1] if t[j + 1] < b else b
        c = t[j + 2] if t[j + 2] < c else c
        d = t[j + 3] if t[j + 3] < d else d
    for j in range(whole, len(t)):
        a = t[j] if t[j] < a else a
    return min(min(a, b), min(c, d))


@compiled
def _place(t: Floats, value: float) -> int:
    """Return the index of the first entry equal to ``value``."""
    j = 0
    while t[j] != value:
        j += 1
    return j


@compiled
def _free_place(t: Floats, value: float, back: Ints, otherwise: int) -> int:
    """Return the index of the first entry equal to ``value`` whose column has no row, if there is one."""
    for j in range(len(t)):
        if t[j] == value and back[j] < 0:
            return j
    return otherwise


@compiled
def start(c: Floats, f: Floats, g: Floats, to: Ints) -> bool:
    """Match most rows, and begin with f and g; return False where a column of a square, a row of others, is all infinite."""
    n, m = c.shape
    back, t, remaining = np.full(m, -1), np.empty(m), STEPS * n
    for i in range(n):
        to[i], f[i] = -1, -np.inf
    for j in range(m):
        g[j] = 0.0 if n < m else np.inf
    for i in range(n if n < m else 0):
        f[i] = _least(c[i])
        if f[i] == np.inf:
            return False
        at = _place(c[i], f[i])
        at = at if back[at] < 0 else _free_place(c[i], f[i], back, at)
        if back[at] < 0:
            back[at], to[i] = i, at
    for i in range(n if n == m else 0):
        for j in range(m):
            g[j] = c[i, j] if c[i, j] < g[j] else g[j]
    for j in range(m):
        if g[j] == np.inf:
            return False
    for row in range(n):
        i = row if to[row] < 0 else -1
        while i >= 0 and remaining > 0:
            remaining -= 1
            for j in range(m):
                t[j] = c[i, j] - g[j]
            least = _least(t)
            at = _place(t, least)
            t[at] = np.inf
            second = _least(t)
            if second == np.inf:
                break
            if second == least and back[at] >= 0:
                at = _free_place(t, least, back, at)
            owner, fallen = back[at], g[at] - (second - least)
            back[at], to[i] = i, at
            if owner >= 0:
                to[owner] = -1
            i = owner if fallen < g[at] else -1  # where nothing falls, two rows would take it from each other for ever
            g[at] = fallen
    return True


@compiled
def augment(c: Floats, g: Floats, to: Ints, most: int) -> bool:
    """Match all unmatched rows by shortest paths; return False if one reaches no free column, or after ``most`` looks."""
    n, m = c.shape
    back, by, scanned_columns = np.full(m, -1), np.empty(m, np.int64), np.empty(m, np.int64)
    at, h, passed = np.empty(m), np.empty(m), np.empty(m)
    for i in range(n):
        if to[i] >= 0:
            back[to[i]] = i
    for source in range(n):
        if to[source] >= 0:
            continue
        for j in range(m):
            at[j], h[j] = np.inf, g[j]
        i, shift, base, scanned, end = source, 0.0, -np.inf, 0, -1
        while end < 0:
            most -= 1
            if most < 0:
                return False
            for j in range(m):
                length = c[i, j] - h[j] + shift
                length = length if length > base else base
                by[j] = i if length < at[j] else by[j]
                at[j] = length if length < at[j] else at[j]
            base = _least(at)
            if base == np.inf:
                return False
            last = -1
            for j in range(m):
                if at[j] == base:
                    last = j
                    if back[j] < 0:
                        end = j
            if end < 0:
                scanned_columns[scanned], passed[scanned], i = last, base, back[last]
                scanned += 1
                shift = base - (c[i, last] - g[last])
                at[last], h[last] = np.inf, -np.inf
        for k in range(scanned):
            g[scanned_columns[k]] -= base - passed[k]
        while end >= 0:
            i = by[end]
            back[end], to[i], end = i, end, to[i]
    return True


@compiled
def prove(c: Floats, f: Floats, g: Floats, to: Ints) -> tuple[float, float]:
    """Write f_i = min_j (c_ij − g_j), which is no less than f_i; return Σ c_i,to(i) and Σ (c_i,to(i) − f_i − g_to(i))."""
    total, gap, t = 0.0, 0.0, np.empty(len(g))
    for i in range(len(to)):
        own = c[i, to[i]] - g[to[i]]
        if own > f[i]:
            for j in range(len(g)):
                t[j] = c[i, j] - g[j]
            f[i] = _least(t)
        total += c[i, to[i]]
        gap += own - f[i]  # rounded as f is, so never negative
    return total, gap
