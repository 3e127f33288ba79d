"""The layers against POT and finite differences, with masks, in batches, on bad input; and the page where they learn."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from torch.autograd import gradcheck

import otformer as of
from oracles import pot_plan, squared_cost, uniform
from otformer.nn import SoftSort, Transport

PAGE = Path(__file__).parents[2] / "docs" / "layers.md"


def test_plan_and_points_equal_POT():
    x, y = uniform(0, 6, 2), uniform(1, 5, 2)
    plan = pot_plan(squared_cost(x, y).numpy(), None, None, 0.1)
    np.testing.assert_allclose(Transport(tol=1e-12)(x, y), plan, atol=1e-10)
    np.testing.assert_allclose(Transport(tol=1e-12, output="points")(x, y), 6 * plan @ y.numpy(), atol=1e-10)
    np.testing.assert_allclose(Transport(tol=1e-12)(cost=torch.cdist(x, y) ** 2), plan, atol=1e-10)
    a, b = uniform(2, 6).softmax(0), uniform(3, 5).softmax(0)
    np.testing.assert_allclose(Transport(tol=1e-12)(x, y, a, b), pot_plan(squared_cost(x, y), a, b, 0.1), atol=1e-10)


@pytest.mark.parametrize("output", ["plan", "points"])
def test_a_masked_batch_is_its_problems_one_by_one(output):
    x, y = uniform(0, 3, 6, 2), uniform(1, 3, 5, 2)
    x_mask, y_mask = torch.ones(3, 6, dtype=torch.bool), torch.ones(3, 5, dtype=torch.bool)
    x_mask[1, [0, 4]], y_mask[1, 2], y_mask[2, 1:] = False, False, False
    x[~x_mask], y[~y_mask] = torch.nan, torch.nan  # padding is never read
    x.requires_grad_()
    out = Transport(tol=1e-12, output=output)(x, y, x_mask=x_mask, y_mask=y_mask)
    out.square().sum().backward()
    for k in range(3):
        r, c = x_mask[k].nonzero()[:, 0], y_mask[k].nonzero()[:, 0]
        plan = pot_plan(squared_cost(x.detach()[k, r], y[k, c]).numpy(), None, None, 0.1)
        expected = np.zeros(out.shape[1:])
        if output == "plan":
            expected[np.ix_(r, c)] = plan
        else:
            expected[r] = len(r) * plan @ y[k, c].numpy()
        np.testing.assert_allclose(out.detach()[k], expected, atol=1e-10)
    assert (x.grad[:2][x_mask[:2]] != 0).all()
    assert x.grad[2].abs().max() < 1e-15  # with one y there is one plan, whatever x is
    assert (x.grad[~x_mask] == 0).all()


def test_masks_with_a_cost_and_weights():
    cost, a = uniform(0, 4, 3), torch.tensor([0.5, 0.5, 9.0, 9.0], dtype=torch.float64)
    mask = torch.tensor([True, True, False, False])
    plan = Transport(tol=1e-12)(a=a, x_mask=mask, cost=cost)
    np.testing.assert_allclose(plan[:2], of.solve(cost[:2], tol=1e-12).plan, atol=1e-11)
    assert (plan[2:] == 0).all()


@pytest.mark.parametrize("output", ["plan", "points"])
def test_gradients_in_points_weights_and_a_learnable_reg(output):
    layer = Transport(reg=0.2, learnable=True, tol=1e-13, output=output)

    def function(x, y, theta, log_reg):
        return torch.func.functional_call(layer, {"log_reg": log_reg}, (x, y, theta.softmax(0)))

    inputs = [t.requires_grad_() for t in (uniform(0, 4, 2), uniform(1, 3, 2), uniform(2, 4), torch.tensor(-1.6).double())]
    assert gradcheck(function, inputs)


def test_gradients_of_a_masked_batch_with_weights():
    layer = Transport(reg=0.2, learnable=True, tol=1e-13)
    x_mask, y_mask = torch.ones(2, 4, dtype=torch.bool), torch.ones(2, 3, dtype=torch.bool)
    x_mask[1, 2], y_mask[0, 0] = False, False

    def function(cost, theta, phi, log_reg):
        a, b = (t.masked_fill(~mask, -torch.inf).softmax(1) for t, mask in ((theta, x_mask), (phi, y_mask)))
        given = {"a": a, "b": b, "x_mask": x_mask, "y_mask": y_mask, "cost": cost}
        return torch.func.functional_call(layer, {"log_reg": log_reg}, (), given)

    inputs = uniform(0, 2, 4, 3), uniform(1, 2, 4), uniform(2, 2, 3), torch.tensor(-1.6).double()
    assert gradcheck(function, [t.requires_grad_() for t in inputs])


@pytest.mark.parametrize("reg", [0.3, 0.02])
def test_a_batch_of_very_different_problems_equals_POT(reg):
    cost = uniform(5, 6, 7, 9) * torch.tensor([0.1, 1.0, 10.0]).double().repeat(2)[:, None, None]
    plan = Transport(reg=reg, tol=1e-9)(cost=cost)
    for k in range(6):
        expected = pot_plan(cost[k], None, None, reg)
        np.testing.assert_allclose(plan[k], expected, atol=1e-7)


def test_large_problems_and_not_converged_ones():
    x = uniform(6, 2, 300, 2)
    np.testing.assert_allclose(Transport(reg=0.05)(x, x)[1], of.solve_sample(x[1], x[1], reg=0.05).plan, atol=1e-6)
    with pytest.warns(RuntimeWarning, match=r"not converged: 2 of 2 problems, marginal error up to .*, tol is 1e-09"):
        Transport(reg=0.01, tol=1e-9, max_depth=4)(x[:, :5], x[:, 5:9])
    assert Transport()(x[:0], x[:0]).shape == (0, 300, 300)


def test_reg_learns_to_make_a_plan_sharp():
    layer, x = Transport(reg=1.0, learnable=True, tol=1e-4), uniform(0, 6, 2)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.5)
    for _ in range(10):
        loss = -6 * layer(x, x).diagonal().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(layer.reg.detach()) < 0.05
    assert not list(Transport(reg=1.0).parameters())
    other = Transport(learnable=True)
    other.load_state_dict(layer.state_dict())
    assert float(other.reg.detach()) == float(layer.reg.detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_dtype_of_the_input_comes_back(dtype):
    x, y = uniform(0, 6, 2).to(dtype), uniform(1, 5, 2).to(dtype)
    plan = Transport(reg=0.01)(x, y)
    assert plan.dtype == dtype
    expected = pot_plan(squared_cost(x.double(), y.double()).numpy(), None, None, 0.01)
    np.testing.assert_allclose(plan.float(), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
    assert SoftSort()(x[:, 0]).dtype == dtype


def test_soft_sort_is_exact_in_the_limit_and_keeps_the_sum():
    values = uniform(3, 2, 3, 7) * 10 - 4
    sharp, soft = SoftSort(reg=1e-4), SoftSort(reg=0.3, tol=1e-12)
    np.testing.assert_allclose(sharp(values), np.sort(values), atol=2e-2)
    np.testing.assert_allclose(sharp.rank(values), rankdata(values, axis=-1) - 1, atol=2e-2)
    np.testing.assert_allclose(soft(values).sum(-1), values.sum(-1), atol=1e-9)
    np.testing.assert_allclose(soft.rank(values).sum(-1), np.full((2, 3), 21.0), atol=1e-9)
    np.testing.assert_allclose(soft.rank(5 * values + 3), soft.rank(values), atol=1e-9)
    order = values.argsort(-1)
    assert (soft.rank(values).gather(-1, order).diff(dim=-1) > 0).all()


def test_soft_sort_of_equal_values_and_of_one():
    soft = SoftSort()
    values = torch.tensor([2.0, 2.0, 2.0], requires_grad=True)
    np.testing.assert_allclose(soft.rank(values).detach(), [1, 1, 1], atol=1e-6)
    soft(values).square().sum().backward()
    assert values.grad.isfinite().all()
    np.testing.assert_allclose(soft.rank(torch.tensor([1.0, 1.0, 5.0])), [0.5, 0.5, 2], atol=0.1)
    assert soft(torch.tensor([4.0])).tolist() == [4.0]
    assert soft.rank(torch.tensor([4.0])).tolist() == [0.0]


@pytest.mark.parametrize("method", ["forward", "rank"])
def test_soft_sort_has_the_gradients_of_finite_differences(method):
    values = uniform(4, 2, 5).requires_grad_()
    assert gradcheck(getattr(SoftSort(reg=0.2, tol=1e-13), method), (values,))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_under_torch_compile_results_are_the_same():
    layer, x, y = Transport(output="points"), uniform(0, 4, 2).requires_grad_(), uniform(1, 3, 2)

    def function(x):
        return (layer(torch.sin(x), y) * 2).sum() + of.solve_sample(x, y).value

    plain, compiled = function(x), torch.compile(function, backend="eager")(x)
    torch.testing.assert_close(compiled, plain)
    torch.testing.assert_close(*(torch.autograd.grad(out, x)[0] for out in (compiled, plain)))


@pytest.mark.slow
def test_the_page_keeps_its_promises():
    page: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S):
        exec(block, page)
    assert page["values"][0] > 15
    assert page["values"][-1] < 1
    assert page["matching_before"] < 0.3
    assert page["matching_after"] > 0.95
    assert page["ranking_before"] < 0
    assert page["ranking_after"] > 0.98
    last = [sum(losses[-10:]) / 10 for losses, *_ in (page["exact"], page["twenty"])]
    assert min(page["exact"][0][0], page["twenty"][0][0]) > 3
    assert max(last) < 0.03
    assert last[0] == pytest.approx(last[1], rel=0.01)
    assert max(page["exact"][1:]) < 2e-6
    assert min(page["twenty"][1:]) > 0.02
    assert page["top_before"] < 0.05
    assert page["top_after"] > 0.85


X, Y = torch.rand(2, 4, 3), torch.rand(2, 5, 3)
NOBODY = torch.tensor([[True] * 4, [False] * 4])
BAD = [
    (lambda: Transport(reg=0), "reg must be a positive, finite number, got 0"),
    (lambda: Transport(output="map"), "output must be one of plan, points, got 'map'"),
    (lambda: Transport()(X), "give two point sets x and y, or a cost alone"),
    (lambda: Transport()(X, Y, cost=X), "give two point sets x and y, or a cost alone"),
    (lambda: Transport(output="points")(cost=X), "output='points' needs x and y, got a cost"),
    (lambda: Transport()(X, Y[0]), r"x and y must have the same batch and dimension, got \(2, 4, 3\) and \(5, 3\)"),
    (lambda: Transport()(X[0, 0], Y), r"x must have shape \(n, d\) or \(batch, n, d\), got \(3,\)"),
    (lambda: Transport()(X.long(), Y), "x must be a tensor of floats, got torch.int64"),
    (lambda: Transport()(X, Y, x_mask=NOBODY), "problem 1: x_mask leaves no point: mass has nowhere to go"),
    (lambda: Transport()(X[0], Y[0], x_mask=NOBODY[1]), "^x_mask leaves no point: mass"),
    (lambda: Transport()(X, Y, x_mask=NOBODY.float()), r"x_mask must be a boolean tensor of shape \(2, 4\), got"),
    (lambda: Transport()(X, Y, a=torch.ones(4)), r"a must be a tensor of shape \(2, 4\), got \(4,\)"),
    (lambda: Transport()(X, Y, b=torch.ones(2, 5)), "problem 0: a and b must have the same sum, got 1 and 5"),
    (lambda: Transport()(X, Y, a=-torch.ones(2, 4)), "problem 0: a must not be negative"),
    (
        lambda: Transport()(X, Y, a=torch.zeros(2, 4)),
        "problem 0: a must have a positive sum over the present entries, got all zeros",
    ),
    (lambda: Transport()(torch.stack([X[0], X[1] / 0]), Y), "problem 1: x must be finite, got nan or inf"),
    (lambda: Transport()(X, Y.double()), "y must be x's torch.float32 on cpu, got torch.float64 on cpu"),
    (lambda: Transport()(X, Y, b=torch.ones(2, 5).double()), "problem 0: a and b must have the same sum, got 1 and 5"),
    (lambda: Transport()(X, Y.to("meta")), "y must be x's torch.float32 on cpu, got torch.float32 on meta"),
    (lambda: Transport()(X, Y, x_mask=NOBODY.to("meta")), "x_mask must be on cpu, got torch.bool on meta"),
    (lambda: Transport(reg=1e-320)(X, Y), "reg must be above 1e-300, got 1e-320"),
    (lambda: SoftSort()(torch.tensor([1.0, torch.nan])), "values must be finite, got nan or inf"),
    (lambda: SoftSort()(torch.tensor(1.0)), r"values must be a tensor of floats of shape \(..., n\)"),
    (lambda: SoftSort().rank(torch.zeros(2, 0)), r"n at least 1, got \(2, 0\)"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_a_reg_that_has_run_away_is_said_and_huge_values_are_sorted():
    layer = of.nn.Transport(learnable=True)
    with torch.no_grad():
        layer.log_reg.fill_(800.0)
    with pytest.raises(ValueError, match="reg must be a positive, finite number, got inf"):
        layer(torch.rand(3, 2), torch.rand(3, 2))
    values = torch.tensor([1e200, -1e200, 3e199], dtype=torch.float64)
    torch.testing.assert_close(of.nn.SoftSort(1e-3)(values), values.sort().values, rtol=1e-6, atol=0)
