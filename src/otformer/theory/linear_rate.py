r"""A linear rate from any start, and the floor that rounding leaves (docs/theorems.md, L and P).

μ = max(μ(p, p*), μ(q, q*)) is Hilbert's distance to the solution, g = γ/2λ of the shorter step, and R the sup-norm distance
from the start to a solution. No |tanh(z/2)| or |tanh(z'/2)| is above τ; z = log(S/a), z' = log(S'/b).

**One layer.** With e = (u − u*)/λ, f = (v − v*)/λ and h_i = log Σ_j (P*_ij/a_i) e^{f_j}, z = e + h, and

    2 tanh(z_i/2) − 2 tanh(z_k/2) = κ(z_i − z_k),   1 − τ² ≤ κ ≤ 1,   osc h ≤ η osc f  (Birkhoff),
    e_i⁺ − e_k⁺ = (1 − gκ)(e_i − e_k) + gκ(h_k − h_i),   so   μ⁺ ≤ (1 − c) μ,   c = g (1 − τ²)(1 − η).

**Many layers.** μ_0 ≤ 2R/λ. Layers with γ ≤ 2λ do not expand, so |z| ≤ 2R/λ and τ ≤ tanh(R/λ) at all of them; both heads
with γ < 2λ have τ_j² ≤ T/j as well, T = R²/(λ²π g(1−g)) (`bounds.residual_bound`). With c_0 = g(1 − η) the bound is
2R/λ times Π_{j<ℓ} (1 − c_0 + c_0 τ_j²). Its logarithm's terms fall with j, so a sum of them is below their integral,

    Σ_{J<j<ℓ} log(A + B/j) ≤ F(ℓ−1) − F(J),   F(x) = x log(A + B/x) + (B/A) log(Ax + B),   A = 1 − c_0,   B = c_0 T.

**Errors.** If a layer is wrong by at most r in every u and v, osc e and osc f are wrong by at most 2r/λ:
μ⁺ ≤ (1 − c) μ + 2r/λ.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left

from otformer import checks
from otformer.theory.hilbert import inverse_gap

MOST_COUNTED = 2**53  # layers: above it float64 does not hold every whole number


def contraction(reg: float, log_phi: float, tau: float, step: float | None = None) -> float:
    """Theorem L's c = (γ/2λ)(1 − τ²)(1 − η): a layer multiplies μ = max(μ(p, p*), μ(q, q*)) by 1 − c or less.

    γ = ``step`` ≤ 2λ is the shorter step of the two heads (λ unless given), φ of `hilbert.log_phi`. For alternating heads
    with ω ≤ 1 and γ = 2λω the same holds per pair of layers.

    >>> contraction(reg=1.0, log_phi=math.log(9.0), tau=0.5)     # η = ½
    0.1875
    """
    reg, tau = checks.positive("reg", reg), checks.not_negative("tau", tau)
    if tau > 1:
        raise checks.ArgumentError("tau", "be at most 1: it bounds |tanh(z/2)|", repr(tau))
    return _step(reg, step) * (1 - tau) * (1 + tau) * _gap(log_phi)


def linear_bound(reg: float, distance: float, depth: int, log_phi: float, step: float | None = None) -> float:
    """Theorem L: max(μ(p_ℓ, p*), μ(q_ℓ, q*)) ≤ (2R/λ) Π_{j<ℓ} (1 − g(1 − η)(1 − τ_j²)), both heads, γ = ``step`` ≤ 2λ.

    τ_j² = min(tanh²(R/λ), R²/(λ²π j g(1−g))); any weights, any start at ``distance`` R from a solution (`start_distance`).
    It is below (2R/λ)(1 − ¾ g(1 − η))^{ℓ−k₁}, k₁ = ⌈4R²/(λ²π g(1−g))⌉, and per layer it falls to 1 − g(1 − η), which is
    attained (docs/theorems.md, L).

    >>> [f"{linear_bound(1.0, 1.0, depth, log_phi=math.log(9.0)):.2g}" for depth in (0, 20, 200)]
    ['2', '0.027', '2.4e-24']
    """
    reg, distance = checks.positive("reg", reg), checks.not_negative("distance", distance)
    depth, g, far = checks.count("depth", depth, least=0), _step(reg, step), distance / reg
    c = g * _gap(log_phi)
    return 2 * far * math.exp(_log_product(far, depth, g, c)) if far else 0.0


def linear_depth(reg: float, distance: float, tol: float, log_phi: float, step: float | None = None) -> float:
    """The first layer ℓ at which `linear_bound` is at most ``tol``; inf where that overflows.

    At most k₁ + (4/3)/(g(1 − η)) · log(2R/(λ tol)): for γ = λ that is ⌈16R²/(πλ²)⌉ + (8/3) ½(1 + √φ) log(2R/(λ tol)).

    >>> linear_depth(1.0, 1.0, 1e-6, log_phi=math.log(9.0))
    58.0
    """
    reg, distance, tol = checks.positive("reg", reg), checks.not_negative("distance", distance), checks.positive("tol", tol)
    g, gap, far = _step(reg, step), _gap(log_phi), distance / reg
    if 2 * far <= tol:
        return 0.0
    wanted, c = math.log(2 * far) - math.log(tol), g * gap
    falls = ((0.0, _log_left(c, math.tanh(far) ** 2)), (4 * _residual(far, g), _log_left(c, 0.25)))  # from layer, per layer
    most = min((math.ceil(wait) - wanted / fall for wait, fall in falls if fall < 0 and wait < math.inf), default=math.inf)
    if most > MOST_COUNTED:
        return most
    layers = range(math.ceil(most) + 1)
    return float(bisect_left(layers, wanted, key=lambda depth: -_log_product(far, depth, g, c)))


def rounding_floor(reg: float, error: float, contraction: float) -> float:
    """Theorem P: layers that are wrong by at most r = ``error`` in every u and v end with μ ≤ 2r/(λc), at every depth.

    c = ``contraction`` is that of the late layer where it is least. After k of them μ ≤ (1 − c)^k μ_0 + 2r/(λc).

    >>> rounding_floor(reg=0.5, error=1e-7, contraction=0.1)
    4e-06
    """
    reg, error = checks.positive("reg", reg), checks.not_negative("error", error)
    c = checks.not_negative("contraction", contraction)
    if c > 1:
        raise checks.ArgumentError("contraction", "be at most 1", repr(contraction))
    if not error:
        return 0.0
    return 2 * error / reg / c if c else math.inf


def _log_product(far: float, depth: int, g: float, c: float) -> float:
    """log Π_{j<depth} (1 − c(1 − τ_j²)), ``far`` = R/λ: a sum while τ_j is tanh(R/λ), then the integral F."""
    T, ratio = _residual(far, g), far / math.tanh(far)
    saturated = ratio * ratio * _residual(1.0, g)  # T/tanh²(R/λ), the layer from which τ_j² ≤ T/j is the better bound
    first = depth if saturated >= depth else min(depth, math.ceil(saturated) + 1)
    total = first * _log_left(c, math.tanh(far) ** 2) if first else 0.0
    if depth <= first:
        return total
    low, high = first - 1, depth - 1  # J and ℓ − 1
    ends = [x * _log_left(c, T / x) for x in (low, high)]
    return total + ends[1] - ends[0] + c * T / (1 - c) * math.log(((1 - c) * high + c * T) / ((1 - c) * low + c * T))


def _log_left(c: float, tau_squared: float) -> float:
    """log(1 − c(1 − τ²)) without cancellation, for small c and for c near 1."""
    lost = c * (1 - tau_squared)
    return math.log1p(-lost) if lost < 0.5 else math.log(max(1 - c + c * tau_squared, sys.float_info.min))


def _residual(far: float, g: float) -> float:
    """T of τ_j² ≤ T/j; inf at γ = 2λ, where there is no such bound."""
    return far * far / (math.pi * g * (1 - g)) if g < 1 else math.inf


def _step(reg: float, step: float | None) -> float:
    """g = γ/2λ, in (0, 1]."""
    g = 0.5 if step is None else checks.positive("step", step) / (2 * reg)
    if g > 1:
        raise checks.ArgumentError("step", f"be at most 2 reg = {2 * reg:g}", repr(step), "longer steps may expand")
    return g


def _gap(log_phi: float) -> float:
    """1 − η; 0 where √φ overflows."""
    return 1 / inverse_gap(checks.not_negative("log_phi", log_phi))
