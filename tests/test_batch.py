"""of.solve_batch: every problem as if alone, each with its own convergence, broken ones named."""

import numpy as np
import ot
import pytest
import torch

from otformer.transport.batch import BrokenProblems, solve_batch
from otformer.transport.solve import solve, solve_sample


def ragged(count, seed=0, most=30):
    rng = np.random.default_rng(seed)
    return [rng.random((rng.integers(1, most), rng.integers(1, most))) for _ in range(count)]


def test_every_result_equals_POTs():
    costs = ragged(60)
    for C, result in zip(costs, solve_batch(costs, reg=0.05, tol=1e-9), strict=True):
        a, b = np.full(C.shape[0], 1 / C.shape[0]), np.full(C.shape[1], 1 / C.shape[1])
        expected = ot.bregman.sinkhorn_log(a, b, C, 0.05, numItermax=100_000, stopThr=1e-13)
        assert np.abs(result.plan - expected).max() < 1e-8
        assert result.converged
        error = np.abs(result.plan.sum(1) - a).sum() + np.abs(result.plan.sum(0) - b).sum()
        assert result.marginal_error == pytest.approx(error, abs=1e-13)
        assert result.value == pytest.approx((expected * C).sum() + 0.05 * (expected * np.log(expected)).sum(), abs=1e-8)


def test_small_lambda_and_different_scales_side_by_side():
    costs = [C * scale for C, scale in zip(ragged(12, seed=1, most=12), [1e-3, 1.0, 1e3] * 4, strict=True)]
    for C, result in zip(costs, solve_batch(costs, reg=0.01, tol=1e-7), strict=True):
        assert result.converged
        assert np.abs(result.plan - solve(C, reg=0.01, tol=1e-9).plan).max() < 1e-6


def test_weights_points_zero_weights_and_mass():
    rng = np.random.default_rng(2)
    x, y, C = rng.random((5, 2)), rng.random((7, 2)), rng.random((4, 3))
    a, b = [0.5, 0.0, 0.25, 0.25], [0.0, 1.0, 2.0]
    problems = [(x, y), (C, a, [0.2, 0.3, 0.5]), (C, [1.5, 0.0, 0.75, 0.75], b)]
    points, weighted, heavy = solve_batch(problems, reg=0.1, tol=1e-10)
    np.testing.assert_allclose(points.plan, solve_sample(x, y, reg=0.1, tol=1e-12).plan, atol=1e-9)
    np.testing.assert_allclose(weighted.plan, solve(C, a, [0.2, 0.3, 0.5], reg=0.1, tol=1e-12).plan, atol=1e-9)
    np.testing.assert_allclose(heavy.plan, solve(C, [1.5, 0.0, 0.75, 0.75], b, reg=0.1, tol=1e-12).plan, atol=1e-9)
    assert weighted.plan[1].sum() == 0
    assert np.isneginf(weighted.potentials[0][1])


def test_a_hard_problem_does_not_hold_up_or_spoil_the_easy_ones():
    easy, hard = np.zeros((3, 3)), np.array([[0.0, 1.0], [1e-7, 1.0 + 1e-8]])
    with pytest.warns(RuntimeWarning, match=r"not converged: 1 of 3 problems, marginal error up to .*, tol is 1e-10"):
        results = solve_batch([easy, hard, easy], reg=1e-4, tol=1e-10, max_depth=6)
    assert [r.converged for r in results] == [True, False, True]
    assert results[0].depth < results[1].depth <= 6


def test_broken_problems_are_named_and_the_others_are_kept():
    costs = [np.ones((2, 2)), np.array([[1.0, np.nan]]), np.ones((3, 2)), (1, 2, 3, 4, 5)]
    with pytest.raises(BrokenProblems, match=r"problem 1: M must be finite, got nan .* \(and 1 more\)") as raised:
        solve_batch(costs)
    assert isinstance(raised.value, ValueError)
    assert sorted(raised.value.errors) == [1, 3]
    assert raised.value.results[1] is None
    assert raised.value.results[2].converged


def test_kinds_of_input_and_empty_lists():
    assert solve_batch([]) == []
    (result,) = solve_batch([torch.rand(4, 5, dtype=torch.float32, generator=torch.Generator().manual_seed(0))], tol=1e-4)
    assert result.plan.dtype == torch.float32
    (empty,) = solve_batch([np.zeros((0, 0))])
    assert empty.converged
    assert empty.plan.shape == (0, 0)
    with pytest.raises(ValueError, match="reg must be a positive"):
        solve_batch([np.ones((2, 2))], reg=0)
