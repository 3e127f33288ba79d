"""Sections 0, 3, 5, 6 and 9 of docs/theory.md on 1,200 problems each that try to break them (`helpers/extreme.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.extreme import Pair, Problems, Tally, log_sum, problems
from otformer.network.schedule import Alternating, Annealed, Gradient, Layer, Relaxed, best_omega
from otformer.theory import rates
from otformer.theory.depth_bounds import LARGEST_OMEGA
from otformer.transport.costs.matrix import Dense
from otformer.transport.solvers.network import run

TINY = 1e-12  # rounding, relative to the terms that were added
Record = Callable[[str, object], None]  # pytest's record_property


def sup(p: Pair, q: Pair) -> np.ndarray:
    return np.maximum(*(np.abs(s - t).max(1) for s, t in zip(p, q, strict=True)))


def rounding(p: Problems, *points: Pair) -> np.ndarray:
    """What rounding may do to a potential: TINY times the largest number that it was made of."""
    sizes = [np.abs(t).max(1) for t in (*points[0], *points[-1], p.C.reshape(len(p.C), -1))]
    return TINY * (p.reg[:, 0] + np.max(sizes, axis=0))


def test_the_layers_of_these_problems_are_those_of_the_package() -> None:
    layer = Layer(1.0, 0.7, 1.3)
    for p in problems(0, each=40):
        u, v = p.start()
        expected = p.layer(u, v, layer.rows, layer.columns)
        for k, reg in enumerate(p.reg[:, 0]):
            executor = Dense(torch.tensor(p.C[k]), torch.tensor(np.log(p.a[k])), torch.tensor(np.log(p.b[k])))
            steps = [Layer(float(reg), layer.rows * float(reg), layer.columns * float(reg))]
            found = list(run(executor, steps, start=(torch.tensor(u[k]), torch.tensor(v[k]))))[-1]
            for f, e in zip(found, expected, strict=True):
                assert f.numpy() == pytest.approx(e[k], rel=1e-9, abs=1e-9 * float(reg))


def test_section_0_the_gauge() -> None:
    """(u + c, v − c) has the same M and L, and a layer commutes with it."""
    for p in problems(1):
        u, v = p.start()
        c = p.reg * p.random.uniform(-30, 30, p.reg.shape)
        moved = u + c, v - c
        slack = rounding(p, (u, v), moved)
        after, other = p.layer(u, v, 1.1, 0.4), p.layer(*moved, 1.1, 0.4)
        assert (sup((after[0] + c, after[1] - c), other) <= slack).all()
        scale = p.reg[:, 0] * np.exp(p.log_matrix(u, v)).sum((1, 2)) + p.mass * slack / TINY
        assert (np.abs(p.dual(u, v) - p.dual(*moved)) <= 1e-9 * scale).all()


def test_section_3_no_layer_expands_up_to_twice_lambda(record_property: Record) -> None:
    """Steps of either head up to 2λ, near and far points; a common shift of (u, −v) is kept, so that 1 is attained."""
    tally = Tally()
    for p in problems(2):
        tally.problems += len(p.u)
        x, y = p.start(300.0), p.start(3.0)
        for near in (y, tuple(s + 1e-3 * (t - s) for s, t in zip(x, y, strict=True))):
            rows, columns = p.random.uniform(0, 2, (2, *p.reg.shape))
            for steps in ((rows, columns), (2.0, 0.0), (0.0, 2.0), (2.0, 2.0)):
                after = sup(p.layer(*x, *steps), p.layer(*near, *steps))
                tally.holds(after, sup(x, near), rounding(p, x, near))
        shifted = y[0] + p.reg, y[1] - p.reg
        assert sup(p.layer(*y, 2.0, 2.0), p.layer(*shifted, 2.0, 2.0)) == pytest.approx(p.reg[:, 0], rel=1e-6)
    tally.record(record_property)


def h(z: np.ndarray, omega: np.ndarray) -> np.ndarray:
    t = np.tanh(z / 2)
    return np.exp(z) * np.expm1(-2 * omega * t) + 2 * omega * t


def test_section_5_one_head_lowers_the_dual_up_to_the_largest_omega(record_property: Record) -> None:
    """L' − L = λ Σ a_i h(z_i) ≤ 0 (b and z' for columns), for any ω ≤ ω_c = 1.884013…; there h touches 0 at z = −0.7528."""
    z = np.linspace(-40, 40, 800_001)
    z = z[np.abs(z) > 1e-3]
    assert (h(z, LARGEST_OMEGA) < 0).all()
    assert h(np.linspace(-0.76, -0.74, 100_001), LARGEST_OMEGA + 1e-6).max() > 0
    for p in problems(3):
        u, v = p.start()
        omega = np.append(p.random.uniform(0.01, LARGEST_OMEGA, (len(u) - 30, 1)), np.full((30, 1), LARGEST_OMEGA), axis=0)
        before = p.divergence(u, v)
        for rows, weights, z in zip((1, 0), (p.a, p.b), p.excess(u, v), strict=True):
            change = p.divergence(*p.layer(u, v, 2 * omega * rows, 2 * omega * (1 - rows))) - before
            assert (change <= TINY * (p.mass + before)).all()
            expected = (weights * h(z, omega)).sum(1)
            assert (np.abs(change - expected) <= 1e-10 * (p.mass + before)).all()
    record_property("problems", 1200)
    record_property("largest ratio", LARGEST_OMEGA / (LARGEST_OMEGA + 1e-6))


def test_both_heads_lower_the_dual_up_to_the_largest_omega(record_property: Record) -> None:
    """Section 5.6: both heads with any γ ≤ 1.884013λ, L falls in every layer; with γ = 2.2λ it rises in some."""
    most = LARGEST_OMEGA
    rises = 0
    for p in problems(4):
        for step in (p.random.uniform(0.01, most, p.reg.shape), np.full(p.reg.shape, most), np.full(p.reg.shape, 2.2)):
            u, v = p.start()
            before = p.divergence(u, v)
            for _ in range(15):
                u, v = p.layer(u, v, step, step)
                after = p.divergence(u, v)
                rose = after > before + TINY * (p.mass + before)
                rises += int(rose.sum())
                assert not rose[step[:, 0] <= most].any()
                before = after
    assert rises > 1000
    record_property("problems", 1200)


def follow(p: Problems, start: Pair, layers: tuple[Layer, ...]) -> Pair:
    """The layers of a schedule made for λ = 1, in units of each problem's λ; one whose λ falls, too."""
    u, v = start
    for layer in layers:
        u, v = replace(p, reg=p.reg * layer.reg).layer(u, v, layer.rows / layer.reg, layer.columns / layer.reg)
    return u, v


SCHEDULES = {
    "gradient": Gradient(),
    "gradient, 1.9λ": Gradient(1.9),
    "alternating": Alternating(),
    "relaxed, climbing": Relaxed(),
    "relaxed, 0.6": Relaxed(0.6),
    "relaxed, 1.8": Relaxed(1.8),
    "annealed": Annealed(8.0, omega=1.8, stages=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_sections_4_and_5_every_schedule_arrives_from_anywhere(name: str, record_property: Record) -> None:
    """P* within a factor of about e of a b/s, weights of ten decades: from 60λ away, KL(P*‖M) falls below 1e-9 s."""
    for p in problems(5, steep=1.0):
        u, v = follow(p, p.start(), SCHEDULES[name].layers(1.0, 500))
        assert (p.divergence(u, v) <= 1e-9 * p.mass).all()
    record_property("problems", 1200)


def test_section_0_the_climbing_omega() -> None:
    """1 + k/(k + 12) reaches 1.8 in pair 48, layer 97, and stays."""
    layers = Relaxed().layers(1.0, 200)
    omegas = [max(layer.rows, layer.columns) / 2 for layer in layers]
    assert omegas[94] < 1.8 - 1e-3
    assert omegas[96:] == pytest.approx([1.8] * 104)
    assert omegas[:4] == pytest.approx([1, 1, 1 + 1 / 13, 1 + 1 / 13])


def spectra(p: Problems, steps: list[tuple[float, float]]) -> np.ndarray:
    """Eigenvalues of the layers' derivative at the solution [B, n + m], by autograd, in (√a u, √b v)/λ: symmetric there."""
    n = p.u.shape[1]

    def moved(x: Tensor, log: Tensor, a: Tensor, b: Tensor) -> Tensor:
        e, f = x[:n] / a.sqrt(), x[n:] / b.sqrt()
        for rows, columns in steps:
            M = e[:, None] + f + log
            z, other = M.logsumexp(1) - a.log(), M.logsumexp(0) - b.log()
            e, f = e - rows * (z / 2).tanh(), f - columns * (other / 2).tanh()
        return torch.cat([e * a.sqrt(), f * b.sqrt()])

    given = [torch.tensor(t) for t in (p.log_plan, p.a, p.b)]
    jacobian = torch.func.vmap(torch.func.jacrev(moved))(torch.zeros(len(p.a), n + p.v.shape[1]).double(), *given)
    return np.linalg.eigvals(jacobian.numpy())


def radius(values: np.ndarray) -> np.ndarray:
    """The largest modulus but for the gauge's eigenvalue 1."""
    kept = np.abs(values)
    kept[np.arange(len(values)), np.abs(values - 1).argmin(1)] = 0
    return kept.max(1)


@pytest.mark.slow
def test_section_6_rates(record_property: Record) -> None:
    """Both heads and alternating heads, n ≠ m, all weights; 1×1 has the scale of M alone: |1 − 2g|, and (1 − ω)² a pair."""
    for p in problems(6, steep=10.0, each=126):
        plans = torch.tensor(np.exp(p.log_plan))
        sigma = np.minimum([rates.second_singular_value(P) for P in plans], 1 - 1e-12)
        single = p.u.shape[1] == p.v.shape[1] == 1
        for step in (0.3, 1.7):
            expected = abs(1 - step) if single else [rates.gradient_rate(step, s) for s in sigma]
            assert radius(spectra(p, [(step, step)])) == pytest.approx(expected, abs=1e-9)
        for omega in (0.6, 1.8):
            kept = np.abs(omega - np.array([best_omega(s) for s in sigma])) > 1e-2  # a Jordan block at ω*
            expected = np.array([(1 - omega) ** 2 if single else rates.relaxed_rate(omega, s) for s in sigma])
            found = radius(spectra(p, [(2 * omega, 0.0), (0.0, 2 * omega)]))
            assert found[kept] == pytest.approx(expected[kept], abs=1e-7)
    record_property("problems", 8 * 126)


def test_section_7_unit_weights_make_kappa_grow_as_lambda_falls() -> None:
    """a = b = 1, one optimal permutation: P*_λ tends to it, all σ_k to 1. 6 points in the square, λ = 0.2, 0.1, 0.05."""
    random = np.random.default_rng(0)
    x, y = random.random((2, 1, 6, 2))
    C = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
    kappas = []
    for reg in (0.2, 0.1, 0.05):
        log, ones = -C / reg, np.zeros((1, 6))
        for _ in range(8000):
            log = log - (log_sum(log, 2) - ones)[:, :, None]
            log = log - (log_sum(log, 1) - ones)[:, None]
        assert np.abs(np.exp(log).sum(2) - 1).max() < 1e-9
        kappas.append(1 / (1 - rates.second_singular_value(torch.tensor(np.exp(log[0])))))
    assert kappas == pytest.approx([4.5, 21, 421], rel=0.02)


def value(C: np.ndarray, reg: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """F_λ = Σ P C + λ Σ P log P of the solution, by 300 steps of Sinkhorn, [B]."""
    log = -C / reg
    for _ in range(300):
        log = log - (log_sum(log, 2) - np.log(a))[:, :, None]
        log = log - (log_sum(log, 1) - np.log(b))[:, None]
    P = np.exp(log)
    return (P * C + reg * P * log).sum((1, 2))


def test_section_9_the_value_as_lambda_falls(record_property: Record) -> None:
    """(λ' − λ) s log(s/nm) ≤ F_λ' − F_λ ≤ (λ' − λ) s log s; both ends attained, for C = 0 and for n = m = 1."""
    nearest = 0.0
    for p in problems(7, steep=2.0, each=130):
        n, m = p.C.shape[1:]
        reg, s = p.reg[..., None], p.mass
        cost = (p.C - p.C.min((1, 2), keepdims=True)) / np.ptp(p.C, (1, 2), keepdims=True).clip(1e-300) * 3 * reg
        cost[: len(cost) // 2] = 0
        change = value(cost, 2 * reg, p.a, p.b) - value(cost, reg, p.a, p.b)
        slack = 1e-9 * p.reg[:, 0] * s * (1 + np.abs(np.log(s)))
        assert (change >= p.reg[:, 0] * s * np.log(s / (n * m)) - slack).all()
        assert (change <= p.reg[:, 0] * s * np.log(s) + slack).all()
        even = (p.a == p.a[:, :1]).all(1) & (p.b == p.b[:, :1]).all(1) & (cost == 0).all((1, 2))
        least = (p.reg[:, 0] * s * np.log(s / (n * m)))[even]
        assert change[even] == pytest.approx(least, rel=1e-9, abs=1e-12)
        told = np.abs(least) > 1e-6
        nearest = max(nearest, float((least[told] / change[even][told]).max(initial=0)))
    record_property("problems", 8 * 130)
    record_property("largest ratio", nearest)


def test_section_9_a_plan_may_arrive_before_its_potentials() -> None:
    """x = (0, 1), y = x + 0.3, λ = 0.02, alternating: the plan within 1e-6 after 5 layers, u + v still 0.6 off."""
    reg, x = 0.02, np.array([0.0, 1.0])
    C = (x[:, None] - (x + 0.3)) ** 2
    log_plan = np.array([[0.0, -1.0], [-1.0, 0.0]]) / reg  # P*_12 = P*_21 = e^{−1/λ}, since C_12 + C_21 − C_11 − C_22 = 2
    u, v, layers = np.zeros(2), np.zeros(2), 0
    while np.abs(np.exp((u[:, None] + v - C) / reg - 1) - np.exp(log_plan)).max() > 1e-6:
        S = np.exp((u[:, None] + v - C) / reg - 1)
        if layers % 2:
            v = v - 2 * reg * (S.sum(0) - 1) / (S.sum(0) + 1)
        else:
            u = u - 2 * reg * (S.sum(1) - 1) / (S.sum(1) + 1)
        layers += 1
    needed = C + reg * (1 + log_plan)  # u* + v*
    assert layers == 5
    assert np.abs(needed - u[:, None] - v).max() == pytest.approx(0.6, abs=0.01)
    assert np.abs(needed).max() / (2 * reg) == pytest.approx(17.8, abs=0.1)
