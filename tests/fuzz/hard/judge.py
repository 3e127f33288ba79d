r"""What an answer is worth, by the optimum in whole numbers.

A plan P of floats is judged by three statements:

    bad plan           a negative entry, mass on a forbidden pair, marginals that are not a and b, potentials that are not
                       feasible, a value that is not Σ P C, a permutation that is none
    wrong value        converged, but the value differs from the optimum by more than tol
    rest not optimal   the value is right, but only because big entries dwarf all others: P itself could be better by more
                       than tol of what its ordinary entries cost

Weights have rounding errors, and with a big M an error of 1e-17 can cost more than all the rest. So a value may be the
optimum of the weights given, or that of the marginals P has, if these are the weights given up to rounding, each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from fuzz.hard import optimum
from fuzz.hard.draws import Case

KINDS = ("ok", "slow", "hang", "refused", "wrong value", "rest", "bad plan", "not converged", "error",
         "judge gave up", "infeasible ok")  # fmt: skip
PATIENCE = 5.0  # seconds of a call, where POT takes less than a tenth of one
FLOOR = Fraction(1, 2**46)  # of Σ P |C|, as docs/exact.md says
CLOSE = 1e-12  # relative: rounding of a weight, of a sum
BALANCE = {False: 1e-12, True: 1e-5}  # relative: masses of a block that agree to rounding, of float64 and of float32


@dataclass
class Answer:
    """What a call gave, in numpy and float64; None where it does not give it."""

    plan: np.ndarray | None = None  # [n, m]
    value: float | None = None
    converged: bool = True
    potentials: tuple[np.ndarray, np.ndarray] | None = None
    tol: float = 1e-6


@dataclass
class Part:
    """One block: its rows and columns, its weights, and its optimum."""

    rows: np.ndarray
    columns: np.ndarray
    a: list[Fraction]
    b: list[Fraction]
    best: optimum.Optimum


@dataclass
class Truth:
    parts: list[Part]
    value: Fraction
    feasible: bool
    imbalance: float  # greatest relative difference of a block's masses


def truth(case: Case) -> Truth:
    """The optimum of every block; a block whose masses differ by more than rounding makes it infeasible."""
    n, m = case.shape
    limit = BALANCE[any(w is not None and w.dtype == np.float32 for w in (case.a, case.b))]
    a, b = optimum.fractions(case.a, n), optimum.fractions(case.b, m)
    if case.a is None and case.b is not None:
        a = optimum.fractions(None, n, sum(b))
    if case.b is None and case.a is not None:
        b = optimum.fractions(None, m, sum(a))
    times = sum(a) / sum(b)
    b = [w * times for w in b]
    parts, worst, feasible = [], 0.0, True
    for rows, columns in components(case, a, b):
        wa, wb = [a[i] for i in rows], [b[j] for j in columns]
        big, small = max(sum(wa), sum(wb)), min(sum(wa), sum(wb))
        worst = max(worst, float((big - small) / big))
        if not small or worst > limit:
            feasible = False
            continue
        parts.append(_part(case, rows, columns, wa, wb))
        feasible &= parts[-1].best.forbidden <= limit * small
    return Truth(parts, sum((p.best.value for p in parts), Fraction(0)), feasible, worst)


def _part(case: Case, rows: Any, columns: Any, a: list[Fraction], b: list[Fraction]) -> Part:
    at = np.ix_(rows, columns)
    start = optimum.start_of(case.M[at], a, b, case.big[at])
    return Part(rows, columns, a, b, optimum.solved(case.M[at], a, b, start))


def components(case: Case, a: list[Fraction], b: list[Fraction]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows and columns of every block, of points that have mass."""
    n, m = case.shape
    there = np.array([w > 0 for w in a])[:, None] & np.array([w > 0 for w in b]) & np.isfinite(case.M)
    graph = np.zeros((n + m, n + m), bool)
    graph[:n, n:] = there
    _, label = connected_components(graph, directed=False)
    has = np.array([w > 0 for w in (*a, *b)])
    labels = np.unique(label[has])
    return [(np.flatnonzero((label[:n] == k) & has[:n]), np.flatnonzero((label[n:] == k) & has[n:])) for k in labels]


def exact_sum(values: np.ndarray, costs: np.ndarray) -> Fraction:
    return sum((Fraction(float(x)) * Fraction(float(c)) for x, c in zip(values, costs, strict=True)), Fraction(0))


def judged(case: Case, answer: Answer, known: Truth) -> tuple[str, str]:
    """A kind of KINDS, and why."""
    if not known.feasible:
        return ("bad plan", "converged, though no plan exists") if answer.converged else ("infeasible ok", "")
    if answer.plan is None:
        return _by_value(answer, known)
    wrong = _plan_fault(case, answer, known)
    if wrong:
        return ("bad plan" if answer.converged else "not converged"), wrong
    return _by_plan(case, answer, known)


def _by_value(answer: Answer, known: Truth) -> tuple[str, str]:
    size = sum((abs(x) * abs(c) for x, c in _pairs(known)), Fraction(0))
    off = abs(Fraction(answer.value) - known.value)  # type: ignore[arg-type]
    if off <= Fraction(answer.tol) * abs(known.value) + FLOOR * size:
        return "ok", ""
    return "wrong value", f"value {answer.value!r}, optimum {float(known.value)!r}"


def _pairs(known: Truth) -> list[tuple[Fraction, Fraction]]:
    return [(x, p.best.f[i] + p.best.g[j]) for p in known.parts
            for i, j, x in zip(p.best.rows, p.best.columns, p.best.flow, strict=True) if x]  # fmt: skip


def _plan_fault(case: Case, answer: Answer, known: Truth) -> str:
    P, M = answer.plan, case.M
    assert P is not None
    if not np.isfinite(P).all() or (P < 0).any():
        return "a negative or infinite entry"
    if P.shape != M.shape:
        return f"shape {P.shape}"
    if (P[~np.isfinite(M)] > 0).any():
        return "mass on a forbidden pair"
    a, b = _weights(case)
    slack = (1e-9 + 4 * known.imbalance) * a.sum()
    off = np.abs(P.sum(1) - a).sum() + np.abs(P.sum(0) - b).sum()
    if off > slack:
        return f"marginals are off by {off / a.sum():.2g} of the mass"
    if answer.potentials is not None:
        f, g = answer.potentials
        f, g = np.where(a > 0, f, 0.0), np.where(b > 0, g, 0.0)
        here = np.isfinite(M) & (a > 0)[:, None] & (b > 0)
        if not (np.isfinite(f).all() and np.isfinite(g).all()):
            return "a potential that is not finite"
        C = np.where(here, M, 0.0)
        over = np.where(here, f[:, None] + g - C, 0.0)
        size = np.abs(C) + np.abs(f)[:, None] + np.abs(g)
        if (over > 1e-13 * size + 1e-13 * np.abs(C).max()).any():
            return f"potentials above the cost by {over.max():.3g}"
    return ""


def _weights(case: Case) -> tuple[np.ndarray, np.ndarray]:
    n, m = case.shape
    mass = float(np.sum(case.a, dtype=float)) if case.a is not None else float(np.sum(case.b, dtype=float)) if case.b is not None else 1.0
    a = np.full(n, mass / n) if case.a is None else np.asarray(case.a, float)
    b = np.full(m, mass / m) if case.b is None else np.asarray(case.b, float)
    return a, b * (a.sum() / b.sum())


def _by_plan(case: Case, answer: Answer, known: Truth) -> tuple[str, str]:
    P, M = answer.plan, case.M
    assert P is not None
    there = P > 0
    total, size = exact_sum(P[there], M[there]), exact_sum(P[there], np.abs(M[there]))
    value = total if answer.value is None else Fraction(answer.value)
    if abs(value - total) > Fraction(1e-9) * abs(total) + FLOOR * size:
        return "bad plan", f"value {float(value)!r} is not that of the plan, {float(total)!r}"
    if not answer.converged:
        return "not converged", f"value {float(total)!r}, optimum {float(known.value)!r}"
    tol = Fraction(answer.tol)
    right = abs(total - known.value) <= tol * abs(known.value) + FLOOR * size
    plain = there & ~case.big
    rest = exact_sum(P[plain], np.abs(M[plain]))
    better = _excess(P, M, known)  # bound by the potentials of the optimum: 0 on its support
    if right and better <= tol * rest + FLOOR * rest:
        return "ok", ""
    own = _own(case, P, known)  # P's own marginals
    if own is None:
        return ("rest" if right else "wrong value"), f"value {float(total)!r}, optimum {float(known.value)!r}"
    excess = total - own
    close = _close(case, P, known)
    if not right and not (close and excess <= tol * abs(own) + FLOOR * size):
        return "wrong value", f"value {float(total)!r}, optimum {float(known.value)!r}, of its own marginals {float(own)!r}"
    if excess > tol * rest + FLOOR * rest:
        return "rest", f"value {float(total)!r}; the same marginals cost {float(excess):.3g} less, ordinary entries {float(rest):.3g}"
    return "ok", "" if right else "optimal for its own marginals"


def _excess(P: np.ndarray, M: np.ndarray, known: Truth) -> Fraction:
    total = Fraction(0)
    for part in known.parts:
        for i, j in zip(*np.nonzero(P[np.ix_(part.rows, part.columns)] > 0), strict=True):
            r, c = part.rows[i], part.columns[j]
            total += Fraction(float(P[r, c])) * (Fraction(float(M[r, c])) - part.best.f[i] - part.best.g[j])
    return total


def _own(case: Case, P: np.ndarray, known: Truth) -> Fraction | None:
    """The optimum for the marginals that P has, exactly."""
    total = Fraction(0)
    for part in known.parts:
        F = [[Fraction(float(x)) for x in row] for row in P[np.ix_(part.rows, part.columns)]]
        a, b = [sum(row) for row in F], [sum(column) for column in zip(*F, strict=True)]
        rows, columns = np.array([x > 0 for x in a]), np.array([x > 0 for x in b])
        if not rows.any():
            continue
        own = _part(case, part.rows[rows], part.columns[columns], [x for x in a if x], [x for x in b if x])  # type: ignore[misc]
        if own.best.forbidden:
            return None
        total += own.best.value
    return total


def _close(case: Case, P: np.ndarray, known: Truth) -> bool:
    """Whether every marginal is its weight up to rounding."""
    a, b = _weights(case)
    slack = CLOSE + 4 * known.imbalance
    return bool((np.abs(P.sum(1) - a) <= slack * a).all() and (np.abs(P.sum(0) - b) <= slack * b).all())
