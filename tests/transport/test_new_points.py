"""`Result.transform` beside OTT's entropic map, POT's, brute force and differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import ot
import pytest
import torch
from scipy.spatial.distance import cdist

import otformer as of
from needs import missing

RNG = np.random.default_rng(3)
X, Y, NEW = RNG.random((40, 3)), RNG.random((30, 3)) + 0.3, RNG.random((11, 3))
METRICS = {"sqeuclidean": "sqeuclidean", "euclidean": "euclidean", "cosine": "cosine"}


@pytest.mark.parametrize("executor", ["dense", "stream"])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine", "inner"])
def test_at_the_points_of_the_plan_it_is_the_map(metric: str, executor: str) -> None:
    r = of.solve_sample(X, Y, reg=0.05, tol=1e-10, metric=metric, executor=executor)
    np.testing.assert_allclose(r.transform(X), np.asarray(r.map(Y)), atol=1e-8)
    np.testing.assert_allclose(r.transform(Y, inverse=True), np.asarray(r.plan.T @ X) * len(Y), atol=1e-8)


def test_it_is_otts_entropic_map() -> None:
    jax: Any = pytest.importorskip("jax", reason=missing("ott"))
    pytest.importorskip("ott", reason=missing("ott"))
    from ott.geometry.pointcloud import PointCloud
    from ott.solvers.linear import solve

    jax.config.update("jax_enable_x64", True)
    out = solve(PointCloud(X, Y, epsilon=0.05), threshold=1e-9, max_iterations=10_000)
    theirs = np.asarray(out.to_dual_potentials().transport(jax.numpy.asarray(NEW)))
    r = of.solve_sample(X, Y, reg=0.05, tol=1e-10)
    np.testing.assert_allclose(r.transform(NEW), theirs, atol=1e-6)


def test_at_its_points_it_is_pots_transform() -> None:
    theirs = ot.da.SinkhornTransport(reg_e=0.05, tol=1e-12, max_iter=100_000).fit(Xs=X, Xt=Y)
    r = of.solve_sample(X, Y, reg=0.05, tol=1e-11)
    np.testing.assert_allclose(r.transform(X), theirs.transform(Xs=X), atol=1e-6)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_the_exact_map_sends_points_along_the_matching(metric: str) -> None:
    x = RNG.random((30, 3))
    r = of.solve_sample(x, Y, reg=0, metric=metric)
    C = cdist(x, Y, metric)
    np.testing.assert_array_equal(r.transform(x), Y[np.asarray(r.permutation)])
    f, g = r.potentials
    np.testing.assert_array_equal(r.transform(NEW), Y[(cdist(NEW, Y, metric) - g).argmin(1)])
    assert (C - f[:, None] - g).min() > -1e-12


def test_the_exact_map_of_new_points_is_monotone() -> None:
    """The gradient of a convex function: ⟨T(x) − T(x'), x − x'⟩ ≥ 0."""
    T = of.solve_sample(X, RNG.random((40, 3)) ** 3, reg=0).transform(NEW)
    products = ((T[:, None] - T) * (NEW[:, None] - NEW)).sum(2)
    assert products.min() >= -1e-12


def test_gradients_are_those_of_differences() -> None:
    x, y = torch.as_tensor(X), torch.as_tensor(Y)
    new, values = torch.as_tensor(NEW).requires_grad_(), torch.as_tensor(RNG.random((30, 2))).requires_grad_()
    for metric in ("sqeuclidean", "euclidean", "cosine", lambda p, q: (p - q).abs().sum()):
        r = of.solve_sample(x, y, reg=0.05, metric=metric)
        assert torch.autograd.gradcheck(lambda p, v, r=r: r.transform(p, v), (new, values))


def test_blocks_do_not_change_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    r = of.solve_sample(torch.as_tensor(X), torch.as_tensor(Y), reg=0.05)
    new = torch.as_tensor(NEW).requires_grad_()
    whole = r.transform(new)
    monkeypatch.setattr("otformer.transport.result.new_points.COSTS_AT_ONCE", 70)
    parts = r.transform(new)
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(*(torch.autograd.grad(t.square().sum(), new)[0] for t in (parts, whole)))


def test_points_without_weight_are_never_reached() -> None:
    b = np.append(np.zeros(29), 1.0)
    for reg in (0.05, 0):
        np.testing.assert_allclose(of.solve_sample(X, Y, b=b, reg=reg).transform(NEW), np.tile(Y[-1], (11, 1)))


def test_kinds_of_arrays() -> None:
    single = of.solve_sample(X.astype(np.float32), Y.astype(np.float32), reg=0.05)
    assert single.transform(NEW.astype(np.float32)).dtype == np.float32
    assert single.transform(NEW).dtype == np.float64
    assert single.transform(NEW, list(range(30))).shape == (11,)
    assert single.transform(np.zeros((0, 3))).shape == (0, 3)


R = of.solve_sample(X, Y, reg=0.1)
BAD = {
    "dimension": (lambda: R.transform(NEW[:, :2]), r"points must have shape \(k, 3\), .* got \(11, 2\)"),
    "axes": (lambda: R.transform(NEW[0]), r"points must have shape \(k, 3\)"),
    "nan": (lambda: R.transform(NEW * np.nan), "points must be finite, got nan"),
    "values": (lambda: R.transform(NEW, np.zeros(3)), r"values must have shape \(30,\) or \(30, c\), got \(3,\)"),
    "matrix": (lambda: of.solve(cdist(X, Y), reg=0.1).transform(NEW), "got one without points"),
    "unbalanced": (lambda: of.solve_sample(X, Y, reg=0.1, unbalanced=1.0).transform(NEW), "got one that is unbalanced"),
    "mask": (lambda: of.solve_sample(X, Y, mask=np.ones((40, 30), bool)).transform(NEW), "got one that is masked"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    call, said = BAD[name]
    with pytest.raises(ValueError, match=said):
        call()


def test_on_the_way_an_exact_plan_keeps_the_masses_and_the_distances() -> None:
    """W(x, z_t) = t W(x, y) along the exact interpolation, for any weights."""
    a, b = RNG.dirichlet(np.ones(40)), RNG.dirichlet(np.ones(30))
    r = of.solve_sample(X, Y, a, b, reg=0)
    assert ot.emd2(a, b, ot.dist(X, Y)) == pytest.approx(r.value)
    for t in (0.0, 0.3, 1.0):
        points, masses = r.interpolate(t)
        assert masses.sum() == pytest.approx(1)
        assert ot.emd2(a, masses, ot.dist(X, points)) == pytest.approx(t**2 * r.value, abs=1e-12)


@pytest.mark.parametrize("executor", ["dense", "stream"])
def test_on_the_way_with_entropy_points_go_to_their_means(executor: str) -> None:
    r = of.solve_sample(torch.as_tensor(X), torch.as_tensor(Y), reg=0.05, executor=executor)
    points, masses = r.interpolate(0.25)
    P = ot.sinkhorn([], [], ot.dist(X, Y), 0.05, stopThr=1e-12, numItermax=10_000)
    np.testing.assert_allclose(points, 0.75 * X + 0.25 * P @ Y * 40, atol=1e-5)
    np.testing.assert_allclose(masses, 1 / 40, atol=1e-6)


def test_a_time_that_is_none_is_refused() -> None:
    for wrong in (-0.1, 1.5, np.nan):
        with pytest.raises(ValueError, match=r"^t must be"):
            of.solve_sample(X, Y).interpolate(wrong)
    with pytest.raises(ValueError, match=r"^interpolate must be asked of a result of solve_sample"):
        of.solve(np.eye(2)).interpolate(0.5)
