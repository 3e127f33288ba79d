"""Equal rows of a matrix, bit by bit: found by hashes, compared in full before anybody relies on it.

A random matrix is known by a few columns to have none; only where rows may be given often is all of it looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np

OFTEN = 2  # times a row is given, on average, from where on it is of use
LOOK = 64  # columns that are enough to say no for most matrices
HASHED = 2**20  # entries that are hashed, or compared, at once


def equal_rows(C: np.ndarray) -> np.ndarray | None:
    """Return a whole number for every row of C [n, m], float64, the same for equal ones; None if they are not given often.

    inf is equal to inf.

    >>> equal_rows(np.array([[0.0, 1.0], [2.0, np.inf], [2.0, np.inf], [2.0, np.inf], [0.0, 1.0]])).tolist()
    [0, 1, 1, 1, 0]
    """
    n, m = C.shape
    if OFTEN * len(np.unique(C[:, 0])) > n:
        return None
    for many in (min(LOOK, m), m):
        columns = np.arange(many) * m // many
        _, first, place = np.unique(_hashes(C, columns), return_index=True, return_inverse=True)
        if OFTEN * len(first) > n:
            return None
    found: np.ndarray = first[place.reshape(-1)]
    return found if all((C[some] == C[found[some]]).all() for some in _chunks(n, m)) else None


def _hashes(C: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Sum the bits of some columns of every row, times odd numbers, [n]."""
    n, width = len(C), len(columns)
    factors = np.random.default_rng(0).integers(2**63, size=width) * 2 + 1
    found = np.empty(n, np.int64)
    for some in _chunks(n, width):
        bits: Any = (C[some] if width == C.shape[1] else C[some][:, columns]) + 0.0  # −0 is 0
        bits = np.ascontiguousarray(bits).view(np.int64)
        found[some] = ((bits ^ bits >> 32) * factors).sum(1)  # whole numbers have zeros at the end of their mantissas
    return found


def _chunks(n: int, width: int) -> list[slice]:
    """Cut n rows of so many entries into chunks.

    >>> _chunks(5, 2**19)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    rows = max(1, HASHED // width)
    return [slice(k, k + rows) for k in range(0, n, rows)]
