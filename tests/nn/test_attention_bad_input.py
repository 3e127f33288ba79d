"""What `SinkhornAttention` refuses, each in one line; what is empty, or sharp beyond measure, comes out finite."""

from __future__ import annotations

import pytest
import torch

from otformer.nn import SinkhornAttention

WAYS = [{}, {"unbalanced": 0.7}, {"executor": "stream"}, {"executor": "stream", "unbalanced": 0.7}]


def layer(**options) -> SinkhornAttention:
    torch.manual_seed(0)
    return SinkhornAttention(16, 2, batch_first=True, **options)


X, Y = torch.randn(2, 6, 16), torch.randn(2, 4, 16)
LATER = torch.ones(6, 6, dtype=torch.bool).triu(1)
NONE = torch.zeros(2, 6, dtype=torch.bool)
NONE[1] = True
ROW = torch.zeros(6, 6, dtype=torch.bool)
ROW[2] = True
BAD = [
    (lambda: layer(temperature=0), "temperature must be a positive, finite number, got 0"),
    (lambda: layer(unbalanced=-1.0), "unbalanced must be a positive, finite number, got -1.0"),
    (lambda: SinkhornAttention(16, 3), "num_heads must divide embed_dim = 16, got 3"),
    (lambda: layer(executor="flash"), "executor must be one of auto, dense, stream, got 'flash'"),
    (lambda: layer(dropout=1.0), "dropout must be at least 0 and below 1, got 1.0"),
    (lambda: layer()(X, X, X, NONE), "key_padding_mask leaves no key of sequence 1"),
    (lambda: layer()(X, Y, Y, query_padding_mask=NONE), "query_padding_mask leaves no query of sequence 1"),
    (lambda: layer()(X, X, X, attn_mask=ROW), "leaves query 2 no key to attend to, in head 0"),
    (lambda: layer()(X, X, X, attn_mask=ROW.T), "column 2 has mass, but every entry of it is forbidden"),
    (lambda: layer()(X, X, X, is_causal=True), "a doubly stochastic lower triangular matrix is the identity"),
    (lambda: layer()(X, X, X, attn_mask=LATER), "a doubly stochastic lower triangular matrix is the identity"),
    (lambda: layer()(X, X, X, attn_mask=LATER[:4]), r"attn_mask must be .* \(6, 6\) or \(4, 6, 6\), got \(4, 6\)"),
    (lambda: layer()(X, X, X, attn_mask=torch.full((6, 6), torch.nan)), "attn_mask must be finite, or -inf"),
    (lambda: layer()(X / 0, X, X), "query must be finite, and its projection within torch.float32, got nan or inf"),
    (lambda: layer().half()(6e4 * X.half(), X.half(), X.half()), "query must be finite, and its projection within"),
    (lambda: layer()(1e25 * X, 1e25 * X, X), "query and key must have finite products, got some beyond"),
    (lambda: layer(executor="stream")(1e25 * X, 1e25 * X, X, need_weights=False), "must have finite products"),
    (lambda: layer(executor="stream")(X, X, X), "does not hold the matrix, but need_weights=True returns it"),
    (
        lambda: layer(executor="stream")(X, X, X, need_weights=False, attn_mask=ROW),
        "does not hold the matrix, but an attn_mask that is not causal",
    ),
    (lambda: layer()(X.double(), X.double(), X.double()), "query must be torch.float32 as the weights are"),
    (lambda: layer()(X, Y[0], Y), r"key must be a tensor of floats of shape \(N, L, E\) with E = 16, got \(4, 16\)"),
    (lambda: layer()(X, Y, X), "key and value one length, got"),
    (lambda: layer()(X, X.long(), X), "key must be a tensor of floats"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_a_temperature_that_was_set_to_0_is_said():
    module = layer()
    module.temperature = 0.0
    with pytest.raises(ValueError, match="temperature must be a positive, finite number"):
        module(X, X, X)


@pytest.mark.parametrize("options", WAYS)
def test_empty_sequences(options):
    out, _ = layer(**options)(*[torch.zeros(0, 5, 16)] * 3, need_weights=False)
    assert out.shape == (0, 5, 16)


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_sharp_logits_are_never_nan(options):
    for scale in (10.0, 1e3, 1e6):
        x = (scale * torch.randn(1, 12, 16, generator=torch.Generator().manual_seed(28))).requires_grad_()
        out, _ = layer(max_depth=200, **options)(x, x, x, need_weights=False)
        out.sum().backward()
        assert out.isfinite().all()
        assert x.grad.isfinite().all()
