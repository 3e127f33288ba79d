"""Predicted linear rates (singular values of the reference plan) against rates measured on the network's own layers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from otformer import AligningTransformer
from otformer.network.schedule import Gradient, Relaxed, Schedule, best_omega
from otformer.theory import rates
from otformer.transport import reference

PROBLEMS, N, DIM, REG = 20, 8, 2, 0.1


@pytest.fixture(scope="module")
def problems() -> tuple[Tensor, Tensor, Tensor, list[float]]:
    """20 random problems [B, n, d], their plans by plain Sinkhorn [B, n, n], and σ by numpy's SVD."""
    generator = torch.Generator().manual_seed(2)
    x, y = torch.rand(2, PROBLEMS, N, DIM, dtype=torch.float64, generator=generator)
    plans = []
    for cost in torch.cdist(x, y) ** 2:
        plans.append(reference.plan(cost, *reference.sinkhorn(cost, REG), REG))
    sigmas = [float(np.linalg.svd(P.numpy(), compute_uv=False)[1]) for P in plans]
    return x, y, torch.stack(plans), sigmas


def errors(problems: tuple, schedule: Schedule, depth: int, every: int, which: slice = slice(None)) -> Tensor:
    """max |P_ℓ − P*| after every ``every``-th layer, [steps, B]."""
    x, y, plans, _ = problems
    trace = AligningTransformer(DIM, REG, depth, schedule)(x[which], y[which])
    return torch.stack([(trace.plan(k) - plans[which]).abs().amax((1, 2)) for k in range(0, depth + 1, every)])


def agree(measured: float, predicted: float) -> bool:
    """Within 2 % of the rate, and within 10 % of the layers that it costs."""
    return abs(measured - predicted) < 0.02 * predicted and abs(math.log(measured) / math.log(predicted) - 1) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.5, 1.0, 1.6])
def test_gradient_rate(problems: tuple, step: float) -> None:
    found = errors(problems, Gradient(step * REG), round(700 / step), every=1)
    for sigma, e in zip(problems[3], found.T, strict=True):
        assert agree(rates.measured_rate(e), rates.gradient_rate(step, sigma))


def test_alternating_rate(problems: tuple) -> None:
    found = errors(problems, Relaxed(1.0), 700, every=2)
    for sigma, e in zip(problems[3], found.T, strict=True):
        assert agree(rates.measured_rate(e), rates.alternating_rate(sigma))


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.5, 0.8])
def test_relaxed_rate_below_the_best_omega(problems: tuple, fraction: float) -> None:
    """Real, simple eigenvalues: ω = 1 + fraction·(ω* − 1), a different ω for every problem."""
    for k, sigma in enumerate(problems[3]):
        omega = 1 + fraction * (best_omega(sigma) - 1)
        e = errors(problems, Relaxed(omega), 500, every=2, which=slice(k, k + 1))[:, 0]
        assert agree(rates.measured_rate(e), rates.relaxed_rate(omega, sigma))


@pytest.mark.parametrize("omega", [1.6, 1.7, 1.85])
def test_relaxed_rate_above_the_best_omega(problems: tuple, omega: float) -> None:
    """Complex eigenvalues, all of modulus ω − 1. Not at ω* itself: a Jordan block there makes the error fall as k ρ^k."""
    found = errors(problems, Relaxed(omega), round(60 / (2 - omega)) * 2, every=2)
    for sigma, e in zip(problems[3], found.T, strict=True):
        assert omega > best_omega(sigma) + 0.1
        assert rates.relaxed_rate(omega, sigma) == pytest.approx(omega - 1)
        assert agree(rates.measured_rate(e), omega - 1)


def test_rates_are_eigenvalues_of_the_jacobian() -> None:
    """Autograd's Jacobian of a layer at the solution, on a problem with unequal sides and marginals."""
    generator = torch.Generator().manual_seed(5)
    C = torch.rand(5, 4, dtype=torch.float64, generator=generator)
    a = 0.5 + torch.rand(5, dtype=torch.float64, generator=generator)
    b = 0.5 + torch.rand(4, dtype=torch.float64, generator=generator)
    b, reg = b * a.sum() / b.sum(), 0.2
    u, v = reference.sinkhorn(C, reg, a, b)
    sigma = rates.second_singular_value(reference.plan(C, u, v, reg))
    point = torch.cat([u, v])

    def jacobian(*layers: tuple[float, float]) -> Tensor:
        def run(theta: Tensor) -> Tensor:
            u, v = theta[:5], theta[5:]
            for rows, columns in layers:
                P = reference.plan(C, u, v, reg)
                u, v = u - rows * (0.5 * (P.sum(1) / a).log()).tanh(), v - columns * (0.5 * (P.sum(0) / b).log()).tanh()
            return torch.cat([u, v])

        return torch.autograd.functional.jacobian(run, point)

    def radius(J: Tensor) -> float:
        """Spectral radius without the gauge's eigenvalue 1."""
        moduli = torch.linalg.eigvals(J)
        return float(np.delete(moduli.abs().numpy(), int((moduli - 1).abs().argmin())).max())

    for step in (0.3, 1.0, rates.best_gradient_step(sigma), 1.9):
        assert radius(jacobian((step * reg, step * reg))) == pytest.approx(rates.gradient_rate(step, sigma), rel=1e-6)
    for omega in (0.6, 1.0, 1.1, 1.5, 1.9):
        pair = jacobian((2 * reg * omega, 0.0), (0.0, 2 * reg * omega))
        assert radius(pair) == pytest.approx(rates.relaxed_rate(omega, sigma), rel=1e-6)


def test_best_steps_are_best(record_property) -> None:
    for sigma in (*np.linspace(0, 0.99, 999), 0.999):
        steps, omegas = np.linspace(0.01, 2, 41), np.linspace(0.01, 1.999, 41)
        best = rates.gradient_rate(rates.best_gradient_step(sigma), sigma)
        assert best <= min(rates.gradient_rate(s, sigma) for s in steps)
        best = rates.relaxed_rate(best_omega(sigma), sigma)
        assert best <= min(rates.relaxed_rate(w, sigma) for w in omegas) + 1e-6  # rounding under the square root at ω*
        assert best == pytest.approx(best_omega(sigma) - 1, abs=1e-6)
    record_property("problems", 1000)


def test_depth_grows_as_the_root_of_the_condition(record_property) -> None:
    """Layers to fall by ε: at most √κ log 1/ε relaxed, about κ log 1/ε alternating and 2κ log 1/ε with γ = λ."""
    ratios = []
    for sigma in 1 - np.geomspace(1e-6, 0.5, 1000):
        kappa = 1 / (1 - sigma)
        relaxed = 2 / -math.log(rates.relaxed_rate(best_omega(sigma) + 1e-12, sigma))
        alternating = 2 / -math.log(rates.alternating_rate(sigma))
        gradient = 1 / -math.log(rates.gradient_rate(1.0, sigma))
        assert relaxed <= math.sqrt(kappa)
        assert 0.7 * kappa <= alternating <= kappa
        assert 1.7 * kappa <= gradient <= 2 * kappa
        ratios.append((relaxed / math.sqrt(kappa), alternating / kappa, gradient / (2 * kappa)))
    record_property("problems", len(ratios))
    for name, largest in zip(("relaxed", "alternating", "gradient"), np.max(ratios, axis=0), strict=True):
        record_property(f"largest ratio of {name}", float(largest))


def test_both_heads_at_twice_lambda_lose_the_linear_rate(problems: tuple) -> None:
    """γ = 2λ: the row-normalised attention converges, the scale of the plan oscillates and shrinks only as √(3/ℓ)."""
    x, y, plans, _ = problems
    net = AligningTransformer(DIM, REG, 4000, Gradient(2 * REG))
    trace = net(x[:3], y[:3], keep=[3999, 4000], warn=False)
    assert (trace.attention(4000) - plans[:3]).abs().max() < 1e-10
    before, after = (trace.plan(k).sum(2).log().mean(1) for k in (3999, 4000))
    assert (before * after < 0).all()  # the sign changes at every layer
    assert torch.allclose(after.abs(), torch.full_like(after, math.sqrt(3 / 4000)), rtol=0.25)
    assert rates.gradient_rate(2.0, 0.9) == 1


def test_the_scale_of_the_plan_at_twice_lambda() -> None:
    """On the line P = c P*, both heads with γ = 2λ do log c ← log c − 4 tanh(½ log c): |log c| √(ℓ/3) → 1."""
    C = torch.tensor([[0.1, 0.7], [0.4, 0.2]], dtype=torch.float64)
    u, v = reference.sinkhorn(C, 0.5)
    plan, scale = reference.plan(C, u, v, 0.5), math.log(1.4)
    u = u + 0.5 * scale
    for _ in range(3000):
        P = reference.plan(C, u, v, 0.5)
        u, v = u - torch.tanh(0.5 * P.sum(1).log()), v - torch.tanh(0.5 * P.sum(0).log())
        scale -= 4 * math.tanh(0.5 * scale)
        assert torch.allclose(reference.plan(C, u, v, 0.5), math.exp(scale) * plan, rtol=1e-9)
    assert abs(scale) * math.sqrt(3000 / 3) == pytest.approx(1, rel=0.03)


def test_measured_rate_of_known_sequences() -> None:
    k = torch.arange(200, dtype=torch.float64)
    assert rates.measured_rate(0.9**k + 0.5**k) == pytest.approx(0.9, rel=1e-6)
    assert rates.measured_rate(0.8**k + 1e-13) == pytest.approx(0.8, rel=5e-3)  # a rounding floor
    assert rates.measured_rate(0.85**k * torch.cos(0.4 * k).abs()) == pytest.approx(0.85, rel=5e-3)  # a complex pair


@pytest.mark.parametrize("bad", [[1.0, 0.5], [1.0] * 7 + [math.nan], [-1.0] * 9])
def test_measured_rate_rejects(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="errors must be"):
        rates.measured_rate(bad)


def test_rates_reject_what_has_no_rate() -> None:
    with pytest.raises(ValueError, match="sigma must be in"):
        rates.alternating_rate(1.0)
    with pytest.raises(ValueError, match="omega must be between 0 and 2"):
        rates.relaxed_rate(2.0, 0.5)
    with pytest.raises(ValueError, match="step must be a positive"):
        rates.gradient_rate(0.0, 0.5)
    with pytest.raises(ValueError, match="P must have shape"):
        rates.second_singular_value(torch.ones(3))
