"""Theorem H of docs/limits.md: 2d + 3 columns are enough; with these registers some token must have another value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import oracles
from otformer.network.minimal_prompt import MinimalTransformer
from otformer.network.schedule import Annealed, Gradient, Relaxed, Schedule
from otformer.network.transformer import AligningTransformer
from otformer.transport.reference import plan, sinkhorn

SCHEDULES = [Gradient(), Relaxed(1.8), Relaxed(), Annealed(stages=5)]


def pot_plan(C: torch.Tensor, reg: float) -> torch.Tensor:
    """POT's plan with unit marginals."""
    ones = torch.ones_like(C[0])
    return oracles.pot_plan(C, ones, ones, reg)


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dim", [1, 2, 7])
@pytest.mark.parametrize("schedule", [Gradient(), Relaxed(1.5)])
def test_the_limit_is_the_plan(dim: int, schedule: Schedule) -> None:
    x, y = uniform(2, 6, dim, seed=dim)
    C, reg = torch.cdist(x, y) ** 2, 0.2
    trace = MinimalTransformer(dim, reg, 1500, schedule)(x, y)
    assert trace.network.registers.width == 2 * dim + 3
    expected = plan(C, *sinkhorn(C, reg), reg)
    assert float((trace.plan() - expected).abs().max()) < 1e-12
    assert float((trace.attention() - expected).abs().max()) < 1e-12
    assert float((trace.attention(head="columns") - expected.T).abs().max()) < 1e-12
    assert float((trace.plan() - pot_plan(C, reg)).abs().max()) < 1e-8
    assert trace.marginal_error < 1e-11


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_layer_is_the_constructed_one_for_the_cost_of_products(
    schedule: Schedule, record_property: Callable[[str, object], None]
) -> None:
    """1,000 problems of many sizes of points and λ: the layers of M = exp((u + v + 2 x·y)/λ), number for number."""
    record_property("problems", 1000)
    for reg, size in ((0.01, 1.0), (0.3, 3.0), (100.0, 20.0), (1e-3, 0.05)):
        x, y = size * (2 * uniform(2, 250, 4, 3, seed=int(size)) - 1)
        trace = MinimalTransformer(3, reg, 12, schedule)(x, y, warn=False)
        u, v = torch.zeros(2, 250, 4, dtype=torch.float64)
        for k, layer in enumerate(schedule.layers(reg, 12), start=1):
            log_M = (u[:, :, None] + v[:, None, :] + 2 * x @ y.mT) / layer.reg
            u = u - layer.rows * torch.tanh(log_M.logsumexp(2) / 2)
            v = v - layer.columns * torch.tanh(log_M.logsumexp(1) / 2)
            found = trace.potentials(k)
            assert torch.allclose(found[0], u, rtol=1e-9, atol=1e-9 * size**2)
            assert torch.allclose(found[1], v, rtol=1e-9, atol=1e-9 * size**2)


def test_potentials_of_the_squared_distance_are_as_the_docstring_says() -> None:
    x, y = uniform(2, 5, 2)
    u, v = MinimalTransformer(2, 0.2, 1500)(x, y).potentials()
    C = torch.cdist(x, y) ** 2
    P = plan(C, u + x.square().sum(1) + 0.2, v + y.square().sum(1), 0.2)
    assert float((P - pot_plan(C, 0.2)).abs().max()) < 1e-8


def test_without_another_value_attention_never_changes() -> None:
    """All values equal: whatever the heads attend to, all tokens move by the same number, and softmax sees no difference."""
    x, y = uniform(2, 20, 6, 2)
    net = MinimalTransformer(2, 0.1, 30)
    Z = net.prompt(x, y).Z
    for equal in (Z[:, :-1], torch.cat([Z[:, :-1], Z[:, :-1]], dim=1)):  # no sink, or twice the tokens
        first, now = net.logits(equal, 0).softmax(-1), equal
        for layer in range(30):
            now = _all_rows(net, now, layer)
            assert torch.allclose(net.logits(now, layer).softmax(-1), first, atol=1e-9)
        assert not torch.allclose(now, equal)


def test_a_sink_with_the_same_value_does_not_help() -> None:
    """The sink stays a key, but its value is that of the tokens: u and v move, and with them the share of the sink; how a
    token divides the rest among real tokens does not change."""
    x, y = uniform(2, 20, 6, 2)
    net = MinimalTransformer(2, 0.1, 30)
    Z = net.prompt(x, y).Z
    first, whole, now = net.logits(Z, 0)[..., :-1, :-1].softmax(-1), net.logits(Z, 0).softmax(-1), Z.clone()
    for layer in range(30):
        k, A = int(net.layer[layer]), net.logits(now, layer).softmax(-1)
        value = torch.ones(*A.shape[:-1], net.W_V.shape[-1], dtype=A.dtype)
        now[:, :-1] += (A @ value @ net.W_O[k]).sum(1)[:, :-1]
        assert torch.allclose(net.logits(now, layer)[..., :-1, :-1].softmax(-1), first, atol=1e-9)
    assert not torch.allclose(net.logits(now, 29).softmax(-1), whole, atol=0.1)


def _all_rows(net: MinimalTransformer, Z: torch.Tensor, layer: int) -> torch.Tensor:
    """A layer that updates every row: no sink among them."""
    k = int(net.layer[layer])
    A = net.logits(Z, layer).softmax(-1)
    return Z + (A @ (Z[:, None] @ net.W_V[k]) @ net.W_O[k]).sum(1)


def test_scale_files_and_bad_input(tmp_path: Path) -> None:
    x, y = 1000 + 50 * uniform(2, 8, 2)
    trace = MinimalTransformer(2, 0.1, 600, scale="auto")(x, y)
    assert float((trace.plan() - pot_plan(torch.cdist(x, y) ** 2, 0.1 * float(trace.scale))).abs().max()) < 1e-6
    net = MinimalTransformer(2, 0.1, 10, "relaxed")
    net.save(tmp_path / "net.safetensors")
    for kind in (AligningTransformer, MinimalTransformer):
        again = kind.from_file(tmp_path / "net.safetensors")
        assert isinstance(again, MinimalTransformer)
        assert torch.equal(again(x[:3], y[:3], warn=False).plan(), net(x[:3], y[:3], warn=False).plan())
    with pytest.raises(ValueError, match="weights a and b, or n ≠ m, need the two marginal registers"):
        net(x[:3], y[:4])
    with pytest.raises(ValueError, match="weights a and b, or n ≠ m"):
        net(x[:2], y[:2], a=[1.0, 2.0], b=[1.5, 1.5])
