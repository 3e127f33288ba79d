"""A matrix of any size as one that fits into a picture: equal blocks of rows and columns, each added up.

Rows in random order would add up to one even square. So rows that share a cell are first sorted by their partner, the column
of their largest entry: a matching of 2,000 points is then a diagonal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

CELLS = 32  # most cells on a side of a picture in a notebook or a terminal
ENTRIES = 2**22  # entries of the largest matrix that is formed, or read, to be drawn

Array = np.ndarray[Any, np.dtype[Any]]


def block_size(size: int, cells: int = CELLS) -> int:
    """Return how many rows (columns) one cell stands for.

    >>> block_size(32), block_size(33), block_size(100)
    (1, 2, 4)
    """
    return max(1, -(-size // cells))


def blocks(plan: Any, cells: int = CELLS, by_partner: bool = False) -> Array | None:
    """Sum blocks of an n × m plan, at most ``cells`` per side; None if that would read more than 4 million entries.

    plan : array, tensor, or what forms its rows i to j when asked, ``plan.rows(i, j)``. One band of rows is read at a time.
    by_partner : whether rows, where several share a cell, are sorted by the column of their largest entry.

    >>> blocks(np.ones((4, 6)), cells=2)
    array([[6., 6.],
           [6., 6.]])
    >>> blocks(np.eye(4)[[2, 0, 3, 1]], cells=2, by_partner=True)
    array([[2., 0.],
           [0., 2.]])
    """
    n, m = plan.shape
    if n * m > ENTRIES or not n * m:
        return None
    tall, wide = block_size(n, cells), block_size(m, cells)
    bands = (_numbers(plan.rows(i, i + tall) if hasattr(plan, "rows") else plan[i : i + tall]) for i in range(0, n, tall))
    edges = np.arange(0, m, wide)
    if tall == 1 or not by_partner:
        return np.stack([np.add.reduceat(band.sum(0), edges) for band in bands])
    narrow, partners = zip(*((np.add.reduceat(band, edges, axis=1), band.argmax(1)) for band in bands), strict=True)
    order = np.argsort(np.concatenate(partners), kind="stable")
    return np.asarray(np.add.reduceat(np.concatenate(narrow)[order], np.arange(0, n, tall)))


def blocks_of_pairs(pairs: tuple[Any, Any, Any], shape: tuple[int, int], cells: int = CELLS) -> Array | None:
    """Sum blocks of a plan that is a list: rows (E,), columns (E,), masses (E,); None for an empty shape.

    Rows that share a cell are sorted by their partner.

    >>> blocks_of_pairs(([0, 1, 2, 3], [2, 0, 3, 1], [1, 1, 1, 1]), (4, 4), cells=2)
    array([[2., 0.],
           [0., 2.]])
    """
    if not shape[0] * shape[1]:
        return None
    tall, wide = (block_size(size, cells) for size in shape)
    out = np.zeros((-(-shape[0] // tall), -(-shape[1] // wide)))
    i, j, masses = (_numbers(t) for t in pairs)
    i, j = i.astype(int), j.astype(int)
    if tall > 1:
        partners = np.full(shape[0], shape[1])  # of a row without mass: behind all columns
        heaviest = np.argsort(masses, kind="stable")  # the last that is written stays
        partners[i[heaviest]] = j[heaviest]
        place = np.empty(shape[0], int)
        place[np.argsort(partners, kind="stable")] = np.arange(shape[0])
        i = place[i]
    np.add.at(out, (i // tall, j // wide), masses)
    return out


def _numbers(t: Any) -> Array:
    """Convert a tensor, on any device and with derivatives or without, to an array in float64."""
    return np.asarray(t.detach().cpu().numpy() if hasattr(t, "detach") else t, dtype=np.float64)
