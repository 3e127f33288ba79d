"""Unbalanced problems and second derivatives without matrices, against dense ones and finite differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

import otformer as of
from helpers.streams import Sizes, close, cubes, masses
from otformer.transport.compat.like_geomloss import SamplesLoss
from otformer.transport.problem import read_points as read
from otformer.transport.solve import solve_streamed


def both(*inputs: Any, **options: Any) -> tuple[of.Result, of.Result]:
    return tuple(of.solve_sample(*inputs, executor=executor, **options) for executor in ("stream", "dense"))  # type: ignore


UNBALANCED = [
    ("sqeuclidean", 0.5, 0.05, 30.0),
    ("sqeuclidean", (0.5, 2.0), 0.02, 0.0),
    ("sqeuclidean", (0.5, math.inf), 0.02, 1.0),
    ("euclidean", 0.3, 0.05, 3.0),
    ("euclidean", (math.inf, 0.1), 0.1, 0.0),
    ("inner", 0.5, 0.05, 0.0),
    ("cosine", 0.01, 0.05, 0.0),
]


@pytest.mark.parametrize(("metric", "rho", "lam", "away"), UNBALANCED)
def test_unbalanced_equals_the_dense_one(metric: str, rho: Any, lam: float, away: float) -> None:
    """Plan, values, potentials, masses and gradients in everything; weights of 0, unequal masses, clouds far apart."""
    x, y = cubes(60, 50)
    a, b, reg = masses(60, 1, zeros=7), 1.4 * masses(50, 2, zeros=6), torch.tensor(lam, dtype=torch.float64)
    x = x + away if metric == "euclidean" else x
    x, y = (x + 3, y + 2) if away == 30 else (x, y)
    inputs = [t.requires_grad_() for t in (x, y, a, b, reg)]
    ours, dense = both(*inputs, unbalanced=rho, tol=1e-10, metric=metric)
    assert ours.converged
    assert ours.method.endswith("streamed")
    assert ours.mass == pytest.approx(dense.mass, abs=1e-10)
    assert ours.marginal_error == pytest.approx(dense.marginal_error, abs=1e-9)
    close((ours.value, ours.value_linear, ours.plan.dense()), (dense.value, dense.value_linear, dense.plan), 1e-9)
    close((ours.potentials[0][a > 0], ours.map(y)), (dense.potentials[0][a > 0], dense.map(y)), 1e-8)
    grads = [grad(result.value, inputs) for result in (ours, dense)]
    present = [..., ..., a > 0, b > 0, ...]
    close(*([g[at] for g, at in zip(side, present, strict=True)] for side in grads), 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "inner"])
def test_gradients_of_the_unbalanced_value_against_finite_differences(metric: str) -> None:
    def function(x: Tensor, y: Tensor, a: Tensor, b: Tensor, reg: Tensor) -> Tensor:
        return solve_streamed(x, y, a, b, reg, tol=1e-12, unbalanced=(0.5, 0.8), cost=metric).value

    inputs = [*cubes(5, 4, 2), masses(5, 1), 1.3 * masses(4, 2), torch.tensor(0.2, dtype=torch.float64)]
    assert gradcheck(function, [t.requires_grad_() for t in inputs], eps=1e-5, atol=1e-7)


@pytest.mark.parametrize("allow", ["equal", "different"])
def test_unbalanced_with_labels(allow: str) -> None:
    x, y = cubes(40, 30)
    labels = torch.arange(40) % 3, torch.arange(30) % 3
    ours, dense = both(x, y, reg=0.05, unbalanced=0.4, tol=1e-10, labels=labels, allow=allow)
    close((ours.value, ours.value_linear, ours.plan.dense()), (dense.value, dense.value_linear, dense.plan), 1e-9)
    forbidden = (labels[0][:, None] == labels[1]) == (allow == "different")
    assert float(ours.plan.dense()[forbidden].abs().max()) == 0


def test_what_an_unbalanced_stream_returns() -> None:
    x, y = (t.numpy().astype(np.float32) for t in cubes(30, 20))
    result = of.solve_sample(x, y, reg=0.1, unbalanced=1.0, executor="stream")
    assert isinstance(result.value, float)
    assert isinstance(result.value_linear, float)
    assert result.apply(np.ones(20)).sum() == pytest.approx(result.mass)
    tensors = [torch.tensor(t).requires_grad_() for t in (x, y)]
    result = of.solve_sample(*tensors, reg=0.1, unbalanced=1.0, executor="stream")
    assert result.value.dtype == torch.float32
    assert grad(result.value, tensors)[0].dtype == torch.float32
    for found in (result.value_linear, result.apply(torch.ones(20)).sum(), result.potentials[0].sum()):
        with pytest.raises(RuntimeError, match="value has gradients"):
            grad(found, tensors)
    with pytest.raises(RuntimeError, match="once only"):
        grad(of.solve_sample(*tensors, reg=0.1, unbalanced=1.0, executor="stream").value, tensors, create_graph=True)
    nothing = solve_streamed(x[:0], y[:0], unbalanced=1.0)
    assert (nothing.value, nothing.mass, nothing.converged) == (0.0, 0.0, True)


def test_unbalanced_streams_where_a_matrix_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "STREAM_ABOVE", 100)
    x, y = cubes(30, 20)
    assert of.solve_sample(x, y, unbalanced=1.0).method.endswith("streamed")
    assert not of.solve_sample(x, y, unbalanced=1.0, mask=torch.ones(30, 20, dtype=torch.bool)).method.endswith("streamed")


def test_an_unbalanced_stream_says_where_it_did_not_converge() -> None:
    with pytest.warns(RuntimeWarning, match="not converged: error"):
        assert not solve_streamed(*cubes(30, 20), reg=0.001, unbalanced=1.0, max_depth=6).converged


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unbalanced": -1.0}, "reg_m, or unbalanced, must be one or two positive numbers"),
        ({"unbalanced": math.inf}, "at most one of them infinite"),
        ({"unbalanced": 1.0, "potentials": (torch.zeros(6), torch.zeros(5))}, "unbalanced cannot be combined with pot"),
        ({"unbalanced": 1.0, "a": -torch.ones(6)}, "a must not be negative"),
        ({"unbalanced": 1.0, "cost": "manhattan"}, "must be one of"),
        ({"unbalanced": 1e-3, "cost": "inner", "X_a": 1e4 * torch.ones(6, 3), "max_depth": 9}, "mass of the plan overflows"),
        ({"unbalanced": 1.0, "X_a": torch.full((6, 3), torch.nan)}, "must be finite"),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    x, y = cubes(6, 5)
    with pytest.raises(ValueError, match=message):
        solve_streamed(**{"X_a": x.to(options.get("X_a", x)), "X_b": y.to(options.get("X_a", x)), **options})


def hessian_products(result: of.Result, inputs: list[Tensor], directions: list[Tensor]) -> tuple[Tensor, ...]:
    slopes = grad(result.value, inputs, create_graph=True)
    return grad(sum((g * d).sum() for g, d in zip(slopes, directions, strict=True)), inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", ["sqeuclidean", "inner", "cosine"])
def test_hessian_vector_products_equal_the_dense_ones(metric: str) -> None:
    """In points, weights and λ at once, far from the origin."""
    x, y = (t + (30 if metric == "sqeuclidean" else 0.1) for t in cubes(40, 30))
    a, b, reg = masses(40, 1), masses(30, 2), torch.tensor(0.05, dtype=torch.float64)
    inputs = [t.clone().requires_grad_() for t in (x, y, a, b, reg)]
    directions = [torch.randn(t.shape, generator=torch.Generator().manual_seed(k)).double() for k, t in enumerate(inputs)]
    results = both(*inputs, tol=1e-12, metric=metric)
    close(*(hessian_products(result, inputs, directions) for result in results), 1e-8)


def test_hessian_vector_products_with_points_without_mass() -> None:
    (x, y), a, b = cubes(40, 30, 12), masses(40, 1, zeros=7), masses(30, 2, zeros=6)
    inputs = [x.requires_grad_(), y.requires_grad_()]
    directions = [torch.ones_like(x), x.detach()[:30]]
    results = both(*inputs, a, b, reg=0.2, tol=1e-12)
    close(*(hessian_products(result, inputs, directions) for result in results), 1e-8)


def test_hessian_vector_products_in_float32() -> None:
    points = cubes(40, 30)
    found = []
    for dtype in (torch.float32, torch.float64):
        x, y = (t.to(dtype).requires_grad_() for t in points)
        result = of.solve_sample(x, y, reg=0.1, tol=1e-5, executor="stream")
        found.append(hessian_products(result, [x, y], [torch.ones_like(x), torch.ones_like(y).cumsum(0)]))
    assert found[0][0].dtype == torch.float32
    close([t.double() for t in found[0]], found[1], 1e-4)


@pytest.mark.slow
def test_hessian_vector_products_against_finite_differences() -> None:
    def value(x: Tensor, y: Tensor, theta: Tensor, log_reg: Tensor) -> Tensor:
        return solve_streamed(x, y, theta.softmax(0), None, log_reg.exp(), tol=1e-13).value

    inputs = [*cubes(5, 4, 2), masses(5, 1), torch.tensor(-1.0, dtype=torch.float64)]
    assert gradgradcheck(value, [t.requires_grad_() for t in inputs], eps=1e-5, atol=1e-7)


def test_third_derivatives_and_second_ones_of_plain_distances_are_refused() -> None:
    x, y = cubes(5, 4, 2)
    (g,) = grad(solve_streamed(x.requires_grad_(), y, reg=0.3).value, x, create_graph=True)
    with pytest.raises(RuntimeError, match="its value twice"):
        grad(g.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiated once for plain distances"):
        grad(solve_streamed(x, y, reg=0.3, cost="euclidean").value, x, create_graph=True)


@pytest.mark.slow
def test_neither_unbalanced_nor_debiased_nor_second_derivatives_form_a_matrix() -> None:
    x, y = (t.requires_grad_() for t in cubes(2000, 2100, 2))
    with Sizes() as sizes:
        (g,) = grad(solve_streamed(x, y, reg=0.5, tol=1e-4).value, x, create_graph=True)
        grad((g * y[:2000].detach()).sum(), x)
        grad(solve_streamed(x, y, reg=0.5, tol=1e-2, unbalanced=1.0).value, (x, y))
        for options in ({}, {"p": 1}, {"reach": 1.0}):
            grad(SamplesLoss(blur=0.7, tol=1e-3, backend="online", **options)(x, y), (x, y))
    assert sizes.largest <= 2**18  # a block of the stream; the matrix has 16 times as many
