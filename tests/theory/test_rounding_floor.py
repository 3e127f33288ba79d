"""Theorem P of docs/theorems.md: the floor that errors of layers leave, and that it does not depend on depth."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from helpers.contraction import Record, apart, rounding, shares, steepest, two_by_two
from helpers.extreme import Pair, problems
from otformer import AligningTransformer, theory
from otformer.network.schedule import Gradient
from otformer.theory import hilbert
from otformer.transport import reference


@pytest.mark.parametrize("kind", ["aligned", "random"])
def test_P_errors_per_layer(kind: str, record_property: Record) -> None:
    """μ⁺ ≤ (1 − c) μ + 2r/λ for layers wrong by r; aligned: the error pushes apart what is apart."""
    count, nearest = 0, 0.0
    for p in problems(6):
        u, v = p.start(most=4.0)
        size = 10 ** p.random.uniform(-3, 0.5, p.reg.shape)
        count += len(u)
        for _ in range(12):
            m, tau = apart(p, u, v), steepest(*p.excess(u, v))
            u, v = p.layer(u, v, 1.0, 1.0)
            for t, solution in ((u, p.u), (v, p.v)):
                d = t - solution
                middle = (d.max(1, keepdims=True) + d.min(1, keepdims=True)) / 2
                t += size * p.reg * (np.sign(d - middle) if kind == "aligned" else p.random.uniform(-1, 1, d.shape))
            bound = (1 - shares(p, tau, np.ones(len(u)))) * m + 2 * size[:, 0]
            assert (apart(p, u, v) <= bound + rounding(p, u, v)).all()
            nearest = max(nearest, float((apart(p, u, v) / bound).max()))
    record_property("problems", count)
    record_property("largest ratio", nearest)


def test_P_the_floor_is_attained(record_property: Record) -> None:
    """2×2, errors ±e that push e and f apart: m tends to 2e/(λc), c for τ → 0, from below and from above."""
    C, _, (x, y) = two_by_two(2.0, 0.0, 0.0)
    error, sign = 1e-6, torch.tensor([1.0, -1.0]).double()
    floor = theory.rounding_floor(1.0, error, theory.contraction(1.0, hilbert.log_phi(C, 1.0), 0.0))
    for start in (0.0, 3 * floor):
        u, v = x + start / 2 * sign, y - start / 2 * sign
        for _ in range(200):
            P = reference.plan(C, u, v, 1.0)
            u, v = u - (0.5 * P.sum(1).log()).tanh() + error * sign, v - (0.5 * P.sum(0).log()).tanh() - error * sign
        m = max(float(hilbert.spread(u - x)), float(hilbert.spread(v - y)))
        assert m == pytest.approx(floor, rel=1e-3)
    record_property("largest ratio", m / floor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_P_the_network_has_a_floor_that_does_not_depend_on_depth(dtype: torch.dtype, record_property: Record) -> None:
    """Points that bfloat16 holds exactly, λ = 1: with e and τ measured layer by layer, m is below 2e/(λc) from layer 100 to
    layer 2,000, and never above the recursion."""
    x, y = torch.randint(0, 9, (2, 8, 2), generator=torch.Generator().manual_seed(1)).double() / 8
    C = torch.cdist(x, y) ** 2
    net, (p, q), phi = AligningTransformer(2, 1.0, 1, Gradient()), reference.sinkhorn(C, 1.0), hilbert.log_phi(C, 1.0)
    Z, at = net(x, y, warn=False).Z(0).to(dtype)[None], [net.registers.column(name) for name in ("u", "v")]

    def read() -> Pair:
        u, v = (Z[0, :-1, column].double() for column in at)
        return u, v

    assert all(torch.equal(t, torch.zeros(8).double()) for t in read())
    kept, allowed, worst, ends, taus = [], math.inf, 0.0, {}, []
    for layer in range(2000):
        u, v = read()
        m = max(float(hilbert.spread(u - p)), float(hilbert.spread(v - q)))
        P = reference.plan(C, u, v, 1.0)
        t, s = (0.5 * P.sum(1).log()).tanh(), (0.5 * P.sum(0).log()).tanh()
        Z = net.block(Z, 0)
        error = max(float((found - exact).abs().max()) for found, exact in zip(read(), (u - t, v - s), strict=True))
        tau = max(float(t.abs().max()), float(s.abs().max()))
        allowed = m if layer == 0 else allowed
        assert m <= allowed * (1 + 1e-9)
        allowed = (1 - theory.contraction(1.0, phi, tau)) * allowed + 2 * error
        kept, worst = [*kept, m], max(worst, error)
        if layer > 50:
            taus.append(tau)
    floor = theory.rounding_floor(1.0, worst, theory.contraction(1.0, phi, max(taus)))
    ends = {k: max(kept[k : k + 20]) for k in (100, 1980)}
    assert 0 < max(ends.values()) <= floor
    assert floor < (1e-4 if dtype == torch.float32 else 0.5)
    assert ends[1980] <= 3 * ends[100]  # a sum of errors would be 20 times as large
    record_property("largest ratio", max(ends.values()) / floor)


def test_bad_input() -> None:
    for call, message in (
        (lambda: theory.rounding_floor(1.0, -1.0, 0.5), "error must be"),
        (lambda: theory.rounding_floor(0.0, 1.0, 0.5), "reg must be"),
        (lambda: theory.rounding_floor(1.0, 1.0, 1.5), "contraction must be at most 1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert theory.rounding_floor(1.0, 1.0, 0.0) == math.inf  # τ = 1 or η = 1: nothing is proved
    assert theory.rounding_floor(1.0, 0.0, 0.0) == 0
