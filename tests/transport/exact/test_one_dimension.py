"""Transport on a line: values, plans and potentials against POT, scipy, brute force over all pairs, and differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import wasserstein_distance

from oracles import slope
from otformer.transport.exact.one_dimension import plan_1d, wasserstein_1d

SIZES = [(5, 7), (40, 30), (30, 30), (1, 6), (6, 1), (1, 1), (2, 2)]


def problem(n: int, m: int, seed: int = 0, ties: bool = False, zeros: bool = False) -> tuple[np.ndarray, ...]:
    """Numbers [n], [m] and weights of sum 1; some numbers equal, some weights 0, the first and the last among them."""
    rng = np.random.default_rng(seed)
    x, y, a, b = rng.normal(size=n), rng.normal(size=m) + 0.3, rng.random(n) + 0.01, rng.random(m) + 0.01
    if ties:
        x, y = np.round(2 * x) / 2, np.round(2 * y) / 2
    for values, w in ((x, a), (y, b)):
        if zeros and len(w) > 4:
            w[[1, np.argmin(values), np.argmax(values)]] = 0
    return x, y, a / a.sum(), b / b.sum()


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
def test_plan_and_potentials_prove_each_other(n: int, m: int, p: float, ties: bool, zeros: bool) -> None:
    x, y, a, b = problem(n, m, 1, ties, zeros)
    C = np.abs(x[:, None] - y) ** p
    plan, scale = plan_1d(x, y, a, b, p), C.max()
    P = np.zeros((n, m))
    np.add.at(P, (plan.rows, plan.columns), plan.masses)
    assert len(plan.rows) < n + m
    assert (plan.masses > 0).all()
    np.testing.assert_allclose(P.sum(1), a, atol=1e-15)
    np.testing.assert_allclose(P.sum(0), b, atol=1e-15)
    assert not P[a == 0].any()
    assert not P[:, b == 0].any()
    rest = C - plan.f[:, None] - plan.g
    assert rest.min() >= -1e-14 * scale
    assert np.abs(rest[plan.rows, plan.columns]).max() <= 1e-14 * scale
    assert a @ plan.f + b @ plan.g == pytest.approx((P * C).sum(), abs=1e-13 * scale)
    assert wasserstein_1d(x, y, a, b, p) == pytest.approx(ot.emd2(a, b, C), abs=1e-13 * scale)


@pytest.mark.parametrize("p", [1, 2])
def test_equal_weights_are_an_assignment(p: float) -> None:
    x, y, *_ = problem(50, 50)
    C = np.abs(x[:, None] - y) ** p
    plan = plan_1d(x, y, p=p)
    rows, columns = linear_sum_assignment(C)
    assert len(plan.rows) == 50
    assert (plan.masses == 1 / 50).all()
    assert C[plan.rows, plan.columns].sum() == pytest.approx(C[rows, columns].sum(), rel=1e-13)
    if p > 1:  # where the optimum is unique
        np.testing.assert_array_equal(plan.columns[np.argsort(plan.rows)], columns)


def test_scipy() -> None:
    x, y, a, b = problem(40, 30, zeros=True)
    assert wasserstein_1d(x, y, a, b) == pytest.approx(wasserstein_distance(x, y, a, b), rel=1e-13)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("tensors", [False, True])
def test_columns_as_pot(p: int, tensors: bool) -> None:
    rng = np.random.default_rng(2)
    given: list[Any] = [rng.normal(size=(9, 4)), rng.normal(size=(7, 4)), rng.random((9, 4)), rng.random((7, 4))]
    given[2:] = (w / w.sum(0) for w in given[2:])
    given = [torch.from_numpy(t) for t in given] if tensors else given
    for weights in ((), tuple(given[2:]), (given[2][:, 0], given[3][:, 1])):
        ours, theirs = wasserstein_1d(*given[:2], *weights, p=p), ot.wasserstein_1d(*given[:2], *weights, p=p)
        assert type(ours) is type(theirs)
        assert ours.shape == (4,)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    one, *others = (t[:, 0] for t in given)
    assert wasserstein_1d(one, *others, p=p) == pytest.approx(float(ot.wasserstein_1d(one, *others, p=p)), rel=1e-12)
    deep = wasserstein_1d(given[0].reshape(9, 2, 2), given[1].reshape(7, 2, 2), p=p)
    np.testing.assert_allclose(deep.reshape(4), wasserstein_1d(*given[:2], p=p))


def test_sorted_values_need_no_sorting() -> None:
    x, y, a, b = problem(8, 5)
    x, y = np.sort(x), np.sort(y)
    assert wasserstein_1d(x, y, a, b, 2, require_sort=False) == wasserstein_1d(x, y, a, b, 2)


@pytest.mark.parametrize("p", [1, 1.5, 2])
def test_gradients_are_differences(p: float) -> None:
    given = [torch.from_numpy(t).requires_grad_() for t in problem(6, 5, 3)]
    wasserstein_1d(*given, p=p).backward()
    for k, t in enumerate(given):
        fixed = [s.detach() for s in given]
        direction = torch.randn(t.shape, generator=torch.Generator().manual_seed(k), dtype=t.dtype)

        def moved(values: torch.Tensor, k: int = k, fixed: list[torch.Tensor] = fixed) -> torch.Tensor:
            return wasserstein_1d(*fixed[:k], values, *fixed[k + 1 :], p=p)

        assert t.grad is not None
        expected = slope(moved, t.detach(), direction, 1e-6)
        assert float((t.grad * direction).sum()) == pytest.approx(expected, abs=1e-8)


def test_second_derivatives() -> None:
    x, y, a, b = (torch.from_numpy(t) for t in problem(6, 5, 3))
    assert torch.autograd.gradgradcheck(lambda x, y: wasserstein_1d(x, y, a, b, 2), (x.requires_grad_(), y.requires_grad_()))


def test_gradients_in_weights_are_potentials_even_where_quantiles_meet() -> None:
    """Uniform weights on both sides: all quantiles meet, and the value has many derivatives there, all of them feasible."""
    x, y, *_ = (torch.from_numpy(t) for t in problem(12, 12))
    a, b = (torch.full((12,), 1 / 12, dtype=torch.float64, requires_grad=True) for _ in range(2))
    value = wasserstein_1d(x, y, a, b, 2)
    value.backward()
    assert a.grad is not None
    assert b.grad is not None
    rest = (x[:, None] - y) ** 2 - value.detach() - (a.grad[:, None] - (a.detach() @ a.grad) + b.grad - b.detach() @ b.grad)
    assert float(rest.min()) > -1e-14


def test_masses_precision_and_forms() -> None:
    x, y, a, b = problem(9, 7)
    expected = wasserstein_1d(x, y, a, b)
    assert wasserstein_1d(x, y, 5 * a, 5 * b) == pytest.approx(5 * expected, rel=1e-13)
    assert wasserstein_1d(x, y, 5 * a) == pytest.approx(5 * wasserstein_1d(x, y, a), rel=1e-13)
    single = wasserstein_1d(*(torch.from_numpy(t).float() for t in (x, y, a, b)))
    assert single.dtype == torch.float32
    assert float(single) == pytest.approx(expected, rel=1e-6)
    assert wasserstein_1d(x.tolist(), y.tolist(), a.tolist(), b.tolist()) == expected
    assert wasserstein_1d(x + 1e8, y + 1e8, a, b) == pytest.approx(expected, rel=1e-6)
    plan = plan_1d(torch.from_numpy(x).requires_grad_(), torch.from_numpy(y))
    assert all(isinstance(t, torch.Tensor) and not t.requires_grad for t in plan)


def test_a_long_list_has_its_marginals() -> None:
    x, y, a, b = problem(100_000, 80_000)
    plan = plan_1d(x, y, a, b, 2)
    assert np.abs(np.bincount(plan.rows, plan.masses, len(x)) - a).sum() < 1e-13
    assert np.abs(np.bincount(plan.columns, plan.masses, len(y)) - b).sum() < 1e-13
    i, j = np.random.default_rng(0).integers(0, (len(x), len(y)), (500_000, 2)).T
    assert ((x[i] - y[j]) ** 2 - plan.f[i] - plan.g[j]).min() > -1e-13
    assert a @ plan.f + b @ plan.g == pytest.approx(ot.emd2_1d(x, y, a, b), rel=1e-9)


BAD: list[tuple[dict[str, Any], str]] = [
    (dict(p=0.5), "p must be at least 1, got 0.5"),
    (dict(p=float("nan")), "p must be a positive, finite number, got nan"),
    (dict(u_values=[]), r"u_values must have shape \(n, ...\) with n ≥ 1, got \(0,\)"),
    (dict(u_values=[0.0, float("nan")]), "u_values must be finite, got nan at index 1"),
    (
        dict(v_values=[[1.0], [2.0]]),
        r"u_values and v_values must agree in columns and device, got \(2,\)",
    ),
    (dict(u_weights=[1.0]), r"u_weights must have shape \(2,\), got \(1,\)"),
    (dict(u_weights=[[1.0, 1.0]]), r"u_weights must have shape \(2,\), got \(1, 2\)"),
    (dict(u_weights=[-1.0, 2.0]), "u_weights must not be negative, got -1"),
    (dict(u_weights=[0.0, 0.0]), "u_weights must have a positive sum, got all zeros"),
    (dict(u_weights=[0.5, 0.5], v_weights=[1.0, 1.0]), "u_weights and v_weights must have the same sum, got 1 and 2"),
    (
        dict(u_values=[1.0, 0.0], require_sort=False),
        "u_values must be sorted where require_sort is False",
    ),
    (dict(u_values=[0.0, 1e200], p=2), r"p is too large for these values: they are up to 1e\+200 apart, to the power 2"),
    (dict(u_values="abc"), "u_values must be an array of numbers, got 'abc'"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_bad_input(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        wasserstein_1d(**({"u_values": [0.0, 1.0], "v_values": [0.0, 2.0]} | wrong))


def test_a_wrong_column_is_named() -> None:
    with pytest.raises(ValueError, match=r"^problem 1: u_weights and v_weights must have the same sum, got 1 and 2$"):
        wasserstein_1d(np.zeros((2, 2)), np.zeros((1, 2)), [[0.5, 0.5], [0.5, 0.5]], [[1.0, 2.0]])


def test_a_plan_is_for_one_column() -> None:
    with pytest.raises(ValueError, match=r"^x must have shape \(n,\), got \(2, 1\)$"):
        plan_1d([[0.0], [1.0]], [0.0])
