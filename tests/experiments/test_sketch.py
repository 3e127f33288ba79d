"""Figure 8 from data: the sets and bounds of the picture on hard problems, and what the picture draws."""

from __future__ import annotations

import math
from itertools import count, pairwise

import pytest
import torch

from otformer import figures
from otformer.lab.experiments import sketch
from otformer.lab.experiments.experiment import Context
from otformer.lab.experiments.sketch import DRAWN, EPSILON, REG, journey, sharp_bound
from otformer.theory.hilbert import doubly_stochastic_gap, eta, log_phi, spread
from otformer.transport.reference import dual, plan, sinkhorn


def test_the_sharper_bound_holds_on_a_thousand_matrices_and_is_nearly_attained() -> None:
    """Matrices diag(p) Q diag(q) around the solution, n and λ drawn; the bound is for their own gap ε."""
    generator, largest, tried = torch.Generator().manual_seed(0), 0.0, 0
    for trial in count():
        n = 2 + trial % 4
        reg = 10 ** float(torch.empty(1).uniform_(-0.7, 1.5, generator=generator))
        C = 2 * torch.rand(n, n, generator=generator, dtype=torch.float64) - 1
        u, v = sinkhorn(C, reg, tol=1e-12)
        size = reg * 10 ** float(torch.empty(1).uniform_(-4, 0, generator=generator))
        e, f = size * torch.randn(2, n, generator=generator, dtype=torch.float64)
        if trial % 2:  # along the direction in which marginals hardly change: u up where v is down
            f = -e
        gap = float(doubly_stochastic_gap(plan(C, u + e, v + f, reg)))
        if not 1e-10 < gap < 0.9:
            continue
        away = max(float(spread(e / reg)), float(spread(f / reg)))
        ratio = away / sharp_bound(gap, log_phi(C, reg))
        assert ratio <= 1 + 1e-6
        largest, tried = max(largest, ratio), tried + 1
        if tried == 1000:
            break
    assert largest > 0.85


def test_a_sinkhorn_iteration_contracts_and_layers_descend() -> None:
    found, solved = journey(DRAWN), sinkhorn(DRAWN, REG)
    path = [max(float(spread((t - s) / REG)) for t, s in zip(each, solved, strict=True)) for each in found.sinkhorn]
    assert all(b <= eta(log_phi(DRAWN, REG)) * a + 1e-9 for a, b in pairwise(path[:7]))
    assert all(b < a for a, b in pairwise(found.duals))


def test_the_landscape_is_the_dual_at_its_best_scale() -> None:
    alpha, beta, level, gap = sketch._landscape((0.3, -0.2), 1.0)
    i, j = 40, 130
    u, v = sketch._potentials(float(alpha[j]), float(beta[i]))
    scales = torch.linspace(-3, 3, 20_001, dtype=torch.float64)
    values = [float(dual(DRAWN, u + c, v, REG)) for c in scales[::50]]
    least = float(dual(DRAWN, *sinkhorn(DRAWN, REG), REG))
    assert float(level[i, j]) == pytest.approx(min(values) - least, abs=2e-3)
    gaps = [float(doubly_stochastic_gap(plan(DRAWN, u + c, v, REG))) for c in scales[::5]]
    assert float(gap[i, j]) == pytest.approx(min(gaps), abs=5e-3)


def test_no_layer_in_reach_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch, "DEPTH", 2)
    with pytest.raises(ArithmeticError, match=f"no layer up to 2 is within {EPSILON}"):
        journey(DRAWN)


def test_sketch_holds_at_a_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch, "PROBLEMS", 3)
    with figures.applied():
        outcome = sketch.run(Context(seed=4))
    assert all(outcome.checks.values())
    assert math.isfinite(max(row["μ"] for row in outcome.rows))
