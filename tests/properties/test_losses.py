"""Divergences between measures, and transport whose marginals are only asked for.

**Tolerances.** A loss is a sum of three Σ α φ(f), φ' ≤ (1 + ε/2ρ) exp(−f/ρ) (1 if balanced), with costs from 0 up to c and
potentials from −c up to c. Each f is off by tol·(c + ε) at most: marginals that miss by tol, times the range of potentials
(docs/theorems.md, B.1), or, with reach, tol·ε. With ρ ≥ c that is 3·2·(1 + ε/2ρ)·e·tol·(c + ε) in all: `room`.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import otformer as of
from helpers.certificates import EPS, apart, entropic
from helpers.strategies import Case, cases, orders

TOL = 1e-8
reaches = st.sampled_from((None, 1.0, 30.0))  # of ρ, in units of the greatest cost


class Loss:
    """SamplesLoss for a case: blur from λ, reach in units of the greatest cost."""

    def __init__(self, c: Case, p: int, reach: float | None, **options: str) -> None:
        points = np.concatenate([c.x, c.y])
        eps = c.reg / 2 if p == 2 else c.reg**0.5
        most = np.square(points[:, None] - points).sum(2).max() ** (p / 2) / p or eps
        self.rho = None if reach is None else reach * most
        lengths = eps ** (1 / p), None if self.rho is None else self.rho ** (1 / p)
        self.loss = of.SamplesLoss("sinkhorn", p=p, blur=lengths[0], reach=lengths[1], tol=TOL, **options)
        self.room = 6 * math.e * (1 + (0 if self.rho is None else eps / self.rho)) * TOL * (most + eps)

    def __call__(self, x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return float(self.loss(*(torch.from_numpy(t) for t in (a, x, b, y))))


@pytest.mark.parametrize("p", [1, 2])
@given(c=cases(steepest=30.0), reach=reaches, data=st.data())
def test_the_divergence_is_symmetric_and_positive_and_0_between_equal_measures(p, c, reach, data):
    loss = Loss(c, p, reach)
    S = loss(*c[:4])
    assert -loss.room <= S
    assert abs(loss(c.y, c.x, c.b, c.a) - S) <= 2 * loss.room
    order = data.draw(orders(len(c.x)))[0]
    assert abs(loss(c.x, c.x[order], c.a, c.a[order])) <= loss.room
    i = data.draw(st.integers(0, len(c.x) - 1))  # one point given twice, its weight shared: the same measure
    a = np.append(c.a, c.a[i] / 4)
    a[i] -= a[-1]
    assert abs(loss(c.x, np.append(c.x, c.x[i : i + 1], 0), c.a, a)) <= loss.room


@given(cases(steepest=30.0), st.sampled_from((1, 2)), reaches, st.integers(-50, 50), st.data())
def test_the_divergence_knows_neither_place_nor_order_nor_backend(c, p, reach, shift, data):
    loss, online = Loss(c, p, reach), Loss(c, p, reach, backend="online")
    S = loss(*c[:4])
    t = shift * max(np.abs(c.x).max(), np.abs(c.y).max())
    rows, columns = data.draw(orders(len(c.x), len(c.y)))
    off = 64 * EPS * (abs(t) + np.abs(c.x).max() + np.abs(c.y).max()) ** p  # costs from points moved to the middle
    assert abs(loss(c.x + t, c.y + t, c.a, c.b) - S) <= 2 * loss.room
    assert abs(loss(c.x[rows], c.y[columns], c.a[rows], c.b[columns]) - S) <= 2 * loss.room
    assert abs(online(*c[:4]) - S) <= 2 * loss.room + off


@given(cases(steepest=30.0))
def test_our_own_divergence_is_twice_the_loss_and_that_of_three_solves(c):
    """W(x, y) − ½ W(x, x) − ½ W(y, y), the entropies of the weights cancelling."""
    loss = Loss(c, 2, None)
    D = of.divergence(*c[:4], reg=c.reg, tol=TOL)
    assert abs(D - 2 * loss(*c[:4])) <= 4 * loss.room
    sides = (c.x, c.y, c.a, c.b), (c.x, c.x, c.a, c.a), (c.y, c.y, c.b, c.b)
    W = [of.solve_sample(*four, reg=c.reg, tol=TOL) for four in sides]
    sizes = [np.abs(t[np.isfinite(t)]).max() for r in W for t in r.potentials]
    assert abs(D - (W[0].value - W[1].value / 2 - W[2].value / 2)) <= 4 * loss.room + 2 * TOL * max(sizes)


def reachable(c: Case, rho: float) -> float:
    """A ``tol`` above rounding: ``error`` is a residual times 1 + ρ/λ, of potentials as large as costs and ρ, over λ."""
    return 1e-10 + 64 * EPS * (1 + rho / c.reg) * (1 + (rho + float(c.C.max())) / c.reg)


strengths = st.sampled_from((0.1, 1.0, 10.0))  # ρ in units of the greatest cost


@given(cases(steepest=30.0), strengths, st.data())
def test_unbalanced_plans_in_another_order_or_exchanged(c, strength, data):
    """Every entry is within a factor exp(2·error) of the exact one: two of them within exp(2·(error + error')).

    The exponent has potentials of the size of the costs, divided by λ, and is rounded.
    """
    rho = strength * (c.C.max() or c.reg)
    rows, columns = data.draw(orders(len(c.x), len(c.y)))
    tol = reachable(c, 2 * rho)
    options = {"reg": c.reg, "reg_m": (rho, 2 * rho), "tol": tol}
    one = of.solve_unbalanced(c.C, c.a, c.b, **options)
    two = of.solve_unbalanced(c.C[np.ix_(rows, columns)], c.a[rows], c.b[columns], **options)
    three = of.solve_unbalanced(c.C.T, c.b, c.a, reg=c.reg, reg_m=(2 * rho, rho), tol=tol)
    size = max(np.abs(t[np.isfinite(t)]).max() for r in (one, two, three) for t in r.potentials)
    room = math.expm1(4 * tol + 32 * EPS * (1 + (size + c.C.max()) / c.reg))
    np.testing.assert_allclose(two.plan, one.plan[np.ix_(rows, columns)], rtol=room, atol=1e-300)
    np.testing.assert_allclose(three.plan.T, one.plan, rtol=room, atol=1e-300)


@given(cases(steepest=30.0), strengths, st.sampled_from((0.5, 1.0, 3.0)))
def test_an_unbalanced_value_is_what_its_mass_says(c, strength, more):
    """At the minimum J of a plan P of mass s, no multiple of P is better. The derivative of J(tP) at t = 1 is 0:

        Σ P C + λ Σ P log(P/R) + ρ Σ S log(S/a) + ρ Σ S' log(S'/b) = 0,   so   J = λ(ΣR − s) + ρ(Σa − s) + ρ(Σb − s).

    Entries within a factor exp(2·tol) of the best ones: s within 2·tol·s, J above the least by less than that times
    its slopes, which are as large as costs and ρ.
    """
    rho, most = strength * (c.C.max() or c.reg), float(c.C.max())
    b = more * c.b
    tol = reachable(c, rho)
    r = of.solve_unbalanced(c.C, c.a, b, reg=c.reg, reg_m=rho, tol=tol)
    s, total = float(r.plan.sum()), c.a.sum() + b.sum()
    expected = c.reg * (c.a.sum() * b.sum() - s) + rho * (total - 2 * s)
    room = (4 * tol + 64 * EPS * (1 + most / c.reg)) * (c.reg + rho + most) * (1 + s + total)
    assert abs(float(r.value) - expected) <= room
    nothing = c.reg * c.a.sum() * b.sum() + rho * total
    assert float(r.value) <= nothing + room  # the plan 0 costs that


@given(cases(steepest=30.0))
def test_an_unbalanced_plan_becomes_balanced_as_its_strength_grows(c):
    """J_ρ ≤ V, the balanced optimum, and J_ρ ≥ ρ (KL(S‖a) + KL(S'‖b)): both divergences are V/ρ or less, together.

    By docs/theorems.md, B.3, ‖S − a‖₁² ≤ (⅔ ΣS + 4/3 Σa) KL(S‖a). And P = exp((u + v − C)/λ − 1) with u = f + λ(log a + 1),
    v = g + λ log b, which bounds its distance from the balanced plan. Entries are within a factor
    exp(2·tol).
    """
    kept = np.ix_(c.a > 0, c.b > 0)
    C, a, b = c.C[kept], c.a[c.a > 0], c.b[c.b > 0]
    balanced = of.solve(C, a, b, reg=c.reg, tol=1e-10)
    P, entropy = balanced.plan, float(a @ np.log(a) + b @ np.log(b))
    V = float(balanced.value) - c.reg * entropy + 1e-9 * (C.max() + c.reg)  # with KL(P | ab) for Σ P log P
    for rho in (10 * V, 1000 * V):
        tol = reachable(c, rho)
        r = of.solve_unbalanced(C, a, b, reg=c.reg, reg_m=rho, tol=tol)
        s = float(r.plan.sum())
        error = abs(r.plan.sum(1) - a).sum() + abs(r.plan.sum(0) - b).sum()
        assert error <= 2 * math.sqrt((2 / 3 * s + 4 / 3) * V / rho) + 4 * tol * s
        f, g = r.potentials
        near = entropic(C, a, b, c.reg, r.plan, f + c.reg * (np.log(a) + 1), g + c.reg * np.log(b))
        found = entropic(C, a, b, c.reg, P, *balanced.potentials)
        assert abs(near.P - P).sum() <= apart(near, found, c.reg)


@given(cases(zeros=False, steepest=30.0), st.sampled_from((0.1, 0.5, 1.0)))
def test_a_partial_plan_keeps_within_its_marginals_and_has_its_mass(c, share):
    """Rows never exceed a, the mass is exact, columns exceed b by tol at most."""
    r = of.solve_partial(c.C, c.a, c.b, reg=c.reg, mass=share, tol=1e-8)
    rounding = 64 * EPS * (1 + c.C.max() / c.reg)
    assert abs(float(r.plan.sum()) - share) <= rounding + 1e-8
    assert (r.plan.sum(1) - c.a).max() <= rounding
    assert (r.plan.sum(0) - c.b).max() <= rounding + 1e-8
    assert (r.plan >= 0).all()
