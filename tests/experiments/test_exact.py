"""Layers to the exact optimum: the two readings against lists in Python, the executor against the network."""

from __future__ import annotations

import math

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linear_sum_assignment, linprog

from otformer import figures
from otformer.lab.experiments import exact
from otformer.lab.experiments._optimum import optimum
from otformer.lab.experiments.experiment import Context, Outcome
from otformer.network.schedule import Annealed
from otformer.transport.solve import solve


def batch(n: int = 9, d: int = 2, scan: bool = False) -> exact.Batch:
    return exact._problems(n, d, 3, scan, torch.Generator().manual_seed(0))


def test_pairs_needed_counts_as_lists_do() -> None:
    problems = batch()
    u, v = torch.rand(2, 3, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = exact.pairs_needed(problems.C, u, v, problems.best).tolist()
    for C, f, g, needed in zip(problems.C.numpy(), u.numpy(), v.numpy(), found, strict=True):
        rows, columns = np.argsort(C - g, axis=1), np.argsort(C - f[:, None], axis=0)
        places = []
        for i, j in zip(*linear_sum_assignment(C), strict=True):
            places.append(min(rows[i].tolist().index(j), columns[:, j].tolist().index(i)))
        assert needed == max(places) + 1


def test_with_optimal_duals_one_pair_per_point_is_enough() -> None:
    C = batch().C[0]
    _, log = ot.emd(np.ones(9), np.ones(9), C.numpy(), log=True)
    u, v = (torch.as_tensor(log[key])[None] for key in ("u", "v"))
    best = torch.as_tensor(linear_sum_assignment(C.numpy())[1])[None]
    nearly = u - 1e-9, v - 1e-9  # ties of tight pairs are counted as none before another
    assert int(exact.pairs_needed(C[None], *nearly, best)) <= 2


def test_the_executor_has_the_networks_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = batch()
    by_network = exact.potentials(problems, Annealed(), 1e-3, 72)
    monkeypatch.setattr(exact, "BY_NETWORK", 0)
    by_executor = exact.potentials(problems, Annealed(), 1e-3, 72)
    for one, other in zip(by_network, by_executor, strict=True):
        assert float((one - other).abs().max()) < 1e-10


def test_the_sharp_reg_is_the_first_at_which_pots_plan_is_exact() -> None:
    problems = batch(6, scan=True)
    for C, found, sharp in zip(problems.C.numpy(), problems.optima, problems.sharp, strict=True):
        place = exact.SCANNED.index(sharp)
        for reg in exact.SCANNED[max(0, place - 1) : place + 1]:
            P = ot.sinkhorn(np.ones(6), np.ones(6), C, reg, "sinkhorn_log", numItermax=3_000, stopThr=1e-6, warn=False)
            assert np.array_equal(P.argmax(1), found.best.numpy()) == (reg == sharp)


@pytest.mark.parametrize("kind", ["uniform", "near ties", "one cycle", "line", "integers"])
def test_below_the_sure_reg_every_arg_max_is_the_optimum(kind: str) -> None:
    """The theorem, where it should break first: costs whose cycles are all nearly as light as the lightest."""
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        n = 2 + seed % 9
        C = torch.rand(n, n, generator=g, dtype=torch.float64)
        if kind == "near ties":
            C = 1 + 1e-3 * C - torch.eye(n, dtype=torch.float64) * 1e-2
        elif kind == "one cycle":  # the identity, or all rows one on
            C = 5 - 4 * torch.eye(n, dtype=torch.float64).roll(1, 1) - 4.01 * torch.eye(n, dtype=torch.float64)
        elif kind == "line":
            C = (C[0][:, None] - torch.linspace(0, 1, n, dtype=torch.float64)) ** 2
        elif kind == "integers":
            C = (4 * C).floor() - 0.5 * torch.eye(n, dtype=torch.float64)
        found = optimum(C)
        if found.gap < 1e-9:
            continue  # two optima
        reg = 0.99 * exact.sure_reg(found.gap_per_row, n)
        r = solve(C, torch.ones(n), torch.ones(n), reg=reg, tol=1e-9)
        assert r.converged
        assert torch.equal(r.plan.argmax(1), found.best), (kind, seed)


def test_potentials_of_least_range_are_those_of_a_linear_program() -> None:
    for seed in range(5):
        C = torch.rand(6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        found = optimum(C)
        W = (C[:, found.best] - C.gather(1, found.best[:, None])).numpy()
        rows = [(i, k) for i in range(6) for k in range(6) if i != k]
        above = np.array([[(c == k) * 1.0 - (c == i) for c in range(6)] + [0.0] for i, k in rows])
        within = np.hstack([np.eye(6), -np.ones((6, 1))])  # 0 ≤ v ≤ the last variable
        limits = np.concatenate([[W[i, k] for i, k in rows], np.zeros(6)])
        least = linprog([0.0] * 6 + [1.0], np.vstack([above, within]), limits)
        assert found.reach == pytest.approx(least.fun, abs=1e-9)


def test_depths_not_reached_are_none() -> None:
    depths = torch.tensor([18.0, math.inf, 36.0])
    assert exact._spread("a", depths) == {"a": 36, "a, worst": None}
    assert exact._spread("a", depths[:0]) == {"a": None, "a, worst": None}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    with pytest.MonkeyPatch.context() as patch, figures.applied():
        patch.setattr(exact, "SIZES", (16, 96))
        patch.setattr(exact, "ARGMAX_SIZES", (16,))
        patch.setattr(exact, "DIMS", (1, 2))
        return exact.run(Context())


@pytest.mark.slow
def test_claims_hold_at_a_small_size(outcome: Outcome) -> None:
    assert len(outcome.checks) == 6
    assert all(outcome.checks.values()), outcome.checks
    assert {row["run by"] for row in outcome.rows if row["n"] == 16} == {"network"}
    assert {row["run by"] for row in outcome.rows if row["n"] == 96} == {"executor"}


@pytest.mark.slow
def test_claims_fail_where_the_layers_are_too_few(outcome: Outcome) -> None:
    shallow = [row | {exact.AT_STAGED: 13, "arg-max found": 0} for row in outcome.rows]
    problems = [batch(scan=True)]
    held = exact._checks(shallow, problems)
    assert {"pairs", "argmax"} <= {claim for claim, well in held.items() if not well}
