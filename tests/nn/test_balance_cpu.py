"""The solver of small problems: its Newton steps never lower the dual, and it reaches what a literal iteration reaches."""

import numpy as np
import pytest
from scipy.special import logsumexp

from otformer.nn.balance_cpu import _newton, solve_small


def dual(X: np.ndarray, a: np.ndarray, b: np.ndarray, g: np.ndarray) -> np.ndarray:
    return (b * g).sum(0) - (a * logsumexp(X + g, axis=1)).sum(0)


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 20.0, 80.0])
@pytest.mark.parametrize("shape", [(2, 2), (4, 4), (9, 5), (32, 32)])
def test_a_newton_step_never_lowers_the_dual(shape, scale):
    """From potentials anywhere, far from the solution too, with weights that differ by many orders of magnitude."""
    rng = np.random.default_rng(0)
    n, m = shape
    X, g = scale * rng.standard_normal((n, m, 50)), scale * rng.standard_normal((m, 50))
    a, b = (np.exp(3 * rng.standard_normal((size, 50))) for size in (n, m))
    a, b = a / a.sum(0), b / b.sum(0)
    rises = 0
    for _ in range(5):
        P = np.exp(X + g - logsumexp(X + g, axis=1)[:, None]) * a[:, None]
        before = dual(X, a, b, g)
        g = g + _newton(P, a, b, P.sum(0))
        after = dual(X, a, b, g)
        assert (after - before >= -1e-10 * (1 + np.abs(before))).all()
        rises += int((after > before).sum())
    assert rises > 50  # there was something to rise


def test_problems_that_finish_at_different_times_keep_their_own_solutions():
    rng = np.random.default_rng(1)
    scales = np.geomspace(0.01, 10, 40)
    X, one = rng.standard_normal((4, 4, 40)) * scales, np.ones((4, 40))
    f, g = solve_small(X, one, one, 1e-12, 1000)
    for k in (0, 17, 30):
        u, v = np.zeros(4), np.zeros(4)
        for _ in range(3000):
            u = -logsumexp(X[:, :, k] + v, axis=1)
            v = -logsumexp(X[:, :, k] + u[:, None], axis=0)
        np.testing.assert_allclose(X[:, :, k] + f[:, k, None] + g[:, k], X[:, :, k] + u[:, None] + v, atol=1e-8)
