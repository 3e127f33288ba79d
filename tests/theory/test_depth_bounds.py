"""Theorems A, B and C of docs/theorems.md, and sections 4 and 9 of docs/theory.md: 1,200 problems each that try to break
them, and, where a bound is attained, an example that does so within a few per cent."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.extreme import Problems, osc, problems
from otformer import theory
from otformer.theory import hilbert
from otformer.transport import reference

TINY = 1e-12  # rounding, relative to the terms that were added


def tensors(p: Problems, k: int) -> tuple[torch.Tensor, float, torch.Tensor, torch.Tensor]:
    """C, λ, a and b of one problem."""
    return torch.tensor(p.C[k]), float(p.reg[k, 0]), torch.tensor(p.a[k]), torch.tensor(p.b[k])


def test_A_potentials_from_marginals() -> None:
    """osc((u − u*)/λ) ≤ (osc z + η osc z')/(1 − η²), and the same with rows and columns exchanged."""
    for p in problems(0):
        u, v = p.start()
        (z, other), log_phi = map(osc, p.excess(u, v)), p.log_phi()
        rounding = TINY * (1 + np.abs(p.C / p.reg[..., None]).max((1, 2)))
        for k, (e, f) in enumerate(zip(osc((u - p.u) / p.reg), osc((v - p.v) / p.reg), strict=True)):
            slack = rounding[k] * hilbert.inverse_gap(log_phi[k])
            assert e <= theory.hilbert_from_marginals(z[k], other[k], log_phi[k]) + slack
            assert f <= theory.hilbert_from_marginals(other[k], z[k], log_phi[k]) + slack


@pytest.mark.parametrize("gap", [0.1, 1.0, 8.0])
def test_A_is_attained(gap: float) -> None:
    """2×2, P* = [[p, 1−p], [1−p, p]], small e = −s(1, −1), f = s(1, −1): equality, to first order."""
    C, s = torch.tensor([[0.0, gap], [gap, 0.0]], dtype=torch.float64), 1e-6
    u, v = reference.sinkhorn(C, 1.0)
    sign = torch.tensor([1.0, -1.0]).double()
    P = reference.plan(C, u - s * sign, v + s * sign, 1.0)
    rows, columns = (float(hilbert.spread(P.sum(axis).log())) for axis in (1, 0))
    assert 2 * s == pytest.approx(theory.hilbert_from_marginals(rows, columns, hilbert.log_phi(C, 1.0)), rel=1e-4)


def test_section_4_how_far_the_solution_is() -> None:
    """R bounds the nearest solution from (0, 0) for costs of any sign; it is attained at n = 1, and for C = 0 and n ≥ e²."""
    for p in problems(1):
        nearest = p.distance(0 * p.u, 0 * p.v)
        for k, distance in enumerate(nearest):
            assert distance <= theory.start_distance(*tensors(p, k)) * (1 + TINY)
    for n, cost, reg in ((1, 3.0, 0.5), (8, 0.0, 2.0), (40, 0.0, 0.1)):
        C = torch.full((n, n), cost, dtype=torch.float64)
        u, v = reference.sinkhorn(C, reg)
        nearest = float(hilbert.spread(torch.cat([u, -v]))) / 2
        assert nearest == pytest.approx(theory.start_distance(C, reg), rel=1e-9)
        assert nearest == pytest.approx(cost / 2 + reg / 2 * max(1, math.log(n) - 1), rel=1e-9)


@pytest.mark.parametrize("step", [0.4, 1.0, 1.9])
def test_A_and_B_and_the_residual_bound_at_every_layer(step: float) -> None:
    """Both heads, γ = step·λ: |tanh(z/2)| ≤ τ_ℓ, μ ≤ 4 artanh(τ_ℓ)/(1−η), KL ≤ (R/λ) 4sτ_ℓ/(1−τ_ℓ), at layer ℓ itself."""
    nearest, told = 0.0, 0
    for p in problems(2, each=130):
        u, v = p.start(most=3.0)
        R, gap, reg = p.distance(u, v), np.array([hilbert.inverse_gap(x) for x in p.log_phi()]), p.reg[:, 0]
        for depth in range(1, 41):
            u, v = p.layer(u, v, step, step)
            bound = R * theory.residual_bound(1.0, 1.0, depth, step) / reg
            found = np.maximum(*(np.abs(np.tanh(z / 2)).max(1) for z in p.excess(u, v)))
            assert (found <= bound + TINY * (1 + np.abs(p.C / p.reg[..., None]).max((1, 2)))).all()
            nearest = max(nearest, float((found / bound).max()))
            tells = bound < 1
            told += int(tells.sum())
            mu = np.maximum(osc((u - p.u) / p.reg), osc((v - p.v) / p.reg))
            assert (mu <= 4 * np.arctanh(bound.clip(max=0.999999)) * gap * (1 + 1e-9))[tells].all()
            most = R / reg * 4 * p.mass * bound / np.where(tells, 1 - bound, 1)
            assert (p.divergence(u, v) <= most + TINY * p.mass)[tells].all()
    assert told > 1000
    assert nearest > 0.25  # Baillon and Bruck's constant is near: a bound four times smaller fails


def test_A_and_B_as_functions_are_those_formulas() -> None:
    """γ = λ/2, R = 0.3, λ = 0.2, ℓ = 500, φ = 16: g = ¼, η = 3/5."""
    tau = 0.3 / (0.2 * math.sqrt(math.pi * 500 * 3 / 16))
    assert theory.hilbert_bound(0.2, 0.3, 500, math.log(16), 0.1) == pytest.approx(10 * math.atanh(tau))
    assert theory.divergence_bound(7.0, 0.2, 0.3, 500, 0.1) == pytest.approx(42 * tau / (1 - tau))
    assert theory.hilbert_bound(0.2, 3.0, 5, 1.0) == theory.divergence_bound(1.0, 0.2, 3.0, 5) == math.inf
    assert theory.hilbert_bound(1.0, 1.0, 500, 1e6) == theory.hilbert_from_marginals(1.0, 0.0, 1e6) == math.inf
    assert theory.hilbert_from_marginals(0.0, 0.0, 1e6) == 0


def test_B_the_divergence_is_the_duals_excess_and_the_gradient_bounds_it() -> None:
    """L − L* = λ KL(P*‖M) ≥ 0, ≤ dist ‖∇L‖₁, and ‖M − P*‖₁² ≤ (⅔s + 4/3 ΣM) KL. Section 2: KL is 0 at P* alone."""
    for p in problems(3):
        u, v = p.start()
        KL, reg, mass = p.divergence(u, v), p.reg[:, 0], np.exp(p.log_matrix(u, v)).sum((1, 2))
        size = reg * (mass + p.mass) + (p.a * (abs(u) + abs(p.u))).sum(1) + (p.b * (abs(v) + abs(p.v))).sum(1)
        assert (np.abs(p.dual(u, v) - p.dual(p.u, p.v) - reg * KL) <= 1e-12 * size).all()
        assert (KL > 0).all()
        assert (reg * KL <= p.distance(u, v) * p.gradient(u, v)).all()
        apart = np.abs(np.exp(p.log_matrix(u, v)) - np.exp(p.log_plan)).sum((1, 2))
        assert (apart**2 <= (2 * p.mass / 3 + 4 * mass / 3) * KL * (1 + 1e-6) + (TINY * (mass + p.mass)) ** 2).all()


def test_B_is_attained() -> None:
    """n = m = 1 and M → 0: L is linear there, so that L − L* is nearly dist ‖∇L‖₁."""
    C, reg = torch.tensor([[0.7]]).double(), 0.1
    (u,), (v,) = reference.sinkhorn(C, reg)
    far = 40 * reg
    fall = reference.dual(C, u[None] - far, v[None] - far, reg) - reference.dual(C, u[None], v[None], reg)
    assert 0.98 < float(fall) / (far * 2) < 1  # ‖∇L‖₁ → 2


@pytest.mark.parametrize("omega", [0.3, 1.0, 1.5, 1.8])
def test_C_both_heads(omega: float) -> None:
    """γ = λω: L falls in every layer, by ½λc δ²/(R(4sR + δ)) at least, and KL stays below Theorem C's bound."""
    c, depth = theory.descent_constant(omega), 30
    for p in problems(4):
        u, v = p.start()
        R, s, reg = p.distance(u, v), p.mass, p.reg[:, 0]
        first = KL = p.divergence(u, v)
        for _ in range(depth):
            u, v = p.layer(u, v, omega, omega)
            after, delta = p.divergence(u, v), reg * KL
            assert (KL - after >= 0.5 * c * delta**2 / (R * (4 * s * R + delta)) - TINY * s).all()
            KL = after
        given = zip(s, reg, R, first, strict=True)
        bound = np.array([theory.divergence_after(depth, *each, omega) for each in given])
        assert (bound <= first).all()
        assert (bound >= KL).all()
        q = reg * c / (2 * R)
        late = depth - np.log(np.maximum(first * reg / (4 * s * R), 1)) / q
        simple = 16 * s * (R / reg) ** 2 / (c * late)
        assert (bound <= simple)[late > 0].all()
        assert (late > 0).any()


@pytest.mark.parametrize("omega", [0.3, 1.0])
def test_C_heads_in_turn(omega: float) -> None:
    """γ = 2λω, ω ≤ 1: a pair of layers lowers L by ½λc δ²/(R(5sR + δ)) at least, whichever head begins."""
    c = theory.descent_constant(omega)
    for p in problems(5):
        for rows_first in (True, False):
            u, v = p.start()
            R, s, reg = p.distance(u, v), p.mass, p.reg[:, 0]
            first = KL = p.divergence(u, v)
            for _ in range(12):
                for rows in (rows_first, not rows_first):
                    u, v = p.layer(u, v, 2 * omega * rows, 2 * omega * (not rows))
                after, delta = p.divergence(u, v), reg * KL
                assert (KL - after >= 0.5 * c * delta**2 / (R * (5 * s * R + delta)) - TINY * s).all()
                KL = after
            given = zip(s, reg, R, first, strict=True)
            assert (np.array([theory.divergence_after(12, *each, omega, turns=True) for each in given]) >= KL).all()


def test_C_the_gradient_of_the_best_layer_falls_as_one_over_k() -> None:
    """Some layer j from ⌊k/2⌋ to k − 1 has N²/(4s + N) ≤ 4δ/(λ c k), N = ‖∇L_j‖₁, δ = L − L* at layer ⌊k/2⌋."""
    c, k = theory.descent_constant(1.0), 40
    for p in problems(6):
        u, v = p.start()
        errors, falls = [], []
        for _ in range(k):
            errors.append(p.gradient(u, v))
            falls.append(p.divergence(u, v))
            u, v = p.layer(u, v, 1.0, 1.0)
        N = np.min(errors[k // 2 :], axis=0)
        assert (N**2 / (4 * p.mass + N) <= 4 * falls[k // 2] / (c * k) + TINY * p.mass).all()


def test_C_the_constants_are_the_best_ones() -> None:
    """c_ω is attained by −h(z)/((e^z − 1)²/(e^z + 1)) over z, and N² ≤ D(4s + N) by M = 2 P*."""
    z = np.linspace(-30, 30, 2_000_001)
    z = z[np.abs(z) > 1e-3]
    for omega in (0.2, 0.5, 0.9, 1.0, 1.3, 1.5, 1.7, 1.8):
        t = np.tanh(z / 2)
        quotient = -(np.exp(z) * np.expm1(-2 * omega * t) + 2 * omega * t) / (np.expm1(z) ** 2 / (np.exp(z) + 1))
        assert quotient.min() == pytest.approx(theory.descent_constant(omega), rel=1e-5)
    assert theory.descent_constant(1.5) == pytest.approx(0.75, rel=1e-12)  # at z = 0: ω(2 − ω)
    assert theory.descent_constant(1.0) == pytest.approx(1 - math.exp(-2), rel=1e-12)  # z → ∞
    for p in problems(7, each=20):
        N = p.gradient(p.u + math.log(2) * p.reg, p.v)
        D = 2 * p.mass / 3  # Σ (S − a)²/(S + a) over rows and columns, S = 2a
        assert pytest.approx(D * (4 * p.mass + N), rel=1e-9) == N**2


@pytest.mark.parametrize(("turns", "masses"), [(False, 4), (True, 5)])
def test_C_as_a_function_is_that_formula(turns: bool, masses: int) -> None:
    """x = KL/(4sR/λ) has 1/x − log x larger by λck/2R after k layers, to the last digit; a pair of layers has 5 for 4."""
    s, reg, R, start, k, omega = 3.0, 0.2, 0.7, 5.0, 90, 0.8
    x = [theory.divergence_after(steps, s, reg, R, start, omega, turns) * reg / (masses * s * R) for steps in (0, k)]
    grown = np.diff([1 / each - math.log(each) for each in x])
    assert float(grown[0]) == pytest.approx(reg * theory.descent_constant(omega) * k / (2 * R), rel=1e-9)


def test_section_9_arrival() -> None:
    """Row sums ≥ (1 − error) a_i need the layers of `arrival_depth`; one pair needs no more than 2 % and a layer more."""
    for p in problems(8):
        needed = np.array(
            [theory.arrival_depth(C, reg, 1.7 * reg, a, 0.3) for C, reg, a, _ in (tensors(p, k) for k in range(len(p.u)))]
        )
        u, v = 0 * p.u, 0 * p.v
        for depth in range(1, 61):
            u, v = p.layer(u, v, 1.7 * (depth % 2), 1.7 * (1 - depth % 2))
            arrived = (p.excess(u, v)[0] >= math.log(0.7)).all(1)
            assert (needed[arrived] <= depth).all()
    C, u, v, reg = torch.full((1, 1), 4.0).double(), 0.0, 0.0, 0.02
    least, layers = theory.arrival_depth(C, reg, 2 * reg), 0
    while math.exp((u + v - 4) / reg - 1) < 0.5:
        S = math.exp((u + v - 4) / reg - 1)
        u, v = (u - 2 * reg * (S - 1) / (S + 1), v) if layers % 2 else (u, v - 2 * reg * (S - 1) / (S + 1))
        layers += 1
    assert least <= layers <= 1.02 * least + 1
    assert theory.arrival_depth(C, reg, 2 * reg, both=True) == least / 2


def test_bad_input() -> None:
    one = torch.ones(1, 1)
    for call, message in (
        (lambda: theory.start_distance(torch.ones(2), 1.0), "C must be a finite matrix"),
        (lambda: theory.start_distance(one * math.nan, 1.0), "C must be a finite matrix"),
        (lambda: theory.start_distance(one, 1.0, torch.zeros(1)), "a must be 1 positive, finite weights"),
        (lambda: theory.start_distance(one, 0.0), "reg must be"),
        (lambda: theory.arrival_depth(one, 1.0, 1.0, error=1.0), "error must be below 1"),
        (lambda: theory.descent_constant(1.81), "omega must be at most 1.8"),
        (
            lambda: theory.divergence_after(1, 1.0, 1.0, 1.0, 1.0, 1.2, turns=True),
            "omega must be at most 1 for heads in turn",
        ),
        (lambda: theory.hilbert_bound(1.0, 1.0, 9, -1.0), "log_phi must be"),
        (lambda: theory.divergence_bound(0.0, 1.0, 1.0, 9), "mass must be"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_C_where_it_begins() -> None:
    """From (0, 0) with C ≥ 0: x_0 = KL λ/(4sR) ≤ (nm/e + s)/(2s)."""
    for p in problems(9):
        p = replace(p, C=p.C - p.C.min((1, 2), keepdims=True), u=p.u - p.C.min((1, 2))[:, None])
        zero = 0 * p.u, 0 * p.v
        first = p.divergence(*zero) * p.reg[:, 0] / (4 * p.mass * p.distance(*zero))
        assert (first <= (p.C[0].size / math.e + p.mass) / (2 * p.mass)).all()
