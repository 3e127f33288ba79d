"""The network inside unmodified torch.nn.TransformerEncoderLayer: what LayerNorm allows and what it does not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from network.test_stock import damped_sinkhorn, gap, weights
from oracles import points, squared_cost
from otformer.network.schedule import Annealed, Relaxed
from otformer.network.stock_encoder import StockEncoder
from otformer.network.transformer import AligningTransformer
from otformer.transport.reference import gradient_descent


def updated_sink(C: Tensor, reg: float, depth: int) -> list[tuple[Tensor, Tensor]]:
    """The paper's sink row by hand: the sink gets duals u', v' of its own, and v' is its logit for every row.

    Its own logits are u'/λ towards each of n tokens and 0 towards itself: u' ← u' − λ tanh(½(log n + u'/λ)).
    """
    n = len(C)
    u, v, own = torch.zeros_like(C[:, 0]), torch.zeros_like(C[0]), torch.zeros((), dtype=C.dtype)
    iterates = [(u, v)]
    for _ in range(depth):
        H = (u[:, None] + v - C) / reg - 1
        step_u, step_v = torch.tanh((H.logsumexp(1) - own / reg) / 2), torch.tanh((H.logsumexp(0) - own / reg) / 2)
        own = own - reg * torch.tanh((torch.tensor(n).double().log() + own / reg) / 2)
        u, v = u - reg * step_u, v - reg * step_v
        iterates.append((u, v))
    return iterates


@pytest.mark.slow
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize(("d", "n", "reg"), [(1, 1, 1.0), (2, 8, 0.05), (5, 33, 0.1)])
def test_frozen_sink_is_gradient_descent_at_every_layer(d: int, n: int, reg: float, norm_first: bool) -> None:
    x, y = points(0, (n, d), (n, d))
    encoder = StockEncoder(AligningTransformer(d, reg, 1000), norm_first=norm_first)
    assert gap(encoder(x, y), gradient_descent(squared_cost(x, y), reg, reg), 1000) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("marginals", [True, False])
def test_token_sink_is_the_papers_network(marginals: bool) -> None:
    x, y = points(0, (8, 2), (8, 2))
    encoder = StockEncoder(AligningTransformer(2, 0.1, 1000, sink="token", marginals=marginals))
    run = encoder(x, y)
    assert gap(run, updated_sink(squared_cost(x, y), 0.1, 1000), 1000) < 1e-12
    assert gap(run, gradient_descent(squared_cost(x, y), 0.1, 0.1), 1000) > 0.1  # and that is not gradient descent


def test_modules_are_torchs_own() -> None:
    encoder = StockEncoder(AligningTransformer(2, 0.1, 4, "alternating"))
    assert [type(m) for m in encoder.layers] == [nn.TransformerEncoderLayer] * 2
    for module in encoder.layers:
        kinds = [type(m) for m in module.modules() if next(m.children(), None) is None]
        assert {nn.LayerNorm, nn.Linear, nn.Dropout} <= set(kinds)
        assert type(module.self_attn) is nn.MultiheadAttention
        assert module.norm1.eps == module.norm2.eps == 1e-5  # torch's default
        assert not module.linear1.weight.any()
        assert not module.linear2.weight.any()


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [Relaxed(1.5), Annealed(stages=12)])
@pytest.mark.parametrize("heads", [2, 3, 4])
def test_weights_sizes_schedules_heads(schedule: Relaxed | Annealed, heads: int) -> None:
    """n ≠ m: the absent points are masked. λ = 0.001 is far enough for the null token to be tried hard."""
    x, y = points(0, (7, 2), (4, 2))
    a, b = weights(7, 1.0, seed=3), weights(4, 1.0, seed=4)
    for reg in (0.001, 0.05):
        encoder = StockEncoder(AligningTransformer(2, reg, 120, schedule), heads)
        iterates = damped_sinkhorn(squared_cost(x, y), schedule, reg, 120, a, b)
        assert gap(encoder(x, y, a, b), iterates, 120) < 1e-12


def test_fast_path_of_torch() -> None:
    """In eval mode torch runs one fused kernel instead of the module's lines; both give the same."""
    x, y = points(0, (6, 2), (6, 2))
    encoder = StockEncoder(AligningTransformer(2, 0.1, 200))
    was = torch.backends.mha.get_fastpath_enabled()
    try:
        for fast in (True, False):
            torch.backends.mha.set_fastpath_enabled(fast)
            assert gap(encoder(x, y), gradient_descent(squared_cost(x, y), 0.1, 0.1), 200) < 1e-12
    finally:
        torch.backends.mha.set_fastpath_enabled(was)


def test_float32() -> None:
    x, y = points(0, (8, 2), (8, 2))
    encoder = StockEncoder(AligningTransformer(2, 0.1, 200), dtype=torch.float32)
    assert gap(encoder(x.float(), y.float()), gradient_descent(squared_cost(x, y), 0.1, 0.1), 200) < 1e-5


def error(encoder: StockEncoder) -> float:
    x, y = points(0, (8, 2), (8, 2))
    return gap(encoder(x, y), updated_sink(squared_cost(x, y), 0.1, 100), 100)


@pytest.mark.slow
def test_layer_norm_alone_breaks_it() -> None:
    """Without anchor, at torch's eps, whatever constant the norm is multiplied by."""
    net = AligningTransformer(2, 0.1, 100, sink="token", marginals=False)
    encoder = StockEncoder(net, anchor=0)
    errors = []
    for w in torch.logspace(-2, 2, 17).tolist():
        for module in encoder.layers:
            module.norm1.weight.fill_(w)
        errors.append(error(encoder))
    assert min(errors) > 0.05


def test_error_of_layer_norm_falls_with_the_square_of_the_anchor() -> None:
    net = AligningTransformer(2, 0.1, 100, sink="token", marginals=False)
    coarse, fine = (error(StockEncoder(net, anchor=2.0**k)) for k in (8, 12))
    assert 1e-9 < fine < coarse < 0.01
    assert coarse / fine == pytest.approx(2.0**8, rel=0.1)
    assert error(StockEncoder(net, anchor=2.0**48)) < 1e-13


def test_error_of_layer_norm_falls_with_eps() -> None:
    """The other way: no anchor, an eps that dwarfs every variance."""
    net = AligningTransformer(2, 0.1, 100, sink="token", marginals=False)
    coarse, fine = (error(StockEncoder(net, anchor=0, eps=eps)) for eps in (1e6, 1e9))
    assert coarse / fine == pytest.approx(1e3, rel=0.1)
    assert error(StockEncoder(net, anchor=0, eps=2.0**100)) < 1e-13


def dual_gap(Z: Tensor, encoder: StockEncoder, iterates: Iterator[tuple[Tensor, Tensor]], depth: int) -> float:
    """Registers u and v of Z, relative to the zero register, against the iterates after ``depth`` layers."""
    r = encoder.registers
    u, v = next(itertools.islice(iterates, depth, None))
    duals = Z[0, : len(u)] - Z[0, : len(u), r["spare"]]
    return max(float((duals[:, r.column("u")] - u).abs().max()), float((duals[:, r.column("v")] - v).abs().max()))


def anchored(depth: int) -> tuple[StockEncoder, Tensor, Callable[[Tensor], float]]:
    """An encoder, a prompt for it, and the error of its output after ``depth`` layers."""
    x, y = points(0, (6, 2), (6, 2))
    encoder = StockEncoder(AligningTransformer(2, 0.1, depth))
    Z = encoder.embed(encoder.prompt(x, y))
    return encoder, Z, lambda out: dual_gap(out, encoder, gradient_descent(squared_cost(x, y), 0.1, 0.1), depth)


def test_transformer_encoder() -> None:
    encoder, Z, wrong_by = anchored(50)
    whole = nn.TransformerEncoder(encoder.layers[0], 50, enable_nested_tensor=False).eval()
    assert wrong_by(whole(Z)) < 1e-12


def test_transformer_decoder_layer_with_zero_cross_attention() -> None:
    encoder, Z, wrong_by = anchored(50)
    E = encoder.embed_dim
    decoder = nn.TransformerDecoderLayer(E, 2, 1, dropout=0.0, batch_first=True, norm_first=True, dtype=torch.float64)
    zeros = {name: torch.zeros_like(w) for name, w in decoder.state_dict().items()}
    decoder.load_state_dict(zeros | encoder.layers[0].state_dict())
    decoder.eval().requires_grad_(False)
    memory = torch.randn(1, 3, E, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for _ in range(50):
        Z = decoder(Z, memory)
    assert wrong_by(Z) < 1e-12


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_encoder_of_nn_transformer_with_its_last_norm() -> None:
    encoder, Z, wrong_by = anchored(50)
    layer, E = encoder.layers[0], encoder.embed_dim
    model = nn.Transformer(E, 2, 50, 1, 1, dropout=0.0, batch_first=True, norm_first=True, dtype=torch.float64)
    for each in model.encoder.layers:
        each.load_state_dict(layer.state_dict())
    assert type(model.encoder.norm) is nn.LayerNorm
    model.encoder.norm.load_state_dict(layer.norm1.state_dict())
    model.eval().requires_grad_(False)
    assert wrong_by(model.encoder(Z)) < 1e-12


def test_rms_norm_is_the_identity_on_an_anchored_prompt() -> None:
    encoder, Z, _ = anchored(1)
    norm = nn.RMSNorm(encoder.embed_dim, eps=1e-5, dtype=torch.float64).requires_grad_(False)
    norm.load_state_dict({"weight": encoder.layers[0].norm1.weight})
    assert float((norm(Z) / Z - 1)[Z != 0].abs().max()) < 1e-15


def test_causal_mask_breaks_it() -> None:
    """A token that cannot see all others has a wrong S_i. Sink and null stand first, where everyone sees them."""
    encoder, Z, wrong_by = anchored(100)
    causal = torch.ones(8, 8, dtype=torch.bool).triu(1)
    errors = []
    for mask in (None, causal):
        out = Z.flip(1)
        for _ in range(100):
            out = encoder.layers[0](out, src_mask=mask)
        errors.append(wrong_by(out.flip(1)))
    assert errors[0] < 1e-12
    assert errors[1] > 0.1


def test_bad_input() -> None:
    net = AligningTransformer(2, 0.1, 4)
    with pytest.raises(ValueError, match="heads must be a whole number of at least 2, got 1"):
        StockEncoder(net, heads=1)
    with pytest.raises(ValueError, match="net must have marginals=True"):
        StockEncoder(AligningTransformer(2, 0.1, 4, marginals=False))
    with pytest.raises(ValueError, match="dtype must be one of"):
        StockEncoder(net, dtype=torch.float16)
    with pytest.raises(ValueError, match="eps must be a positive, finite number, got 0"):
        StockEncoder(net, eps=0)
    x, y = points(0, (3, 2), (3, 2))
    with pytest.raises(ValueError, match="x must be float64, the dtype of the modules, got float32"):
        StockEncoder(net)(x.float(), y.float())
