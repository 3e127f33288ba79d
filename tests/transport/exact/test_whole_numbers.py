"""Costs of very different size, and problems that fall into parts: solved exactly, and always to the end."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import ot
import pytest
import scipy.sparse
import torch
from scipy.optimize import linear_sum_assignment

import otformer as of
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.exact import digits, rounds, whole_numbers
from otformer.transport.exact.flow_graph import Clock, Sent


def value_of(row: np.ndarray, exponent: int) -> Fraction:
    return sum((Fraction(int(d)) * 2 ** (digits.BITS * t) for t, d in enumerate(row)), Fraction(0)) * Fraction(2) ** exponent


def test_digits_are_the_numbers_themselves():
    rng = np.random.default_rng(0)
    c = rng.choice([-1, 1], 300) * rng.random(300) * 10.0 ** rng.integers(-300, 300, 300)
    c = np.concatenate([c, [0.0, 5e-324, -1e300, 2.0**-1022, 1.0, 3.0]])
    found, exponent = digits.split(c)
    assert all(value_of(row, exponent) == Fraction(x) for x, row in zip(c.tolist(), found, strict=True))


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e10, 1e300])
def test_the_sign_of_a_sum_is_exact(scale):
    """c − p + q where float64 sees 0: numbers that differ in their last bits, beside others of any size."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        base = float(rng.standard_normal() * scale)
        three = [
            base,
            base * float(1 + rng.integers(-2, 3) * 2.0**-52),
            float(rng.choice([0.0, 1.0, -1.0]) * np.spacing(base)),
        ]
        three_digits, _ = digits.split(np.array(three))
        wanted = Fraction(three[0]) - Fraction(three[1]) + Fraction(three[2]) < 0
        assert digits.is_negative(three_digits, 0, three_digits, 1, 2) == wanted


@pytest.mark.parametrize(("big", "seed"), [(1e14, 1), (1e15, 1), (1e17, 5), (1e300, 2)])
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_big_m_ends_and_leaves_the_rest_optimal(big, seed, share):
    """Of the plan that uses as little of the big entries as can be, the rest is best: against HiGHS in two steps."""
    rng = np.random.default_rng(seed)
    C = rng.random((60, 50))
    dear = rng.random((60, 50)) < share
    r = of.solve(np.where(dear, big, C), reg=0)
    assert r.converged
    P = r.dense()
    least = ot.emd2([], [], dear.astype(float))
    assert P[dear].sum() == pytest.approx(least, abs=1e-12)
    penalty = 1e3  # enough for 110 points with costs below 1, and small enough for POT
    assert (P * np.where(dear, penalty, C)).sum() == pytest.approx(ot.emd2([], [], np.where(dear, penalty, C)), abs=1e-9)


@pytest.mark.parametrize("link", [-1e10, -1e16, -1e100])
@pytest.mark.parametrize("how", ["solve", "tensor", "batch", "emd", "linear_sum_assignment"])
def test_a_must_link_leaves_the_rest_optimal(link, how):
    rng = np.random.default_rng(3)
    C = rng.random((40, 40))
    C[3, 7] = link
    rest = np.delete(np.delete(C, 3, 0), 7, 1)
    wanted = rest[linear_sum_assignment(rest)].sum()
    if how == "emd":
        plan = of.emd([], [], C)
        columns = plan.argmax(1)
    elif how == "linear_sum_assignment":
        columns = of.linear_sum_assignment(C)[1]
    else:
        r = of.solve_batch([C], reg=0)[0] if how == "batch" else of.solve(torch.tensor(C) if how == "tensor" else C, reg=0)
        assert r.converged
        columns = np.asarray(r.permutation)
    assert columns[3] == 7
    assert sum(C[i, columns[i]] for i in range(40) if i != 3) == pytest.approx(wanted, rel=1e-12)


def test_an_entropic_solve_that_would_lose_the_digits_is_refused():
    C = np.random.default_rng(4).random((20, 20))
    C[3, 7] = -1e16
    with pytest.raises(ValueError, match=r"M must have no entry so low .* got -1e\+16.* reg is 0\.1"):
        of.solve(C, reg=0.1)
    assert of.solve(C, reg=1e12).converged  # nothing is lost beside a λ as large


def test_a_shift_of_all_costs_is_not_refused():
    """Costs far from 0 whose differences float64 has."""
    C = np.random.default_rng(5).integers(0, 50, (20, 20)).astype(float)
    shifted = of.solve(C - 2.0**50, reg=5.0)
    np.testing.assert_allclose(shifted.plan, of.solve(C, reg=5.0).plan, atol=1e-8)


def blocks(seed: int, orders: float, count: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Costs with ``count`` blocks, inf elsewhere; weights over so many orders; masses of a block agree but for rounding."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2 * count, 60, 2)
    rows, columns = (np.append(np.arange(count), rng.integers(0, count, size - count)) for size in (n, m))
    a, b = (10.0 ** rng.uniform(-orders, 0, size) for size in (n, m))
    for k in range(count):
        b[columns == k] *= a[rows == k].sum() / b[columns == k].sum()
    return np.where(rows[:, None] == columns, rng.random((n, m)), np.inf), a / a.sum(), b / b.sum()


@pytest.mark.parametrize("orders", [0.0, 3.0, 12.0])
@pytest.mark.parametrize("seed", range(5))
def test_blocks_are_solved_each_for_itself(seed, orders):
    """Exactly, as a sparse matrix, and with entropy; the value is the sum of POT's for each block."""
    C, a, b = blocks(seed, orders)
    wanted = 0.0
    for k in range(6):
        rows, columns = np.isfinite(C[:, k]), np.isfinite(C[np.isfinite(C[:, k])][0])
        share = a[rows].sum()
        wanted += share * ot.emd2(a[rows] / share, b[columns] / b[columns].sum(), C[np.ix_(rows, columns)])
    r = of.solve(C, a, b, reg=0)
    assert r.converged
    assert float(r.value) == pytest.approx(wanted, rel=1e-9)
    allowed = np.isfinite(C)
    held = scipy.sparse.coo_array((C[allowed], np.nonzero(allowed)), shape=C.shape)
    assert of.emd2(a, b, held) == pytest.approx(wanted, rel=1e-9)
    assert of.solve(C, a, b, reg=0.1).converged


@pytest.mark.parametrize("reg", [0, 0.1])
def test_blocks_of_unequal_mass_are_refused(reg):
    C, a, b = blocks(0, 0.0)
    b[np.isfinite(C[0])] *= 1.1
    with pytest.raises(
        ValueError, match=r"M or mask must allow a plan: the block of row \d+ and column \d+, .* in a and .* in b"
    ):
        of.solve(C, a, b / b.sum(), reg=reg)


def test_parts_are_named_by_the_rows_that_were_given():
    """Rows without mass are left out, and do not shift the names of the others."""
    C = np.full((3, 2), np.inf)
    C[1, 0] = C[2, 1] = 0.0
    with pytest.raises(
        ValueError, match=r"the block of row 1 and column 0, which match no others, has mass 0\.5 in a and 0\.4 in b"
    ):
        of.solve(C, [0.0, 0.5, 0.5], [0.4, 0.6], reg=0)


def test_rounding_of_weights_is_not_sent_through_a_big_m():
    """Two parts, told apart by 1e15 alone, whose masses differ in the last digit: nothing goes across."""
    C = np.full((2, 2), 1e15)
    C[0, 0], C[1, 1] = 0.3, 0.7
    a, b = np.array([0.1 + 0.2, 0.7]), np.array([0.3, 0.7])
    r = of.solve(C, a, b, reg=0)
    assert r.converged
    assert float(r.value) == pytest.approx(0.3 * 0.3 + 0.7 * 0.7, rel=1e-12)


def test_whole_weights_are_sent_whatever_that_costs():
    """They are exact, so a difference of one is no rounding."""
    r = of.solve(np.array([[0.3, 1e20], [1e20, 0.7]]), [1e13 + 1, 1e13 - 1], [1e13, 1e13], reg=0)
    assert float(r.value) == pytest.approx(1e20, rel=1e-6)
    assert r.marginal_error == 0


def test_points_far_apart_keep_the_digits_of_near_ones():
    """Two clusters 1e9 apart: the plan within them is that of the exact costs."""
    rng = np.random.default_rng(0)
    x, y = rng.random((600, 1)), rng.random((600, 1))
    x[::2] += 1e9
    y[::2] += 1e9
    wanted = sum(((np.sort(x[k::2, 0]) - np.sort(y[k::2, 0])) ** 2).sum() for k in range(2)) / 600
    r = of.solve_sample(x, y, reg=0)
    assert r.converged
    assert float(r.value) == pytest.approx(wanted, rel=1e-6)  # coordinates near 1e9 have seven digits


def test_large_potentials_prove_nothing():
    """The same plan and gap: what a constant of 1e12 takes from the digits of potentials counts."""
    C = np.random.default_rng(0).random((30, 30))
    i, j = linear_sum_assignment(C)
    r = of.solve(C, reg=0)
    f, g = r.potentials
    sent, none = Sent(i, j, np.ones(30, np.int64), C[i, j]), np.zeros(30, np.int64)
    for far, proved in ((0.0, True), (1e6, True), (1e12, False)):
        found = rounds.Optimum(sent, f + far, g - far, 0.0, 1, none, none, "")
        assert whole_numbers.is_proved(found, 1e-6) == proved


@pytest.mark.parametrize("d", [1, 2])
def test_two_groups_far_apart_keep_their_digits(d):
    """Potentials that prove the plan are as small as the costs in use; points about the origin of both groups keep 1e-6."""
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 600, d))
    x[::2, 0] += 1e10
    y[::2, 0] += 1e10
    r = of.solve_sample(x, y, reg=0)
    assert r.converged
    C = ((x[:, None] - y) ** 2).sum(-1)
    assert float(r.value) == pytest.approx(C[linear_sum_assignment(C)].mean(), rel=1e-5)


def test_time_that_is_up_keeps_what_float64_has_proved():
    rng = np.random.default_rng(10)
    M = np.where(rng.random((700, 700)) < 0.5, rng.random((700, 700)), 1e15)
    of.solve(M[:50, :50], reg=0)  # compiled
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        r = of.solve(M, reg=0, max_time=0.3)
    assert np.isfinite(r.gap)


def test_a_weight_that_must_go_through_a_big_m_does():
    """1e-12 of the mass is no rounding. What rounding of the weights costs there is more than tol, and said."""
    C = np.full((2, 2), 1e15)
    C[0, 0], C[1, 1] = 0.3, 0.7
    with pytest.warns(RuntimeWarning, match="not proved optimal: the gap is 0"):
        r = of.solve(C, [0.3 + 1e-12, 0.7 - 1e-12], [0.3, 0.7], reg=0)
    assert float(r.value) == pytest.approx(1e3, rel=1e-3)


def test_whole_numbers_take_over_where_rounds_bring_nothing(monkeypatch):
    """No patience at all: what the first round leaves is finished exactly, between points too."""
    monkeypatch.setattr(rounds, "STALLED_ROUNDS", -1)
    rng = np.random.default_rng(6)
    x, y, a, b = rng.random((300, 2)), rng.random((280, 2)), rng.random(300), rng.random(280)
    a, b = a / a.sum(), b / b.sum()
    C = ((x[:, None] - y) ** 2).sum(2)
    for r in (of.solve(C, a, b, reg=0), of.solve_sample(x, y, a, b, reg=0)):
        assert r.converged
        assert float(r.value) == pytest.approx(ot.emd2(a, b, C, numItermax=10**6), rel=1e-12)


def test_rounds_alone_end_too(monkeypatch):
    """Where nothing takes over, only pairs that are new count: the answer may be none, but it comes, and says so."""
    monkeypatch.setattr(digits, "UP_TO", 0)
    rng = np.random.default_rng(1)
    C = rng.random((60, 50))
    C[rng.random((60, 50)) < 0.95] = 1e15
    supply, demand = np.full(60, 5), np.full(50, 6)
    found = rounds.optimum(MatrixCost(C), supply, demand, np.zeros(50), 1e15, Clock(60.0))
    assert found.rounds < 2000


def test_potentials_are_as_small_as_the_costs_in_use():
    """Big entries that nothing uses do not show in them, so that they keep their digits."""
    rng = np.random.default_rng(7)
    C = rng.random((50, 50))
    C[(rng.random((50, 50)) < 0.8) & ~np.eye(50, dtype=bool)] = 1e15
    a = rng.random(50)
    r = of.solve(C, a / a.sum(), a / a.sum(), reg=0)
    f, g = r.potentials
    used = C[r.dense() > 0].max()
    assert max(abs(f).max(), abs(g).max()) <= 51 * used
    assert (C - f[:, None] - g).min() >= -1e-13


def test_time_is_kept_in_whole_numbers():
    """Time that is up gives a plan with its bound, not the optimum."""
    rng = np.random.default_rng(8)
    C = np.where(rng.random((400, 400)) < 0.5, rng.random((400, 400)), 1e15)
    with pytest.warns(RuntimeWarning, match="raise max_time"):
        r = of.solve(C, reg=0, max_time=1e-9)
    assert not r.converged
    np.testing.assert_allclose(r.marginal_a, 1 / 400, atol=1e-12)


def test_which_costs_are_wide():
    """Alone, whatever float64 has few bits for; in a stack, only what falls apart into small and large."""
    C = np.random.default_rng(9).random((100, 100))
    of_every_size, apart = (C**8, np.exp(-30 * C**2)), (np.where(C < 0.5, C, 1e9), np.where(C < 0.999, C, -1e12))
    for given in (C, np.where(C < 0.5, C, np.inf), np.where(C < 0.5, 1.0, 1e12), np.where(C < 0.5, 0.0, 1e12)):
        assert not digits.is_wide(given)
        assert not digits.falls_apart(given)
    for given in of_every_size:
        assert digits.is_wide(given)
        assert not digits.falls_apart(given)
    for given in apart:
        assert digits.is_wide(given)
        assert digits.falls_apart(given)


def test_the_least_of_rows():
    assert whole_numbers.least_of_rows(np.array([0, 0, 2]), np.array([3.0, 1.0, 2.0]), 3).tolist() == [1.0, 0.0, 2.0]
