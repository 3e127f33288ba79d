"""Exact transport against POT and scipy, and its certificate against everything."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import ot
import pytest
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


def test_no_points():
    assert of.solve(np.zeros((0, 0)), reg=0).value == 0


def test_brute_force():
    """All permutations."""
    for seed in range(30):
        C = np.random.default_rng(seed).standard_normal((6, 6))
        best = min(C[np.arange(6), list(p)].sum() for p in itertools.permutations(range(6)))
        assert of.solve(C, reg=0).value * 6 == pytest.approx(best, rel=1e-12)


def test_one_point_left_among_those_without_mass_in_a_stream():
    """Found by tests/properties/test_exact.py: one index, as a tensor, is not a list of one."""
    r = of.solve_sample([[0.0], [5.0]], [[1.0], [3.0]], [1.0, 0.0], [0.0, 1.0], reg=0, executor="stream")
    assert r.dense().tolist() == [[0.0, 1.0], [0.0, 0.0]]
    assert [t.tolist() for t in np.isneginf(r.potentials)] == [[False, True], [True, False]]
    assert r.value == 9.0
