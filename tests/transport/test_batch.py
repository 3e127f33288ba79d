"""of.solve_batch: every problem as if alone, each with its own convergence, broken ones named."""

import math

import numpy as np
import ot
import pytest
import torch

from oracles import marginal_error, pot_plan, squared_cost
from otformer.lab.benchmarks.problems import FAMILIES, make, sentences
from otformer.transport.ragged.batch import BrokenProblems, solve_batch
from otformer.transport.solve import solve, solve_sample
from otformer.transport.solvers.stacked import METHOD, annealing_steps, solve_stacked


def ragged(count, seed=0, most=30):
    rng = np.random.default_rng(seed)
    return [rng.random((rng.integers(1, most), rng.integers(1, most))) for _ in range(count)]


@pytest.mark.slow
def test_every_result_equals_POTs():
    costs = ragged(60)
    for C, result in zip(costs, solve_batch(costs, reg=0.05, tol=1e-9), strict=True):
        a, b = np.full(C.shape[0], 1 / C.shape[0]), np.full(C.shape[1], 1 / C.shape[1])
        expected = pot_plan(C, a, b, 0.05)
        assert np.abs(result.plan - expected).max() < 1e-8
        assert result.converged
        error = marginal_error(result.plan, a, b)
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
    x = np.random.default_rng(9).random((3, 2))
    costs = [np.ones((2, 2)), np.array([[1.0, np.nan]]), np.ones((3, 2)), (1, 2, 3, 4, 5), np.array([[1.0, -np.inf]])]
    costs += [(x, x, [-1.0, 1, 1], None), (x * np.nan, x), (x, np.ones(3), np.ones(2))]
    costs += [torch.ones(2, 2, dtype=torch.complex64), [[1], [2, 3]]]
    with pytest.raises(BrokenProblems, match=r"problem 1: M must be finite, .*, got nan .* \(and 7 more\)") as raised:
        solve_batch(costs)
    assert isinstance(raised.value, ValueError)
    messages = {
        1: "M must be finite, or inf for a forbidden pair, got nan at index (0, 1)",
        3: "a problem is M, (M, a, b), (X_a, X_b) or (X_a, X_b, a, b), got a tuple of 5",
        4: "M must be finite, or inf for a forbidden pair, got -inf at index (0, 1)",
        5: "a must not be negative, got -1",
        6: "X_a must be finite, got nan at index (0, 0)",
        7: "a and b must have the same sum, got 3 and 2",
        8: "M must be float16, bfloat16, float32 or float64, or whole numbers, got dtype complex64",
        9: "M must be an array of numbers, got rows of different length, 1 and 2",
    }
    assert {k: raised.value.errors[k] for k in messages} == messages
    assert len(raised.value.errors) == len(messages)
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
        solve_batch([np.ones((2, 2))], reg=-1.0)
    with pytest.raises(BrokenProblems, match="reg must be so large that cost/reg is finite"):
        solve_batch([np.array([[0.0, 1e300]])], reg=1e-20)


def true_error(C, a, b, u, v, reg):
    """In extended precision, from the potentials."""
    P = np.exp((np.longdouble(1) * u[:, None] + v[None, :] - C) / np.longdouble(reg) - 1)
    return float(np.abs(P.sum(1) - a).sum() + np.abs(P.sum(0) - b).sum())


@pytest.mark.parametrize("reg", [10, 0.05, 0.01, 1e-3])
def test_every_family_to_the_computed_error_in_stacks(reg):
    rng = np.random.default_rng(4)
    problems = sentences(60) + [make(family, int(rng.integers(3, 50)), k) for family in FAMILIES for k in range(8)]
    results = solve_batch([(p.C, p.a, p.b) for p in problems], reg=reg, tol=1e-7)
    assert all(r.converged for r in results)
    assert max(true_error(p.C, p.a, p.b, *r.potentials, reg) for p, r in zip(problems, results, strict=True)) < 1e-7
    stacked = [r for r in results if r.method == METHOD]
    assert len(stacked) > 0.95 * len(results)  # `solve` has to help out rarely
    assert max(r.depth for r in stacked) < 400


def test_stages_begin_near_a_tenth_of_the_range():
    assert annealing_steps(np.array([0.0, 5.0, 49.0]), 1.0).tolist() == [0, 0, 0]
    ratios = np.array([51, 1e3, 1e6])
    first = 3.0 ** annealing_steps(ratios, 1.0)
    assert ((first >= ratios / 10) & (first < 3 * ratios / 10)).all()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 1), (1, 1)])
def test_tensors_in_a_stack_give_what_arrays_give(shape):
    """What runs on CUDA tensors, on those of the CPU."""
    rng = np.random.default_rng(5)
    C, a, b = rng.random((4, *shape)), np.full((4, shape[0]), 1 / shape[0]), rng.dirichlet(np.ones(shape[1]), 4)
    for reg in (0.1, 0.005):
        falls, tol = int(annealing_steps(C.max(), reg)), np.full(4, 1e-10)
        arrays = solve_stacked(C, a, b, reg, tol, 1000, falls)
        tensors = solve_stacked(*map(torch.from_numpy, (C, a, b)), reg, torch.from_numpy(tol), 1000, falls)
        assert arrays.done.all()
        for array, t in zip(arrays, tensors, strict=True):
            np.testing.assert_allclose(array, t.numpy(), atol=1e-9)
        for k in range(4):
            assert true_error(C[k], a[k], b[k], arrays.u[k], arrays.v[k], reg) < 1e-10


@pytest.fixture
def on_tensors(monkeypatch):
    """What runs on CUDA tensors from reading to results, on those of the CPU."""
    for module in ("padding", "batch"):
        move = f"otformer.transport.ragged.{module}.to_device"
        monkeypatch.setattr(move, lambda array, where: torch.as_tensor(array, device=where))


@pytest.mark.parametrize("form", [np.float32, np.float64, torch.float32, torch.float64])
def test_a_bucket_of_tensors_gives_what_POT_gives(on_tensors, form):
    def given(*parts):
        as_form = (lambda t: t.astype(form)) if isinstance(form, type) else (lambda t: torch.from_numpy(t).to(form))
        return tuple(None if part is None else as_form(part) for part in parts)

    rng = np.random.default_rng(10)
    x, y = [rng.random((n, 3)) for n in (2, 9, 5, 1)], [rng.random((m, 3)) for m in (7, 3, 5, 4)]
    C = [squared_cost(p, q) for p, q in zip(x, y, strict=True)]
    a, b = ([rng.dirichlet(np.ones(len(p))) for p in side] for side in (x, y))
    a[1][2:5], a[1][5] = 0, 1 - a[1][:2].sum() - a[1][6:].sum()
    kinds = (C, [None] * 4, [None] * 4), (x, y), (C, a, b), (x, y, a, b)
    problems = [given(*problem) for kind in kinds for problem in zip(*kind, strict=True)]
    tol = 1e-5 if "32" in str(form) else 1e-9
    with pytest.raises(BrokenProblems, match="problem 17: M must be finite, or inf for a forbidden pair, got nan") as raised:
        solve_batch([*problems, given(1e3 * C[0], None, b[0]), given(C[1] * np.nan)[0]], reg=0.05, tol=tol)
    *results, stretched, broken = raised.value.results
    for k, result in enumerate(results):
        M, (n, m) = C[k % 4], C[k % 4].shape
        weights = (a[k % 4], b[k % 4]) if k >= 8 else (np.full(n, 1 / n), np.full(m, 1 / m))
        expected, there = pot_plan(M, *weights, 0.05), weights[0] > 0
        assert type(result.plan) is type(problems[k][0])
        assert result.plan.dtype == problems[k][0].dtype
        assert str(result.potentials[0].dtype).endswith("float64")
        assert result.converged
        assert result.method == METHOD
        np.testing.assert_allclose(result.plan, expected, atol=10 * tol)
        assert float(result.value_linear) == pytest.approx((expected * M).sum(), abs=10 * tol)
        assert np.isneginf(np.asarray(result.potentials[0])).sum() == (~there).sum()
    assert float(stretched.value_linear) == pytest.approx(ot.emd2([0.5, 0.5], b[0], 1e3 * C[0]), rel=1e-4)
    assert broken is None


def test_results_are_their_own_and_hold_no_padding():
    costs = ragged(50, seed=11)
    for problems in (costs, [torch.from_numpy(C.T).T for C in costs]):
        results = solve_batch(problems, reg=0.1)
        kept = [np.asarray(r.plan).copy() for r in results]
        results[0].plan[:] = 7
        for C, r, plan in list(zip(costs, results, kept, strict=True))[1:]:
            assert r.plan.shape == C.shape == (len(r.potentials[0]), len(r.potentials[1]))
            np.testing.assert_array_equal(r.plan, plan)
            np.testing.assert_allclose(plan, solve(C, reg=0.1).plan, atol=1e-6)
        if problems is not costs:
            stores = {r.plan.untyped_storage().data_ptr(): r.plan.untyped_storage().nbytes() for r in results}
            assert sum(stores.values()) == 8 * sum(C.size for C in costs)


def test_large_problems_and_tensors_that_learn_go_through_solve():
    x = np.random.default_rng(6).random((300, 2))
    theta = torch.rand(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    large, learning, small = solve_batch([(x, x), theta, x @ x[:9].T], reg=0.05)
    assert large.method == solve_sample(x, x, reg=0.05).method != METHOD == small.method
    np.testing.assert_allclose(large.plan, solve_sample(x, x, reg=0.05).plan, atol=1e-6)
    (gradient,) = torch.autograd.grad(learning.value, theta)
    torch.testing.assert_close(gradient, learning.plan.detach())
    with torch.no_grad():
        costs, points = solve_batch([theta, (theta, theta[:2])], reg=0.05)
    assert costs.method == points.method == METHOD
    assert not costs.plan.requires_grad
    torch.testing.assert_close(costs.plan, learning.plan.detach(), atol=2e-6, rtol=0)
    torch.testing.assert_close(points.plan, solve_sample(theta, theta[:2], reg=0.05).plan.detach(), atol=2e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_a_stack_leaves_unfinished_is_finished_by_solve(monkeypatch, dtype):
    monkeypatch.setattr("otformer.transport.solvers.stacked.NEWTON_STEPS", 0)
    C = torch.rand(9, 9, dtype=dtype, generator=torch.Generator().manual_seed(2))
    easy, hard = solve_batch([0 * C, C], reg=0.02, tol=1e-5)
    assert easy.method == METHOD != hard.method
    assert hard.converged
    assert hard.plan.dtype == hard.value.dtype == dtype
    torch.testing.assert_close(hard.plan, solve(C, reg=0.02, tol=1e-7).plan, atol=1e-5, rtol=0)


def test_every_kind_of_number_in_its_own_bucket():
    C = np.random.default_rng(7).random((6, 4))
    kinds = [C, torch.from_numpy(C), torch.from_numpy(C).float(), C.astype(np.float32), C.tolist(), C.astype(">f8"), C[::-1]]
    kinds += [(C, None, [0.25] * 4), (C, torch.full((6,), 1 / 6).double(), None), (100 * C).astype(int)]
    results = solve_batch(kinds, reg=0.1, tol=1e-5)
    expected = solve(C, reg=0.1, tol=1e-9).plan
    for given, result in zip(kinds[:9], results, strict=False):
        first = given[0] if isinstance(given, tuple) else given
        assert isinstance(result.plan, torch.Tensor) == isinstance(first, torch.Tensor)
        assert isinstance(result.value, torch.Tensor if isinstance(first, torch.Tensor) else float)
        assert str(result.plan.dtype).endswith("32" if "32" in str(getattr(first, "dtype", "")) else "64")
        plan = result.plan[::-1] if given is kinds[6] else result.plan
        np.testing.assert_allclose(plan, expected, atol=1e-5)
        assert result.value == pytest.approx(float(solve(C, reg=0.1).value), abs=1e-5)
    assert all(r.converged for r in results)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda:99", r"device must be cpu or an available CUDA device, got cuda:99: torch finds \d"),
        ("tpu", "device must be cpu or cuda, got 'tpu'"),
        ("meta", "device must be cpu or cuda, got 'meta'"),
        (3.5, "device must be cpu or cuda, got 3.5"),
    ],
)
def test_a_device_that_is_not_there(device, message):
    with pytest.raises(ValueError, match=message):
        solve_batch([np.ones((2, 2))], device=device)


def test_asking_for_the_device_it_would_use_anyway():
    C = np.random.default_rng(8).random((5, 3))
    (there,), (here,) = solve_batch([C], device="cpu"), solve_batch([C])
    assert isinstance(there.plan, np.ndarray)
    np.testing.assert_array_equal(there.plan, here.plan)
    assert math.isclose(there.value, here.value)
