"""What a caller can hand over: costs by name, forbidden pairs, weights, batches, points without mass, any layout."""

from __future__ import annotations

import numpy as np
import ot
import pytest
import torch

import otformer as of
from oracles import pot_plan, squared_cost
from transport.test_entry_points import REG, draw


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner"])
def test_costs_by_name(metric):
    x, y, a, b = draw(11)
    M = {"euclidean": ot.dist(x, y, "euclidean"), "cosine": ot.dist(x, y, "cosine"), "inner": -x @ y.T}[metric]
    P = pot_plan(M - M.min(), a, b, REG)
    np.testing.assert_allclose(of.solve_sample(x, y, a, b, reg=REG, tol=1e-10, metric=metric).plan, P, atol=1e-9)
    points = torch.tensor(x, requires_grad=True)
    of.solve_sample(points, torch.tensor(y), reg=REG, metric=metric).value.backward()
    assert bool(points.grad.abs().sum() > 0)


@pytest.mark.parametrize("solver", [None, of.Newton(), of.Mixed(), of.Network("relaxed")])
def test_forbidden_pairs_have_no_mass(solver):
    """Against POT with a cost so high that its kernel is 0 there; gradients by finite differences."""
    x, y, a, b = draw(12)
    C, allowed = squared_cost(x, y), np.random.default_rng(0).random((12, 9)) > 0.3
    high = pot_plan(np.where(allowed, C, 1e3), a, b, REG)
    for M, mask in ((C, allowed), (np.where(allowed, C, np.inf), None)):
        found = of.solve(M, a, b, reg=REG, tol=1e-9, mask=mask, solver=solver)
        np.testing.assert_allclose(found.plan, high, atol=1e-8)
        assert found.plan[~allowed].sum() == 0
        assert found.value_linear == pytest.approx((high * C)[allowed].sum(), rel=1e-7)
    M = torch.tensor(np.where(allowed, C, np.inf), requires_grad=True)
    found = of.solve(M, a, b, reg=REG, tol=1e-9, solver=solver)
    found.value.backward(retain_graph=True)
    np.testing.assert_allclose(M.grad, high, atol=1e-8)
    (found.value_linear + (found.plan**2).sum()).backward()
    assert bool(M.grad.isfinite().all())


def test_the_default_weights_of_one_side_have_the_mass_of_the_other():
    C = squared_cost(*draw(13)[:2])
    assert of.solve(C, a=np.ones(12)).plan.sum() == pytest.approx(12)
    assert of.solve(C, b=np.ones(9)).plan.sum() == pytest.approx(9)
    assert of.solve_batch([(C, np.ones(12))])[0].plan.sum() == pytest.approx(12)


def test_stacked_arrays_are_a_batch():
    x, y = np.random.default_rng(0).random((2, 4, 7, 3))
    for found, one, other in zip(of.solve_batch((x, y), reg=REG), x, y, strict=True):
        np.testing.assert_allclose(found.plan, of.solve_sample(one, other, reg=REG).plan, atol=1e-6)
    with pytest.raises(ValueError, match=r"X_a must have shape \(n, d\), got \(4, 7, 3\): for a batch"):
        of.solve_sample(x, y)


def test_results_have_pots_names_and_say_their_own_error():
    x, y, a, b = draw(14)
    found = of.solve_sample(x, y, a, b, reg=REG)
    assert found.potential_a is found.potentials[0]
    np.testing.assert_allclose(found.marginals[0], found.plan.sum(1))
    np.testing.assert_allclose(found.marginal_b, found.plan.sum(0))
    assert found.status.startswith("converged: marginal error")
    assert found.log["u"] is found.potentials[0]
    partial = of.solve_partial(squared_cost(x, y), a, b, reg=REG, mass=0.5)
    assert "mass 0.5" in repr(partial)
    assert partial.error < 1e-6 < partial.marginal_error


def test_a_gradient_of_the_second_set_alone_is_not_lost():
    x, y, a, b = draw(15)
    for call in (
        lambda y: of.solve_sample(x, y).value,
        lambda y: of.solve_sample(x, y, metric="euclidean").value,
        lambda y: of.solve_sample(x, y, unbalanced=1.0).value,
        lambda y: of.solve_batch([(x, y)])[0].value,
        lambda y: of.solve_streamed(torch.tensor(x), y).value,
    ):
        moving = torch.tensor(y, requires_grad=True)
        call(moving).backward()
        assert float(moving.grad.abs().sum()) > 1e-3
    weights = torch.tensor(a, requires_grad=True)
    assert of.divergence(x, y, weights, b).requires_grad
    found = of.solve(torch.tensor(squared_cost(x, y), requires_grad=True))
    with torch.inference_mode():
        assert found.plan.shape == (12, 9)
    assert found.plan.requires_grad


@pytest.mark.parametrize("far", [-1e16, 1e18, 1e300, np.nan])
def test_costs_of_a_point_without_mass_do_not_matter(far):
    x, y, a, b = draw(16)
    a[0] = 0
    a, C = a / a.sum(), squared_cost(x, y)
    alone = of.solve(C[1:], a[1:], b, reg=REG, tol=1e-9)
    C[0] = far
    for found in (of.solve(C, a, b, reg=REG, tol=1e-9), of.solve_batch([(C, a, b)], reg=REG, tol=1e-9)[0]):
        assert found.converged
        np.testing.assert_allclose(found.plan[1:], alone.plan, atol=1e-8)
    assert of.solve(C, a, b, reg=REG, tol=1e-9).depth == alone.depth


def test_arrays_of_any_layout_and_potentials_of_any_level():
    x, y, a, b = draw(17)
    C, mask = squared_cost(x, y), np.random.default_rng(1).random((12, 9)) > 0.2
    turned = of.solve(C[::-1], a[::-1], b, reg=REG, mask=mask[::-1])
    np.testing.assert_allclose(turned.plan, of.solve(C, a, b, reg=REG, mask=mask).plan[::-1], atol=1e-6)
    of.solve(C, mask=np.broadcast_to(np.True_, (12, 9)), potentials=(np.zeros(12)[::-1], np.zeros(9, ">f8")))
    b[0] = 0
    start = of.solve(C + 1000, a, b / b.sum(), reg=0.01).potentials
    cold, warm = of.solve(C, a, reg=0.01), of.solve(C, a, reg=0.01, potentials=start)
    assert warm.converged
    assert warm.depth <= cold.depth + 60


def test_functions_as_metrics_are_checked():
    x, y, *_ = draw(18)
    with pytest.raises(
        ValueError, match=r"metric must give a matrix of shape \(12, 9\) for all points, .*, got shape \(9, 12\)"
    ):
        of.solve_sample(x, y, metric=lambda x, y: squared_cost(y, x))
    with pytest.raises(ValueError, match="must be a name or Features where no matrix is formed, got a function"):
        of.solve_sample(x, y, metric=squared_cost, executor="stream")
