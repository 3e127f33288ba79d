"""Theorems I and J of docs/limits.md, on problems that could break them. D and E: test_two_point.py, test_annealing.py."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from otformer import AligningTransformer
from otformer.network.features import Features
from otformer.network.schedule import Relaxed
from otformer.transport.costs.matrix import Dense
from otformer.transport.solvers.network import run

# I: universality


def solved(C: torch.Tensor, a: torch.Tensor, b: torch.Tensor, reg: float, layers: int) -> torch.Tensor:
    problem = Dense(C, a.log(), b.log())
    u, v = deque(run(problem, Relaxed(1.0).layers(reg, layers)), maxlen=1)[0]
    return problem.plan(u, v, reg)


def test_i_a_cost_error_moves_the_plan_by_at_most_s_eps_over_reg(record_property) -> None:
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
    record_property("problems", 1002)
    record_property("largest ratio", float(moved) / (2 * eps))


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


def test_j_a_path_is_a_perfect_matching(record_property) -> None:
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
    record_property("problems", len(answers))
