r"""Assignments of matrices of any shapes that lie in one array, exactly: shortest augmenting paths on each.

A matrix is copied, turned if it has more rows than columns, and solved as in small_assignments.py.
"""

from __future__ import annotations

import numpy as np

from otformer.transport.compiled import compiled
from otformer.transport.exact.assignment import Floats, Ints
from otformer.transport.exact.small_assignments import augment, prove, start

LARGEST_COST = 2.0**960  # sums of costs above along a path overflow


@compiled
def assign_ragged(flat: np.ndarray, table: Ints, sign: float, to: Ints, proof: Floats, first: int, last: int) -> None:
    """Solve the assignments ``first`` … ``last`` − 1 of ``sign`` times matrices of any shape that lie in one array ``flat``.

    ``table`` [B, 6] has of each: where it begins, the step to its next row, rows, columns, the place in ``to`` of its first
    row, and how many looks at a row searches may take. ``to`` gets the column of every row, −1 for those that have none.
    ``proof`` [B, 4] gets the gap (inf where none was found, or a cost is nan, −inf or too large to add), Σ |C_i,to(i)|, the
    least of these that is not 0, and the greatest of all numbers that were added: far above the least, it has taken digits
    of it.
    """
    shapes = table[first:last, 2:4]
    widest, room = shapes.max(), np.empty((shapes[:, 0] * shapes[:, 1]).max())
    f, g, own = np.empty(widest), np.empty(widest), np.empty(widest, np.int64)
    for k in range(first, last):
        begin, step, rows, columns, place, looks = table[k]
        n, m, found = min(rows, columns), max(rows, columns), False
        c, f_k, g_k, own_k = room[: n * m].reshape((n, m)), f[:n], g[:m], own[:n]
        proof[k, 0] = np.inf
        for i in range(rows):
            to[place + i] = -1
        if _copied(flat, begin, step, sign, c) if rows <= columns else _copied(flat, begin, step, sign, c.T):
            found = n == 0 or (start(c, f_k, g_k, own_k) and augment(c, g_k, own_k, looks))
        if found:
            _measure(c, f_k, g_k, own_k, proof[k])
        for i in range(n if found else 0):
            row, column = (i, own_k[i]) if rows <= columns else (own_k[i], i)
            to[place + row] = column


@compiled
def _copied(flat: np.ndarray, begin: int, step: int, sign: float, c: Floats) -> bool:
    """Write ``sign`` times a matrix into c; return whether all are +inf, or numbers that can be added."""
    bad, width = 0, c.shape[1]
    for i in range(len(c)):
        row = flat[begin + i * step : begin + i * step + width]
        for j in range(width):
            value = sign * row[j]
            bad += (value != np.inf) & (not abs(value) <= LARGEST_COST)
            c[i, j] = value
    return bad == 0


@compiled
def _measure(c: Floats, f: Floats, g: Floats, to: Ints, proof: Floats) -> None:
    """Write the ``proof`` of an assignment; see `assign_ragged`."""
    gap, size, least, top = prove(c, f, g, to)[1], 0.0, np.inf, 0.0
    for i in range(len(to)):
        used = abs(c[i, to[i]])
        size, top = size + used, max(top, used, abs(f[i]))
        least = used if 0 < used < least else least
    for value in g:
        top = max(top, abs(value))
    proof[0], proof[1], proof[2], proof[3] = gap, size, least, top
