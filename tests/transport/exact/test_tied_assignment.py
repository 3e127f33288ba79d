"""Assignments of small whole numbers, of which most tie: against scipy, exactly."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import otformer as of
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.exact.flow_graph import Clock
from otformer.transport.exact.tied_assignment import tied_assignment

METHOD = "augmenting paths from all rows at once"
KINDS: dict[str, Any] = {
    "0/1": lambda n, rng: (rng.random((n, n)) < 0.5) * 1.0,
    "sparse zeros": lambda n, rng: (rng.random((n, n)) > 1 / n) * 1.0,
    "negative": lambda n, rng: rng.integers(-5, 6, (n, n)) * 1.0,
    "by rows": lambda n, rng: rng.integers(0, 60, (n, n)) + rng.integers(0, 60, (n, 1)) * 1.0,
    "forbidden": lambda n, rng: np.where(np.eye(n) + (rng.random((n, n)) < 0.2), rng.integers(0, 9, (n, n)), np.inf),
}


def solved(C: np.ndarray) -> Any:
    finite = C[np.isfinite(C)]
    return tied_assignment(MatrixCost(C, 0.0, float(np.ptp(finite))), Clock(None))


@pytest.mark.parametrize("kind", KINDS)
def test_small_matrices_exactly(kind):
    """500 of each: value and bound are the same whole number, and scipy's."""
    rng, found = np.random.default_rng(len(kind)), 0
    for _ in range(500):
        n = int(rng.integers(1, 16))
        C = KINDS[kind](n, rng)
        plan = solved(C)
        if plan is None:  # phases did not match enough
            continue
        found += 1
        (i, j, units, cost), g = plan
        assert sorted(j.tolist()) == i.tolist() == list(range(n))
        assert (units == 1).all()
        best = C[linear_sum_assignment(C)].sum()
        assert cost.sum() == best == (C - g).min(1).sum() + g.sum()
    assert found > 490


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_result(kind):
    C = KINDS[kind](600, np.random.default_rng(0))
    r = of.solve(C.astype(np.float32), reg=0)
    assert r.method == METHOD
    assert r.converged
    assert sorted(r.permutation.tolist()) == list(range(600))
    assert r.value == pytest.approx(C[linear_sum_assignment(C)].mean(), rel=1e-6)
    f, g = r.potentials
    assert (C - f[:, None] - g).min() >= 0


def test_what_is_none_of_these():
    rng = np.random.default_rng(1)
    C = rng.integers(0, 5, (600, 600)) * 1.0
    assert solved(C + 0.5 * (np.arange(600) == 599)) is None
    assert solved(C * 1000) is None
    assert solved(rng.random((600, 600))) is None
    C[:, :2] = np.inf
    C[:1, :2] = 1.0  # two columns, one row
    assert solved(C) is None
    with pytest.raises(ValueError, match="allow no plan"):
        of.solve(C, reg=0)


def test_no_time_is_no_time():
    C = KINDS["sparse zeros"](2000, np.random.default_rng(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        r = of.solve(C, reg=0, max_time=1e-9)
    assert r.marginal_error < 1e-12
    assert r.bound <= r.value


@pytest.mark.slow
def test_two_thousand_rows_of_0_and_1_take_no_time():
    C = KINDS["0/1"](2000, np.random.default_rng(3))
    of.solve(C, reg=0)  # compiles
    before = time.process_time()
    assert of.solve(C, reg=0).value == 0
    assert time.process_time() - before < 0.5
