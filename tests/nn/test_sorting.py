"""Soft sorting, ranks, top k and quantiles against their exact limits, finite differences and each other; masks, weights."""

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from torch.autograd import gradcheck

from oracles import uniform
from otformer.nn import SoftQuantile, SoftRank, SoftSort, SoftTopK, balance_large

SHARP = 1e-4


def corner(x: np.ndarray, weights: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """The exact plan of values onto pieces of [0, 1] in order: overlaps of intervals, by the items' cumulated weights."""
    order = np.argsort(x)
    ends = np.cumsum(weights[order])
    starts = ends - weights[order]
    edges = np.concatenate([[0], np.cumsum(pieces)])
    plan = np.zeros((len(x), len(pieces)))
    overlap = np.minimum(ends[:, None], edges[1:]) - np.maximum(starts[:, None], edges[:-1])
    plan[order] = np.maximum(overlap, 0)
    return plan


@pytest.mark.parametrize("n", [1, 2, 9, 40])
def test_limits_are_the_sorted_values_ranks_greatest_and_quantiles(n):
    x = uniform(0, n) * 10 - 4
    x = x.sort().values + torch.arange(n)  # neighbours apart, so that the limit is near
    x = x[torch.randperm(n, generator=torch.Generator().manual_seed(0))][None]
    np.testing.assert_allclose(SoftSort(SHARP)(x), np.sort(x), atol=2e-3)
    np.testing.assert_allclose(SoftRank(SHARP)(x), rankdata(x, axis=-1) - 1, atol=2e-3)
    for k in {1, (n + 1) // 2, n}:
        for largest in (True, False):
            found = SoftTopK(k, SHARP, largest=largest)(x)
            expected = torch.zeros_like(x).scatter(1, x.topk(k, largest=largest).indices, 1.0)
            np.testing.assert_allclose(found, expected, atol=2e-3)
    levels = [0.0, 0.1, 0.5, 0.77, 1.0]
    expected = torch.quantile(x, torch.tensor(levels).double(), dim=-1).T
    np.testing.assert_allclose(SoftQuantile(levels, SHARP)(x), expected, atol=5e-3)


@pytest.mark.parametrize("n", [6, 40])
def test_weights_are_shares_of_the_pieces(n):
    x, w = torch.arange(n).double()[torch.randperm(n, generator=torch.Generator().manual_seed(1))], uniform(2, n) + 0.2
    share = (w / w.sum()).numpy()
    plan = corner(x.numpy(), share, np.full(n, 1 / n))
    np.testing.assert_allclose(SoftSort(SHARP)(x, w), n * plan.T @ x.numpy(), atol=2e-2)
    np.testing.assert_allclose(SoftRank(SHARP)(x, w), plan @ np.arange(n) / share, atol=2e-2)
    top = SoftTopK(2, SHARP)(x, w)
    np.testing.assert_allclose(top, corner(x.numpy(), share, np.array([1 - 2 / n, 2 / n]))[:, 1] / share, atol=2e-2)
    assert float((top * torch.tensor(share)).sum()) == pytest.approx(2 / n, abs=1e-6)
    start = 0.3 * (n - 1) / n
    middle = corner(x.numpy(), share, np.array([start, 1 / n, 1 - start - 1 / n]))[:, 1]
    assert float(SoftQuantile(0.3, SHARP)(x, w)) == pytest.approx(n * middle @ x.numpy(), abs=2e-2)
    np.testing.assert_allclose(SoftSort(0.1)(x, 5 * torch.ones(n)), SoftSort(0.1)(x), atol=1e-9)


LAYERS = {
    "sort": SoftSort(0.2, tol=1e-13),
    "rank": SoftRank(0.2, tol=1e-13),
    "top": SoftTopK(2, 0.2, tol=1e-13),
    "least": SoftTopK(1, 0.2, largest=False, tol=1e-13),
    "quantile": SoftQuantile([0.25, 0.5], 0.2, tol=1e-13),
    "carry": lambda x, w=None, m=None: SoftSort(0.2, tol=1e-13).carry(
        x, TABLE[..., : x.shape[-1], :].expand(*x.shape, 3), w, m
    ),
}
TABLE = uniform(9, 7, 3)


@pytest.mark.parametrize("name", LAYERS)
def test_a_masked_list_is_the_list_without_what_is_masked(name):
    layer, x, w = LAYERS[name], uniform(3, 2, 7), uniform(4, 2, 7) + 0.1
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[1, 5:] = False
    x[~mask], w[~mask] = torch.nan, torch.nan  # not read
    found, alone = layer(x, w, mask), layer(x[1, :5], w[1, :5])
    kept = found[1] if name == "quantile" else found[1, :5]
    torch.testing.assert_close(kept, alone, atol=1e-9, rtol=0)
    assert name == "quantile" or (found[1, 5:] == 0).all()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_finite_differences(name, masked):
    mask = torch.tensor([[True] * 5, [True, False, True, True, True]]) if masked else None
    inputs = [(uniform(5, 2, 5) * 3).requires_grad_(), (uniform(6, 2, 5) + 0.3).requires_grad_()]
    assert gradcheck(lambda x, w: LAYERS[name](x, w, mask), inputs)
    assert gradcheck(lambda x: LAYERS[name](x, None, mask), inputs[:1])


def test_gradients_near_the_limit_are_those_of_the_limit():
    """Sorting moves each gradient to its item; the median's gradient is all on the median."""
    x = torch.tensor([3.0, -1.0, 2.0, 7.0, 5.0], dtype=torch.float64, requires_grad=True)
    probe = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    (grad,) = torch.autograd.grad((SoftSort(2e-3)(x) * probe).sum(), x)
    torch.testing.assert_close(grad, probe[x.argsort().argsort()], atol=1e-3, rtol=0)
    (grad,) = torch.autograd.grad(SoftQuantile(0.5, 2e-3)(x), x)
    torch.testing.assert_close(grad, torch.tensor([1.0, 0, 0, 0, 0]).double(), atol=1e-3, rtol=0)


def test_the_table_is_carried_as_the_values_are():
    x = uniform(7, 2, 6)
    soft = SoftSort(0.05, tol=1e-10)
    carried = soft.carry(x, torch.stack([x, 2 * x, torch.ones_like(x)], -1))
    torch.testing.assert_close(carried[..., 0], soft(x))
    torch.testing.assert_close(carried[..., 1], 2 * soft(x))
    torch.testing.assert_close(carried[..., 2], torch.ones(2, 6).double(), atol=1e-8, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LAYERS)
def test_the_dtype_of_the_input_comes_back_with_gradients_within_two_percent(name, dtype):
    x, found = uniform(8, 4, 7).to(dtype), []
    for kind in (torch.float64, dtype):
        values = x.to(kind).requires_grad_()
        out = LAYERS[name](values)
        assert out.dtype == (torch.float64 if name == "carry" else kind)
        (out * torch.linspace(-1, 1, out[0].numel()).reshape(out[0].shape).to(out)).sum().backward()
        found.append(values.grad.double())
    assert float((found[1] - found[0]).norm() / found[0].norm()) < 0.02


def test_equal_values_share_and_have_gradients():
    x = torch.full((4,), 2.0, requires_grad=True)
    for layer, expected in ((SoftTopK(1), [0.25] * 4), (SoftRank(), [1.5] * 4), (SoftQuantile([0.1]), [2.0])):
        out = layer(x)
        np.testing.assert_allclose(out.detach(), expected, atol=1e-5)
        (grad,) = torch.autograd.grad(out.square().sum(), x)
        assert grad.isfinite().all()


NONE = torch.tensor([[True, True], [False, False]])
BAD = [
    (lambda: SoftTopK(0), "k must be a whole number of at least 1, got 0"),
    (lambda: SoftTopK(3)(torch.zeros(2)), "k must be at most the 2 values, got 3"),
    (lambda: SoftTopK(2)(torch.zeros(2, 2), mask=torch.tensor([True, False])), "k exceeds the number of present values"),
    (lambda: SoftQuantile(1.5), "q must be a number from 0 to 1, or several, got 1.5"),
    (lambda: SoftQuantile([]), r"q must be a number from 0 to 1, or several, got \[\]"),
    (lambda: SoftQuantile([0.5, -0.1]), "q must be zero or a positive"),
    (
        lambda: SoftSort()(torch.zeros(2, 2), mask=NONE),
        "problem 1: weights must have a positive sum over the present entries, got all zeros",
    ),
    (
        lambda: SoftRank()(torch.zeros(2, 2), torch.zeros(2)),
        "weights must have a positive sum over the present entries, got all zeros",
    ),
    (lambda: SoftRank()(torch.zeros(2), torch.tensor([2.0, -1.0])), "weights must not be negative"),
    (
        lambda: SoftSort()(torch.zeros(2), torch.zeros(3)),
        r"weights must be a tensor of floats that broadcasts to \(2,\), got \(3,\)",
    ),
    (lambda: SoftSort()(torch.zeros(2), mask=torch.zeros(2)), r"mask must be a boolean tensor that broadcasts to \(2,\)"),
    (lambda: SoftSort().carry(torch.zeros(2), torch.zeros(3, 1)), r"columns must be a tensor of floats of shape \(2, 'c'\)"),
    (lambda: SoftSort()(torch.tensor([1.0, torch.inf])), "values must be finite, got nan or inf among them"),
    (lambda: SoftSort(torch.tensor(0.1, requires_grad=True)), "reg must not require a gradient here"),
    (lambda: SoftTopK(1, torch.tensor(0.1, requires_grad=True)), "reg must not require a gradient here"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_an_item_without_weight_does_not_overflow_beside_tiny_values():
    """Found by tests/properties/test_nn.py: 0 · (1/1e-307)² is no number, and the variance was taken as 1."""
    values = torch.tensor([1.0, 0.0, 2.0**-1020], dtype=torch.float64)
    weights = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
    found, alone = SoftSort(0.3)(values, weights)[:2], SoftSort(0.3)(values[1:])
    torch.testing.assert_close(found * 2.0**1020, alone * 2.0**1020)


@pytest.mark.parametrize("reg", [1e-5, 1e-3, 0.1, 1.0, 1e9])
@pytest.mark.parametrize("n", [2, 11, 32])
def test_small_lists_need_no_second_solver(n, reg, monkeypatch):
    """The start is near enough at every reg: before there was one, half of these lists went on to the large solvers."""
    monkeypatch.setattr(balance_large, "finish", lambda *_: pytest.fail("not converged in a few steps"))
    normal, w = torch.randn(30, n, generator=torch.Generator().manual_seed(0)).double(), uniform(1, 30, n)
    for x in (normal, normal**5, normal.round(), (100 * normal.sign() + normal)):
        for weights in (None, w, torch.where(w > 0.5, w, 0.0) + torch.eye(n)[0]):
            for layer in (SoftRank(reg), SoftTopK(1, reg), SoftQuantile([0.0, 0.4], reg)):
                assert layer(x, weights).isfinite().all()
