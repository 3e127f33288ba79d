r"""Assignments of many small matrices [B, n, n], exactly: shortest augmenting paths on each.

As on a sparse graph (assignment.py), but every row has every column, so that a step of the search is one pass over a row,
without a heap. Potentials g of the columns are all that is kept. A row i that is matched with a column j has
f_i = c_ij − g_j, and then the length of the way on from there to a column k is

    (c_ik − g_k) − (c_ij − g_j) ≥ 0,

and a row that is not has f_i = 0: with g at or below the least of each column, c_ij − g_j ≥ 0 too. From a row that has no
column, the nearest free one is sought, at D; g_j −= D − dist_j of all columns passed on the way keeps all lengths ≥ 0, and
the path changes sides.

*Row reduction* [1] comes before, and leaves few rows to search from: a row takes the column that is least for it, from
whichever row has it, and g of that column falls until the row's second column would do as well. The row that has lost its
column is next.

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
        if spread[k] < np.inf and not falls_apart(C[k]) and _start(c, g[k], to[k]) and _augment(c, g[k], to[k], most):
            total[k], gap[k] = _prove(c, f[k], g[k], to[k])


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
    """Return min t."""
    least = np.inf
    for value in t:
        least = value if value < least else least
    return least


@compiled
def _place(t: Floats, value: float) -> int:
    """Return the index of the first entry equal to ``value``."""
    j = 0
    while t[j] != value:
        j += 1
    return j


@compiled
def _start(c: Floats, g: Floats, to: Ints) -> bool:
    """Set g to the column minima, then reduce rows; return False if a column has no finite cost."""
    n = len(g)
    back, t, remaining = np.empty(n, np.int64), np.empty(n), STEPS * n
    for j in range(n):
        g[j], to[j], back[j] = np.inf, -1, -1
    for i in range(n):
        for j in range(n):
            g[j] = c[i, j] if c[i, j] < g[j] else g[j]
    for j in range(n):
        if g[j] == np.inf:
            return False
    for row in range(n):
        i = row
        while i >= 0 and remaining > 0:
            remaining -= 1
            for j in range(n):
                t[j] = c[i, j] - g[j]
            least = _least(t)
            at = _place(t, least)
            t[at] = np.inf
            second = _least(t)
            if second == np.inf:
                break
            if second == least and back[at] >= 0:
                other = _place(t, least)
                at = other if back[other] < 0 else at
            owner, fallen = back[at], g[at] - (second - least)
            back[at], to[i] = i, at
            if owner >= 0:
                to[owner] = -1
            i = owner if fallen < g[at] else -1  # where nothing falls, two rows would take it from each other for ever
            g[at] = fallen
    return True


@compiled
def _augment(c: Floats, g: Floats, to: Ints, most: int) -> bool:
    """Match all unmatched rows by shortest paths; return False if one reaches no free column, or after ``most`` looks."""
    n = len(g)
    back, by, scanned_columns = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    at, h, passed = np.empty(n), np.empty(n), np.empty(n)
    for j in range(n):
        back[j] = -1
    for i in range(n):
        if to[i] >= 0:
            back[to[i]] = i
    for source in range(n):
        if to[source] >= 0:
            continue
        for j in range(n):
            at[j], h[j] = np.inf, g[j]
        i, shift, base, scanned, end = source, 0.0, 0.0, 0, -1
        while end < 0:
            most -= 1
            if most < 0:
                return False
            for j in range(n):
                length = c[i, j] - h[j] + shift
                length = length if length > base else base
                by[j] = i if length < at[j] else by[j]
                at[j] = length if length < at[j] else at[j]
            base = _least(at)
            if base == np.inf:
                return False
            last = -1
            for j in range(n):
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
def _prove(c: Floats, f: Floats, g: Floats, to: Ints) -> tuple[float, float]:
    """Write f_i = min_j (c_ij − g_j); return Σ c_i,to(i) and the gap Σ (c_i,to(i) − f_i − g_to(i))."""
    total, gap = 0.0, 0.0
    for i in range(len(to)):
        f[i] = np.inf
        for j in range(len(to)):
            reduced = c[i, j] - g[j]
            f[i] = reduced if reduced < f[i] else f[i]
        total += c[i, to[i]]
        gap += (c[i, to[i]] - g[to[i]]) - f[i]  # rounded as f is, so never negative
    return total, gap
