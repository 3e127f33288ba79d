"""float16 and bfloat16 in: solved as the same numbers in float32, and float32 out but for means of what was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import otformer as of
from oracles import marginal_error, points, pot_plan, squared_cost

LOW = [torch.float16, torch.bfloat16]
REG = 0.1


def draw(dtype: torch.dtype, n: int = 40, m: int = 30) -> tuple[Tensor, Tensor]:
    return tuple(t.to(dtype) for t in points(0, (n, 2), (m, 2)))


WAYS = {
    "solve": lambda x, y, **o: of.solve(squared_cost(x, y), **o),
    "solve_sample": of.solve_sample,
    "solve_sample, stream": lambda x, y, **o: of.solve_sample(x, y, executor="stream", **o),
    "solve_sample, euclidean": lambda x, y, **o: of.solve_sample(x, y, metric="euclidean", **o),
    "solve_sample, cosine": lambda x, y, **o: of.solve_sample(x, y, metric="cosine", **o),
    "solve_sample, unbalanced": lambda x, y, **o: of.solve_sample(x, y, unbalanced=1.0, **o),
    "solve_streamed": of.solve_streamed,
    "solve_streamed, euclidean": lambda x, y, **o: of.solve_streamed(x, y, cost="euclidean", **o),
}


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("way", WAYS)
def test_the_result_is_that_of_the_same_numbers_in_float32(way: str, dtype: torch.dtype) -> None:
    """To the last digit: not one operation is in low precision. (Costs of a matrix are the caller's own.)"""
    x, y = draw(dtype)
    if way == "solve":
        M = squared_cost(x, y)
        low, single = of.solve(M, reg=REG, tol=1e-5), of.solve(M.float(), reg=REG, tol=1e-5)
    else:
        low, single = (WAYS[way](*(t.to(kind) for t in (x, y)), reg=REG, tol=1e-5) for kind in (dtype, torch.float32))
    assert low.converged
    assert low.value.dtype == low.value_linear.dtype == torch.float32
    assert low.potentials[0].dtype == torch.float64
    assert float(low.value) == float(single.value)
    assert float(low.value_linear) == float(single.value_linear)
    assert torch.equal(low.potentials[0], single.potentials[0])
    if isinstance(low.plan, Tensor):
        assert low.plan.dtype == torch.float32
        assert torch.equal(low.plan, single.plan)
    assert low.apply(y).dtype == torch.float32
    mapped = low.map(y)
    assert mapped.dtype == dtype
    torch.testing.assert_close(mapped, single.map(y.float()).to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("executor", ["dense", "stream"])
def test_the_error_is_that_of_the_plan_returned(executor: str, dtype: torch.dtype) -> None:
    """Against POT for the very numbers given, and their marginals in float64."""
    x, y = draw(dtype)
    for tol in (1e-3, 1e-6):
        found = of.solve_sample(x, y, reg=REG, tol=tol, executor=executor)
        P = found.plan if executor == "dense" else found.plan.dense()
        true = marginal_error(P, 1 / 40, 1 / 30)
        assert found.converged
        assert true < tol
        assert found.marginal_error == pytest.approx(true, abs=1e-12)
    expected = pot_plan(squared_cost(x.double(), y.double()), None, None, REG)
    torch.testing.assert_close(P.double(), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("executor", ["dense", "stream"])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_gradients_have_the_dtype_of_what_they_are_in(metric: str, executor: str, dtype: torch.dtype) -> None:
    grads = []
    for kind in (dtype, torch.float32):
        x, y = (t.to(kind).requires_grad_() for t in draw(dtype))
        found = of.solve_sample(x, y, reg=REG, executor=executor, metric=metric)
        (found.value + found.value_linear + found.map(y).float().square().mean()).backward()
        assert x.grad is not None
        assert y.grad is not None
        assert x.grad.dtype == y.grad.dtype == kind
        grads.append((x.grad.float(), y.grad.float()))
    for ours, theirs in zip(*grads, strict=True):
        loose = 4 * torch.finfo(dtype).eps * float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, rtol=0, atol=loose)


def test_numbers_at_the_ends_of_float16_neither_overflow_nor_vanish() -> None:
    """Squared distances of 10⁹ and of 10⁻⁷, both beyond float16; a value below −10⁵."""
    x, y = draw(torch.float16)
    for size, reg in ((60000.0, 1e8), (2e-4, 1e-9)):
        far, there = ((size * t.float()).half() for t in (x, y))
        for executor in ("dense", "stream"):
            found = of.solve_sample(far, there, reg=reg, tol=1e-5, executor=executor)
            truth = of.solve_sample(far.double(), there.double(), reg=reg, tol=1e-8)
            assert found.converged
            assert float(found.value) == pytest.approx(float(truth.value), rel=1e-5)
            assert bool(found.map(there).isfinite().all())


def test_batches_and_losses_take_it_too() -> None:
    x, y = draw(torch.bfloat16)
    low, single = (of.solve_batch([(x.to(kind), y.to(kind))], reg=REG)[0] for kind in (torch.bfloat16, torch.float32))
    assert low.plan.dtype == torch.float32
    torch.testing.assert_close(low.plan, single.plan, rtol=0, atol=1e-6)
    for loss in (lambda x, y: of.divergence(x, y, tol=1e-6), of.SamplesLoss()):
        moving = x.clone().requires_grad_()
        found = loss(moving, y)
        assert found.dtype == torch.float32
        assert float(found.detach()) == float(loss(x.float(), y.float()))
        found.backward()
        assert moving.grad is not None
        assert moving.grad.dtype == torch.bfloat16


def test_numpy_has_float16_too() -> None:
    x, y = (t.numpy() for t in draw(torch.float16))
    for executor in ("dense", "stream"):
        found = of.solve_sample(x, y, reg=REG, executor=executor)
        assert isinstance(found.value, float)
        assert found.map(y).dtype == np.float16
        assert found.potentials[0].dtype == np.float64
        assert found.value == of.solve_sample(x.astype(np.float32), y.astype(np.float32), reg=REG, executor=executor).value
    M = squared_cost(x, y)
    assert of.solve(M, reg=REG).plan.dtype == np.float32
    swapped = of.solve(M.astype(">f2"), reg=REG)
    np.testing.assert_array_equal(swapped.plan, of.solve(M, reg=REG).plan)


def test_weights_and_infinite_costs_in_low_precision() -> None:
    x, y = draw(torch.float16, 8, 4)
    a, b = torch.full((8,), 1 / 8, dtype=torch.float16), torch.tensor([0.5, 0.25, 0.25, 0], dtype=torch.bfloat16)
    found = of.solve_sample(x, y, a, b, reg=REG, tol=1e-5)
    assert found.converged
    assert float(found.plan[:, 3].abs().max()) == 0
    M = squared_cost(x, y)
    M[0, 0] = torch.inf
    assert float(of.solve(M, reg=REG, tol=1e-5).plan[0, 0]) == 0


HALF, OTHER = draw(torch.float16, 9, 7)
BAD: list[tuple[Any, str]] = [
    (
        lambda: of.solve_sample(HALF, OTHER.float()),
        "X_a and X_b must have one dtype and device, got torch.float16 on cpu and torch.float32 on cpu",
    ),
    (
        lambda: of.solve_streamed(HALF.float(), OTHER),
        "X_a and X_b must have one dtype and device, got torch.float32 on cpu and torch.float16",
    ),
    (
        lambda: of.solve_sample(HALF, OTHER.bfloat16()),
        "X_a and X_b must have one dtype and device, got torch.float16 on cpu and torch.bfloat16",
    ),
    (
        lambda: of.solve_sample(HALF.numpy(), OTHER.double()),
        "X_a and X_b must have one dtype and device, got float16 on cpu and torch.float64",
    ),
    (lambda: of.solve_streamed(HALF / 0, OTHER), "X_a must be finite, got inf at index"),
    (lambda: of.solve_sample(HALF, OTHER * torch.nan), "X_b must be finite, got nan at index"),
    (lambda: of.solve(squared_cost(HALF, OTHER) * torch.nan), "M must be finite, or inf for a forbidden pair, got nan"),
    (
        lambda: of.solve(HALF.to(torch.float8_e4m3fn)),
        "M must be float16, bfloat16, float32 or float64, or whole numbers, got dtype float8_e4m3fn",
    ),
    (
        lambda: of.solve_sample(HALF, OTHER, a=torch.full((9,), 1 / 9).half(), b=torch.full((7,), 1 / 7)),
        "a and b must have the",
    ),
    (lambda: of.solve_sample(HALF, OTHER, reg=1e-320), "reg must be above 1e-300, got 1e-320"),
    (
        lambda: of.solve_streamed(None, None, cost=of.Features.of_points(HALF, OTHER)),
        "cost must be Features in float32 or float64, got torch.float16",
    ),
    (lambda: of.solve(of.Features.of_points(HALF, OTHER)), "cost must be Features in float32 or float64, got torch.float16"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_one_clear_line(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
