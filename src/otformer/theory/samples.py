r"""The layers on n samples beside the same layers on the distributions they come from (docs/theorems.md, W).

x_1 … x_n ~ μ and y_1 … y_n ~ ν are independent, μ and ν two distributions, and a = b = 1/n. Put ū = u + λ log n and
v̄ = v + λ log n. Then S_i/a_i is a mean,

    S_i/a_i = (1/n) Σ_j k(x_i, y_j),   k = e^{(ū(x) + v̄(y) − C(x, y))/λ − 1},

and the continuous layer has ∫ k(x, y) dν(y) in its place. Both start at ū = v̄ = 0.

**The kernel is bounded.** C(x, ·) and C(·, y) oscillate by at most c. A layer with γ ≤ 2λ keeps osc v̄ ≤ c: with
log S'(y) = v̄(y)/λ + G(y) and osc G ≤ c/λ, v̄⁺(y) − v̄⁺(y') = (1 − q)(v̄(y) − v̄(y')) − qλ(G(y) − G(y')), 0 ≤ q ≤ 1. So log k
oscillates by at most 2c/λ in y, and w = k/∫k dν has mean 1 and lies in an interval [α, Φα], Φ = e^{2c/λ}, α ≤ 1 ≤ Φα:

    width ≤ Φ − 1,     variance ≤ (Φα − 1)(1 − α) ≤ (Φ − 1)²/(4Φ) = sinh²(c/λ).

**One mean.** r = (1/n) Σ w is off 1 by t or more with probability at most 2e^{−X}, if t is Hoeffding's (Φ − 1)√(X/2n) or
Bernstein's, which solves n t² = 2X (sinh²(c/λ) + (Φ − 1)t/3). We take the smaller. Then

    |tanh(½ log rs) − tanh(½ log s)| = 2s|r − 1|/((1 + rs)(1 + s)) ≤ 2|r − 1|/(1 + √r)² = 2 tanh(¼|log r|)   (s = 1/√r).

**All of them.** The continuous (ū_k, v̄_k) do not depend on the samples, and y_1 … y_n not on x_i. So with X = log(4nℓ/δ) and
probability 1 − δ each of ℓ layers, at the continuous potentials of 2n points, is off by at most γ · 2 tanh(¼|log(1 − t)|).
Errors of layers add (Theorem G).
"""

from __future__ import annotations

import math

from otformer import checks


def sampling_error(n: int, depth: int, reg: float, spread: float, chance: float = 0.05, step: float | None = None) -> float:
    """Theorem W: with probability 1 − ``chance`` no potential of n samples is further than this from the distribution's.

    ``depth`` layers of steps ≤ γ = ``step`` (λ unless given, at most 2λ), from u = v = −λ log n, weights 1/n;
    ``spread``: c ≥ osc C(x, ·), osc C(·, y). ℓγ · 2 tanh(¼|log(1 − t)|), for large n ½ℓγ sinh(c/λ) √(2 log(4nℓ/chance)/n);
    where t ≥ 1 it is 2ℓγ, which is trivial.

    >>> [round(sampling_error(n, depth=10, reg=1.0, spread=1.0), 3) for n in (100, 10_000, 1_000_000)]
    [8.791, 0.361, 0.038]
    """
    n, depth, reg = checks.count("n", n), checks.count("depth", depth, least=0), checks.positive("reg", reg)
    spread, chance = checks.not_negative("spread", spread), checks.positive("chance", chance)
    if chance >= 1:
        raise checks.ArgumentError("chance", "be below 1: it is a probability", repr(chance))
    gamma = reg if step is None else checks.positive("step", step)
    if gamma > 2 * reg:
        raise checks.ArgumentError("step", f"be at most 2 reg = {2 * reg:g}", repr(step), "longer steps may expand")
    if not depth:
        return 0.0
    t = _mean_error(n, spread / reg, math.log(4 * n * depth / chance))
    return depth * gamma * (2 * math.tanh(-math.log1p(-t) / 4) if t < 1 else 2.0)


def _mean_error(n: int, spread: float, X: float) -> float:
    """t: a mean of n such w is off 1 by t or more with probability at most 2e^{−X}; ``spread`` is c/λ. inf beyond 300."""
    if spread > 300:
        return math.inf
    width, sd = math.expm1(2 * spread), math.sinh(spread)
    bernstein = width * X / (3 * n)  # solves n t² = 2X (sd² + width t/3)
    return min(width * math.sqrt(X / (2 * n)), bernstein + math.sqrt(bernstein**2 + 2 * sd**2 * X / n))
