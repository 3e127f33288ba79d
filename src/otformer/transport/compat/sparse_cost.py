"""`emd` of a sparse matrix: the pairs that it holds are allowed, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.exact.result import proved
from otformer.transport.exact.units import in_units
from otformer.transport.problem.forbidden import connected
from otformer.transport.problem.potentials import read_potentials
from otformer.transport.problem.problem import Form, to_numpy
from otformer.transport.problem.read import WIDEST_RANGE
from otformer.transport.problem.weights import Weights, read_weights

# Pairs with their masses, potentials, cost, gap, whether that is small enough, and the form of the matrix.
Solution = tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray, np.ndarray, float, float, bool, Form]


def solve_sparse(a: Any, b: Any, M: Any, start: Any, tol: float) -> Solution:
    """The pairs of a sparse matrix are a graph already: all at once, and none to look at besides (exact/rounds.py).

    Points without mass stay on it, and have potentials like all others.
    """
    from otformer.transport.exact.start import usable
    from otformer.transport.exact.whole_numbers import is_rounding, least_of_rows, of_graph, rounding

    form, (n, m), i, j, c = _read_sparse(M)
    weights = _of_parts(read_weights(a, b, (n, m), form.device), i, j, (n, m))
    units = in_units(to_numpy(weights.a), to_numpy(weights.b), weights.mass)
    everywhere = units._replace(supply=np.zeros(n, np.int64), demand=np.zeros(m, np.int64))
    rows, columns = (slice(None), slice(None)) if weights.kept is None else (to_numpy(t) for t in weights.kept[:2])
    everywhere.supply[rows], everywhere.demand[columns] = units.supply, units.demand
    v = np.zeros(m)
    if start is not None:
        first = read_potentials(start, *(torch.from_numpy(np.empty(k)) for k in (n, m)))
        v = usable(first[1].numpy(), float(np.ptp(c)) if len(c) else 0.0)
    found = of_graph(i, j, c, everywhere, least_of_rows(i, c - v[j], n), v, tol)
    if not is_rounding(found):
        where = f"row {np.flatnonzero(found.lost)[0]} and others that have mass"
        raise ValueError(f"M holds no plan with these marginals: {where} can only send it to columns that want less")
    sent, f, g = found.sent, found.f, found.g
    masses = sent.units * units.unit
    moved = units.moved(to_numpy(weights.a), to_numpy(weights.b), f[rows], g[columns])
    cost, gap = float(masses @ sent.cost), found.gap * units.unit + abs(moved)
    sure = bool(proved(gap + rounding(found) * units.unit, cost, float(masses @ abs(sent.cost)), tol))
    return (sent.i, sent.j, masses), f, g, cost, gap, sure, form


def _of_parts(weights: Weights, i: np.ndarray, j: np.ndarray, shape: tuple[int, int]) -> Weights:
    """b scaled to the mass of a in every part of the graph (i, j) that has mass; refused where these differ."""
    kept = weights.kept
    if kept is not None:
        numbers = [np.full(size, -1) for size in shape]
        for own, number in zip(kept[:2], numbers, strict=True):
            number[to_numpy(own)] = np.arange(len(own))
        i, j = numbers[0][i], numbers[1][j]
        some = (i >= 0) & (j >= 0)
        i, j = i[some], j[some]
    found = connected(i, j, (len(weights.a), len(weights.b)), kept)
    if found is None:
        return weights
    return found.fitted(weights._replace(kept=None), None, True)[1]._replace(kept=kept)


def _read_sparse(M: Any) -> tuple[Form, tuple[int, int], np.ndarray, np.ndarray, np.ndarray]:
    """Its form and shape, and the pairs it allows: rows, columns and costs, [E] each, in the order of rows."""
    if len(M.shape) != 2 or 0 in M.shape:
        raise ValueError(f"M must have shape (n, m), both at least 1 where it is sparse, got {tuple(M.shape)}")
    if isinstance(M, Tensor):
        listed = M.to_sparse_coo().coalesce()
        (i, j), costs, device = to_numpy(listed.indices()), to_numpy(checks.array("M", listed.values())), M.device
    else:
        listed = M.tocsr(copy=True)
        listed.sum_duplicates()
        listed = listed.tocoo()
        i, j, costs, device = listed.row, listed.col, checks.array("M", listed.data), None
    allowed = costs != np.inf
    if not np.isfinite(costs[allowed]).all():
        wrong = checks.first_not_finite(costs[allowed])
        raise ValueError(f"M must hold finite numbers, or inf for a forbidden pair, got {wrong}")
    finite = costs[allowed].astype(np.float64)
    if len(finite) and not float(finite.max()) - float(finite.min()) <= WIDEST_RANGE:
        raise ValueError("M must hold costs that lie less than 1e300 apart, got a wider range")
    i, j, c = i[allowed].astype(np.int64), j[allowed].astype(np.int64), finite
    return Form(device, costs.dtype == np.float32), (M.shape[0], M.shape[1]), i, j, c
