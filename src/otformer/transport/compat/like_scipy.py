r"""Assignments: scipy's ``linear_sum_assignment`` on our engine, of many matrices too, and between points, without a matrix.

    min_σ Σ_i C_{i σ(i)}    over one-to-one maps σ of the rows to the columns.

With as many rows as columns this is transport with equal weights, whose extreme plans are the permutations (Birkhoff).
With n < m rows, one row more, to which the m − n columns left over go at one cost, makes it transport between whole numbers,
whose extreme plans are whole. The solver counts weights in units of 2⁻⁶⁰ of the mass, which m does not divide: as a few
units go astray, the column of a row is the one where most of it goes.

Many matrices are packed into one array, and cross to the CPU and back once (ragged/assignments.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.memory import needs, shape
from otformer.network.features import Features
from otformer.transport.exact.assignment import Ints
from otformer.transport.exact.digits import is_wide
from otformer.transport.exact.ragged_assignments import LARGEST_COST
from otformer.transport.needs import of_cost, of_sample
from otformer.transport.ragged.assignments import ALIKE, Packed, assign_packed, pairs
from otformer.transport.result.exact_result import ExactResult
from otformer.transport.result.result import Result
from otformer.transport.solve import solve, solve_sample
from otformer.transport.types import to_double, to_numpy

OURS_FROM = 300  # points: with fewer a call of ours costs more than the work of scipy's


@needs(lambda cost, **_: of_cost(cost, instead="assignment(x, y) between points never forms it"))
def linear_sum_assignment(cost: Any, maximize: bool = False, *, row_sizes: Any = None, col_sizes: Any = None) -> Any:
    """scipy's ``linear_sum_assignment``: one column for each row (or a row for each column) with the least sum.

        min_σ Σ_i C_iσ(i)    over one-to-one maps σ of min(n, m) rows to columns, for one matrix C or for each of many

    Parameters
    ----------
    cost : array (n, m); a stack (B, n, m); or a list of B matrices (n_k, m_k) of any shapes
        Numbers, numpy, lists or tensors; +inf (−inf if maximize) forbids a pair. A matrix may have no rows or no columns.
    maximize : bool
        Whether the sum is to be the greatest.
    row_sizes, col_sizes : whole numbers (B,), optional, of a stack
        The number of rows and columns of each matrix. The rest is padding, and is ignored.

    Returns
    -------
    of a matrix : row_ind, col_ind : arrays (min(n, m),), or tensors on the device of a tensor
        cost[row_ind, col_ind].sum() is the least; row_ind is sorted. If several are equally good, it may differ from
        scipy's.
    of a list : list of such pairs (row_ind, col_ind), as matchers of detectors return them
    of a stack : col_ind, array or tensor (B, n) of whole numbers
        The column of every row, −1 for a row without one, and for padding: a shape that does not depend on the numbers.

    An error names the problem: ``problem 3: cost matrix is infeasible``.

    Small matrices, and those with many more columns than rows or the reverse, are solved by scipy itself, unless their
    costs differ too much in size for float64: then they are solved in whole numbers (exact/digits.py). Many in one call are
    solved by compiled shortest paths, with torch's number of threads. Hundreds of tiny ones are fastest as a stack.

    >>> row, column = linear_sum_assignment([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    >>> row.tolist(), column.tolist()
    ([0, 1, 2], [1, 0, 2])
    >>> [t.tolist() for t in linear_sum_assignment(torch.tensor([[1.0, 2.0, 9.0]]), maximize=True)]
    [[0], [2]]
    >>> stack = torch.tensor([[[4.0, 1.0], [2.0, 0.0], [5.0, 2.0]], [[0.0, 5.0], [1.0, 1.0], [9.0, 9.0]]])
    >>> linear_sum_assignment(stack, row_sizes=[3, 1]).tolist()
    [[1, 0, -1], [0, -1, -1]]
    >>> [(i.tolist(), j.tolist()) for i, j in linear_sum_assignment([np.eye(2), np.ones((3, 1)), np.ones((0, 4))])]
    [([0, 1], [1, 0]), ([0], [0]), ([], [])]
    """
    axes = [_axes(part) for part in cost] if isinstance(cost, list | tuple) else [0]
    C = None if not axes or 2 in axes else _numbers("cost", cost)
    if (C is None or C.ndim == 2) and (row_sizes is not None or col_sizes is not None):
        raise checks.ArgumentError("row_sizes and col_sizes", "be left out", advice="they are of a stack (B, n, m) alone")
    if C is None:
        return _of_list(cost, maximize)
    if C.ndim == 3:
        return _of_stack(C, maximize, row_sizes, col_sizes, isinstance(cost, Tensor))
    if C.ndim != 2:
        raise checks.ArgumentError("cost", "be a matrix (n, m)", f"shape {tuple(C.shape)}", "or many: a list, or (B, n, m)")
    found = of_matrix(C, maximize)
    return tuple(torch.as_tensor(t, device=cost.device) for t in found) if isinstance(cost, Tensor) else found


def _axes(part: Any) -> int:
    return part.ndim if isinstance(part, np.ndarray | Tensor) else len(shape(part, 0))


def of_matrix(C: Any, maximize: bool) -> tuple[Ints, Ints]:
    """Rows, in their order, and columns, of one matrix of numbers."""
    C = _summable(C)
    n, m = C.shape
    ours = min(n, m) >= max(OURS_FROM, ALIKE * max(n, m)) or is_wide(to_numpy(C))
    C = C.double() if isinstance(C, Tensor) else C.astype(np.float64, copy=False)
    C = -C if maximize else C
    found = (_ours if ours else _scipy)(C if n <= m else C.T)
    if n <= m:
        return np.arange(n), found
    rows = np.argsort(found)
    return found[rows], rows


@torch.no_grad()
def _of_list(costs: Sequence[Any], maximize: bool) -> list[tuple[Any, Any]]:
    """The pairs of each matrix; tensors on their device if all are tensors."""
    devices = {str(C.device) for C in costs if isinstance(C, Tensor)}
    if len(devices) > 1:
        raise checks.ArgumentError("cost", "be on one device", " and ".join(sorted(devices)))
    tensors = all(isinstance(C, Tensor) for C in costs)
    if not _are_alike(costs):
        costs = [_numbers(f"cost[{k}]", C) for k, C in enumerate(costs)]
    for k, C in enumerate(costs):
        if C.ndim != 2:
            raise checks.ArgumentError(f"cost[{k}]", "be a matrix (n, m)", f"shape {tuple(C.shape)}")
    if not costs:
        return []
    vectors = [C.flatten() if tensors else to_numpy(C).ravel() for C in costs]
    flat = torch.cat(vectors) if tensors else np.concatenate(vectors)
    packed = Packed.from_shapes(_floats(_numbers("cost", flat)), [C.shape for C in costs])
    i, j, counts = pairs(packed, assign_packed(packed, maximize, of_matrix))
    if tensors:
        both = torch.as_tensor(np.stack([i, j]), device=flat.device)
        return list(zip(*(t.split(counts) for t in both), strict=True))
    return [(i[start:end], j[start:end]) for start, end in pairwise(accumulate(counts, initial=0))]


def _are_alike(costs: Sequence[Any]) -> bool:
    """Whether all are ordinary arrays, or tensors, of one dtype, so that one check is enough for all their numbers."""
    kinds = {(type(C), getattr(C, "dtype", None), getattr(C, "layout", None)) for C in costs}
    kind, _, layout = next(iter(kinds), (None, None, None))
    return len(kinds) == 1 and (kind is np.ndarray or (kind is Tensor and layout == torch.strided))


def _floats(t: Any) -> Any:
    """An array on the CPU, of float32 or float64, contiguous."""
    array = to_numpy(t)
    return np.ascontiguousarray(array if array.dtype == np.float32 else to_double(array))


def _of_stack(C: Any, maximize: bool, row_sizes: Any, col_sizes: Any, tensor: bool) -> Any:
    """The column of every row [B, n], −1 without one."""
    count, n, m = C.shape
    sizes = _sizes("row_sizes", row_sizes, count, n), _sizes("col_sizes", col_sizes, count, m)
    packed = Packed.from_stack(_floats(C), *sizes)
    to = assign_packed(packed, maximize, of_matrix).reshape(count, n)
    return torch.as_tensor(to, device=C.device) if tensor else to


def _sizes(name: str, given: Any, count: int, most: int) -> Ints:
    """How many rows or columns each matrix has, [B]."""
    if given is None:
        return np.full(count, most)
    sizes = to_numpy(given) if isinstance(given, Tensor) else checks.plain(name, given, "whole numbers")
    if sizes.shape != (count,) or (count and sizes.dtype.kind not in "iu"):
        raise checks.ArgumentError(name, f"be {count} whole numbers", f"shape {sizes.shape} of {sizes.dtype}")
    outside = np.flatnonzero((sizes < 0) | (sizes > most))
    if len(outside):
        raise checks.ArgumentError(name, f"be from 0 to {most}", f"{sizes[outside[0]]} for problem {outside[0]}")
    return sizes.astype(np.int64)


def _numbers(name: str, cost: Any) -> Any:
    """A tensor or an array as it is, of any real dtype, booleans included; lists as an array."""
    if isinstance(cost, Tensor):
        return checks.unseen(name, cost.detach().double() if cost.dtype == torch.bool else cost.detach())
    C = checks.plain(name, cost, "an array of numbers")
    if C.dtype.kind not in "biuf":
        raise checks.ArgumentError(name, "be an array of numbers", f"an array of dtype {C.dtype}")
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
        As in `solve_sample`. This is ``solve_sample(x, y, reg=0).permutation``; the result there also has the proof.

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
