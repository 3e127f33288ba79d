"""of.solve and of.solve_sample against POT, at the edges of what floats can hold, and on bad input."""

import math
import warnings

import numpy as np
import ot
import pytest
import torch

import otformer as of
from oracles import marginal_error, problem


@pytest.mark.parametrize(("n", "m", "reg"), [(5, 5, 0.1), (20, 30, 0.05), (60, 40, 0.01), (1, 7, 0.1), (3, 3, 10.0)])
def test_plan_value_and_potentials_equal_POT(n, m, reg):
    x, y, a, b = problem(n, n, m)
    C = ot.dist(x, y)
    ours = of.solve_sample(x, y, a, b, reg=reg, tol=1e-11)
    theirs = ot.solve(C, a, b, reg=reg, reg_type="entropy", max_iter=200_000, tol=1e-13)
    assert ours.converged
    assert np.abs(ours.plan - theirs.plan).max() < 1e-10
    assert ours.value == pytest.approx(theirs.value, abs=1e-9)
    assert ours.value_linear == pytest.approx(theirs.value_linear, abs=1e-9)
    u, v = ours.potentials
    np.testing.assert_allclose(np.exp((u[:, None] + v - C) / reg - 1), ours.plan, atol=1e-12)
    error = marginal_error(ours.plan, a, b)
    assert ours.marginal_error == pytest.approx(error, abs=1e-14)


def test_small_lambda_reaches_the_exact_cost():
    x, y, _, _ = problem(1, 50, 50)
    C = ot.dist(x, y)
    result = of.solve(C, reg=1e-4, tol=1e-8)
    assert result.converged
    assert result.value_linear == pytest.approx(ot.emd2(np.full(50, 0.02), np.full(50, 0.02), C), abs=1e-4)


@pytest.mark.parametrize("schedule", ["gradient", "alternating", "relaxed", "annealed"])
def test_fixed_networks_reach_the_same_plan(schedule):
    x, y, a, b = problem(2, 12, 9)
    fixed = of.solve_sample(x, y, a, b, reg=0.1, tol=1e-10, schedule=schedule)
    assert fixed.converged
    assert np.abs(fixed.plan - of.solve_sample(x, y, a, b, reg=0.1, tol=1e-12).plan).max() < 1e-9


def test_not_converged_is_said_and_is_true():
    x, y, a, b = problem(3, 30, 30)
    with pytest.warns(RuntimeWarning, match=r"not converged: marginal error [\d.e-]+ after 8 layers, tol is 1e-06"):
        result = of.solve_sample(x, y, a, b, reg=0.001, max_depth=8)
    assert not result.converged
    assert result.depth == 8
    error = marginal_error(result.plan, a, b)
    assert result.marginal_error == pytest.approx(error)
    assert error > 1e-6


@pytest.mark.parametrize("reg", [1e-6, 1e-4, 1e-2, 1.0, 1e3])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("kind", ["random", "duplicates", "equal", "one"])
def test_never_nan_and_converged_only_if_true(reg, scale, kind):
    rng = np.random.default_rng(4)
    C = {
        "random": rng.random((6, 8)),
        "duplicates": np.repeat(rng.random((3, 8)), 2, axis=0),
        "equal": np.ones((6, 8)),
        "one": np.ones((1, 1)),
    }[kind] * scale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = of.solve(C, reg=reg, max_depth=600)
    assert np.isfinite(result.plan).all()
    assert math.isfinite(result.value)
    error = marginal_error(result.plan, 1 / C.shape[0], 1 / C.shape[1])
    assert result.converged == (result.marginal_error < 1e-6)
    assert error == pytest.approx(result.marginal_error, abs=1e-12)
    if result.converged:
        exact = ot.emd2(np.full(C.shape[0], 1 / C.shape[0]), np.full(C.shape[1], 1 / C.shape[1]), C)
        assert exact - 1e-6 * scale <= result.value_linear <= exact + reg * math.log(C.size + 1) + 1e-6 * scale


@pytest.mark.parametrize("schedule", ["paper", "gradient", "annealed"])
@pytest.mark.parametrize("reg", [1e-6, 1e-2, 1e3])
def test_fixed_networks_never_give_nan(schedule, reg):
    C = np.random.default_rng(5).random((4, 5)) * 1e3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = of.solve(C, reg=reg, schedule=schedule, max_depth=50)
    assert np.isfinite(result.plan).all()
    assert math.isfinite(result.value)


@pytest.mark.parametrize("reg", [1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("shape", [(5, 4), (10, 8), (30, 17), (20, 20)])
def test_small_lambda_converges_to_the_exact_cost(shape, reg):
    for seed in range(3):
        C = np.random.default_rng(seed).random(shape)
        result = of.solve(C, reg=reg)
        assert result.converged
        exact = ot.emd2(np.full(shape[0], 1 / shape[0]), np.full(shape[1], 1 / shape[1]), C)
        assert exact - 1e-6 <= result.value_linear <= exact + reg * math.log(C.size) + 1e-6


def test_the_error_is_that_from_the_weights_given():
    C = np.random.default_rng(0).random((5, 4))
    a, b = np.full(5, 0.2), np.full(4, 0.25) * 1.000009
    with pytest.warns(RuntimeWarning, match="not converged"):
        result = of.solve(C, a, b)
    error = marginal_error(result.plan, a, b)
    assert result.marginal_error == pytest.approx(error, rel=1e-6)
    assert not result.converged


def test_little_mass_is_no_excuse():
    C = 10 * np.random.default_rng(0).random((5, 4))
    a, b = np.full(5, 0.2), np.full(4, 0.25)
    small = of.solve(C, a * 1e-7, b * 1e-7)
    assert small.converged
    np.testing.assert_allclose(small.plan * 1e7, of.solve(C, a, b).plan, atol=1e-5)
    with pytest.raises(ValueError, match="a and b must have finite sums"):
        of.solve(C, np.full(5, 1e308), np.full(4, 1e308))


def test_float32_reaches_what_float32_can_hold():
    for seed in range(5):
        C = torch.rand(50, 40, generator=torch.Generator().manual_seed(seed))
        result = of.solve(C, reg=0.01, tol=1e-6)
        assert result.converged
        assert marginal_error(result.plan, 1 / 50, 1 / 40) < 2e-6


def test_zero_weights_carry_no_mass():
    C = np.random.default_rng(6).random((4, 3))
    result = of.solve(C, [0.5, 0.0, 0.25, 0.25], [0.0, 0.5, 0.5], reg=0.1, tol=1e-12)
    inner = of.solve(C[[0, 2, 3]][:, 1:], [0.5, 0.25, 0.25], [0.5, 0.5], reg=0.1, tol=1e-12)
    np.testing.assert_allclose(result.plan[[0, 2, 3]][:, 1:], inner.plan, atol=1e-12)
    assert result.plan[1].sum() == 0
    assert result.plan[:, 0].sum() == 0
    assert np.isneginf(result.potentials[0][1])
    assert result.value == pytest.approx(inner.value)


def test_no_points_at_all():
    result = of.solve_sample(np.zeros((0, 2)), np.zeros((0, 2)))
    assert result.plan.shape == (0, 0)
    assert result.converged
    assert result.value == 0


def test_numpy_in_numpy_out_tensors_in_tensors_out_and_dtype_stays():
    x, y, _, _ = problem(7, 4, 4)
    assert isinstance(of.solve_sample(x, y).plan, np.ndarray)
    result = of.solve_sample(torch.tensor(x).float(), torch.tensor(y).float(), tol=1e-4)
    assert result.plan.dtype == torch.float32
    assert result.potentials[0].dtype == torch.float64


def test_a_large_constant_in_the_cost_changes_nothing_but_the_value():
    C = np.random.default_rng(9).random((5, 5))
    here, there = of.solve(C, reg=0.01, tol=1e-10), of.solve(C + 1e6, reg=0.01, tol=1e-10)
    np.testing.assert_allclose(there.plan, here.plan, atol=1e-7)  # 1e6 + C keeps ten digits of C
    assert there.value == pytest.approx(1e6 + here.value, rel=1e-12)


def test_arrays_of_any_layout():
    C = np.random.default_rng(10).random((4, 5))
    expected = of.solve(C).plan
    locked = C.copy()
    locked.setflags(write=False)
    for same in (C[::-1][::-1], np.asfortranarray(C), C.astype(">f8"), locked, C.tolist()):
        np.testing.assert_allclose(of.solve(same).plan, expected, rtol=1e-12)
    np.testing.assert_allclose(of.solve(C[::-1]).plan, expected[::-1], atol=1e-9)


def test_mass_other_than_one():
    x, y, a, b = problem(8, 6, 6)
    one, five = of.solve_sample(x, y, a, b, tol=1e-12), of.solve_sample(x, y, 5 * a, 5 * b, tol=1e-11)
    np.testing.assert_allclose(five.plan, 5 * one.plan, atol=1e-10)


M = np.ones((2, 3))
BAD = [
    (dict(M=np.ones(3)), r"M must have shape \(n, m\), got \(3,\)"),
    (dict(M=np.array([["a", "b"]])), "M must be an array of numbers"),
    (dict(M=M.astype(complex)), "M must be float16, bfloat16, float32 or float64, or whole numbers, got dtype complex128"),
    (dict(M=M > 0), "M must be float16, bfloat16, float32 or float64, or whole numbers, got dtype bool"),
    (dict(M=np.array([[1.0, np.nan]])), r"M must be finite, or inf for a forbidden pair, got nan at index \(0, 1\)"),
    (dict(M=np.array([[1.0, np.inf]])), "M or mask forbids every pair of column 1, which has mass"),
    (dict(M=np.array([[1.0, -np.inf]])), r"M must be finite, or inf for a forbidden pair, got -inf at index \(0, 1\)"),
    (dict(M=M, mask=np.ones((2, 2), bool)), r"mask must be boolean of shape \(2, 3\), .*, got bool of shape \(2, 2\)"),
    (dict(M=M, solver="fast"), r"solver must be a value such as Newton\(\), .*, got 'fast'"),
    (dict(M=M, solver=of.Newton), "solver must be a value such as .*, got the class Newton"),
    (dict(M=M[None]), r"M must have shape \(n, m\), got \(1, 2, 3\): for a batch there are solve_batch and nn.Transport"),
    (dict(M=np.ones((0, 3))), r"M must have rows and columns, or neither, got shape \(0, 3\)"),
    (dict(M=M, a=[0.5, 0.5, 0.0]), r"a must have shape \(2,\), got \(3,\)"),
    (dict(M=M, a=[1.5, -0.5]), "a must not be negative, got -0.5"),
    (dict(M=M, a=[0.5, np.nan]), "a must be finite, got nan at index 1"),
    (dict(M=M, a=[0.5, 0.6], b=[0.5, 0.25, 0.25]), "a and b must have the same sum, got 1.1 and 1"),
    (dict(M=M, b=[0.0, 0.0, 0.0]), "b must have a positive sum, got all zeros"),
    (dict(M=M, reg=-1.0), "reg must be a positive, finite number, got -1.0"),
    (dict(M=M, reg=float("nan")), "reg must be a positive, finite number, got nan"),
    (dict(M=M, reg="small"), "reg must be a positive number, got 'small'"),
    (dict(M=M, tol=-1), "tol must be zero or a positive, finite number, got -1"),
    (dict(M=M, max_depth=0), "max_depth must be a whole number of at least 2, got 0"),
    (dict(M=M, schedule="fast"), "schedule must be one of auto, paper, gradient, .*, annealed, got 'fast'"),
    (dict(M=np.eye(2) * 1e300, reg=1e-200), "reg must be so large that cost/reg is finite"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_input_is_one_clear_line(arguments, message):
    with pytest.raises(ValueError, match=message) as raised:
        of.solve(**arguments)
    assert "\n" not in str(raised.value)


def test_bad_points():
    with pytest.raises(ValueError, match=r"X_a and X_b must have the same dimension, got \(3, 2\) and \(3, 1\)"):
        of.solve_sample(np.ones((3, 2)), np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"X_a must have shape \(n, d\), got \(3,\)"):
        of.solve_sample(np.ones(3), np.ones(3))
    with pytest.raises(ValueError, match="X_a and X_b must have one dtype and device, got"):
        of.solve_sample(torch.ones(3, 2), torch.ones(3, 2, dtype=torch.float64))


NET_BAD = [
    (lambda: of.AligningTransformer(0, 0.1, 5), "dim must be a whole number of at least 1, got 0"),
    (lambda: of.AligningTransformer(2, 0.1, 2.5), "depth must be a whole number of at least 1, got 2.5"),
    (lambda: of.AligningTransformer(2, -0.1, 5), "reg must be a positive, finite number"),
    (lambda: of.AligningTransformer(2, 0.1, 5, schedule="x"), "schedule must be one of"),
    (lambda: of.AligningTransformer(2, 0.1, 5, sink="no"), "sink must be one of frozen, token, got 'no'"),
    (lambda: NET(np.ones((3, 2))), "y is missing"),
    (lambda: NET(np.ones((3, 3)), np.ones((3, 3))), r"x must have 2 coordinates, got shape \(3, 3\)"),
    (lambda: NET(np.ones((0, 2)), np.ones((0, 2))), "x and y must hold at least one point each, got 0 and 0"),
    (lambda: NET(np.ones((3, 2)), np.full((3, 2), np.nan)), r"y must be finite, got nan at index \(0, 0\)"),
    (lambda: NET(np.ones((3, 2)), np.ones((3, 2)), a=[1, 1]), r"a must have shape \(3,\), got \(2,\)"),
    (lambda: NET(np.ones((3, 2)), np.ones((3, 2)), a=[1, 1, -1]), "a must not be negative"),
    (lambda: NET(np.ones((3, 2)), np.ones((3, 2)), a=[1, 1, 1], b=[1, 1, 2]), "a and b must have the same sum, got 3 and 4"),
    (lambda: NET(np.ones((3, 2)), np.ones((3, 2)), keep="some"), "keep must be 'all', 'last' or layer numbers, got 'some'"),
    (
        lambda: NET(np.ones((3, 2)), np.ones((3, 2)), keep=[9]),
        "keep must be from 0 to 5, or negative to count from the end, got 9",
    ),
    (lambda: NET(np.ones((3, 2)), np.ones((3, 2))).attention(5, head="diagonal"), "head must be one of rows, columns"),
    (lambda: NET(np.ones((3, 2)), np.ones((3, 2)), keep=3), "keep must be 'all', 'last' or layer numbers, got 3"),
    (lambda: NET(np.ones((3, 2)) * 1e9, np.ones((3, 2))), "x is too large: squared norms must stay below 1e[+]15"),
    (lambda: NET(torch.ones(3, 2) * 1e20, torch.ones(3, 2)), "x is too large"),
    (lambda: NET([torch.ones(3, 2)]), "y must list as many problems as x"),
    (lambda: NET([torch.ones(3, 2)] * 2, [torch.ones(3, 1)] * 2), "x and y must have the same dimension"),
    (
        lambda: of.AligningTransformer(2, 1e-299, 5),
        "reg must lie from 1e-30 to 1e\\+30 in float32, got 1e-299",
    ),
    (
        lambda: of.AligningTransformer(2, 1e-30, 5).float()(torch.ones(3, 2), torch.ones(2, 2)),
        "reg is too small for torch.float32",
    ),
    (lambda: of.AligningTransformer(2, 1e-5, 5).half()(np.ones((3, 2)), np.ones((2, 2))), "the network must be float32 or"),
    (lambda: of.StockTransformer(of.SinkhornTransformer(2, 0.1, 5)), "net must be an AligningTransformer, got Sinkhorn"),
    (lambda: of.Relaxed(2.5), "omega must be between 0 and 2, got 2.5"),
    (lambda: of.Gradient(float("nan")), "step must be a positive, finite number, got nan"),
    (lambda: of.Annealed(stages=0), "stages must be a whole number of at least 1, got 0"),
    (lambda: of.AligningTransformer(2, 0.1, 5, schedule=of.Relaxed), "schedule must be a name or have a method"),
    (lambda: of.StockTransformer(3), "net must be an AligningTransformer, got int"),
    (lambda: NET.save("/nowhere/net.safetensors"), "path must be in an existing folder"),
    (lambda: NET.load(__file__), "test_solve.py is not a readable safetensors file"),
    (lambda: TOKEN(np.ones((3, 2)), np.ones((4, 2))), "sink='token' needs as many x as y"),
    (lambda: of.cosine(np.zeros((1, 2)), np.ones((1, 2))), "x has a zero vector"),
    (lambda: of.mahalanobis(np.ones((1, 2)), np.ones((1, 2)), [[1, 0], [0, -1]]), "W must be positive semi-definite"),
]
NET = of.AligningTransformer(2, 0.1, 5)
TOKEN = of.AligningTransformer(2, 0.1, 5, sink="token")


@pytest.mark.parametrize(("call", "message"), NET_BAD, ids=[message[:40] for _, message in NET_BAD])
def test_the_network_refuses_bad_input_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_the_line_of_a_result_says_layers_once():
    assert repr(of.solve(np.eye(3), schedule="relaxed")).endswith("after 10 layers of the relaxed schedule)")
    assert repr(of.solve(np.ones((0, 0)))).endswith("converged: marginal error 0, no layers: no points)")
