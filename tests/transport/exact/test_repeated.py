"""Points given many times: merged, solved and shared out again, with the certificate of any other exact result."""

from __future__ import annotations

import time
import warnings

import numpy as np
import ot
import pytest
import torch
from scipy.spatial.distance import cdist

import otformer as of
from helpers.certificates import EPS
from otformer.transport.costs.equal_rows import equal_rows
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.exact import repeated


def at_places(seed: int, n: int, k: int, d: int = 2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.random((k, d))[rng.integers(k, size=n)]


def masses(seed: int, n: int) -> np.ndarray:
    w = np.random.default_rng(seed).random(n) + 0.1
    return w / w.sum()


def check(r: of.ExactResult, C: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Primal and dual feasible for all pairs, and the same value: float64 sums over n + m weights round by ε each."""
    (i, j, mass), (f, g) = r.pairs, r.potentials
    N, size = len(a) + len(b), float(C.max() + abs(f).max() + abs(g).max())
    assert (mass > 0).all()
    assert len(i) <= N - 1
    assert abs(np.bincount(i, mass, len(a)) - a).sum() + abs(np.bincount(j, mass, len(b)) - b).sum() <= 4 * N * EPS
    reduced = C - f[:, None] - g
    assert reduced.min() >= -16 * EPS * size
    assert abs(mass @ reduced[i, j]) <= 16 * EPS * size
    assert abs(mass @ C[i, j] - r.value) <= N * EPS * size
    assert r.converged


@pytest.mark.parametrize(("n", "m", "k", "l"), [(600, 600, 5, 5), (600, 600, 5, 600), (700, 500, 3, 40), (650, 700, 1, 1)])
@pytest.mark.parametrize("equal", [True, False])
def test_the_plan_is_optimal_over_the_points_as_given(n, m, k, l, equal):
    x, y = at_places(0, n, k), at_places(1, m, l)
    a, b = (np.full(n, 1 / n), np.full(m, 1 / m)) if equal else (masses(2, n), masses(3, m))
    C = cdist(x, y, "sqeuclidean")
    r = of.solve_sample(x, y, *((None, None) if equal else (a, b)), reg=0)
    check(r, C, a, b)
    assert r.value == pytest.approx(ot.emd2(a, b, C, numItermax=10**6), rel=1e-9)
    if equal and n == m:
        assert sorted(r.permutation.tolist()) == list(range(n))
        assert C[np.arange(n), r.permutation].mean() == pytest.approx(r.value, rel=1e-12)


def test_weights_of_0_tensors_labels_and_a_warm_start():
    x, y, a, b = at_places(4, 640, 6), at_places(5, 600, 7), masses(6, 640), masses(7, 600)
    a[::5], b[3] = 0, 0
    a, b = a / a.sum(), b / b.sum()
    C = cdist(x, y, "sqeuclidean")
    r = of.solve_sample(torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(a), torch.from_numpy(b), reg=0)
    assert np.isneginf(np.asarray(r.potentials[0])[::5]).all()
    assert float(r.value) == pytest.approx(ot.emd2(a, b, C), rel=1e-9)
    again = of.solve_sample(x, y, a, b, reg=0, potentials=tuple(np.asarray(t) for t in r.potentials))
    assert again.value == pytest.approx(float(r.value), rel=1e-12)
    kinds = np.arange(640) % 2, np.arange(600) % 2  # equal points of two labels are two places
    a, b = np.full(640, 1 / 640), np.full(600, 1 / 600)
    labelled = of.solve_sample(x, y, a, b, reg=0, labels=kinds, executor="stream")
    i, j, _ = labelled.pairs
    assert (kinds[0][i] == kinds[1][j]).all()
    halves = sum(ot.emd2([], [], C[k::2, k::2]) / 2 for k in (0, 1))
    assert labelled.value == pytest.approx(halves, rel=1e-9)


def test_gradients_are_those_of_the_plan_over_the_points():
    """∂/∂x_i = 2 Σ_j P_ij (x_i − y_j), where the plan is P."""
    x, y = (torch.from_numpy(at_places(seed, 600, 8)) for seed in (8, 9))
    moving = x.clone().requires_grad_()
    r = of.solve_sample(moving, y, reg=0)
    (slope,) = torch.autograd.grad(r.value, moving)
    P = r.dense().detach()
    torch.testing.assert_close(slope, 2 * (P.sum(1)[:, None] * x - P @ y))


def test_what_could_not_be_sent_in_time_is_told():
    x, y = at_places(10, 3000, 5), at_places(11, 3000, 5)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        r = of.solve_sample(x, y, reg=0, max_time=1e-9)
    assert r.marginal_error < 1e-12
    assert r.bound <= r.value
    best = of.solve_sample(x, y, reg=0).value
    assert r.bound * (1 - 1e-12) <= best <= r.value * (1 + 1e-12)


def test_points_that_differ_are_not_merged():
    x = np.random.default_rng(12).random((600, 2))
    grid = np.stack(np.meshgrid(np.arange(25.0), np.arange(24.0)), -1).reshape(-1, 2)  # coordinates repeat, points do not
    for points in (x, grid):
        t = torch.from_numpy(points)
        assert repeated._side(t).first.size == 600
        r = of.solve_sample(points, points[::-1] + 0.3, reg=0)
        np.testing.assert_array_equal(r.permutation, np.arange(600)[::-1])  # a shift


@pytest.mark.parametrize(("n", "m", "k", "l"), [(600, 600, 5, 5), (600, 600, 600, 7), (700, 500, 3, 40), (650, 700, 1, 1)])
@pytest.mark.parametrize("equal", [True, False])
def test_equal_rows_and_columns_of_a_matrix(n, m, k, l, equal):
    rng = np.random.default_rng(15)
    C = rng.random((k, l))[rng.integers(k, size=n)][:, rng.integers(l, size=m)]
    a, b = (np.full(n, 1 / n), np.full(m, 1 / m)) if equal else (masses(16, n), masses(17, m))
    merged = repeated.places(MatrixCost(C))
    assert merged is not None
    assert [len(side.first) for side in merged] == [min(k, n), min(l, m)]
    r = of.solve(C, *((None, None) if equal else (a, b)), reg=0)
    check(r, C, a, b)
    assert r.value == pytest.approx(ot.emd2(a, b, C, numItermax=10**6), rel=1e-9, abs=1e-12)
    if equal and n == m:
        assert sorted(r.permutation.tolist()) == list(range(n))


def test_equal_rows_with_forbidden_pairs_and_none_that_are_equal():
    rng = np.random.default_rng(18)
    few = rng.random((5, 600))
    few[np.arange(5), 100 * np.arange(5)] = np.inf
    few[0, 599], few[1, 599] = 0.0, -0.0  # these are equal numbers
    which = rng.integers(5, size=600)
    C = few[which]
    np.testing.assert_array_equal(which[equal_rows(C)], which)
    r = of.solve(C, reg=0)
    big = np.where(np.isinf(C), 1e3, C)
    assert r.converged
    assert r.value == pytest.approx(ot.emd2([], [], big), rel=1e-9)
    C[:, 1] += 1e-12 * np.arange(600)  # one column tells all rows apart
    assert equal_rows(C) is None
    assert equal_rows(rng.random((600, 600))) is None
    assert equal_rows((rng.random((600, 600)) < 0.5) * 1.0) is None
    assert MatrixCost(C).places() is None


def test_a_row_that_cannot_send_is_named_among_all():
    """Rows 300 … 599 may only send to columns 0 … 99."""
    C = np.zeros((600, 600))
    C[300:, 100:] = np.inf
    with pytest.raises(ValueError, match=r"row (3|4|5)\d\d and others"):
        of.solve(C, reg=0)


@pytest.mark.slow
def test_thousands_of_points_on_five_places_take_no_time():
    """Without merging this took 30 s of processor time on one core."""
    x, y = at_places(13, 2000, 5), at_places(14, 2000, 5)
    of.solve_sample(x, y, reg=0)  # compiles
    before = time.process_time()
    r = of.solve_sample(x, y, reg=0)
    assert time.process_time() - before < 1
    check(r, cdist(x, y, "sqeuclidean"), np.full(2000, 1 / 2000), np.full(2000, 1 / 2000))
