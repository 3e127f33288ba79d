"""The plan that is never formed, against the matrix; its derivatives against finite differences and the dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

import otformer as of
from helpers.streams import Sizes, masses
from helpers.streams import cubes as clouds
from otformer.transport.solve import solve_streamed

QUANTITIES = {
    "value": lambda r, w: r.value,
    "value_linear": lambda r, w: r.value_linear,
    "apply": lambda r, w: r.apply(w),
    "map": lambda r, w: r.map(w),
    "both ways": lambda r, w: r.plan.T @ r.apply(w),
    "rows": lambda r, w: r.plan.rows(1, 3),
}


def test_the_plan_is_an_operator() -> None:
    x, y = (t.numpy() for t in clouds(23, 17))
    a, b = masses(23, 1, zeros=4).numpy(), masses(17, 2, zeros=3).numpy()
    plan = solve_streamed(x, y, a, b, reg=0.05, tol=1e-10).plan
    P, rng = np.asarray(plan), np.random.default_rng(0)
    w, z = rng.random((17, 2)), rng.random(23)
    assert plan.shape == P.shape == (23, 17)
    assert P[a == 0].sum() == P[:, b == 0].sum() == 0
    for ours, expected in [
        (plan @ w, P @ w),
        (plan.T @ z, P.T @ z),
        (plan.sum(0), P.sum(0)),
        (plan.sum(1), P.sum(1)),
        (plan.T.sum(1), P.sum(0)),
        (plan.rows(5, 11), P[5:11]),
        (plan.rows(20, 99), P[20:]),
        (plan.rows(7, 3), P[7:3]),
        (plan.T.dense(), P.T),
    ]:
        assert isinstance(ours, np.ndarray)
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(plan.argmax(1), P.argmax(1))
    np.testing.assert_array_equal(plan.argmax(0), P.argmax(0))
    assert repr(plan) == "StreamedPlan(23×17, not formed)"
    assert (plan @ w.astype(np.float32)).dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_gradients_against_finite_differences(quantity: str) -> None:
    x, y = clouds(5, 4, 2)
    theta, phi, w = masses(5, 1), masses(4, 2), clouds(4, 1, 2, seed=5)[0]
    log_reg = torch.tensor(-1.0, dtype=torch.float64)

    def function(x: Tensor, y: Tensor, theta: Tensor, phi: Tensor, log_reg: Tensor, w: Tensor) -> Tensor:
        result = solve_streamed(x, y, theta.softmax(0), phi.softmax(0), reg=log_reg.exp(), tol=1e-13)
        return QUANTITIES[quantity](result, w)

    assert gradcheck(function, [t.requires_grad_() for t in (x, y, theta, phi, log_reg, w)])


@pytest.mark.parametrize("cost", ["inner", "cosine"])
def test_gradients_of_other_costs(cost: str) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        result = solve_streamed(x, y, reg=0.3, tol=1e-13, cost=cost)
        return result.value, result.map(y)

    assert gradcheck(function, [t.requires_grad_() for t in clouds(4, 3, 2)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_equal_the_dense_ones(dtype: torch.dtype) -> None:
    """In everything at once, at a smaller λ, far from the origin, and with points without mass."""
    x, y = ((t + 30).to(dtype) for t in clouds(60, 50))
    a, b, reg = masses(60, 1, zeros=7), masses(50, 2, zeros=6), torch.tensor(0.03, dtype=torch.float64)
    inputs = [t.clone().requires_grad_() for t in (x, y, a, b, reg)]
    grads = []
    for solver in (solve_streamed, of.solve_sample):
        double = [t.double() for t in inputs] if solver is of.solve_sample else inputs
        result = solver(*double, tol=1e-11)
        loss = result.value + 2 * result.value_linear + (result.map(y) ** 2 / 1e3).sum() + result.apply(y[:, 0]).sum()
        grads.append(torch.autograd.grad(loss, inputs))
    present = [a > 0, b > 0, a > 0, b > 0, ...]
    for ours, theirs, at in zip(*grads, present, strict=True):
        loose = 1e-8 if dtype == torch.float64 else 1e-4
        torch.testing.assert_close(ours[at], theirs[at], rtol=loose, atol=loose * float(theirs[at].abs().max()))
    assert float(grads[0][0][a == 0].abs().max()) == 0


def test_second_derivatives_of_products_are_refused() -> None:
    x, y = clouds(5, 4, 2)
    result = solve_streamed(x.requires_grad_(), y, reg=0.3)
    for loss in (result.value_linear, result.apply(y).sum()):
        with pytest.raises(RuntimeError, match="can be differentiated only once"):
            torch.autograd.grad(loss, x, create_graph=True)


@pytest.mark.slow
def test_neither_products_nor_gradients_form_a_matrix() -> None:
    x, y = (t.requires_grad_() for t in clouds(2000, 2100, 2))
    with Sizes() as forward:
        result = solve_streamed(x, y, reg=0.5, tol=1e-4)
        loss = result.value + result.value_linear + result.map(y).square().sum()
    with Sizes() as backward:
        loss.backward()
    assert forward.largest <= 2**18  # a block of the stream; the matrix has 16 times as many
    assert 2000 * 5 <= backward.largest <= 2**18
