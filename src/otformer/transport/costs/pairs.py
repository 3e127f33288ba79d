r"""All pairs of a problem: of every point the k pairs of least reduced cost. Here of a matrix; of points in point_pairs.py.

With v the potentials of the columns, the k least c_ij − v_j of every row i are what a sparse graph is made of, and the least
alone is *pricing*: f_i = min_j (c_ij − v_j) is the largest f with f_i + v_j ≤ c_ij for all pairs. Columns are alike.

One look at a pair has to be cheap: a list of k is kept in order, and almost no pair is below its last. So pairs are compared
by the chunk, without a branch, and only a chunk with one below is looked into: about k log(m/k) times in a row of random
numbers. In a row that falls all the way every pair would be. Hence

- rows start from the last of the list that the row before has, at this row's values: those k pairs exist, so no list ends
  above it. Where neighbours are alike, as on a grid, this is nearly what the list will end with.
- columns, of which a block is gone through together so that memory is read in order, see the rows in steps of a golden
  section of all: what comes is spread over all rows at any time, in whichever order they lie.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from otformer.transport.compiled import compiled, in_threads

LANES = 32  # pairs compared without a branch
BREADTH = 4096  # columns whose lists a core's cache holds


def least_of_matrix(C: np.ndarray, potential: np.ndarray, k: int, rows: bool) -> tuple[np.ndarray, np.ndarray]:
    """`Cost.least` of a matrix C [n, m], float64 and contiguous; inf is a forbidden pair.

    >>> C = np.array([[0.0, 1.0, 4.0], [1.0, np.inf, 1.0]])
    >>> values, places = least_of_matrix(C, np.array([0.0, 2.0, 2.0]), 2, rows=True)
    >>> values.tolist(), places.tolist()
    ([[-1.0, 0.0], [-1.0, 1.0]], [[1, 0], [2, 0]])
    >>> least_of_matrix(C, np.zeros(2), 2, rows=False)[1].tolist()
    [[0, 1], [0, -1], [1, 0]]
    """
    n, m = C.shape
    values, places = no_pairs(n if rows else m, k)
    h = np.ascontiguousarray(potential, dtype=np.float64)
    if rows:
        in_threads(lambda first, last: _least_of_rows(C, h, values, places, first, last), n, n * m)
        return values, places
    shares = -(-m // BREADTH)
    shares += -shares % torch.get_num_threads()  # as many for every thread
    step, width = golden_step(n), -(-m // shares)

    def work(first: int, last: int) -> None:
        _least_of_columns(C, h, step, width, values, places, first, last)

    in_threads(work, -(-m // width), n * m)
    return values, places


def no_pairs(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Lists that hold no pair yet: values inf, places −1, [n, k]."""
    return np.full((n, k), np.inf), np.full((n, k), -1, dtype=np.int64)


def golden_step(n: int) -> int:
    """A step near a golden section of n that has no factor with it: so many places on, round and round, all n are seen.

    >>> [3 * i % 5 for i in range(5)] if golden_step(5) == 3 else None
    [0, 3, 1, 4, 2]
    """
    step = max(1, round(n * (math.sqrt(5) - 1) / 2))
    while math.gcd(step, n) > 1:
        step += 1
    return step


@compiled
def offer(values: np.ndarray, places: np.ndarray, value: float, place: int) -> None:
    """Insert a pair that is below the last into an ordered list, [k]; the last is dropped."""
    at = len(values) - 1
    while at > 0 and value < values[at - 1]:
        values[at], places[at] = values[at - 1], places[at - 1]
        at -= 1
    values[at], places[at] = value, place


@compiled
def _least_of_rows(C: np.ndarray, v: np.ndarray, values: np.ndarray, places: np.ndarray, first: int, last_row: int) -> None:
    m = C.shape[1]
    for i in range(first, last_row):
        c, list_i, places_i = C[i], values[i], places[i]
        if i > first and places[i - 1, -1] >= 0:
            last = -np.inf
            for j in places[i - 1]:
                last = max(last, c[j] - v[j])
            list_i[:] = np.nextafter(last, np.inf)  # the pairs themselves will be found below it
        for start in range(0, m, LANES):
            some, h = c[start : start + LANES], v[start : start + LANES]
            last, below = list_i[-1], 0
            for j in range(len(some)):
                below += some[j] - h[j] < last
            if below:
                for j in range(len(some)):
                    if some[j] - h[j] < list_i[-1]:
                        offer(list_i, places_i, some[j] - h[j], start + j)


@compiled
def _least_of_columns(
    C: np.ndarray, u: np.ndarray, step: int, width: int, values: np.ndarray, places: np.ndarray, first: int, last_block: int
) -> None:
    """Of the blocks, ``width`` columns each, from ``first`` up to ``last_block``."""
    n, m = C.shape
    for block in range(first, last_block):
        lasts = np.full(width, np.inf)  # of the lists, side by side
        stop, i = min(block * width + width, m), 0
        for _ in range(n):
            for start in range(block * width, stop, LANES):
                some, h, below = C[i, start : min(start + LANES, stop)], u[i], 0
                last = lasts[start - block * width :]
                for j in range(len(some)):
                    below += some[j] - h < last[j]
                if below:
                    for j in range(len(some)):
                        if some[j] - h < last[j]:
                            offer(values[start + j], places[start + j], some[j] - h, i)
                            last[j] = values[start + j, -1]
            i = (i + step) % n
