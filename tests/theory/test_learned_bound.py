"""Theorem S of docs/exactness.md: networks whose logits and values are near the construction's, for every n."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from helpers.extreme import Problems, log_sum, problems
from otformer.network.schedule import Annealed, Gradient, Relaxed, Schedule
from otformer.network.transformer import AligningTransformer

Array = np.ndarray
Record = Callable[[str, object], None]


def head(logits: Array, values: Array) -> Array:
    """Softmax attention by its definition, [B, n] from [B, n, T]."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return (powers * values).sum(-1) / powers.sum(-1)


def disturbed(p: Problems, u: Array, v: Array, logit: Callable, value: Callable, steps: tuple[float, float]) -> list[Array]:
    """A layer by its attention with a sink, logits and values changed by ``logit`` and ``value``; steps in units of λ."""
    log, moved = p.log_matrix(u, v), []
    for old, M, weights, step, sign in ((u, log, p.a, steps[0], 1), (v, log.swapaxes(1, 2), p.b, steps[1], -1)):
        H = np.concatenate([M, np.log(weights)[..., None]], -1)
        signs = np.append(np.ones(M.shape[-1]), -1.0) * np.ones_like(H)
        moved.append(old - step * p.reg * head(H + logit(H, signs, sign), signs + value(H, signs, sign)))
    return moved


@pytest.mark.parametrize("steps", [(1.0, 1.0), (2.0, 0.7), (0.5, 1.9)])
def test_s_potentials_after_twelve_layers(steps: tuple[float, float], record_property: Record) -> None:
    """1,200 problems; errors of random signs, per row any constant besides; ε and ε' from 1e-6 to 3."""
    largest, drawn = 0.0, 0
    for p in problems(7):
        random, shape = p.random, (len(p.C), 1, 1)
        eps, other = (10 ** random.uniform(-6, 0.5, shape) for _ in range(2))
        mode = random.integers(0, 3, shape)  # random signs; against the sink; all one way

        def logit(H: Array, signs: Array, side: int, r=random, e=eps, m=mode) -> Array:
            rough = np.where(m == 0, r.choice([-1.0, 1.0], H.shape), signs * side)
            return e * rough + r.normal(size=(*H.shape[:2], 1))  # a constant per row

        def value(H: Array, signs: Array, side: int, r=random, e=other, m=mode) -> Array:
            return e * np.where(m == 0, r.choice([-1.0, 1.0], H.shape), float(side))

        start = p.start()
        (u, v), (s, t) = start, start
        for _ in range(12):
            u, v = p.layer(u, v, *steps)
            s, t = disturbed(p, s, t, logit, value, steps)
        off = np.maximum(np.abs(s - u).max(1), np.abs(t - v).max(1)) / p.reg[:, 0]
        bound = 12 * max(steps) * (2 * np.tanh(eps / 2) + other)[:, 0, 0]
        assert (off <= bound * (1 + 1e-9) + 1e-9).all()
        largest, drawn = max(largest, float((off / (bound + 1e-9)).max())), drawn + len(off)
    record_property("problems", drawn)
    record_property("largest ratio", largest)
    assert drawn >= 1000


def test_s_is_attained_to_first_order(record_property: Record) -> None:
    """From the solution, rows and columns the opposite way: a gauge, which no later layer takes back."""
    ratios, e = [], 1e-5
    for p in problems(3, each=20):
        u, v = p.u, p.v
        for _ in range(10):
            u, v = disturbed(p, u, v, lambda H, s, side: e * s * side, lambda H, s, side: 0 * s + e * side, (1.0, 1.0))
        ratios.append(np.abs(u - p.u).max(1) / (10 * p.reg[:, 0] * 2 * e))
    found = np.concatenate(ratios)
    record_property("largest ratio", float(found.max()))
    assert found.max() <= 1 + 1e-4
    assert np.median(found) > 0.99


@pytest.mark.parametrize("schedule", [Gradient(), Relaxed(1.0), Annealed(omega=1.0, stages=5)])
def test_s_one_network_of_perturbed_weights_at_every_size(schedule: Schedule, record_property: Record) -> None:
    """Weights W_Q, W_K, W_V off by 1e-6 of themselves: ε and ε', measured on n points, bound the error on those n points."""
    reg, depth, ratios = 0.1, 60, []
    exact = AligningTransformer(1, reg, depth, schedule, marginals=False)
    near = AligningTransformer(1, reg, depth, schedule, marginals=False)
    g = torch.Generator().manual_seed(0)
    for W in (near.W_Q, near.W_K, near.W_V):
        W *= 1 + 1e-6 * (2 * torch.rand(W.shape, generator=g, dtype=torch.float64) - 1)
    steps = near.W_O.abs().amax((1, 2, 3))
    for n in (2, 7, 30, 200):
        x, y = torch.rand(2, 1, n, 1, generator=g, dtype=torch.float64)
        true, trace = exact(x, y, warn=False), near(x, y, warn=False)
        bound = 0.0
        for k in range(depth):
            Z = trace.Z(k)
            w = int(near.layer[k])
            apart = (near.logits(Z, k) - exact.logits(Z, k))[:, :, :-1]
            eps = float((apart.amax(-1) - apart.amin(-1)).max()) / 2
            values = float((Z[:, None] @ (near.W_V[w] - exact.W_V[w])).abs().max())
            bound += float(steps[w]) * (2 * np.tanh(eps / 2) + values)
        off = max(float((a - b).abs().max()) for a, b in zip(trace.potentials(), true.potentials(), strict=True))
        assert off <= bound
        assert bound < 0.01  # the bound is of use: costs reach 1
        ratios.append(off / bound)
    record_property("largest ratio", float(max(ratios)))


def test_s_needs_the_sinks_logit_too() -> None:
    """Real logits up by ε and the sink's down by ε: log S − log a moves by 2ε, and a head's output by nearly ε, not ε/2."""
    H, e = np.log(np.array([[[0.5, 0.5, 1.0]]])), 1e-4
    signs = np.array([1.0, 1.0, -1.0])
    assert head(H, signs)[0, 0] == pytest.approx(0, abs=1e-12)
    assert head(H + e * signs, signs)[0, 0] == pytest.approx(e, rel=1e-6)
    assert float(log_sum(H[..., :2], 2)[0, 0]) == pytest.approx(0, abs=1e-12)
