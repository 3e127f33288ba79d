"""Loops that are captured once and go on to later problems of their shape: nobody notices, whoever calls, and where."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from transport.test_gpu_streaming import cloud, mass_of, stream

pytestmark = pytest.mark.gpu


@pytest.mark.filterwarnings("ignore:not converged")
def test_converged_is_never_a_lie() -> None:
    """150 problems in the loops of three: the plan as a matrix, its sums in float64 against the weights given."""
    rng, converged = np.random.default_rng(1), 0
    for _ in range(150):
        n, m, d = rng.integers(1, (300, 300, 4))
        dtype = rng.choice([np.float16, np.float32, np.float64])
        x, y = ((rng.random((k, d)) + rng.choice([0, 1, 30]) * rng.normal(size=d)).astype(dtype) for k in (n, m))
        a, b = (rng.random(k) ** rng.choice([1, 30]) * (rng.random(k) < rng.choice([0.6, 1])) for k in (n, m))
        a[0], b[0], mass = 1, 1, 10 ** rng.uniform(-6, 3)
        a, b = mass * a / a.sum(), mass * b / b.sum() * rng.choice([1, 1 + 5e-6])
        C = np.square(x.astype(float)[:, None] - y.astype(float)).sum(-1)
        reg, tol = (np.ptp(C) or 1) * 10 ** rng.uniform(-3.5, 1), rng.choice([1e-3, 1e-4, 1e-6, 1e-9])
        given = [torch.tensor(t).cuda() for t in (x, y, a, b)]
        result = stream(*given, reg=reg, tol=tol, max_depth=300)
        P = result.plan.dense().cpu().numpy()
        assert np.isfinite(P).all()
        true = np.abs(P.sum(1) - a).sum() + np.abs(P.sum(0) - b).sum()
        assert not result.converged or true < tol * min(1, a.sum())
        assert true <= result.marginal_error * (1 + 1e-6) + 1e-11 * a.sum()
        converged += result.converged
    assert converged > 60  # not those with sums that differ, few layers, tol = 10⁻⁹ at large masses


@pytest.mark.parametrize(
    ("d", "dtype", "tol"), [(3, torch.float32, 1e-4), (3, torch.float64, 1e-8), (16, torch.float32, 1e-4)]
)
def test_later_problems_of_the_same_shape_change_nothing(d: int, dtype: torch.dtype, tol: float) -> None:
    """Captured loops go on to the next problem: what is read late is what was solved, to the bit."""
    x, y = cloud(d=d, dtype=dtype)
    w, reg = y.double(), 0.03 * d
    read = [lambda r: r.potentials[0], lambda r: r.potentials[1], lambda r: r.value, lambda r: r.value_linear]
    read.append(lambda r: r.apply(w))
    early, late = stream(x, y, reg=reg, tol=tol), stream(x, y, reg=reg, tol=tol)
    expected = [get(early).clone() for get in read]
    for seed in (1, 2, 3):
        stream(*cloud(d=d, dtype=dtype, seed=seed), mass_of(500, seed), reg=reg * seed, tol=tol)
    for get, known in zip(read, expected, strict=True):
        assert torch.equal(get(late), known)
        assert torch.equal(get(early), known)


def test_two_threads_find_what_one_does() -> None:
    """Of one shape, so that both want the loops of the other."""
    problems = [cloud(d=3, dtype=torch.float32, seed=seed) for seed in range(8)]

    def solve(points: tuple[Tensor, Tensor]) -> list[Tensor]:
        result = stream(*points, reg=0.02, tol=1e-4)
        assert result.converged
        return [*result.potentials, result.value_linear]

    alone = [solve(points) for points in problems]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(solve, problems))
    for ours, theirs in zip(together, alone, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode: Any) -> None:
    """A shape that nobody had before, so that what is kept for later was made there; then outside, and there again."""
    n = 700 if mode is torch.no_grad else 1000
    x, y = cloud(n, n, 3, torch.float32)
    expected = None
    for where in (mode, torch.enable_grad, mode):
        with where():
            result = stream(x, y, reg=0.02, tol=1e-4)
            found = [*result.potentials, result.value, result.value_linear, result.apply(y)]
        assert result.converged
        assert torch.equal(result.apply(y), found[-1])
        expected = expected or [t.clone() for t in found]
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    moving = x.clone().requires_grad_()
    assert bool(grad(stream(moving, y, reg=0.02, tol=1e-4).value, moving)[0].isfinite().all())
