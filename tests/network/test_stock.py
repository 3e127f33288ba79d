"""The network inside unmodified torch.nn.MultiheadAttention, against gradient descent, plain loops and POT."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn

from oracles import points, pot_plan, squared_cost
from otformer.network.schedule import Annealed, Relaxed, Schedule
from otformer.network.stock import StockRun, StockTransformer
from otformer.network.transformer import AligningTransformer
from otformer.transport.reference import gradient_descent


def weights(n: int, mass: float, seed: int) -> Tensor:
    w = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.2
    return mass * w / w.sum()


def gap(run: StockRun, iterates: Iterable[tuple[Tensor, Tensor]], depth: int) -> float:
    """The largest difference from the iterates (u, v) over all layers 0, …, depth."""
    ours = torch.cat(run.all_potentials(), dim=1)
    expected = [torch.cat(pair) for pair in itertools.islice(iterates, depth + 1)]
    return float((ours - torch.stack(expected)).abs().max())


def damped_sinkhorn(
    C: Tensor, schedule: Schedule, reg: float, depth: int, a: Tensor, b: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """The same layers with no attention in them: u ← u − γ tanh(½ log(S/a)), from logsumexp."""
    u, v = torch.zeros_like(a), torch.zeros_like(b)
    iterates = [(u, v)]
    for layer in schedule.layers(reg, depth):
        H = (u[:, None] + v - C) / layer.reg - 1
        u, v = (
            u - layer.rows * torch.tanh((H.logsumexp(1) - a.log()) / 2),
            v - layer.columns * torch.tanh((H.logsumexp(0) - b.log()) / 2),
        )
        iterates.append((u, v))
    return iterates


@pytest.mark.slow
@pytest.mark.parametrize("reg", [0.05, 0.1, 1.0])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_gradient_descent_at_every_one_of_1000_layers(d: int, reg: float) -> None:
    stock = StockTransformer(AligningTransformer(d, reg, 1000))  # one state_dict for every n
    for n in (1, 2, 3, 8, 33):
        x, y = points(n, (n, d), (n, d))
        assert gap(stock(x, y), gradient_descent(squared_cost(x, y), reg, reg), 1000) < 1e-12


@pytest.mark.parametrize("marginals", [True, False])
def test_modules_are_torchs_own_and_have_the_stated_sizes(marginals: bool) -> None:
    d = 3
    stock = StockTransformer(AligningTransformer(d, 0.1, 5, marginals=marginals))
    assert [type(m) for m in stock.attention] == [nn.MultiheadAttention]
    module = stock.attention[0]
    assert type(module).forward is nn.MultiheadAttention.forward
    assert not module._forward_hooks
    assert not module._forward_pre_hooks
    assert module.num_heads == 2
    assert module.embed_dim == 2 * module.head_dim == (2 * d + 12 if marginals else 2 * d + 10)
    assert set(module.state_dict()) == {"in_proj_weight", "out_proj.weight", "bias_k", "bias_v"}
    x, y = points(0, (6, d), (6, d))
    assert gap(stock(x, y), gradient_descent(squared_cost(x, y), 0.1, 0.1), 5) < 1e-14


def test_marginals_and_different_sizes() -> None:
    x, y = points(0, (5, 2), (9, 2))
    a, b = weights(5, 3.0, seed=1), weights(9, 3.0, seed=2)
    run = StockTransformer(AligningTransformer(2, 0.1, 500))(x, y, a, b)
    assert gap(run, gradient_descent(squared_cost(x, y), 0.1, 0.1, a, b), 500) < 1e-12


@pytest.mark.parametrize("schedule", [Relaxed(1.5), Annealed(stages=12)])
def test_schedules_with_several_weights(schedule: Schedule) -> None:
    x, y = points(0, (7, 2), (4, 2))
    a, b = weights(7, 1.0, seed=3), weights(4, 1.0, seed=4)
    net = AligningTransformer(2, 0.02, 120, schedule)
    stock = StockTransformer(net)
    assert len(stock.attention) == len(net.reg) >= 2
    iterates = damped_sinkhorn(squared_cost(x, y), schedule, 0.02, 120, a, b)
    assert gap(stock(x, y, a, b), iterates, 120) < 1e-12


@pytest.mark.parametrize("heads", [3, 4, 7])
def test_more_heads_with_zero_weights(heads: int) -> None:
    x, y = points(0, (6, 2), (4, 2))
    stock = StockTransformer(AligningTransformer(2, 0.1, 200), heads)
    assert stock.attention[0].embed_dim == heads * 8
    a, b = torch.ones(6, dtype=torch.float64), torch.full((4,), 1.5, dtype=torch.float64)
    iterates = gradient_descent(squared_cost(x, y), 0.1, 0.1, a, b)
    assert gap(stock(x, y), iterates, 200) < 1e-12
    iterates = gradient_descent(squared_cost(x, y), 0.1, 0.1, a, b)
    assert gap(stock(x, y, absent="mask"), iterates, 200) < 1e-12


def test_attention_mask_instead_of_values() -> None:
    """A ragged batch, and points of weight 0: each problem equals gradient descent on its present points alone."""
    reg, depth = 0.1, 300
    problems = [points(5, (3, 2), (7, 2)), points(6, (6, 2), (6, 2)), points(7, (5, 2), (2, 2))]
    a, b = [weights(len(x), 1.0, seed=8) for x, _ in problems], [weights(len(y), 1.0, seed=9) for _, y in problems]
    a[1][2] = b[1][0] = b[1][5] = 0  # absent points of the second problem
    a[1], b[1] = a[1] / a[1].sum(), b[1] / b[1].sum()
    stock = StockTransformer(AligningTransformer(2, reg, depth))
    xs, ys = [x for x, _ in problems], [y for _, y in problems]
    runs = [stock(xs, ys, a, b, absent=how) for how in ("value", "mask")]
    for k, (x, y) in enumerate(problems):
        i, j = a[k] > 0, b[k] > 0
        iterates = list(itertools.islice(gradient_descent(squared_cost(x[i], y[j]), reg, reg, a[k][i], b[k][j]), depth + 1))
        for run in runs:
            for layer in range(0, depth + 1, 50):
                u, v = (side[k] for side in run.potentials(layer))
                assert bool(u[: len(x)][~i].isneginf().all())
                assert bool(u[len(x) :].isneginf().all())
                assert float((u[: len(x)][i] - iterates[layer][0]).abs().max()) < 1e-12
                assert float((v[: len(y)][j] - iterates[layer][1]).abs().max()) < 1e-12


def test_a_mask_is_given_to_attention_only_if_asked_for() -> None:
    stock, masks = StockTransformer(AligningTransformer(2, 0.1, 1)), []
    stock.attention[0].register_forward_pre_hook(lambda *call: masks.append(call[2]["attn_mask"]), with_kwargs=True)
    x, y = points(0, (2, 2), (3, 2))
    for absent in ("value", "mask"):
        stock(x, y, absent=absent)
    assert masks[0] is None
    assert masks[1].tolist() == [[[False] * 3] * 3, [[False, False, True]] * 3]  # every y is there; the third x is not


@pytest.mark.slow
@pytest.mark.parametrize("absent", ["value", "mask"])
def test_attention_is_pots_plan(absent: str) -> None:
    reg = 0.05
    for n, m, uniform in ((8, 8, True), (6, 9, False)):
        x, y = points(n, (n, 2), (m, 2))
        a = torch.ones(n, dtype=torch.float64) / n if uniform else weights(n, 1.0, seed=1)
        b = torch.ones(m, dtype=torch.float64) / m if uniform else weights(m, 1.0, seed=2)
        net = AligningTransformer(2, reg, 800, Relaxed(1.6))
        run = StockTransformer(net)(x, y, a, b, absent=absent, attention=[0, 800])
        expected = pot_plan(squared_cost(x, y), a, b, reg)
        assert float((run.plan(800) - expected).abs().max()) < 1e-10
        rows, columns = run.attention(800, "rows"), run.attention(800, "columns")
        assert float((2 * a[:, None] * rows[:, :-1] - expected).abs().max()) < 1e-10  # half of it goes to the sink
        assert float((2 * b[:, None] * columns[:, :-1] - expected.T).abs().max()) < 1e-10
        assert rows.shape == (n, m + 1)
        assert float((run.plan(0) - ((-squared_cost(x, y)) / reg - 1).exp()).abs().max()) < 1e-14


def test_float32() -> None:
    x, y = points(0, (8, 2), (8, 2))
    stock = StockTransformer(AligningTransformer(2, 0.1, 200)).float()
    run = stock(x.float(), y.float())
    assert run.potentials()[0].dtype == torch.float32
    assert gap(run, gradient_descent(squared_cost(x, y), 0.1, 0.1), 200) < 1e-5
    with pytest.raises(ValueError, match="x must be float32, the dtype of the modules, got float64"):
        stock(x, y)


def test_state_dict_is_loaded_by_a_bare_module() -> None:
    """No code of ours: a fresh torch module, its state_dict, and a residual connection."""
    x, y = points(0, (5, 1), (5, 1))
    stock = StockTransformer(AligningTransformer(1, 0.1, 50))
    bare = nn.MultiheadAttention(14, 2, bias=False, add_bias_kv=True, batch_first=True, dtype=torch.float64)
    bare.load_state_dict(stock.attention[0].state_dict())
    Z = torch.zeros(1, 5, 14, dtype=torch.float64)  # x, y, x², y², 1, 1, 1, 1, u, v, 0, log a, log b, 0
    Z[0, :, 0:1], Z[0, :, 1:2], Z[0, :, 2:3], Z[0, :, 3:4], Z[0, :, 4:8] = x, y, x**2, y**2, 1
    for u, v in itertools.islice(gradient_descent(squared_cost(x, y), 0.1, 0.1), 50):
        assert float((Z[0, :, 8] - u).abs().max()) < 1e-13
        assert float((Z[0, :, 9] - v).abs().max()) < 1e-13
        Z = Z + bare(Z, Z, Z)[0].detach()


def test_bad_input() -> None:
    net = AligningTransformer(2, 0.1, 4)
    x, y = points(0, (3, 2), (3, 2))
    with pytest.raises(ValueError, match="heads must be a whole number of at least 2, got 1"):
        StockTransformer(net, heads=1)
    with pytest.raises(ValueError, match="net must have a frozen sink"):
        StockTransformer(AligningTransformer(2, 0.1, 4, sink="token"))
    stock = StockTransformer(net)
    with pytest.raises(ValueError, match="absent must be one of value, mask, got 'zero'"):
        stock(x, y, absent="zero")
    with pytest.raises(ValueError, match=r"attention must be from 0 to 4, .* got 5"):
        stock(x, y, attention=[5])
    run = stock(x, y, attention=[1])
    with pytest.raises(ValueError, match=r"layer must be one whose attention was asked for, \[1\], got 2"):
        run.attention(2)
    with pytest.raises(ValueError, match=r"layer must be from 0 to 4, .* got 5"):
        run.potentials(5)
