r"""Proofs that come with a result, checked in whole numbers: every float64 is a fraction. Nothing here imports otformer.

**Exact transport.** Let C be the cost, P ≥ 0 a plan for a and b, and f_i + g_j ≤ C_ij for *all* pairs. Then every plan costs
at least Σ a f + Σ b g, and Σ P C exceeds it by Σ P (C − f − g) ≥ 0: the gap. If all four statements hold, P is optimal up to
the gap, however it was found.

**Entropic transport.** P_ij = exp((u_i + v_j − C_ij)/λ − 1) is the one minimiser for the marginals that it has. So the form
of P and its marginals are all there is to check.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

EPS = 2.0**-52  # twice what one operation of float64 rounds, relative


class Exact(NamedTuple):
    """What was recomputed of an exact solution."""

    value: Fraction  # Σ P C
    bound: Fraction  # Σ a f + Σ b g
    gap: Fraction  # Σ P (C − f − g) over the pairs of P
    infeasible: Fraction  # the most by which a pair has f_i + g_j > C_ij, or 0
    slack: Fraction  # the most by which a pair with mass has f_i + g_j < C_ij, or 0
    marginal_error: Fraction  # Σ |P1 − a| + Σ |Pᵀ1 − b|
    negative: bool  # whether a mass is


def exact(C: np.ndarray, a: np.ndarray, b: np.ndarray, P: np.ndarray, f: np.ndarray, g: np.ndarray) -> Exact:
    """All of it by its definition; points without mass, whose potential is −inf, take no part.

    >>> half = np.full(2, 0.5)
    >>> exact(np.array([[0.0, 2.0]]), np.ones(1), half, half[None], np.zeros(1), np.array([0.0, 2.0]))[:3]
    (Fraction(1, 1), Fraction(1, 1), Fraction(0, 1))
    """
    there = np.ix_(np.asarray(a) > 0, np.asarray(b) > 0)
    P = np.asarray(P, dtype=np.float64)
    assert not np.delete(P, np.flatnonzero(a), 0).any(), "a row without mass sends some"
    assert not np.delete(P, np.flatnonzero(b), 1).any(), "a column without mass receives some"
    A, B, F, G = (_fractions(t[w > 0]) for t, w in ((a, a), (b, b), (f, a), (g, b)))
    costs, masses = _fractions(np.asarray(C)[there]), _fractions(P[there])
    reduced = [[c - F[i] - G[j] for j, c in enumerate(row)] for i, row in enumerate(costs)]
    carrying = [reduced[i][j] for i, row in enumerate(masses) for j, mass in enumerate(row) if mass]
    return Exact(
        value=_product(masses, costs),
        bound=sum((w * t for w, t in zip([*A, *B], [*F, *G], strict=True)), Fraction()),
        gap=_product(masses, reduced),
        infeasible=max([Fraction(), *(-c for row in reduced for c in row)]),
        slack=max([Fraction(), *carrying]),
        marginal_error=sum((abs(sum(row) - w) for row, w in zip(masses, A, strict=True)), Fraction())
        + sum((abs(sum(column) - w) for column, w in zip(zip(*masses, strict=True), B, strict=True)), Fraction()),
        negative=bool((P < 0).any()),
    )


def _fractions(t: np.ndarray) -> Any:
    return [_fractions(row) for row in t] if np.ndim(t) > 1 else [Fraction(float(x)) for x in t]


def _product(P: list[list[Fraction]], C: list[list[Fraction]]) -> Fraction:
    pairs = zip(P, C, strict=True)
    return sum((p * c for row, costs in pairs for p, c in zip(row, costs, strict=True)), Fraction())


class Entropic(NamedTuple):
    """A plan [n, m] with its potentials and marginals' L1 error, all points with mass; ``rounding`` of log P."""

    P: np.ndarray
    u: np.ndarray
    v: np.ndarray
    error: float
    rounding: float


def entropic(
    C: np.ndarray, a: np.ndarray, b: np.ndarray, reg: float, P: np.ndarray, u: np.ndarray, v: np.ndarray, moved: float = 0.0
) -> Entropic:
    """P, after it has turned out to be of the form that a minimiser has, among points that have mass.

    The exponent is made of four numbers and of sums of these in an order that we do not know; eight roundings of the largest
    of them are allowed, and costs that were off by ``moved``. P itself is rounded, to 2⁻¹⁰⁷⁴ at the least.
    """
    rows, columns = np.asarray(a) > 0, np.asarray(b) > 0
    P, u, v = (np.asarray(t, dtype=np.float64) for t in (P, u, v))
    assert np.isneginf(u[~rows]).all(), "an absent row has a potential"
    assert np.isneginf(v[~columns]).all(), "an absent column has a potential"
    assert not P[~rows].any(), "an absent row has mass"
    assert not P[:, ~columns].any(), "an absent column has mass"
    P, u, v, C = P[np.ix_(rows, columns)], u[rows], v[columns], np.asarray(C)[np.ix_(rows, columns)]
    assert np.isfinite(P).all()
    rounding = 8 * EPS * (1 + (abs(u).max() + abs(v).max() + abs(C).max()) / reg) + moved / reg
    expected = np.exp((u[:, None] + v - C) / reg - 1)
    np.testing.assert_allclose(P, expected, rtol=2 * rounding, atol=1e-300)
    error = float(abs(P.sum(1) - a[rows]).sum() + abs(P.sum(0) - b[columns]).sum())
    return Entropic(P, u, v, error, float(rounding))


def apart(first: Entropic, second: Entropic, reg: float, moved: float = 0.0) -> float:
    r"""How far ‖P − P'‖₁ two such plans can be apart, of costs that differ by ``moved`` at most, and of one a and b.

    With D = ‖P − P'‖₁, marginal errors ε and ε', s the greater mass and R the sup-norm distance of (u, −v) and (u', −v') in
    the best gauge, which is half the range of their differences,

        KL(P‖P') + KL(P'‖P) = Σ (P − P')(log P − log P') = Σ (P − P')(u + v − u' − v' − C + C')/λ ≤ ((ε + ε') R + D·moved)/λ

    (sums of P − P' along rows and columns are ε + ε' at most), and both divergences are D²/2s or more (docs/theorems.md,
    B.3). So D² ≤ s (ε + ε') R/λ + (s·moved/λ) D, and D ≤ s·moved/λ + √(s (ε + ε') R/λ). Rounding of P adds to all of it.
    """
    mass = max(first.P.sum(), second.P.sum())
    rounding = (first.rounding + second.rounding) * mass
    drift = np.concatenate([first.u - second.u, second.v - first.v])
    distance = (drift.max() - drift.min()) / 2
    return float(
        mass * moved / reg + np.sqrt(mass * (first.error + second.error + rounding) * distance / reg) + 2 * rounding
    )
