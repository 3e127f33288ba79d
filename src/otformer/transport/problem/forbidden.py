"""Forbidden pairs of a cost matrix: infinite costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.problem.labels import Labels
from otformer.transport.types import Array, Support, to_numpy

SIDES = ("row", "column")
FEW_STEPS = 3


def greatest_allowed(C: Array, low: float) -> float:
    """The greatest cost that is not infinite, where some are: +inf forbids a pair, anything else is an error."""
    t = checks.local(C)
    if low == -math.inf or math.isnan(low):
        wrong = checks.first_not_finite(torch.where(t == math.inf, 0.0, t))
        raise checks.ArgumentError("M", "be finite, or inf for a forbidden pair", wrong)
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
        raise checks.ArgumentError("mask", f"be {expected}", type(mask).__name__) from None
    checks.no_transforms("mask", allowed)
    if allowed.dtype != torch.bool or tuple(allowed.shape) != tuple(C.shape):
        kind = str(allowed.dtype).removeprefix("torch.")
        expected = f"boolean of shape {tuple(C.shape)}, True where a pair may match"
        raise checks.ArgumentError("mask", f"be {expected}", f"{kind} of shape {tuple(allowed.shape)}")
    if isinstance(C, Tensor):
        return torch.where(allowed.to(C.device), C, math.inf)
    return np.where(allowed.cpu().numpy(), C, math.inf)


def check_reachable(C: Array, support: Support | None) -> None:
    """A point that has mass needs somebody to send it to; ``support`` says which of all points these are."""
    allowed = checks.local(C).isfinite()
    check_served(allowed.any(1), allowed.any(0), support)


def check_served(rows: Tensor, columns: Tensor, support: Support | None) -> None:
    """Every row [n] and column [m] has an allowed pair."""
    for side, (served, name) in enumerate(zip((rows, columns), SIDES, strict=True)):
        lost = (~served).nonzero()
        if len(lost):
            k = int(lost[0])
            k = k if support is None else int(to_numpy((support.rows, support.columns)[side])[k])
            raise ValueError(f"M or mask forbids every pair of {name} {k}, which has mass: leave that point out")


def parts(C: Array, support: Support | None) -> Labels | None:
    """`connected` parts of a matrix, by its pairs that are not forbidden."""
    allowed = np.isfinite(to_numpy(C))
    rows = columns = allowed[0]
    for _ in range(FEW_STEPS):  # most masks connect all points within a few steps
        rows = allowed[:, columns].any(1)
        columns = allowed[rows].any(0)
        if rows.all() and columns.all():
            return None
    i, j = np.nonzero(allowed)
    return connected(i, j, (allowed.shape[0], allowed.shape[1]), support)


def connected(i: np.ndarray, j: np.ndarray, shape: tuple[int, int], support: Support | None) -> Labels | None:
    """Which rows and columns the pairs (i, j) connect, as labels that only match their own; None if they connect all.

    Each part is a problem of its own, and must have as much mass on one side as on the other. ``support`` says which of all
    rows and columns these are.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n, m = shape
    graph = coo_array((np.ones(len(i), np.bool_), (i, j + n)), shape=(n + m, n + m))
    count, part = connected_components(graph, directed=False)
    if count == 1:
        return None
    sides = (
        (part[:n], part[n:]) if support is None else (_placed(part[:n], support.rows), _placed(part[n:], support.columns))
    )
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
