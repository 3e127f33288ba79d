r"""Exact transport: min Σ P C over plans with marginals a and b, with a certificate.

    rough layers  ─▶  potentials v  ─▶  rounds of "best on a sparse graph" and "look at all pairs"  ─▶  plan, potentials, gap
    start.py                            rounds.py
                      costs too different in size for float64, and rounds that do not end:  digits.py

Layers are only there to be near: whatever they give, the rounds end at the optimum, in as many looks at all pairs as v is
bad.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import callers, checks
from otformer.transport.exact import digits
from otformer.transport.exact.graphs import Clock, Sent, empty_graph
from otformer.transport.exact.pairs import AllPairs, MatrixPairs, OnDevice
from otformer.transport.exact.repeated import places
from otformer.transport.exact.result import ExactResult, proved, sparse
from otformer.transport.exact.rounds import Optimum, optimum
from otformer.transport.exact.small import ON_MATRIX, assign
from otformer.transport.exact.start import start
from otformer.transport.exact.units import Units, in_units
from otformer.transport.exact.whole_numbers import (
    MARGINAL,
    completed,
    is_proved,
    is_rounding,
    lost_digits,
    of_all_pairs,
    rounding,
)
from otformer.transport.executors.clouds import morton
from otformer.transport.problem.problem import Problem, Sides, to_numpy
from otformer.transport.problem.read import root_of

MOST_ORDERED = 8  # dimensions in which neighbours along a curve are near
MATRIX_UP_TO = 512  # points of an assignment that is solved on the matrix
GRAPH_UP_TO = 1500  # pairs of which all are put on the graph: choosing some takes longer than the flow
NO_TANGENTS = "an exact plan has none; emd2 gives that of the value"


def solve_exact(problem: Problem, tol: float, max_time: float | None = None) -> ExactResult:
    """The optimum of a problem, whose λ is not looked at."""
    clock = Clock(max_time)
    if problem.wanted is not None:
        cost, a, b, _ = problem.wanted
        checks.no_tangents(NO_TANGENTS, **{"M (or the points)": cost[0], "a": a, "b": b})
    if not len(problem.a):
        none, nothing = np.empty(0, np.int64), np.empty(0)
        sent = Sent(none, none, none, nothing)
        empty = Optimum(sent, nothing, nothing, 0.0, 0, none, none, "no points")
        return _finish(problem, empty, Units(none, none, 0.0, rounded=False), tol, 0, clock)
    units = in_units(to_numpy(problem.a), to_numpy(problem.b), problem.mass)
    found, depth, at = _on_matrix(problem, units, tol, clock), 0, places(problem)
    if at is not None:
        found, depth = _in_rounds(*at.merged(problem, units), tol, clock)
        found = at.shared(found, units)
    elif found is None:
        found, depth = _in_rounds(problem, units, tol, clock)
    return _finish(problem, found, units, tol, depth, clock)


def _in_rounds(problem: Problem, units: Units, tol: float, clock: Clock) -> tuple[Optimum, int]:
    """The optimum, and the layers that it took.

    Points in few dimensions are put along a curve before, so that searches stay near in memory.
    """
    order = None
    if isinstance(problem.cost, Sides) and problem.cost.x.shape[1] <= MOST_ORDERED:
        order = morton(problem.cost.x), morton(problem.cost.y)
        problem, units = _reordered(problem, *order), units.reordered(*map(to_numpy, order))
    pairs = _all_pairs(problem)
    v, depth = start(problem, pairs, clock)
    few = pairs.shape[0] * pairs.shape[1] <= digits.UP_TO
    found = optimum(pairs, units.supply, units.demand, v, problem.spread, clock, handed_over=few)
    if few and not clock.rung and not _is_sure(problem, found, tol):
        better = of_all_pairs(pairs, units, found.f, found.g, clock)
        found = better if math.isfinite(better.gap) or found.lost.any() else found  # or time was up
    if found.lost.any():
        found = completed(found, pairs, clock)
    if order is not None:
        i, j = map(to_numpy, order)
        sent = found.sent._replace(i=i[found.sent.i], j=j[found.sent.j])
        found = found._replace(sent=sent, f=found.f[np.argsort(i)], g=found.g[np.argsort(j)])
    return found, depth


def _reordered(problem: Problem, rows: Tensor, columns: Tensor) -> Problem:
    """The same problem with its points in another order."""
    x, y, p, q, rule = problem.cost
    if rule.labels is not None:
        rule = rule._replace(labels=(rule.labels[0][rows], rule.labels[1][columns]))
    first = None if problem.start is None else (problem.start[0][rows], problem.start[1][columns])
    sides = Sides(x[rows], y[columns], p[rows], q[columns], rule)
    weights = {"a": problem.a[rows], "b": problem.b[columns], "target": problem.target[columns]}
    return replace(problem, cost=sides, start=first, kept=None, wanted=None, **weights)


def _on_matrix(problem: Problem, units: Units, tol: float, clock: Clock) -> Optimum | None:
    """Of all pairs of a small matrix at once; None for any other, and where float64 is not enough."""
    if isinstance(problem.cost, Sides) or problem.start is not None:
        return None
    (n, m), C, found = problem.cost.shape, to_numpy(problem.cost), None
    if n == m and (units.supply == 1).all():
        found = _assigned(C) if n <= MATRIX_UP_TO else None
    elif n * m <= GRAPH_UP_TO:
        found = _on_whole_graph(C, units, clock)
    return found if found is not None and _is_sure(problem, found, tol) else None


def _is_sure(problem: Problem, found: Optimum, tol: float) -> bool:
    """Whether float64 was enough: all is sent, proved to be optimal, and costs of very different size kept their digits."""
    if not (is_proved(found, tol) and is_rounding(found)):
        return False
    return isinstance(problem.cost, Sides) or not (lost_digits(found) and digits.is_wide(to_numpy(problem.cost)))


def _assigned(C: np.ndarray) -> Optimum | None:
    found, i = assign(np.ascontiguousarray(C)[None]), np.arange(len(C))
    if not math.isfinite(found.gap[0]):
        return None
    sent = Sent(i, found.to[0], np.ones(len(C), np.int64), C[i, found.to[0]])
    none = np.zeros(len(C), np.int64)
    return Optimum(sent, found.f[0] + found.low[0], found.g[0], float(found.gap[0]), 1, none, none, ON_MATRIX)


def _on_whole_graph(C: np.ndarray, units: Units, clock: Clock) -> Optimum | None:
    """With all pairs on the graph the one look at them is for the proof; None where one is forbidden, or time is up."""
    u = C.min(1)
    v = (C - u[:, None]).min(0)
    if not float(C.max()) < math.inf:
        return None
    graph = empty_graph(units.supply, units.demand, u, v)
    graph.add(*np.divmod(np.arange(C.size), C.shape[1]), C.ravel())
    graph.run(clock, 0.0)
    lost, wanting = graph.unsent()
    if lost.any():
        return None
    sent, g = graph.sent(), graph.g
    f = (C - g).min(1)
    return Optimum(sent, f, g, sent.gap(f, g), 1, lost, wanting, graph.method)


def _all_pairs(problem: Problem) -> AllPairs:
    if not isinstance(problem.cost, Sides):
        return MatrixPairs(to_numpy(problem.cost))
    sides = problem.cost
    if sides.x.is_cuda:
        from otformer.transport.executors.gpu.least import GpuPairs

        return OnDevice(GpuPairs(sides.x, sides.y, sides.rule), sides.x.device)
    from otformer.transport.exact.point_pairs import PointPairs

    return PointPairs(sides.x.numpy(), sides.y.numpy(), sides.rule)


def _finish(problem: Problem, found: Optimum, units: Units, tol: float, depth: int, clock: Clock) -> ExactResult:
    i, j, sent, cost = found.sent
    masses, form, sides = sent * units.unit, problem.form, problem.cost if isinstance(problem.cost, Sides) else None
    p, q = (to_numpy(t) for t in sides[2:4]) if sides is not None else (np.full(1, problem.low), np.zeros(1))
    f, g = found.f + p, found.g + q
    value = float(masses @ cost) + float((to_numpy(problem.a) * p).sum() + (to_numpy(problem.b) * q).sum())
    moved = units.moved(to_numpy(problem.a), to_numpy(problem.b), found.f, found.g)
    gap = found.gap * units.unit + abs(moved)
    bound = float(to_numpy(problem.a) @ f + to_numpy(problem.b) @ g)
    if found.method == digits.IN_WHOLE_NUMBERS:  # the potentials of the proof have more digits than f and g
        bound = value - found.gap * units.unit - moved
    error = sum(
        float(abs(np.bincount(at, masses, len(w)) - w).sum())
        for at, w in ((i, to_numpy(problem.a)), (j, to_numpy(problem.target)))
    )
    number = form.number(value) if problem.wanted is None else form.number(_moving(problem, i, j, masses, f, g, value))
    permutation = None
    if problem.kept is None and len(f) == len(g) == len(i) and (units.supply == 1).all():
        permutation = form.place(j[np.argsort(i)])
    if problem.kept is not None:
        i, j = to_numpy(problem.kept.rows)[i], to_numpy(problem.kept.columns)[j]
    unsent = abs(problem.mass - float(masses.sum()))  # b may be given with another mass, which the marginal error says
    sure = proved(gap + rounding(found) * units.unit, value, float(masses @ abs(cost)), tol)
    converged = bool(sure) and unsent <= MARGINAL * problem.mass
    if not converged:
        callers.warn(
            f"not proved optimal: the gap is {gap:.3g} of {value:.6g}, tol is {tol:g}{'; raise max_time' * clock.rung}"
        )
    whole = tuple(form.give(to_numpy(problem.whole(t, side)), double=True) for side, t in enumerate((f, g)))
    masses = form.give(masses)
    listed = form.place(i), form.place(j), masses
    parts: dict[str, Any] = {"plan": partial(sparse, *listed, problem.shape), "value_linear": number}
    method = f"{depth} layers, then {found.method}" if depth else found.method
    return ExactResult(
        whole, number, error, converged, depth, method, float(units.unit) * float(sent.sum()), gap, parts,
        gap=gap, bound=bound, rounds=found.rounds, permutation=permutation, pairs=listed,
    )  # fmt: skip


def _moving(
    problem: Problem, i: np.ndarray, j: np.ndarray, masses: np.ndarray, f: np.ndarray, g: np.ndarray, value: float
) -> Tensor:
    """The value with its derivatives: P in the costs, f and g in the weights (the envelope theorem).

    b is scaled to the mass of a (`Wanted`), and C − low + low is what was given.
    """
    wanted = problem.wanted
    assert wanted is not None
    device = wanted.a.device
    rows, columns = (torch.as_tensor(t, device=device) for t in (i, j))
    P, u, v = (torch.as_tensor(t, device=device) for t in (masses, f, g))
    if isinstance(problem.cost, Sides):
        x, y, p, q = wanted.cost
        apart = (x[rows] - y[columns]).square().sum(1)
        c = (root_of(apart) if problem.cost.rule.root else apart) + p[rows] + q[columns]
    else:
        c = wanted.cost[0][rows, columns]
    total = P @ c + u @ wanted.a + v @ wanted.b
    return total - total.detach() + value
