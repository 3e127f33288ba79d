"""Numbers on a line: distances against transport in general, plans that are monotone, sorting that is sorting."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import ot
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

import otformer as of
from helpers.certificates import EPS, exact
from helpers.strategies import Case, cases, orders, weights
from otformer.transport.exact.one_dimension import plan_1d

powers = st.sampled_from((1, 1.5, 2, 3))


@st.composite
def lines(draw: st.DrawFn) -> Case:
    """A case in one dimension."""
    c = draw(cases())
    return c._replace(x=c.x[:, :1], y=c.y[:, :1])


def room(C: np.ndarray) -> float:
    """A sum of products over n + m pairs, whose costs and masses are rounded a few times each."""
    return 16 * sum(C.shape) * EPS * float(C.max())


@given(lines(), powers)
def test_the_distance_is_that_of_transport_in_general(c, p):
    """By the exact solver on the matrix, by POT on the line, and for p = 1 by scipy."""
    x, y = c.x[:, 0], c.y[:, 0]
    C = abs(x[:, None] - y) ** p
    ours = float(of.wasserstein_1d(x, y, c.a, c.b, p=p))
    result = of.solve(C, c.a, c.b, reg=0)
    assert abs(ours - result.value) <= result.gap + room(C)
    assert abs(ours - float(ot.wasserstein_1d(x, y, c.a, c.b, p=p))) <= room(C) + 1e-12 * C.max()  # POT searches by sums
    if p == 1:
        assert abs(ours - scipy.stats.wasserstein_distance(x, y, c.a, c.b)) <= room(C) + 1e-12 * C.max()


@given(lines(), powers)
def test_the_plan_is_monotone_and_its_certificate_holds(c, p):
    x, y = c.x[:, 0], c.y[:, 0]
    C, found = abs(x[:, None] - y) ** p, plan_1d(x, y, c.a, c.b, p)
    P = np.zeros(C.shape)
    np.add.at(P, (found.rows, found.columns), found.masses)
    proof = exact(C, c.a, c.b, P, found.f, found.g)
    size = float(C.max() + abs(found.f).max() + abs(found.g).max())
    N = sum(C.shape)  # potentials are sums of up to N costs
    assert not proof.negative
    assert proof.marginal_error <= 4 * N * EPS
    assert proof.infeasible <= 4 * N * EPS * size
    assert proof.gap <= 4 * N * EPS * size
    pairs = sorted(zip(x[found.rows], y[found.columns], strict=True))
    assert all(first[1] <= second[1] or first[0] == second[0] for first, second in pairwise(pairs))


@given(lines(), st.data(), powers, st.sampled_from((2.0**-10, 4.0)), st.integers(-100, 100))
def test_a_distance_and_its_symmetries(c, data, p, k, t):
    """Symmetric, 0 between the same, |k|^p times as far for points k times as far, and no matter where or in which order."""
    x, y = c.x[:, 0], c.y[:, 0]
    shift = t * max(abs(x).max(), abs(y).max())
    rows, columns = data.draw(orders(len(x), len(y)))
    W = of.wasserstein_1d(x, y, c.a, c.b, p=p)
    allowed = 2 * room(abs(x[:, None] - y) ** p)
    assert abs(of.wasserstein_1d(y, x, c.b, c.a, p=p) - W) <= allowed
    assert abs(of.wasserstein_1d(x + shift, y + shift, c.a, c.b, p=p) - W) <= allowed
    assert abs(of.wasserstein_1d(k * x, k * y, c.a, c.b, p=p) / k**p - W) <= allowed
    assert abs(of.wasserstein_1d(x[rows], y[columns], c.a[rows], c.b[columns], p=p) - W) <= allowed
    assert of.wasserstein_1d(x, x[np.argsort(x)], c.a, c.a[np.argsort(x)], p=p) <= room(abs(x[:, None] - x) ** p)


@given(st.data(), powers)
def test_the_triangle(data, p):
    """W_p, the p-th root, satisfies it. A root of v that is off by δ is off by δ^(1/p) at most."""
    x, y, z = (data.draw(lines()).x[:, 0] for _ in range(3))
    a, b, c = (data.draw(weights(len(t))) for t in (x, y, z))
    legs = [float(of.wasserstein_1d(*sides, p=p)) for sides in ((x, z, a, c), (x, y, a, b), (y, z, b, c))]
    off = room(np.full((len(x) + len(y), len(z)), max(abs(np.concatenate([x, y, z]))) ** p * 2**p)) ** (1 / p)
    assert legs[0] ** (1 / p) <= legs[1] ** (1 / p) + legs[2] ** (1 / p) + 3 * off


values = st.one_of(
    st.lists(st.integers(-3, 3).map(float), max_size=40),  # ties
    st.lists(st.floats(-1e6, 1e6), max_size=20),
    st.lists(st.floats(1.0, 1.0 + 1e-9), max_size=8),  # crowded
    st.lists(st.floats(-1e300, 1e300), max_size=8),
)


@given(values)
def test_sorting_is_sorting_or_an_error_that_says_why_not(given_values):
    x = np.array(given_values, dtype=np.float64)
    try:
        order = of.argsort(x)
    except ValueError as error:
        assert "lie too close together" in str(error)  # noqa: PT017
        gaps = np.diff(np.unique(x))
        assert gaps.min() < EPS * np.ptp(x)  # it says so only where neighbours are one rounding apart
        return
    np.testing.assert_array_equal(order, np.argsort(x, kind="stable"))
    np.testing.assert_array_equal(of.sort(x), np.sort(x))
    np.testing.assert_array_equal(of.sort(torch.from_numpy(x)).numpy(), np.sort(x))


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30, unique=True), st.data())
def test_sorting_is_the_assignment_onto_an_increasing_list(numbers, data):
    """Squared distances to 0, 1, …: the j-th smallest goes to j, and of distinct numbers that is the only optimum."""
    x = np.array(numbers, dtype=np.float64)
    n = len(x)
    columns = np.asarray(of.assignment(x[:, None], np.arange(n, dtype=np.float64)[:, None]))
    np.testing.assert_array_equal(columns[of.argsort(x)], np.arange(n))
    order = data.draw(orders(n))[0]
    np.testing.assert_array_equal(of.sort(x[order]), of.sort(x))


@pytest.mark.parametrize("p", [1, 2])
@given(c=lines())
def test_wasserstein_of_equal_weights_is_the_assignment(p, c):
    n = min(len(c.x), len(c.y))
    x, y = c.x[:n, 0], c.y[:n, 0]
    C = abs(x[:, None] - y) ** p
    rows, columns = of.linear_sum_assignment(C)
    assert abs(of.wasserstein_1d(x, y, p=p) * n - C[rows, columns].sum()) <= n * room(C)
