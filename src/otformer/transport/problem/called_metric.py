r"""A metric that is a function: of all points at once, or of one row of each side.

    f(X_a, X_b) = C [n, m],    or    f(x_i, y_j) = C_ij, as scipy's cdist and POT take it.

Which of the two is found by calling it. A function that gives an n × m matrix for all points is taken at its word, unless
f(x_0, y_0) is a number other than C_00: then it means both, and is refused. Rows take n · m calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks

AGREE = 1e-4  # relative: the two ways of one function in float32


def called(metric: Callable[[Any, Any], Any], X_a: Any, X_b: Any) -> Any:
    """Return the cost matrix [n, m] that the function gives for points X_a [n, d] and X_b [m, d].

    >>> called(lambda x, y: abs(x - y).sum(), np.zeros((2, 3)), np.ones((1, 3))).tolist()
    [[3.0], [3.0]]
    >>> called(lambda X, Y: abs(X[:, None] - Y).sum(2), np.zeros((2, 3)), np.ones((1, 3))).tolist()
    [[3.0], [3.0]]
    """
    x, y = (t if isinstance(t, Tensor | np.ndarray) else checks.array(name, t) for name, t in (("X_a", X_a), ("X_b", X_b)))
    whole, error = _tried(metric, x, y)
    if not (len(x) and len(y)) or np.ndim(x) != 2 or np.ndim(y) != 2:
        return _whole(whole, error, x, y)
    one, _ = _tried(metric, x[0], y[0])
    alone = one is not None and np.shape(one) == ()
    if np.shape(whole) != (len(x), len(y)):
        return _by_rows(metric, x, y) if alone else _whole(whole, error, x, y)
    if alone and not _equal(whole[0][0], one):
        expected = "mean the matrix of all points, or the cost of two rows"
        raise checks.ArgumentError("metric", expected, "a function that gives different numbers for both")
    return whole


def _tried(metric: Callable[[Any, Any], Any], x: Any, y: Any) -> tuple[Any, Exception | None]:
    try:
        return metric(x, y), None
    except (ValueError, TypeError, IndexError, RuntimeError, AttributeError, np.exceptions.AxisError) as error:
        return None, error


def _whole(found: Any, error: Exception | None, x: Any, y: Any) -> Any:
    """The matrix, or what is wrong with the function: its own error, or the shape of what it gave."""
    if error is not None:
        raise error
    if np.shape(found) != (len(x), len(y)):
        expected = f"give a matrix of shape {(len(x), len(y))} for all points, or a number for a row of each"
        raise checks.ArgumentError("metric", expected, f"shape {np.shape(found)}")
    return found


def _by_rows(metric: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    rows = [[metric(p, q) for q in y] for p in x]
    if isinstance(rows[0][0], Tensor):
        return torch.stack([torch.stack(row) for row in rows])
    return np.array(rows)


def _equal(one: Any, other: Any) -> bool:
    one, other = float(one), float(other)
    return abs(one - other) <= AGREE * max(abs(one), abs(other)) or one == other or (one != one and other != other)
