r"""How many layers: the bounds that hold from any start. Proofs: docs/theorems.md (A, B, C) and docs/theory.md, 4 and 9.

With z = log(S/a), z' = log(S'/b), s = Σa, KL(P‖M) = Σ P log(P/M) − P + M, and R a sup-norm distance from the start to a
solution:

    A   osc((u − u*)/λ) ≤ (osc z + η osc z')/(1 − η²),  so after ℓ layers  μ ≤ 4 artanh(τ)/(1 − η)
    B   λ KL(P*‖M) = L − L* ≤ R ‖∇L‖₁,                  so after ℓ layers  KL ≤ (R/λ) 4sτ/(1 − τ)
    C   1/x − log x grows by λc/2R per layer,  x = λ KL/(4sR)

A and B take τ from `bounds.residual_bound` (both heads, γ < 2λ). C needs no τ, and has 1/ℓ in place of 1/√ℓ.
Every function returns inf where its bound says nothing or overflows.

What errors in the layers, in the cost and in the sink do (docs/theorems.md, F and G):

    G   x̃ ← T x̃ + e, γ ≤ 2λ:  ‖x̃_ℓ − x_ℓ‖_∞ ≤ ‖x̃_0 − x_0‖_∞ + Σ ‖e_k‖_∞        errors add, they are not magnified
    G   |C̃ − C| ≤ ε:          ‖P̃ − P‖₁ ≤ s ε/λ
    F   a sink off by y:        a head raises the limit's dual by at most 2λω s |e^y − 1|
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy.optimize import brentq
from scipy.special import wrightomega
from torch import Tensor

from otformer import checks
from otformer.theory.bounds import residual_bound
from otformer.theory.hilbert import cost, eta, inverse_gap

LARGEST_OMEGA = 1.884013  # up to which a head lowers the dual: `dual_falls` of proofs/Constants.v; at 1.884014 it may rise


def start_distance(C: Tensor, reg: float, a: Tensor | None = None, b: Tensor | None = None) -> float:
    """R: some solution has all |u*_i| and |v*_j| at most this, C [n, m] of any sign (docs/theory.md, section 4).

    With c = min C, c̄ = max C and α = 1 + log a_i, u*_i lies between c − c̄/2 + λ(α − ½ log(e s)) and the smaller of
    ½(c̄ + λα) and c̄ − c/2 + λ(α − ½ log(e s)); v*_j likewise. For C ≥ 0 and a = b = 1 this is at most
    ½ max C + ½ λ max(1, log n − 1).

    >>> import torch
    >>> start_distance(torch.tensor([[3.0]]), reg=0.5)     # n = 1: u* = v* = (C + λ)/2
    1.75
    """
    reg, C = checks.positive("reg", reg), cost("C", C)
    rows, columns = (_weights(*named) for named in (("a", a, len(C)), ("b", b, C.shape[1])))
    if abs(rows.sum() - columns.sum()) > 1e-6 * rows.sum():
        sums = f"{rows.sum():g} and {columns.sum():g}"
        raise checks.ArgumentError("a and b", "have one sum", sums, "otherwise no plan has these marginals")
    low, high = float(C.min()), float(C.max())
    half = 0.5 * (1 + math.log(rows.sum()))
    alpha = 1 + np.log(np.concatenate([rows, columns]))
    above = np.minimum((high + reg * alpha) / 2, high - low / 2 + reg * (alpha - half))
    below = high / 2 - low - reg * (alpha - half)
    return float(np.maximum(above, below).max())


def hilbert_from_marginals(rows: float, columns: float, log_phi: float) -> float:
    """Theorem A, any (u, v): with rows = osc z and columns = osc z', μ(p, p*) ≤ (rows + η columns)/(1 − η²).

    Exchange the two for μ(q, q*). osc is max − min, φ of `hilbert.log_phi`.

    >>> hilbert_from_marginals(0.3, 0.3, log_phi=0.0), round(hilbert_from_marginals(0.3, 0.3, math.log(9.0)), 12)
    (0.3, 0.6)
    """
    rows, columns = checks.not_negative("rows", rows), checks.not_negative("columns", columns)
    factor = eta(log_phi)
    spread = rows + factor * columns
    return spread / (1 + factor) * inverse_gap(log_phi) if spread else 0.0


def hilbert_bound(reg: float, distance: float, depth: int, log_phi: float, step: float | None = None) -> float:
    """Theorem A, the paper's Theorem 3.2 corrected: max(μ(p_ℓ, p*), μ(q_ℓ, q*)) ≤ 4 artanh(τ_ℓ)/(1 − η), at layer ℓ itself.

    Both heads, any γ = ``step`` below 2λ (λ unless given), any weights; τ_ℓ = R/(λ √(πℓ g(1−g))), g = γ/2λ, and inf where
    τ_ℓ ≥ 1. ``distance`` is R: `start_distance` needs no solution.

    >>> round(hilbert_bound(reg=1.0, distance=1.0, depth=400, log_phi=0.0), 4)     # 4 artanh(2/√(400 π))
    0.2259
    """
    tau = residual_bound(reg, distance, depth, step)
    gap = inverse_gap(log_phi)
    return 4 * math.atanh(tau) * gap if 0 < tau < 1 else math.inf if tau else 0.0


def divergence_bound(mass: float, reg: float, distance: float, depth: int, step: float | None = None) -> float:
    """Theorem B: KL(P*‖M_ℓ) ≤ (R/λ) 4sτ_ℓ/(1 − τ_ℓ), both heads, γ < 2λ; s is ``mass``. No e^{1/λ}; inf where τ_ℓ ≥ 1.

    >>> round(divergence_bound(mass=1.0, reg=1.0, distance=1.0, depth=400), 4)
    0.2392
    """
    mass, tau = checks.positive("mass", mass), residual_bound(reg, distance, depth, step)
    return distance / reg * 4 * mass * tau / (1 - tau) if tau < 1 else math.inf


def descent_constant(omega: float) -> float:
    r"""Theorem C's c_ω, the largest c with −h(z) ≥ c (S − a)²/(a(S + a)) for all z = log(S/a); 0 < ω ≤ 1.884013.

    With x = 2ω tanh(z/2) the quotient of the two sides is f(x) = ω(1 + ∫₀¹ e^{−xs} w(s) ds), w(s) = 1 − 2ω(1 − s). Its
    derivative −ω ∫ s e^{−xs} w(s) ds changes sign once at most, from − to +, because w does (docs/theorems.md, C): the least
    value on [−2ω, 2ω] is at its zero, or at 2ω, where f = 1 − e^{−2ω}. Integrals by Gauss and Legendre, exact to rounding.

    >>> [round(descent_constant(omega), 4) for omega in (0.5, 1.0, 1.5, 1.8)]
    [0.6321, 0.8647, 0.75, 0.2374]
    """
    omega = _omega(omega)
    nodes, parts = np.polynomial.legendre.leggauss(24)
    s, parts = (nodes + 1) / 2, parts / 2
    w = parts * (1 - 2 * omega * (1 - s))

    def fall(x: float) -> float:
        return float((s * w * np.exp(-x * s)).sum())

    at = 2 * omega if fall(2 * omega) >= 0 else brentq(fall, -2 * omega, 2 * omega)
    return float(omega * (1 + (w * np.exp(-at * s)).sum()))


def divergence_after(
    steps: int, mass: float, reg: float, distance: float, start: float, omega: float = 1.0, turns: bool = False
) -> float:
    """Theorem C: a bound on KL(P*‖M) after ``steps`` layers of both heads with γ = λω, where it is ``start`` first.

    With K = 4sR/λ and x = KL/K, 1/x − log x grows by at least q = λc_ω/(2R) a layer; y = 1/x solves y + log y = B (Wright's
    function). It is below 16 s (R/λ)²/(c_ω (ℓ − k₀)), k₀ = log⁺(start/K)/q; ω ≤ 1.884013. ``turns``: alternating heads with
    γ = 2λω, ω ≤ 1; then a step is a pair of layers and the 4 is a 5.

    >>> [round(divergence_after(k, mass=1.0, reg=1.0, distance=1.0, start=4.0), 3) for k in (0, 10, 1000)]
    [4.0, 1.013, 0.009]
    """
    steps, mass, reg = checks.count("steps", steps, 0), checks.positive("mass", mass), checks.positive("reg", reg)
    distance, start = checks.not_negative("distance", distance), checks.not_negative("start", start)
    c = descent_constant(omega)
    if turns and omega > 1:
        raise checks.ArgumentError("omega", "be at most 1 for alternating heads", repr(omega), "longer steps may expand")
    if start and not distance:
        raise checks.ArgumentError("start", "be 0 at distance 0", repr(start), "then KL(P*‖M) = 0 (docs/theorems.md, B.1)")
    if not start:
        return 0.0
    whole = (5 if turns else 4) * mass * distance / reg
    if not (0 < whole < math.inf and 0 < start / whole < math.inf):  # the numbers overflow
        return start
    grown = whole / start - math.log(start / whole) + steps * reg * c / (2 * distance)
    return min(start, whole / float(wrightomega(grown))) if grown < math.inf else start


def arrival_depth(
    C: Tensor, reg: float, step: float, a: Tensor | None = None, error: float = 0.5, both: bool = False
) -> float:
    """From (0, 0), no fewer than this many layers make every row sum S_i ≥ (1 − error) a_i (docs/theory.md, section 9).

    max_i [min_j C_ij + λ(1 + log((1 − error) a_i/m))]/γ for alternating heads, half of it for ``both`` in every layer;
    0 where that is negative.

    >>> import torch
    >>> round(arrival_depth(torch.full((1, 1), 4.0), reg=0.02, step=0.04), 1)
    100.2
    """
    reg, step, error = checks.positive("reg", reg), checks.positive("step", step), checks.not_negative("error", error)
    if error >= 1:
        raise checks.ArgumentError("error", "be below 1", repr(error), "row sums of 0 need no layer")
    C = cost("C", C).detach().cpu()
    needed = C.amin(1).double().numpy() + reg * (1 + np.log((1 - error) * _weights("a", a, len(C)) / C.shape[1]))
    return max(0.0, float(needed.max())) / (2 * step if both else step)


def log_plan_drift(errors: Iterable[float], reg: float, start: float = 0.0) -> float:
    """Theorem G: |log(M̃_ij/M_ij)| ≤ 2 (start + Σ ‖e_k‖_∞)/λ after layers of steps γ ≤ 2λ that make these errors.

    An error is the largest in any of that layer's u and v; ``start`` is that of the start.

    >>> log_plan_drift([1e-3, 1e-3], reg=0.5)
    0.008
    """
    reg, total = checks.positive("reg", reg), checks.not_negative("start", start)
    if isinstance(errors, (str, bytes)) or not isinstance(errors, Iterable) or getattr(errors, "ndim", 1) != 1:
        raise checks.ArgumentError("errors", "be a list of numbers, one for each layer", repr(errors))
    return 2 * (total + math.fsum(checks.not_negative("errors", each) for each in errors)) / reg


def plan_change(mass: float, reg: float, cost_error: float) -> float:
    """Theorem G: two costs that differ by at most ε in any entry have plans with ‖P̃ − P‖₁ ≤ s ε/λ (and at most 2s).

    >>> plan_change(mass=1.0, reg=0.5, cost_error=0.25)
    0.5
    """
    mass, reg = checks.positive("mass", mass), checks.positive("reg", reg)
    return min(mass * checks.not_negative("cost_error", cost_error) / reg, 2 * mass)


def sink_rise(offset: float, omega: float) -> float:
    """Theorem F: by no more than this, times λ Σa, a head with a sink off by y raises the dual of the limit: 2ω |e^y − 1|.

    y = log N + ψ/λ, ψ the sink's potential and N the number of tokens beside it; 0 < ω ≤ 1.884013.

    >>> sink_rise(0.0, omega=1.8), round(sink_rise(math.log(2), omega=1.5), 12)
    (0.0, 3.0)
    """
    omega, y = _omega(omega), checks.tensor("offset", offset)
    if y.ndim:
        raise checks.ArgumentError("offset", "be one number", f"shape {tuple(y.shape)}")
    return 2 * omega * (abs(math.expm1(float(y))) if y < 700 else math.inf)


def _omega(omega: float) -> float:
    """0 < ω ≤ 1.884013, the hypothesis of docs/theory.md, 5.3, and of all that rests on it."""
    given = checks.positive("omega", omega)
    if given > LARGEST_OMEGA:
        reason = "above it a head can raise the dual (docs/theory.md, 5.3)"
        raise checks.ArgumentError("omega", f"be at most {LARGEST_OMEGA}", repr(omega), reason)
    return given


def _weights(name: str, given: Tensor | None, n: int) -> np.ndarray:
    """The paper's unit weights unless positive ones are given, [n]."""
    if given is None:
        return np.ones(n)
    weights = checks.tensor(name, given)
    if weights.shape != (n,):
        raise checks.ArgumentError(name, f"be {n} positive, finite weights", f"shape {tuple(weights.shape)}")
    if not bool((weights > 0).all()):
        advice = "points of weight 0 are absent; leave them out"
        raise checks.ArgumentError(name, f"be {n} positive, finite weights", f"a least weight of {weights.min():g}", advice)
    return weights.detach().double().cpu().numpy()
