"""What λ costs: gaps against all permutations, plans and sorting against POT and the two-point plan in closed form."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import ot
import pytest
import torch

from otformer import figures
from otformer.lab.experiments import bias
from otformer.lab.experiments.experiment import Context


@pytest.mark.parametrize("n", [2, 3, 6])
def test_gaps_are_those_of_all_permutations(n: int) -> None:
    for seed in range(5):
        C = torch.rand(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        costs = {order: sum(float(C[i, j]) for i, j in enumerate(order)) for order in permutations(range(n))}
        best = min(costs, key=costs.__getitem__)
        found = bias.optimum(C)
        others = {order: cost - costs[best] for order, cost in costs.items() if order != best}
        moved = {order: sum(i != j for i, j in zip(order, best, strict=True)) for order in others}
        assert tuple(found.best.tolist()) == best
        assert found.gap == pytest.approx(min(others.values()), abs=1e-14)
        assert found.gap_per_row == pytest.approx(min(others[order] / moved[order] for order in others), abs=1e-14)


def test_reduced_costs_are_not_negative_zero_on_the_optimum_and_give_the_excess() -> None:
    C = torch.rand(7, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = bias.optimum(C)
    P = torch.as_tensor(ot.sinkhorn(np.ones(7), np.ones(7), C.numpy(), 0.05, "sinkhorn_log", stopThr=1e-14))
    excess = float((P * C).sum() - C[torch.arange(7), found.best].sum())
    assert float(found.reduced.min()) >= 0
    assert float(found.reduced.diagonal().abs().max()) < 1e-15
    assert float((P[:, found.best] * found.reduced).sum()) == pytest.approx(excess, abs=1e-12)


def test_two_numbers_are_sorted_as_the_closed_form_says() -> None:
    x = torch.rand(1, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    spread = float((x[0, 1] - x[0, 0]).abs())
    wrong = spread / (1 + math.exp(spread * 0.5 / 0.1))  # places are 1/2 apart
    assert bias.sorting_error(2, 1, 0.1, seed=4)[bias.LIST_ERROR] == pytest.approx(wrong, rel=1e-7)


def test_the_biases_are_those_of_pots_plan() -> None:
    row = next(row for row in bias._biases(8, 2, 0, Context().generator()) if row["λ"] == 0.1)
    x, y = torch.rand(2, 8, 2, generator=Context().generator(), dtype=torch.float64) / math.sqrt(2)
    C = ot.dist(x.numpy(), y.numpy())
    P = ot.sinkhorn(np.ones(8), np.ones(8), C, 0.1, "sinkhorn_log", stopThr=1e-13)
    best = ot.emd(np.ones(8), np.ones(8), C)
    assert row[bias.EXCESS] == pytest.approx(((P - best) * C).sum() / 8, rel=1e-6)
    assert row[bias.OFF] == pytest.approx(np.abs(P - best).sum() / 8, rel=1e-6)
    assert row[bias.MAP_ERROR] == pytest.approx(np.linalg.norm((P - best) @ y.numpy(), axis=1).mean(), rel=1e-6)


@pytest.mark.slow
def test_claims_hold_at_a_small_size_but_for_the_middle_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 numbers are too few for λ from 1e-3 to 1e-4 to be far above n^{−2}: that check fails, as it should."""
    small = {"SIZES": (8, 16), "LISTS": {16: 80, 64: 15}, "FIXED_DEPTH": 512, "FIXED_REGS": (0.1, 0.01)}
    for name, value in small.items():
        monkeypatch.setattr(bias, name, value)
    with figures.applied():
        outcome = bias.run(Context())
    failed = [claim for claim, held in outcome.checks.items() if not held]
    assert len(outcome.checks) == 7
    assert failed == ["slow"]


def test_a_range_with_nothing_in_it_does_not_hold() -> None:
    assert bias._within([1.0, 2.0], 1, 2)
    assert not bias._within([1.0, 2.1], 1, 2)
    assert not bias._within([math.nan], 1, 2)
    assert not bias._within([], 1, 2)
