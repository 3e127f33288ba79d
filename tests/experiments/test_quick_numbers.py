"""What experiments measure: their problems and the numbers of the quick ones, against independent oracles."""

from __future__ import annotations

import numpy as np
import ot
import pytest
import torch

from otformer import figures
from otformer.lab.experiments import _problems as problems
from otformer.lab.experiments import convergence, sizes, sorting, theorem_bound, theorem_gd
from otformer.lab.experiments.experiment import Context
from otformer.network.schedule import Gradient
from otformer.network.transformer import AligningTransformer
from otformer.theory import depth_bounds
from otformer.transport.reference import gradient_descent


def test_pot_plan_is_doubly_stochastic_and_of_the_right_form() -> None:
    x, y, C = problems.unit_cube(6, 2, generator=torch.Generator().manual_seed(1))
    assert np.allclose(C, ot.dist(x.numpy(), y.numpy()))
    P = problems.pot_plan(C, 0.1)
    assert torch.allclose(P.sum(0), torch.ones(6, dtype=P.dtype), atol=1e-9)
    assert torch.allclose(P.sum(1), torch.ones(6, dtype=P.dtype), atol=1e-9)
    H = P.log() + C / 0.1  # log P + C/λ must be u_i + v_j
    assert float((H - H[:1] - H[:, :1] + H[0, 0]).abs().max()) < 1e-9


def test_dense_iterates_are_gradient_descent_and_the_module() -> None:
    x, y, C = problems.unit_cube(5, 2, generator=torch.Generator().manual_seed(2))
    u, v = problems.final(C, Gradient().layers(0.1, 50))
    descent = gradient_descent(C, 0.1, 0.1)
    expected = [next(descent) for _ in range(51)][-1]
    module = AligningTransformer(2, 0.1, 50)(x, y).potentials()
    for found in (expected, module):
        assert float((u - found[0]).abs().max()) < 1e-13
        assert float((v - found[1]).abs().max()) < 1e-13


def test_mean_marginal_error_counts_both_sides() -> None:
    C, zero = torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    # P = e^{-1} everywhere: every sum is 2/e, off by 1 − 2/e
    assert problems.mean_marginal_error(C, zero, zero, 1.0) == pytest.approx(1 - 2 / np.e, abs=1e-15)


@pytest.mark.parametrize(
    ("measured", "first", "compared", "share"),
    [
        ([1.0, 0.5, 0.1], 2, 1, 0.5),  # informative at layer 2 alone; at layer 1 it is finite, and compared too
        ([0.3, 0.5, 0.1], 3, 0, 0.5),  # not below the distance at layer 0 within the run
        ([1.0, 0.9, 0.8], 2, 1, 1.6),  # broken at layer 2
    ],
)
def test_theorem_bound_compares_at_every_layer(
    monkeypatch: pytest.MonkeyPatch, measured: list[float], first: int, compared: int, share: float
) -> None:
    values = {0: np.inf, 1: 1.0, 2: 0.5}
    monkeypatch.setattr(theorem_bound, "RUN", 2)
    monkeypatch.setattr(theorem_bound.SolvedProblem, "bound", lambda self, name, depth: values.get(depth, 0.25))
    problem = theorem_bound.SolvedProblem(3, 1.0, 1.0, 1.0, (1.0, 1.0), torch.tensor(measured, dtype=torch.float64))
    row = theorem_bound.compared(problem, theorem_bound.CORRECTED)
    assert (row[theorem_bound.INFORMATIVE], row["layers compared"]) == (first, compared)
    assert row["largest measured / bound"] == pytest.approx(share)
    assert theorem_bound.compared(problem, theorem_bound.INFORMAL)["largest measured / bound"] == 0


@pytest.mark.slow
def test_theorem_bound_holds_and_would_fail_if_the_bound_were_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorem_bound, "RUN", 100)
    monkeypatch.setattr(theorem_bound, "REGS", (1.0,))
    monkeypatch.setattr(theorem_bound, "SIZES", (2, 4))
    true = depth_bounds.start_distance
    for factor, holds in ((1.0, True), (0.02, False)):
        monkeypatch.setattr(depth_bounds, "start_distance", lambda *given, f=factor: f * true(*given))
        with figures.applied():
            checks = theorem_bound.run(Context()).checks
        assert [checks[name] for name in ("linear", "below", "bends")] == [holds, holds, True]
        assert not checks["informative"]  # two problems are not eight


@pytest.mark.slow
def test_sizes_holds_where_sigma_is_close_to_1_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "SIZES", (8, 4))
    with figures.applied():
        outcome = sizes.run(Context(seed=7))  # draws a problem of 8 points with σ = 0.998
    assert all(outcome.checks.values())
    slow = outcome.rows[0]
    assert slow["n"] == 8
    assert slow[sizes.ERROR] > 1e-6
    assert slow[sizes.ERROR] == pytest.approx(slow[sizes.PREDICTED], rel=0.5)


def test_theorem_gd_gaps_tell_the_frozen_sink_from_the_token() -> None:
    x, y, C = problems.unit_cube(8, 2, generator=torch.Generator().manual_seed(0))
    descent = gradient_descent(C, 0.1, 0.1)
    first = [next(descent) for _ in range(41)]
    frozen = theorem_gd.gaps(AligningTransformer(2, 0.1, 40), x, y, first)
    token = theorem_gd.gaps(AligningTransformer(2, 0.1, 40, sink="token"), x, y, first)
    assert len(frozen) == 41
    assert max(frozen) < 1e-13
    assert token[1] < 1e-13 < 0.05 < token[40]


def test_the_sorting_network_sorts_random_numbers_as_numpy_does() -> None:
    x = torch.rand(3, 12, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    ranks = torch.as_tensor(np.argsort(np.argsort(x.numpy(), axis=1), axis=1))
    y = (torch.arange(12, dtype=torch.float64) + 1).div(12).expand(3, 12)[..., None]
    row = sorting.sort_lists("sort numbers", x[..., None], y, ranks)
    assert (row["problems"], row["exact"], row["layers"]) == (3, 3, 288)
    assert sorting.sort_lists("sort numbers", x[..., None], y, ranks.flip(1))["exact"] == 0


@pytest.mark.slow
def test_convergence_runs_and_holds_its_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convergence, "PROBLEMS", 3)
    with figures.applied():
        outcome = convergence.run(Context())
    assert len(outcome.rows) == convergence.DEPTH + 1
    assert all(outcome.checks.values())
    assert outcome.rows[600][f"{convergence.FROZEN}: largest"] < 0.1 < outcome.rows[600][f"{convergence.PAPER}: median"]
