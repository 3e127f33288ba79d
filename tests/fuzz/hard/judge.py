r"""What an answer is worth, by the optimum in whole numbers.

An answer that says it has converged is judged by three statements:

    bad plan      a negative entry, mass on a forbidden pair, marginals that are not a and b, potentials that are not
                  feasible, a permutation that is none
    wrong value   the value differs from the optimum by more than tol, or from Σ P C by more than rounding
    rest          the value is right, but only because big entries dwarf all others: P itself could be better by more than
                  tol of what its ordinary entries cost

Weights have rounding errors, and with a big M an error of 1e-17 can cost more than all the rest. So a value may be the
optimum of the weights given, or that of the marginals P has, if these are the weights given up to rounding, each of them.
Where it is off by no more than rounding of each weight can change, by the potentials of the optimum, the floats do not say
what the optimum is: such a plan, optimal for its own marginals, is "undetermined", neither right nor wrong.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from fuzz.hard import optimum
from fuzz.hard.draws import Case

KINDS = ("ok", "slow", "hang", "refused", "wrong value", "rest", "bad plan", "not converged", "undetermined", "error",
         "judge gave up", "infeasible ok")  # fmt: skip
GOOD = ("ok", "infeasible ok")
HONEST = (*GOOD, "not converged", "undetermined")  # says that it is no answer, or nobody can
PATIENCE = 5.0  # seconds of a call, where POT takes less than a tenth of one
UNITS = 8  # of rounding, that a weight may be off
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
    floor: Fraction = Fraction(1, 2**46)  # of Σ P |C|: rounding, as docs/exact.md says; 2⁷ units


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


def weights_of(case: Case, balanced: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Weights in float64 as the library reads them: None is uniform, b has the mass of a."""
    sums = [float(np.sum(w, dtype=float)) for w in (case.a, case.b) if w is not None]
    mass = sums[0] if sums else 1.0
    pairs = zip((case.a, case.b), case.shape, strict=True)
    a, b = (np.full(n, mass / n) if w is None else np.asarray(w, float) for w, n in pairs)
    return a, b * (a.sum() / b.sum()) if balanced else b


def exact_sum(values: np.ndarray, costs: np.ndarray) -> Fraction:
    return sum((Fraction(float(x)) * Fraction(float(c)) for x, c in zip(values, costs, strict=True)), Fraction(0))


def judged(case: Case, answer: Answer, known: Truth) -> tuple[str, str]:
    """A kind of KINDS, and why."""
    if not known.feasible:
        return ("bad plan", "converged, though no plan exists") if answer.converged else ("infeasible ok", "")
    if not answer.converged:
        return "not converged", f"value {answer.value!r}, optimum {_shown(known.value)}"
    if answer.plan is None:
        return _by_value(answer, known)
    wrong = _plan_fault(case, answer, known) or (answer.potentials and potentials_fault(case, *answer.potentials))
    return ("bad plan", wrong) if wrong else _by_plan(case, answer.plan, answer, known)


def _shown(x: Fraction) -> str:
    return repr(float(x))


def _near(x: Fraction, y: Fraction, size: Fraction, answer: Answer, known: Truth) -> bool:
    """Whether x is y, the optimum: to tol of it, and to rounding of costs and weights of this size, Σ P |C|."""
    return abs(x - y) <= Fraction(answer.tol) * abs(y) + (answer.floor + 4 * Fraction(known.imbalance)) * size


def _by_value(answer: Answer, known: Truth) -> tuple[str, str]:
    trees = (zip(p.best.rows, p.best.columns, p.best.flow, strict=True) for p in known.parts)
    sizes = (x * abs(p.best.f[i] + p.best.g[j]) for p, tree in zip(known.parts, trees, strict=True) for i, j, x in tree if x)
    if _near(Fraction(answer.value), known.value, sum(sizes, Fraction(0)), answer, known):  # type: ignore[arg-type]
        return "ok", ""
    loose = abs(Fraction(answer.value) - known.value) <= rounding(known)  # type: ignore[arg-type]
    return "undetermined" if loose else "wrong value", f"value {answer.value!r}, optimum {_shown(known.value)}"


def _plan_fault(case: Case, answer: Answer, known: Truth) -> str:
    P = answer.plan
    assert P is not None
    if P.shape != case.M.shape:
        return f"shape {P.shape}"
    if not np.isfinite(P).all() or (P < 0).any():
        return "a negative or infinite entry"
    if (P[~np.isfinite(case.M)] > 0).any():
        return "mass on a forbidden pair"
    a, b = weights_of(case)
    off = np.abs(P.sum(1) - a).sum() + np.abs(P.sum(0) - b).sum()
    if off > (1e-10 + float(answer.floor) + 4 * known.imbalance) * a.sum():
        return f"marginals are off by {off / a.sum():.2g} of the mass"
    return ""


def potentials_fault(case: Case, f: np.ndarray, g: np.ndarray, parts: float = 0.0) -> str:
    """Where f_i + g_j is above the cost of an allowed pair, by more than rounding of all costs, and of their parts."""
    a, b = weights_of(case)
    here = np.isfinite(case.M) & (a > 0)[:, None] & (b > 0)
    f, g, C = np.where(a > 0, f, 0.0), np.where(b > 0, g, 0.0), np.where(here, case.M, 0.0)
    if not (np.isfinite(f).all() and np.isfinite(g).all()):
        return "a potential that is not finite"
    over = np.where(here, f[:, None] - C + g, 0.0)
    size = np.abs(C) + np.abs(f)[:, None] + np.abs(g) + np.abs(C).max() + parts
    return f"potentials above the cost by {over.max():.3g}" if (over > CLOSE * size).any() else ""


def _by_plan(case: Case, P: np.ndarray, answer: Answer, known: Truth) -> tuple[str, str]:
    there, plain = P > 0, (P > 0) & ~case.big
    total, size = exact_sum(P[there], case.M[there]), exact_sum(P[there], np.abs(case.M[there]))
    rest = exact_sum(P[plain], np.abs(case.M[plain])) * (Fraction(answer.tol) + answer.floor)
    if answer.value is not None and abs(Fraction(answer.value) - total) > Fraction(1e-9) * abs(total) + answer.floor * size:
        said = f"value {answer.value!r} is not that of the plan, {_shown(total)}; optimum {_shown(known.value)}"
        return "wrong value", said
    right = _near(total, known.value, size, answer, known)
    if right and _excess(case.M, P, known) <= rest:
        return "ok", ""
    own = _own(case, P, known)
    if not right and not (_close(case, P, answer, known) and _near(total, own, size, answer, known)):
        loose = _near(total, own, size, answer, known) and abs(total - known.value) <= rounding(known)
        said = f"value {_shown(total)}, optimum {_shown(known.value)}, of its own marginals {_shown(own)}"
        return "undetermined" if loose else "wrong value", said
    if total - own > rest:
        better = f"{_shown(total - own)} less, more than {_shown(rest)}, tol of its ordinary entries"
        return "rest", f"value {_shown(total)}; the same marginals cost {better}"
    return "ok", "" if right else "optimal for its own marginals"


def rounding(known: Truth) -> Fraction:
    """What rounding of every weight can change of the value: Σ a |f| + Σ b |g| units, f being 0 where a is largest."""
    total = Fraction(0)
    for part in known.parts:
        zero = part.best.f[part.a.index(max(part.a))]
        total += sum(w * abs(u - zero) for w, u in zip(part.a, part.best.f, strict=True))
        total += sum(w * abs(u + zero) for w, u in zip(part.b, part.best.g, strict=True))
    return total * (Fraction(UNITS, 2**52) + 4 * Fraction(known.imbalance))


def _excess(M: np.ndarray, P: np.ndarray, known: Truth) -> Fraction:
    """What P costs above the bound by the potentials of the optimum, Σ P (C − f − g) ≥ 0: 0 on the optimum's support."""
    total = Fraction(0)
    for part in known.parts:
        for i, j in zip(*np.nonzero(P[np.ix_(part.rows, part.columns)]), strict=True):
            at = part.rows[i], part.columns[j]
            total += Fraction(float(P[at])) * (Fraction(float(M[at])) - part.best.f[i] - part.best.g[j])
    return total


def _own(case: Case, P: np.ndarray, known: Truth) -> Fraction:
    """The optimum for the marginals that P has, exactly; P has no mass on forbidden pairs."""
    total = Fraction(0)
    for part in known.parts:
        a, b = defaultdict[int, Fraction](Fraction), defaultdict[int, Fraction](Fraction)
        for i, j in zip(*np.nonzero(P[np.ix_(part.rows, part.columns)]), strict=True):
            x = Fraction(float(P[part.rows[i], part.columns[j]]))
            a[part.rows[i]] += x
            b[part.columns[j]] += x
        if a:
            total += _part(case, np.array([*a]), np.array([*b]), [*a.values()], [*b.values()]).best.value
    return total


def _close(case: Case, P: np.ndarray, answer: Answer, known: Truth) -> bool:
    """Whether every marginal is its weight up to rounding."""
    a, b = weights_of(case)
    slack = CLOSE + float(answer.floor) + 4 * known.imbalance
    return bool((np.abs(P.sum(1) - a) <= slack * a).all() and (np.abs(P.sum(0) - b) <= slack * b).all())
