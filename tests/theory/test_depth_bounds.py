"""Theorems A, B and C of docs/theorems.md, and sections 4 and 9 of docs/theory.md: 1,200 problems each that try to break
them, and, where a bound is attained, an example that does so within a few per cent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.extreme import Array, Pair, Problems, Tally, given, leaking, osc, problems
from otformer import theory
from otformer.theory import hilbert
from otformer.transport import reference

TINY = 1e-12  # rounding, relative to the terms that were added
Record = Callable[[str, object], None]  # pytest's record_property: what is recorded is shown by docs/theorem-tests.md


def tensors(p: Problems, k: int) -> tuple[torch.Tensor, float, torch.Tensor, torch.Tensor]:
    """C, λ, a and b of one problem."""
    return torch.tensor(p.C[k]), float(p.reg[k, 0]), torch.tensor(p.a[k]), torch.tensor(p.b[k])


def test_A_potentials_from_marginals(record_property: Record) -> None:
    """osc((u − u*)/λ) ≤ (osc z + η osc z')/(1 − η²), and the same with rows and columns exchanged."""
    tally = Tally()
    for p in problems(0):
        u, v = p.start()
        tally.problems += len(u)
        (z, other), log_phi = map(osc, p.excess(u, v)), p.log_phi()
        rounding = TINY * (1 + np.abs(p.C / p.reg[..., None]).max((1, 2)))
        for k, (e, f) in enumerate(zip(osc((u - p.u) / p.reg), osc((v - p.v) / p.reg), strict=True)):
            slack = rounding[k] * hilbert.inverse_gap(log_phi[k])
            tally.holds(e, theory.hilbert_from_marginals(z[k], other[k], log_phi[k]), slack)
            tally.holds(f, theory.hilbert_from_marginals(other[k], z[k], log_phi[k]), slack)
    tally.record(record_property)


@pytest.mark.parametrize("gap", [0.1, 1.0, 8.0])
def test_A_is_attained(gap: float, record_property: Record) -> None:
    """2×2, P* = [[p, 1−p], [1−p, p]], small e = −s(1, −1), f = s(1, −1): equality, to first order."""
    C, s = torch.tensor([[0.0, gap], [gap, 0.0]], dtype=torch.float64), 1e-6
    u, v = reference.sinkhorn(C, 1.0)
    sign = torch.tensor([1.0, -1.0]).double()
    P = reference.plan(C, u - s * sign, v + s * sign, 1.0)
    rows, columns = (float(hilbert.spread(P.sum(axis).log())) for axis in (1, 0))
    bound = theory.hilbert_from_marginals(rows, columns, hilbert.log_phi(C, 1.0))
    assert 2 * s == pytest.approx(bound, rel=1e-4)
    record_property("largest ratio", 2 * s / bound)


def test_section_4_how_far_the_solution_is(record_property: Record) -> None:
    """R bounds the nearest solution from (0, 0) for costs of any sign; it is attained at n = 1, and for C = 0 and n ≥ e²."""
    tally = Tally()
    for p in problems(1):
        bound = np.array([theory.start_distance(*tensors(p, k)) for k in range(len(p.u))])
        tally.holds(p.distance(0 * p.u, 0 * p.v), bound, TINY * bound)
        tally.problems += len(p.u)
    tally.record(record_property)
    for n, cost, reg in ((1, 3.0, 0.5), (8, 0.0, 2.0), (40, 0.0, 0.1)):
        C = torch.full((n, n), cost, dtype=torch.float64)
        u, v = reference.sinkhorn(C, reg)
        nearest = float(hilbert.spread(torch.cat([u, -v]))) / 2
        assert nearest == pytest.approx(theory.start_distance(C, reg), rel=1e-9)
        assert nearest == pytest.approx(cost / 2 + reg / 2 * max(1, math.log(n) - 1), rel=1e-9)


@pytest.mark.parametrize("step", [0.4, 1.0, 1.9])
def test_A_and_B_and_the_residual_bound_at_every_layer(step: float, record_property: Record) -> None:
    """Both heads, γ = step·λ: |tanh(z/2)| ≤ τ_ℓ, μ ≤ 4 artanh(τ_ℓ)/(1−η), KL ≤ (R/λ) 4sτ_ℓ/(1−τ_ℓ), at layer ℓ itself."""
    residual, mu, KL, informative = Tally(), Tally(), Tally(), 0
    for p in problems(2, each=130):
        point = p.start(most=3.0)
        R = p.distance(*point)
        for depth in range(1, 41):
            point = p.layer(*point, step, step)
            informative += compare(p, point, R, step, depth, residual, mu, KL)
        residual.problems += len(R)
    assert informative > 1000
    residual.record(record_property, "the residual")
    record_property("largest ratio of μ", mu.largest)
    record_property("largest ratio of KL", KL.largest)


def compare(p: Problems, point: Pair, R: Array, step: float, depth: int, residual: Tally, mu: Tally, KL: Tally) -> int:
    """The residual bound, A.2 and B.2 at a point after ``depth`` layers; how many of the bounds on τ are below 1."""
    tau = R * theory.residual_bound(1.0, 1.0, depth, step) / p.reg[:, 0]
    found = np.maximum(*(np.abs(np.tanh(z / 2)).max(1) for z in p.excess(*point)))
    residual.holds(found, tau, TINY * (1 + np.abs(p.C / p.reg[..., None]).max((1, 2))))
    below = tau < 1
    gap = np.array([hilbert.inverse_gap(x) for x in p.log_phi()])
    spread = np.maximum(osc((point[0] - p.u) / p.reg), osc((point[1] - p.v) / p.reg))
    most = 4 * np.arctanh(tau.clip(max=0.999999)) * gap
    mu.holds(spread[below], most[below], 1e-9 * most[below])
    most = R / p.reg[:, 0] * 4 * p.mass * tau / np.where(below, 1 - tau, 1)
    KL.holds(p.divergence(*point)[below], most[below], TINY * p.mass[below])
    return int(below.sum())


@pytest.mark.parametrize(
    ("bound", "log_plan", "e", "f", "step", "depth", "ratio"),
    [
        # a row without mass falls towards v, which stays: the best of a search over plans and starts of up to 3 + 3 points
        ("residual", [[-40.0], [0.0]], [2.152, -0.202], [0.202], 0.04, 40, 0.72),
        # the slow mode of A.1's example with σ → 0: nearly ½√(πx)e^{−x} at x = gℓ = ½
        ("A.2", [[0.0, 0.0], [0.0, 0.0]], [1e-4, -1e-4], [-1e-4, 1e-4], 0.04, 25, 0.37),
        ("B.2", [[0.0]], [0.005], [0.005], 0.01, 25, 0.18),
    ],
)
def test_section_4_A_and_B_how_near(
    bound: str, log_plan: list, e: list, f: list, step: float, depth: int, ratio: float, record_property: Record
) -> None:
    """The largest ratios to the residual bound, A.2 and B.2 that a search has found."""
    p, point = given(log_plan, e, f)
    R = p.distance(*point)
    for _ in range(depth):
        point = p.layer(*point, step, step)
    residual, mu, KL = Tally(), Tally(), Tally()
    assert compare(p, point, R, step, depth, residual, mu, KL)
    largest = {"residual": residual, "A.2": mu, "B.2": KL}[bound].largest
    assert largest > ratio
    record_property("largest ratio", largest)


def test_A_and_B_as_functions_are_those_formulas() -> None:
    """γ = λ/2, R = 0.3, λ = 0.2, ℓ = 500, φ = 16: g = ¼, η = 3/5."""
    tau = 0.3 / (0.2 * math.sqrt(math.pi * 500 * 3 / 16))
    assert theory.hilbert_bound(0.2, 0.3, 500, math.log(16), 0.1) == pytest.approx(10 * math.atanh(tau))
    assert theory.divergence_bound(7.0, 0.2, 0.3, 500, 0.1) == pytest.approx(42 * tau / (1 - tau))
    assert theory.hilbert_bound(0.2, 3.0, 5, 1.0) == theory.divergence_bound(1.0, 0.2, 3.0, 5) == math.inf
    assert theory.hilbert_bound(1.0, 1.0, 500, 1e6) == theory.hilbert_from_marginals(1.0, 0.0, 1e6) == math.inf
    assert theory.hilbert_from_marginals(0.0, 0.0, 1e6) == 0


def test_B_the_divergence_is_the_duals_excess_and_the_gradient_bounds_it(record_property: Record) -> None:
    """L − L* = λ KL(P*‖M) ≥ 0, ≤ dist ‖∇L‖₁, and ‖M − P*‖₁² ≤ (⅔s + 4/3 ΣM) KL. Section 2: KL is 0 at P* alone."""
    excess, pinsker = Tally(), Tally()
    for p in problems(3):
        u, v = p.start()
        excess.problems += len(u)
        KL, reg, mass = p.divergence(u, v), p.reg[:, 0], np.exp(p.log_matrix(u, v)).sum((1, 2))
        size = reg * (mass + p.mass) + (p.a * (abs(u) + abs(p.u))).sum(1) + (p.b * (abs(v) + abs(p.v))).sum(1)
        assert (np.abs(p.dual(u, v) - p.dual(p.u, p.v) - reg * KL) <= 1e-12 * size).all()
        assert (KL > 0).all()
        excess.holds(reg * KL, p.distance(u, v) * p.gradient(u, v))
        apart = np.abs(np.exp(p.log_matrix(u, v)) - np.exp(p.log_plan)).sum((1, 2))
        most = (2 * p.mass / 3 + 4 * mass / 3) * KL
        pinsker.holds(apart**2, most, 1e-6 * most + (TINY * (mass + p.mass)) ** 2)
    excess.record(record_property, "B.1")
    record_property("largest ratio of B.3", pinsker.largest)


def test_B_is_attained(record_property: Record) -> None:
    """n = m = 1 and M → 0: L is linear there, so that L − L* is nearly dist ‖∇L‖₁."""
    C, reg = torch.tensor([[0.7]]).double(), 0.1
    (u,), (v,) = reference.sinkhorn(C, reg)
    far = 40 * reg
    fall = reference.dual(C, u[None] - far, v[None] - far, reg) - reference.dual(C, u[None], v[None], reg)
    assert 0.98 < float(fall) / (far * 2) < 1  # ‖∇L‖₁ → 2
    record_property("largest ratio", float(fall) / (far * 2))


def falls(fall: Tally, simple: Tally, p: Problems, start: Pair, omega: float, layers: int, turns: str = "") -> float:
    """Theorem C (i), (ii) and (iii) along so many layers (pairs, for alternating heads), on the layers themselves; the
    largest ratio to (ii)."""
    c, masses = theory.descent_constant(omega), 5 if turns else 4
    R, s, reg = p.distance(*start), p.mass, p.reg[:, 0]
    point, first = start, p.divergence(*start)
    KL, q = first, reg * c / (2 * R)
    begins = np.log(np.maximum(first * reg / (masses * s * R), 1)) / q  # k_0
    for k in range(1, layers + 1):
        for head in turns or "b":
            point = p.layer(*point, *{"b": (omega, omega), "r": (2 * omega, 0.0), "c": (0.0, 2 * omega)}[head])
        after, delta = p.divergence(*point), reg * KL
        fall.holds(0.5 * c * delta**2 / (R * (masses * s * R + delta)), KL - after, TINY * s)
        late = k > begins
        whole = 4 * masses * s * (R / reg) ** 2 / (c * np.where(late, k - begins, 1))
        simple.holds(after[late], whole[late])
        KL = after
    bound = [theory.divergence_after(layers, *each, omega, bool(turns)) for each in zip(s, reg, R, first, strict=True)]
    assert (bound >= KL).all()
    x, y = masses * s * R / reg / first, masses * s * R / reg / KL.clip(1e-290)  # 1/x_0, 1/x_k of (ii)
    return float((q * layers / (y + np.log(y) - x - np.log(x))).max())


@pytest.mark.parametrize("omega", [0.3, 1.0, 1.5, 1.8, theory.depth_bounds.LARGEST_OMEGA])
def test_C_both_heads(omega: float, record_property: Record) -> None:
    """γ = λω: L falls in every layer, by ½λc δ²/(R(4sR + δ)) at least, and KL stays below (ii) and (iii)."""
    fall, simple = Tally(), Tally()
    for p in problems(4):
        falls(fall, simple, p, p.start(), omega, 30)
        fall.problems += len(p.u)
    fall.record(record_property)
    record_property("largest ratio of (iii)", simple.largest)


@pytest.mark.parametrize(
    ("omega", "turns", "ratio"), [(0.01, "", 0.97), (1.0, "", 0.42), (0.01, "rc", 0.38), (1.0, "rc", 0.13)]
)
def test_C_the_fall_of_the_worst_case(omega: float, turns: str, ratio: float, record_property: Record) -> None:
    """Both heads attain (i) as ω → 0 and R → ∞. Alternating heads reach 0.4 of theirs, 0.2 at ω = 1 (one point of mass)."""
    fall = Tally()
    grown = falls(fall, Tally(), *leaking(), omega, 3, turns)
    assert fall.largest > ratio
    record_property("largest ratio", fall.largest)
    record_property("largest ratio of (ii)", grown)


@pytest.mark.parametrize("turns", ["rc", "cr"])
@pytest.mark.parametrize("omega", [0.3, 1.0])
def test_C_heads_in_turn(omega: float, turns: str, record_property: Record) -> None:
    """γ = 2λω, ω ≤ 1: a pair of layers lowers L by ½λc δ²/(R(5sR + δ)) at least, whichever head begins."""
    fall, simple = Tally(), Tally()
    for p in problems(5):
        falls(fall, simple, p, p.start(), omega, 12, turns)
        fall.problems += len(p.u)
    fall.record(record_property)
    record_property("largest ratio of (iii)", simple.largest)


@pytest.mark.parametrize("omega", [1.0, 1.28])
def test_C_the_gradient_of_the_best_layer_falls_as_one_over_k(omega: float, record_property: Record) -> None:
    """Some layer j from ⌊k/2⌋ to k − 1 has E²/(4s + E) ≤ 4δ/(λ c k), E = ‖∇L_j‖₁, δ = L − L* at layer ⌊k/2⌋. For one point
    of mass near the solution, k = 2 and ω = 1.28 it is 0.92 of that: the second layer loses nearly all that is left."""
    c, tally = theory.descent_constant(omega), Tally()

    def best(p: Problems, point: Pair, k: int) -> None:
        errors, excess = [], []
        for _ in range(k):
            errors.append(p.gradient(*point))
            excess.append(p.divergence(*point))
            point = p.layer(*point, omega, omega)
        N = np.min(errors[k // 2 :], axis=0)
        tally.holds(N**2 / (4 * p.mass + N), 4 * excess[k // 2] / (c * k), TINY * p.mass)

    for p in problems(6):
        start = p.start()
        for k in (2, 5, 40):
            best(p, start, k)
        tally.problems += len(p.u)
    best(*given([[0.0]], [-1e-3], [-1e-3]), 2)
    assert tally.largest > 0.8
    tally.record(record_property)


def test_C_the_constants_are_the_best_ones(record_property: Record) -> None:
    """c_ω is attained by −h(z)/((e^z − 1)²/(e^z + 1)) over z, and E² ≤ Δ(4s + E) by M = 2 P*."""
    z = np.linspace(-30, 30, 2_000_001)
    z = z[np.abs(z) > 1e-3]
    for omega in (0.2, 0.5, 0.9, 1.0, 1.3, 1.5, 1.7, 1.8, 1.88):
        t = np.tanh(z / 2)
        quotient = -(np.exp(z) * np.expm1(-2 * omega * t) + 2 * omega * t) / (np.expm1(z) ** 2 / (np.exp(z) + 1))
        assert quotient.min() == pytest.approx(theory.descent_constant(omega), rel=1e-5)
    record_property("largest ratio", float(theory.descent_constant(omega) / quotient.min()))
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


@pytest.mark.parametrize("both", [False, True])
def test_section_9_arrival(both: bool, record_property: Record) -> None:
    """Row sums ≥ (1 − error) a_i need the layers of `arrival_depth`; one pair needs no more than 2 % and a layer more."""
    tally = Tally()
    for p in problems(8):
        for_each = [tensors(p, k) for k in range(len(p.u))]
        needed = np.array([theory.arrival_depth(C, reg, 1.7 * reg, a, 0.3, both) for C, reg, a, _ in for_each])
        u, v = 0 * p.u, 0 * p.v
        for depth in range(1, 61):
            u, v = p.layer(u, v, 1.7 * (both or depth % 2), 1.7 * (both or 1 - depth % 2))
            arrived = (p.excess(u, v)[0] >= math.log(0.7)).all(1)
            tally.holds(needed[arrived], float(depth))
        tally.problems += len(p.u)
    C, u, v, reg = torch.full((1, 1), 4.0).double(), 0.0, 0.0, 0.02
    least, layers = theory.arrival_depth(C, reg, 2 * reg, both=both), 0
    while math.exp((u + v - 4) / reg - 1) < 0.5:
        S = math.exp((u + v - 4) / reg - 1)
        move = 2 * reg * (S - 1) / (S + 1)
        u, v = u - move * (both or layers % 2), v - move * (both or 1 - layers % 2)
        layers += 1
    assert least <= layers <= 1.02 * least + 1
    tally.holds(least, layers)
    tally.record(record_property)


def test_C_where_it_begins(record_property: Record) -> None:
    """From (0, 0) with C ≥ 0: x_0 = KL λ/(4sR) ≤ (nm/e + s)/(2s)."""
    tally = Tally()
    for p in problems(9):
        tally.problems += len(p.u)
        p = replace(p, C=p.C - p.C.min((1, 2), keepdims=True), u=p.u - p.C.min((1, 2))[:, None])
        zero = 0 * p.u, 0 * p.v
        first = p.divergence(*zero) * p.reg[:, 0] / (4 * p.mass * p.distance(*zero))
        tally.holds(first, (p.C[0].size / math.e + p.mass) / (2 * p.mass))
    tally.record(record_property)
