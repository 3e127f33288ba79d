"""Theorem N.2 of docs/exactness.md: problems with two points determine every λ and γ of a construction. N.3: the ReLU gate.

F(c) is v of the point y_2 after all layers, for x_1 = x_2, c = ‖x_1 − y_2‖², and y_1 far away.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch

from otformer.network.schedule import Layer
from otformer.network.transformer import AligningTransformer

Array = np.ndarray
Record = Callable[[str, object], None]
FIRST = np.pi * 1j * (2 * np.arange(4) + 1)  # iπ(2j + 1), j = 0, …, 3
ODD = FIRST + 80j * np.pi  # j = 40, …, 43


class Listed:
    """A schedule of given λ and γ, the same for both heads."""

    def __init__(self, regs: Array, steps: Array) -> None:
        self.found = tuple(Layer(float(r), float(g), float(g)) for r, g in zip(regs, steps, strict=True))

    def layers(self, reg: float, depth: int) -> tuple[Layer, ...]:
        return self.found


def drawn(random: np.random.Generator, depth: int) -> tuple[Array, Array]:
    """λ and γ of every layer, γ ≤ 2λ."""
    regs = np.exp(random.uniform(-1.5, 0.5, depth))
    return regs, regs * np.exp(random.uniform(-1.5, np.log(2), depth))


def potentials(regs: Array, steps: Array, c: Array) -> tuple[Array, Array]:
    """u_1 = u_2 and v_2 after as many layers as there are steps, for complex c."""
    u = v = np.zeros_like(c)
    for reg, step in zip(regs, steps, strict=False):
        m = np.exp((u + v - c) / reg - 1)
        u, v = u - step * (m - 1) / (m + 1), v - step * (2 * m - 1) / (2 * m + 1)
    return u, v


def reduced(regs: Array, steps: Array, c: Array) -> Array:
    """F."""
    return potentials(regs, steps, c)[1]


def exponent(regs: Array, steps: Array, k: int, c: Array) -> Array:
    """log m of layer k."""
    u, v = potentials(regs[:k], steps[:k], c)
    return (u + v - c) / regs[k] - 1


def near_a_pole(f: Callable[[Array], Array], pole: complex, alone: float, values: Array) -> Array:
    """The solutions of f(c) = value near a simple pole: Newton's method in w = 1/(c − pole), in which f is nearly linear.

    ``alone``: how far the pole is from the next one.
    """
    circle = 0.01 * alone * np.exp(2j * np.pi * np.arange(16) / 16)
    around = f(pole + circle)
    residue, w = np.mean(around * circle), (values - np.mean(around)) / np.mean(around * circle)
    for _ in range(60):
        w = w - (f(pole + 1 / w) - values) / residue
    return pole + 1 / w


def singular(regs: Array, steps: Array) -> list[Array]:
    """Points with 2m = −1 of every layer, those of layer k + 1 near the first one of layer k; [4] each."""
    found = [-regs[0] * (1 - np.log(2) + FIRST)]
    for k in range(1, len(regs)):
        center, after = found[-1][:2]
        found.append(near_a_pole(partial(exponent, regs, steps, k), center, abs(after - center), ODD - np.log(2)))
        assert np.abs(exponent(regs, steps, k, found[-1]) - ODD + np.log(2)).max() < 1e-4
        assert np.abs(found[-1] - center).max() < abs(after - center)
    return found


def test_n_the_network_far_from_one_point_is_this_recursion() -> None:
    """The network's own attention: λ log(A_12/A_11) − C_11 + c = F(c) − Σγ, λ the last layer's."""
    for seed in range(20):
        random = np.random.default_rng(seed)
        regs, steps = drawn(random, 1 + seed % 4)
        c, away = np.array(random.uniform(0, 2)), 9.0
        net = AligningTransformer(1, float(regs[-1]), len(regs), Listed(regs, steps), marginals=False)
        trace = net([[0.0], [0.0]], [[away], [float(np.sqrt(c))]], warn=False)
        log = torch.log(trace.attention(-1)[..., 0, :]).flatten()
        found = float(regs[-1] * (log[1] - log[0])) - away**2 + float(c)
        assert found == pytest.approx(float(reduced(regs, steps, c) - steps.sum()), abs=1e-6)


def recovered(points: list[Array]) -> tuple[list[float], list[float]]:
    """Every λ, and every γ but the last, from points with 2m = −1 alone.

    λ_1 from the spacing of the first layer's. γ_k and λ_{k+1} from those of layer k + 1 near one of layer k, where
    γ_k ψ + before − c = λ_{k+1}(1 − log 2 + iπ(2j + 1)): differences of imaginary parts, and real parts.
    """
    regs, steps = [float(np.diff(points[0].imag)[0] / (-2 * np.pi))], list[float]()
    for c in points[1:]:
        u, v = potentials(np.array(regs), np.array(steps), c)
        m = np.exp((u + v - c) / regs[-1] - 1)
        psi = -(m - 1) / (m + 1) - (2 * m - 1) / (2 * m + 1)
        left = np.concatenate([np.diff(psi).imag, psi.real])
        right = np.concatenate([np.full(len(c) - 1, -2 * np.pi), np.full(len(c), np.log(2) - 1)])
        rest = np.concatenate([np.diff(u + v - c).imag, (u + v - c).real])
        step, reg = np.linalg.lstsq(np.stack([left, right], -1), -rest, rcond=None)[0]
        regs, steps = [*regs, float(reg)], [*steps, float(step)]
    return regs, steps


def last_step(regs: Array, steps: Array, points: list[Array]) -> float:
    """γ of the last layer from the residue of F at one of its poles: near it F = 2γ/(2m + 1) + what is regular."""
    at, after = points[-1][:2]
    circle = 1e-3 * abs(after - at) * np.exp(2j * np.pi * np.arange(64) / 64)
    alone = 2 / (2 * np.exp(exponent(regs, steps, len(regs) - 1, at + circle)) + 1)
    return float((np.mean(reduced(regs, steps, at + circle) * circle) / np.mean(alone * circle)).real)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_n_the_singular_points_give_every_reg_and_step(depth: int, record_property: Record) -> None:
    """100 networks. That the points are poles of F, and the last γ, follow from the residue there."""
    for seed in range(100):
        regs, steps = drawn(np.random.default_rng([seed, depth]), depth)
        points = singular(regs, steps)
        found = recovered(points)
        np.testing.assert_allclose(found[0], regs, rtol=1e-4)
        np.testing.assert_allclose(found[1], steps[:-1], rtol=1e-4)
        assert last_step(regs, steps, points) == pytest.approx(steps[-1], rel=5e-3)
    record_property("problems", 100)


def test_n_other_parameters_are_seen_on_real_problems(record_property: Record) -> None:
    """1,000 networks beside one with another λ or γ or with two layers exchanged: F − Σγ differs for some c ≥ 0."""
    c, nearest = np.linspace(0, 12, 200), np.inf
    for seed in range(1000):
        random = np.random.default_rng([7, seed])
        regs, steps = drawn(random, 3)
        others = [regs.copy(), steps.copy()]
        k = int(random.integers(0, 3))
        if seed % 3 < 2:
            others[seed % 3][k] *= 1.1
        else:
            order = np.roll(np.arange(3), 1 + seed % 2)
            others = [t[order] for t in others]
        apart = reduced(regs, steps, c) - steps.sum() - reduced(others[0], others[1], c) + others[1].sum()
        nearest = min(nearest, float(np.abs(apart).max()))
    record_property("problems", 1000)
    assert nearest > 1e-6


def test_n_two_relu_units_are_an_exact_gate() -> None:
    """ReLU(κ(θ − t)) − ReLU(κ(θ − t) − 1), t = 1/(n + 1), κ = 2(N + 3/2)(N + 2): exactly 0 for n ≤ N and 1 beyond."""
    for most in range(1, 60):
        theta, kappa = 1 / (most + Fraction(3, 2)), 2 * (most + Fraction(3, 2)) * (most + 2)
        for n in range(1, 200):
            t = kappa * (theta - Fraction(1, n + 1))
            assert max(t, Fraction(0)) - max(t - 1, Fraction(0)) == int(n > most)
