"""Theorem L of docs/theorems.md: a linear rate from any start."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from helpers.contraction import Record, apart, largest, rounding, shares, steepest, two_by_two
from helpers.extreme import osc, problems
from helpers.unit_layers import potentials
from otformer import theory
from otformer.theory import hilbert
from otformer.transport import reference

FURTHEST = math.log(3) - 2 / 3  # r − 1 − log r at r = 1/3, where |tanh(½ log r)| = ½


@pytest.mark.parametrize("heads", ["both", "rows", "columns"])
def test_L_per_layer(heads: str, record_property: Record) -> None:
    """μ⁺ ≤ (1 − c) μ, c of the shorter step; one head alone does the same to its own side."""
    count, nearest = 0, 0.0
    for p in problems(0):
        u, v = p.start()
        count += len(u)
        for _ in range(10):
            rows, columns = p.random.uniform(0, 2, (2, *p.reg.shape))
            rows, columns = rows * (heads != "columns"), columns * (heads != "rows")
            m, tau = apart(p, u, v), steepest(*p.excess(u, v))
            u, v = p.layer(u, v, rows, columns)
            after = {"both": apart(p, u, v), "rows": osc((u - p.u) / p.reg), "columns": osc((v - p.v) / p.reg)}[heads]
            step = np.minimum(rows, columns) if heads == "both" else rows + columns
            bound = (1 - shares(p, tau, step[:, 0])) * m
            assert (after <= bound + rounding(p, u, v)).all()
            nearest = max(nearest, largest(after, bound, 1e6 * rounding(p, u, v)))
    record_property("problems", count)
    record_property("largest ratio", nearest)


@pytest.mark.parametrize("scale", [0.0, 1.0, -2.0])
@pytest.mark.parametrize("gap", [0.1, 1.0, 6.0])
def test_L_per_layer_is_attained(gap: float, scale: float, record_property: Record) -> None:
    """For every η, every τ and every step: 2×2, σ = η, all z nearly ``scale``."""
    s = 1e-5
    C, (u, v), solution = two_by_two(gap, scale, s)
    P = reference.plan(C, u, v, 1.0)
    for rows, columns in ((1.0, 1.0), (0.3, 1.9), (2.0, 2.0)):
        x = u - rows * (0.5 * P.sum(1).log()).tanh()
        y = v - columns * (0.5 * P.sum(0).log()).tanh()
        left = max(float(hilbert.spread(x - solution[0])), float(hilbert.spread(y - solution[1]))) / (2 * s)
        tau = abs(math.tanh(scale / 2))
        share = theory.contraction(1.0, hilbert.log_phi(C, 1.0), tau, min(rows, columns))
        assert 1 - left == pytest.approx(share, rel=1e-3)
    record_property("largest ratio", left / (1 - share))


@pytest.mark.parametrize("step", [0.4, 1.0, 1.9, 2.0])
def test_L_many_layers(step: float, record_property: Record) -> None:
    """μ_ℓ ≤ `linear_bound` at layer ℓ itself, and that is at most (2R/λ)(1 − ¾g(1−η))^{ℓ−k₁}; both heads, γ = step·λ."""
    count, nearest, g = 0, 0.0, step / 2
    for p in problems(1, each=130):
        u, v = p.start(most=4.0)
        far, phi = p.distance(u, v) / p.reg[:, 0], p.log_phi()
        count += len(u)
        for depth in range(1, 61):
            u, v = p.layer(u, v, step, step)
            if depth % 6 and depth > 4:
                continue
            bound = np.array([theory.linear_bound(1.0, R, depth, x, step) for R, x in zip(far, phi, strict=True)])
            m = apart(p, u, v)
            assert (m <= bound + depth * rounding(p, u, v)).all()
            nearest = max(nearest, largest(m, bound, 1e6 * depth * rounding(p, u, v)))
            if step < 2:
                begins = np.ceil(4 * far**2 / (np.pi * g * (1 - g)))
                rate = 1 - 0.75 * g * np.array([1 / hilbert.inverse_gap(x) for x in phi])
                assert (bound <= 2 * far * rate ** (depth - begins) * (1 + 1e-12)).all()
    record_property("problems", count)
    record_property("largest ratio", nearest)


@pytest.mark.parametrize("gap", [3.0, 5.0])
def test_L_many_layers_is_attained(gap: float, record_property: Record) -> None:
    """2×2 from R = λ/1000: every layer. From R = λ: μ ≤ 1e-9 after so many layers, within 10 %."""
    for far in (1e-3, 1.0):
        C, (u, v), (x, y) = two_by_two(gap, 0.0, far)
        phi, m = hilbert.log_phi(C, 1.0), [2 * far]
        while m[-1] > 1e-9:
            P = reference.plan(C, u, v, 1.0)
            u, v = u - (0.5 * P.sum(1).log()).tanh(), v - (0.5 * P.sum(0).log()).tanh()
            m.append(max(float(hilbert.spread(u - x)), float(hilbert.spread(v - y))))
        needed = theory.linear_depth(1.0, far, 1e-9, phi)
        assert len(m) - 1 <= needed <= 1.1 * (len(m) - 1)
        if far < 1:
            bounds = [theory.linear_bound(1.0, far, depth, phi) for depth in range(len(m))]
            assert m == pytest.approx(bounds, rel=1e-3, abs=1e-12)
    record_property("largest ratio", (len(m) - 1) / needed)


def test_L_attention(record_property: Record) -> None:
    """|log(A_ij/A*_ij)| ≤ osc f for the rows' attention M/S, ≤ osc e for the columns'; attained as an A*_ij tends to 1."""
    count, nearest = 0, 0.0
    for p in problems(7):
        u, v = p.start()
        (z, other), log, count = p.excess(u, v), p.log_matrix(u, v) - p.log_plan, count + len(u)
        for found, t in ((log - z[:, :, None], (v - p.v) / p.reg), (log - other[:, None], (u - p.u) / p.reg)):
            assert (np.abs(found).max((1, 2)) <= osc(t) + 10 * rounding(p, u, v)).all()
    C, _, (x, y) = two_by_two(16.0, 0.0, 0.0)
    P, start = reference.plan(C, x, y, 1.0), reference.plan(C, x, y + torch.tensor([1.0, 0.0]), 1.0)
    nearest = float((start / start.sum(1, keepdim=True) / P * P.sum(1, keepdim=True)).log().abs().max())
    assert nearest == pytest.approx(1, rel=1e-5)
    record_property("problems", count)
    record_property("largest ratio", nearest)


def test_L_depth(record_property: Record) -> None:
    """`linear_depth` is the first layer at which the bound is small enough, at most k₁ + (4/3)/(g(1−η)) log(2R/λε)."""
    random, count, nearest = np.random.default_rng(2), 1000, 0.0
    for _ in range(count):
        reg, far, tol, step = 10 ** random.uniform([-3, -2, -9, -1], [2, 1.5, 0, math.log10(1.99)])
        phi = random.uniform(0, 12)
        given = reg, far * reg, phi, step * reg
        needed = theory.linear_depth(*given[:2], tol, *given[2:])
        assert theory.linear_bound(*given[:2], int(needed), *given[2:]) <= tol * (1 + 1e-9)
        if needed:
            assert theory.linear_bound(*given[:2], int(needed) - 1, *given[2:]) > tol * (1 - 1e-9)
            g = step / 2
            slow = 4 / (3 * g) * (1 + math.exp(phi / 2)) / 2 * math.log(2 * far / tol)
            most = math.ceil(4 * far**2 / (math.pi * g * (1 - g))) + slow + 1
            assert needed <= most
            nearest = max(nearest, float(needed / most))
    record_property("problems", count)
    record_property("largest ratio", nearest)


def test_L_the_papers_informal_theorem(record_property: Record) -> None:
    """K = 2.7: the two bounds of the proof are below it for 1 ≤ n ≤ 10⁶ and 10⁻³ ≤ λ ≤ 10³, and 1,000 networks are."""
    n, hot = np.meshgrid(np.unique(np.geomspace(1, 1e6, 400).round()), np.geomspace(1e-3, 1e3, 2001))  # hot = 1/λ
    r, most = hot + np.maximum(1, np.log(n)), 1.5 * np.log(n) + hot  # log(n^{3/2} e^{1/λ})
    early = r * np.sqrt(2 * (4 / math.pi * r**2 + 1))
    late = np.log(r) + 0.5 * (np.logaddexp(0, hot) - math.log(2 * 0.375 * math.e))
    nearest = max(float((np.log(early) - most).max()), float((late - most).max()))
    assert math.log(2.5) < nearest < math.log(2.7)
    random, largest = np.random.default_rng(5), 0.0
    for size in (1, 2, 3, 6):
        costs = random.integers(0, 2, (250, size, size)), random.uniform(size=(250, size, size))
        C = np.where(np.arange(250)[:, None, None] % 2, *costs)
        reg = 10 ** random.uniform(-0.7, 1.5, 250)
        *_, end = potentials(C, [(reg, 2 * reg * (k % 2), 2 * reg * (1 - k % 2)) for k in range(3000)])
        for k, at in enumerate(potentials(C, [(reg, reg, reg)] * 300)):
            m = np.maximum(*(osc(x - y) / reg for x, y in zip(at, end, strict=True)))
            largest = max(largest, float((m * math.sqrt(k) / (size**1.5 * np.exp(1 / reg))).max()))
    assert largest < 2.7
    record_property("problems", 1000)
    record_property("largest ratio", largest / 2.7)


@pytest.mark.parametrize("omega", [0.4, 1.0])
def test_L_alternating_heads(omega: float, record_property: Record) -> None:
    """γ = 2λω, ω ≤ 1: a pair of layers has μ⁺⁺ ≤ (1 − c) μ, whichever head begins; and no layer increases μ."""
    count, nearest = 0, 0.0
    for p in problems(3):
        for first in (True, False):
            u, v = p.start()
            count += len(u)
            for _ in range(6):
                m, seen = apart(p, u, v), []
                for rows in (first, not first):
                    seen.append(p.excess(u, v)[0 if rows else 1])
                    u, v = p.layer(u, v, 2 * omega * rows, 2 * omega * (not rows))
                bound = (1 - shares(p, steepest(*seen), np.full(len(u), 2 * omega))) * m
                after = apart(p, u, v)
                assert (after <= bound + rounding(p, u, v)).all()
                nearest = max(nearest, largest(after, bound, 1e6 * rounding(p, u, v)))
    record_property("problems", count)
    record_property("largest ratio", nearest)


def test_L_alternating_heads_is_attained(record_property: Record) -> None:
    """A.1's 2×2 again: the first head leaves 1 − c of its side, and the second makes its own no larger than that."""
    C, (u, v), (x, _) = two_by_two(2.0, 0.0, 1e-5)
    for omega in (0.4, 1.0):
        left = float(hilbert.spread(u - 2 * omega * (0.5 * reference.plan(C, u, v, 1.0).sum(1).log()).tanh() - x)) / 2e-5
        share = theory.contraction(1.0, hilbert.log_phi(C, 1.0), 0.0, 2 * omega)
        assert 1 - left == pytest.approx(share, rel=1e-3)
    record_property("largest ratio", left / (1 - share))


def test_L_alternating_heads_above_one(record_property: Record) -> None:
    """1 < ω < 2/(1 + η): a pair leaves max(1 − ω(1−τ²)(1−η), ω(1+η) − 1) < 1 of m at most; that is attained for τ → 0."""
    count, nearest = 0, 0.0
    for p in problems(4):
        u, v = p.start()
        eta = np.tanh(p.log_phi() / 4)
        omega = 1 + p.random.uniform(0, 1, len(u)) * (2 / (1 + eta) - 1)
        count += len(u)
        for _ in range(6):
            m, seen = apart(p, u, v), []
            for rows in (True, False):
                seen.append(p.excess(u, v)[0 if rows else 1])
                u, v = p.layer(u, v, 2 * omega[:, None] * rows, 2 * omega[:, None] * (not rows))
            bound = np.maximum(1 - omega * (1 - steepest(*seen) ** 2) * (1 - eta), omega * (1 + eta) - 1) * m
            assert (apart(p, u, v) <= bound + 4 * rounding(p, u, v)).all()
    for gap, omega in ((0.5, 1.4), (2.0, 1.1)):
        s, sign = 1e-5, torch.tensor([1.0, -1.0]).double()
        C, _, (x, y) = two_by_two(gap, 0.0, s)
        eta = math.tanh(gap / 2)
        for way in (-1, 1):  # f = −e, and f = e, where the head goes beyond the solution
            P = reference.plan(C, x + s * sign, y + way * s * sign, 1.0)
            left = float(hilbert.spread(s * sign - 2 * omega * (0.5 * P.sum(1).log()).tanh())) / (2 * s)
            nearest = max(nearest, left / max(1 - omega * (1 - eta), omega * (1 + eta) - 1))
            assert left == pytest.approx(abs(1 - omega + way * -omega * eta), rel=1e-3)
    assert nearest == pytest.approx(1, rel=1e-3)
    record_property("problems", count)
    record_property("largest ratio", nearest)


def test_L_where_tau_is_at_most_a_half(record_property: Record) -> None:
    """KL(P*‖M) ≤ (log 3 − ⅔) a_i gives |tanh(z_i/2)| ≤ ½ there; attained where row i has a third of its mass."""
    count, nearest = 0, 0.0
    for p in problems(5):
        u, v = p.start(most=4.0)
        count += len(u)
        for weights, z in zip((p.a, p.b), p.excess(u, v), strict=True):
            told = p.divergence(u, v)[:, None] <= FURTHEST * weights
            assert (np.abs(np.tanh(z / 2))[told] <= 0.5).all()
        least = p.a.argmin(1)[:, None]
        shift = np.zeros_like(p.u)
        np.put_along_axis(shift, least, -math.log(3), 1)
        KL = p.divergence(p.u + shift * p.reg, p.v)
        assert pytest.approx(FURTHEST * p.a.min(1), rel=1e-6) == KL
        z = np.take_along_axis(p.excess(p.u + shift * p.reg, p.v)[0], least, 1)
        nearest = max(nearest, float((KL / (FURTHEST * p.a.min(1))).max()))
        assert np.abs(np.tanh(z / 2)) == pytest.approx(0.5, rel=1e-6)
    record_property("problems", count)
    record_property("largest ratio", nearest)


def test_extreme_numbers_give_no_nan() -> None:
    for reg, distance, phi, step in (
        (1e-290, 1e290, 1e300, None),
        (1.0, 1e-300, 0.0, 2.0),
        (1.0, 1e200, 1e4, 1.9),
        (1e-3, 1.0, 1e3, None),
        (1.0, 0.0, 5.0, None),
        (1e300, 1e-300, 0.0, 1e300),
    ):
        values = [theory.linear_bound(reg, distance, depth, phi, step) for depth in (0, 1, 10**6, 10**18)]
        assert values == sorted(values, reverse=True)
        assert values[-1] >= 0
        assert theory.linear_depth(reg, distance, 1e-3, phi, step) >= 0
    assert theory.linear_depth(1.0, 1e200, 1e-3, 1e4) == math.inf
    assert theory.linear_depth(1.0, 1.0, 3.0, 1.0) == theory.linear_bound(1.0, 0.0, 5, 1.0) == 0


def test_bad_input() -> None:
    for call, message in (
        (
            lambda: theory.linear_bound(1.0, 1.0, 9, 1.0, 2.1),
            "step must be at most 2 reg = 2, .* may expand",
        ),
        (lambda: theory.linear_depth(0.0, 1.0, 1.0, 1.0), "reg must be"),
        (lambda: theory.linear_depth(1.0, 1.0, 0.0, 1.0), "tol must be"),
        (lambda: theory.linear_bound(1.0, math.nan, 9, 1.0), "distance must be"),
        (lambda: theory.linear_bound(1.0, 1.0, 2.5, 1.0), "depth must be"),  # type: ignore[arg-type]
        (lambda: theory.linear_bound(1.0, 1.0, 9, -1.0), "log_phi must be"),
        (lambda: theory.contraction(1.0, 1.0, 1.1), "tau must be at most 1"),
        (lambda: theory.contraction(1.0, 1.0, True), "tau must be"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
