r"""Exact transport: min Σ P C over plans with marginals a and b, with a certificate.

    small matrices                      shortest paths, or sweeps over all pairs         small_assignments.py, all_pairs.py
    costs of known structure            a plan is proposed, and proved                                         structure.py
    all others                          potentials v from fewer points, or from rough layers    coarse_to_fine.py, start.py
         └─▶ rounds of "best on a sparse graph" and "scan all pairs", then sweeps over all pairs   rounds.py, all_pairs.py
    costs of very different size        whole numbers, once float64 has done what it can                   whole_numbers.py

Potentials only save time: from any v the end is the optimum.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from otformer.transport.costs.cost import Cost
from otformer.transport.exact import digits
from otformer.transport.exact.all_pairs import on_matrix
from otformer.transport.exact.coarse_to_fine import from_coarser
from otformer.transport.exact.flow_graph import Clock, Sent
from otformer.transport.exact.repeated import places
from otformer.transport.exact.rounds import SWEPT, Optimum, of_tree, optimum
from otformer.transport.exact.small_assignments import ALL_LOOKS, ON_MATRIX, assign
from otformer.transport.exact.start import start, usable
from otformer.transport.exact.structure import is_tight, structured
from otformer.transport.exact.units import Units, in_units
from otformer.transport.exact.whole_numbers import (
    completed,
    is_proved,
    is_rounding,
    least_of_rows,
    lost_digits,
    of_all_pairs,
    of_graph,
)
from otformer.transport.types import Problem, to_numpy

TRIED_UP_TO, ALWAYS_UP_TO = 256, 128  # points of an assignment that shortest paths on the matrix are tried on; are used for
LOOKS_EACH = 4  # at rows, for each of more than a few, before sweeps are better
SWEPT_UP_TO = 1024 * 1024  # pairs of a matrix that needs no list of them
WIDE = 2  # times as many columns as rows: columns to rows take less time


class Found(NamedTuple):
    """Hold the optimum of a problem in units of weight, the layers that led there, and the clock it ran by."""

    optimum: Optimum
    units: Units
    depth: int
    clock: Clock


def find_optimum(problem: Problem, tol: float, max_time: float | None = None) -> Found:
    """Find the optimum of a problem; its λ is ignored."""
    clock = Clock(max_time)
    if not len(problem.a):
        none, nothing = np.empty(0, np.int64), np.empty(0)
        empty = Optimum(Sent(none, none, none, nothing), nothing, nothing, 0.0, 0, none, none, "no points")
        return Found(empty, Units(none, none, 0.0, rounded=False), 0, clock)
    units = in_units(to_numpy(problem.a), to_numpy(problem.b), problem.mass)
    allowed = problem.cost.allowed()
    if allowed is not None:
        return Found(_on_graph(problem, allowed, units, tol, clock), units, 0, clock)
    turned = _transposed(problem)
    if turned is None:
        found, depth = _found(problem, units, tol, clock)
    else:
        found, depth = _found(turned, units._replace(supply=units.demand, demand=units.supply), tol, clock)
        sent = found.sent._replace(i=found.sent.j, j=found.sent.i)
        found = found._replace(sent=sent, f=found.g, g=found.f, unsent=found.unmet, unmet=found.unsent)
    if found.unsent.any():
        found = completed(found, problem.cost, clock)
    return Found(found, units, depth, clock)


def _transposed(problem: Problem) -> Problem | None:
    """Return the problem of columns to rows where there are far more columns: a look along a row should be short."""
    n, m = problem.cost.shape
    cost = problem.cost.transposed() if m > WIDE * n and problem.cost.direct() is not None else None
    if cost is None:
        return None
    first = None if problem.start is None else problem.start[::-1]
    return replace(problem, cost=cost, a=problem.b, b=problem.a, target=problem.a, start=first, support=None, wanted=None)


def _found(problem: Problem, units: Units, tol: float, clock: Clock) -> tuple[Optimum, int]:
    """Return the optimum, and the layers that it took."""
    found = _on_matrix(problem, units, tol, clock)
    if found is not None:
        return found, 0
    at = places(problem.cost)
    if at is None:
        return _in_rounds(problem, units, tol, clock)
    found, depth = _in_rounds(*at.merged(problem, units), tol, clock)
    return at.shared(found, units), depth


def _in_rounds(problem: Problem, units: Units, tol: float, clock: Clock) -> tuple[Optimum, int]:
    """Return the optimum, and the layers that it took.

    Points in few dimensions are sorted along a curve first, so that searches stay near in memory.
    """
    order = problem.cost.order()
    if order is not None:
        problem, units = _reordered(problem, *order), units.reordered(*map(to_numpy, order))
    pairs = problem.cost.pairs()
    found, depth = structured(problem, pairs, units, clock), 0
    few = math.prod(pairs.shape) <= digits.UP_TO
    if found is None or not is_tight(found):
        v, depth = _potentials(problem, pairs, clock) if found is None else (found.g, 0)
        found = optimum(pairs, units.supply, units.demand, v, problem.cost.spread, clock, handed_over=few)
    if few:
        found = _made_sure(problem, pairs, found, units, tol, clock)
    if order is not None:
        i, j = map(to_numpy, order)
        sent, row, column = found.sent._replace(i=i[found.sent.i], j=j[found.sent.j]), np.argsort(i), np.argsort(j)
        found = found._replace(sent=sent, f=found.f[row], g=found.g[column])
        found = found._replace(unsent=found.unsent[row], unmet=found.unmet[column])
    return found, depth


def _potentials(problem: Problem, pairs: Cost, clock: Clock) -> tuple[np.ndarray, int]:
    """Return potentials of the columns [m] to begin with, and the layers that led to them."""
    few, direct = math.prod(pairs.shape) <= SWEPT or problem.cost.clouds() is None, pairs.direct()
    # Where pairs are forbidden, fewer points might allow no plan.
    if problem.start is None and few and direct is not None and not np.isinf(direct.C).any():
        return from_coarser(pairs, to_numpy(problem.a), to_numpy(problem.b), clock), 0
    return start(problem, pairs, clock)


def _made_sure(problem: Problem, pairs: Cost, found: Optimum, units: Units, tol: float, clock: Clock) -> Optimum:
    """Go on in whole numbers if float64 was not enough."""
    if clock.expired or _is_sure(problem, found, tol):
        return found
    better = of_all_pairs(pairs, units, found, clock)
    return better if math.isfinite(better.gap) or found.unsent.any() else found  # or time was up


def _on_graph(problem: Problem, pairs: tuple[np.ndarray, np.ndarray], units: Units, tol: float, clock: Clock) -> Optimum:
    """Solve on all allowed pairs at once: few pairs are a graph already, and there are no others to price."""
    (i, j), v = pairs, np.zeros(len(units.demand))
    c = problem.cost.costs(i, j)
    if problem.start is not None:
        v = usable(to_numpy(problem.start[1]), problem.cost.spread)
    found = of_graph(i, j, c, units, least_of_rows(i, c - v[j], len(units.supply)), v, tol, clock)
    return completed(found, problem.cost, clock) if found.unsent.any() else found


def _reordered(problem: Problem, rows: Tensor, columns: Tensor) -> Problem:
    """Return the same problem with its points in another order."""
    first = None if problem.start is None else (problem.start[0][rows], problem.start[1][columns])
    weights = {"a": problem.a[rows], "b": problem.b[columns], "target": problem.target[columns]}
    return replace(problem, cost=problem.cost.take(rows, columns), start=first, support=None, wanted=None, **weights)


def _on_matrix(problem: Problem, units: Units, tol: float, clock: Clock) -> Optimum | None:
    """Solve on the full matrix. None if the problem is not small, or sweeps would meet forbidden pairs."""
    if problem.cost.dense is None or problem.start is not None:
        return None
    (n, m), C, found = problem.cost.shape, to_numpy(problem.cost.dense), None
    if n == m <= TRIED_UP_TO and (units.supply == 1).all():
        found = _assigned(C)
    if found is None and n * m <= SWEPT_UP_TO and float(C.max()) < math.inf:
        found = structured(problem, problem.cost, units, clock)
        if found is None or not is_tight(found):
            found = of_tree(on_matrix(np.ascontiguousarray(C), units.supply, units.demand, clock), problem.cost)
    return None if found is None else _made_sure(problem, problem.cost, found, units, tol, clock)


def _is_sure(problem: Problem, found: Optimum, tol: float) -> bool:
    """Return whether float64 was enough: all is sent, proved optimal, and costs of very different size kept their digits."""
    if not (is_proved(found, tol) and is_rounding(found)):
        return False
    C = to_numpy(problem.cost.dense)
    return not (C is not None and lost_digits(found) and digits.is_wide(C))


def _assigned(C: np.ndarray) -> Optimum | None:
    n = len(C)
    found, i = assign(np.ascontiguousarray(C)[None], ALL_LOOKS if n <= ALWAYS_UP_TO else LOOKS_EACH * n), np.arange(n)
    if not math.isfinite(found.gap[0]):
        return None
    sent = Sent(i, found.to[0], np.ones(len(C), np.int64), C[i, found.to[0]])
    none = np.zeros(len(C), np.int64)
    return Optimum(sent, found.f[0] + found.low[0], found.g[0], float(found.gap[0]), 1, none, none, ON_MATRIX)
