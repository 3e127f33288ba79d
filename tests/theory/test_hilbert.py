"""The Hilbert metric, φ and η against brute force, Birkhoff's contraction, and propositions S and d on random matrices."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from otformer.theory import hilbert


def positive(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).exp()


def nearly_doubly_stochastic(seed: int, epsilon: float, n: int = 5) -> Tensor:
    """A positive matrix whose gap is ``epsilon`` exactly: a doubly stochastic one, with rows and columns rescaled."""
    A = positive(seed, n, n)
    for _ in range(100):
        A = A / A.sum(0)
        A = A / A.sum(1, keepdim=True)
    E = A * torch.randn(n, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1)).sign()
    E = E + A * torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 2)).sign()
    gap = max(float(E.sum(0).abs().max()), float(E.sum(1).abs().max()))
    return A + E * (epsilon / gap)


def test_metric_against_its_definition() -> None:
    for seed in range(10):
        p, q, r = positive(seed, 3, 6)
        brute = max(math.log(p[i] * q[j] / (p[j] * q[i])) for i, j in itertools.product(range(6), repeat=2))
        assert float(hilbert.hilbert_metric(p, q)) == pytest.approx(brute, rel=1e-12)
        assert float(hilbert.hilbert_metric(p, 7 * p)) == pytest.approx(0, abs=1e-14)
        assert hilbert.hilbert_metric(p, r) <= hilbert.hilbert_metric(p, q) + hilbert.hilbert_metric(q, r) + 1e-14


def test_phi_against_its_definition() -> None:
    for seed, (n, m) in enumerate([(2, 2), (3, 5), (5, 4), (1, 3)]):
        C, reg = positive(seed, n, m), 0.7
        Q = torch.exp(-C / reg - 1)
        brute = max(
            float(Q[i, k] * Q[j, l] / (Q[j, k] * Q[i, l]))
            for i, j in itertools.product(range(n), repeat=2)
            for k, l in itertools.product(range(m), repeat=2)
        )
        assert hilbert.phi(C, reg) == pytest.approx(brute, rel=1e-12)
        value = hilbert.log_phi(C, reg)
        assert hilbert.eta(value) == pytest.approx((math.sqrt(brute) - 1) / (math.sqrt(brute) + 1), rel=1e-9, abs=1e-12)
        assert hilbert.inverse_gap(value) == pytest.approx(1 / (1 - hilbert.eta(value)), rel=1e-6)


def test_phi_does_not_overflow() -> None:
    C = torch.tensor([[0.0, 1e6], [1e6, 0.0]], dtype=torch.float64)
    assert hilbert.log_phi(C, 1e-6) == 2e12
    assert hilbert.phi(C, 1e-6) == math.inf
    assert hilbert.inverse_gap(2e12) == math.inf
    assert hilbert.eta(2e12) == 1


def test_a_half_step_contracts_by_eta() -> None:
    """Birkhoff: μ(1/(Q q), 1/(Q q')) ≤ η μ(q, q')."""
    for seed in range(50):
        C, (q, other) = positive(seed, 4, 6), positive(100 + seed, 2, 6)
        Q, factor = torch.exp(-C / 0.5 - 1), hilbert.eta(hilbert.log_phi(C, 0.5))
        after = hilbert.hilbert_metric(1 / (Q @ q), 1 / (Q @ other))
        assert after <= factor * hilbert.hilbert_metric(q, other) * (1 + 1e-12)


def normalise_columns(A: torch.Tensor) -> torch.Tensor:
    """The paper's f."""
    return A / A.sum(0)


def normalise_rows(A: torch.Tensor) -> torch.Tensor:
    """The paper's g."""
    return A / A.sum(1, keepdim=True)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.3, 0.333])
def test_proposition_S(epsilon: float) -> None:
    for seed in range(40):
        A = nearly_doubly_stochastic(seed, epsilon)
        assert bool((A > 0).all())
        assert float(hilbert.doubly_stochastic_gap(A)) == pytest.approx(epsilon)
        for normalised in (normalise_columns(A), normalise_rows(A)):
            assert hilbert.doubly_stochastic_gap(normalised) <= 3 * epsilon


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.249])
def test_proposition_d(epsilon: float) -> None:
    """f only rescales q by 1/column sums, g only w by 1/row sums: their distance is that of the sums from a constant."""
    for seed in range(40):
        A = nearly_doubly_stochastic(seed, epsilon)
        assert bool((A > 0).all())
        w, q = positive(seed + 8, 2, 5)
        Q = A / (w[:, None] * q)  # A = diag(w) Q diag(q)
        new_q = (normalise_columns(A) / (w[:, None] * Q))[0]
        new_w = (normalise_rows(A) / (Q * q))[:, 0]
        assert hilbert.hilbert_metric(q, new_q) <= 4 * epsilon
        assert hilbert.hilbert_metric(w, new_w) <= 4 * epsilon


def test_propositions_fail_where_the_constant_is_too_small() -> None:
    """They are not vacuous: S with 2ε and d with 1.9ε are violated by some matrix."""
    A = torch.tensor([[0.6, 0.5], [0.5, 0.4]], dtype=torch.float64)
    assert hilbert.doubly_stochastic_gap(A) == pytest.approx(0.1)
    assert hilbert.hilbert_metric(A.sum(0), torch.ones(2, dtype=torch.float64)) > 1.9 * 0.1
    others = torch.tensor([0.35, 0.35, 1.075, 1.075], dtype=torch.float64) / 3
    A = torch.stack([torch.tensor([0.55, 0.55, 0.0, 0.0], dtype=torch.float64), others, others, others])
    assert hilbert.doubly_stochastic_gap(A) == pytest.approx(0.1)
    assert hilbert.doubly_stochastic_gap(normalise_columns(A)) > 2 * 0.1
