"""Theorems E and E⁺ of docs/limits.md, against problems that could break them. Layers: helpers/unit_layers.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch

from helpers.unit_layers import Array, error, plans, potentials
from otformer import AligningTransformer
from otformer.network.schedule import Layer
from otformer.theory import two_point
from otformer.theory.two_point import State, annealing, error_bound, path

Record = Callable[[str, object], None]
FIRST, FALLING, LAST = "first part", "one layer for each λ between", "last part"


@dataclass(frozen=True)
class Listed:
    """A schedule that is a list of layers."""

    listed: tuple[Layer, ...]

    def layers(self, reg: float, depth: int) -> tuple[Layer, ...]:
        return self.listed


# E: annealing escapes on every 2 × 2 cost


def costs(random: np.random.Generator, count: int, largest: float = 1.0) -> Array:
    """Corners of the cube, ties and near ties, and random ones: Δ of both signs and 0."""
    corners, ties = random.integers(0, 2, (count, 2, 2)), random.choice([0, 1e-6, 0.3, 0.5, 1], (count, 2, 2))
    return largest * np.choose(np.arange(count)[:, None, None] % 3, [corners, ties, random.uniform(size=(count, 2, 2))])


def as_cost(C: Array) -> two_point.Cost:
    return (float(C[0, 0]), float(C[0, 1])), (float(C[1, 0]), float(C[1, 1]))


def test_e_no_layer_of_any_reg_enlarges_the_slow_quantities(record_property: Record) -> None:
    random, count = np.random.default_rng(5), 1000
    for C in costs(random, count, 3.0):
        u, v = (tuple(random.normal(size=2) * 10 ** random.uniform(-3, 1)) for _ in range(2))
        regs, steps = 10 ** random.uniform(-2, 2, 25), random.choice([0, 0.3, 1, 2], (25, 2))
        layers = [Layer(float(r), float(r * s), float(r * t)) for r, (s, t) in zip(regs, steps, strict=True)]
        sizes = [max(map(abs, state.slow)) for state in path(layers, State(u, v, 1.0), as_cost(C))]
        assert all(after <= before * (1 + 1e-12) + 1e-12 for before, after in pairwise(sizes))
        (e, f), any_reg = State((0, 0), (0, 0), 1.0, as_cost(C)).slow, float(10 ** random.uniform(-1, 1))
        solved = State((-e, 0.0), (0.0, -f), any_reg, as_cost(C))
        assert solved.slow == pytest.approx((0, 0), abs=1e-12)
        assert solved.rows()[0] == pytest.approx(solved.rows()[1], abs=1e-9)  # its plan is P*_λ but for a factor
        assert solved.columns()[0] == pytest.approx(solved.columns()[1], abs=1e-9)
    record_property("problems", count)


def test_e_a_layer_at_eight_times_the_largest_cost_divides_them_by_twelve(record_property: Record) -> None:
    """From (0, 0), rows first: 0.108 L after layer 1, L/40 · 12^{2−k} after layer k ≥ 2, and the proof's |z| ≤ 0.081."""
    random, count, ratio = np.random.default_rng(6), 3000, 0.0
    C, reg, off = costs(random, count), np.full(count, 8.0), np.zeros(count)
    turn = (C[:, 0, 1] - C[:, 1, 0]) / 2
    e, f = turn + (C[:, 0, 0] - C[:, 1, 1]) / 2, turn - (C[:, 0, 0] - C[:, 1, 1]) / 2
    layers = [(reg, off, 2 * reg) if k % 2 else (reg, 2 * reg, off) for k in range(9)]
    for k, (u, v) in enumerate(potentials(C, layers)):
        changed = abs(v[:, 1] - v[:, 0] - f if k % 2 == 0 else u[:, 0] - u[:, 1] - e)
        if k:
            most = 0.108 if k == 1 else 12.0 ** (2 - k) / 40
            assert (changed <= most + 1e-14).all()
            ratio = max(ratio, float((changed / most).max())) if k < 3 else ratio
        if k > 1:
            M = plans(C, reg, (u, v))
            assert max(abs(np.log(M.sum(1))).max(), abs(np.log(M.sum(2))).max()) <= 0.081
    record_property("problems", count)
    record_property("largest ratio", ratio)


def parts(reg: float, tol: float, largest: float, left_out: str = "") -> list[tuple[Array, Array, Array]]:
    """The network of theorem E, or one with half of the first part, three last layers, or nothing between."""
    first = 3 + math.ceil(math.log(largest / (4 * tol * reg)) / math.log(12))
    between = [8 * largest / 2**k for k in range(1, math.ceil(math.log2(8 * largest / reg)))]
    regs = [8 * largest] * (math.ceil(first / 2) if left_out == FIRST else first)
    regs += ([] if left_out == FALLING else between) + [reg] * (3 if left_out == LAST else 4)
    each = [np.full(1, r) for r in regs]
    return [(r, 2 * r * (k % 2 == 0), 2 * r * (k % 2)) for k, r in enumerate(each)]


@pytest.mark.parametrize("left_out", ["", FIRST, FALLING, LAST])
def test_e_its_networks_reach_what_they_are_built_for(left_out: str, record_property: Record) -> None:
    """12,000 problems, λ/L 1e-4 … 1, ε 1e-12 … 1, in long doubles: in float64 rounding is the larger part of E."""
    random, worst, count, same = np.random.default_rng(7), 0.0, 40, True
    for number in range(300):
        largest, ratio = float(2.0 ** random.integers(-9, 10)), 2.0 ** -random.choice([random.integers(0, 14), 9])
        reg = largest * float(ratio if number % 3 else 10 ** random.uniform(-4, 0))
        tol = float(10 ** random.uniform(-12, 0)) if number % 2 else 1e-12
        C, ours = costs(random, count, largest).astype(np.longdouble), annealing(reg, tol, largest)
        layers = parts(reg, tol, largest, left_out)
        if not left_out:
            same &= [(r[0], s[0], t[0]) for r, s, t in layers] == [(each.reg, each.rows, each.columns) for each in ours]
            layers = [(np.full(1, each.reg), np.full(1, each.rows), np.full(1, each.columns)) for each in ours]
        *_, end = potentials(C, layers)
        worst = max(worst, float(error(plans(C, np.full(1, reg), end)).max()) / tol)
    assert worst > 2 if left_out else worst <= 1
    assert same  # but for a part that is left out, those are the layers of `annealing`
    record_property("problems", 300 * count)
    record_property("largest ratio", worst)


def test_e_the_module_itself_and_the_separation() -> None:
    """λ = 0.05, ε = 1e-4: 20 layers, where theorem D asks for 19,998 at one λ."""
    reg, tol = 0.05, 1e-4
    layers = annealing(reg, tol)
    x, y = (torch.tensor(side).double()[:, None] for side in (two_point.X, two_point.Y))
    assert AligningTransformer(1, reg, len(layers), Listed(layers))(x, y).marginal_error <= tol
    assert len(layers) == 20
    assert error_bound(reg, 19_990) > tol > error_bound(reg, 20_000)


def test_bad_input_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"reg must be at most the largest cost, 2\.25, got 3"):
        annealing(3, 0.1)
    with pytest.raises(ValueError, match="tol must be from 1e-12 to 1, got 2"):
        annealing(0.1, 2)
    with pytest.raises(ValueError, match=r"step must be at most 2λ = 0\.1, got 0\.3: theorem D has no longer steps"):
        error_bound(0.05, 10, 0.3)


# E⁺: from one λ to the next, for every n


def test_e_plus_a_smaller_reg_starts_near(record_property: Record) -> None:
    """KL(P*_{λ/r}‖M') ≤ r KL(P*_λ‖M) + ΣM' − rΣM + (r − 1)H(P*_λ): 1,200 problems; attained by C = 0."""
    random, nearest, stage, count = np.random.default_rng(8), 0.0, 0.0, 200
    for n, m in ((1, 1), (2, 2), (3, 5), (4, 4), (6, 2), (7, 7)):
        a, b = (10 ** random.uniform(-2, 1, (count, k)) for k in (n, m))
        a, b = np.ones((2, count, n)) if n == m else (a, b * (a.sum(1) / b.sum(1))[:, None])
        C = random.normal(size=(count, n, m)) * np.where(np.arange(count) % 4, 1.0, 0.0)[:, None, None]
        r = random.choice([1.0, 1.3, 2.0, 3.0], count)[:, None, None]
        P, Q = (exact(k * C, a, b) for k in (1.0, r))  # λ = 1 and 1/r
        M = P * np.exp(random.normal(size=(count, n, 1)) + random.normal(size=(count, 1, m)))
        M = np.where(np.arange(count)[:, None, None] % 2, M, P)  # half of them from an exact stage
        N = np.exp(r - 1) * M**r
        assert np.log(N) == pytest.approx(r * (np.log(M) + 1) - 1)  # M' = exp((u + v − C)/(λ/r) − 1)
        bound = r[:, 0, 0] * divergence(P, M) + N.sum((1, 2)) - r[:, 0, 0] * M.sum((1, 2))
        bound -= (r[:, 0, 0] - 1) * (P * np.log(P)).sum((1, 2))
        assert (divergence(Q, N) <= bound + 1e-7 * (1 + abs(bound))).all()
        assert np.allclose(divergence(Q, N)[::4], bound[::4], rtol=1e-6, atol=1e-7)
        if n == m:
            halved = exact(2 * C, a, b)
            left, most = divergence(halved, math.e * P * P), n * (math.log(n) + math.e - 2)
            assert (left <= most + 1e-7).all()
            stage = max(stage, float((left / most).max()))
        uneven = (np.arange(count) % 4 > 0) & (bound > 1e-6)
        nearest = max(nearest, float((divergence(Q, N) / bound.clip(1e-6))[uneven].max(initial=0)))
    record_property("problems", 6 * count)
    record_property("largest ratio", nearest)
    record_property("largest ratio of a stage", stage)  # attained for n = 1


def test_e_plus_a_stage_of_log_n_layers_has_a_small_error(record_property: Record) -> None:
    """From an exact stage, alternating heads, ω = 1: N ≤ δs in fewer than 28(log n + 0.72)/δ² layers. Far from attained."""
    random, delta, count, most = np.random.default_rng(9), 0.5, 250, 0.0
    for n in (2, 3, 5, 9):
        C = random.uniform(size=(count, n, n)) * 10 ** random.uniform(0, 0.8, count)[:, None, None]
        M, ones = math.e * exact(C, np.ones((count, n)), np.ones((count, n))) ** 2, np.ones(count)
        shifted, layers = -(np.log(M) + 1), [(ones, 2 * ones, 0 * ones), (ones, 0 * ones, 2 * ones)] * 20
        errors = np.array([error(plans(shifted, ones, at)) for at in potentials(shifted, layers)])
        depth = 28 * (math.log(n) + 0.72) / delta**2
        first = (errors <= delta * n).argmax(0)
        assert (errors.min(0) <= delta * n).all()
        assert depth > len(layers)
        most = max(most, float(first.max()) / depth)
    record_property("problems", 4 * count)
    record_property("largest ratio", most)


def exact(C: Array, a: Array, b: Array) -> Array:
    """P* at λ = 1, by Sinkhorn's steps: sums to 1e-9."""
    logs = -np.broadcast_to(C, (len(a), *C.shape[1:]))
    for _ in range(3000):
        logs = logs + (np.log(a) - np.logaddexp.reduce(logs, axis=2))[:, :, None]
        logs = logs + (np.log(b) - np.logaddexp.reduce(logs, axis=1))[:, None, :]
        if abs(np.exp(logs).sum(2) / a - 1).max() < 1e-10:
            break
    return np.exp(logs)


def divergence(P: Array, M: Array) -> Array:
    return (P * np.log(P / M) - P + M).sum((1, 2))
