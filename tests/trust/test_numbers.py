"""ATTACK F2, F4, F8, F9, F15, F18: numbers at the edge are right, refused, or come with a warning."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import otformer as of

LAM = torch.tensor(0.1, requires_grad=True)
SQUARE = np.array([[0.0, 1.0], [1.0, 0.0]])


def unbalanced_loss(x: np.ndarray, y: np.ndarray, eps: float, rho: float) -> float:
    """The unbalanced OT loss of uniform weights by plain damped Sinkhorn steps, in long double where there is one."""
    x, y = x.astype(np.longdouble), y.astype(np.longdouble)
    C = ((x[:, None] - y) ** 2).sum(-1) / 2
    f, g, damping = np.zeros(len(x), np.longdouble), np.zeros(len(y), np.longdouble), 1 / (1 + np.longdouble(eps) / rho)
    for _ in range(2000):
        f = -damping * eps * np.log(np.exp((g - C) / eps).mean(1))
        g = -damping * eps * np.log(np.exp((f[:, None] - C) / eps).mean(0))
    level = rho + np.longdouble(eps) / 2
    return float(level * (-np.expm1(-f / rho).mean() - np.expm1(-g / rho).mean()))


@pytest.mark.parametrize("reach", [0.1, 0.03, 0.01, 0.001, 0.0001])
@pytest.mark.parametrize("backend", ["tensorized", "online"])
def test_f2_a_reach_below_blur_is_right(reach, backend):
    rng = np.random.default_rng(1)
    x, y = rng.random((5, 2)), rng.random((4, 2))
    terms = [unbalanced_loss(*sides, 1.0, reach**2) for sides in ((x, y), (x, x), (y, y))]
    expected = terms[0] - terms[1] / 2 - terms[2] / 2
    loss = of.SamplesLoss(blur=1.0, reach=reach, backend=backend)
    for dtype, close in ((torch.float64, 1e-6), (torch.float32, 1e-4)):
        found = float(loss(torch.tensor(x, dtype=dtype), torch.tensor(y, dtype=dtype)))
        assert found == pytest.approx(expected, rel=close), dtype
        assert abs(float(loss(torch.tensor(x, dtype=dtype), torch.tensor(x, dtype=dtype)))) < 1e-6


def test_f15_a_blur_that_float64_cannot_see_beside_reach_is_refused():
    with pytest.raises(ValueError, match="blur is too small beside reach for float64, got blur 1e-08 and reach 1"):
        of.SamplesLoss(blur=1e-8, reach=1.0)


@pytest.mark.parametrize("backend", ["tensorized", "online"])
@pytest.mark.parametrize("blur", [1e-6, 1e-7, 1e-8])
def test_a_small_blur_gives_the_exact_optimum_or_a_warning(blur, backend):
    rng = np.random.default_rng(0)
    x, y = torch.tensor(rng.random((30, 2))), torch.tensor(rng.random((30, 2)))
    exact = of.emd2(np.full(30, 1 / 30), np.full(30, 1 / 30), (torch.cdist(x, y) ** 2 / 2).numpy())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = float(of.SamplesLoss(blur=blur, backend=backend, debias=False)(x, y))
    assert told or found == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: of.solve_batch([SQUARE], reg=LAM),
        lambda: of.divergence(SQUARE, SQUARE, reg=LAM),
        lambda: of.SamplesLoss(blur=LAM),
        lambda: of.SamplesLoss(reach=LAM),
        lambda: of.AligningTransformer(2, reg=LAM, depth=3),
    ],
)
def test_f4_a_gradient_of_lambda_is_refused_where_it_would_be_lost(call):
    with pytest.raises(ValueError, match="must not require a gradient here: it would be lost"):
        call()


@pytest.mark.parametrize("size", [1e10, 1e39, 1e306])
@pytest.mark.parametrize("name", ["sort-beyond", "cloud-beyond"])
def test_f8_a_trained_model_takes_numbers_of_any_size(name, size):
    rng = np.random.default_rng(0)
    x, y = (rng.random((5,) if name == "sort-beyond" else (5, 2)) for _ in range(2))
    module = of.load_trained(name)
    A = module(x * size, y)
    assert bool(torch.isfinite(A).all())
    # The same factor inside the range of what the model maps gives the same answer.
    torch.testing.assert_close(A, module(x * 100, y), rtol=0, atol=1e-6)


def test_f8_the_order_of_points_moves_the_attention_with_them_and_changes_nothing():
    rng = np.random.default_rng(0)
    for name in ("sort-beyond", "sort-beyond-8"):
        module, y = of.load_trained(name), np.arange(1, 10) / 9
        for _ in range(30):
            x, order = rng.random(9), rng.permutation(9)
            torch.testing.assert_close(module(x, y)[order][:, order], module(x[order], y[order]), rtol=0, atol=1e-6)


def test_f9_one_element_with_a_negative_stride_is_an_array():
    assert of.sort(np.array([0.5])[::-1]).tolist() == [0.5]
    assert of.solve(np.ones((1, 1))[::-1, ::-1]).plan.tolist() == [[1.0]]
    assert of.solve_sample(np.ones((1, 3))[::-1], np.ones((2, 3))[:, ::-1]).plan.tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("size", [1e10, 1e12, 1e15, 1e19, 1e30, 1e200, 1e305])
def test_f18_a_stream_of_large_costs_is_right_or_says_so(size):
    rng = np.random.default_rng(0)
    x, y = rng.random((6, 2)) * size**0.5, rng.random((5, 2)) * size**0.5
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result = of.solve_sample(x, y, reg=1.0, executor="stream")
        except ValueError as error:
            assert any(said in str(error) for said in ("reg must be at least 2⁻⁵⁰", "costs must lie less than 1e300"))  # noqa: PT017
            return
    plan = np.asarray(result.plan)
    assert np.isfinite(plan).all()
    assert np.isfinite(result.value)
    assert result.converged or told
    error = np.abs(plan.sum(1) - 1 / 6).sum() + np.abs(plan.sum(0) - 1 / 5).sum()
    rounding = np.finfo(float).eps * 4 * size  # of (u + v − C)/λ, hence relative of an entry of the plan
    assert result.marginal_error == pytest.approx(error, abs=rounding)


@pytest.mark.parametrize("size", [1e15, 1e20, 1e30, 1e200])
def test_f18_a_warm_start_of_sinkhorn_gives_no_nan(size):
    rng = np.random.default_rng(0)
    M, a = rng.random((4, 4)) * size, np.full(4, 0.25)
    for start in ((np.zeros(4), np.zeros(4)), (M[:, 0], -3 * M[0])):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            P = of.sinkhorn(a, a, M, 1.0, warmstart=start)
        assert np.isfinite(P).all()
        assert told or np.abs(P.sum(1) - a).sum() < 1e-6


def test_f18_every_entry_point_refuses_a_reg_beyond_1e300():
    for call in (lambda: of.solve(SQUARE, reg=1e305), lambda: of.solve_batch([SQUARE], reg=1e305)):
        with pytest.raises(ValueError, match=r"reg must be at most 1e300, got 1e\+305"):
            call()


def test_f17_a_network_of_too_many_layers_is_refused_before_they_are_made():
    with pytest.raises(ValueError, match="max_depth must be at most 1,000,000 for fixed layers, got 100,000,000"):
        of.solve(SQUARE, schedule="relaxed", max_depth=10**8)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e8, 1e12, 1e14, 1e25])
@pytest.mark.parametrize("corner", [9.0, np.inf])
def test_value_linear_is_that_of_the_plan_at_any_size_of_the_costs(size, corner):
    """Found by the fuzzer: made again from u and v, the plan of `value_linear` was off by cost/λ · ε of every entry."""
    M = np.array([[1.0, 2.0], [3.0, corner]]) * size
    asked = {"reg": 1e-6, "tol": 1e-5}  # potentials of 1e9 λ leave marginals about 1e-6
    for result in (of.solve(M, **asked), of.solve_batch([M], **asked)[0]):
        assert result.converged
        assert result.value_linear == pytest.approx(2.5 * size, rel=1e-6)
    moving = of.solve(torch.tensor(M, requires_grad=True), **asked)
    assert moving.value_linear.item() == pytest.approx(2.5 * size, rel=1e-6)
