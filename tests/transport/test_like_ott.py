"""The table of docs/how-to/switch.md, OTT-JAX beside this package: every row of ours by POT or numpy, then both sides."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ot
import pytest
import torch

import otformer as of
from needs import missing

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "switch.md"
ROW = re.compile(r"^\| (`.*?) \| (.*) \|$", re.MULTILINE)
RNG = np.random.default_rng(0)
EPSILON, TAU = 0.05, 0.9
PRICE = EPSILON * TAU / (1 - TAU)  # ρ = ε τ/(1 − τ)
x, y, w = RNG.random((12, 2)), RNG.random((15, 2)), RNG.random(15)
a, b = RNG.dirichlet(np.ones(12)), RNG.dirichlet(np.ones(15))
M = ot.dist(x, y)
NUMBERS = RNG.random(6)


def uniform_plan() -> Any:
    return ot.sinkhorn([], [], M, EPSILON, stopThr=1e-12, numItermax=100_000)


def solved() -> of.Result:
    return of.solve(M, a, b, reg=EPSILON, tol=1e-9)


def unbalanced() -> Any:
    return of.solve_unbalanced(M, a, b, reg=EPSILON, reg_m=PRICE, reg_type="entropy", tol=1e-9).plan


def unbalanced_by_pot() -> Any:
    options = dict(reg_type="entropy", stopThr=1e-13, numItermax=100_000)
    return ot.unbalanced.sinkhorn_unbalanced(a, b, M, EPSILON, PRICE, **options)


def soft_sorted() -> Any:
    return of.nn.SoftSort(reg=1e-4)(torch.tensor(NUMBERS)).numpy()


# OTT's column ↦ ours, and what it must give by POT or numpy.
OURS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "`PointCloud(x, y, epsilon=0.05)`": (lambda: of.solve_sample(x, y, reg=0.05, tol=1e-9).plan, uniform_plan),
    "`Geometry(cost_matrix=M, epsilon=0.05)`": (lambda: of.solve(M, reg=0.05, tol=1e-9).plan, uniform_plan),
    "`LinearProblem(geom, a, b)`": (lambda: solved().marginal_a, lambda: a),
    "`LinearProblem(geom, tau_a=…, tau_b=…)`": (unbalanced, unbalanced_by_pot),
    "`out.f`, `out.g`": (lambda: _plan(*solved().potentials), lambda: solved().plan),
    "`out.matrix`": (lambda: solved().apply(w), lambda: solved().plan @ w),
    "`out.converged`, `out.errors`": (lambda: float(solved().converged and solved().marginal_error < 1e-9), lambda: 1.0),
    "`ott.tools.soft_sort.sort`, `.ranks`": (soft_sorted, lambda: np.sort(NUMBERS)),
}


def _plan(u: Any, v: Any) -> Any:
    return np.exp((u[:, None] + v - M) / EPSILON - 1)


def test_every_row_of_the_page_is_here():
    rows = [left for left, _ in ROW.findall(PAGE.read_text("utf-8"))]
    assert rows == list(OURS)


@pytest.mark.parametrize("row", OURS)
def test_our_side_of_a_row(row):
    call, expected = OURS[row]
    found = call()
    np.testing.assert_allclose(found, expected(), atol=1e-6)


@pytest.fixture(scope="module")
def ott() -> Any:
    """OTT in float64, and its solution of the problem of this file."""
    jax = pytest.importorskip("jax", reason=missing("ott"))
    pytest.importorskip("ott", reason=missing("ott"))
    jax.config.update("jax_enable_x64", True)
    from ott.geometry.geometry import Geometry
    from ott.geometry.pointcloud import PointCloud
    from ott.problems.linear.linear_problem import LinearProblem
    from ott.solvers.linear.sinkhorn import Sinkhorn

    solver = Sinkhorn(threshold=1e-10, max_iterations=50_000)
    return {
        "points": solver(LinearProblem(PointCloud(x, y, epsilon=EPSILON))),
        "matrix": solver(LinearProblem(Geometry(cost_matrix=jax.numpy.asarray(M), epsilon=EPSILON))),
        "weights": solver(LinearProblem(Geometry(cost_matrix=jax.numpy.asarray(M), epsilon=EPSILON), a, b)),
        "unbalanced": solver(
            LinearProblem(Geometry(cost_matrix=jax.numpy.asarray(M), epsilon=EPSILON), a, b, tau_a=TAU, tau_b=TAU)
        ),
    }


@pytest.mark.slow
def test_both_sides_of_the_table(ott):
    for name, ours in (
        ("points", of.solve_sample(x, y, reg=EPSILON, tol=1e-9)),
        ("matrix", of.solve(M, reg=EPSILON, tol=1e-9)),
        ("weights", solved()),
    ):
        out = ott[name]
        np.testing.assert_allclose(np.asarray(out.matrix), ours.plan, atol=1e-8)
        assert bool(out.converged) == ours.converged
        # P = exp((u + v − C)/λ − 1) here, exp((f + g − C)/ε) there.
        np.testing.assert_allclose(
            np.asarray(out.f)[:, None] + np.asarray(out.g), np.add.outer(*ours.potentials) - EPSILON, atol=1e-6
        )
    np.testing.assert_allclose(np.asarray(ott["weights"].apply(w, axis=1)), solved().apply(w), atol=1e-8)
    np.testing.assert_allclose(np.asarray(ott["unbalanced"].matrix), unbalanced(), atol=1e-6)


@pytest.mark.slow
def test_the_value_of_ott_counts_from_the_product_of_the_weights(ott):
    P = solved().plan
    shift = EPSILON * float((P * np.log(np.outer(a, b))).sum())
    assert float(ott["weights"].reg_ot_cost) == pytest.approx(solved().value - shift, abs=1e-6)


@pytest.mark.slow
def test_soft_sort_and_ranks_at_small_epsilon(ott):
    from ott.tools import soft_sort

    assert ott
    np.testing.assert_allclose(np.asarray(soft_sort.sort(NUMBERS, epsilon=1e-3)), soft_sorted(), atol=0.05)
    ranks = of.nn.SoftSort(reg=1e-4).rank(torch.tensor(NUMBERS))
    np.testing.assert_allclose(np.asarray(soft_sort.ranks(NUMBERS, epsilon=1e-3)), ranks.numpy(), atol=0.1)
