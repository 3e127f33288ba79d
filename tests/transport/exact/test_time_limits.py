"""More time never makes an exact solve worse: the plan is a plan, its value does not rise, and the bound does not fall.

Problems of 2,000 points that take longer than most limits, from points and from a matrix; the optimum is POT's.
"""

from __future__ import annotations

import time
import warnings
from typing import NamedTuple

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist

import otformer as of
from otformer.lab.benchmarks.exact_families import make

LIMITS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)  # seconds
NOISE = 0.01  # of the optimum: how far a longer solve may be behind a shorter one, since clocks are not exact
LATE, LATER = 0.5, 0.5  # seconds, and a part of max_time, by which a solve may be over its time

pytestmark = pytest.mark.slow


class Run(NamedTuple):
    limit: float
    seconds: float
    value: float  # Σ P C of the plan, computed here
    result: of.Result


class Runs(NamedTuple):
    optimum: float
    weights: tuple[np.ndarray, np.ndarray]
    runs: list[Run]


@pytest.fixture(scope="module", params=["halos-weights", "cauchy-weights", "annulus", "halos-weights matrix"])
def solved(request):
    """One problem under every limit, after a call that compiles."""
    family, _, matrix = request.param.partition(" ")
    p = make(family, 2000)
    C = p.rows()

    def solve(seconds):
        given = {"a": p.a, "b": p.b, "reg": 0, "max_time": seconds}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return of.solve(C, **given) if matrix else of.solve_sample(*p.points, **given)

    solve(None)  # to the end: a limit would leave out what comes late
    runs = []
    for limit in LIMITS:
        clocks = time.perf_counter(), time.process_time()
        result = solve(limit)
        seconds = min(time.perf_counter() - clocks[0], time.process_time() - clocks[1])  # other work holds up the clock
        i, j, masses = result.pairs
        runs.append(Run(limit, seconds, float(masses @ C[i, j]), result))
    return Runs(float(ot.emd2(*p.weights(), C, numItermax=10**9)), p.weights(), runs)


def test_every_plan_is_a_plan(solved):
    for run in solved.runs:
        P = run.result.plan
        off = [abs(np.asarray(P.sum(axis)).ravel() - w).sum() for axis, w in zip((1, 0), solved.weights, strict=True)]
        assert P.data.min() >= 0
        assert max(off) < 1e-12, run
        assert run.result.value == pytest.approx(run.value, rel=1e-9)


def test_the_bound_is_a_bound_and_no_plan_is_below_the_optimum(solved):
    for run in solved.runs:
        assert run.result.bound <= solved.optimum * (1 + 1e-9), run
        assert run.value >= solved.optimum * (1 - 1e-9), run


def test_a_plan_that_is_called_optimal_is(solved):
    for run in solved.runs:
        assert not run.result.converged or run.value <= solved.optimum * (1 + 1e-6), run


def test_the_value_does_not_rise_with_time(solved):
    values = [run.value / solved.optimum for run in solved.runs]
    best = np.minimum.accumulate(values)
    assert (values <= best + NOISE).all(), dict(zip(LIMITS, values, strict=True))


def test_the_bound_does_not_fall_with_time(solved):
    bounds = [run.result.bound / solved.optimum for run in solved.runs]
    best = np.maximum.accumulate(bounds)
    assert (bounds >= best - NOISE).all(), dict(zip(LIMITS, bounds, strict=True))


def test_time_is_kept(solved):
    for run in solved.runs:
        assert run.seconds <= LATE + (1 + LATER) * run.limit, run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_forbidden_pairs_leave_a_bound_at_any_time():
    """Fewer points of such a problem may allow no plan: their potentials were no start."""
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 1500, 3))
    M, mask = cdist(x, y, "sqeuclidean"), rng.random((1500, 1500)) < 0.01
    mask[np.arange(1500), np.arange(1500)] = True
    best = of.solve(M, reg=0, mask=mask)
    assert best.converged
    for limit in (1e-3, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2):
        r = of.solve(M, reg=0, mask=mask, max_time=limit)
        assert -np.inf < r.bound <= best.value * (1 + 1e-9) <= r.value * (1 + 2e-9)
