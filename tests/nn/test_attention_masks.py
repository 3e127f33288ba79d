"""Masks of `SinkhornAttention` as they come: of queries alone, as large negative numbers, learned; sums where it is hard."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from otformer.nn import SinkhornAttention
from otformer.nn.attention_bias import BiasGoal
from otformer.nn.attention_heads import QKV, streamed

WAYS = [{}, {"unbalanced": 0.7}, {"executor": "stream"}, {"executor": "stream", "unbalanced": 0.7}]


def tokens(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer(**options) -> SinkhornAttention:
    torch.manual_seed(0)
    return SinkhornAttention(8, 2, batch_first=True, **({"dtype": torch.float64, "tol": 1e-12} | options))


@pytest.mark.parametrize("options", WAYS)
def test_a_token_that_is_no_query_is_still_a_key(options):
    module, x, gone = layer(**options), tokens(0, 1, 5, 8), torch.tensor([[False] * 4 + [True]])
    given, copies = x.clone().requires_grad_(), [x.clone().requires_grad_() for _ in range(3)]
    one, _ = module(given, given, given, need_weights=False, query_padding_mask=gone)
    several, _ = module(*copies, need_weights=False, query_padding_mask=gone)
    torch.testing.assert_close(one, several)
    one.square().sum().backward()
    several.square().sum().backward()
    torch.testing.assert_close(given.grad, sum(t.grad for t in copies))
    assert float(given.grad[0, 4].norm()) > 0


@pytest.mark.parametrize("options", WAYS)
def test_a_learned_bias_of_keys_has_the_gradient_of_finite_differences(options):
    module, x, bias = layer(**options), tokens(1, 2, 5, 8), tokens(2, 2, 4).requires_grad_()
    y = tokens(3, 2, 4, 8)
    assert gradcheck(lambda bias: module(x, y, y, bias, need_weights=False)[0], (bias,), atol=1e-7)


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        *((torch.float32, number) for number in (-1e4, -1e9, torch.finfo(torch.float32).min)),
        *((torch.bfloat16, number) for number in (-1e4, torch.finfo(torch.bfloat16).min)),
        (torch.float16, torch.finfo(torch.float16).min),
        (torch.float64, -1e9),
    ],
)
def test_large_negative_numbers_forbid_as_minus_infinity_does(options, dtype, number):
    module, x, absent = layer(**options), tokens(4, 2, 6, 8), torch.zeros(2, 6, dtype=torch.bool)
    absent[0, 4:] = True
    padding = torch.zeros(2, 6, dtype=dtype).masked_fill(absent, number)
    expected, _ = module(x, x, x, absent, need_weights=False)
    torch.testing.assert_close(module(x, x, x, padding, need_weights=False)[0], expected)
    if "executor" not in options:
        forbidden = torch.eye(6, dtype=torch.bool)
        added = torch.zeros(6, 6, dtype=dtype).masked_fill(forbidden, number)
        weights = module(x, x, x, padding, attn_mask=added)[1].detach()
        assert float(weights[0, :, 4:].abs().max()) == 0
        assert float(weights[:, forbidden].abs().max()) == 0
        torch.testing.assert_close(weights, module(x, x, x, absent, attn_mask=forbidden)[1].detach())


def test_numbers_above_are_added():
    """−9,000 on a whole column is taken off again by its bias, so that nothing changes; on one entry it is as good as −∞."""
    module, x, bias = layer(), tokens(5, 1, 6, 8), torch.zeros(1, 6).double()
    bias[0, 2] = -9e3
    torch.testing.assert_close(module(x, x, x, bias)[1], module(x, x, x)[1], atol=1e-9, rtol=0)


def test_rows_are_exact_where_no_matrix_has_the_columns():
    module, x = layer(dtype=torch.float32, tol=1e-6), tokens(6, 1, 6, 8).float()
    forbidden = torch.zeros(6, 6, dtype=torch.bool)
    forbidden[:4, 1:] = True  # four queries see one key, whose column sum is to be 1
    given = x.clone().requires_grad_()
    with pytest.warns(RuntimeWarning, match="not converged"):
        out, weights = module(given, given, given, attn_mask=forbidden, average_attn_weights=False)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 6))
    out.square().sum().backward()
    assert given.grad.isfinite().all()


@pytest.mark.parametrize("sizes", [(3, 48), (48, 3), (20, 30), (40, 90)])
def test_columns_are_within_tol_as_a_factor_whatever_there_is_more_of(sizes):
    tol, (n, m) = 1e-3, sizes
    module, x, y = layer(tol=tol), 3 * tokens(7, 4, n, 8), 3 * tokens(8, 4, m, 8)
    weights = module(x, y, y, average_attn_weights=False)[1].detach()
    assert float((weights.sum(-2) * m / n - 1).abs().max()) <= tol
    assert float((weights.sum(-1) - 1).abs().max()) <= tol


@pytest.mark.parametrize("size", [5.0, 20.0, 40.0])
@pytest.mark.parametrize("tol", [1e-6, 2e-5])
def test_streamed_float32_holds_tol_or_says_that_it_does_not(size, tol):
    """With the unit matrix for values the output is A itself; logits are up to 60, 250 and 500 here."""
    n, d = 64, 64
    q, k = (size**0.5 * tokens(seed, 1, n, d).float() / d**0.25 for seed in (9, 10))
    heads = QKV(q, k, torch.eye(n)[None], torch.zeros(1, n), torch.ones(1, n, dtype=torch.bool), None, False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        A = streamed(heads, BiasGoal(torch.inf, tol, 10_000), 0.0).double()
    off = float((A.sum(1) - 1).abs().max())
    assert off <= tol + 2e-7 or any("not converged" in str(w.message) for w in said)  # 2e-7: A in float32
    assert not said or size > 20


def test_a_stream_that_stops_early_says_by_how_much_its_columns_are_off():
    q, k, n = tokens(9, 2, 12, 4), tokens(10, 2, 12, 4), 12
    there = torch.ones(2, n, dtype=torch.bool)
    heads = QKV(q, k, torch.eye(n).double().expand(2, n, n), torch.zeros(2, n), there, None, False)
    with pytest.warns(RuntimeWarning, match="not converged: 2 of 2 heads") as said:
        A = streamed(heads, BiasGoal(torch.inf, 1e-9, 3), 0.0)
    off = float(A.sum(1).log().abs().max().exp())
    assert f"off by a factor of up to {off:.6g}, tol is 1e-09" in str(said[0].message)


@pytest.mark.parametrize("options", WAYS)
def test_no_queries_are_no_output_and_no_keys_an_error(options):
    module, none, y = layer(**options), torch.zeros(2, 0, 8).double(), tokens(11, 2, 4, 8)
    assert module(none, y, y, need_weights=False)[0].shape == (2, 0, 8)
    assert module(none, none, none, need_weights=False)[0].shape == (2, 0, 8)
    with pytest.raises(ValueError, match="key must have a token to attend to, got a sequence of length 0"):
        module(y, none, none, need_weights=False)


@pytest.mark.parametrize("options", [{}, {"kdim": 5, "vdim": 7}, {"add_bias_kv": True}])
def test_parameters_are_reset_as_torch_does(options):
    """As some initialisers of whole models do, by this name."""
    found = []
    for kind in (nn.MultiheadAttention, SinkhornAttention):
        torch.manual_seed(1)
        module = kind(8, 2, **options)
        module._reset_parameters()  # not as it was: random numbers go on
        found.append(module.state_dict())
    torch.testing.assert_close(*found)
