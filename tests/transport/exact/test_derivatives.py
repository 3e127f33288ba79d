"""Exact values have their derivatives, and the form of what was given."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import otformer as of


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
