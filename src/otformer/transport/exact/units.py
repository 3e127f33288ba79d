r"""Weights as whole numbers, so that flows are exact: a_i ≈ s_i·unit and b_j ≈ t_j·unit with Σ s = Σ t.

Equal weights on each side are n and m over their common divisor, and whole numbers are what they are: exact. All others are
counted in units of 2⁻⁶⁰ of the mass, 128 times finer than float64 numbers as large as the mass; what rounding leaves is
given to the largest weight.

**What rounding moves.** A plan P for s and t instead of a and b has value − (Σ s f + Σ t g)·unit as its gap. The bound is of
a and b, and lower by (Σ s f + Σ t g)·unit − (Σ a f + Σ b g): this belongs to the gap, or the plan that lacks a weight below
2⁻⁶¹ of the mass, however dear, would be called optimal. The marginal error tells of the mass itself.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
TOTAL = 2**60
LARGEST_WHOLE = 2.0**53  # sums of whole numbers below it are exact in float64


class Units(NamedTuple):
    """Whole numbers [n] and [m] of the same sum, and what one of them is worth."""

    supply: Ints
    demand: Ints
    unit: float
    rounded: bool = True  # not exactly the weights

    def reordered(self, rows: Ints, columns: Ints) -> Units:
        return self._replace(supply=self.supply[rows], demand=self.demand[columns])

    def moved(self, a: np.ndarray, b: np.ndarray, f: np.ndarray, g: np.ndarray) -> float:
        """(Σ s f + Σ t g)·unit − (Σ a f + Σ b g), from the rounding error of each weight.

        >>> a, b, f = np.array([1.0, 1e-20]), np.array([0.5, 0.5]), np.array([0.0, 1e25])
        >>> in_units(a, b, 1.0).moved(a, b, f, np.zeros(2))
        -100000.0
        """
        if not self.rounded:
            return 0.0
        return float((self.supply * self.unit - a) @ f + (self.demand * self.unit - b) @ g)


def in_units(a: np.ndarray, b: np.ndarray, mass: float) -> Units:
    """Positive weights of the same sum.

    >>> in_units(np.full(4, 0.25), np.full(6, 1 / 6), 1.0)[:2]
    (array([3, 3, 3, 3]), array([2, 2, 2, 2, 2, 2]))
    >>> in_units(np.array([2.0, 3.0]), np.array([4.0, 1.0]), 5.0)
    Units(supply=array([2, 3]), demand=array([4, 1]), unit=1.0, rounded=False)
    """
    if (a == a[0]).all() and (b == b[0]).all():
        n, m = len(a), len(b)
        common = math.gcd(n, m)
        return Units(np.full(n, m // common), np.full(m, n // common), mass * common / (n * m), rounded=False)
    if mass < LARGEST_WHOLE and (a == np.rint(a)).all() and (b == np.rint(b)).all() and a.sum() == b.sum():
        return Units(a.astype(np.int64), b.astype(np.int64), 1.0, rounded=False)
    return Units(_whole(a, mass), _whole(b, mass), mass / TOTAL)


def _whole(w: np.ndarray, mass: float) -> Ints:
    s = np.rint(w / mass * TOTAL).astype(np.int64)
    s[s.argmax()] += TOTAL - s.sum()
    return s
