"""Entropic transport by every door: a certificate for each result, and the symmetries of the problem.

**Tolerances.** `helpers.certificates.apart` bounds ‖P − P'‖₁ for two results by their own marginal errors and potentials.
Values: V(S), the minimum for marginals S, is convex and (u, v) is its slope at the S that a plan has; so values of results
that both miss a and b, by ε and ε', differ by at most (ε + ε') max(|u|, |v|, |u'|, |v'|), beside the rounding of a sum of
numbers of that size.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import ot
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

import otformer as of
from helpers.certificates import EPS, Entropic, apart, entropic
from helpers.strategies import Case, cases, orders

TOL = 1e-10
N = 64  # at least the roundings in any sum over a plan here: up to 36 entries


@pytest.fixture(autouse=True, scope="module")
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def by_cost(**more: Any) -> Any:
    return lambda c: of.solve(c.C, c.a, c.b, reg=c.reg, tol=TOL, **more)


def by_points(**more: Any) -> Any:
    return lambda c: of.solve_sample(*c[:4], reg=c.reg, tol=TOL, **more)


def in_a_batch(c: Case) -> of.Result:
    """Between two others, of other sizes."""
    return of.solve_batch([np.eye(2), (c.x, c.y, c.a, c.b), np.ones((7, 3))], reg=c.reg, tol=TOL)[1]


def on_one_rank(c: Case) -> of.Result:
    return of.solve_sharded(*(torch.from_numpy(t) for t in c[:4]), reg=c.reg, tol=TOL)


DOORS = {
    "solve": by_cost(),
    "solve, Newton": by_cost(solver=of.Newton()),
    "solve, Mixed": by_cost(solver=of.Mixed(memory=8)),
    "solve, Sinkhorn": by_cost(solver=of.Mixed(memory=0)),
    "solve_sample": by_points(executor="dense"),
    "stream": by_points(executor="stream"),
    "batch": in_a_batch,
    "sharded": on_one_rank,
}
each_door = pytest.mark.parametrize("door", DOORS)
MAIN = ("solve", "stream", "batch")  # three engines that share little
each_engine = pytest.mark.parametrize("door", MAIN)


def solved(door: str, c: Case) -> of.Result:
    """A result that may have stopped above TOL: what it says of itself has to be true all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return DOORS[door](c)


def matrix(result: of.Result) -> np.ndarray:
    plan = (
        result.plan.dense() if hasattr(result.plan, "dense") and not isinstance(result.plan, torch.Tensor) else result.plan
    )
    return np.asarray(plan, dtype=np.float64)


def off(door: str, c: Case) -> float:
    """By how much costs may be off that are never formed.

    Points are moved to the middle of all, which rounds a coordinate by ε of the largest, and d products are summed.
    """
    reach = float(np.ptp(np.concatenate([c.x, c.y]), axis=0).max())
    away = reach + float(max(np.abs(c.x).max(), np.abs(c.y).max()))
    return 16 * c.x.shape[1] * EPS * reach * away if door in ("stream", "sharded") else 0.0


def certified(door: str, result: of.Result, c: Case) -> Entropic:
    """The plan and what it claims, once it is of the form of a minimiser: among the points that have mass."""
    return entropic(c.C, c.a, c.b, c.reg, matrix(result), *(np.asarray(t) for t in result.potentials), off(door, c))


def largest(*found: Entropic) -> float:
    return max(max(np.abs(f.u).max(), np.abs(f.v).max()) for f in found)


def agree(first: of.Result, second: of.Result, one: Entropic, other: Entropic, reg: float, shift: float = 0.0) -> None:
    """The same plan, and values that differ by ``shift``, as far as the head of this file says."""
    assert abs(one.P - other.P).sum() <= apart(one, other, reg)
    errors = one.error + other.error + N * (EPS + one.rounding + other.rounding) * max(one.P.sum(), other.P.sum())
    assert abs(float(first.value) + shift - float(second.value)) <= errors * (largest(one, other) + reg) + N * EPS * abs(
        shift
    )


@each_door
@given(cases())
def test_every_result_is_the_plan_that_it_says_it_is(door, c):
    """Form, marginals, value and its own word on convergence; and the plan and value of `solve`."""
    result = solved(door, c)
    found = certified(door, result, c)
    assert abs(found.error - result.marginal_error) <= N * EPS + 4 * found.rounding  # of rows and columns, theirs and ours
    assert result.converged == (result.marginal_error < TOL)
    assert result.converged or door == "solve, Sinkhorn"  # whose rate may be as slow as one likes
    P, C = found.P, c.C[np.ix_(c.a > 0, c.b > 0)]
    linear, entropy = float((P * C).sum()), float((P[P > 0] * np.log(P[P > 0])).sum())
    room = N * (EPS + found.rounding) * (largest(found) + C.max() + c.reg * (1 + abs(entropy)))
    assert abs(float(result.value_linear) - linear) <= room
    dual = found.error * largest(found) if door in ("stream", "sharded") else 0.0  # theirs is Σ a u + Σ b v − λ Σ P
    assert abs(float(result.value) - (linear + c.reg * entropy)) <= room + dual
    if door != "solve":
        reference = solved("solve", c)
        agree(result, reference, found, certified("solve", reference, c), c.reg)


@each_engine
@given(cases(), st.data())
def test_points_in_another_order_have_the_plan_in_that_order(door, c, data):
    rows, columns = data.draw(orders(len(c.x), len(c.y)))
    there = Case(c.x[rows], c.y[columns], c.a[rows], c.b[columns], c.reg)
    first, second = solved(door, c), solved(door, there)
    one, other = certified(door, first, c), certified(door, second, there)
    back = [np.argsort(order[w[order] > 0]) for order, w in ((rows, c.a), (columns, c.b))]  # of the points with mass
    other = other._replace(P=other.P[np.ix_(*back)], u=other.u[back[0]], v=other.v[back[1]])
    agree(first, second, one, other, c.reg)


@each_engine
@given(cases())
def test_sides_exchanged_have_the_transposed_plan(door, c):
    there = Case(c.y, c.x, c.b, c.a, c.reg)
    first, second = solved(door, c), solved(door, there)
    one, other = certified(door, first, c), certified(door, second, there)
    agree(first, second, one, other._replace(P=other.P.T, u=other.v, v=other.u), c.reg)


@each_engine
@given(cases(), st.integers(-1000, 1000), st.sampled_from((2.0**-20, 0.5, 2.0**10)))
def test_points_moved_or_scaled_with_lambda_have_the_same_plan(door, c, shift, k):
    """Whole numbers and their 64ths, moved by a multiple of the largest: nothing rounds but the solver.

    Points times k and λ times k²: potentials and value times k², and λ' Σ P log P too.
    """
    first = solved(door, c)
    one = certified(door, first, c)
    t = shift * max(np.abs(c.x).max(), np.abs(c.y).max())
    there = c._replace(x=c.x + t, y=c.y + t)
    second = solved(door, there)
    agree(first, second, one, certified(door, second, there), c.reg)
    larger = Case(k * c.x, k * c.y, c.a, c.b, k * k * c.reg)
    third = solved(door, larger)
    other = certified(door, third, larger)
    assert abs(one.P - other.P).sum() <= apart(one, other._replace(u=other.u / k**2, v=other.v / k**2), c.reg)
    errors = one.error + other.error + N * (EPS + one.rounding + other.rounding)
    assert abs(float(third.value) / k**2 - float(first.value)) <= errors * (max(largest(one), largest(other) / k**2) + c.reg)


@given(cases(), st.data())
def test_costs_that_belong_to_a_row_or_a_column_do_not_change_the_plan(c, data):
    """C + p_i + q_j: the same plan, (u + p, v + q), and a value larger by Σ a p + Σ b q."""
    size = 2.0 ** np.round(np.log2(c.C.max() or 1.0))
    p, q = (size * data.draw(st.integers(-4, 4)) * np.arange(len(w)) for w in (c.a, c.b))
    first = of.solve(c.C, c.a, c.b, reg=c.reg, tol=TOL)
    C = c.C + p[:, None] + q
    second = of.solve(C, c.a, c.b, reg=c.reg, tol=TOL)
    one = certified("solve", first, c)
    other = entropic(C, c.a, c.b, c.reg, second.plan, *second.potentials)
    other = other._replace(u=other.u - p[c.a > 0], v=other.v - q[c.b > 0])
    moved = 2 * EPS * (abs(C).max() + abs(p).max() + abs(q).max())  # C + p + q itself is rounded
    assert abs(one.P - other.P).sum() <= apart(one, other, c.reg, moved)


@each_engine
@given(cases(), st.data())
def test_weights_of_0_are_points_that_are_not_there(door, c, data):
    """A point of weight 0, wherever it lies, changes nothing."""
    at = data.draw(st.integers(0, len(c.x)))
    there = Case(np.insert(c.x, at, 3 * c.y[0], 0), c.y, np.insert(c.a, at, 0.0), c.b, c.reg)
    first, second = solved(door, c), solved(door, there)
    agree(first, second, certified(door, first, c), certified(door, second, there), c.reg)


@each_engine
@given(cases(zeros=False), st.data(), st.sampled_from((0.5, 0.25, 2.0**-10)))
def test_a_point_given_twice_with_its_weight_split_is_one(door, c, data, share):
    """Rows of the plan share it as the weights do; the value has λ w (t log t + (1 − t) log(1 − t)) more."""
    i = data.draw(st.integers(0, len(c.x) - 1))
    a = np.append(c.a, (1 - share) * c.a[i])
    a[i] *= share
    there = Case(np.append(c.x, c.x[i : i + 1], 0), c.y, a, c.b, c.reg)
    first, second = solved(door, c), solved(door, there)
    one, other = certified(door, first, c), certified(door, second, there)
    P, u = other.P[:-1].copy(), other.u[:-1].copy()
    P[i] += other.P[-1]
    u[i] = c.reg * np.logaddexp(other.u[i] / c.reg, other.u[-1] / c.reg)  # of which exp(u/λ) is the sum
    shift = c.reg * c.a[i] * (share * np.log(share) + (1 - share) * np.log1p(-share))
    agree(first, second, one, other._replace(P=P, u=u), c.reg, shift)


@given(cases(zeros=False), st.data())
def test_a_mask_that_forbids_all_pairs_of_a_point_but_one_is_that_pair(c, data):
    """One more point on each side that may go to one another alone: the rest of the plan is as it was."""
    n, m = len(c.x), len(c.y)
    C = np.full((n + 1, m + 1), c.C.max())
    C[:n, :m] = c.C
    mask = np.zeros((n + 1, m + 1), dtype=bool)
    mask[:n, :m] = mask[n, m] = True
    w = data.draw(st.sampled_from((0.25, 1.0)))
    a, b = np.append(c.a, w), np.append(c.b, w)
    first = of.solve(c.C, c.a, c.b, reg=c.reg, tol=TOL)
    second = of.solve(C, a, b, reg=c.reg, tol=TOL, mask=mask)
    third = of.solve(np.where(mask, C, np.inf), a, b, reg=c.reg, tol=TOL)
    assert abs(second.plan - third.plan).sum() == 0
    assert not second.plan[~mask].any()
    one = certified("solve", first, c)
    inner = [np.asarray(t)[:-1] for t in second.potentials]
    other = entropic(c.C, c.a, c.b, c.reg, second.plan[:n, :m], *inner)
    assert abs(one.P - other.P).sum() <= apart(one, other, c.reg)


@given(cases(steepest=30.0))
def test_the_plan_is_that_of_pot(c):
    """POT's own error is taken from its marginals, its potentials from its log."""
    kept = np.ix_(c.a > 0, c.b > 0)
    C, a, b = c.C[kept], c.a[c.a > 0], c.b[c.b > 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        P, log = ot.bregman.sinkhorn_log(a, b, C, c.reg, numItermax=20_000, stopThr=1e-11, log=True)
    f, g = (c.reg * np.asarray(log[name]) for name in ("log_u", "log_v"))
    theirs = entropic(C, a, b, c.reg, P, f + c.reg, g)  # P = exp((f + g − C)/λ)
    result = of.solve(c.C, c.a, c.b, reg=c.reg, tol=TOL)
    assert abs(certified("solve", result, c).P - theirs.P).sum() <= apart(certified("solve", result, c), theirs, c.reg)
    ours = of.sinkhorn(c.a, c.b, c.C, c.reg, stopThr=1e-11, numItermax=20_000)
    marginals = abs(ours.sum(1) - c.a).sum() + abs(ours.sum(0) - c.b).sum()
    theirs = theirs._replace(error=theirs.error + float(marginals))
    assert abs(ours[kept] - theirs.P).sum() <= apart(certified("solve", result, c), theirs, c.reg)
