r"""Assignments of many matrices of any shapes in one call, each with its proof.

    a list of matrices, or a stack [B, n, m] with sizes  ─▶  `Packed`, all numbers in one array
                                      ─▶  shortest paths, in threads            exact/ragged_assignments.py
                                      ─▶  what is not proved, one by one        ``alone`` of the caller

What float64 does not prove goes to ``alone``, which solves one matrix: costs of very different size, costs whose sums
overflow, and large problems with long paths, for which sparse graphs take less time. It raises for those that have no
solution, and the error names the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from otformer.transport.compiled import in_threads
from otformer.transport.exact.assignment import Ints
from otformer.transport.exact.ragged_assignments import assign_ragged
from otformer.transport.exact.small_assignments import ALL_LOOKS
from otformer.transport.exact.whole_numbers import proved
from otformer.transport.problem.read import FEW_BITS_LEFT
from otformer.transport.ragged.exact_stacks import LARGEST

ALIKE = 0.98  # min(n, m)/max(n, m): with more to choose from, paths are short, and sparse graphs do not pay
LARGE = 2048**2  # pairs of a problem in which paths are not tried
LOOKS_OF_LARGE = 16  # at rows, for each of more than ``LARGEST``, before sparse graphs are better
READ = 4  # times that a pair is read, about: to copy it, to choose, to prove, and in searches
Alone = Callable[[np.ndarray, bool], tuple[Any, Any]]  # a matrix, maximize → its pairs


class Packed(NamedTuple):
    """Matrices of any shapes, whose numbers lie in one array."""

    flat: np.ndarray  # float32 or float64
    table: Ints  # [B, 5]: begin, step to the next row, rows, columns, and the place of the first row in the answer
    rows: int  # of the answer

    @classmethod
    def from_shapes(cls, flat: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> Packed:
        """Matrices of these shapes that follow each other.

        >>> Packed.from_shapes(np.arange(5.0), [(2, 1), (1, 3)]).matrix(1).tolist()
        [[2.0, 3.0, 4.0]]
        """
        n, m = np.array(shapes, np.int64).reshape(-1, 2).T
        return cls(flat, np.stack([np.cumsum(n * m) - n * m, m, n, m, np.cumsum(n) - n], axis=1), int(n.sum()))

    @classmethod
    def from_stack(cls, C: np.ndarray, n: Ints, m: Ints) -> Packed:
        """Of every matrix of C [B, rows, columns], contiguous, the first n [B] rows and the first m [B] columns."""
        count, rows, columns = C.shape
        k = np.arange(count)
        table = np.stack([k * rows * columns, np.full(count, columns), n, m, k * rows], axis=1)
        return cls(C.reshape(-1), table, count * rows)

    def matrix(self, k: int) -> np.ndarray:
        """A view of one of them."""
        start, step, n, m, _ = self.table[k]
        return self.flat[start : start + n * step].reshape(n, step)[:, :m]


def assign_packed(packed: Packed, maximize: bool, alone: Alone, noun: str = "problem") -> Ints:
    """The column of every row of all problems, −1 for those that have none, [rows].

    >>> packed = Packed.from_shapes(np.array([3.0, 1.0, 1.0, 0.0, 7.0, 5.0]), [(2, 2), (2, 1), (0, 3)])
    >>> assign_packed(packed, False, alone=None).tolist()
    [1, 0, -1, 0]
    """
    flat, table, rows = packed
    to, sign = np.full(rows, -1), -1.0 if maximize else 1.0
    n, m = table[:, 2:4].min(1), table[:, 2:4].max(1)
    short = (n <= LARGEST) | (n < ALIKE * m)
    tried = short | (n * m <= LARGE)
    here = np.column_stack([table, np.where(short, ALL_LOOKS, LOOKS_OF_LARGE * n)])[tried]
    proof = np.empty((len(here), 4))

    def work(first: int, last: int) -> None:
        assign_ragged(flat, here, sign, to, proof, first, last)

    if len(here):
        in_threads(work, len(here), READ * int((n * m)[tried].sum()))
    gap, size, least, top = proof.T
    sure = tried.copy()
    sure[tried] = proved(gap, 0.0, size, 0.0) & (least > FEW_BITS_LEFT * top)
    for k in np.flatnonzero(~sure).tolist():
        n_k, place = table[k, 2], table[k, 4]
        to[place : place + n_k] = -1
        i, j = _named(f"{noun} {k}", alone, packed.matrix(k), maximize)
        to[place + i] = j
    return to


def _named(name: str, alone: Alone, C: np.ndarray, maximize: bool) -> tuple[Any, Any]:
    """Solve one problem; an error of it begins with its name."""
    try:
        return alone(C, maximize)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def pairs(packed: Packed, to: Ints) -> tuple[Ints, Ints, list[int]]:
    """Rows and columns that are matched, of all problems one after the other, and how many each has.

    >>> i, j, counts = pairs(Packed.from_shapes(np.zeros(3), [(2, 1), (1, 1)]), np.array([-1, 0, 0]))
    >>> i.tolist(), j.tolist(), counts
    ([1, 0], [0, 0], [1, 1])
    """
    n, m, place = packed.table[:, 2:].T
    at, counts = np.flatnonzero(to >= 0), np.minimum(n, m)
    return at - np.repeat(place, counts), to[at], counts.tolist()
