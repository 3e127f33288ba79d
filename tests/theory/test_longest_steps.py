"""Theorem L where L need not fall: both heads with γ = 2λ exactly (docs/theory.md, 8), alternating heads with ω > ω_c."""

from __future__ import annotations

import numpy as np

from helpers.extreme import Array, Pair, Problems, Tally, osc, problems


def apart(p: Problems, u: Array, v: Array) -> Pair:
    """e = (u − u*)/λ and f = (v − v*)/λ."""
    return (u - p.u) / p.reg, (v - p.v) / p.reg


def log_ratio(p: Problems, u: Array, v: Array) -> Array:
    """The largest |log(M/P*)| of each problem."""
    e, f = apart(p, u, v)
    return np.abs(e[:, :, None] + f[:, None]).max((1, 2))


def test_section_8_one_layer_of_twice_lambda(record_property) -> None:
    """m falls to 1 − (1 − tanh²(R/λ))(1 − η) of itself or below; y = log(M_11/P*_11) follows y − 4 tanh(y/2) up to 2m."""
    fall, scale = Tally(), Tally()
    for p in problems(8):
        u, v = p.start(3.0)
        e, f = apart(p, u, v)
        R = np.maximum(np.abs(e).max(1), np.abs(f).max(1))
        rate = 1 - (1 - np.tanh(R) ** 2) * (1 - np.tanh(p.log_phi() / 4))
        sizes = [np.abs(p.C / p.reg[..., None]).max((1, 2)), *(np.abs(t / p.reg).max(1) for t in (p.u, p.v))]
        rounding = 1e-12 * (1 + sum(sizes))
        for _ in range(30):
            m, y = np.maximum(osc(e), osc(f)), e[:, 0] + f[:, 0]
            u, v = p.layer(u, v, 2.0, 2.0)
            e, f = apart(p, u, v)
            fall.holds(np.maximum(osc(e), osc(f)), rate * m, rounding)
            scale.holds(np.abs(e[:, 0] + f[:, 0] - (y - 4 * np.tanh(y / 2))), 2 * m, rounding)
        fall.problems += len(u)
    assert fall.largest > 0.9
    assert scale.largest > 0.5
    fall.record(record_property)
    record_property("largest ratio of the scale", scale.largest)


def test_section_8_both_heads_at_twice_lambda_converge_from_any_start(record_property) -> None:
    """After 1,500 layers the row-normalised plan is that of the solution to 1e-9; the scale is as far off as √(3/ℓ)."""
    scale = Tally()
    for p in problems(9, steep=1.0):
        u, v = p.start()
        for _ in range(1500):
            u, v = p.layer(u, v, 2.0, 2.0)
        assert (osc(apart(p, u, v)[0]) <= 1e-9).all()
        scale.holds(log_ratio(p, u, v), 1.05 * np.sqrt(3 / 1500))
        scale.problems += len(u)
    assert scale.largest > 0.9
    scale.record(record_property)


def test_alternating_heads_below_two_over_one_plus_eta_converge_even_above_omega_c(record_property) -> None:
    """1 < ω < 2/(1 + η): no layer increases m, and the plan converges, also where the dual may rise (ω > 1.884013)."""
    count, above = 0, 0
    for p in problems(10, steep=0.05):
        eta = np.tanh(p.log_phi() / 4)
        omega = (1 + 0.98 * (2 / (1 + eta) - 1))[:, None]
        above += int((omega > 1.884014).sum())
        u, v = p.start(20.0)
        e, f = apart(p, u, v)
        m = np.maximum(osc(e), osc(f))
        for k in range(600):
            u, v = p.layer(u, v, 2 * omega * (k % 2 == 0), 2 * omega * (k % 2 == 1))
            e, f = apart(p, u, v)
            after = np.maximum(osc(e), osc(f))
            assert (after <= m * (1 + 1e-9) + 1e-9).all()
            m = after
        assert (log_ratio(p, u, v) <= 1e-2).all()
        count += len(u)
    assert above > 100
    record_property("problems", count)


def test_alternating_heads_above_one_have_a_rate_from_the_start(record_property) -> None:
    """1 < ω < 2/(1 + η): every |z| ≤ 6R/λ + 2ω, and k pairs have m ≤ (2R/λ)(L.4 (ii)'s factor with tanh(3R/λ + ω))^k."""
    excess, rate = Tally(), Tally()
    for p in problems(11, steep=0.05):
        eta = np.tanh(p.log_phi() / 4)
        omega = 1 + (2 / (1 + eta) - 1) * p.random.uniform(0, 0.98, eta.shape)
        step = 2 * omega[:, None]
        u, v = p.start(3.0)
        R = np.abs(np.concatenate([*apart(p, u, v)], 1)).max(1)
        factor = np.maximum(1 - omega * (1 - eta) / np.cosh(3 * R + omega) ** 2, omega * (1 + eta) - 1)
        for k in range(1, 41):
            for rows in (True, False):
                excess.holds(np.abs(p.excess(u, v)[1 - rows]).max(1), 6 * R + 2 * omega)
                u, v = p.layer(u, v, step * rows, step * (not rows))
            e, f = apart(p, u, v)
            rate.holds(np.maximum(osc(e), osc(f)), 2 * R * factor**k, 1e-9)
        rate.problems += len(u)
    assert excess.largest > 0.1
    assert rate.largest > 0.5
    rate.record(record_property)
    record_property("largest ratio of z", excess.largest)
