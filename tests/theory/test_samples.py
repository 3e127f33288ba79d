"""Theorem W of docs/theorems.md: layers on samples beside layers on the distributions, whose integrals are by quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom

from helpers.extreme import Array, osc
from otformer import AligningTransformer, theory
from otformer.network.schedule import Gradient

Record = Callable[[str, object], None]
Points = tuple[Array, Array]  # x [B, n] and y [B, n], or u and v at them
CHANCE = 1e-3


def mean_layer(at: Points, own: Points, seen: Points, other: Points, weights: Array, reg: Array, step: float) -> Points:
    """u(x) − γ tanh(½ log Σ_j w_j e^{(u(x) + v(y_j) − (x − y_j)²)/λ − 1}) at points ``at``; the y_j are ``seen``."""
    moved = []
    for k in (0, 1):
        logits = own[k][:, :, None] + other[1 - k][:, None] - (at[k][:, :, None] - seen[1 - k][:, None]) ** 2
        z = np.log((np.exp(logits / reg[:, None, None] - 1) * weights).sum(2))
        moved.append(own[k] - step * reg[:, None] * np.tanh(z / 2))
    return moved[0], moved[1]


def quadrature(kind: str, count: int) -> tuple[Points, Array]:
    """Nodes [count, N] of μ and ν and their weights: uniform on [0, 1] by Gauss and Legendre, or two points, exactly."""
    nodes, weights = np.polynomial.legendre.leggauss(40) if kind == "uniform" else (np.array([-1.0, 1.0]), np.ones(2))
    nodes = np.tile((nodes + 1) / 2, (count, 1))
    return (nodes, nodes), weights / 2


def drawn(kind: str, random: np.random.Generator, count: int, n: int) -> Points:
    x, y = random.random((2, count, n))
    return (x, y) if kind == "uniform" else (np.round(x), np.round(y))


@pytest.mark.parametrize("step", [1.0, 2.0])
@pytest.mark.parametrize("kind", ["uniform", "two points"])
def test_W_samples_beside_the_distribution(kind: str, step: float, record_property: Record) -> None:
    """C = (x − y)², c = 1: after every one of 8 layers the potentials at n samples are within the bound of the continuous
    ones, and those oscillate by at most c."""
    random, count, nearest, told = np.random.default_rng(3), 0, 0.0, 0
    for n, each in ((20, 600), (60, 320), (200, 80)):
        grid, weights = quadrature(kind, each)
        samples, reg = drawn(kind, random, each, n), 10 ** random.uniform(-0.5, 1, each)
        exact = found = tuple(np.zeros((each, n)) for _ in range(2))
        nodes = tuple(np.zeros_like(t) for t in grid)
        for depth in range(1, 9):
            exact = mean_layer(samples, exact, grid, nodes, weights, reg, step)
            nodes = mean_layer(grid, nodes, grid, nodes, weights, reg, step)
            found = mean_layer(samples, found, samples, found, np.full(n, 1 / n), reg, step)
            apart = np.maximum(*(np.abs(s - t).max(1) for s, t in zip(exact, found, strict=True)))
            bound = np.array([theory.sampling_error(n, depth, lam, 1.0, CHANCE, step * lam) for lam in reg])
            assert (apart <= bound).all()
            assert (np.maximum(*map(osc, nodes)) <= 1 + 1e-12).all()
            told += int((bound < 2 * depth * step * reg).sum())
            nearest = max(nearest, float((apart / bound).max()))
        count += each
    assert told > 1000
    record_property("problems", count)
    record_property("largest ratio", nearest)


def test_W_one_mean_is_attained(record_property: Record) -> None:
    """One layer: w with two values α and Φα of variance sinh²(c/λ). At 0.97 t one tail of the binomial alone is above
    e^{−X}, which two are allowed: t cannot be 3 % smaller. And 2 tanh(¼|log r|) is attained at s = 1/√r."""
    n, reg, chance, nearest = 10**9, 2.0, 1e-200, 0.0
    for spread in (0.2, 2.0):
        Phi = math.exp(2 * spread / reg)
        low = (Phi + 1) / (2 * Phi)
        share = (1 - low) / (low * (Phi - 1))  # P(w = Φα): mean 1
        assert share * (Phi * low - 1) ** 2 + (1 - share) * (1 - low) ** 2 == pytest.approx(math.sinh(spread / reg) ** 2)
        moved = theory.sampling_error(n, 1, reg, spread, chance) / reg
        t = 1 - math.exp(-4 * math.atanh(moved / 2))
        X = math.log(4 * n / chance)

        def tail(t: float, low: float = low, Phi: float = Phi, share: float = share) -> float:
            return float(binom.logsf(math.floor(n * (1 + t - low) / (low * (Phi - 1))), n, share))

        assert tail(t) < -X < tail(0.97 * t)
        nearest = max(nearest, next(x for x in np.arange(1, 0.9, -0.002) if tail(x * t) > -X))
        r, s = 1 - t, (1 - t) ** -0.5
        assert abs((r * s - 1) / (r * s + 1) - (s - 1) / (s + 1)) == pytest.approx(moved, rel=1e-9)
    record_property("largest ratio", float(nearest))


def test_W_the_network_with_this_start_is_that_layer() -> None:
    """a = b = 1/n and u = v = −λ log n: the network's potentials plus λ log n are those of the sample means."""
    x, y = np.random.default_rng(4).random((2, 30))
    shift = 0.5 * math.log(30)
    start = (np.full(30, -shift),) * 2
    a = np.full(30, 1 / 30)
    trace = AligningTransformer(1, 0.5, 6, Gradient())(x[:, None], y[:, None], a, a, start=start, warn=False)
    samples, found = (x[None], y[None]), (np.zeros((1, 30)),) * 2
    for _ in range(6):
        found = mean_layer(samples, found, samples, found, np.full(30, 1 / 30), np.array([0.5]), 1.0)
    for t, expected in zip(trace.potentials(6), found, strict=True):
        assert np.asarray(t) + shift == pytest.approx(expected[0], abs=1e-9)


def test_W_falls_as_the_root_of_n(record_property: Record) -> None:
    """Measured on uniform samples, n = 50 and 800, median of 40: a quarter; and so does the bound, up to its logarithm."""
    random, medians = np.random.default_rng(5), []
    for n in (50, 800):
        apart = []
        for _ in range(4):
            grid, weights = quadrature("uniform", 10)
            samples, reg = drawn("uniform", random, 10, n), np.full(10, 0.5)
            exact = found = tuple(np.zeros((10, n)) for _ in range(2))
            nodes = tuple(np.zeros_like(t) for t in grid)
            for _ in range(4):
                exact = mean_layer(samples, exact, grid, nodes, weights, reg, 1.0)
                nodes = mean_layer(grid, nodes, grid, nodes, weights, reg, 1.0)
                found = mean_layer(samples, found, samples, found, np.full(n, 1 / n), reg, 1.0)
            apart.append(np.maximum(*(np.abs(s - t).max(1) for s, t in zip(exact, found, strict=True))))
        medians.append(float(np.median(apart)))
    assert medians[0] / medians[1] == pytest.approx(4, rel=0.35)
    bounds = [theory.sampling_error(n, 4, 0.5, 0.5) for n in (10**6, 16 * 10**6)]
    assert 3.6 < bounds[0] / bounds[1] < 4


def test_bad_input() -> None:
    for call, message in (
        (lambda: theory.sampling_error(0, 1, 1.0, 1.0), "n must be"),
        (lambda: theory.sampling_error(9, -1, 1.0, 1.0), "depth must be"),
        (lambda: theory.sampling_error(9, 1, 0.0, 1.0), "reg must be"),
        (lambda: theory.sampling_error(9, 1, 1.0, math.nan), "spread must be"),
        (
            lambda: theory.sampling_error(9, 1, 1.0, 1.0, 1.0),
            "chance must be below 1: it is a probability|chance must be below",
        ),
        (lambda: theory.sampling_error(9, 1, 1.0, 1.0, step=2.5), "step must be at most 2 reg = 2"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert theory.sampling_error(9, 5, 1e-3, 1e3) == 2 * 5 * 1e-3  # t ≥ 1: no more than the steps themselves
    assert theory.sampling_error(9, 0, 1.0, 1.0) == theory.sampling_error(9, 5, 1.0, 0.0) == 0
