"""The solver of small problems: its Newton steps never lower the dual, and it reaches what a literal iteration reaches."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from otformer.nn import balance_cpu
from otformer.nn.balance import balance
from otformer.nn.balance_cpu import _newton, solve_small
from otformer.nn.balance_lanes import scale_plans


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(11, 5, 5), (9, 16, 16), (3, 64, 40), (4, 33, 70)])
def test_mild_problems_have_the_plans_and_gradients_of_the_other_ways(shape, dtype, monkeypatch):
    """With weights, absent points and forbidden entries, and problems among them that are not mild."""
    B, n, m = shape
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=g, dtype=torch.float64)
    logits[1] *= 30
    logits[0, 0, 1] = -torch.inf
    a, b = (torch.rand(B, size, generator=g, dtype=torch.float64) + 0.1 for size in (n, m))
    a[2, 1] = b[2, 0] = 0.0
    a, b, probe = (
        a / a.sum(1, keepdim=True),
        b / b.sum(1, keepdim=True),
        torch.randn(shape, generator=g, dtype=torch.float64),
    )

    def results() -> list[torch.Tensor]:
        x, tau = logits.to(dtype).requires_grad_(), torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
        w_a, w_b = a.clone().requires_grad_(), b.clone().requires_grad_()
        P = balance(x, tau, w_a, w_b, 1e-11, 100_000)
        P.backward(probe.to(dtype))
        slopes = w_a.grad[a > 0], w_b.grad[b > 0]  # those in absent points mean nothing
        return [t.double() for t in (P.detach(), x.grad, tau.grad, *slopes)]

    mild = results()
    monkeypatch.setattr(balance_cpu, "scale_plans", lambda *_: None)
    monkeypatch.setattr(balance_cpu, "pull_plans", lambda *_: None)
    accuracy = {torch.float64: 1e-8, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    for own, other in zip(mild, results(), strict=True):
        scale = float(other.abs().max())
        torch.testing.assert_close(own, other, atol=accuracy * scale, rtol=0)


def test_what_is_not_mild_is_given_up_early_and_what_is_mild_is_not():
    g = torch.Generator().manual_seed(0)
    for n, scale, low, high in (
        (16, 1.0, 1.0, 1.0),
        (64, 1.5, 1.0, 1.0),
        (16, 2.0, 0.5, 0.95),
        (16, 4.0, 0.0, 0.05),
        (64, 10.0, 0.0, 0.0),
    ):
        L = scale * torch.randn(40, n, n, generator=g, dtype=torch.float64).numpy()
        one, P, f, error = np.ones((40, n)), np.empty_like(L), np.empty((40, n)), np.full(40, np.inf)
        scale_plans(L, np.ones(40), one, one, 1e-6, P, f, np.empty_like(f), error)
        assert low <= (error <= 1e-6).mean() <= high


def test_gradients_are_found_again_where_conjugate_gradients_are_given_up():
    """Of problems too sharp for them, beside finite differences."""
    g = torch.Generator().manual_seed(0)
    for n, scale in ((16, 3.0), (40, 2.5), (40, 5.0)):
        x, probe, way = (torch.randn(4, n, n, generator=g, dtype=torch.float64) for _ in range(3))
        x, one, tau = (scale * x).requires_grad_(), torch.ones(1, n, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        loss = lambda L: (balance(L, tau, one, one, 1e-12, 100_000) * probe).sum()  # noqa: B023, E731
        (grad,) = torch.autograd.grad(loss(x), x)
        slope = (loss(x.detach() + 1e-5 * way) - loss(x.detach() - 1e-5 * way)) / 2e-5
        torch.testing.assert_close((grad * way).sum(), slope, rtol=1e-5, atol=1e-6)
