"""Exact transport against POT and scipy, and its certificate against everything."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import otformer as of


def points(rng, n, d):
    return rng.random((n, d))


def clusters(rng, n, d):
    return 3 * rng.random((4, d))[rng.integers(4, size=n)] + 0.1 * rng.standard_normal((n, d))


def grid(rng, n, d):
    return rng.integers(0, 4, (n, d)).astype(float)


def doubled(rng, n, d):
    return np.repeat(rng.random((-(-n // 2), d)), 2, 0)[:n]


def line(rng, n, d):
    return rng.random((n, 1)) * np.ones(d)


CLOUDS = {"uniform": points, "clusters": clusters, "grid": grid, "doubled": doubled, "collinear": line}


def weights(rng, n, kind):
    if kind == "equal":
        return np.full(n, 1 / n)
    w = rng.random(n) ** 3 + (1e-9 if kind == "random" else 0)
    if kind == "zeros":
        w[rng.random(n) < 0.4] = 0
        w[rng.integers(n)] = 1.0
    return w / w.sum()


def draw(family, seed):
    """A cost matrix with weights."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    m = n if rng.random() < 0.5 else int(rng.integers(1, 60))
    kind = rng.choice(["equal", "random", "zeros"])
    a, b = weights(rng, n, kind), weights(rng, m, kind)
    if family == "random costs":
        C = rng.standard_normal((n, m)) * 10.0 ** rng.integers(-6, 6)
    elif family == "ties":
        C = rng.integers(-2, 3, (n, m)).astype(float)
    elif family == "negative":
        C = -(rng.random((n, m)) ** 4)
    else:
        d = 1 if family == "1-D" else int(rng.integers(1, 6))
        make = CLOUDS.get(family, points)
        C = cdist(make(rng, n, d), make(rng, m, d), "sqeuclidean" if rng.random() < 0.7 else "euclidean")
    return C, a, b


def oracle(C, a, b):
    """POT's value; the one plan there is where a side is a single point, of which POT 0.9.7 says 0 at times."""
    if 1 in C.shape:
        return float(a @ C @ b)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ot.emd2(a, b, C, numItermax=10**7)


FAMILIES = [*CLOUDS, "1-D", "random costs", "ties", "negative"]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_pot_and_scipy(family):
    for seed in range(-(-2000 // len(FAMILIES))):
        C, a, b = draw(family, seed)
        r = of.solve(C, a, b, reg=0, tol=1e-9)
        expected = oracle(C, a, b)
        scale = max(abs(expected), 1e-9 * np.ptp(C))
        assert abs(r.value - expected) <= 1e-9 * scale + 1e-15 * np.ptp(C), (family, seed)
        assert r.converged, (family, seed)
        assert r.marginal_error < 1e-14, (family, seed)
        check_certificate(r, C, a, b)
        if len(a) == len(b) and np.ptp(a) == np.ptp(b) == 0:
            best = C[linear_sum_assignment(C)].mean()
            assert C[np.arange(len(a)), r.permutation].mean() == pytest.approx(best, rel=1e-12, abs=1e-15 * np.ptp(C))


def check_certificate(r, C, a, b):
    """Potentials are feasible for all pairs, and the gap is what lies between value and bound, never below rounding."""
    f, g = r.potentials
    here = np.ix_(a > 0, b > 0)
    rounding = 1e-14 * (np.ptp(C) + abs(C).max())
    assert (C[here] - f[a > 0, None] - g[b > 0] >= -rounding).all()
    assert r.gap >= -rounding
    bound = a[a > 0] @ f[a > 0] + b[b > 0] @ g[b > 0]
    assert r.bound == pytest.approx(bound, abs=rounding)
    assert r.gap == pytest.approx(r.value - bound, abs=rounding)
    assert (r.plan * C).sum() == pytest.approx(r.value, abs=rounding)
    assert r.bound <= r.value + rounding


@pytest.mark.parametrize(("n", "m", "d"), [(700, 700, 2), (700, 650, 3), (600, 600, 12), (500, 900, 1)])
@pytest.mark.parametrize("executor", ["dense", "stream"])
def test_many_points(n, m, d, executor):
    rng = np.random.default_rng(n + d)
    x, y = rng.random((n, d)), rng.standard_normal((m, d))
    a, b = (None, None) if n == m else (weights(rng, n, "random"), weights(rng, m, "random"))
    r = of.solve_sample(x, y, a, b, reg=0, tol=1e-12, executor=executor)
    C = cdist(x, y, "sqeuclidean")
    expected = ot.emd2([] if a is None else a, [] if b is None else b, C, numItermax=10**7)
    assert r.value == pytest.approx(expected, rel=1e-11)
    assert r.converged
    check_certificate(r, C, np.full(n, 1 / n) if a is None else a, np.full(m, 1 / m) if b is None else b)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner"])
@pytest.mark.parametrize("executor", ["dense", "stream"])
def test_other_costs(metric, executor):
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((120, 3)), rng.standard_normal((90, 3))
    C = -x @ y.T if metric == "inner" else cdist(x, y, metric)
    r = of.solve_sample(x, y, reg=0, metric=metric, executor=executor)
    assert r.value == pytest.approx(ot.emd2([], [], C), rel=1e-9)


def test_forbidden_pairs():
    rng = np.random.default_rng(0)
    C = rng.random((30, 30))
    C[rng.random((30, 30)) < 0.7] = np.inf
    np.fill_diagonal(C, 5.0)  # always feasible
    r = of.solve(C, reg=0)
    finite = np.where(np.isinf(C), 1e6, C)
    assert r.value == pytest.approx(finite[linear_sum_assignment(finite)].mean(), rel=1e-12)
    assert np.isfinite(C[np.arange(30), r.permutation]).all()


@pytest.mark.parametrize("weights_differ", [False, True])
def test_no_plan_is_said(weights_differ):
    C = np.zeros((3, 3))
    C[:2, 1:] = np.inf  # two rows for one column
    a = [0.5, 0.3, 0.2] if weights_differ else None
    with pytest.raises(ValueError, match="allow no plan"):
        of.solve(C, a, reg=0)


@pytest.mark.parametrize("allow", ["equal", "different"])
@pytest.mark.parametrize("executor", ["dense", "stream"])
def test_labels(allow, executor):
    rng = np.random.default_rng(1)
    x, y, labels = rng.random((60, 2)), rng.random((60, 2)), np.arange(60) % 3
    r = of.solve_sample(x, y, reg=0, labels=(labels, labels), allow=allow, executor=executor)
    C = cdist(x, y, "sqeuclidean")
    C[(labels[:, None] == labels) != (allow == "equal")] = 1e3
    assert r.value == pytest.approx(C[linear_sum_assignment(C)].mean(), rel=1e-12)


@pytest.mark.parametrize("uniform", [True, False])
def test_time_is_up(uniform):
    """A plan with the right marginals and a true bound come back even if there was no time at all."""
    rng = np.random.default_rng(0)
    C = rng.random((600, 600)) ** 2
    a = None if uniform else weights(rng, 600, "random")
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


def finite_difference(function, t, i, step=1e-6):
    low, high = t.clone(), t.clone()
    low.view(-1)[i] -= step
    high.view(-1)[i] += step
    return (function(high) - function(low)) / (2 * step)


@pytest.mark.parametrize("executor", ["dense", "stream"])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_gradient_in_points(executor, metric):
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(9, 2, generator=g, dtype=torch.float64), torch.rand(7, 2, generator=g, dtype=torch.float64)

    def value(x):
        return of.solve_sample(x, y, reg=0, metric=metric, executor=executor).value

    x.requires_grad_()
    (slope,) = torch.autograd.grad(value(x), x)
    with torch.no_grad():
        expected = torch.stack([finite_difference(value, x.detach(), i) for i in range(x.numel())]).view_as(x)
    torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-8)


def test_gradient_in_costs_and_weights():
    g = torch.Generator().manual_seed(1)
    M = torch.rand(6, 5, generator=g, dtype=torch.float64, requires_grad=True)
    a, b = (torch.rand(k, generator=g, dtype=torch.float64) + 0.1 for k in (6, 5))
    a, b = (a / a.sum()).requires_grad_(), (b / b.sum()).requires_grad_()
    r = of.solve(M, a, b, reg=0)
    of_M, of_a, of_b = torch.autograd.grad(r.value, (M, a, b))
    torch.testing.assert_close(of_M, r.plan.to_dense())
    step = torch.zeros(6, dtype=torch.float64)
    step[0], step[3] = 1e-6, -1e-6
    with torch.no_grad():
        change = of.solve(M, a + step, b, reg=0).value - of.solve(M, a - step, b, reg=0).value
    assert float(of_a @ step) == pytest.approx(float(change) / 2, rel=1e-6)
    step = torch.tensor([1e-6, 0, -1e-6, 0, 0], dtype=torch.float64)
    with torch.no_grad():
        change = of.solve(M, a, b + step, reg=0).value - of.solve(M, a, b - step, reg=0).value
    assert float(of_b @ step) == pytest.approx(float(change) / 2, rel=1e-6)


def test_forms():
    C = np.random.default_rng(0).random((5, 5))
    numpy_result, tensor_result = of.solve(C, reg=0), of.solve(torch.tensor(C, dtype=torch.float32), reg=0)
    assert numpy_result.plan.format == "csr"
    assert tensor_result.plan.is_sparse
    assert tensor_result.plan.dtype == torch.float32
    assert tensor_result.permutation.tolist() == numpy_result.permutation.tolist()
    np.testing.assert_allclose(tensor_result.dense().numpy(), numpy_result.dense(), rtol=1e-6)
    np.testing.assert_allclose(numpy_result.marginal_a, 0.2)
    np.testing.assert_allclose(numpy_result.map(np.arange(5.0)), numpy_result.permutation)
    np.testing.assert_allclose(tensor_result.map(torch.arange(5.0)), numpy_result.permutation)
    assert "optimal" in repr(numpy_result)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (dict(max_time=0), "max_time must be"),
        (dict(max_time="long"), "max_time must be"),
        (dict(schedule="relaxed"), "reg = 0 goes with neither"),
        (dict(solver=of.Newton()), "reg = 0 goes with neither"),
        (dict(unbalanced=1.0), "reg = 0 goes with neither"),
        (dict(tol=-1.0), "tol must be"),
    ],
)
def test_bad_input(given, words):
    with pytest.raises(ValueError, match=words):
        of.solve(np.eye(3), reg=0, **given)


def test_nan_is_refused():
    with pytest.raises(ValueError, match="finite"):
        of.solve([[0.0, np.nan], [1.0, 0.0]], reg=0)


def test_no_points():
    assert of.solve(np.zeros((0, 0)), reg=0).value == 0


def test_max_time_needs_exact():
    with pytest.raises(ValueError, match="max_time goes with reg = 0"):
        of.solve(np.eye(2), max_time=1.0)


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
    """At 1e3; from 1e5 on coordinates have lost the digits of the others' distances, and nothing is claimed."""
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 600, 2))
    x[0] = y[0] = far
    C = cdist(x, y, "sqeuclidean")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        r = of.solve_sample(x, y, reg=0)
    best = C[linear_sum_assignment(C)].mean()
    assert r.converged == (far < 1e5)
    if r.converged:
        assert r.value == pytest.approx(best, rel=1e-6)
    else:
        assert "not proved optimal" in str(told[0].message)


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


def test_brute_force():
    """All permutations."""
    for seed in range(30):
        C = np.random.default_rng(seed).standard_normal((6, 6))
        best = min(C[np.arange(6), list(p)].sum() for p in itertools.permutations(range(6)))
        assert of.solve(C, reg=0).value * 6 == pytest.approx(best, rel=1e-12)
