"""Rounded plans have the marginals, and the optimum lies between their bound and their value: against POT and scipy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

import otformer as of
from helpers.messages import refuses
from helpers.streams import Sizes
from oracles import marginal_error
from otformer.transport.costs.rounded_plan import RoundedPlan
from otformer.transport.costs.rounding import Rounded

ROUGH = 1e-3  # a marginal error far above rounding


def problem(n: int = 40, m: int = 30, seed: int = 0, zeros: bool = True) -> tuple[np.ndarray, ...]:
    """Points [n, 2], [m, 2], weights of one sum, some of them 0."""
    rng = np.random.default_rng(seed)
    a, b = rng.random(n) ** 2, rng.random(m) ** 4
    if zeros:
        a[[3, 7]], b[0] = 0, 0
    return rng.random((n, 2)), rng.random((m, 2)) + 0.3, a / a.sum(), b / b.sum()


def optimum(C: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """min Σ P C over plans without mass on infinite costs, by scipy."""
    n, m = C.shape
    sums = np.concatenate([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    allowed = np.isfinite(C).ravel()
    return float(linprog(C.ravel()[allowed], A_eq=sums[:, allowed], b_eq=np.concatenate([a, b])).fun)


def check(r: Rounded, C: np.ndarray, a: Any, b: Any, best: float, loose: float = 1e-12) -> None:
    """All that a `Rounded` says of itself is true."""
    P, scale = np.asarray(r.plan), np.abs(C[np.isfinite(C)]).max()
    allowed = np.isfinite(C)
    assert P.dtype == np.float64
    assert P.min() >= 0
    assert not P[~allowed].any()
    assert r.marginal_error < loose
    assert marginal_error(P, a, b) < loose
    assert r.value == pytest.approx((P * np.where(allowed, C, 0)).sum(), abs=loose * scale)
    assert r.bound - loose * scale <= best <= r.value + loose * scale
    assert r.gap >= 0
    assert r.gap == pytest.approx(r.value - r.bound, abs=loose * scale)
    f, g = (np.asarray(t) for t in r.potentials)
    assert ((f == -np.inf) == (np.asarray(a) == 0)).all()
    assert ((g == -np.inf) == (np.asarray(b) == 0)).all()
    assert (C - f[:, None] - g).min() > -1e-14 * scale
    assert r.bound == pytest.approx(f[f > -np.inf] @ a[f > -np.inf] + g[g > -np.inf] @ b[g > -np.inf], abs=loose * scale)


@pytest.mark.parametrize("executor", ["dense", "stream"])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("reg", [1.0, 0.03, 0.003])
def test_the_optimum_lies_between_bound_and_value(executor: str, metric: str, reg: float) -> None:
    x, y, a, b = problem()
    C = cdist(x, y, metric)
    r = of.solve_sample(x, y, a, b, reg=reg, metric=metric, executor=executor, tol=ROUGH)
    assert r.marginal_error > 1e-9, "nothing to round"
    check(r.rounded(), C, a, b, ot.emd2(a, b, C))
    assert r.rounded() is r.rounded()


@pytest.mark.parametrize("executor", ["dense", "stream"])
def test_the_gap_falls_with_reg(executor: str) -> None:
    x, y, a, b = problem()
    gaps = [of.solve_sample(x, y, a, b, reg=reg, executor=executor).rounded().gap for reg in (1e-1, 1e-2, 1e-3, 1e-4)]
    assert all(small < big / 4 for big, small in itertools.pairwise(gaps))
    assert gaps[-1] < 1e-4


@pytest.mark.parametrize("executor", ["dense", "stream"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_and_single_precision(executor: str, dtype: torch.dtype) -> None:
    x, y, a, b = (torch.as_tensor(t).to(dtype) for t in problem())
    x.requires_grad_()
    r = of.solve_sample(x, y, a, b, reg=0.05, executor=executor, tol=ROUGH).rounded()
    assert all(isinstance(t, torch.Tensor) and t.dtype == torch.float64 for t in r.potentials)
    assert isinstance(r.plan, torch.Tensor if executor == "dense" else RoundedPlan)
    assert isinstance(r.value, float)
    wide = [t.detach().double().numpy() for t in (x, y, a, b)]
    wide[3] *= wide[2].sum() / wide[3].sum()
    C = cdist(*wide[:2], "sqeuclidean")
    check(r, C, *wide[2:], ot.emd2(*wide[2:], C))


@pytest.mark.parametrize("executor", ["dense", "stream"])
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_far_away_costs_lose_nothing_of_the_gap(executor: str, shift: float) -> None:
    x, y, a, b = (t[:-1] if t.ndim else t for t in problem(zeros=False))
    a, b = a / a.sum(), b / b.sum()
    near = of.solve_sample(x, y, a, b, reg=0.01, executor=executor, tol=1e-9).rounded()
    far = of.solve_sample(x, y + shift, a, b, reg=0.01, executor=executor, tol=1e-9).rounded()
    assert far.gap == pytest.approx(near.gap, rel=1e-3)


def test_masses_other_than_1_and_negative_costs() -> None:
    x, y, a, b = problem()
    C = cdist(x, y) - 5.0
    r = of.solve(C, 30 * a, 30 * b, reg=0.01, tol=ROUGH).rounded()
    check(r, C, 30 * a, 30 * b, 30 * optimum(C, a, b), 1e-11)


def test_large_matrices_in_torch() -> None:
    x, y, a, b = problem(300, 260, zeros=False)
    C = cdist(x, y)
    check(of.solve(C, a, b, reg=0.01, tol=ROUGH).rounded(), C, a, b, ot.emd2(a, b, C, numItermax=10**6))


def half_forbidden(seed: int) -> tuple[np.ndarray, ...]:
    """Costs of which every second is infinite, and weights of a plan that there is."""
    rng = np.random.default_rng(seed)
    C = np.where(rng.random((20, 15)) < 0.5, rng.random((20, 15)), np.inf)
    C[np.arange(20), np.arange(20) % 15] = 0.7
    possible = np.where(np.isfinite(C), rng.random(C.shape), 0)
    possible /= possible.sum()
    return C, possible.sum(1), possible.sum(0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reg", [0.3, 0.03])
def test_forbidden_pairs_stay_empty(seed: int, reg: float) -> None:
    C, a, b = half_forbidden(seed)
    r = of.solve(C, a, b, reg=reg, tol=1e-5, solver=of.Mixed())
    assert r.marginal_error > 1e-12
    check(r.rounded(), C, a, b, optimum(C, a, b))


def test_forbidden_pairs_that_leave_no_way_are_an_error() -> None:
    C, a, b = half_forbidden(0)
    r = of.solve(C, a, b, reg=0.01, tol=0.1, solver=of.Mixed())
    with pytest.raises(ValueError, match=r"^rounded needs a better plan: a mass of \S+ is missing, and no allowed pair"):
        r.rounded()


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize("executor", ["dense", "stream"])
@pytest.mark.parametrize(("allow", "k"), [("equal", 3), ("different", 2)])
def test_labels(metric: str, executor: str, allow: str, k: int) -> None:
    x, y, _, _ = problem(36, 30)
    labels = np.arange(36) % k, np.arange(30) % k
    C = np.where((labels[0][:, None] == labels[1]) == (allow == "equal"), cdist(x, y, metric), np.inf)
    a, b = np.full(36, 1 / 36), np.full(30, 1 / 30)
    r = of.solve_sample(x, y, reg=0.05, metric=metric, executor=executor, labels=labels, allow=allow, tol=ROUGH)
    assert r.marginal_error > 1e-9
    check(r.rounded(), C, a, b, optimum(C, a, b))


def test_streamed_labels_that_must_differ_have_no_correction_of_rank_one() -> None:
    x, y, _, _ = problem(36, 30)
    labels = np.arange(36) % 3, np.arange(30) % 3
    options: dict[str, Any] = dict(reg=0.05, labels=labels, allow="different", tol=ROUGH)
    C = np.where(labels[0][:, None] != labels[1], cdist(x, y, "sqeuclidean"), np.inf)
    a, b = np.full(36, 1 / 36), np.full(30, 1 / 30)
    check(of.solve_sample(x, y, executor="dense", **options).rounded(), C, a, b, optimum(C, a, b))
    with pytest.raises(ValueError, match=r"^rounded would put a mass of \S+ on pairs that labels forbid: use executor"):
        of.solve_sample(x, y, executor="stream", **options).rounded()


def test_a_streamed_plan_is_its_matrix() -> None:
    x, y, a, b = problem()
    plan = of.solve_streamed(x, y, a, b, reg=0.05, tol=ROUGH).rounded().plan
    P, w = plan.dense(), np.random.default_rng(5).random((30, 2))
    np.testing.assert_allclose(plan @ w, P @ w, atol=1e-14)
    np.testing.assert_allclose(plan.T @ P[:, 0], P.T @ P[:, 0], atol=1e-14)
    np.testing.assert_allclose(plan.sum(0), b, atol=1e-14)
    np.testing.assert_allclose(plan.sum(1), a, atol=1e-14)
    np.testing.assert_allclose(plan.rows(5, 9), P[5:9], atol=1e-16)
    np.testing.assert_allclose(plan.T.dense(), P.T, atol=1e-14)
    assert plan.shape == (40, 30)
    assert "not formed" in repr(plan)
    with pytest.raises(ValueError, match=r"^vector must have shape \(30,\) or \(30, k\), got \(40,\)$"):
        plan @ a


def test_streams_never_form_the_matrix() -> None:
    x, y = (torch.rand(3000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(k)) for k in range(2))
    r = of.solve_streamed(x, y, reg=0.01, tol=ROUGH)
    with Sizes() as seen:
        rounded = r.rounded()
        rounded.plan @ x
    assert seen.largest < 3000**2 / 20
    assert rounded.marginal_error < 1e-12
    assert 0 < rounded.gap < 0.02


def test_no_points() -> None:
    for executor in ("dense", "stream"):
        r = of.solve_sample(np.zeros((0, 2)), np.zeros((0, 2)), executor=executor).rounded()
        assert r.value == r.bound == r.gap == r.marginal_error == 0
        assert np.shape(r.plan) == (0, 0)


def test_one_point_has_no_gap() -> None:
    for executor in ("dense", "stream"):
        r = of.solve_sample([[1.0, 2.0]], [[0.0, 0.0]], executor=executor).rounded()
        assert r.value == pytest.approx(5.0)
        assert r.gap < 1e-12
        assert np.asarray(r.plan).tolist() == [[1.0]]


def test_results_of_other_problems_say_so() -> None:
    x, y, a, b = problem()
    results = [
        of.solve_sample(x, y, a, b, unbalanced=1.0),
        of.solve_streamed(x, y, a, b, unbalanced=1.0),
        of.solve_partial(cdist(x, y), a, b, mass=0.5),
    ]
    for r in results:
        with refuses("rounded", "a balanced result", r.method):
            r.rounded()


def far_clouds(seed: int) -> tuple[Any, ...]:
    """Clouds of 1 to 5 dimensions up to 1e7 of their sizes apart, in either precision, with weights or labels or neither."""
    rng = np.random.default_rng(seed)
    n, m, d = rng.integers(4, 40), rng.integers(4, 40), 1 + seed % 5
    away = rng.normal(size=d)
    x, y = rng.random((n, d)), rng.random((m, d)) + 10.0 ** (seed % 9 - 1) * away / np.linalg.norm(away)
    a, b = rng.random((2, 40)) ** 3 if seed % 2 else np.ones((2, 40))
    a, b, labels = a[:n] / a[:n].sum(), b[:m] / b[:m].sum(), None
    if seed % 4 == 2:
        labels = np.arange(n) % 2, np.arange(m) % 2
        for k in range(2):
            b[labels[1] == k] *= a[labels[0] == k].sum() / b[labels[1] == k].sum()
    return (*((t.astype(np.float32) if seed % 3 == 0 else t) for t in (x, y)), a, b, labels)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("seed", range(36))
def test_streams_of_far_clouds_are_rounded_to_the_last_digits(seed: int, metric: str) -> None:
    """Against sums and costs in extended precision, and POT's optimum."""
    x, y, a, b, labels = far_clouds(seed)
    wide = np.longdouble
    difference = x.astype(wide)[:, None] - y.astype(wide)
    C = (difference**2).sum(2) if metric == "sqeuclidean" else np.sqrt((difference**2).sum(2))
    top, allowed = float(C.max()), True if labels is None else labels[0][:, None] == labels[1]
    spread = float(C.max() - C.min())
    reg = max(spread * 10.0 ** -(seed % 4), 1e-13 * top)
    options: dict[str, Any] = {} if labels is None else {"labels": labels, "allow": "equal"}
    found = of.solve_sample(x, y, a, b, reg=reg, metric=metric, executor="stream", tol=1e-2, **options).rounded()
    P, (f, g) = np.asarray(found.plan).astype(wide), (t.astype(wide) for t in found.potentials)
    assert not P[~np.broadcast_to(allowed, P.shape)].any()
    target = b.astype(wide) * (a.astype(wide).sum() / b.astype(wide).sum())
    assert abs(P.sum(1) - a).sum() + abs(P.sum(0) - target).sum() < 4e-15
    assert abs(found.plan.sum(1) - a).sum() + abs(found.plan.sum(0) - target).sum() < 4e-15
    reduced = np.where(allowed, C - f[:, None] - g, 0)
    assert reduced.min() > -1e-15 * top
    assert found.value == pytest.approx(float((P * C).sum()), abs=2e-15 * top)
    assert found.gap >= 0
    assert found.gap == pytest.approx(float((P * reduced).sum()), abs=1e-15 * top)
    relative = np.where(allowed, ((C - C.min()) / spread).astype(float), 4.0 * len(a) * len(b))
    best = float((ot.emd(a, target.astype(float), relative).astype(wide) * np.where(allowed, C, 0)).sum())
    assert found.bound - 1e-12 * top < best < found.value + 1e-12 * top
