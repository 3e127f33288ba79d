"""What is claimed where problems are hard, weights tiny, starts bad or time is short: never more than is so."""

from __future__ import annotations

import warnings

import numpy as np
import ot
import pytest
import scipy.sparse
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import otformer as of
from otformer.transport.exact.flow_graph import Matching, Tree
from otformer.transport.exact.rounds import NO_TIME
from otformer.transport.exact.small_assignments import ON_MATRIX


@pytest.mark.parametrize("uniform", [True, False])
def test_time_is_up(uniform):
    """A plan with the right marginals and a true bound come back even if there was no time at all."""
    rng = np.random.default_rng(0)
    C = rng.random((600, 600)) ** 2
    a = None if uniform else rng.dirichlet(np.ones(600))
    with pytest.warns(RuntimeWarning, match="not proved optimal"):
        r = of.solve(C, a, reg=0, max_time=1e-9)
    assert not r.converged
    best = of.solve(C, a, reg=0).value
    assert r.bound <= best < r.value
    assert r.marginal_error < 1e-12
    assert r.gap == pytest.approx(r.value - r.bound)


def test_a_warm_start_needs_one_round():
    rng = np.random.default_rng(0)
    C = rng.random((300, 300))
    r = of.solve(C, reg=0)
    again = of.solve(C + 1e-7 * rng.random((300, 300)), reg=0, potentials=r.potentials)
    assert again.rounds <= min(2, r.rounds)
    assert again.converged


def test_weights_that_are_nearly_equal():
    n = 1024
    b = np.full(n, 1 / n)
    b[0] *= 1 + 2**-52
    r = of.solve(np.random.default_rng(0).random((n, n)), b=b, reg=0)
    assert r.converged
    assert r.plan.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("large", [1e6, 1e9, 1e13])
@pytest.mark.parametrize("n", [60, 600])
def test_one_large_cost_does_no_harm(large, n):
    C = np.random.default_rng(0).random((n, n))
    C[0, 0] = large
    r = of.solve(C, reg=0)
    assert r.value == pytest.approx(C[linear_sum_assignment(C)].mean(), rel=1e-9)
    assert r.gap < 1e-9 * r.value


@pytest.mark.parametrize("far", [1e3, 1e5, 1e7])
def test_one_point_far_away_does_no_harm(far):
    """It comes with its partner: the value is that of the others, however large potentials have been on the way."""
    x, y = np.random.default_rng(0).random((2, 600, 2))
    x[0] = y[0] = far
    C = cdist(x, y, "sqeuclidean")
    r = of.solve_sample(x, y, reg=0)
    assert r.converged
    assert r.value == pytest.approx(C[linear_sum_assignment(C)].mean(), rel=1e-9)


@pytest.mark.parametrize("draw", ["cauchy", "lognormal", "a long way"])
@pytest.mark.parametrize("way", ["points", "matrix"])
def test_cheap_pairs_are_optimal_beside_dear_ones(draw, way):
    """A few points make nearly all of the value; a gap that is small beside it would leave the others anywhere."""
    rng = np.random.default_rng(0)
    x, y = {"cauchy": lambda s: rng.standard_t(1, s), "lognormal": lambda s: rng.lognormal(0, 3, s)}.get(draw, rng.random)(
        (2, 600, 2)
    )
    if draw == "a long way":
        x[-1], y[-1] = 1e3, (1e3, 0.0)
    C = cdist(x, y, "sqeuclidean")
    r = of.solve_sample(x, y, reg=0) if way == "points" else of.solve(C, reg=0)
    best = np.sort(C[linear_sum_assignment(C)])
    found = np.sort(C[np.arange(600), r.permutation])
    assert r.converged
    assert found[:500].sum() == pytest.approx(best[:500].sum(), rel=1e-9)
    assert r.value == pytest.approx(best.mean(), rel=1e-12)


def chained(n, seed):
    """Rows may only go to columns before them: of all plans the one along the diagonal may be the only one."""
    C = np.where(np.tri(n) > 0, 0.1 * np.random.default_rng(seed).random((n, n)), np.inf)
    np.fill_diagonal(C, 1.0)
    return C


@pytest.mark.parametrize("n", [30, 100])
def test_plans_that_are_hard_to_find(n):
    w = np.random.default_rng(0).integers(1, 9, n) * 1.0
    r = of.solve(chained(n, 0), w, w, reg=0)
    assert r.converged
    assert r.value == pytest.approx(w.sum())


def test_time_is_up_where_pairs_are_forbidden():
    with pytest.warns(RuntimeWarning, match="not proved optimal"):
        r = of.solve(chained(600, 0), reg=0, max_time=1e-9)
    assert not r.converged
    assert np.isfinite(r.bound)


def test_labels_whose_weights_agree_but_for_rounding():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        labels, x, a = np.repeat([0, 1], 20), rng.random((40, 2)), rng.dirichlet(np.ones(40))
        b = np.concatenate([rng.permutation(a[:20]), rng.permutation(a[20:])])
        assert of.solve_sample(x, x + 0.1, a, b, reg=0, labels=(labels, labels)).converged


@pytest.mark.parametrize("size", [1e3, 1e16, 1e30])
def test_a_warm_start_of_another_size_does_no_harm(size):
    rng = np.random.default_rng(0)
    C, v = rng.random((30, 30)), size * rng.standard_normal(30)
    for a in (None, rng.dirichlet(np.ones(30))):
        r = of.solve(C, a, reg=0, potentials=(v, v))
        assert r.value == pytest.approx(of.solve(C, a, reg=0).value, rel=1e-12)


def tiny(dear):
    """Three rows, of which the first has 1e-20 of the mass: less than half a unit. All it can do costs ``dear``."""
    C = np.array([[dear, dear, dear], [1.0, 0.0, 1.0], [0.5, 1.0, 0.0]])
    return C, np.array([1e-20, 0.5, 0.5]), np.array([0.3, 0.3, 0.4])


@pytest.mark.parametrize("sparse", [False, True])
def test_mass_that_rounding_loses_is_in_the_gap(sparse):
    """The optimum is 1e5 + 0.25, which is the bound; a plan without the tiny row costs 0.25."""
    C, a, b = tiny(1e25)
    if sparse:
        _, log = of.emd(a, b, scipy.sparse.csr_array(C + 1e-300), log=True)
        gap, converged = log["gap"], log["warning"] is None
    else:
        with pytest.warns(RuntimeWarning, match="not proved optimal: the gap is 1e.05") as told:
            r = of.solve(C, a, b, reg=0)
        assert "max_time" not in str(told[0].message)
        assert r.bound == pytest.approx(1e5 + 0.25)
        assert r.value == pytest.approx(0.25)
        gap, converged = r.gap, r.converged
    assert gap == pytest.approx(1e5)
    assert not converged


def test_tiny_weights_that_matter_little():
    C, a, b = tiny(3.0)
    r = of.solve(C, a, b, reg=0)
    assert r.converged
    assert 0 <= r.gap < 1e-18
    assert r.value == pytest.approx(ot.emd2(a, b, C), rel=1e-12)
    assert r.marginal_error == pytest.approx(1e-20, rel=1e-3)


def test_the_bound_is_below_the_optimum_of_the_weights_given():
    """Weights over 25 orders of magnitude: value − gap is a bound for them, not for what they were rounded to."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        a, b = 10.0 ** rng.uniform(-25, 0, 12), rng.dirichlet(np.ones(9))
        C = 10.0 ** rng.uniform(-3, 12, (12, 1)) * rng.random((12, 9))
        b *= a.sum() / b.sum()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            r = of.solve(C, a, b, reg=0)
        f, g = r.potentials
        exact = float(a @ f + b @ g)
        assert (C - f[:, None] - g).min() >= -1e-14 * C.max()
        assert abs(r.value - exact) <= r.gap + 1e-15 * (abs(a * f).sum() + abs(b * g).sum())


def test_the_method_is_what_ran():
    rng = np.random.default_rng(0)
    C, equal, some = rng.random((600, 600)), np.full(600, 1 / 600), rng.dirichlet(np.ones(600))
    assert of.solve(C[:300, :300], reg=0).method == ON_MATRIX
    assert of.solve(C, reg=0).method == of.solve(C, some, reg=0).method == Tree.method
    assert of.solve(-np.outer(*np.arange(1.0, 1201).reshape(2, 600)), some, reg=0).converged
    absent = np.where(np.arange(600) < 300, 1 / 300, 0.0)
    r = of.solve(C[:40, :40], absent[280:320] / absent[280:320].sum(), absent[280:320] / absent[280:320].sum(), reg=0)
    assert r.method == ON_MATRIX
    x, y = rng.random((2, 600, 2))
    labels = np.tile(np.arange(600) % 2, (2, 1))
    assert of.solve_sample(x, y, reg=0, labels=tuple(labels), executor="stream").method.endswith(Matching.method)
    assert of.solve_sample(x, y, absent, equal, reg=0).method == Tree.method
    with pytest.warns(RuntimeWarning, match="raise max_time"):
        assert of.solve(C, reg=0, max_time=1e-9).method == NO_TIME
    assert of.solve(np.zeros((0, 0)), reg=0).method == "no points"


def test_points_that_all_lie_in_one_place():
    """Every pair is as good as every other: lists of the best would name the same few columns again and again."""
    r = of.solve_sample(np.zeros((1000, 2)), np.zeros((1000, 2)), reg=0)
    assert (r.converged, r.value, sorted(r.permutation.tolist())) == (True, 0.0, list(range(1000)))
    assert r.rounds < 5


def test_a_pair_that_must_go_very_far():
    """Costs 10¹⁴ times those of the others: what is promised is a share of the value, and that holds."""
    x, y = np.random.default_rng(0).random((2, 600, 2))
    x[-1], y[-1] = 1e7, (1e7, 0.0)
    C = cdist(x, y, "sqeuclidean")
    r = of.solve_sample(x, y, reg=0)
    assert r.converged
    assert r.value == pytest.approx(C[linear_sum_assignment(C)].mean(), rel=1e-11)
    assert r.gap <= 1e-11 * r.value
