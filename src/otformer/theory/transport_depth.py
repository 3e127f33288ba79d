r"""How many layers reach the optimum itself, λ included: the cost of the rounded plan (docs/theorems.md, O).

M = exp((u + v − C)/λ − 1) with row sums S, column sums S', σ = ΣM and E = Σ|S − a| + Σ|S' − b|; 0 ≤ C ≤ c̄; Σa = Σb = s.
P̂ is M rounded to the sums a and b: rows that carry too much are scaled down, then columns, and what is missing is added as
a plan of rank one (Altschuler, Weed and Rigollet 2017). P_0 is an optimal plan; Q is P_0 rounded to the sums S and S'.

**What rounding adds.** From a plan F of mass f to sums r, t of mass s' the two scalings remove at most

    Σ (F1 − r)₊ + Σ (Fᵀ1 − t)₊ = ½ (‖F1 − r‖₁ + ‖Fᵀ1 − t‖₁) + f − s',

so what is added, s' − f and what was removed, is at most half of the error of the sums: ½E, for P̂ and for Q.

**The excess.** M is optimal among the plans of its own sums: ⟨C, M⟩ + λ ΣM log M ≤ ⟨C, Q⟩ + λ ΣQ log Q. Over all plans with
row sums S_i, ΣP log P lies between Σ S_i log(S_i/m) and Σ S_i log S_i; likewise for columns. So with k = min(n, m)

    ⟨C, P̂⟩ ≤ ⟨C, M⟩ + ½c̄E ≤ ⟨C, Q⟩ + λσ log k + ½c̄E ≤ ⟨C, P_0⟩ + c̄E + λσ log k.

**Depth**, n = m, a = b = 1, γ = λ = ε/(2 log n), ε ≤ c̄. As σ ≤ n + ½E, the excess is at most εn once E ≤ ν = 2εn/5c̄, and
ν²/(4n + ν) ≥ (5/22) ν²/n. By Theorem C (iv) a layer j < k has E²/(4n + E) ≤ 768 n (R/(λck))², for k ≥ max(2, 4k_0), c = c_1.
"""

from __future__ import annotations

import math

from otformer import checks
from otformer.theory.depth_bounds import descent_constant

LAYERS = math.sqrt(768 * 22 / 5) * 5 / 2  # of k ≥ LAYERS (R/λ)(c̄/ε)/c: 768 (R/(λck))² n ≤ (5/22) ν²/n


def transport_excess(error: float, mass: float, reg: float, largest: float, n: int) -> float:
    """Theorem O: the rounded plan costs at most c̄E + λσ log n more than the optimum, for any (u, v), weights and 0 ≤ C ≤ c̄.

    ``error``: E, the L1 error of both marginals; ``mass``: σ = ΣM; ``largest``: c̄; ``n``: the smaller of the two sizes.

    >>> round(transport_excess(error=0.1, mass=8.0, reg=0.01, largest=1.0, n=8), 4)
    0.2664
    """
    error, mass = checks.not_negative("error", error), checks.not_negative("mass", mass)
    reg, largest = checks.positive("reg", reg), checks.not_negative("largest", largest)
    return largest * error + reg * mass * math.log(checks.count("n", n))


def transport_depth(n: int, largest: float, tol: float) -> int:
    """Theorem O: so many layers with γ = λ = tol/(2 log n) have one among them whose rounded plan is optimal up to tol·n.

    a = b = 1, n = m ≥ 2, 0 ≤ C ≤ c̄ = ``largest``, from (0, 0): O((c̄/tol)² log n + (c̄/tol) log² n). The layer is one with
    E ≤ 2 tol n/(5c̄), which the network's own marginals show.

    >>> [transport_depth(100, 1.0, tol) for tol in (0.2, 0.1)]
    [20866, 80431]
    """
    n, largest, tol = checks.count("n", n, least=2), checks.positive("largest", largest), checks.positive("tol", tol)
    if tol > largest:
        raise checks.ArgumentError("tol", f"be at most largest = {largest:g}", repr(tol), "every plan is that good")
    c, ratio = descent_constant(1.0), largest / tol
    far = ratio * math.log(n) + max(1.0, math.log(n) - 1) / 2  # R/λ
    begins = 2 * far / c * max(0.0, math.log((n / math.e + 1) / 2))  # k_0
    layers = max(2.0, 4 * begins, LAYERS * far * ratio / c)
    if layers > 2**53:
        raise checks.ArgumentError("tol", "need fewer than 2**53 layers", repr(tol))
    return math.ceil(layers)
