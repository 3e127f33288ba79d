"""Unbalanced and partial transport against POT, closed forms, and their own certificates."""

import math
import warnings

import numpy as np
import ot
import pytest
import torch

import otformer as of
from oracles import marginal_error, pot_plan
from otformer.transport.variants.partial import solve_partial
from otformer.transport.variants.unbalanced import solve_unbalanced


def problem(seed, n=25, m=30):
    rng = np.random.default_rng(seed)
    return ot.dist(rng.random((n, 2)), rng.random((m, 2))), rng.random(n), 1.5 * rng.random(m)


def POT_unbalanced(a, b, M, reg, reg_m, reg_type):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of "entropy": that it is what was asked for
        return ot.unbalanced.sinkhorn_unbalanced(a, b, M, reg, reg_m, reg_type=reg_type, numItermax=200_000, stopThr=1e-15)


def generalised_kl(p, q):
    return float((np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / q), 0) - p + q).sum())


@pytest.mark.parametrize("reg_type", ["kl", "entropy"])
@pytest.mark.parametrize(
    ("reg", "reg_m"), [(0.05, 1.0), (0.5, 0.1), (0.02, 0.1), (0.05, 5.0), (0.05, (0.2, 2.0)), (0.01, 0.001)]
)
def test_unbalanced_plan_equals_POTs(reg, reg_m, reg_type):
    M, a, b = problem(0)
    ours = solve_unbalanced(M, a, b, reg, reg_m, tol=1e-10, reg_type=reg_type)
    assert ours.converged
    np.testing.assert_allclose(ours.plan, POT_unbalanced(a, b, M, reg, reg_m, reg_type), atol=1e-11)
    assert ours.mass == pytest.approx(ours.plan.sum(), abs=1e-12)
    assert ours.value_linear == pytest.approx((ours.plan * M).sum(), abs=1e-12)
    reference = np.outer(a, b) if reg_type == "kl" else np.ones_like(M)
    f, g = ours.potentials
    np.testing.assert_allclose(reference * np.exp((f[:, None] + g - M) / reg), ours.plan, atol=1e-13)
    rho_a, rho_b = reg_m if isinstance(reg_m, tuple) else (reg_m, reg_m)
    value = (ours.plan * M).sum() + reg * generalised_kl(ours.plan, reference)
    value += rho_a * generalised_kl(ours.plan.sum(1), a) + rho_b * generalised_kl(ours.plan.sum(0), b)
    assert ours.value == pytest.approx(value, abs=1e-10)


def test_one_marginal_may_be_exact():
    M, a, b = problem(1)
    ours = solve_unbalanced(M, a, b, 0.05, (0.1, math.inf), tol=1e-11)
    np.testing.assert_allclose(ours.plan.sum(0), b, rtol=1e-10)
    np.testing.assert_allclose(ours.plan, POT_unbalanced(a, b, M, 0.05, (0.1, math.inf), "kl"), atol=1e-11)


def test_one_point_each_has_a_closed_form():
    reg, rho, cost, p, q = 0.3, 0.7, 0.4, 1.0, 2.0
    mass = math.exp((-cost + reg * math.log(p * q) + rho * math.log(p * q)) / (reg + 2 * rho))
    assert solve_unbalanced([[cost]], [p], [q], reg, rho, tol=1e-12).mass == pytest.approx(mass, rel=1e-11)


def test_the_error_bounds_the_true_error():
    M, a, b = problem(2)
    exact = solve_unbalanced(M, a, b, 0.02, 2.0, tol=1e-11)
    for tol in (1e-1, 1e-3, 1e-6):
        rough = solve_unbalanced(M, a, b, 0.02, 2.0, tol=tol)
        assert rough.error < tol
        for k in (0, 1):
            assert np.abs(rough.potentials[k] - exact.potentials[k]).max() / 0.02 <= rough.error + 1e-10
        assert np.abs(np.log(rough.plan / exact.plan)).max() <= 2 * rough.error + 1e-9


def test_costs_far_beyond_reach_do_not_underflow():
    M = np.array([[40.0, 41.0], [43.0, 40.5]])
    ours = solve_unbalanced(M, [1.0, 1.0], [1.0, 1.0], 0.01, 0.02, tol=1e-9)
    f, g = np.zeros(2), np.zeros(2)
    for _ in range(2000):  # the damped iteration itself, in logs
        f = -0.01 * 2 / 3 * np.logaddexp.reduce((g - M) / 0.01, axis=1)
        g = -0.01 * 2 / 3 * np.logaddexp.reduce((f[:, None] - M) / 0.01, axis=0)
    assert ours.converged
    np.testing.assert_allclose(ours.potentials[0], f, rtol=1e-9)
    np.testing.assert_allclose(ours.potentials[1], g, rtol=1e-9)


@pytest.mark.parametrize(("shift", "reg_m"), [(-1e3, 1.0), (-30.0, (0.5, 2.0)), (200.0, 1.0), (-1e3, (1.0, math.inf))])
def test_a_constant_added_to_all_costs_scales_the_plan(shift, reg_m):
    M, a, b = problem(9)
    pair = reg_m if isinstance(reg_m, tuple) else (reg_m, reg_m)
    near, far = (solve_unbalanced(cost, a, b, 0.1, reg_m, tol=1e-10) for cost in (M, M + shift))
    factor = math.exp(-shift / (0.1 + sum(pair)))  # 1 where a marginal is exact
    assert far.converged
    np.testing.assert_allclose(far.plan / factor, near.plan, rtol=1e-9)
    P = far.plan / factor
    value = (P * (M + shift)).sum()
    terms = [(0.1, far.plan, np.outer(a, b)), (pair[0], far.plan.sum(1), a), (pair[1], far.plan.sum(0), b)]
    value += sum(w * generalised_kl(p, q) / factor for w, p, q in terms if w < math.inf)
    assert far.value / factor == pytest.approx(value, rel=1e-9)


def test_reg_m_as_POT_takes_it():
    M, a, b = problem(9)
    for given, same in ((np.array([0.5, 2.0]), (0.5, 2.0)), (torch.tensor([0.5, 2.0]), (0.5, 2.0)), ([0.5], 0.5)):
        np.testing.assert_array_equal(solve_unbalanced(M, a, b, 0.1, given).plan, solve_unbalanced(M, a, b, 0.1, same).plan)


@pytest.mark.slow
@pytest.mark.parametrize("reg_type", ["kl", "entropy"])
@pytest.mark.parametrize("reg_m", [1.0, (0.3, 2.0), (0.5, math.inf), (math.inf, 0.5)])
def test_gradients_of_the_value(reg_m, reg_type):
    M, a, b = (torch.tensor(t, requires_grad=True) for t in problem(10, 4, 5))
    reg = torch.tensor([0.1], dtype=torch.float64, requires_grad=True)

    def value(M, a, b, reg):
        return solve_unbalanced(M, a, b, reg, reg_m, tol=1e-12, reg_type=reg_type).value

    assert torch.autograd.gradcheck(value, (M, a, b, reg), eps=1e-5, atol=1e-7, rtol=1e-6)
    found = solve_unbalanced(M, a, b, reg, reg_m, reg_type=reg_type, tol=1e-10)
    torch.testing.assert_close(torch.autograd.grad(found.value, M)[0], found.plan.detach())


def test_gradients_of_the_partial_value():
    M, a, b = problem(11, 5, 6)
    inputs = [torch.tensor(t, dtype=torch.float64, requires_grad=True) for t in (M, 0.1)]
    for mass in (None, 0.6):
        assert torch.autograd.gradcheck(
            lambda M, reg, mass=mass: solve_partial(M, a, b, reg, mass, tol=1e-13).value, inputs, eps=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(("solver", "extra"), [(solve_unbalanced, 0.5), (solve_partial, 0.6)])
def test_tensors_give_tensors_and_gradients_that_are_not_there_are_refused(solver, extra):
    M, a, b = problem(12, 5, 6)
    a[1] = 0
    for dtype in (torch.float32, torch.float64):
        found = solver(torch.tensor(M, dtype=dtype), a, b, 0.1, extra)
        for t in (found.plan, found.value, found.value_linear):
            assert isinstance(t, torch.Tensor)
            assert t.dtype == dtype
        assert found.value.shape == found.value_linear.shape == ()
    assert "value" in repr(found)
    plain = solver(M, a, b, 0.1, extra)
    assert type(plain.value) is type(plain.value_linear) is float
    assert found.value.item() == pytest.approx(plain.value, abs=1e-12)
    single = torch.tensor(M, dtype=torch.float32, requires_grad=True)
    learning = solver(single, a, b, 0.1, extra)
    (in_M,) = torch.autograd.grad(learning.value, single, retain_graph=True)
    torch.testing.assert_close(in_M, learning.plan.detach())
    for t in (learning.plan, *learning.potentials, learning.value_linear):
        with pytest.raises(RuntimeError, match=r"value has gradients; plan, value_linear and potentials .* have none"):
            t.sum().backward()
    with pytest.raises(RuntimeError, match="differentiated once only"):
        torch.autograd.grad(learning.value, single, create_graph=True)
    with torch.no_grad():
        assert not solver(single, a, b, 0.1, extra).plan.requires_grad
    reg = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.grad(solver(M, a, b, reg, extra).value, reg)[0].isfinite()  # a tensor, though M is an array


def test_large_reg_m_tends_to_the_balanced_plan():
    M, a, b = problem(3)
    a, b = a / a.sum(), b / b.sum()
    ours = solve_unbalanced(M, a, b, 0.05, 1e5)
    np.testing.assert_allclose(ours.plan, pot_plan(M, a, b, 0.05), atol=1e-6)


@pytest.mark.parametrize(("reg", "share"), [(0.05, 0.5), (0.05, 0.95), (0.1, 1.0), (0.01, 0.3), (1.0, 0.7)])
def test_partial_plan_equals_POTs(reg, share):
    M, a, b = problem(4, 15, 18)
    mass = share * min(a.sum(), b.sum())
    ours = solve_partial(M, a, b, reg, mass, tol=1e-11)
    theirs = ot.partial.entropic_partial_wasserstein(a, b, M, reg, m=mass, numItermax=1000)
    assert ours.converged
    np.testing.assert_allclose(ours.plan, theirs, atol=1e-9)
    assert ours.mass == pytest.approx(mass, abs=1e-10)
    assert (ours.plan.sum(1) <= a + 1e-14).all()
    assert (ours.plan.sum(0) <= b + 1e-10).all()
    assert ours.value == pytest.approx((theirs * M).sum() + reg * (theirs * np.log(theirs)).sum(), abs=1e-7)
    f, g = ours.potentials
    np.testing.assert_allclose(np.exp((f[:, None] + g - M) / reg), ours.plan, atol=1e-14)


def test_partial_tends_to_the_exact_partial_plan():
    M, a, b = problem(5, 15, 18)
    mass = 0.6 * min(a.sum(), b.sum())
    ours = solve_partial(M, a, b, 1e-3, mass)
    assert ours.converged
    assert ours.value_linear == pytest.approx(ot.partial.partial_wasserstein2(a, b, M, m=mass), abs=2e-3)


def test_zero_weights_and_types():
    M, a, b = problem(6)
    a[2] = b[[0, 5]] = 0
    keep = np.ix_(a > 0, b > 0)
    for solver, extra in ((solve_unbalanced, 0.5), (solve_partial, 3.0)):
        ours = solver(M, a, b, 0.1, extra, tol=1e-10)
        part = solver(M[keep], a[a > 0], b[b > 0], 0.1, extra, tol=1e-10)
        np.testing.assert_allclose(ours.plan[keep], part.plan, atol=1e-12)
        elsewhere = ours.plan.copy()
        elsewhere[keep] = 0
        assert not elsewhere.any()
        single = solver(torch.tensor(M, dtype=torch.float32), a, b, 0.1, extra)
        assert single.plan.dtype == torch.float32
        np.testing.assert_allclose(single.plan.numpy(), ours.plan, atol=1e-6)


def test_not_converged_is_said():
    M, a, b = problem(7)
    for solver, extra in ((solve_unbalanced, 100.0), (solve_partial, 5.0)):
        with pytest.warns(RuntimeWarning, match=r"not converged: error [\d.e+-]+ after \d+ layers, tol is 1e-12"):
            result = solver(M, a, b, 0.005, extra, tol=1e-12, max_depth=12)
        assert not result.converged
        assert result.depth <= 12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda M, a, b: solve_unbalanced(M, a, b, 0.1, -1.0), "reg_m, or unbalanced, must be one or two"),
        (lambda M, a, b: solve_unbalanced(M, a, b, 0.1, math.inf), "at most one of them infinite"),
        (lambda M, a, b: solve_unbalanced(M, a, b, 0.1, "x"), "reg_m, or unbalanced, must be one or two .* got 'x'"),
        (lambda M, a, b: solve_unbalanced(M, a, b, 0.1, None), "reg_m, or unbalanced, must be one or two .* got None"),
        (lambda M, a, b: solve_unbalanced(M, a, b, 0.1, (1, 2, 3)), r"reg_m, or .* got \(1, 2, 3\)"),
        (lambda M, a, b: solve_unbalanced(M, a, b, 0.1, torch.ones(2, requires_grad=True)), r"reg_m, .* \(no gradient\)"),
        (lambda M, a, b: solve_partial(M, torch.tensor(a, requires_grad=True), b), "a must not require a gradient"),
        (lambda M, a, b: solve_partial(M, a, b, 0.1, torch.ones((), requires_grad=True)), "mass must not require a grad"),
        (lambda M, a, b: solve_unbalanced(M - 1e4, a, b), "is too low: the mass of the plan overflows"),
        (lambda M, a, b: solve_unbalanced(M, a, b, 0.1, 1.0, reg_type="l2"), "reg_type must be one of kl, entropy"),
        (lambda M, a, b: solve_unbalanced(M, 0 * a, b), "a must have a positive sum"),
        (lambda M, a, b: solve_unbalanced(M[:0], a[:0], b), "M must have rows and columns, or neither"),
        (lambda M, a, b: solve_partial(M, a, b, 0.1, 100.0), "mass must be at most the smaller sum of a and b"),
        (lambda M, a, b: solve_partial(M, a, b, 0.1, 0.0), "mass must be a positive"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(*problem(8))


def test_the_keyword_of_solve_is_the_function():
    rng = np.random.default_rng(5)
    x, y, a, b = rng.random((6, 2)), rng.random((8, 2)), rng.random(6), rng.random(8)
    M = ((x[:, None] - y) ** 2).sum(-1)
    direct = of.solve_unbalanced(M, a, b, reg=0.05, reg_m=(0.5, 2.0))
    same = {"reg": 0.05, "unbalanced": (0.5, 2.0)}
    for r in (of.solve(M, a, b, **same), of.solve_sample(x, y, a, b, **same)):
        np.testing.assert_allclose(r.plan, direct.plan, atol=1e-12)
        assert r.marginal_error == pytest.approx(marginal_error(r.plan, a, b))
        assert r.converged
        np.testing.assert_allclose(r.map(y), r.plan @ y / r.plan.sum(1)[:, None])
    with pytest.raises(ValueError, match="unbalanced cannot be combined with schedule"):
        of.solve(M, a, b, reg=0.05, unbalanced=1.0, schedule="gradient")
