"""Newton steps against POT, scipy's linear programme and the definition of the plan."""

from __future__ import annotations

import numpy as np
import ot
import pytest

import otformer as of
from oracles import marginal_error, squared_cost
from otformer.transport.solvers.newton import newton


def uneven(seed: int, n: int, m: int, kind: str = "random", thin: float = 0.1):
    """A cost and two weight vectors, down to 1e-15 of the mass for small ``thin``."""
    rng = np.random.default_rng(seed)
    if kind == "random":
        C = rng.random((n, m))
    elif kind == "points":
        x, y = rng.random((n, 2)), rng.random((m, 2))
        C = squared_cost(x, y)
    else:  # many equal costs
        C = rng.integers(0, 4, (n, m)).astype(float)
    a, b = (np.maximum(rng.dirichlet(np.full(size, thin)), 1e-15) for size in (n, m))
    return C - C.min(), a, b * (a.sum() / b.sum())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "points", "ties"])
@pytest.mark.parametrize("reg", [1e-3, 0.05, 1.0])
def test_plan_is_pots(kind, reg):
    C, a, b = uneven(1, 12, 9, kind, thin=5)
    found = newton(C, a, b, reg, 1e-12, 10_000)
    theirs = ot.sinkhorn(a, b, C, reg, method="sinkhorn_log", numItermax=200_000, stopThr=1e-13, warn=False)
    assert marginal_error(found.plan, a, b) < 1e-11
    if marginal_error(theirs, a, b) < 1e-9:  # POT does not always arrive
        np.testing.assert_allclose(found.plan, theirs, atol=1e-9)
    np.testing.assert_allclose(found.plan, np.exp((found.u[:, None] + found.v - C) / reg - 1), atol=1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_uneven_weights_and_small_regs_do_not_stall(seed):
    rng = np.random.default_rng(1000 + seed)
    n, m = rng.integers(2, 40, 2)
    kind = ("random", "points", "ties")[seed % 3]
    C, a, b = uneven(seed, n, m, kind, float(rng.choice([0.1, 1.0])))
    reg = 10 ** rng.uniform(-4, 1) * max(C.max(), 1e-3)
    found = newton(C, a, b, reg, 1e-9, 5_000)
    assert marginal_error(found.plan, a, b) < 2e-9
    assert found.depth < 1_000


def test_small_reg_comes_near_the_linear_programme():
    from scipy.optimize import linear_sum_assignment

    C, _, _ = uneven(3, 15, 15)
    w = np.full(15, 1 / 15)
    found = newton(C, w, w, 1e-4, 1e-9, 10_000)
    rows, columns = linear_sum_assignment(C)
    best = C[rows, columns].mean()
    assert best <= (found.plan * C).sum() + 1e-9 <= best + 1e-4 * np.log(15) + 2e-9


def test_more_rows_or_more_columns_make_no_difference():
    C, a, b = uneven(4, 30, 7, thin=1)
    tall, wide = newton(C, a, b, 0.01, 1e-11, 10_000), newton(C.T, b, a, 0.01, 1e-11, 10_000)
    np.testing.assert_allclose(tall.plan, wide.plan.T, atol=1e-12)


def test_no_more_layers_than_allowed():
    C, a, b = uneven(5, 20, 20)
    for most in range(2, 30):
        assert newton(C, a, b, 1e-3, 0.0, most).depth <= most


def test_it_ends_when_only_rounding_is_left():
    C, a, b = uneven(6, 20, 20, thin=5)
    found = newton(C, a, b, 0.05, 0.0, 10_000)
    assert found.depth < 100
    assert marginal_error(found.plan, a, b) < 1e-13


def test_potentials_of_the_solution_are_a_start_and_those_of_another_problem_do_no_harm():
    C, a, b = uneven(7, 20, 25, thin=1)
    found = newton(C, a, b, 1e-3, 1e-10, 10_000)
    again = newton(C, a, b, 1e-3, 1e-8, 10_000, start=(found.u, found.v))
    assert again.depth == 2
    rng = np.random.default_rng(0)
    lost = newton(C, a, b, 1e-3, 1e-10, 10_000, start=(rng.standard_normal(20), 5 * rng.standard_normal(25)))
    np.testing.assert_allclose(lost.plan, found.plan, atol=1e-9)


def test_arrays_lists_and_points_have_one_answer_and_the_facts_of_it_are_true():
    for seed, reg in ((8, 1.0), (9, 0.05), (10, 1e-3)):
        C, a, b = uneven(seed, 14, 17, "points", thin=1)
        C = C - 0.3  # a negative cost, too
        fast = of.solve(C, a, b, reg=reg, tol=1e-11)
        careful = of.solve(C.tolist(), a.tolist(), b.tolist(), reg=reg, tol=1e-11)
        np.testing.assert_allclose(fast.plan, careful.plan, atol=1e-11)
        np.testing.assert_allclose(fast.value, careful.value, rtol=0, atol=1e-11)
        np.testing.assert_allclose(fast.value_linear, careful.value_linear, rtol=0, atol=1e-11)
        u, v = fast.potentials
        np.testing.assert_allclose(fast.plan, np.exp((u[:, None] + v - C) / reg - 1), atol=1e-12)
        assert fast.converged
        assert fast.marginal_error == pytest.approx(marginal_error(fast.plan, a, b), abs=1e-15)
        P = fast.plan
        entropy = (P[P > 0] * np.log(P[P > 0])).sum()
        assert fast.value == pytest.approx((P * C).sum() + reg * entropy, abs=1e-12)


def test_the_given_arrays_are_not_written_to():
    C, a, b = uneven(11, 6, 6)
    kept = C.copy(), a.copy(), b.copy()
    for array in (C, a, b):
        array.setflags(write=False)
    of.solve(C, a, b, reg=0.01)
    for array, before in zip((C, a, b), kept, strict=True):
        np.testing.assert_array_equal(array, before)


def test_an_imbalance_below_a_per_cent_is_not_carried_through_the_stages():
    C = np.array([[2, 1, 2, 0], [1, 2, 0, 2], [1, 0, 2, 1]], float)
    a, b = np.array([7, 15, 9]) / 31, np.array([10, 9, 16, 10]) / 45
    for reg in (1e-3, 1e-4, 1e-5):
        r = of.solve(C, a, b, reg=reg)
        assert r.converged
        assert r.depth < 500
