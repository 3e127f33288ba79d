"""Executors, warm starts and types of `solve` and `solve_sample`."""

import numpy as np
import pytest
import torch

import otformer as of
from oracles import problem


def test_executors_of_solve_sample_agree_and_a_matrix_too_large_is_not_formed():
    x, y, a, b = problem(11, 40, 50)
    dense = of.solve_sample(x, y, a, b, reg=0.02, tol=1e-10, executor="dense")
    stream = of.solve_sample(x, y, a, b, reg=0.02, tol=1e-10, executor="stream")
    np.testing.assert_allclose(np.asarray(stream.plan), np.asarray(dense.plan), atol=1e-9)
    np.testing.assert_allclose(np.asarray(stream.map(y)), np.asarray(dense.map(y)), atol=1e-7)
    x = np.linspace(0, 1, 10_001)[:, None]
    with pytest.warns(RuntimeWarning, match="not converged"):
        r = of.solve_sample(x, x, reg=1e-7, max_depth=2)
    assert type(r.plan).__name__ == "StreamedPlan"
    with pytest.raises(ValueError, match="executor must be one of auto, dense, stream, got 'gpu'"):
        of.solve_sample(x, x, executor="gpu")
    with pytest.raises(ValueError, match="executor='stream' cannot be combined with schedule"):
        of.solve_sample(x, x, executor="stream", schedule="gradient")


def test_a_constant_moved_between_the_potentials_changes_nothing_and_nonsense_is_given_up():
    x, y, a, b = problem(12, 20, 25)
    cold = of.solve_sample(x, y, a, b, reg=0.01, tol=1e-10)
    u, v = cold.potentials
    for shift in (1e3, 1e9):
        warm = of.solve_sample(x, y, a, b, reg=0.01, tol=1e-10, potentials=(u - shift, v + shift))
        assert warm.converged
        assert float(warm.value) == pytest.approx(float(cold.value), abs=1e-9)
    lost = np.full(25, -np.inf), np.linspace(-8e307, 8e307, 25)
    for nonsense in lost:
        again = of.solve_sample(x, y, a, b, reg=0.01, tol=1e-10, potentials=(np.zeros(20), nonsense))
        assert again.converged
        assert float(again.value) == pytest.approx(float(cold.value), abs=1e-9)


def test_sparse_tensors_are_refused_where_they_are_points_and_so_is_a_reg_out_of_range():
    with pytest.raises(ValueError, match=r"X_a must be an ordinary array, got a tensor of layout torch\.sparse_coo"):
        of.solve_sample(torch.eye(3).to_sparse(), torch.eye(3))
    with pytest.raises(ValueError, match=r"reg must be at most 1e300, got 1e\+308"):
        of.solve(np.eye(3), reg=1e308)


def test_points_whose_distances_overflow_are_named():
    with pytest.raises(ValueError, match=r"X_a and X_b must have finite squared distances, got points up to 1e\+200"):
        of.solve_sample([[1e200]], [[0.0]])


def test_a_reg_of_one_entry_has_a_gradient():
    reg = torch.tensor([0.1], dtype=torch.float64, requires_grad=True)
    of.solve(torch.eye(3, dtype=torch.float64), reg=reg).plan[0, 0].backward()
    assert reg.grad is not None
    assert bool(reg.grad.isfinite().all())


def test_the_points_of_an_unbalanced_problem_have_a_gradient():
    g = torch.Generator().manual_seed(0)
    x = torch.rand(4, 2, generator=g, dtype=torch.float64, requires_grad=True)
    y = torch.rand(5, 2, generator=g, dtype=torch.float64)

    def value(points):
        return of.solve_sample(points, y, reg=0.1, unbalanced=1.0, tol=1e-10).value

    assert torch.autograd.gradcheck(value, (x,), eps=1e-5, atol=1e-5)
