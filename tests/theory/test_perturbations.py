"""Theorems F and G of docs/theorems.md: the sink token for ω ≤ 1.884013, errors of layers and costs; 1,200 problems each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.extreme import Array, Pair, Problems, Tally, log_sum, problems
from otformer import AligningTransformer, theory
from otformer.network.schedule import Gradient, Relaxed
from otformer.transport import reference

Record = Callable[[str, object], None]  # pytest's record_property


def sup(p: Pair, q: Pair) -> Array:
    return np.maximum(*(np.abs(s - t).max(1) for s, t in zip(p, q, strict=True)))


@pytest.mark.parametrize("schedule", [Gradient(), Gradient(2.0), Relaxed(1.0)])
def test_G_errors_of_layers_add(schedule: Gradient | Relaxed, record_property: Record) -> None:
    """‖x̃_ℓ − x_ℓ‖ ≤ Σ‖e_k‖ for errors of all sizes and signs, steps up to 2λ; the plan's logarithm by 2/λ times that."""
    for p in problems(0):
        exact = rough = p.start()
        size, total = p.reg * 10 ** p.random.uniform(-4, 1, p.reg.shape), np.zeros(len(p.u))
        for layer in schedule.layers(1.0, 20):
            exact, rough = (p.layer(*x, layer.rows, layer.columns) for x in (exact, rough))
            errors = [size * p.random.uniform(-1, 1, t.shape) for t in rough]
            total += np.maximum(*(np.abs(e).max(1) for e in errors))
            rough = rough[0] + errors[0], rough[1] + errors[1]
            slack = 1e-11 * (p.reg[:, 0] + np.max([np.abs(t).max(1) for t in (*exact, *rough)], 0))
            assert (sup(exact, rough) <= total + slack + 1e-12 * np.abs(p.C).max((1, 2))).all()
        drift = np.abs(p.log_matrix(*exact) - p.log_matrix(*rough)).max((1, 2))
        allowed = [theory.log_plan_drift([t], r) for t, r in zip(total, p.reg[:, 0], strict=True)]
        assert (drift <= np.array(allowed) * (1 + 1e-6)).all()
    record_property("problems", 1200)


def test_G_errors_of_layers_is_attained(record_property: Record) -> None:
    """Errors along the gauge, (e, −e), are kept by every layer: they add up to the last bit of rounding."""
    for p in problems(1, each=10):
        exact = rough = p.start()
        for _ in range(30):
            exact, rough = (p.layer(*x, 2.0, 2.0) for x in (exact, rough))
            rough = rough[0] + p.reg, rough[1] - p.reg
        assert sup(exact, rough) == pytest.approx(30 * p.reg[:, 0], rel=1e-6)
        off = np.abs(p.log_matrix(exact[0] + p.reg, exact[1] + p.reg) - p.log_matrix(*exact)).max((1, 2))
        assert off == pytest.approx([theory.log_plan_drift([r], r) for r in p.reg[:, 0]], rel=1e-6)  # 2: both of one sign
    record_property("largest ratio", float((sup(exact, rough) / (30 * p.reg[:, 0])).max()))


def test_G_covers_float32() -> None:
    """The network in float32 beside float64: apart by no more than the sum of its layers' own rounding errors."""
    x, y = torch.rand(2, 30, 2, generator=torch.Generator().manual_seed(0))
    net = AligningTransformer(2, 0.02, 200, Gradient())
    low, high = net(x, y, warn=False), net(x.double(), y.double(), warn=False)
    C, total = torch.cdist(x.double(), y.double()) ** 2, 0.0
    for layer in range(200):
        u, v = (t.double() for t in low.potentials(layer))
        P = reference.plan(C, u, v, 0.02)
        exact = u - 0.02 * (0.5 * P.sum(1).log()).tanh(), v - 0.02 * (0.5 * P.sum(0).log()).tanh()
        after = low.potentials(layer + 1)
        total += max(float((e - t).abs().max()) for e, t in zip(exact, after, strict=True))
    apart = max(float((s - t).abs().max()) for s, t in zip(low.potentials(200), high.potentials(200), strict=True))
    assert 0 < apart <= total < 1e-3


def solved(C: Array, reg: Array, a: Array, b: Array) -> Array:
    """Plans by 400 steps of Sinkhorn; for costs of a few λ."""
    log = -C / reg
    for _ in range(400):
        log = log - (log_sum(log, 2) - np.log(a))[:, :, None]
        log = log - (log_sum(log, 1) - np.log(b))[:, None]
    return np.exp(log)


def test_G_the_plan_against_the_cost(record_property: Record) -> None:
    """|C̃ − C| ≤ ε: ‖P̃ − P‖₁ ≤ sε/λ. Both plans with the same weights, of ten decades. The value moves by εs at most."""
    nearest = 0.0
    for p in problems(2, steep=1.5):
        epsilon = p.reg * 10 ** p.random.uniform(-3, 0.5, p.reg.shape)
        signs = p.random.choice([-1.0, 1.0], p.C.shape)
        C = p.C - p.u[:, :, None] - p.v[:, None]
        pair = [solved(cost, p.reg[..., None], p.a, p.b) for cost in (C, C + epsilon[..., None] * signs)]
        assert pair[0] == pytest.approx(np.exp(p.log_plan), rel=1e-6)
        apart = np.abs(pair[1] - pair[0]).sum((1, 2))
        given = zip(p.mass, p.reg[:, 0], epsilon[:, 0], strict=True)
        assert (apart <= np.array([theory.plan_change(*each) for each in given]) * (1 + 1e-9)).all()
        costs = C, C + epsilon[..., None] * signs
        values = [(P * (cost + p.reg[..., None] * np.log(P))).sum((1, 2)) for P, cost in zip(pair, costs, strict=True)]
        most = epsilon[:, 0] * p.mass
        assert (np.abs(values[1] - values[0]) <= most * (1 + 1e-6)).all()
        nearest = max(nearest, float((np.abs(values[1] - values[0]) / most).max()))  # 1 where all signs agree
    record_property("problems", 1200)
    record_property("largest ratio of the value", nearest)


def test_G_the_plan_against_the_cost_is_attained(record_property: Record) -> None:
    """2×2, C = 0, error ε(+, −; −, +) → 0: ‖P̃ − P‖₁ = 4 (½ − 1/(1 + e^{2ε/λ})) = sε/λ to first order."""
    reg, epsilon = 0.3, 1e-4
    C = epsilon * torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).double()
    P = reference.plan(C, *reference.sinkhorn(C, reg), reg)
    apart = float((P - 0.5).abs().sum())
    assert apart == pytest.approx(theory.plan_change(2.0, reg, epsilon), rel=1e-3)
    record_property("largest ratio", apart / theory.plan_change(2.0, reg, epsilon))
    assert theory.plan_change(3.0, 0.1, 50.0) == 6.0  # two plans of mass s are never further apart than 2s


def omegas(kind: str, p: Problems, depth: int) -> list[Array]:
    """A ω for each layer and problem [B, 1]."""
    if kind == "climbing":
        return [np.full(p.reg.shape, max(layer.rows, layer.columns) / 2) for layer in Relaxed().layers(1.0, depth)]
    return [np.full(p.reg.shape, 1.8) if kind == "1.8" else p.random.uniform(0.3, 1.8, p.reg.shape) for _ in range(depth)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["climbing", "1.8", "random"])
def test_F_the_sink_token(kind: str, record_property: Record) -> None:
    """Rows see the sink's v, columns its u; each is y ← y − 2ω tanh(y/2) in its own turns, from y = log N. A layer lowers
    the dual of the limit, but for 2λω s |e^y − 1|; that sum is finite, and the plan arrives."""
    for p in problems(3, steep=1.0):
        u, v = p.start(20.0)
        y = {head: np.log(p.random.integers(1, 60, p.reg.shape)) for head in ("rows", "columns")}
        before = p.divergence(u, v)
        for k, omega in enumerate(omegas(kind, p, 600)):
            head, sink = ("rows", "columns") if k % 2 == 0 else ("columns", "rows")
            seen = replace(p, a=p.a * np.exp(y["columns"]), b=p.b * np.exp(y["rows"]))
            u, v = seen.layer(u, v, 2 * omega * (head == "rows"), 2 * omega * (head == "columns"))
            after = p.divergence(u, v)
            if k < 40:
                rise = [theory.sink_rise(*each) for each in zip(y[sink][:, 0], omega[:, 0], strict=True)]
                assert (after - before <= np.array(rise) * p.mass + 1e-11 * (p.mass + before)).all()
            before = after
            y[head] = y[head] - 2 * omega * np.tanh(y[head] / 2)
        assert (np.abs(y["rows"]) < 1e-9).all()
        assert (after <= 1e-9 * p.mass).all()
    record_property("problems", 1200)


def test_F_without_the_allowance_the_dual_does_rise(record_property: Record) -> None:
    """At most 2ω|e^y − 1| per unit of mass and of λ, for sinks off by y from −40 to 4 and sums off by z; attained as y → −∞
    with z half as far."""
    tally = Tally()
    for p in problems(4):
        y = p.random.uniform(-40, 4, p.reg.shape)
        z, omega = y * p.random.choice([0.0, 0.5, 1.0], y.shape), p.random.uniform(0.3, 1.8, y.shape)
        u, v = p.u + z * p.reg, p.v
        rise = p.divergence(*replace(p, a=p.a * np.exp(y)).layer(u, v, 2 * omega, 0.0)) - p.divergence(u, v)
        allowed = [theory.sink_rise(*each) for each in zip(y[:, 0], omega[:, 0], strict=True)]
        tally.holds(rise, np.array(allowed) * p.mass, 1e-9 * p.mass)
        tally.problems += len(rise)
    tally.record(record_property)
    assert tally.largest > 0.99


def test_section_10_the_sink_has_a_cycle_above_four_lambda(record_property: Record) -> None:
    """y ← y − (γ/λ) tanh(y/2): y → 0 for γ < 4λ; above, the network's own sink ends in a 2-cycle."""
    random, reg, n = np.random.default_rng(0), 0.3, 5
    y, steps = random.uniform(-60, 60, 1000), random.uniform(0.1, 3.9, 1000)
    for _ in range(3000):
        y = y - steps * np.tanh(y / 2)
    assert np.abs(y).max() < 1e-6
    record_property("problems", len(y))
    record_property("largest ratio", float(steps.max()) / 4)
    x, z = torch.rand(2, n, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for step, arrives in ((3.8, True), (4.4, False)):
        net = AligningTransformer(1, reg, 400, Gradient(step * reg), sink="token")
        trace = net(x, z, keep=[399, 400], warn=False)
        ends = [float(trace.Z(k)[-1, net.registers.column("u")]) / reg + math.log(n) for k in (399, 400)]
        assert (max(map(abs, ends)) < 1e-6) == arrives
        if not arrives:
            assert ends[0] == pytest.approx(-ends[1], rel=1e-9)


def test_bad_input() -> None:
    for call, message in (
        (lambda: theory.log_plan_drift([-1.0], 1.0), "errors must be"),
        (lambda: theory.plan_change(1.0, 0.0, 1.0), "reg must be"),
        (lambda: theory.plan_change(1.0, 1.0, math.nan), "cost_error must be"),
        (lambda: theory.sink_rise(0.1, 0.0), "omega must be"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
