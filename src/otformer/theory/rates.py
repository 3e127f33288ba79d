r"""Linear rates of the schedules near the solution, predicted and measured. Derivations: docs/theory.md, section 6.

Let K = D_a^{-1/2} P*_λ D_b^{-1/2}, with singular values 1 = σ₁ > σ₂ = σ ≥ …. Near the solution let
α = √a δu and β = √b δv be the rescaled changes from it. To first order the row head does α ← α − g(α + Kβ), the column head
β ← β − g(β + Kᵀα), g = γ/2λ. Hence, modulo the gauge (u + c, v − c):

    both heads, step γ          modes 1 − g(1 ± σ_k)        rate max(1 − g(1−σ), |1 − 2g|) per layer
    alternating heads, γ = 2λω  (μ+ω−1)² = μ ω² σ_k²         rate max |μ| per pair of layers (successive over-relaxation)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from otformer import checks

POINTS = "the weights a and b are positive (docs/theory.md, 6); leave out points without mass"


def second_singular_value(P: Tensor) -> float:
    """σ of a plan P [n, m] with positive marginals a, b: the second singular value of D_a^{-1/2} P D_b^{-1/2}.

    >>> round(second_singular_value(torch.tensor([[0.9, 0.1], [0.1, 0.9]])), 6)
    0.8
    """
    P = checks.tensor("P", P)
    if P.ndim != 2 or not P.numel():
        raise checks.ArgumentError("P", "have shape (n, m)", tuple(P.shape))
    a, b = P.sum(1), P.sum(0)
    if bool((P < 0).any()) or not bool((a > 0).all() & (b > 0).all()):
        raise checks.ArgumentError("P", "have no entry below zero, and positive row and column sums", advice=POINTS)
    if min(P.shape) < 2:
        return 0.0
    return float(torch.linalg.svdvals(P / (a.sqrt()[:, None] * b.sqrt()))[1])


def gradient_rate(step: float, sigma: float) -> float:
    """Rate per layer with both heads writing; ``step`` is γ/λ. At γ = λ: (1+σ)/2. At γ = 2λ it is 1: no linear rate.

    >>> gradient_rate(1.0, 0.5), gradient_rate(2.0, 0.5)
    (0.75, 1.0)
    """
    g, sigma = checks.positive("step", step) / 2, _check(sigma)
    return max(abs(1 - g * (1 - sigma)), abs(1 - g * (1 + sigma)), abs(1 - 2 * g))


def best_gradient_step(sigma: float) -> float:
    """γ/λ that makes `gradient_rate` least: 4/(3−σ), where the rate is (1+σ)/(3−σ).

    >>> best_gradient_step(1 / 3), gradient_rate(1.5, 1 / 3)
    (1.5, 0.5)
    """
    return 4 / (3 - _check(sigma))


def alternating_rate(sigma: float) -> float:
    """Rate per pair of layers for alternating heads with γ = 2λ: σ², Sinkhorn's own."""
    return _check(sigma) ** 2


def relaxed_rate(omega: float, sigma: float) -> float:
    """Rate per pair of layers for alternating heads with γ = 2λω, 0 < ω < 2: the largest |μ| with (μ+ω−1)² = μ ω² σ².

    √μ solves s² − ωσ s + (ω−1) = 0: two real roots up to ω*(σ) (`best_omega`), a complex pair of modulus √(ω−1) above.

    >>> from otformer.network.schedule import best_omega
    >>> relaxed_rate(1.0, 0.5), round(relaxed_rate(best_omega(0.8), 0.8), 6), round(relaxed_rate(1.6, 0.8), 6)
    (0.25, 0.25, 0.6)
    """
    sigma, given = _check(sigma), checks.not_negative("omega", omega)
    if not 0 < given < 2:
        raise checks.ArgumentError("omega", "be between 0 and 2", repr(omega), "outside, no pair of layers contracts")
    omega = given
    discriminant = (omega * sigma) ** 2 - 4 * (omega - 1)
    if discriminant <= 0:
        return omega - 1
    return ((omega * sigma + math.sqrt(discriminant)) / 2) ** 2


def measured_rate(errors: Sequence[float] | Tensor, floor: float = 1e-11) -> float:
    """The linear rate of a falling sequence of errors: e_k ~ rate^k in its asymptotic window.

    The window is the second half of the steps before the error first falls below ``floor`` times the largest error
    (rounding). Where eigenvalues are complex the error oscillates, so the line is fitted (least squares) to the
    logarithm of the upper envelope: the linear interpolation of the points that no later error exceeds.

    >>> round(measured_rate([0.5**k for k in range(40)]), 6)
    0.5
    """
    e, floor = checks.tensor("errors", errors).detach().double().cpu(), checks.not_negative("floor", floor)
    if e.ndim != 1 or len(e) < 8 or bool((e < 0).any()):
        raise checks.ArgumentError("errors", "be at least 8 finite, non-negative numbers", f"shape {tuple(e.shape)}")
    below = (e <= floor * e.max()).nonzero()
    stop = int(below[0]) if len(below) else len(e)
    log = e[:stop].log()
    later = log.flip(0).cummax(0).values.flip(0)  # [stop] the largest error from here on
    peaks = (log == later).nonzero()[:, 0]
    peaks = peaks[peaks >= stop // 2]
    if len(peaks) < 2:
        raise checks.ArgumentError("errors", "fall over a window of at least 8 steps", f"{stop} steps above the floor")
    steps = np.arange(int(peaks[0]), int(peaks[-1]) + 1)
    slope, _ = np.polyfit(steps, np.interp(steps, peaks.numpy(), log[peaks].numpy()), 1)
    return math.exp(slope)


def _check(sigma: float) -> float:
    value = checks.not_negative("sigma", sigma)
    if not 0 <= value < 1:
        raise checks.ArgumentError("sigma", "be in [0, 1)", repr(sigma), "σ_2 < 1 for a positive plan (docs/theory.md, 6)")
    return value
