"""The value can be differentiated twice; what is not known is refused, never left out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.autograd.functional import hvp, vhp

import otformer as of

POINTS = torch.rand(3, 8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def value(executor: str) -> Callable[[Tensor], Tensor]:
    return lambda x: of.solve_sample(x, POINTS[1], reg=0.1, tol=1e-13, executor=executor).value


@pytest.mark.parametrize("executor", ["dense", "stream"])
def test_hessian_vector_products_equal_differences(executor: str) -> None:
    x, d, step = POINTS[0], POINTS[2], 1e-5
    slopes = [grad(value(executor)(moved.requires_grad_()), moved)[0] for moved in (x + step * d, x - step * d)]
    torch.testing.assert_close(vhp(value(executor), x, d)[1], (slopes[0] - slopes[1]) / (2 * step), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("executor", ["dense", "stream"])
def test_a_derivative_that_is_not_known_is_refused(executor: str) -> None:
    """torch's functional.hvp differentiates a Hessian product again; its part through the potentials used to be left out."""
    x = POINTS[0].clone().requires_grad_()
    result = of.solve_sample(x, POINTS[1], reg=0.1, executor=executor)
    with pytest.raises(RuntimeError, match="differentiated"):
        hvp(value(executor), POINTS[0], POINTS[2])
    for loss in (result.value_linear, (result.apply(torch.ones(8, dtype=torch.float64)) ** 2).sum()):
        with pytest.raises(RuntimeError, match="differentiated"):
            grad(loss, x, create_graph=True)


def test_a_stream_knows_how_far_its_numbers_reach() -> None:
    """Squares of float32 coordinates of 2·10¹⁹ overflow; costs that are 2⁵⁰ λ apart have no digit left."""
    x = np.random.default_rng(0).random((20, 3)).astype(np.float32)
    far = x * np.float32(2e19)
    assert of.solve_sample(far, far[::-1].copy(), reg=1e18, metric="euclidean", executor="stream").converged
    with pytest.raises(ValueError, match=r"reg must be at least 2⁻⁵⁰ .*, got .*: costs may be .* times reg apart"):
        of.solve_sample(x, x, reg=1e-20, executor="stream")
    ends = np.array([[0.0], [1.0]])  # costs from 0 to 1
    with pytest.warns(RuntimeWarning, match="not converged"):
        of.solve_sample(ends, ends, reg=1.01 * 2.0**-50, executor="stream", max_depth=2)
    with pytest.raises(ValueError, match="at least 2⁻⁵⁰"):
        of.solve_sample(ends, ends, reg=0.99 * 2.0**-50, executor="stream", max_depth=2)
