r"""Answers computed here in float64, dense, by plain scaling steps in the log domain, from nothing of otformer's.

    P_ij = R_ij exp((f_i + g_j − C_ij)/λ),    f ← d (f − λ log(P1/a)),    d = ρ/(ρ + λ), or 1 where marginals are fixed,

the same for g. R is 1 or a bᵀ. None where these steps do not arrive: then there is nothing to compare with.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

STEPS = 3000  # of f and g each
CLOSE = 1e-11  # relative change of P by the last step
Plan = tuple[np.ndarray, np.ndarray, np.ndarray]  # P [n, m], f [n], g [m]


def scaled(
    C: np.ndarray, a: np.ndarray, b: np.ndarray, lam: float, rho: float = math.inf, product: bool = False
) -> Plan | None:
    """The solution for a cost [n, m] and positive weights, which without ρ have equal sums."""
    log_R = np.log(a)[:, None] + np.log(b) if product else np.zeros(C.shape)
    K, d = log_R - C / lam, 1.0 if math.isinf(rho) else rho / (rho + lam)
    f, g, log_a, log_b = np.zeros(len(a)), np.zeros(len(b)), np.log(a), np.log(b)  # in units of λ
    for step in range(STEPS):
        before = f
        f = d * (log_a - logsumexp(K + g, axis=1))
        g = d * (log_b - logsumexp(K + f[:, None], axis=0))
        if step % 10 == 0 and np.abs(f - before).max() < CLOSE * (1 - d if d < 1 else 1):
            return np.exp(K + f[:, None] + g), lam * f, lam * g
    return None


def entropic(C: np.ndarray, a: np.ndarray, b: np.ndarray, lam: float) -> tuple[np.ndarray, float] | None:
    """Plan and value of min Σ P C + λ Σ P log P; points without mass have rows of 0."""
    rows, columns = a > 0, b > 0
    found = scaled(C[rows][:, columns], a[rows], b[columns], lam)
    if found is None:
        return None
    P = np.zeros(C.shape)
    P[np.ix_(rows, columns)] = found[0]
    there = P > 0
    return P, float((P * np.where(there, C, 0.0)).sum() + lam * (P[there] * np.log(P[there])).sum())


def squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def loss(
    x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, p: int, eps: float, rho: float, debias: bool
) -> float | None:
    r"""GeomLoss's loss, its cost ½‖x − y‖² or ‖x − y‖.

    Σ α f + Σ β g, with ρ Σ α φ(f) + Σ β φ(g), φ(f) = (ρ + ε/2)(1 − exp(−f/ρ)); debiased less ½ OT(α, α) + ½ OT(β, β).
    """

    def transport(x: np.ndarray, a: np.ndarray, y: np.ndarray, b: np.ndarray) -> float:
        C = squares(x, y) / 2 if p == 2 else np.sqrt(squares(x, y))
        found = scaled(C, a, b, eps, rho, product=True)
        if found is None:
            return math.nan
        _, f, g = found
        if math.isinf(rho):
            return float(a @ f + b @ g)
        return float((rho + eps / 2) * (-(a @ np.expm1(-f / rho)) - b @ np.expm1(-g / rho)))

    total = transport(x, a, y, b)
    total -= (transport(x, a, x, a) + transport(y, b, y, b)) / 2 if debias else 0.0
    return None if math.isnan(total) else total
