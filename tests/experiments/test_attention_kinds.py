"""Linear and Sinkhorn attention: against closed forms, POT and polynomials that cannot exist."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import ot
import pytest
import torch

from otformer import figures
from otformer.lab.experiments import linear_attention, sinkhorn_attention
from otformer.lab.experiments.experiment import Context
from otformer.lab.experiments.linear_attention import LinearAligningTransformer, LinearLearningTransformer, corner
from otformer.lab.training.initialisation import GaussianStart
from otformer.learning.model import Architecture
from otformer.network.schedule import Gradient


def points(*shape: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.rand(2, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, y


def pot(C: np.ndarray, reg: float) -> np.ndarray:
    ones = np.ones(len(C))
    return ot.sinkhorn(ones, ones, C, reg, "sinkhorn_log", numItermax=100_000, stopThr=1e-13)


# Linear attention


@pytest.mark.parametrize("d", [1, 3])
def test_a_linear_layer_is_a_gradient_step_on_least_squares(d: int) -> None:
    """Σ_ij (u_i + v_j − C_ij − λ)² / (2λn), differentiated by torch and not by hand."""
    x, y = points(6, d)
    reg, step, C = 0.2, 0.07, torch.cdist(x, y) ** 2
    trace = LinearAligningTransformer(d, reg, 3, Gradient(step=step))(x, y, warn=False)
    for k in range(3):
        u, v = (t.clone().requires_grad_() for t in trace.potentials(k))
        loss = ((u[:, None] + v - C - reg) ** 2).sum() / (2 * reg * 6)
        loss.backward()
        for before, after in zip((u, v), trace.potentials(k + 1), strict=True):
            torch.testing.assert_close(before.detach() - step * before.grad, after, rtol=0, atol=1e-12)


def test_linear_layers_are_exact_for_two_points_in_any_dimension_and_for_three_they_are_not() -> None:
    for n, seed in ((2, 0), (2, 1), (3, 2)):
        x, y = points(n, 2, seed=seed)
        A = LinearAligningTransformer(2, 0.1, 80, Gradient(step=0.05))(x, y, warn=False).attention(-1)
        gap = np.abs(A.numpy() - pot(ot.dist(x.numpy(), y.numpy()), 0.1)).max()
        assert (gap < 1e-9) if n == 2 else (gap > 0.01)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_the_corner_of_the_family_is_that_of_pots_plan_and_levels_off(n: int) -> None:
    x = np.zeros((n, 1))
    for s in (0.0, 0.4, 1.0):
        x[0] = s
        P = pot(ot.dist(x, x), 1.0)
        assert corner(n, s) == pytest.approx(math.log(P[0, 0] / P[0, 1]), abs=1e-9)
    assert corner(n, 4.0) - 16 == pytest.approx(0.5 * math.log(n - 1), abs=1e-5)


def test_the_trainable_linear_layers_are_polynomials_of_the_points() -> None:
    """Two layers: entries have degree ≤ 18 in a factor on the points (tokens 2, each layer three times that), so differences
    of order 19 vanish; those of the softmax network do not."""
    a = Architecture(depth=2, sink="frozen")
    x, y = points(1, 4, 1)
    factors = np.linspace(-3, 3, 20)
    weights = [(-1) ** k * math.comb(19, k) for k in range(20)]

    def difference(kind: str) -> float:
        net = linear_attention.LEARNERS[kind](a).double()
        GaussianStart().fill(net, seed=0)
        with torch.no_grad():
            states = torch.stack([net.states(f * x, f * y)[-1] for f in factors.tolist()])
        found = (torch.tensor(weights, dtype=torch.float64)[:, None] * states.flatten(1)).sum(0)
        return float(found.abs().max() / states.abs().max())

    assert isinstance(linear_attention.LEARNERS["linear"](a), LinearLearningTransformer)
    assert difference("linear") < 1e-9
    assert difference("softmax") > 1e-3


@pytest.mark.slow
def test_linear_attention_at_a_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SIZES": (2, 3, 5), "BUILT_LISTS": 20, "STEPS": 2, "MEMBERS": 2}.items():
        monkeypatch.setattr(linear_attention, name, value)
    with figures.applied():
        outcome = linear_attention.run(Context(seed=3))
    proved = [held for claim, held in outcome.checks.items() if not claim.startswith(("trained", "doubled"))]
    assert proved == [True] * 3
    assert len(outcome.rows) == 3 + 18 + 12


# Sinkhorn attention


def test_sinkhorn_attention_tends_to_pots_plan() -> None:
    x, y = points(7, 2)
    C = torch.cdist(x, y) ** 2
    A = next(islice(sinkhorn_attention.normalisations(-C / 0.1), 400, None)).exp()
    np.testing.assert_allclose(A, pot(C.numpy(), 0.1), atol=1e-9)


def test_passes_of_the_ways_are_counted_and_the_limit_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    C = torch.cdist(*points(12, 2)) ** 2
    rows = sinkhorn_attention._measure(C, 0.1, 0)
    by_way = {row["way"]: row for row in rows if row["error"] == 1e-6}
    assert by_way[sinkhorn_attention.GRADIENT]["passes"] == 2 * by_way[sinkhorn_attention.GRADIENT]["layers"]
    assert by_way[sinkhorn_attention.SINKHORN_ATTENTION]["layers"] == 1
    passes = by_way[sinkhorn_attention.SINKHORN_ATTENTION]["passes"]
    inside = list(islice(sinkhorn_attention.normalisations(-C / 0.1), passes + 1))
    errors = [float(torch.cat([L.exp().sum(a) - 1 for a in (0, 1)]).abs().mean()) for L in inside[-2:]]
    assert errors[1] < 1e-6 <= errors[0]
    monkeypatch.setattr(sinkhorn_attention, "PASS_LIMIT", 4)
    limited = sinkhorn_attention._measure(C, 0.1, 0)
    assert all(row["passes"] is None and row["ms"] is None for row in limited if row["error"] == 1e-6)


@pytest.mark.slow
def test_sinkhorn_attention_at_a_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"N": 24, "PROBLEMS": 3}.items():
        monkeypatch.setattr(sinkhorn_attention, name, value)
    with figures.applied():
        outcome = sinkhorn_attention.run(Context(seed=1))
    held = list(outcome.checks.values())
    assert held[:4] == [True] * 4
    assert len(outcome.rows) == 4 * 3 * 4 * 3
