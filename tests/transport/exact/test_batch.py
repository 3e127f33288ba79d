"""solve_batch(reg=0): every problem of a batch as scipy and POT solve it, with its proof, and broken ones named."""

from __future__ import annotations

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import otformer as of
from otformer.transport.ragged import exact_stacks as batch
from otformer.transport.ragged.exact_stacks import ON_MATRIX

KINDS = {
    "uniform": lambda rng, shape: rng.random(shape),
    "normal": lambda rng, shape: 1e6 * rng.standard_normal(shape),
    "ties": lambda rng, shape: rng.integers(-2, 3, shape).astype(float),
    "negative": lambda rng, shape: -(rng.random(shape) ** 4),
    "far from 0": lambda rng, shape: 1e9 + rng.random(shape),
    "constant": lambda rng, shape: np.full(shape, 0.1),
    "steep": lambda rng, shape: np.arange(1.0, shape[1] + 1)[:, None] * np.arange(1.0, shape[2] + 1) + 0 * rng.random(shape),
    "forbidden": lambda rng, shape: np.where(
        (rng.random(shape) < 0.6) & ~np.eye(shape[1], dtype=bool), np.inf, rng.random(shape)
    ),
}


def check(r, C):
    """A result against scipy's, and its certificate against all pairs."""
    n, finite = len(C), C[np.isfinite(C)]
    scale = np.ptp(finite) + abs(finite).max()
    rows, columns = linear_sum_assignment(C)
    assert r.value == pytest.approx(C[rows, columns].mean(), abs=1e-14 * scale)
    assert sorted(r.permutation.tolist()) == list(range(n))
    assert C[rows, r.permutation].mean() == pytest.approx(r.value, abs=1e-14 * scale)
    f, g = r.potentials
    assert (C - f[:, None] - g >= -1e-14 * scale).all()
    assert 0 <= r.gap <= 2.0**-46 * np.ptp(finite)
    assert r.bound == pytest.approx((f.sum() + g.sum()) / n, abs=1e-14 * scale)
    assert r.converged
    assert r.marginal_error == 0
    assert r.error == r.gap


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 31, 64, 130])
def test_equals_scipy(kind, n):
    C = KINDS[kind](np.random.default_rng(n), (40 if n < 100 else 4, n, n))
    results = of.solve_batch(C, reg=0)
    assert all(r.method == ON_MATRIX for r in results)
    for r, cost in zip(results, C, strict=True):
        check(r, cost)


def test_brute_force_ties_and_equal_rows():
    rng = np.random.default_rng(0)
    C = np.repeat(rng.integers(0, 3, (300, 3, 6)), 2, 1)
    for r, cost in zip(of.solve_batch(C, reg=0), C, strict=True):
        check(r, cost.astype(float))


@pytest.mark.parametrize("n", [1, 20, 64])
def test_stacked_points_a_list_and_one_by_one(n):
    rng = np.random.default_rng(1)
    x, y = rng.random((30, n, 3)), rng.standard_normal((30, n, 3))
    stacked, listed = of.solve_batch((x, y), reg=0), of.solve_batch(list(zip(x, y, strict=True)), reg=0)
    for k in range(30):
        check(stacked[k], cdist(x[k], y[k], "sqeuclidean"))
        assert stacked[k].value == listed[k].value == pytest.approx(of.solve_sample(x[k], y[k], reg=0).value, rel=1e-12)


def test_pieces_and_many_dimensions(monkeypatch):
    monkeypatch.setattr(batch, "PIECE", 1000)
    x, y = np.random.default_rng(2).random((2, 23, 7, 11))
    for k, r in enumerate(of.solve_batch((x, y), reg=0)):
        check(r, cdist(x[k], y[k], "sqeuclidean"))


def test_a_ragged_list():
    """Costs and points of all sizes, with and without weights; equal weights of another sum, and weights of 0."""
    rng = np.random.default_rng(3)
    problems, costs = [], []
    for k in range(60):
        n = int(rng.integers(1, 12))
        m = n if k % 3 else int(rng.integers(1, 12))
        x, y = rng.random((n, 2)), rng.random((m, 2))
        a, b = [(None, None), (np.full(n, 2.5 / n), np.full(m, 2.5 / m)), (rng.random(n) * (rng.random(n) < 0.7), None)][
            k % 4 % 3
        ]
        if a is not None and not a.any():
            a[0] = 1.0
        C = cdist(x, y, "sqeuclidean")
        problems.append((x, y, a, b) if k % 2 else (C, a, b))
        w_a = np.full(n, 1 / n) if a is None else a
        costs.append((C, w_a, np.full(m, w_a.sum() / m) if b is None else b))
    results = of.solve_batch(problems, reg=0)
    for r, (C, a, b) in zip(results, costs, strict=True):
        assert r.value == pytest.approx(ot.emd2(a, b, C) if 1 not in C.shape else a @ C @ b / b.sum(), rel=1e-9, abs=1e-14)
        assert r.converged
        np.testing.assert_allclose(r.marginal_a, a, atol=1e-15)
        np.testing.assert_allclose(r.marginal_b, b, atol=1e-15)
        assert r.mass == pytest.approx(a.sum())
    assert sum(r.method == ON_MATRIX for r in results) > 20


def test_weights_that_nearly_agree_have_the_error_they_have():
    C = np.random.default_rng(4).random((5, 5))
    (r,) = of.solve_batch([(C, np.full(5, 0.2), np.full(5, 0.2 * (1 + 1e-6)))], reg=0)
    assert r.method == ON_MATRIX
    assert r.marginal_error == pytest.approx(1e-6)
    assert r.marginal_error == pytest.approx(
        of.solve(C, np.full(5, 0.2), np.full(5, 0.2 * (1 + 1e-6)), reg=0).marginal_error
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, torch.float32, torch.float64])
def test_forms(dtype):
    C = np.random.default_rng(5).integers(0, 50, (9, 6, 6))
    given = torch.from_numpy(C).to(dtype) if isinstance(dtype, torch.dtype) else C.astype(dtype)
    for problems in (given, list(given)):
        for r, cost in zip(of.solve_batch(problems, reg=0), C, strict=True):
            alone = of.solve(given[0], reg=0)
            assert type(r.value) is type(alone.value)
            assert type(r.plan) is type(alone.plan)
            assert r.plan.dtype == alone.plan.dtype
            assert r.permutation.dtype == alone.permutation.dtype
            assert str(r.potentials[0].dtype).endswith("float64")
            assert float(r.value) == pytest.approx(cost[linear_sum_assignment(cost)].mean())
            np.testing.assert_allclose((np.asarray(r.dense()) * cost).sum(), float(r.value), rtol=1e-6)
            np.testing.assert_allclose(r.map(np.arange(6.0)), r.permutation)
            assert [np.asarray(t).tolist() for t in r.pairs[:2]] == [list(range(6)), r.permutation.tolist()]


def test_low_precision_empty_and_read_only():
    assert of.solve_batch([], reg=0) == []
    assert of.solve_batch(np.zeros((0, 3, 3)), reg=0) == []
    (empty,) = of.solve_batch([np.zeros((0, 0))], reg=0)
    assert empty.value == 0
    C = np.random.default_rng(6).random((4, 5, 5))
    C.flags.writeable = False
    for k, r in enumerate(of.solve_batch(C, reg=0)):
        check(r, C[k])
    for k, r in enumerate(of.solve_batch(C.transpose(0, 2, 1), reg=0.0)):
        check(r, C[k].T)
    half = of.solve_batch(torch.tensor(C).to(torch.bfloat16), reg=0)
    assert all(r.plan.dtype == torch.float32 for r in half)


def test_broken_problems_are_named_and_the_others_are_kept():
    C = np.random.default_rng(7).random((7, 3, 3))
    C[1, 0, 1], C[3, 2], C[4, :2, 1:], C[5, 0, 0] = np.nan, np.inf, np.inf, -np.inf
    for problems in (C, list(C), [(cost, np.ones(3)) for cost in C]):
        with pytest.raises(of.BrokenProblems, match=r"problem 1: M must be finite, .*, got nan .* \(and 3 more\)") as raised:
            of.solve_batch(problems, reg=0)
        errors = raised.value.errors
        assert list(errors) == [1, 3, 4, 5]
        assert "forbids every pair of row 2" in errors[3]
        assert "allow no plan" in errors[4]
        assert "-inf at index (0, 0)" in errors[5]
        for k in (0, 2, 6):
            assert raised.value.results[k].value * (1 if problems is not C and isinstance(problems[0], tuple) else 3) == (
                pytest.approx(C[k][linear_sum_assignment(C[k])].sum())
            )
    x = np.random.default_rng(8).random((3, 2))
    wrong = [(x, x, [-1.0, 1, 1], None), (x * np.nan, x), (x, np.ones(3), np.ones(2)), (1, 2, 3, 4, 5), (x, None), "M", x.T]
    with pytest.raises(of.BrokenProblems) as raised:
        of.solve_batch(wrong, reg=0)
    errors = raised.value.errors
    assert errors[0] == "a must not be negative, got -1"
    assert errors[1] == "X_a must be finite, got nan at index (0, 0)"
    assert errors[2] == "a and b must have the same sum, got 3 and 2"
    assert "a tuple of 5" in errors[3]
    assert list(errors) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match=r"one batch axis, got arrays of shapes \[\(2, 3, 2\), \(3, 3, 2\)\]"):
        of.solve_batch((np.zeros((2, 3, 2)), np.zeros((3, 3, 2))), reg=0)


def counted(monkeypatch):
    """The shapes of problems that are solved one by one."""
    shapes, solve_exact = [], batch.solve_exact

    def solve(problem, tol):
        shapes.append(problem.shape)
        return solve_exact(problem, tol)

    monkeypatch.setattr(batch, "solve_exact", solve)
    return shapes


def test_what_is_not_proved_is_solved_alone(monkeypatch):
    """A matching that is wrong has a gap, and does not come out."""
    solve = batch.assign_stack

    def wrong(C, to, f, g, low, spread, total, gap, most):
        solve(C, to, f, g, low, spread, total, gap, most)
        gap[1] = 1e-3

    monkeypatch.setattr(batch, "assign_stack", wrong)
    alone = counted(monkeypatch)
    C = np.random.default_rng(9).random((3, 8, 8))
    results = of.solve_batch(C, reg=0)
    assert alone == [(8, 8)]
    for r, cost in zip(results, C, strict=True):
        check(r, cost)


def test_tensors_that_learn():
    M = torch.rand(3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    results = of.solve_batch(M, reg=0)
    (slope,) = torch.autograd.grad(sum(r.value for r in results), M)
    torch.testing.assert_close(slope, torch.stack([r.plan.to_dense() for r in results]))
    with torch.no_grad():
        assert all(r.method == ON_MATRIX for r in of.solve_batch(M, reg=0))


def test_large_problems_go_through_solve(monkeypatch):
    monkeypatch.setattr(batch, "LARGEST", 16)
    rng = np.random.default_rng(10)
    alone = counted(monkeypatch)
    of.solve_batch([rng.random((20, 20)), rng.random((16, 16))], reg=0)
    of.solve_batch(rng.random((2, 17, 17)), reg=0)
    assert alone == [(20, 20), (17, 17), (17, 17)]


def test_threads():
    from concurrent.futures import ThreadPoolExecutor

    C = np.random.default_rng(11).random((50, 20, 20))
    with ThreadPoolExecutor(3) as pool:
        for results in pool.map(lambda _: of.solve_batch(C, reg=0), range(6)):
            for r, cost in zip(results, C, strict=True):
                check(r, cost)


@pytest.mark.parametrize(
    ("given", "words"), [(dict(reg=False), "reg must be"), (dict(tol=-1.0), "tol must be"), (dict(device="tpu"), "device")]
)
def test_bad_input(given, words):
    with pytest.raises(ValueError, match=words):
        of.solve_batch([np.eye(2)], **dict(dict(reg=0), **given))
