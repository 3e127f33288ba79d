"""Forbidden pairs of a cost matrix: infinite costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.problem.labels import Labels
from otformer.transport.problem.problem import Array, Form, Kept, Problem, to_numpy

SIDES = ("row", "column")
FEW_STEPS = 3


def greatest_allowed(C: Array, low: float) -> float:
    """The greatest cost that is not infinite, where some are: +inf forbids a pair, anything else is an error."""
    t = checks.local(C)
    if low == -math.inf or math.isnan(low):
        wrong = checks.first_not_finite(torch.where(t == math.inf, 0.0, t))
        raise ValueError(f"M must be finite, or inf for a forbidden pair, got {wrong}")
    return float(torch.where(t.isinf(), -math.inf, t).max())


def unmasked(M: Any) -> Any:
    """A masked array of numpy as a plain one, with inf where it is masked; anything else as it is."""
    if not isinstance(M, np.ma.MaskedArray):
        return M
    return np.where(np.ma.getmaskarray(M), math.inf, checks.array("M", M.data))


def masked(C: Array, mask: Any) -> Array:
    """inf where the mask is False."""
    expected = f"a boolean array of shape {tuple(C.shape)}"
    try:
        allowed = mask if isinstance(mask, Tensor) else torch.from_numpy(checks.plain("mask", mask, expected).copy())
    except TypeError:
        raise ValueError(f"mask must be {expected}, got {type(mask).__name__}") from None
    checks.no_transforms("mask", allowed)
    if allowed.dtype != torch.bool or tuple(allowed.shape) != tuple(C.shape):
        kind = str(allowed.dtype).removeprefix("torch.")
        expected = f"boolean of shape {tuple(C.shape)}, True where a pair may match"
        raise ValueError(f"mask must be {expected}, got {kind} of shape {tuple(allowed.shape)}")
    if isinstance(C, Tensor):
        return torch.where(allowed.to(C.device), C, math.inf)
    return np.where(allowed.cpu().numpy(), C, math.inf)


def check_reachable(C: Array) -> None:
    """A point that has mass needs somebody to send it to."""
    t = checks.local(C)
    for side, name in ((1, "row"), (0, "column")):
        lost = t.isinf().all(side).nonzero()
        if len(lost):
            raise ValueError(f"M or mask forbids every pair of {name} {int(lost[0])}, which has mass: leave that point out")


def parts(C: Array, kept: Kept | None) -> Labels | None:
    """`connected` parts of a matrix, by its pairs that are not forbidden."""
    allowed = np.isfinite(to_numpy(C))
    rows = columns = allowed[0]
    for _ in range(FEW_STEPS):  # most masks connect all points within a few steps
        rows = allowed[:, columns].any(1)
        columns = allowed[rows].any(0)
        if rows.all() and columns.all():
            return None
    i, j = np.nonzero(allowed)
    return connected(i, j, (allowed.shape[0], allowed.shape[1]), kept)


def connected(i: np.ndarray, j: np.ndarray, shape: tuple[int, int], kept: Kept | None) -> Labels | None:
    """Which rows and columns the pairs (i, j) connect, as labels that only match their own; None if they connect all.

    Each part is a problem of its own, and must have as much mass on one side as on the other. ``kept`` says which of all
    rows and columns these are.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n, m = shape
    graph = coo_array((np.ones(len(i), np.bool_), (i, j + n)), shape=(n + m, n + m))
    count, part = connected_components(graph, directed=False)
    if count == 1:
        return None
    sides = (part[:n], part[n:]) if kept is None else (_placed(part[:n], kept.rows), _placed(part[n:], kept.columns))
    rows, columns = (
        [f"{name} {(side == k).argmax()}" for k in range(count)] for name, side in zip(SIDES, sides, strict=True)
    )
    at = torch.from_numpy(part.astype(np.int64))
    return Labels(at[:n], at[n:], True, rows, columns, blocks=True)


def _placed(part: np.ndarray, at: Array) -> np.ndarray:
    """The parts of those that have mass, at their places among all; −1 elsewhere."""
    places = to_numpy(at)
    out = np.full(int(places.max(initial=-1)) + 1, -1)
    out[places] = part
    return out


def allows_a_plan(problem: Problem) -> bool:
    """Whether a plan with these marginals exists on the pairs that are allowed: whether one of cost 0 there can be found."""
    C = checks.local(problem.cost)
    if not bool(C.isinf().any()):
        return True
    from otformer.transport.exact.solve import solve_exact

    free = replace(problem.as_tensors(), cost=torch.where(C.isinf(), C, 0.0), wanted=None, start=None, low=0.0, spread=0.0)
    try:
        solve_exact(replace(free, form=Form(None, single=False)), tol=0.0)
    except ValueError:
        return False
    return True
