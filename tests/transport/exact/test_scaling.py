"""The auction: within ε of the best on any sparse graph, and an end on every one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from needs import missing

pytest.importorskip("numba", reason=missing("exact"))

from otformer.transport.exact.flow_graph import Clock
from otformer.transport.exact.scaling import Edges, scale, typical_range


def edges(C, g=None):
    """All finite entries of a matrix."""
    i, j = np.nonzero(np.isfinite(C))
    n, m = C.shape
    to, back = np.full(n, -1), np.full(m, -1)
    g = np.zeros(m) if g is None else g.copy()
    return Edges(np.searchsorted(i, np.arange(n + 1)), j, C[i, j], to, back, np.zeros(n), g)


@pytest.mark.parametrize("last", [1e-2, 1e-4, 1e-9])
@pytest.mark.parametrize("seed", range(5))
def test_within_epsilon_of_the_best(seed, last):
    rng = np.random.default_rng(seed)
    C = rng.random((60, 60))
    on = edges(C, rng.standard_normal(60))
    scale(on, 1.0, last, Clock(None))
    i, j = linear_sum_assignment(C)
    assert sorted(on.to) == list(range(60))
    assert (on.to[on.back] == np.arange(60)).all()
    assert C[i, j].sum() - 1e-12 <= C[np.arange(60), on.to].sum() <= C[i, j].sum() + 60 * last + 1e-12
    assert (C - on.f[:, None] - on.g >= -1e-12).all()


def test_ties_and_single_edges():
    C = np.ones((20, 20))
    C[3, 1:] = np.inf
    on = edges(C)
    scale(on, 1.0, 1e-6, Clock(None))
    assert sorted(on.to) == list(range(20))
    assert on.to[3] == 0


def test_rows_without_a_place_stay_free():
    C = np.full((6, 6), np.inf)
    C[:, :4] = np.random.default_rng(0).random((6, 4))  # six rows for four columns
    on = edges(C)
    scale(on, 1.0, 1e-6, Clock(None))
    assert (on.to >= 0).sum() == 4
    assert np.isfinite(on.g).all()


def test_nothing_is_lost_when_time_is_up():
    C = np.random.default_rng(0).random((50, 50))
    on = edges(C)
    scale(on, 1.0, 1e-9, Clock(0.0))
    used = on.to[on.to >= 0]
    assert len(set(used)) == len(used)


def test_typical_range():
    assert typical_range(edges(np.array([[0.0, 1.0], [2.0, 5.0]]))) == 2.0
