"""Gradients of value, value_linear and plan against finite differences and POT; warm starts; the barycentric map."""

import numpy as np
import ot
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import otformer as of
from otformer.transport.derivatives.implicit import decompose_marginals, solve_marginals

QUANTITIES = ["value", "value_linear", "plan"]
n, m, d = 4, 3, 2


def draw(seed, *shape):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed), requires_grad=True)


def solved(C, a=None, b=None, reg=0.1):
    return of.solve(C, a, b, reg=reg, tol=1e-13)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_in_the_cost_the_weights_and_reg(quantity):
    def function(C, theta, phi, log_reg):
        return getattr(solved(C, theta.softmax(0), phi.softmax(0), log_reg.exp()), quantity)

    log_reg = torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)
    assert gradcheck(function, (draw(0, n, m), draw(1, n), draw(2, m), log_reg))


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_in_the_points(quantity):
    def function(x, y):
        return getattr(of.solve_sample(x, y, reg=0.2, tol=1e-13), quantity)

    assert gradcheck(function, (draw(3, n, d), draw(4, m, d)))


@pytest.mark.filterwarnings("ignore:not converged")  # finite differences move the masses apart by 1e-6
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_in_raw_weights_of_any_representative(quantity):
    """b is scaled to the mass of a first, so that a finite difference in one weight alone has an answer."""

    def function(a, b):
        return getattr(solved(draw(0, n, m).detach(), a, b), quantity)

    a, b = (draw(k, size).detach().softmax(0).requires_grad_() for k, size in ((1, n), (2, m)))
    assert gradcheck(function, (a, b))


def test_the_value_has_second_derivatives():
    def function(theta, x, y):
        return of.solve_sample(x, y, theta.softmax(0), reg=0.3, tol=1e-13).value

    assert gradgradcheck(function, (draw(1, 3), draw(2, 3, d), draw(3, 2, d)))


def test_along_changes_that_keep_the_mass_the_gradients_are_the_potentials():
    C, a, b = draw(0, n, m), draw(1, n).detach().softmax(0).requires_grad_(), draw(2, m).detach().softmax(0).requires_grad_()
    result = solved(C, a, b)
    in_C, in_a, in_b = torch.autograd.grad(result.value, (C, a, b))
    u, v = result.potentials
    torch.testing.assert_close(in_C, result.plan)
    torch.testing.assert_close(in_a - in_a.mean(), u - u.mean())
    torch.testing.assert_close(in_b - in_b.mean(), v - v.mean())


@pytest.mark.filterwarnings("ignore:not converged")  # finite differences move the masses apart by 1e-6
def test_zero_weights_take_no_part():
    """Gradients of the problem with absent points are those of the problem without them; their own costs have 0."""
    C, x = draw(0, 5, 4), draw(1, 5, 4).detach()
    a, b = torch.tensor([0.5, 0, 0.2, 0.3, 0]).double(), torch.tensor([0, 0.5, 0.25, 0.25]).double()
    a.requires_grad_(), b.requires_grad_()
    result = solved(C, a, b)
    grads = torch.autograd.grad((result.plan * x).sum() + result.value + result.value_linear, (C, a, b))
    rows, columns = torch.tensor([0, 2, 3]), torch.tensor([1, 2, 3])
    small = [C.detach()[rows][:, columns], a.detach()[rows], b.detach()[columns]]
    small = [t.requires_grad_() for t in small]
    inner = solved(*small)
    expected = torch.autograd.grad((inner.plan * x[rows][:, columns]).sum() + inner.value + inner.value_linear, small)
    torch.testing.assert_close(grads[0][rows][:, columns], expected[0])
    torch.testing.assert_close(grads[1][rows], expected[1])
    torch.testing.assert_close(grads[2][columns], expected[2])
    assert grads[0][[1, 4]].abs().sum() == grads[0][:, 0].abs().sum() == 0
    assert all(g.isfinite().all() for g in grads)


@pytest.mark.slow
def test_value_gradients_equal_POT():
    x, y = draw(5, 30, 3), draw(6, 20, 3)
    a, b = torch.full((30,), 1 / 30).double(), torch.full((20,), 1 / 20).double()
    ours = torch.autograd.grad(of.solve_sample(x, y, reg=0.05, tol=1e-12).value_linear, (x, y))
    unrolled = ot.sinkhorn2(a, b, ot.dist(x, y), reg=0.05, stopThr=1e-13, numItermax=3000, warn=False)
    theirs = torch.autograd.grad(unrolled, (x, y))
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("direct", [0, 128], ids=["conjugate gradients", "eigenvectors"])
@pytest.mark.parametrize("reg", [1e-2, 1e-3, 1e-4])
def test_small_reg_against_a_dense_solve(reg, direct, monkeypatch):
    """The plan is nearly a permutation: H is nearly singular in many directions, and the gradient must not feel it."""
    monkeypatch.setattr("otformer.transport.derivatives.implicit.DIRECT_UP_TO", direct)
    C, weight = draw(7, 40, 40), draw(8, 40, 40).detach()
    result = of.solve(C, reg=reg, tol=1e-5)
    (ours,) = torch.autograd.grad((result.plan * weight).sum(), C)
    P = result.plan.detach()
    H = torch.cat([torch.cat([P.sum(1).diag(), P], 1), torch.cat([P.T, P.sum(0).diag()], 1)])
    g = torch.cat([(weight * P).sum(1), (weight * P).sum(0)]) / reg
    w = torch.linalg.lstsq(H, g[:, None], driver="gelsd", rcond=1e-13).solution[:, 0]
    expected = P * (w[:40, None] + w[None, 40:]) - weight * P / reg
    torch.testing.assert_close(ours, expected, atol=1e-12 * float((weight * P).max()) / reg, rtol=1e-6)


@pytest.mark.parametrize(("rows", "columns"), [(9, 6), (6, 9)])
def test_marginals_of_a_stack_are_solved_each_for_itself(rows, columns):
    """Plans of very different conditioning side by side, against a pseudo-inverse of H."""
    P = draw(10, 3, rows, columns).detach() ** torch.tensor([0.5, 2.0, 6.0]).double()[:, None, None]
    P /= P.sum((1, 2), keepdim=True)
    g_u, g_v = draw(11, 3, rows).detach(), draw(12, 3, columns).detach()
    g_u, g_v = g_u * P.sum(2), g_v * P.sum(1)
    g_v = g_v + P.sum(1) * (g_u.sum(1) - g_v.sum(1))[:, None]  # in the range of H
    products = (lambda w: (P @ w[..., None])[..., 0]), (lambda w: (w[:, None, :] @ P)[:, 0])
    for w_u, w_v in (decompose_marginals(P, g_u, g_v), solve_marginals(*products, g_u, g_v)):
        for k in range(3):
            H = torch.cat([torch.cat([P[k].sum(1).diag(), P[k]], 1), torch.cat([P[k].T, P[k].sum(0).diag()], 1)])
            w = torch.linalg.pinv(H, hermitian=True, rtol=1e-13) @ torch.cat([g_u[k], g_v[k]])
            expected = P[k] * (w[:rows, None] + w[None, rows:])  # w itself is fixed up to (t, −t) only
            torch.testing.assert_close(P[k] * (w_u[k, :, None] + w_v[k, None, :]), expected, atol=1e-10, rtol=1e-8)


def test_a_gradient_out_of_reach_is_said(monkeypatch):
    monkeypatch.setattr("otformer.transport.derivatives.implicit.DIRECT_UP_TO", 0)
    monkeypatch.setattr("otformer.transport.derivatives.implicit.CG_STEPS", 2)
    C = draw(7, 40, 40)
    result = of.solve(C, reg=0.01)
    with pytest.warns(RuntimeWarning, match="gradient not accurate: conjugate gradients left"):
        result.value_linear.backward()


def test_a_large_constant_in_the_cost_changes_no_gradient():
    C = draw(0, n, m)
    here = torch.autograd.grad(solved(C).value_linear, C)[0]
    there = torch.autograd.grad(of.solve(C + 1e6, reg=0.1, tol=1e-8).value_linear, C)[0]
    torch.testing.assert_close(here, there, atol=1e-6, rtol=1e-6)


def test_float32_inputs_get_float32_gradients():
    x = draw(9, n, d).detach().float().requires_grad_()
    result = of.solve_sample(x, draw(4, m, d).detach().float(), reg=0.5, tol=1e-4)
    (in_x,) = torch.autograd.grad(result.value, x)
    assert result.value.dtype == result.plan.dtype == in_x.dtype == torch.float32
    double = x.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(of.solve_sample(double, draw(4, m, d).detach(), reg=0.5, tol=1e-12).value, double)
    torch.testing.assert_close(in_x.double(), expected, atol=1e-5, rtol=1e-4)


def test_numbers_come_in_the_kind_of_the_input():
    C = draw(0, n, m)
    free, plain, array = solved(C), solved(C.detach()), solved(C.detach().numpy())
    assert isinstance(array.value, float)
    assert isinstance(array.value_linear, float)
    assert plain.value.shape == ()
    assert not plain.value.requires_grad
    assert free.value.item() == pytest.approx(array.value, abs=1e-14)
    assert free.value_linear.item() == pytest.approx(array.value_linear, abs=1e-14)
    assert (free.plan - plain.plan).abs().max() < 1e-15
    assert isinstance(free.marginal_error, float)
    with torch.no_grad():
        assert not solved(C).value.requires_grad
    assert solved(C.detach().numpy(), draw(1, n).softmax(0)).value.requires_grad  # an array of costs, weights that learn
    repr(free)


def test_no_points_have_no_gradient():
    C = torch.zeros(0, 0, requires_grad=True)
    of.solve(C).value.backward()
    assert C.grad.shape == (0, 0)


def test_barycentric_map_and_apply():
    rng = np.random.default_rng(0)
    x, y, values = rng.random((6, 2)), rng.random((4, 2)), rng.random((4, 3))
    a = np.array([0.1, 0.2, 0.3, 0.2, 0.2, 0.0])
    result = of.solve_sample(x, y, a, reg=0.05, tol=1e-13)
    with np.errstate(invalid="ignore"):
        plan = ot.sinkhorn(a[:5], np.full(4, 0.25), ot.dist(x[:5], y), 0.05, stopThr=1e-14)
    np.testing.assert_allclose(result.map(values)[:5], plan @ values / a[:5, None], atol=1e-10)
    np.testing.assert_allclose(result.map(values[:, 0])[:5], plan @ values[:, 0] / a[:5], atol=1e-10)
    np.testing.assert_allclose(result.apply(values[:, 0])[:5], plan @ values[:, 0], atol=1e-11)
    assert result.map(values)[5].tolist() == [0, 0, 0]
    tensors = of.solve_sample(torch.tensor(x), torch.tensor(y), torch.tensor(a), reg=0.05, tol=1e-13)
    np.testing.assert_allclose(tensors.map(torch.tensor(values)).numpy(), result.map(values), atol=1e-12)
    with pytest.raises(ValueError, match=r"values must have shape \(4,\) or \(4, k\), got \(3, 2\)"):
        result.map(np.ones((3, 2)))


@pytest.mark.parametrize("reg", [0.05, 0.002])
def test_a_warm_start_saves_layers(reg):
    rng = np.random.default_rng(1)
    x, y = rng.random((60, 2)), rng.random((60, 2))
    first = of.solve_sample(x, y, reg=reg, tol=1e-8)
    moved = x + 1e-4 * rng.standard_normal(x.shape)
    cold = of.solve_sample(moved, y, reg=reg, tol=1e-8)
    warm = of.solve_sample(moved, y, reg=reg, tol=1e-8, potentials=first.potentials)
    assert warm.converged
    assert warm.depth < 0.8 * cold.depth
    np.testing.assert_allclose(warm.plan, cold.plan, atol=1e-8)
    again = of.solve_sample(x, y, reg=reg, tol=1e-8, potentials=first.potentials)
    assert again.depth == 2
    fixed = of.solve_sample(x, y, reg=reg, tol=1e-7, schedule="alternating", potentials=first.potentials)
    assert fixed.depth == 10  # its first look


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e200])
def test_a_misleading_warm_start_is_given_up(scale):
    rng = np.random.default_rng(2)
    C = rng.random((30, 30))
    wrong = scale * rng.standard_normal(30), scale * rng.standard_normal(30)
    cold = of.solve(C, reg=0.002)
    warm = of.solve(C, reg=0.002, potentials=wrong)
    assert warm.converged
    assert warm.depth <= cold.depth + 2
    np.testing.assert_allclose(warm.plan, cold.plan, atol=1e-6)


def test_a_warm_start_from_a_problem_where_points_were_absent():
    C = np.random.default_rng(3).random((5, 4))
    first = of.solve(C, a=[0.5, 0.5, 0, 0, 0], b=[0, 0.5, 0.5, 0], reg=0.1)
    warm = of.solve(C, reg=0.1, tol=1e-10, potentials=first.potentials)
    np.testing.assert_allclose(warm.plan, of.solve(C, reg=0.1, tol=1e-10).plan, atol=1e-9)


@pytest.mark.parametrize(
    ("potentials", "message"),
    [
        (3, r"potentials must be a pair of arrays \(u, v\), got int"),
        ((np.zeros(2), np.zeros(2)), r"potentials must have shapes \(2,\) and \(3,\), got \(2,\) and \(2,\)"),
        ((np.zeros(2), np.full(3, np.nan)), "potentials must be numbers or −inf, got nan or"),
    ],
)
def test_bad_potentials(potentials, message):
    with pytest.raises(ValueError, match=message):
        of.solve(np.ones((2, 3)), potentials=potentials)


IMPOSSIBLE = torch.tensor([[True, False, False], [True, False, False], [True, True, True]])  # rows 0 and 1 want column 0


def test_an_impossible_problem_has_no_gradients():
    """Two rows of mass 0.8 may only use a column of mass 1/3: no plan, so no derivative."""
    a = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64, requires_grad=True)
    C = draw(0, 3, 3)
    with pytest.warns(RuntimeWarning, match="not converged"):
        r = of.solve(C, a, reg=0.1, mask=IMPOSSIBLE)
    assert not r.converged
    for output in (r.value, r.value_linear, r.plan.sum()):
        for given in (a, C):
            with pytest.raises(RuntimeError, match="no plan with these marginals uses allowed pairs only"):
                torch.autograd.grad(output, given, retain_graph=True)
    with pytest.warns(UserWarning, match="did not converge"):
        plan = of.sinkhorn(a, [], torch.where(IMPOSSIBLE, C, torch.inf), 0.1)
    with pytest.raises(RuntimeError, match="no plan with these marginals uses allowed pairs only"):
        torch.autograd.grad(plan.sum(), a)


@pytest.mark.filterwarnings("ignore:not converged")
def test_a_possible_problem_that_did_not_converge_has_gradients():
    a = torch.tensor([0.2, 0.1, 0.7], dtype=torch.float64, requires_grad=True)
    C = draw(0, 3, 3)
    assert not of.solve(C, a, reg=0.1, mask=IMPOSSIBLE, tol=0).converged  # nothing is below 0
    assert gradcheck(lambda C, a: of.solve(C, a, reg=0.1, mask=IMPOSSIBLE, tol=0).value, (C, a))
