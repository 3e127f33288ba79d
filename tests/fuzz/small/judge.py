r"""What an answer is worth, by the optimum in whole numbers (fuzz.hard.optimum); nothing is forgiven but rounding.

    bad plan                a negative entry, marginals that are not a and b, potentials above the cost of a pair
    wrong value             the value differs from Σ P C of its own plan
    wrong bound             the bound is above the optimum, by more than 2^-52 of the range of costs
    bound rounded up        the bound is above the optimum by less than that, which docs/exact.md says of it
    converged, not optimal  Σ P C differs from the optimum, though the answer says that it does not
    not converged           an answer that says so

Σ P C is a sum of fractions. Rounding is 2^-46 of Σ P |C|, as docs/exact.md says; of mass where costs are cosines, which are
differences of numbers of size 1. Where weights are 1/n on one side and 1/m on the other, floats do not have them: there the
optimum of weights that differ by rounding counts too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fuzz.hard.draws import Case
from fuzz.hard.judge import Truth, exact_sum, potentials_fault, rounding, weights_of

KINDS = ("ok", "hang", "error", "refused", "bad plan", "wrong value", "wrong bound", "converged, not optimal", "slow",
         "judge gave up", "bound rounded up", "not converged")  # fmt: skip
GOOD = ("ok", "bound rounded up", "not converged")
UNIT = Fraction(1, 2**46)


@dataclass
class Answer:
    """What a call gave, in numpy and float64. ``cosine``: costs have an error of their own."""

    plan: np.ndarray
    value: float
    bound: float
    converged: bool
    potentials: tuple[np.ndarray, np.ndarray]
    cosine: bool = False


def judged(case: Case, answer: Answer, known: Truth) -> tuple[str, str]:
    """A kind of KINDS, and why."""
    P = answer.plan
    if wrong := plan_fault(case, P) or potentials_fault(case, *answer.potentials, float(answer.cosine)):
        return "bad plan", wrong
    there = P > 0
    total, size = exact_sum(P[there], case.M[there]), exact_sum(P[there], np.abs(case.M[there]))
    slack = UNIT * (size + (exact_sum(P[there], np.ones(there.sum())) if answer.cosine else 0))
    if case.a is None and case.shape[0] != case.shape[1]:
        slack += rounding(known)
    told = f"value {answer.value!r}, Σ P C {float(total)!r}, optimum {float(known.value)!r}, bound {answer.bound!r}"
    if not np.isfinite([answer.value, answer.bound]).all() or abs(Fraction(answer.value) - total) > slack:
        return "wrong value", told
    above = Fraction(answer.bound) - known.value - slack
    if above > Fraction(np.ptp(case.M)) * sum(map(Fraction, weights_of(case)[0])) / 2**52:
        return "wrong bound", told
    if answer.converged and abs(total - known.value) > slack:
        return "converged, not optimal", told
    if above > 0:
        return "bound rounded up", told
    return ("ok", "") if answer.converged else ("not converged", told)


def plan_fault(case: Case, P: np.ndarray) -> str:
    """What keeps P from being a plan, to rounding of the mass."""
    if P.shape != case.M.shape:
        return f"shape {P.shape}"
    if not np.isfinite(P).all() or (P < 0).any():
        return "a negative or infinite entry"
    a, b = weights_of(case, balanced=False)
    off = np.abs(P.sum(1) - a).sum() + np.abs(P.sum(0) - b).sum()
    return f"marginals are off by {off / a.sum():.2g} of the mass" if off > float(UNIT) * a.sum() else ""
