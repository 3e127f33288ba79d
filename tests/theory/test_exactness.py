"""Theorem X of docs/exactness.md: the plan has branch points, and no network has any. Theorem K: two points are not enough.

Plans are continued in the complex plane by Newton's method on their marginals; networks are run on complex points.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import oracles
from helpers.complexified import around, constructed, drawn, learned
from otformer import AligningTransformer
from otformer.learning.model import MIX, Architecture, LearningTransformer
from otformer.network.schedule import Alternating, Annealed, Gradient, Schedule
from otformer.transport.reference import plan, sinkhorn

Array = np.ndarray
SIZES = (3, 4, 7)
Record = Callable[[str, object], None]


def weight(reg: float, s: Any) -> Any:
    """e^t, t = 2s²/λ."""
    return np.exp(2 * s**2 / reg)


def discriminant(n: int, reg: float, s: Array) -> Array:
    """D = (n − 2)² + 4(n − 1)e^t."""
    return (n - 2) ** 2 + 4 * (n - 1) * weight(reg, s)


def root(n: int, reg: float, s: Array) -> Array:
    """P_11 by the formula, real s ≠ 0: the root (2e^t + n − 2 − √D)/(2(e^t − 1)), written without cancellation."""
    e = weight(reg, s)
    return 2 * e / (2 * e + n - 2 + np.sqrt(discriminant(n, reg, s)))


def misfits(n: int, reg: float, s: Array, p: Array) -> Array:
    """|(2(e^t − 1)p − (2e^t + n − 2))² − D|/|D| of values p at points s: 0 where p is a root."""
    e, D = weight(reg, s), discriminant(n, reg, s)
    return np.abs(((2 * (e - 1) * p - (2 * e + n - 2)) ** 2 - D) / D)


def on_a_loop(n: int, reg: float, radius: float, network: Callable[[Array], Array]) -> float:
    """The misfit at a point of a circle around the branch point where h = (2(e^t − 1)p − (2e^t + n − 2))/√D has Re h = 0.

    √D, continued once around, changes its sign. p does not, so Re h changes its sign somewhere; there h² ≤ 0. The place is
    found by dividing the circle, and then the part with the change, into 40 parts. It can be as narrow as rounding.
    """
    center, angles = branch_point(n, reg), np.linspace(0, 2 * np.pi, 41)
    slope = np.sqrt(16 * (n - 1) * weight(reg, center) * center / reg)  # the root of D' at its zero
    for _ in range(8):
        s = center + radius * np.exp(1j * angles)
        e, half = weight(reg, s), slope * np.exp(0.5j * angles)
        h = (2 * (e - 1) * network(s) - (2 * e + n - 2)) / (half * np.sqrt(discriminant(n, reg, s) / half**2))
        (changes,) = np.nonzero(np.diff(h.real > 0))
        k = int(changes[0])
        if abs(h[k + 1] - h[k]) < 1e-7:
            break
        angles = np.linspace(angles[k], angles[k + 1], 41)
    return float(misfits(n, reg, s, network(s))[k : k + 2].max())


def branch_point(n: int, reg: float) -> complex:
    """A zero of D."""
    return complex(np.sqrt(reg / 2 * (np.log((n - 2) ** 2 / (4 * (n - 1))) + 1j * np.pi)))


def cost(n: int, s: complex) -> Array:
    """(x_i − x_j)² of x = y = (s, 0, …, 0)."""
    x = np.zeros(n, complex)
    x[0] = s
    return (x[:, None] - x) ** 2


def continued(n: int, reg: float, path: Array) -> Array:
    """The plans [len(path), n, n] continued along a path that begins at a real s: Newton on the 2n marginals, v_n fixed."""
    C = torch.tensor(cost(n, path[0]).real)
    w = torch.cat(sinkhorn(C, reg)).numpy().astype(complex)
    found = []
    for s in path:
        for _ in range(20):
            M = np.exp((w[:n, None] + w[n:] - cost(n, s)) / reg - 1)
            off = np.concatenate([M.sum(1), M.sum(0)]) - 1
            slope = np.block([[np.diag(M.sum(1)), M], [M.T, np.diag(M.sum(0))]]) / reg
            w[:-1] -= np.linalg.lstsq(slope[:, :-1], off, rcond=None)[0]
            if np.abs(off).max() < 1e-13:
                break
        assert np.abs(off).max() < 1e-11
        found.append(M)
    return np.array(found)


# X: the plan


def test_x_the_formula_is_the_plan(record_property: Record) -> None:
    """POT, and Sinkhorn of this package, on real s. On 1,000 more: the plan made from P_11 has the form e^{u + v − C/λ}."""
    problems = [(n, reg, s) for n in (2, 3, 5, 9) for reg in (0.5, 1.0, 7.0) for s in (0.05, 0.4, 0.9)]
    random = np.random.default_rng(0)
    for n in (2, 3, 4, 7, 50):
        reg, s = 10 ** random.uniform(-1, 1, 200), random.uniform(0.01, 1, 200)
        p = root(n, reg, s)
        edge = (1 - p) / (n - 1)
        inner = (1 - edge) / (n - 1)  # the plan [[p, edge …], [edge, inner …], …] has the sums 1
        assert np.log(p * inner / edge**2) == pytest.approx(2 * s**2 / reg, rel=1e-6)
    record_property("problems", 1000)
    for n, reg, s in problems:
        C, ones, expected = cost(n, s).real, np.ones(n), float(root(n, reg, np.array(s)))
        assert oracles.pot_plan(C, ones, ones, reg)[0, 0] == pytest.approx(expected, abs=1e-9)
        dense = torch.tensor(C)
        assert float(plan(dense, *sinkhorn(dense, reg), reg)[0, 0]) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 50])
def test_x_the_discriminant_has_a_simple_zero_from_three_points_on(n: int) -> None:
    """The argument of D gains 2π around its zero; for n = 2 there is none, D = 4e^t."""
    circle = around(branch_point(max(n, 3), 0.3), 0.1, 2000)
    angle = np.unwrap(np.angle(discriminant(n, 0.3, circle)))
    assert (angle[-1] - angle[0]) / (2 * np.pi) == pytest.approx(float(n > 2), abs=1e-9)


@pytest.mark.parametrize("n", [2, *SIZES])
def test_x_the_plan_is_another_after_one_loop_and_back_after_two(n: int) -> None:
    reg = 0.3
    center = branch_point(max(n, 3), reg)
    loop = around(center, 0.12, 400, start=-np.pi / 2)
    down = np.linspace(center.real, loop[0], 100)
    plans = continued(n, reg, np.concatenate([down, loop[1:], loop[1:]]))
    first, once, twice = plans[99], plans[99 + 400], plans[99 + 800]
    e = weight(reg, loop[0])
    both = np.roots([e - 1, -(2 * e + n - 2), e])
    assert np.abs(both - first[0, 0]).min() < 1e-10
    assert np.abs(twice - first).max() < 1e-10
    if n == 2:
        assert np.abs(once - first).max() < 1e-10
    else:
        assert np.abs(once - first).max() > 0.5
        assert np.abs(both - once[0, 0]).min() < 1e-10  # the other root: a matrix of the same form with the same marginals
    assert np.abs(plans.sum(1) - 1).max() < 1e-10


def test_x_back_on_the_real_line_the_other_plan_has_negative_entries() -> None:
    """Out from a real s, once around, and back: marginals 1, the same form, and not a plan."""
    n, reg = 4, 0.3
    center = branch_point(n, reg)
    loop = around(center, 0.12, 400, start=-np.pi / 2)
    out = np.linspace(center.real, loop[0], 100)
    last = continued(n, reg, np.concatenate([out, loop[1:], out[::-1]]))[-1]
    assert np.abs(last.imag).max() < 1e-10
    assert last.real[0, 0] > 1
    assert last.real[0, 1:].max() < 0
    assert np.abs(last.real.sum(0) - 1).max() < 1e-10


# X: networks


@pytest.mark.parametrize("schedule", [Gradient(), Alternating(), Annealed(stages=5)])
@pytest.mark.parametrize("n", SIZES)
def test_x_the_constructed_network_misses_the_plan_around_the_branch_point(n: int, schedule: Schedule) -> None:
    """On the real line its misfit falls to rounding; on a circle it is 1 or more somewhere, at every depth."""
    reg, line = 0.5, np.linspace(0.3, 0.9, 7)
    for depth in (1, 2, 5, 20):
        net = AligningTransformer(1, reg, depth, schedule)
        for radius in (0.02, 0.1, 0.2):
            assert on_a_loop(n, reg, radius, partial(constructed, net, n)) >= 1 - 1e-6
    assert float(misfits(n, reg, line, constructed(AligningTransformer(1, reg, 1, schedule), n, line)).max()) > 0.01
    assert float(misfits(n, reg, line, constructed(AligningTransformer(1, reg, 500, schedule), n, line)).max()) < 1e-9


def test_x_a_thousand_random_networks_miss_it_too(record_property: Record) -> None:
    """Attention and tanh feed-forward layers with random weights, of depth 1 or 2, on prompts [x, x², 1, 0]."""
    nearest = np.inf
    for seed in range(1000):
        random = np.random.default_rng(seed)
        n, reg = int(random.integers(3, 6)), float(np.exp(random.uniform(-1, 1)))
        nearest = min(nearest, on_a_loop(n, reg, 0.1 * random.uniform(0.1, 1), drawn(random, n)))
    record_property("problems", 1000)
    record_property("largest ratio", 1 / nearest)
    assert 1 - 1e-6 <= nearest < 1.05  # and 1 is nearly attained


def test_x_one_layer_is_exact_for_two_points_on_the_same_loop_and_not_for_three() -> None:
    """Theorem K's network, on complex points: the misfit that is 1 or more from n = 3 on is 0 for n = 2."""
    net, s = one_layer(1, 0.3), around(branch_point(3, 0.3), 0.1, 100)
    assert float(misfits(2, 0.3, s, learned(net, 2, s)).max()) < 1e-10
    assert on_a_loop(3, 0.3, 0.1, partial(learned, net, 3)) >= 1 - 1e-6


def test_x_a_half_step_of_sinkhorn_has_a_logarithm_and_its_scalings_have_not() -> None:
    """u_1 = −λ log(n − 1 + e^{−s²/λ}) + const of y = (s, 0, …, 0), x_1 = 0: one loop adds −2πiλ. e^{u/λ} comes back."""
    n, reg = 4, 0.3
    zero = np.sqrt(-reg * (np.log(n - 1) + 1j * np.pi))
    circle = around(zero, 0.1, 400)
    total, u = n - 1 + np.exp(-(circle**2) / reg), [0j]
    u[0] = -reg * np.log(total[0])
    for each in total[1:]:  # Newton on e^{−u/λ} = total, from the value before
        w = u[-1]
        for _ in range(20):
            w += reg * (1 - each * np.exp(w / reg))
        u.append(w)
    assert abs(u[-1] - u[0]) == pytest.approx(2 * np.pi * reg, abs=1e-9)
    assert abs(np.exp(u[-1] / reg) - np.exp(u[0] / reg)) < 1e-9


# K: two points do not identify the algorithm


def one_layer(dim: int, reg: float) -> LearningTransformer:
    """Uniform attention takes the mean from y; the output head has logits 2(y_i − ȳ)·x_j/λ. The plain prompt, no sink."""
    net = LearningTransformer(Architecture(dim=dim, depth=1, prompt="plain")).double().requires_grad_(False)
    r = net.architecture.registers
    eye = torch.eye(dim, dtype=torch.float64)
    net.V[0, 0, 0, r["y"], r["y"]] = -eye / MIX
    net.P_out[0, r["y"], r["x"]] = 2 / reg * eye
    return net


@pytest.mark.parametrize("dim", [1, 3])
def test_k_one_layer_is_exact_on_two_points_and_wrong_on_three(dim: int, record_property: Record) -> None:
    record_property("problems", 3000)
    g = torch.Generator().manual_seed(dim)
    for reg in (0.05, 0.3, 3.0):
        net = one_layer(dim, reg)
        x, y = torch.randn(2, 1000, 2, dim, generator=g, dtype=torch.float64)
        C = torch.cdist(y, x) ** 2
        P = torch.sigmoid((C[:, 0, 1] + C[:, 1, 0] - C[:, 0, 0] - C[:, 1, 1]) / (2 * reg))
        exact = torch.stack([torch.stack([P, 1 - P], -1), torch.stack([1 - P, P], -1)], -2)
        assert torch.allclose(net(x, y).attention[0], exact, atol=1e-9)
        assert float(net(x[:, :1], y[:, :1]).attention.min()) == 1
    line = torch.zeros(1, 3, dim, dtype=torch.float64)
    line[0, :, 0] = torch.tensor([-1.0, 0.0, 1.0])
    C = (torch.cdist(line, line) ** 2)[0]
    ones = np.ones(3)
    P = oracles.pot_plan(C, ones, ones, 0.2)
    assert float(P[1, 1]) > 0.97
    assert one_layer(dim, 0.2)(line, line).attention[0, 0, 1].tolist() == pytest.approx([1 / 3] * 3)


def test_k_the_formula_for_two_points_is_the_plan() -> None:
    g = torch.Generator().manual_seed(0)
    for reg in (0.1, 1.0):
        C = torch.rand(2, 2, generator=g, dtype=torch.float64)
        expected = torch.sigmoid((C[0, 1] + C[1, 0] - C[0, 0] - C[1, 1]) / (2 * reg))
        assert float(oracles.pot_plan(C, np.ones(2), np.ones(2), reg)[0, 0]) == pytest.approx(float(expected), abs=1e-9)
