"""Exact transport with its certificate, as a result."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor

from otformer import callers, checks
from otformer.transport.exact import digits
from otformer.transport.exact.find_optimum import find_optimum
from otformer.transport.exact.whole_numbers import MARGINAL, proved, rounding
from otformer.transport.result.exact_result import ExactResult, sparse
from otformer.transport.result.finish import one_result
from otformer.transport.types import Problem, to_numpy

NO_TANGENTS = "an exact plan has none; emd2 gives that of the value"


def solve_exact(problem: Problem, tol: float, max_time: float | None = None, warn: bool = True) -> ExactResult:
    """The optimum of a problem, with its certificate."""
    if problem.wanted is not None:
        moving, w_a, w_b, _ = problem.wanted
        checks.no_tangents(NO_TANGENTS, **{"M (or the points)": moving[0] if moving else w_a, "a": w_a, "b": w_b})
    found, units, depth, clock = find_optimum(problem, tol, max_time)
    i, j, sent, cost = found.sent
    masses, form, a, b = sent * units.unit, problem.form, to_numpy(problem.a), to_numpy(problem.b)
    p, q = (to_numpy(t) for t in problem.cost.gauge())
    f, g = found.f + p, found.g + q
    value = float(masses @ cost) + float((a * p).sum() + (b * q).sum())
    moved = units.moved(a, b, found.f, found.g)
    gap = found.gap * units.unit + abs(moved)
    bound = float(a @ f + b @ g)
    if found.method == digits.IN_WHOLE_NUMBERS:  # the potentials of the proof have more digits than f and g
        bound = value - found.gap * units.unit - moved
    error = sum(float(abs(np.bincount(at, masses, len(w)) - w).sum()) for at, w in ((i, a), (j, to_numpy(problem.target))))
    number = form.number(value) if problem.wanted is None else form.number(_moving(problem, i, j, masses, f, g, value))
    permutation = None
    if problem.support is None and len(f) == len(g) == len(i) and (units.supply == 1).all():
        permutation = form.place(j[np.argsort(i)])
    if problem.support is not None:
        i, j = to_numpy(problem.support.rows)[i], to_numpy(problem.support.columns)[j]
    unsent = abs(problem.mass - float(masses.sum()))  # b may be given with another mass, which the marginal error says
    sure = proved(gap + rounding(found) * units.unit, value, float(masses @ abs(cost)), tol)
    converged = bool(sure) and math.isfinite(value) and unsent <= MARGINAL * problem.mass
    if warn and not converged:
        callers.warn(
            f"not proved optimal: the gap is {gap:.3g} of {value:.6g}, tol is {tol:g}{'; raise max_time' * clock.expired}"
        )
    whole = tuple(form.give(to_numpy(problem.whole(t, side)), double=True) for side, t in enumerate((f, g)))
    pairs = form.place(i), form.place(j), form.give(masses)
    return one_result(
        ExactResult,
        potentials=whole,
        value=number,
        marginal_error=error,
        converged=converged,
        depth=depth,
        method=f"{depth} layers, then {found.method}" if depth else found.method,
        mass=float(units.unit) * float(sent.sum()),
        error=gap,
        parts={"plan": partial(sparse, *pairs, problem.shape), "value_linear": number},
        gap=gap,
        bound=bound,
        rounds=found.rounds,
        permutation=permutation,
        pairs=pairs,
    )


def _moving(
    problem: Problem, i: np.ndarray, j: np.ndarray, masses: np.ndarray, f: np.ndarray, g: np.ndarray, value: float
) -> Tensor:
    """The value with its derivatives: P in the costs, f and g in the weights (the envelope theorem).

    b is scaled to the mass of a (`Inputs`), and C − low + low is what was given.
    """
    wanted = problem.wanted
    assert wanted is not None
    device = wanted.a.device
    rows, columns = (torch.as_tensor(t, device=device) for t in (i, j))
    P, u, v = (torch.as_tensor(t, device=device) for t in (masses, f, g))
    c = problem.cost.entries(wanted.cost, rows, columns)
    total = P @ c + u @ wanted.a + v @ wanted.b
    return total - total.detach() + value
