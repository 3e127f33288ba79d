"""A matrix of any size as one that fits into a picture: equal blocks of rows and columns, each added up."""

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


def blocks(plan: Any, cells: int = CELLS) -> Array | None:
    """Sum blocks of an n × m plan, at most ``cells`` per side; None if that would read more than 4 million entries.

    plan : array, tensor, or what forms its rows i to j when asked, ``plan.rows(i, j)``. One band of rows is read at a time.

    >>> blocks(np.ones((4, 6)), cells=2)
    array([[6., 6.],
           [6., 6.]])
    """
    n, m = plan.shape
    if n * m > ENTRIES or not n * m:
        return None
    tall, wide = block_size(n, cells), block_size(m, cells)
    bands = (_numbers(plan.rows(i, i + tall) if hasattr(plan, "rows") else plan[i : i + tall]) for i in range(0, n, tall))
    return np.stack([np.add.reduceat(band.sum(0), np.arange(0, m, wide)) for band in bands])


def blocks_of_pairs(pairs: tuple[Any, Any, Any], shape: tuple[int, int], cells: int = CELLS) -> Array | None:
    """Sum blocks of a plan that is a list: rows (E,), columns (E,), masses (E,); None for an empty shape.

    >>> blocks_of_pairs(([0, 3], [1, 1], [0.5, 0.5]), (4, 2), cells=2)
    array([[0. , 0.5],
           [0. , 0.5]])
    """
    if not shape[0] * shape[1]:
        return None
    tall, wide = (block_size(size, cells) for size in shape)
    out = np.zeros((-(-shape[0] // tall), -(-shape[1] // wide)))
    i, j, masses = (_numbers(t) for t in pairs)
    np.add.at(out, (i.astype(int) // tall, j.astype(int) // wide), masses)
    return out


def _numbers(t: Any) -> Array:
    """Convert a tensor, on any device and with derivatives or without, to an array in float64."""
    return np.asarray(t.detach().cpu().numpy() if hasattr(t, "detach") else t, dtype=np.float64)
