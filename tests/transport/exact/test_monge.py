"""Costs that are Monge in a hidden order: recognised, solved by a staircase, proved; never believed where they are not."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import ot
import pytest
import torch
from scipy.spatial.distance import cdist

import otformer as of
from helpers.certificates import exact
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.exact.monge import _order, staircase_plan
from otformer.transport.exact.units import in_units

N = 600  # more than are solved on the matrix
STAIRCASE = "a staircase, for the costs are Monge"
Rng = np.random.Generator


def hidden(C: np.ndarray, rng: Rng) -> np.ndarray:
    """The same costs with rows and columns in any order."""
    return np.ascontiguousarray(C[rng.permutation(len(C))][:, rng.permutation(C.shape[1])])


def masses(n: int, rng: Rng, decades: float = 1) -> np.ndarray:
    w = 10 ** (decades * rng.random(n))
    return w / w.sum()


def density(cells: np.ndarray) -> np.ndarray:
    """The Monge matrix whose neighbours differ by these cells: −Σ of all cells above and to the left."""
    return -cells.cumsum(0).cumsum(1)


MONGE: dict[str, Any] = {
    "products": lambda n, m, rng: np.outer(np.arange(1.0, n + 1), np.arange(1.0, m + 1)),
    "Hilbert": lambda n, m, rng: 1 / (np.arange(n)[:, None] + np.arange(m) + 1.0),
    "signs": lambda n, m, rng: np.outer(rng.standard_normal(n), rng.standard_normal(m)) - 3,
    "distances": lambda n, m, rng: abs(rng.random((n, 1)) - rng.random(m)),
    "heavy tails": lambda n, m, rng: (rng.standard_cauchy((n, 1)) - rng.standard_cauchy(m)) ** 2,
    "powers": lambda n, m, rng: abs(rng.standard_normal((n, 1)) - rng.standard_normal(m)) ** 1.5,
    "whole": lambda n, m, rng: abs(rng.integers(90, size=(n, 1)) - rng.integers(90, size=m)) * 1.0,
    "maxima": lambda n, m, rng: np.maximum(rng.random((n, 1)), rng.random(m)),
    "few cells": lambda n, m, rng: density((rng.random((n, m)) < 4 / n) * 1.0) + rng.random((n, 1)),
    "shifted": lambda n, m, rng: (rng.random((n, 1)) - rng.random(m)) ** 2 + rng.random((n, 1)) + rng.random(m),
    "additive": lambda n, m, rng: rng.random((n, 1)) + rng.random(m),
    "constant": lambda n, m, rng: np.full((n, m), 3.0),
}


def check(r: of.ExactResult, C: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Marginals, feasibility for all pairs, and the value: POT's."""
    (i, j, mass), (f, g) = r.pairs, r.potentials
    size = float(abs(C).max() + abs(f).max() + abs(g).max())
    assert r.converged
    assert (mass > 0).all()
    np.testing.assert_allclose(np.bincount(i, mass, len(a)), a, atol=1e-15)
    np.testing.assert_allclose(np.bincount(j, mass, len(b)), b, atol=1e-15)
    assert (C - f[:, None] - g).min() >= -1e-14 * size
    assert r.value == pytest.approx(ot.emd2(a, b, C, numItermax=10**7), rel=1e-8, abs=1e-12 * size)


@pytest.mark.parametrize("name", MONGE)
@pytest.mark.parametrize("columns", [N, 450])
def test_hidden_orders(name, columns):
    rng = np.random.default_rng([columns, len(name)])
    C = hidden(MONGE[name](N, columns, rng), rng)
    a, b = masses(N, rng), masses(columns, rng)
    r = of.solve(C, a, b, reg=0)
    check(r, C, a, b)
    assert r.method == STAIRCASE or name in ("constant", "whole", "heavy tails")  # few places; too wide
    r = of.solve(C[:, ::-1], reg=0)
    check(r, C[:, ::-1], np.full(N, 1 / N), np.full(columns, 1 / columns))
    if columns == N:
        assert sorted(r.permutation.tolist()) == list(range(N))


@pytest.mark.parametrize("seed", range(8))
def test_small_ones_of_every_kind_are_proposed_right(seed):
    """2,000 in all: what is proposed is feasible and tight in fractions of whole numbers, or nearly so in float64."""
    rng, kinds, proposed = np.random.default_rng(seed), list(MONGE.values()), 0
    for k in range(250):
        n, m = (int(t) for t in rng.integers(1, 24, 2))
        C = hidden(kinds[k % len(kinds)](n, m, rng), rng)
        a, b = (np.full(n, 1 / n), np.full(m, 1 / m)) if k % 3 else (masses(n, rng, 12), masses(m, rng))
        units = in_units(a, b, 1.0)
        plan = staircase_plan(MatrixCost(C, 0.0, float(np.ptp(C))), units)
        assert plan is not None
        sent, g = plan
        np.testing.assert_array_equal(np.bincount(sent.i, weights=sent.units > 0, minlength=n) > 0, units.supply > 0)
        f = (C - g).min(1)
        size = abs(C).max() + abs(g).max()
        assert (sent.cost - f[sent.i] - g[sent.j]).max() <= 1e-13 * size
        value, best = float(sent.units @ sent.cost) * units.unit, ot.emd(a, b, C, numItermax=10**7, log=True)[1]
        if not best["warning"]:
            assert value == pytest.approx(best["cost"], rel=1e-8, abs=1e-11 * size)
        proposed += 1
    assert proposed == 250


def test_whole_numbers_are_proved_in_fractions():
    rng = np.random.default_rng(3)
    C = hidden(density(rng.integers(0, 3, (260, 270)) * 1.0), rng)
    a, b = rng.integers(2, 90, 260) * 1.0, np.ones(270)
    b[0] += a.sum() - 270
    r = of.solve(C, a, b, reg=0)
    assert r.method == STAIRCASE
    proof = exact(C, a, b, r.dense(), *r.potentials)
    assert (proof.gap, proof.infeasible, proof.slack, proof.marginal_error, proof.negative) == (0, 0, 0, 0, False)


def test_one_wrong_entry_is_not_believed():
    """A dear pair on the staircase, or a cheap one off it, changes the optimum: rounds go on from the proposal."""
    rng, i = np.random.default_rng(4), np.arange(1.0, N + 1)
    a, b = masses(N, rng), masses(N, rng)
    for row, column, change in ((0, N - 1, 1e6), (200, 150, -1e5), (300, 299, 1e5)):
        C = np.outer(i, i)
        C[row, column] += change
        C = hidden(C, rng)
        check(of.solve(C, reg=0), C, np.full(N, 1 / N), np.full(N, 1 / N))
        check(of.solve(C, a, b, reg=0), C, a, b)


def test_forbidden_pairs():
    rng = np.random.default_rng(5)
    C = abs(rng.random((N, 1)) - rng.random(N))
    C[np.arange(N), rng.permutation(N)] = np.inf
    big = np.where(np.isinf(C), 1e3, C)
    r = of.solve(C, reg=0)
    assert r.converged
    assert r.value == pytest.approx(ot.emd2([], [], big), rel=1e-9)
    C = hidden(np.outer(np.arange(N), np.arange(N)) * 1.0, rng)
    first, last = np.argsort(C.sum(1))[[1, -1]]  # rows that are looked at, and hardly any of the sample
    C[first, 7] = C[last, 7] = np.inf
    r = of.solve(C, reg=0)
    assert r.converged
    assert r.value == pytest.approx(ot.emd2([], [], np.minimum(C, 1e7)), rel=1e-9)


def test_nothing_is_seen_in_costs_without_order():
    rng = np.random.default_rng(6)
    for C in (rng.random((N, N)), cdist(rng.random((N, 2)), rng.random((N, 2))), (rng.random((N, N)) < 0.02) * 1.0):
        assert _order(MatrixCost(C, 0.0, float(np.ptp(C)))) is None
    C[0, 0] = np.inf
    assert _order(MatrixCost(C, 0.0, 1.0)) is None


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize("dimension", [1, 3])
@pytest.mark.parametrize("executor", ["dense", "stream"])
def test_points_on_a_line(metric, dimension, executor):
    rng = np.random.default_rng(7)
    e = rng.standard_normal(dimension)
    x, y = 3 * rng.standard_normal((N, 1)) * e + 1, rng.random((500, 1)) * e + 1
    a, b = masses(N, rng), masses(500, rng)
    r = of.solve_sample(x, y, a, b, reg=0, metric=metric, executor=executor)
    assert r.method == STAIRCASE
    check(r, cdist(x, y, metric), a, b)


def test_squared_distances_to_points_of_a_line():
    rng = np.random.default_rng(8)
    t = rng.random(N)
    x, y = rng.standard_normal((N, 2)), np.c_[t, 2 * t + 1]
    for one, other in ((x, y), (y, x)):
        r = of.solve_sample(one, other, reg=0)
        assert r.method == STAIRCASE
        check(r, cdist(one, other, "sqeuclidean"), np.full(N, 1 / N), np.full(N, 1 / N))
    near = y + 1e-6 * rng.standard_normal((N, 2))  # not Monge, but nearly
    check(of.solve_sample(x, near, reg=0), cdist(x, near, "sqeuclidean"), np.full(N, 1 / N), np.full(N, 1 / N))
    off = of.solve_sample(x, y, reg=0, metric="euclidean")  # plain distances have no such part
    assert off.method != STAIRCASE
    check(off, cdist(x, y), np.full(N, 1 / N), np.full(N, 1 / N))


def test_labels_and_weights_of_0():
    rng = np.random.default_rng(9)
    x, y, kinds = rng.random((N, 1)), rng.random((N, 1)), np.arange(N) % 2
    C = cdist(x, y, "sqeuclidean")
    r = of.solve_sample(x, y, reg=0, labels=(kinds, kinds))
    assert r.value == pytest.approx(sum(ot.emd2([], [], C[k::2, k::2]) / 2 for k in (0, 1)), rel=1e-9)
    a, b = masses(N, rng), masses(N, rng)
    a[::3] = 0
    a /= a.sum()
    r = of.solve_sample(x, y, a, b, reg=0)
    assert r.method == STAIRCASE
    assert np.isneginf(r.potentials[0][::3]).all()
    assert r.value == pytest.approx(ot.emd2(a, b, C), rel=1e-9)


def test_float32_and_tensors():
    rng = np.random.default_rng(10)
    C = hidden(np.outer(rng.random(N), rng.random(N)).astype(np.float32), rng)
    r = of.solve(C, reg=0)
    assert r.pairs[2].dtype == np.float32
    assert r.value == pytest.approx(ot.emd2([], [], C.astype(np.float64)), rel=1e-6)
    x, y = torch.from_numpy(rng.random((N, 1))).requires_grad_(), torch.from_numpy(rng.random((N, 1)))
    r = of.solve_sample(x, y, reg=0)
    assert r.method == STAIRCASE
    (slope,) = torch.autograd.grad(r.value, x)
    torch.testing.assert_close(slope, 2 * (x.detach() - y[r.permutation]) / N)


def test_one_row_and_equal_clouds():
    rng = np.random.default_rng(11)
    r = of.solve(rng.random((1, 2000)), reg=0)
    assert r.converged
    x = rng.random((N, 1))
    r = of.solve_sample(x, x, reg=0)
    assert (r.value, r.gap) == (0, 0)


def test_no_time_is_no_time():
    x = np.random.default_rng(12).random((2000, 1))
    with pytest.warns(RuntimeWarning, match="not proved optimal"):
        r = of.solve_sample(x, x[::-1] + 1, reg=0, max_time=1e-9)
    assert r.marginal_error < 1e-12


@pytest.mark.slow
def test_two_thousand_points_take_no_time():
    rng, i = np.random.default_rng(13), np.arange(1.0, 2001)
    C, a, b = hidden(1 / (i[:, None] + i), rng), masses(2000, rng), masses(2000, rng)
    of.solve(C, a, b, reg=0)  # compiles
    before = time.process_time()
    assert of.solve(C, a, b, reg=0).converged
    assert time.process_time() - before < 0.5
