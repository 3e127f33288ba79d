"""Exact transport: certificates recomputed in fractions by code of their own, symmetries, POT, scipy, repeated points.

**Rounding.** Whole weights have steps of 2⁻⁶⁰ of the mass, and a plan's masses, sums of weights and weights given as
quotients are off by ε of the mass each, N = n + m of them: marginals by 4Nε in all. A dual-feasible pair is a difference of
three numbers of the size max|C| + max|f| + max|g|, each of a few operations: 16 ε of it. All here is of mass 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import ot
import pytest
import scipy.optimize
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import otformer as of
from helpers.certificates import EPS, Exact, exact
from helpers.strategies import Case, cases, matrices, orders, weights


def by_cost(c: Case) -> of.ExactResult:
    return of.solve(c.C, c.a, c.b, reg=0)


def by_points(executor: str) -> Any:
    return lambda c: of.solve_sample(*c[:4], reg=0, executor=executor)


def in_a_batch(c: Case) -> of.ExactResult:
    return of.solve_batch([np.eye(2), (c.x, c.y, c.a, c.b), np.ones((7, 3))], reg=0)[1]


def from_far(c: Case) -> of.ExactResult:
    """A warm start that is as wrong as can be, and takes the solver of large problems."""
    return of.solve(c.C, c.a, c.b, reg=0, potentials=(np.zeros(len(c.x)), c.C.max() * np.arange(len(c.y))[::-1]))


DOORS = {
    "matrix": by_cost,
    "points": by_points("dense"),
    "stream": by_points("stream"),
    "batch": in_a_batch,
    "warm start": from_far,
}


def dense(result: of.ExactResult) -> np.ndarray:
    return np.asarray(result.dense(), dtype=np.float64)


def size(C: np.ndarray, a: np.ndarray, b: np.ndarray, result: of.ExactResult) -> float:
    f, g = (np.asarray(t)[w > 0] for t, w in zip(result.potentials, (a, b), strict=True))
    return float(abs(C).max() + abs(f).max() + abs(g).max())


def proved(C: np.ndarray, a: np.ndarray, b: np.ndarray, result: of.ExactResult, moved: float = 0.0) -> Exact:
    """The certificate, all of it, of costs that may have been off by ``moved``."""
    found = exact(C, a, b, dense(result), *(np.asarray(t) for t in result.potentials))
    room, N = 16 * EPS * size(C, a, b, result) + moved, sum(C.shape)
    assert not found.negative
    assert found.marginal_error <= 4 * N * EPS
    assert found.infeasible <= room, "a pair is cheaper than its potentials"
    assert abs(float(found.gap) - result.gap) <= N * room
    assert abs(float(found.value) - float(result.value)) <= N * room
    assert abs(float(found.bound) - result.bound) <= N * room
    assert found.gap <= N * room, "not optimal"
    assert result.converged
    # Each pair with mass is tight, but where so little mass goes that the gap does not see it.
    assert found.slack * min(dense(result)[dense(result) > 0]).item() <= N * room
    return found


def off(door: str, c: Case) -> float:
    """What moving the points to the middle of all rounds: see test_entropic.py."""
    reach = float(np.ptp(np.concatenate([c.x, c.y]), axis=0).max())
    away = reach + float(max(np.abs(c.x).max(), np.abs(c.y).max()))
    return 16 * c.x.shape[1] * EPS * reach * away if door == "stream" else 0.0


@pytest.mark.parametrize("door", DOORS)
@given(c=cases(most=8))
def test_every_certificate_holds(door, c):
    proved(c.C, c.a, c.b, DOORS[door](c), off(door, c))


@given(st.data())
def test_of_any_cost_with_forbidden_pairs_or_none(data):
    """The value is that of linear programming, if there is a plan; where there is none, both say so."""
    C = data.draw(matrices())
    a, b = (data.draw(weights(k)) for k in C.shape)
    if data.draw(st.booleans()):
        forbidden = data.draw(st.lists(st.integers(0, C.size - 1), max_size=C.size // 2))
        C.flat[forbidden] = np.inf
    allowed = np.flatnonzero(np.isfinite(C))
    A = np.zeros((sum(C.shape), C.size))
    for k in range(C.size):
        A[k // C.shape[1], k] = A[C.shape[0] + k % C.shape[1], k] = 1
    unit = np.abs(C.flat[allowed]).max(initial=0) or 1.0
    best = scipy.optimize.linprog(C.flat[allowed] / unit, A_eq=A[:, allowed], b_eq=[*a, *b], method="highs")
    try:
        result = of.solve(C, a, b, reg=0)
    except ValueError as error:
        assert "M" in str(error)  # noqa: PT017
        assert not best.success
        return
    finite = np.where(np.isinf(C), 4 * (sum(C.shape) * unit), C)  # dearer than any way round
    assert not dense(result)[np.isinf(C)].any()
    there = np.ix_(a > 0, b > 0)
    f, g = (np.asarray(t) for t in result.potentials)
    reduced = (C[there] - f[a > 0][:, None] - g[b > 0])[np.isfinite(C[there])]
    assert reduced.min() >= -16 * EPS * size(finite, a, b, result)
    if best.success:  # HiGHS is content with 1e-7
        assert abs(float(result.value) / unit - best.fun) <= 1e-6 * sum(C.shape)


def values_agree(first: of.ExactResult, second: of.ExactResult, size: float, N: int, k: float = 1.0) -> None:
    """Both are optimal up to their gaps, so values differ by no more than these and by rounding."""
    room = first.gap + second.gap / k + 32 * N * EPS * size
    assert abs(float(first.value) - float(second.value) / k) <= room


@pytest.mark.parametrize("door", ["matrix", "stream", "batch"])
@given(c=cases(), data=st.data(), k=st.sampled_from((2.0**-20, 0.5, 2.0**10)), shift=st.integers(-100, 100))
def test_order_sides_place_and_scale_do_not_matter(door, c, data, k, shift):
    first, N = DOORS[door](c), len(c.x) + len(c.y)
    room = size(c.C, c.a, c.b, first) + N * off(door, c) / EPS
    rows, columns = data.draw(orders(len(c.x), len(c.y)))
    t = shift * max(np.abs(c.x).max(), np.abs(c.y).max())
    far = c._replace(x=c.x + t, y=c.y + t)
    for there, factor in (
        (Case(c.x[rows], c.y[columns], c.a[rows], c.b[columns], c.reg), 1.0),
        (Case(c.y, c.x, c.b, c.a, c.reg), 1.0),
        (far, 1.0),
        (Case(k * c.x, k * c.y, c.a, c.b, c.reg), k * k),
    ):
        second = DOORS[door](there)
        assert second.converged
        values_agree(first, second, room + N * off(door, far) / EPS, N, factor)


@given(cases())
def test_values_are_those_of_pot(c):
    """`emd`'s certificate too, and POT's potentials as a bound that no plan of ours may beat.

    POT's simplex works to a relative 1e-9 or so of the largest cost (its EPSILON is 2.2e-15·10 times sums of it).
    """
    assume(c.a.min() > 0 and c.b.min() > 0)
    P, log = of.emd(c.a, c.b, c.C, log=True)
    found = exact(c.C, c.a, c.b, P, log["u"], log["v"])
    room = 16 * EPS * float(abs(c.C).max() + abs(log["u"]).max() + abs(log["v"]).max())
    assert found.infeasible <= room
    assert found.gap <= sum(c.C.shape) * room
    unit = c.C.max() or 1.0
    theirs = ot.emd2(c.a, c.b, c.C / unit)
    assert abs(log["cost"] / unit - theirs) <= 1e-9
    assert of.emd2(c.a, c.b, c.C) == pytest.approx(log["cost"], rel=1e-12, abs=sum(c.C.shape) * room)


@given(matrices(), st.booleans())
def test_assignments_are_those_of_scipy(C, maximize):
    """Whole multiples of one power of two, a few of them: sums are exact, so the best sums are equal, not nearly."""
    rows, columns = of.linear_sum_assignment(C, maximize)
    expected = C[scipy.optimize.linear_sum_assignment(C, maximize)].sum()
    assert len(set(columns.tolist())) == min(C.shape)
    assert C[rows, columns].sum() == expected


@given(matrices(square=True), st.data())
def test_a_permutation_is_one_and_the_best(C, data):
    """Equal weights, any number of times the same row; the batch, tensors, and the matrix of one problem agree."""
    C = C[data.draw(st.lists(st.integers(0, len(C) - 1), min_size=len(C), max_size=len(C)))]  # rows repeat
    expected = C[scipy.optimize.linear_sum_assignment(C)].sum()
    for result in (of.solve(C, reg=0), of.solve_batch([C, C], reg=0)[1], of.solve(torch.from_numpy(C), reg=0)):
        columns = np.asarray(result.permutation)
        assert sorted(columns.tolist()) == list(range(len(C)))
        assert C[np.arange(len(C)), columns].sum() == expected
        uniform = np.full(len(C), 1 / len(C))
        proved(C, uniform, uniform, result)


@given(cases(zeros=False), st.data(), st.sampled_from((0.5, 2.0**-10)))
def test_a_point_given_twice_with_its_weight_split_is_one(c, data, share):
    i = data.draw(st.integers(0, len(c.x) - 1))
    a = np.append(c.a, (1 - share) * c.a[i])
    a[i] *= share
    first, second = by_cost(c), of.solve_sample(np.append(c.x, c.x[i : i + 1], 0), c.y, a, c.b, reg=0)
    values_agree(first, second, size(c.C, c.a, c.b, first), len(a) + len(c.b))


@given(cases())
def test_entropic_values_come_down_to_the_exact_one(c):
    """Σ P C of the entropic plan is between the exact value and λ log(nm) above it.

    The entropic plan minimises Σ P C + λ Σ P log P, and 0 ≥ Σ P log P ≥ −log(nm) for plans of mass 1. The plan found misses
    the marginals by ε, which a plan that does not can mend at ε max C.
    """
    best, near = by_cost(c), of.solve(c.C, c.a, c.b, reg=c.reg, tol=1e-9)
    room = (1e-9 + 64 * EPS) * (float(c.C.max()) + c.reg)
    assert best.value - room <= near.value_linear <= best.value + c.reg * np.log(c.C.size) + room
