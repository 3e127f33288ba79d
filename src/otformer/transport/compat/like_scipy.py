r"""Assignments: scipy's ``linear_sum_assignment`` on our engine, and the same between points, without a matrix.

    min_σ Σ_i C_{i σ(i)}    over one-to-one maps σ of the rows to the columns.

With as many rows as columns this is transport with equal weights, whose extreme plans are the permutations (Birkhoff).
With n < m rows, one row more, to which the m − n columns left over go at one cost, makes it transport between whole numbers,
whose extreme plans are whole. The solver counts weights in units of 2⁻⁶⁰ of the mass, which m does not divide: as a few
units go astray, the column of a row is the one where most of it goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.memory import needs
from otformer.network.features import Features
from otformer.transport.exact.digits import is_wide
from otformer.transport.needs import of_cost, of_sample
from otformer.transport.result.exact_result import ExactResult
from otformer.transport.result.result import Result
from otformer.transport.solve import solve, solve_sample
from otformer.transport.types import to_numpy

OURS_FROM = 300  # points: with fewer a call of ours costs more than the work of scipy's
LARGEST_COST = 2.0**960  # costs above have sums along a path that overflow: an answer of scipy's is then no optimum
ALIKE = 0.98  # min(n, m)/max(n, m): with more to choose from, paths are short, and scipy's loop over them is faster


@needs(lambda cost, **_: of_cost(cost, instead="assignment(x, y) between points never forms it"))
def linear_sum_assignment(cost: Any, maximize: bool = False) -> tuple[Any, Any]:
    """scipy's ``linear_sum_assignment``: of each row, or of as many as there are columns, one column, for the least sum.

    Parameters
    ----------
    cost : array (n, m)
        Numbers, numpy, lists or a tensor; +inf (−inf if maximize) forbids a pair.
    maximize : bool
        Whether the sum is to be the greatest.

    Returns
    -------
    row_ind, col_ind : arrays (min(n, m),), or tensors on the device of a tensor
        cost[row_ind, col_ind].sum() is the least; row_ind is sorted. Where several are as good, it need not be scipy's.

    Small problems, and those with many more columns than rows or the reverse, are solved by scipy itself, unless their costs
    are of too different size for float64: then in whole numbers (exact/digits.py).

    >>> row, column = linear_sum_assignment([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    >>> row.tolist(), column.tolist()
    ([0, 1, 2], [1, 0, 2])
    >>> [t.tolist() for t in linear_sum_assignment(torch.tensor([[1.0, 2.0, 9.0]]), maximize=True)]
    [[0], [2]]
    """
    C = _numbers(cost)
    if C.ndim != 2:
        raise checks.ArgumentError("cost", "be a matrix (n, m)", f"shape {tuple(C.shape)}")
    C = _summable(C)
    n, m = C.shape
    ours = min(n, m) >= max(OURS_FROM, ALIKE * max(n, m)) or is_wide(to_numpy(C))
    C = C.double() if isinstance(C, Tensor) else C.astype(np.float64, copy=False)
    C = -C if maximize else C
    found = (_ours if ours else _scipy)(C if n <= m else C.T)
    rows, columns = np.arange(len(found)), found  # of C, or of its transpose
    if n > m:
        rows = np.argsort(found)
        rows, columns = found[rows], rows
    if not isinstance(cost, Tensor):
        return rows, columns
    return torch.as_tensor(rows, device=cost.device), torch.as_tensor(columns, device=cost.device)


def _numbers(cost: Any) -> Any:
    """A tensor or an array as it is, of any real dtype, truth values too; lists as an array."""
    if isinstance(cost, Tensor):
        return checks.unseen("cost", cost.detach().double() if cost.dtype == torch.bool else cost.detach())
    C = checks.plain("cost", cost, "an array of numbers")
    if C.dtype.kind not in "biuf":
        raise checks.ArgumentError("cost", "be an array of numbers", f"an array of dtype {C.dtype}")
    return C


def _summable(C: Any) -> Any:
    """Costs whose sums stay finite: very large ones times a power of 2, which is exact and moves no optimum."""
    if 0 in C.shape or max(abs(float(C.min())), abs(float(C.max()))) <= LARGEST_COST:  # ±inf, nan go on to the next line
        return C
    top = float(abs(C[abs(C) < np.inf]).max()) if bool((abs(C) < np.inf).any()) else 0.0
    return C * 2.0**-64 if top > LARGEST_COST else C


def _scipy(C: Any) -> np.ndarray:
    """The column of every row. Copies are made here: where memory is lacking, one that scipy makes ends the process."""
    from scipy.optimize import linear_sum_assignment as of_scipy

    return np.asarray(of_scipy(np.ascontiguousarray(to_numpy(C)))[1])


def _ours(C: Any) -> np.ndarray:
    """Solve with our engine; raise scipy's messages."""
    if not float(C.min()) > -np.inf:
        raise ValueError("matrix contains invalid numeric entries")
    try:
        return _columns(C)
    except ValueError:
        if float(C.max()) < np.inf:
            raise
        raise ValueError("cost matrix is infeasible") from None


def _columns(C: Any) -> np.ndarray:
    """The column of every row, [n], of a cost matrix [n, m] with n ≤ m."""
    n, m = C.shape
    if n == m:
        return np.asarray(to_numpy(_exact(solve(C, reg=0)).permutation))
    low = float(C.min())
    C = torch.cat([C, C.new_full((1, m), low)]) if isinstance(C, Tensor) else np.vstack([C, np.full(m, low)])
    a, b = np.append(np.ones(n), m - n), np.ones(m)
    i, j, masses = (to_numpy(t) for t in _exact(solve(C, a, b, reg=0)).pairs)
    found, order = np.empty(n + 1, np.int64), np.argsort(masses)
    found[i[order]] = j[order]  # of several, the last, which is the largest, stays
    return found[:n]


@needs(lambda x, y, metric, **_: of_sample(x, y, metric))
def assignment(
    x: Any,
    y: Any,
    metric: str | Features | Callable[[Any, Any], Any] = "sqeuclidean",
    mask: Any = None,
    labels: tuple[Any, Any] | None = None,
    allow: str = "equal",
    max_time: float | None = None,
) -> Any:
    """The optimal one-to-one map between two equally large sets of points: σ with the least Σ_i c(x_i, y_σ(i)).

    Parameters
    ----------
    x, y : array (n, d) each
        Points; numpy, lists or tensors.
    metric, mask, labels, allow, max_time
        As in `solve_sample`, of which this is ``solve_sample(x, y, reg=0).permutation``: the result there has the proof too.

    Returns
    -------
    σ, array (n,) of whole numbers, or a tensor on the device of tensors: x[i] goes to y[σ[i]].

    >>> assignment([[0.0], [1.0], [5.0]], [[4.0], [0.5], [0.9]]).tolist()
    [1, 2, 0]
    """
    if not isinstance(metric, Features):
        given = (t if isinstance(t, Tensor) else checks.array(name, t) for name, t in (("x", x), ("y", y)))
        shapes = [tuple(t.shape) for t in given]
        if shapes[0][:1] != shapes[1][:1]:
            raise checks.ArgumentError("x and y", "be equally many points", f"shapes {shapes[0]} and {shapes[1]}")
    r = solve_sample(x, y, reg=0, metric=metric, mask=mask, labels=labels, allow=allow, max_time=max_time)
    return _exact(r).permutation


def _exact(result: Result) -> ExactResult:
    assert isinstance(result, ExactResult)
    return result
