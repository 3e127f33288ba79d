r"""What errors do: in the layers, in the cost, in the sink. Proofs: docs/theorems.md, F and G.

In one line each:

    G   x̃ ← T x̃ + e, γ ≤ 2λ:  ‖x̃_ℓ − x_ℓ‖_∞ ≤ ‖x̃_0 − x_0‖_∞ + Σ ‖e_k‖_∞        errors add, they are not magnified
    G   |C̃ − C| ≤ ε:          ‖P̃ − P‖₁ ≤ s ε/λ
    F   a sink off by y:        a head raises the limit's dual by at most 2λω s |e^y − 1|
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from otformer import checks


def log_plan_drift(errors: Iterable[float], reg: float, start: float = 0.0) -> float:
    """Theorem G: |log(M̃_ij/M_ij)| ≤ 2 (start + Σ ‖e_k‖_∞)/λ after layers of steps γ ≤ 2λ that make these errors.

    An error is the largest in any of that layer's u and v; ``start`` is that of the start.

    >>> log_plan_drift([1e-3, 1e-3], reg=0.5)
    0.008
    """
    reg, total = checks.positive("reg", reg), checks.not_negative("start", start)
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

    y = log N + ψ/λ, ψ the sink's dual and N the number of tokens beside it; 0 < ω ≤ 1.8.

    >>> sink_rise(0.0, omega=1.8), round(sink_rise(math.log(2), omega=1.5), 12)
    (0.0, 3.0)
    """
    return 2 * checks.positive("omega", omega) * abs(math.expm1(offset))
