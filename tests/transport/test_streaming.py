"""Solving without the matrix: against the dense solver and POT, wherever the points lie; its memory; bad input."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import otformer as of
from helpers.streams import cubes as clouds
from helpers.streams import masses, stream_of
from oracles import marginal_error, pot_plan, squared_cost
from otformer.transport.solve import solve_streamed

FEATURES = {"sqeuclidean": of.squared_euclidean, "inner": of.inner_product, "cosine": of.cosine}


def matrix(x: Tensor, y: Tensor, cost: str) -> Tensor:
    """The cost by its definition, in float64."""
    x, y = x.double(), y.double()
    if cost == "sqeuclidean":
        return squared_cost(x, y)
    inner = x @ y.mT
    return -inner if cost == "inner" else 1 - inner / (x.norm(dim=1)[:, None] * y.norm(dim=1))


@pytest.mark.parametrize("zeros", [0, 9])
@pytest.mark.parametrize("cost", FEATURES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("reg", [1.0, 0.02])
def test_equals_the_dense_solver(cost: str, dtype: torch.dtype, reg: float, zeros: int) -> None:
    x, y = (t.to(dtype) for t in clouds())
    a, b = masses(130, 1, zeros), masses(90, 2, zeros)
    dense = of.solve(matrix(x, y, cost), a, b, reg=reg, tol=1e-11)
    lazy = solve_streamed(x, y, a, b, reg=reg, tol=1e-11, cost=cost)
    assert lazy.converged
    assert dense.converged
    torch.testing.assert_close(lazy.plan.dense(), dense.plan, rtol=0, atol=1e-11)
    loose = 1e-9 if dtype == torch.float64 else 1e-6  # value and products come back in the dtype of the input
    assert float(lazy.value) == pytest.approx(float(dense.value), abs=loose, rel=loose)
    assert float(lazy.value_linear) == pytest.approx(float(dense.value_linear), abs=loose, rel=loose)
    for ours, theirs in ((lazy.apply(y[:, 0]), dense.apply(y[:, 0])), (lazy.map(y), dense.map(y))):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=loose)
    u, v = lazy.potentials
    assert bool(((a == 0) == u.isneginf()).all())
    assert bool(((b == 0) == v.isneginf()).all())
    P = ((u[:, None] + v - matrix(x, y, cost)) / reg - 1).exp()
    assert lazy.marginal_error == pytest.approx(marginal_error(P, a, b), abs=1e-13)


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("reg", [0.1, 0.001])
def test_converged_is_true_in_float64_whatever_the_dtype(reg: float, tol: float) -> None:
    """Points far from the origin, where float32 squares have no digits left; the error from the potentials returned."""
    x, y = ((t + 100).float() for t in clouds(80, 70))
    result = solve_streamed(x, y, reg=reg, tol=tol)
    u, v = result.potentials
    P = ((u[:, None] + v - matrix(x, y, "sqeuclidean")) / reg - 1).exp()
    true = marginal_error(P, 1 / 80, 1 / 70)
    assert result.converged
    assert true < tol
    assert result.marginal_error == pytest.approx(true, abs=1e-11)
    assert "in float32 with a finish in float64" in result.method


def test_float32_alone_leads_as_far_as_it_is_said_to() -> None:
    """Its true error is within a factor of four of 2⁻²⁶ spread/λ, where passes in float32 stop: the rest is float64."""
    from otformer.transport.solvers.blocks import annealed, least_error

    x, y = (t.float() for t in clouds(400, 400))
    single, double = stream_of(x, y), stream_of(x.double(), y.double())
    for share in (0.01, 0.002):
        reg = share * single.spread
        _, v, *_ = least_error(annealed(single, reg, 200), 0.0)
        u = -reg * double.log_ratio(torch.zeros_like(double.log_a), v.double(), reg, rows=True)
        true = float(double.log_ratio(u, v.double(), reg, rows=False).expm1().abs().mean())
        assert true < 4 * (2**-26 / share + 2**-23)


def test_equals_pot() -> None:
    x, y = (t.numpy() for t in clouds())
    a, b = masses(130, 1).numpy(), masses(90, 2).numpy()
    M = squared_cost(x, y)
    P = pot_plan(M, a, b, 0.05)
    result = solve_streamed(x, y, a, b, reg=0.05, tol=1e-12)
    np.testing.assert_allclose(result.plan, P, atol=1e-12)
    assert isinstance(result.value, float)
    assert result.value_linear == pytest.approx((P * M).sum(), abs=1e-11)
    assert result.value == pytest.approx((P * M).sum() + 0.05 * (P * np.log(P)).sum(), abs=1e-11)
    np.testing.assert_allclose(result.map(y), (P @ y) / P.sum(1)[:, None], atol=1e-10)
    assert isinstance(result.potentials[0], np.ndarray)


def test_any_features() -> None:
    x, y = clouds()
    W = torch.tensor([[2.0, 0.3, 0.0], [0.3, 1.0, 0.2], [0.0, 0.2, 0.5]], dtype=torch.float64)
    result = solve_streamed(None, None, reg=0.1, tol=1e-11, cost=of.mahalanobis(x, y, W))
    difference = x[:, None] - y[None]
    dense = of.solve((difference @ W * difference).sum(-1), reg=0.1, tol=1e-11)
    torch.testing.assert_close(result.plan.dense(), dense.plan, rtol=0, atol=1e-12)


def test_the_result_prints() -> None:
    x, y = clouds(23, 17)
    assert repr(solve_streamed(x, y, reg=1.0)).startswith("Result(23×17 plan, value ")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_moving_a_cloud_does_not_change_the_plan(dtype: torch.dtype) -> None:
    """‖x − y − t‖² = ‖x − y‖² − 2 t·(x − y) + ‖t‖²; points of few digits, so that y + t is exact."""
    x, y = ((t * 2**10).round() / 2**10 for t in clouds(70, 60, 2))
    for t in (2.0**7, 2.0**12, 2.0**17 if dtype == torch.float64 else 2.0**13):
        near, far = (solve_streamed(x.to(dtype), (y + s).to(dtype), reg=0.01, tol=1e-10) for s in (0.0, t))
        assert far.converged
        assert far.depth == near.depth
        torch.testing.assert_close(far.plan.dense(), near.plan.dense(), rtol=0, atol=1e-13)
        more = 2 * t**2 - 2 * t * float(x.sum(1).mean() - y.sum(1).mean())
        assert float(far.value) == pytest.approx(float(near.value) + more, rel=1e-14 if dtype == torch.float64 else 1e-6)
        P = far.plan.dense()
        true = marginal_error(P, 1 / 70, 1 / 60)
        assert far.marginal_error == pytest.approx(true, abs=1e-14)


def test_what_one_side_bears_does_not_change_the_plan() -> None:
    """A cost of 10¹² for one point, and another for all: its marginal is kept all the same."""
    x, y = clouds(40, 30)
    plain, q = of.squared_euclidean(x, y), torch.full((30,), 1e6, dtype=torch.float64)
    q[3] = 1e12
    near, far = (
        solve_streamed(None, None, reg=0.05, tol=1e-12, cost=of.Features(x, y, plain.x_sq, plain.y_sq + t)) for t in (0, q)
    )
    assert far.converged
    assert float(far.value) == pytest.approx(float(near.value + q.mean()), rel=1e-9)
    torch.testing.assert_close(far.plan.dense(), near.plan.dense(), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:not converged")
def test_converged_is_never_a_lie() -> None:
    """150 problems: the plan as a matrix, its sums in float64 against the weights that were given."""
    rng, converged = np.random.default_rng(0), 0
    for _ in range(150):
        n, m, d = rng.integers(1, (40, 40, 4))
        dtype = rng.choice([np.float32, np.float64])
        x, y = ((rng.random((k, d)) + rng.choice([0, 1, 100, 1e4]) * rng.normal(size=d)).astype(dtype) for k in (n, m))
        a, b = (rng.random(k) ** rng.choice([1, 30]) * (rng.random(k) < rng.choice([0.6, 1])) for k in (n, m))
        a[0], b[0], mass = 1, 1, 10 ** rng.uniform(-8, 4)
        a, b = (mass * a / a.sum()).astype(dtype), (mass * b / b.sum() * rng.choice([1, 1 + 5e-6])).astype(dtype)
        near = rng.choice([0, 1])  # λ relative to the range of costs, or to what it is without the offsets
        C = np.square((x - near * x.mean(0))[:, None] - (y - near * y.mean(0))).sum(-1, dtype=float)
        reg, tol = (np.ptp(C) or 1) * 10 ** rng.uniform(-4, 1), rng.choice([1e-3, 1e-6, 1e-9])
        result = solve_streamed(x, y, a, b, reg=reg, tol=tol, max_depth=300)
        P, a, b = np.asarray(result.plan), a.astype(float), b.astype(float)
        true = marginal_error(P, a, b)
        assert not result.converged or true < tol * min(1, a.sum())
        assert result.marginal_error == pytest.approx(true, rel=1e-6, abs=1e-11 * a.sum())
        converged += result.converged
    assert converged > 60  # not those with sums that differ, few layers, tol = 10⁻⁹ at large masses


MEMORY = """
import resource, torch
from otformer.transport.solve import solve_streamed
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
n = {n}
generator = torch.Generator().manual_seed(0)
x = torch.rand(n, 2, dtype=torch.float64, generator=generator)
y = (x + 0.5).requires_grad_()
start = torch.zeros(n, dtype=torch.float64), y.detach().sum(1)  # what a shift by (s, s) adds to v: 2 s Σ y
solve_streamed(x[:500], y[:500], reg=1.0).value.backward()
before, y.grad = peak(), None
result = solve_streamed(x, y, reg=1e-6, tol=5e-2, potentials=start)
result.value.backward()
gap, slope = (result.map(y) - y).norm(dim=1).mean(), (n * y.grad - 1).abs().mean()
print(peak() - before, *(t.item() for t in (result.value_linear, gap, slope)), result.converged)
"""


@pytest.mark.slow
def test_20000_points_take_no_matrix() -> None:
    """x moved by (½, ½): cost ½, map x + (½, ½) and gradient 2 (y_j − x_j)/n, all up to the blur. A matrix has 3.2 GB."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY.format(n=20_000)], capture_output=True, text=True, check=True, timeout=120
    )
    growth, linear, gap, slope, converged = done.stdout.split()
    assert float(growth) < 300  # MB
    assert converged == "True"
    assert float(linear) == pytest.approx(0.5, abs=1e-3)
    assert float(gap) < 1e-3
    assert float(slope) < 5e-2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x, y: solve_streamed(x, y.float()),
            r"X_a and X_b must have one dtype and device, got torch.float64 .* torch.float32",
        ),
        (lambda x, y: solve_streamed(x, y[:, :2]), r"must have the same dimension, got \(9, 3\) and \(7, 2\)"),
        (
            lambda x, y: solve_streamed(x, y, cost="manhattan"),
            "one of sqeuclidean, euclidean, inner, cosine, or Features, got 'manhattan'",
        ),
        (lambda x, y: solve_streamed(x, y, cost=2), "must be one of sqeuclidean, .*, or Features, got 2"),
        (lambda x, y: solve_streamed(x, y, cost=of.cosine(x, y)), "X_a and X_b must be None where cost is Features"),
        (lambda x, y: solve_streamed(None, None, cost=of.cosine(x[None], y[None])), "cost must be Features of one problem"),
        (lambda x, y: solve_streamed(x * torch.nan, y), "X_a must be finite, got nan at index"),
        (lambda x, y: solve_streamed(x, y[:0]), r"must both have points, or neither, got 9 and 0"),
        (lambda x, y: solve_streamed(x[:, :0], y[:, :0]), r"must have coordinates, got shapes \(9, 0\)"),
        (lambda x, y: solve_streamed(x, y, cost="cosine", a=None, b=[1.0]), r"b must have shape \(7,\), got \(1,\)"),
        (lambda x, y: solve_streamed(0 * x, y, cost="cosine"), "has a zero vector"),
        (lambda x, y: solve_streamed(x, y, a=[1.0] * 9, b=[1.0] * 7), "a and b must have the same sum, got 9 and 7"),
        (lambda x, y: solve_streamed(x, y, a=[0.0] * 9), "a must have a positive sum"),
        (lambda x, y: solve_streamed(x, y, a=[-1.0] * 9), "a must not be negative"),
        (lambda x, y: solve_streamed(x, y, reg=0), "reg must be a positive"),
        (lambda x, y: solve_streamed(1e150 * x, y, reg=1e-20), "reg must be so large that cost/reg is finite"),
        (lambda x, y: solve_streamed(x, y, reg=1e301), r"reg must be at most 1e300, got 1e\+301"),
        (lambda x, y: solve_streamed(1e200 * x, y), "X_a and X_b must have finite squared distances"),
        (lambda x, y: solve_streamed(x + 1e200, y), "X_a and X_b must have finite squared distances"),
        (lambda x, y: solve_streamed(1e308 * x, -1e308 * y), "X_a and X_b must have finite squared distances"),
        (lambda x, y: solve_streamed(x, y, a=torch.ones(9) > 0), "a must be float16, .* or whole numbers, got dtype bool"),
        (lambda x, y: solve_streamed(x, y, max_depth=1), "max_depth must be a whole number of at least 2"),
        (lambda x, y: solve_streamed(x, y, potentials=x), "potentials must be a pair"),
        (lambda x, y: solve_streamed(x, y, potentials=(x[:, 0], x[:, 0])), r"potentials must have shapes \(9,\) and \(7,\)"),
        (lambda x, y: solve_streamed(x, y, potentials=(x[:, 0], y[:, 0] * torch.nan)), "potentials must be numbers or −inf"),
        (lambda x, y: solve_streamed(x, y).apply(x[:, 0]), r"vector must have shape \(7,\) or \(7, k\), got \(9,\)"),
        (lambda x, y: solve_streamed(x, y).plan.T @ y, r"vector must have shape \(9,\) or \(9, k\), got \(7, 3\)"),
        (lambda x, y: solve_streamed(x, y).plan.sum(2), "axis must be one of 0, 1"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(*clouds(9, 7))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_gpu_gives_the_same(dtype: torch.dtype) -> None:
    x, y = (t.to(dtype) for t in clouds(700, 500))
    here = solve_streamed(x, y, reg=0.01, tol=1e-8)
    x, y = (t.cuda().requires_grad_() for t in (x, y))
    there = solve_streamed(x, y, reg=0.01, tol=1e-8)
    assert there.converged
    torch.testing.assert_close(there.plan.dense().detach().cpu(), here.plan.dense(), rtol=0, atol=1e-9)
    (there.value + there.map(y).square().sum()).backward()
    assert bool(x.grad.isfinite().all())  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"X_a and X_b must have one dtype and device, got .* on cuda:0 and .* on cpu"):
        solve_streamed(x, y.detach().cpu())
