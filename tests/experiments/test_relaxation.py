"""The linear program and ties: against scipy's assignment, brute force and a maximum of entropy found by another method."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment, linprog

from otformer import figures
from otformer.lab.experiments import relaxation
from otformer.lab.experiments.experiment import Context
from otformer.lab.experiments.relaxation import EXAMPLE, GOLDEN, centre, optima, relaxed


def whole_numbers(n: int, seed: int) -> torch.Tensor:
    return torch.randint(3, (n, n), generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize("seed", range(6))
def test_the_relaxation_has_the_value_of_scipys_assignment(seed: int) -> None:
    C = whole_numbers(5, seed)
    P, value = relaxed(C)
    rows, columns = linear_sum_assignment(C.numpy())
    assert value == pytest.approx(C.numpy()[rows, columns].sum(), abs=1e-9)
    assert optima(C).cost == pytest.approx(value, abs=1e-9)
    np.testing.assert_allclose(P.sum(0), 1, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_the_optimal_permutations_span_the_optimal_face(seed: int) -> None:
    """An entry is positive somewhere on the face if and only if some optimal permutation has it."""
    C = whole_numbers(4, seed)
    found, n = optima(C), 4
    sums = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n)), C.flatten().numpy()])
    right = np.append(np.ones(2 * n), found.cost)
    for k in range(n * n):
        most = -linprog(-np.eye(n * n)[k], A_eq=sums, b_eq=right).fun
        assert most == pytest.approx(float(found.matrices.amax(0).flatten()[k]), abs=1e-7)


def test_the_centre_of_the_example_is_golden() -> None:
    expected = [[GOLDEN**-1, GOLDEN**-2, 0], [GOLDEN**-2, GOLDEN**-3, GOLDEN**-2], [0, GOLDEN**-2, GOLDEN**-1]]
    np.testing.assert_allclose(centre(optima(EXAMPLE)), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_centre_has_the_largest_entropy_of_the_face(seed: int) -> None:
    """Every mean of optimal permutations has less, and no small step along the face gains any."""
    found = optima(whole_numbers(4, seed))
    P, matrices = centre(found), found.matrices
    weights = torch.distributions.Dirichlet(torch.full((len(matrices),), 0.5, dtype=torch.float64))
    torch.manual_seed(seed)
    others = torch.einsum("kc,cij->kij", weights.sample((500,)), matrices)
    entropy = torch.special.entr
    assert float(entropy(others).sum((1, 2)).max()) <= float(entropy(P).sum()) + 1e-9
    near = P + 1e-4 * (others - P)
    assert float(entropy(near).sum((1, 2)).max()) <= float(entropy(P).sum()) + 1e-12


def test_relaxation_holds_and_a_plan_that_stays_away_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaxation, "PROBLEMS", 6)
    monkeypatch.setattr(relaxation, "SIZES", (3, 4))
    with figures.applied():
        outcome = relaxation.run(Context(seed=7))
        assert all(outcome.checks.values())
        assert {tuple(row) for row in outcome.rows} == {tuple(outcome.rows[0])}
        monkeypatch.setattr(relaxation, "LEAST_REG", 1.0)  # far from the limit
        outcome = relaxation.run(Context(seed=7))
    assert sum(not held for held in outcome.checks.values()) >= 1
