"""Theorem N of docs/exactness.md: two networks that agree up to N points, of which one stops transporting beyond."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import oracles
from otformer.network.counting_gate import CountingGate
from otformer.network.schedule import Annealed, Gradient, Relaxed, Schedule
from otformer.network.transformer import AligningTransformer

N, DIM, DEPTH = 7, 2, 60
SCHEDULES: list[Schedule] = [Gradient(), Relaxed(1.8), Annealed(stages=5)]
Record = Callable[[str, object], None]


def points(n: int, count: int, size: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng([n, count])
    x, y = torch.tensor(size * random.uniform(-1, 1, (2, count, n, DIM)))
    return x, y


def pair(schedule: Schedule = SCHEDULES[0], reg: float = 0.2, **options: float) -> list[CountingGate]:
    return [CountingGate(DIM, reg, DEPTH, schedule, N, stops, **options) for stops in (True, False)]


def furthest(first: tuple[torch.Tensor, ...], second: tuple[torch.Tensor, ...]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_two_networks_agree_up_to_seven_points(schedule: Schedule, record_property: Record) -> None:
    """1,000 problems with n ≤ 7, points of many sizes: potentials and attention of every layer; both networks are ours."""
    gated, free = pair(schedule)
    ours = AligningTransformer(DIM, 0.2, DEPTH, schedule, marginals=False)
    record_property("problems", 1006)
    for n in range(1, N + 1):
        for size in (0.3, 5.0):
            x, y = points(n, 72 if n < N else 71, size)
            a, b, c = gated(x, y, warn=False), free(x, y, warn=False), ours(x, y, warn=False)
            for k in (0, 1, 7, DEPTH):
                assert furthest(a.potentials(k + 2), c.potentials(k)) < 1e-11
                assert furthest(b.potentials(k + 2), c.potentials(k)) < 1e-12
                assert furthest((a.attention(k + 2),), (c.attention(k),)) < 1e-10


def test_up_to_seven_points_it_is_pots_plan() -> None:
    x, y = points(N, 1, 0.5)
    C, ones = ((x[0, :, None] - y[0]) ** 2).sum(-1).numpy(), np.ones(N)
    found = CountingGate(DIM, 0.2, 600, most=N)(x[0], y[0]).attention()
    assert np.abs(found.numpy() - oracles.pot_plan(C, ones, ones, 0.2)).max() < 1e-8


@pytest.mark.parametrize("n", [8, 9, 30, 300])
def test_beyond_seven_points_attention_is_that_of_the_first_layer(n: int) -> None:
    """It is the softmax of −C/λ, in every layer and both heads; the other network transports."""
    x, y = points(n, 20 if n < 100 else 1, 0.5)
    gated, free = (net(x, y, warn=False) for net in pair(reg=0.2))
    C = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
    for head, cost in (("rows", C), ("columns", C.mT)):
        expected = torch.softmax(-cost / 0.2, -1)
        for k in (2, 3, 20, DEPTH + 2):
            assert float((gated.attention(k, head) - expected).abs().max()) < 1e-10
    assert float((gated.attention().sum(-2) - 1).abs().amax(-1).min()) > 0.1  # columns do not sum to 1
    assert float((free.attention().sum(-2) - 1).abs().max()) < 0.05
    u, v = gated.potentials()
    assert torch.allclose(u, torch.full_like(u, DEPTH * 0.2), atol=1e-10)  # every head returned −1 for every token
    assert torch.allclose(v, torch.full_like(v, DEPTH * 0.2), atol=1e-10)


@pytest.mark.parametrize("sharp", [1.0, 3.0, 6.0])
def test_the_bounds_of_the_theorem_hold_with_a_blunt_gate(sharp: float, record_property: Record) -> None:
    """|u − u'| ≤ 2ℓγg ≤ 2ℓγN e^{−sharp} for n ≤ N; at n = 8, |u − ℓγ| ≤ 2ℓγ(1 − g) ≤ 2ℓγ e^{−sharp}/n."""
    reg, ratio, most_gate = 0.2, 0.0, 0.0
    nets = pair(reg=reg, sharp=sharp)
    for n in range(1, 12):
        x, y = points(n, 100, 2.0)
        gated, free = (net(x, y, warn=False) for net in nets)
        gate = gated.Z(2)[:, :-1, -1]
        g = n / (n + math.exp(2 * (N + 1.5) * (N + 2) * sharp * (1 / (n + 1) - 1 / (N + 1.5))))
        assert torch.allclose(gate, torch.full_like(gate, g), rtol=1e-9)
        bound = 2 * DEPTH * reg * (g if n <= N else 1 - g)
        assert (g if n <= N else 1 - g) <= (N if n <= N else 1 / n) * math.exp(-sharp)
        still = tuple(torch.full_like(t, DEPTH * reg) for t in gated.potentials())
        off = furthest(gated.potentials(), free.potentials() if n <= N else still)
        assert off <= bound * (1 + 1e-9) + 1e-12
        ratio, most_gate = max(ratio, off / (bound + 1e-300) if bound > 1e-9 else 0), max(most_gate, g)
    record_property("problems", 1100)
    record_property("largest ratio", ratio)
    assert ratio > 0.3


def test_one_head_attains_the_bound_as_sums_grow() -> None:
    """S → ∞: a head returns 1 − 2g in place of 1."""
    gated, free = (CountingGate(1, 1.0, 1, most=N, stops=stops, sharp=1.0) for stops in (True, False))
    start = torch.full((N,), 400.0, dtype=torch.float64)
    x = torch.zeros(N, 1, dtype=torch.float64)
    a, b = (net(x, x, start=(start, start), warn=False) for net in (gated, free))
    g = float(a.Z(2)[0, -1])
    assert furthest(a.potentials(), b.potentials()) == pytest.approx(2 * g, rel=1e-9)


def test_files_and_bad_input(tmp_path: Path) -> None:
    x, y = points(9, 1)
    net = CountingGate(DIM, 0.2, 10)
    net.save(tmp_path / "net.safetensors")
    again = AligningTransformer.from_file(tmp_path / "net.safetensors")
    assert isinstance(again, CountingGate)
    assert torch.equal(again(x, y, warn=False).attention(), net(x, y, warn=False).attention())
    with pytest.raises(ValueError, match="most must be a whole number of at least 1, got 0"):
        CountingGate(1, 0.1, 5, most=0)
    with pytest.raises(ValueError, match="sharp must be a positive, finite number, got -1"):
        CountingGate(1, 0.1, 5, sharp=-1.0)
    with pytest.raises(ValueError, match="sharp must be at most 600"):
        CountingGate(1, 0.1, 5, sharp=601)
    with pytest.raises(ValueError, match="weights a and b, or n ≠ m"):
        net(x[0, :3], y[0, :4])
