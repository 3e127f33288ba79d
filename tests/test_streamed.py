"""Solving without the matrix: against the dense solver, POT and finite differences; its memory; bad input."""

from __future__ import annotations

import subprocess
import sys
from functools import partialmethod
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import otformer as of
from otformer.transport.streamed import solve_streamed

FEATURES = {"sqeuclidean": of.squared_euclidean, "inner": of.inner_product, "cosine": of.cosine}


def clouds(n: int = 130, m: int = 90, d: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.rand(k, d, generator=generator, dtype=torch.float64) for k in (n, m))


def masses(n: int, seed: int, zeros: int = 0) -> Tensor:
    w = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    w[:: n // zeros if zeros else n + 1] = 0 if zeros else w[0]
    return w / w.sum()


def matrix(x: Tensor, y: Tensor, cost: str) -> Tensor:
    """The cost by its definition, in float64."""
    x, y = x.double(), y.double()
    if cost == "sqeuclidean":
        return (x[:, None] - y[None]).square().sum(-1)
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
    assert lazy.marginal_error == pytest.approx(float((P.sum(1) - a).abs().sum() + (P.sum(0) - b).abs().sum()), abs=1e-13)


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("reg", [0.1, 0.001])
def test_converged_is_true_in_float64_whatever_the_dtype(reg: float, tol: float) -> None:
    """Points far from the origin, where float32 squares have no digits left; the error from the potentials returned."""
    x, y = ((t + 100).float() for t in clouds(80, 70))
    result = solve_streamed(x, y, reg=reg, tol=tol)
    u, v = result.potentials
    P = ((u[:, None] + v - matrix(x, y, "sqeuclidean")) / reg - 1).exp()
    true = float((P.sum(1) - 1 / 80).abs().sum() + (P.sum(0) - 1 / 70).abs().sum())
    assert result.converged
    assert true < tol
    assert result.marginal_error == pytest.approx(true, abs=1e-11)
    assert "in float32 with a float64 finish" in result.network


def test_float32_alone_leads_as_far_as_it_is_said_to() -> None:
    """Its true error is within a factor of four of 2⁻²⁶ spread/λ, where passes in float32 stop: the rest is float64."""
    from otformer.transport.stages import annealed, best
    from otformer.transport.stream import Stream

    x, y = (t.float() for t in clouds(400, 400))
    single, double = Stream.from_points(x, y), Stream.from_points(x.double(), y.double())
    for share in (0.01, 0.002):
        reg = share * single.spread
        _, v, _ = best(annealed(single, single.spread, reg, 0.0, 200))
        u = -reg * double.excess(torch.zeros_like(double.log_a), v.double(), reg, rows=True)
        true = float(double.excess(u, v.double(), reg, rows=False).expm1().abs().mean())
        assert true < 4 * (2**-26 / share + 2**-23)


def test_equals_pot() -> None:
    import ot  # the GPU machine, which runs this file too, may be without it

    x, y = (t.numpy() for t in clouds())
    a, b = masses(130, 1).numpy(), masses(90, 2).numpy()
    M = ot.dist(x, y)
    P = ot.sinkhorn(a, b, M, 0.05, stopThr=1e-13, numItermax=20_000)
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


def test_a_warm_start_saves_layers_and_a_wrong_one_does_no_harm() -> None:
    x, y = clouds()
    a = masses(130, 1, zeros=9)
    cold = solve_streamed(x, y, a, reg=0.01, tol=1e-9)
    for dtype in (torch.float64, torch.float32):
        again = solve_streamed(x.to(dtype), y.to(dtype), a, reg=0.01, tol=1e-6, potentials=cold.potentials)
        assert again.depth <= 8
    other = a + 1e-3 * (a == 0)  # points absent before are present now
    other /= other.sum()
    swapped = solve_streamed(y, x, None, other, reg=0.01, tol=1e-9, potentials=cold.potentials[::-1])
    assert swapped.converged
    assert swapped.depth < solve_streamed(y, x, None, other, reg=0.01, tol=1e-9).depth
    wrong = solve_streamed(x, y, reg=0.01, tol=1e-9, potentials=(cold.potentials[0], 100 * masses(90, 4)))
    assert wrong.converged


def test_depth_counts_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    from otformer.transport.stream import Stream

    passes = 0
    for name in ("excess", "apply", "apply_transposed"):

        def counted(self: Stream, *args: Any, method: Any, **options: Any) -> Tensor:
            nonlocal passes
            passes += 1
            return method(self, *args, **options)

        monkeypatch.setattr(Stream, name, partialmethod(counted, method=getattr(Stream, name)))
    for dtype in (torch.float64, torch.float32):
        passes = 0
        result = solve_streamed(*(t.to(dtype) for t in clouds()), reg=0.02)
        assert result.depth == passes


MEMORY = """
import resource, torch
from otformer.transport.streamed import solve_streamed
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
        (lambda x, y: solve_streamed(x, y.float()), r"X_a and X_b must agree, got torch.float64 .* torch.float32"),
        (lambda x, y: solve_streamed(x, y[:, :2]), r"must have the same dimension, got \(9, 3\) and \(7, 2\)"),
        (
            lambda x, y: solve_streamed(x, y, cost="euclidean"),
            "one of sqeuclidean, inner, cosine, or Features, got 'euclidean'",
        ),
        (lambda x, y: solve_streamed(x, y, cost=2), "cost must be one of sqeuclidean, inner, cosine, or Features, got 2"),
        (lambda x, y: solve_streamed(x, y, cost=of.cosine(x, y)), "X_a and X_b must be None where cost is Features"),
        (lambda x, y: solve_streamed(None, None, cost=of.cosine(x[None], y[None])), "cost must be Features of one problem"),
        (lambda x, y: solve_streamed(x * torch.nan, y), "X_a must be finite, got nan at index"),
        (lambda x, y: solve_streamed(x, y[:0]), "X_a and X_b must have points, got 9 and 0"),
        (lambda x, y: solve_streamed(x, y, cost="cosine", a=None, b=[1.0]), r"b must have shape \(7,\), got \(1,\)"),
        (lambda x, y: solve_streamed(0 * x, y, cost="cosine"), "has a zero vector"),
        (lambda x, y: solve_streamed(x, y, a=torch.ones(9), b=torch.ones(7)), "a and b must have the same sum, got 9 and 7"),
        (lambda x, y: solve_streamed(x, y, a=torch.zeros(9)), "a must have a positive sum"),
        (lambda x, y: solve_streamed(x, y, a=-torch.ones(9)), "a must not be negative"),
        (lambda x, y: solve_streamed(x, y, reg=0), "reg must be a positive"),
        (lambda x, y: solve_streamed(1e160 * x, y), "reg is too small: cost/reg overflows"),
        (lambda x, y: solve_streamed(x, y, max_depth=1), "max_depth must be a whole number of at least 2"),
        (lambda x, y: solve_streamed(x, y, potentials=x), "potentials must be a pair"),
        (lambda x, y: solve_streamed(x, y, potentials=(x[:, 0], x[:, 0])), r"potentials must have shapes \(9,\) and \(7,\)"),
        (lambda x, y: solve_streamed(x, y, potentials=(x[:, 0], y[:, 0] * torch.nan)), "potentials must be numbers"),
        (lambda x, y: solve_streamed(x, y).apply(x[:, 0]), r"vector must have shape \(7,\) or \(7, k\), got \(9,\)"),
        (lambda x, y: solve_streamed(x, y).plan.T @ y, r"vector must have shape \(9,\) or \(9, k\), got \(7, 3\)"),
        (lambda x, y: solve_streamed(x, y).plan.sum(2), "axis must be one of 0, 1"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(*clouds(9, 7))


def test_what_has_not_converged_is_said() -> None:
    x, y = clouds()
    for dtype in (torch.float64, torch.float32):
        with pytest.warns(RuntimeWarning, match="not converged: marginal error .* after 6 layers"):
            result = solve_streamed(x.to(dtype), y.to(dtype), reg=0.001, tol=1e-9, max_depth=4)
        assert not result.converged


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
    with pytest.raises(ValueError, match=r"X_a and X_b must agree, got .* on cuda:0 and .* on cpu"):
        solve_streamed(x, y.detach().cpu())
