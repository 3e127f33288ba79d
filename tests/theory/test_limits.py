"""Theorems D, E, I, J and K of docs/limits.md, each against problems that could break it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from otformer import AligningTransformer
from otformer.learning.model import MIX, Architecture, LearningTransformer
from otformer.network.features import Features
from otformer.network.schedule import Alternating, Annealed, Gradient, Layer, Relaxed, Schedule
from otformer.theory import two_point
from otformer.theory.two_point import PAIR, State, annealing, error_bound, path, sinkhorn_bounds, sinkhorn_path
from otformer.transport.costs.matrix import Dense
from otformer.transport.reference import plan, sinkhorn
from otformer.transport.solvers.network import run


@dataclass(frozen=True)
class Listed:
    """A schedule that is a list of layers."""

    listed: tuple[Layer, ...]

    def layers(self, reg: float, depth: int) -> tuple[Layer, ...]:
        return self.listed


def entries(state: State) -> list[float]:
    return [math.exp(state.log_plan(i, j)) for i in (0, 1) for j in (0, 1)]


# D: the two-point lower bound


@pytest.mark.parametrize("schedule", [Gradient(), Alternating(), Relaxed(), Annealed(stages=5)])
def test_d_the_path_in_plain_floats_is_the_networks(schedule: Schedule) -> None:
    reg, depth = 0.05, 60
    x, y = (torch.tensor(side).double()[:, None] for side in (two_point.X, two_point.Y))
    trace = AligningTransformer(1, reg, depth, schedule)(x, y, warn=False)
    for k, state in enumerate(path(schedule.layers(reg, depth))):
        u, v = trace.potentials(k)
        assert u.tolist() == pytest.approx(state.u, abs=1e-12)
        assert v.tolist() == pytest.approx(state.v, abs=1e-12)
    assert state.error == pytest.approx(trace.marginal_error, rel=1e-9)


@pytest.mark.parametrize("reg", [0.02, 0.05, 0.1, 0.2, 0.5, 2.0, 100.0])
def test_d_sinkhorns_error_is_two_over_k_plus_one(reg: float) -> None:
    for k, state in enumerate(sinkhorn_path(reg, 2000)):
        if k:
            low, high = sinkhorn_bounds(reg, k)
            assert low - 1e-12 <= state.error <= high + 1e-12
    if reg <= 0.05:  # attained: neither constant can be moved by 10 %
        assert state.error == pytest.approx(2 / 2001, rel=1e-3)


def test_d_no_network_of_one_reg_is_faster_than_one_over_k() -> None:
    """1,000 networks, every layer with its own steps, γ_r + γ_c ≤ 2λ; all that the proof says, at every layer."""
    random = np.random.default_rng(0)
    for _ in range(1000):
        reg = float(10 ** random.uniform(-2, 0))
        total = 2 * reg * random.choice([1.0, random.uniform(0.01, 1)], 120)
        share = random.choice([0.0, 0.5, 1.0, random.uniform()], 120)
        before = 0.0
        for k, state in enumerate(
            path([Layer(reg, float(t * s), float(t * (1 - s))) for t, s in zip(total, share, strict=True)])
        ):
            M = entries(state)
            assert max(M) <= 1 + 1e-12
            assert k == 0 or 1 / state.corner <= before + 1 + 1e-9 * before
            assert state.error >= error_bound(reg, k)
            assert state.error >= 2 * (M[2] - M[1]) - 1e-12
            before = 1 / state.corner


def test_d_is_attained_by_alternating_and_needs_its_hypothesis() -> None:
    errors = [state.error for state in path(Alternating().layers(0.02, 10_000))]
    assert errors[-1] == pytest.approx(error_bound(0.02, 10_000), rel=0.01)
    long = [state.error for state in path(Relaxed(1.8).layers(0.02, 100))]
    assert any(error < error_bound(0.02, k) for k, error in enumerate(long))  # ω = 1.8: γ = 3.6λ


@pytest.mark.parametrize(
    ("schedule", "limit"),
    [(Relaxed(0.5), 6.0), (Relaxed(0.8), 3.0), (Relaxed(1.5), 2.0), (Gradient(0.01), 8.0), (Gradient(0.036), 40 / 18)],
)
def test_d_where_the_error_settles(schedule: Schedule, limit: float) -> None:
    """k E_k at λ = 0.02: 2(2 − ω)/ω for ω ≤ 1, 2 for 1 ≤ ω ≤ 1.8, 4λ/γ for both heads. Measured, not proved."""
    *_, last = path(schedule.layers(0.02, 4000))
    assert 4000 * last.error == pytest.approx(limit, rel=0.01)


def test_d_the_slow_time_ends_at_e_to_one_over_reg() -> None:
    """λ = 0.15: e^{1/λ} = 786. There the bound says nothing more, and the error falls as σ^k, σ = tanh(1/2λ)."""
    reg = 0.15
    errors = [state.error for state in sinkhorn_path(reg, 6000)]
    assert error_bound(reg, 1000) == 0
    assert errors[6000] / errors[5000] == pytest.approx(math.tanh(1 / (2 * reg)) ** 1000, rel=0.01)


# E: annealing separates


def test_e_no_layer_of_any_reg_enlarges_the_slow_quantities() -> None:
    random = np.random.default_rng(1)
    for _ in range(1000):
        u, v = (tuple(random.normal(size=2) * 10 ** random.uniform(-3, 1)) for _ in range(2))
        regs, steps = 10 ** random.uniform(-2, 2, 40), random.choice([0, 0.3, 1, 2], (40, 2))
        layers = [Layer(float(r), float(r * s), float(r * t)) for r, (s, t) in zip(regs, steps, strict=True)]
        sizes = [max(map(abs, state.slow)) for state in path(layers, State(u, v, 1.0))]
        assert all(after <= before * (1 + 1e-12) + 1e-12 for before, after in pairwise(sizes))


def test_e_a_pair_of_layers_at_one_contracts_them() -> None:
    """From |e|, |f|, |log c| ≤ 1: the factor is at most q = 0.774, and |log c| ≤ 1 stays."""
    random, largest = np.random.default_rng(2), 0.0
    middle = 0.25 + 1 - math.log1p(math.exp(-1))  # (u_1 + u_2 + v_1 + v_2)/2 at the solution of λ = 1
    for e, f, y in [*random.uniform(-1, 1, (1000, 3)), (1, 1, 1), (-1, -1, -1), (1, -1, 1), (1, 1, -1)]:
        apart = (1 + f) / 2
        start = State(((1 + e) / 2, -(1 + e) / 2), (middle + y - apart, middle + y + apart), 1.0)
        assert start.slow == pytest.approx((e, f), abs=1e-12)
        *_, last = path(Alternating().layers(1.0, 2), start)
        largest = max(largest, max(map(abs, last.slow)) / max(map(abs, start.slow)))
        assert abs(sum(last.u + last.v) / 2 - middle) <= 1 + 1e-12
    assert math.isclose(PAIR, 0.7741, abs_tol=1e-4)
    assert 0.5 < largest <= PAIR


def test_e_its_networks_reach_what_they_are_built_for() -> None:
    random = np.random.default_rng(3)
    for _ in range(300):
        reg, tol = float(0.5 * 10 ** random.uniform(-2.3, 0)), float(10 ** random.uniform(-9, 0))
        layers = annealing(reg, tol)
        *_, last = path(layers)
        assert last.reg == reg
        assert last.error <= tol
        assert len(layers) <= 2 * math.ceil(3.91 * math.log(10 / (tol * reg))) + 2 * math.ceil(math.log2(1 / reg)) + 4


def test_e_the_module_itself_and_the_separation() -> None:
    """λ = 0.05, ε = 1e-4: 128 layers, where theorem D asks for 19,960 at one λ."""
    reg, tol = 0.05, 1e-4
    layers = annealing(reg, tol)
    x, y = (torch.tensor(side).double()[:, None] for side in (two_point.X, two_point.Y))
    assert AligningTransformer(1, reg, len(layers), Listed(layers))(x, y).marginal_error <= tol
    assert len(layers) == 128
    assert error_bound(reg, 19_950) > tol > error_bound(reg, 19_970)


def test_bad_input_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"reg must be at most 0\.5, got 0\.7"):
        annealing(0.7, 0.1)
    with pytest.raises(ValueError, match="tol must be from 1e-12 to 1, got 2"):
        annealing(0.1, 2)


# I: universality


def solved(C: torch.Tensor, a: torch.Tensor, b: torch.Tensor, reg: float, layers: int) -> torch.Tensor:
    problem = Dense(C, a.log(), b.log())
    u, v = deque(run(problem, Relaxed(1.0).layers(reg, layers)), maxlen=1)[0]
    return problem.plan(u, v, reg)


def test_i_a_cost_error_moves_the_plan_by_at_most_s_eps_over_reg() -> None:
    """1,000 problems, n ≠ m, weights over ten decades, costs of both signs; attained by [[0, 0], [0, 0]] ± ε."""
    g = torch.Generator().manual_seed(0)
    for reg in (0.1, 1.0, 10.0):
        C = 4 * torch.randn(334, 4, 3, generator=g, dtype=torch.float64) * min(reg, 1)
        a, b = (10 ** (10 * torch.rand(334, k, generator=g, dtype=torch.float64) - 8) for k in (4, 3))
        b = b * (a.sum(-1) / b.sum(-1))[:, None]
        noise = 2 * torch.rand(334, 4, 3, generator=g, dtype=torch.float64) - 1
        eps = reg * 10 ** (torch.rand(334, 1, 1, generator=g, dtype=torch.float64) * 3 - 2)
        P, Q = (solved(each, a, b, reg, 3000) for each in (C, C + eps * noise.sign()))
        ratio = (P - Q).abs().sum((-2, -1)) * reg / (a.sum(-1) * eps[:, 0, 0])
        assert float(ratio.max()) <= 1 + 1e-6
    flat, eps, one = torch.zeros(2, 2, dtype=torch.float64), 1e-3, torch.ones(2, dtype=torch.float64)
    tilted = eps * torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    moved = (solved(flat, one, one, 1.0, 50) - solved(tilted, one, one, 1.0, 50)).abs().sum()
    assert float(moved) == pytest.approx(2 * eps, rel=1e-3)


def test_i_random_relu_features_approximate_a_cost_in_the_plane() -> None:
    """C = ‖x − y‖ (1 + 2 x_1 y_2), not a function of x − y: sup error and plan error fall with the width of the layer."""
    g = torch.Generator().manual_seed(1)
    x, y = torch.rand(2, 40, 2, generator=g, dtype=torch.float64)

    def cost(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cdist(x, y) * (1 + 2 * x[:, :1] * y[:, 1:].T)

    fit, reg, ones, errors = torch.rand(400, 2, generator=g, dtype=torch.float64), 0.1, torch.ones(40).double(), []
    exact = solved(cost(x, y), ones, ones, reg, 400)
    for width in (8, 32, 128):
        W, t = torch.randn(2, width, generator=g, dtype=torch.float64), torch.randn(width, generator=g, dtype=torch.float64)

        def hidden(z: torch.Tensor, W: torch.Tensor = W, t: torch.Tensor = t) -> torch.Tensor:
            return torch.cat([(z @ W - t).relu(), torch.ones(len(z), 1).double()], dim=1)

        inverse = torch.linalg.pinv(hidden(fit), rtol=1e-9)
        read = inverse @ cost(fit, fit) @ inverse.T  # C̃ = Φ(x) · read · Φ(y)ᵀ
        zero = torch.zeros(40).double()
        features = Features(hidden(x), -hidden(y) @ read.T / 2, zero, zero)
        eps = float((features.cost() - cost(x, y)).abs().max())
        network = AligningTransformer(width + 1, reg, 400, "alternating")
        off = float((network(features, keep="last", warn=False).plan() - exact).abs().sum())
        assert off <= 40 * eps / reg * (1 + 1e-9)
        errors.append((eps, off))
    assert all(wide[k] < 0.6 * narrow[k] for narrow, wide in pairwise(errors) for k in (0, 1))


# J: the reduction of the conditional depth bound


def test_j_a_path_is_a_perfect_matching() -> None:
    random = np.random.default_rng(4)
    answers = []
    for _ in range(1000):
        n = int(random.integers(2, 9))
        arcs = random.uniform(size=(n, n)) < random.choice([0.1, 0.2, 0.4])
        np.fill_diagonal(arcs, val=False)
        reach = np.linalg.matrix_power(np.eye(n) + arcs, n)[0, n - 1] > 0  # s = 0, t = n − 1
        cost = 1 - (arcs | np.eye(n, dtype=bool))[:-1, 1:].astype(int)  # left: all but t; right: all but s
        rows, columns = linear_sum_assignment(cost)
        assert (cost[rows, columns].sum() == 0) == reach
        answers.append(reach)
    assert 200 < sum(answers) < 800


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
def test_k_one_layer_is_exact_on_two_points_and_wrong_on_three(dim: int) -> None:
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
    ones = torch.ones(3, dtype=torch.float64)
    P = solved(C, ones, ones, 0.1, 400)
    assert torch.allclose(P.sum(0), ones, atol=1e-6)
    assert float(P[1, 1]) > 0.99
    assert one_layer(dim, 0.1)(line, line).attention[0, 0, 1].tolist() == pytest.approx([1 / 3] * 3)


def test_k_the_formula_for_two_points_is_the_plan() -> None:
    g = torch.Generator().manual_seed(0)
    for reg in (0.1, 1.0):
        C = torch.rand(2, 2, generator=g, dtype=torch.float64)
        found = plan(C, *sinkhorn(C, reg), reg)[0, 0]
        assert float(found) == pytest.approx(
            float(torch.sigmoid((C[0, 1] + C[1, 0] - C[0, 0] - C[1, 1]) / (2 * reg))), abs=1e-10
        )
