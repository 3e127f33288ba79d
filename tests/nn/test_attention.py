"""`SinkhornAttention` against its definition, finite differences and torch's own attention; with the matrix and without."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from otformer.nn import SinkhornAttention

WAYS = [{}, {"unbalanced": 0.7}, {"executor": "stream"}, {"executor": "stream", "unbalanced": 0.7}]
LATER = torch.ones(6, 6, dtype=torch.bool).triu(1)


def tokens(seed: int, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer(**options) -> SinkhornAttention:
    torch.manual_seed(0)
    return SinkhornAttention(16, 2, **({"batch_first": True, "dtype": torch.float64, "tol": 1e-12} | options))


def literal(X: torch.Tensor, rho: float | None) -> torch.Tensor:
    """Softmax, then columns and rows of the logits in turn until nothing moves by 1e-12; with ρ columns give way.

    Whole rows and columns of −∞ are not there: n and m count the others.
    """
    rows, columns = ~X.isneginf().all(-1, keepdim=True), ~X.isneginf().all(-2, keepdim=True)
    log_b = (rows.sum().double() / columns.sum()).log()
    f, g, kappa = torch.zeros_like(X[..., :1]), torch.zeros_like(X[..., :1, :]), 1.0 if rho is None else rho / (1 + rho)
    for _ in range(20_000):
        f = torch.where(rows, -(X + g).logsumexp(-1, keepdim=True), 0.0)
        new = torch.where(columns, kappa * (log_b - (X + f).logsumexp(-2, keepdim=True)), 0.0)
        moved, g = float((new - g).abs().max()), new
        if moved < 1e-12:
            break
    return (X + f + g).exp()


def heads_of(module: SinkhornAttention, query, key, value) -> list[torch.Tensor]:
    """Projections [N, heads, length, d], written out."""
    weights, biases = module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3)
    parts = zip((query, key, value), weights, biases, strict=True)
    return [(t @ w.T + b).unflatten(2, (module.num_heads, -1)).transpose(1, 2) for t, w, b in parts]


def defined(module: SinkhornAttention, query, key, value, add=0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and weights of every head, by the definition."""
    q, k, v = heads_of(module, query, key, value)
    X = q @ k.mT / (math.sqrt(q.shape[-1]) * module.temperature) + add
    rho = None if module.unbalanced is None else module.unbalanced / module.temperature
    A = torch.stack([torch.stack([literal(x, rho) for x in one]) for one in X.detach()])
    return module.out_proj((A @ v).transpose(1, 2).flatten(2)), A


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("sizes", [(6, 6), (4, 7), (40, 33)])
def test_it_is_the_definition(options, sizes):
    module = layer(temperature=0.8, **options)
    x, y, z = tokens(0, 2, sizes[0], 16), tokens(1, 2, sizes[1], 16), tokens(2, 2, sizes[1], 16)
    expected, A = defined(module, x, y, z)
    torch.testing.assert_close(module(x, y, z, need_weights=False)[0], expected, atol=1e-9, rtol=0)
    assert float((A.sum(-1) - 1).abs().max()) < 1e-12
    if "executor" not in options:
        out, weights = module(x, y, z, average_attn_weights=False)
        torch.testing.assert_close(out, expected, atol=1e-9, rtol=0)
        torch.testing.assert_close(weights, A, atol=1e-9, rtol=0)
        torch.testing.assert_close(module(x, y, z)[1], A.mean(1), atol=1e-9, rtol=0)
    if "unbalanced" not in options:
        assert float((A.sum(-2) - sizes[0] / sizes[1]).abs().max()) < 1e-10


@pytest.mark.parametrize("options", WAYS)
def test_defaults_in_float32_are_the_definition_to_1e_6(options):
    x = tokens(3, 2, 50, 16, scale=1.0)
    module, single = layer(**options), layer(dtype=torch.float32, tol=1e-6, **options)
    single.load_state_dict(module.state_dict())
    expected, _ = defined(module, x, x, x)
    out, _ = single(*[x.float()] * 3, need_weights=False)
    torch.testing.assert_close(out.double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("options", WAYS)
def test_padding_takes_no_part(options):
    """Every sequence of a padded batch as alone; what is masked may be nan, and has no gradient."""
    module, x = layer(**options), tokens(4, 3, 6, 16)
    absent = torch.zeros(3, 6, dtype=torch.bool)
    absent[1, 4:], absent[2, [0, 3]] = True, True
    given = x.masked_fill(absent[:, :, None], torch.nan).requires_grad_()
    for mask in (absent, torch.zeros(3, 6).masked_fill(absent, -torch.inf)):  # as TransformerEncoderLayer gives it
        out, weights = module(given, given, given, mask, need_weights="executor" not in options)
        for k in range(3):
            alone = x[k][~absent[k]]
            torch.testing.assert_close(out[k][~absent[k]], module(alone, alone, alone, need_weights=False)[0])
        if weights is not None:
            assert (weights.mT[absent] == 0).all()
            assert (weights[absent] == 0).all()
    module.zero_grad()
    out[~absent].square().sum().backward()
    assert all(p.grad.isfinite().all() for p in module.parameters())
    assert given.grad.isfinite().all()
    assert (given.grad[absent] == 0).all()


def test_queries_can_be_absent_by_themselves_and_keys_have_biases():
    x, y, gone = tokens(5, 2, 6, 16), tokens(6, 2, 4, 16), torch.zeros(2, 6, dtype=torch.bool)
    gone[1, :2], bias = True, tokens(7, 2, 4)
    for options in WAYS:
        module = layer(**options)
        out, _ = module(x, y, y, bias, need_weights=False, query_padding_mask=gone)
        expected, _ = defined(module, x[1:, 2:], y[1:], y[1:], bias[1])
        torch.testing.assert_close(out[1, 2:], expected[0], atol=1e-9, rtol=0)


@pytest.mark.parametrize("rho", [None, 0.7])
def test_masks_forbid_or_add(rho):
    module, x = layer(unbalanced=rho), tokens(8, 2, 6, 16)
    forbidden = torch.eye(6, dtype=torch.bool)
    for mask in (forbidden, tokens(9, 6, 6), tokens(10, 4, 6, 6)):
        add = torch.zeros(6, 6).masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else mask
        add = add.reshape(-1, 2, 6, 6) if add.ndim == 3 else add
        out, weights = module(x, x, x, attn_mask=mask, average_attn_weights=False)
        expected, A = defined(module, x, x, x, add)
        torch.testing.assert_close(out, expected, atol=1e-9, rtol=0)
        torch.testing.assert_close(weights, A, atol=1e-9, rtol=0)


@pytest.mark.filterwarnings("ignore:with a causal mask")
@pytest.mark.parametrize("executor", ["dense", "stream"])
def test_a_causal_mask_with_soft_columns_and_that_it_leaks(executor):
    module, x = layer(unbalanced=0.7, executor=executor), tokens(11, 1, 6, 16)
    expected, A = defined(module, x, x, x, torch.zeros(6, 6).masked_fill(LATER, -torch.inf))
    assert float(A[..., LATER].abs().max()) == 0
    for given in ({"is_causal": True}, {"attn_mask": LATER}, {"attn_mask": LATER, "is_causal": True}):
        torch.testing.assert_close(module(x, x, x, need_weights=False, **given)[0], expected, atol=1e-9, rtol=0)
    other = x.clone()
    other[:, 5] += 1
    moved = module(other, other, other, need_weights=False, is_causal=True)[0] - expected.detach()
    assert float(moved[:, :5].detach().abs().max()) > 1e-3  # what the warning says
    with pytest.warns(RuntimeWarning, match="later tokens change earlier outputs"):
        module(x, x, x, need_weights=False, is_causal=True)


@pytest.mark.filterwarnings("ignore:with a causal mask")
@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_those_of_finite_differences(options, masked):
    module, masks = layer(**options), {}
    if masked:
        masks["key_padding_mask"] = torch.tensor([[False] * 4, [False, False, False, True]])
        if "executor" not in options:
            masks["attn_mask"] = torch.eye(5, 4, dtype=torch.bool)
        elif "unbalanced" in options:
            masks["is_causal"] = True

    def run(x, y, z, weight):
        weights = {"in_proj_weight": weight}
        return torch.func.functional_call(module, weights, (x, y, z), masks | {"need_weights": False})[0]

    inputs = [tokens(12, 2, 5, 16), tokens(13, 2, 4, 16), tokens(14, 2, 4, 16), module.in_proj_weight.detach()]
    assert gradcheck(run, [t.requires_grad_() for t in inputs], fast_mode=True)


def test_gradients_of_weights_and_of_a_learned_mask():
    module, x = layer(unbalanced=0.7), tokens(15, 1, 4, 16)
    mask = tokens(16, 4, 4).requires_grad_()
    assert gradcheck(lambda mask: module(x, x, x, attn_mask=mask), (mask,))
    (once,) = torch.autograd.grad(module(x, x, x, attn_mask=mask)[0].sum(), mask, create_graph=True)
    with pytest.raises(RuntimeError, match="this layer can be differentiated once"):
        once.square().sum().backward()


@pytest.mark.parametrize("rho", [None, 0.7])
def test_streamed_is_dense_with_gradients(rho):
    x, found = tokens(17, 2, 300, 16, scale=1.0), {}
    for executor in ("dense", "stream"):
        module, given = layer(unbalanced=rho, executor=executor, tol=1e-10), x.clone().requires_grad_()
        out, _ = module(given, given, given, need_weights=False)
        out.square().sum().backward()
        found[executor] = out.detach(), given.grad, module.in_proj_weight.grad
    for dense, streamed in zip(*found.values(), strict=True):
        torch.testing.assert_close(streamed, dense, atol=1e-8, rtol=1e-7)


def test_columns_that_cost_nothing_are_softmax_attention_and_dear_ones_transport():
    torch.manual_seed(0)
    plain, x = nn.MultiheadAttention(16, 2, batch_first=True, dtype=torch.float64), tokens(18, 2, 6, 16)
    for rho, reference, atol in ((1e-9, plain, 1e-7), (1e7, layer(), 1e-5)):
        module = layer(unbalanced=rho)
        module.load_state_dict(reference.state_dict())
        torch.testing.assert_close(module(x, x, x), reference(x, x, x), atol=atol, rtol=0)


@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"kdim": 5, "vdim": 7}, {"add_bias_kv": True, "add_zero_attn": True}, {"batch_first": True}],
)
def test_state_dicts_go_both_ways_and_shapes_are_the_same(options):
    torch.manual_seed(0)
    theirs, ours = nn.MultiheadAttention(16, 2, **options), SinkhornAttention(16, 2, unbalanced=1e-8, **options)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    query, key, value = (torch.randn(4, 3, dim) for dim in (16, options.get("kdim", 16), options.get("vdim", 16)))
    for given in ((query, key, value), (query[0], key[1], value[1])):  # batches, and none
        for average in (True, False):
            for own, expected in zip(*(m(*given, average_attn_weights=average) for m in (ours, theirs)), strict=True):
                torch.testing.assert_close(own, expected, atol=1e-5, rtol=0)
    ours.unbalanced = None
    weights = ours(query, key, value)[1].detach()
    n, m = weights.shape[-2:]
    torch.testing.assert_close(weights.sum(-2), torch.full_like(weights[..., 0, :], n / m))
    torch.testing.assert_close(copy.deepcopy(ours)(query, key, value), ours(query, key, value))


@pytest.mark.parametrize("replace", ["layer", "encoder"])
def test_inside_torchs_encoder_in_training_and_in_evaluation(replace):
    """In evaluation torch would compute softmax attention itself, from the parameters, and nest padded batches."""
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    attention = SinkhornAttention(16, 2, batch_first=True, tol=1e-8)
    if replace == "layer":
        block.self_attn = attention
    encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=replace == "encoder")
    if replace == "encoder":
        for one in encoder.layers:
            one.self_attn = copy.deepcopy(attention)
    seen = []
    for one in encoder.layers:
        one.self_attn.out_proj.register_forward_hook(lambda *_: seen.append(1))
    x, absent = torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)
    absent[1, 3:] = True
    trained = encoder(x, src_key_padding_mask=absent).detach()
    assert len(seen) == 2
    encoder.eval()
    with torch.no_grad():
        torch.testing.assert_close(encoder(x, src_key_padding_mask=absent)[~absent], trained[~absent])
        alone = encoder.layers[0](x[:1])
    assert len(seen) == 5
    first = encoder.layers[0]
    expected = first.norm1(x[:1] + first.self_attn(x[:1], x[:1], x[:1])[0])
    torch.testing.assert_close(alone, first.norm2(expected + first._ff_block(expected)))


def test_nested_input():
    module = layer()
    parts = [tokens(19, 3, 16), tokens(20, 5, 16)]
    nested = torch.nested.as_nested_tensor(parts)
    for part, own in zip(parts, module(nested, nested, nested, need_weights=False)[0].unbind(), strict=True):
        torch.testing.assert_close(own, module(part, part, part)[0])


@pytest.mark.parametrize("options", WAYS)
def test_low_precision_and_autocast(options):
    x, probe, found = tokens(21, 2, 40, 16, scale=1.0).float(), tokens(22, 2, 40, 16).float(), {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16, "autocast"):
        module = layer(dtype=torch.float32, tol=1e-5, **options).to(torch.float32 if dtype == "autocast" else dtype)
        given = x.to(module.in_proj_weight.dtype).clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "autocast"):
            out, _ = module(given, given, given, need_weights=False)
        assert out.dtype == (torch.bfloat16 if dtype == "autocast" else dtype)
        (out.float() * probe).sum().backward()
        found[dtype] = out.detach().float(), given.grad.float()
    reference = found.pop(torch.float32)
    for pair in found.values():
        for own, expected in zip(pair, reference, strict=True):
            assert float((own - expected).norm() / expected.norm()) < 0.02


def test_the_bias_of_a_bfloat16_key_keeps_its_digits():
    """Values of 1 in one column: the output is that column's share, summed over rows n/m."""
    from otformer.nn.attention_bias import BiasGoal
    from otformer.nn.attention_heads import QKV, streamed

    q, k = (tokens(seed, 1, 200, 8, scale=1.5).bfloat16() for seed in (23, 24))
    v = torch.eye(200, 8)[None].bfloat16()
    heads = QKV(q, k, v, torch.zeros(1, 200), torch.ones(1, 200, dtype=torch.bool), None, False)
    sums = streamed(heads, BiasGoal(math.inf, 1e-6, 1000), 0.0).float().sum(1)
    assert float((sums - 1).abs().max()) < 2e-3


def test_dropout_is_on_the_weights():
    module, x = layer(dropout=0.5), tokens(26, 1, 6, 16)
    weights = module(x, x, x, average_attn_weights=False)[1]
    assert 0 < int((weights == 0).sum()) < weights.numel()
    module.eval()
    torch.testing.assert_close(module(x, x, x)[1].sum(1), torch.ones(1, 6).double())
