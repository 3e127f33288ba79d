"""What is left when the solvers of `balance` have ended: a row that weighs less than tol, logits that are only rounding."""

import pytest
import torch

from oracles import uniform
from otformer.nn import DoublyStochastic, balance_cpu, balance_large
from otformer.nn.balance import _backend


def test_a_row_with_less_mass_than_tol_does_not_undo_the_others():
    """A plan in which that row is 0 is not taken, though within tol; Sinkhorn steps from 0 end at an error of 0.46."""
    L, a, b = 1e4 * uniform(0, 2, 40), torch.tensor([1e-9, 1.0], dtype=torch.float64), uniform(1, 40) ** 8
    b *= a.sum() / b.sum()
    P = DoublyStochastic()(L, a, b)
    torch.testing.assert_close(P.sum(0), b, atol=1e-6, rtol=0)
    torch.testing.assert_close(P.sum(1), a, atol=1e-6, rtol=1e-3)
    assert float(P[0].sum()) == pytest.approx(1e-9, rel=1e-3)


@pytest.mark.parametrize(
    ("shape", "small"),
    [
        ((8, 128, 128), True),
        ((1, 128, 128), False),  # takes as long as a block of eight
        ((1, 32, 32), True),
        ((8, 129, 128), False),
        ((8, 128, 129), False),
        ((8, 4, 2000), False),
        ((8, 2000, 4), False),
    ],
)
def test_one_long_side_makes_a_problem_large(shape, small):
    """The solver of small problems takes three times as long for 8 × 2,000."""
    assert _backend(torch.empty(*shape)) is (balance_cpu if small else balance_large)


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("temperature", [1e-18, 1e-24, 1e-30])
@pytest.mark.parametrize("n", [20, 45])
def test_where_potentials_are_mere_rounding_no_entry_is_more_than_there_is(n, temperature):
    """Steps from such potentials ended at entries of 1e20 for a mass of n/2."""
    for seed in range(3):
        L, a, b = uniform(seed, n, n), uniform(3 + seed, n) + 0.1, uniform(6 + seed, n) + 0.1
        assert float(DoublyStochastic(temperature)(L, a, b * (a.sum() / b.sum())).max()) < a.sum()
