r"""Entropic problems that fall into blocks, judged by the conditions of the optimum, which need no solver.

Balanced: P is the optimum for its own marginals if and only if log P_ij + C_ij/λ = u_i + v_j on all allowed pairs; the
marginals are checked beside it. Unbalanced, with R = a bᵀ:

    λ log(P_ij/(a_i b_j)) + C_ij + ρ log(Σ_j P_ij/a_i) + ρ log(Σ_i P_ij/b_j) = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.linalg import lsqr

from fuzz.hard.doors import Case, filled, labelled_points, named_labels, one_of
from fuzz.hard.judge import Truth, weights_of
from fuzz.oracles import dense
from fuzz.public import of

LEAST = 1e-250  # entries below it have lost digits
FORM = 1e-5  # of log P: what is left of its form


class Asked(NamedTuple):
    """λ, ρ or None, and the tolerance of a call."""

    lam: float
    rho: float | None
    tol: float


Entropic = tuple[Case, Asked, Callable[[], Any], Callable[[Any, list[str]], tuple[np.ndarray, bool]]]


def _spread(case: Case) -> float:
    finite = case.M[np.isfinite(case.M)]
    return float(finite.max() - finite.min()) or 1.0


def _asked(rng: Any, case: Case, rho: float | None = None, tol: float = 1e-6) -> Asked:
    spread = _spread(case)
    return Asked(one_of(rng, (1.0, 0.1, 0.01)) * spread, None if rho is None else rho * spread, tol)


def _result(r: Any, _: list[str]) -> tuple[np.ndarray, bool]:
    return dense(r.plan), bool(r.converged)


def solve(rng: Any, case: Case) -> Entropic:
    asked = _asked(rng, case)
    return case, asked, lambda: of.solve(case.M, case.a, case.b, reg=asked.lam), _result


def solve_mask(rng: Any, case: Case) -> Entropic:
    asked, (M, mask) = _asked(rng, case), filled(rng, case.M)
    return case, asked, lambda: of.solve(M, case.a, case.b, reg=asked.lam, mask=mask), _result


def solve_labels(rng: Any, case: Case) -> Entropic:
    asked, (M, labels) = _asked(rng, case), named_labels(rng, case)
    x, y = (np.zeros((n, 1)) for n in case.shape)

    def call() -> Any:
        return of.solve_sample(x, y, case.a, case.b, reg=asked.lam, metric=lambda *_: M, labels=labels)

    return case, asked, call, _result


def solve_points(rng: Any, case: Case) -> Entropic:
    posed, x, y, how = labelled_points(rng, case)
    asked = _asked(rng, posed)
    return posed, asked, lambda: of.solve_sample(x, y, case.a, case.b, reg=asked.lam, **how), _result


def solve_batch(rng: Any, case: Case) -> Entropic:
    asked = _asked(rng, case)
    return case, asked, lambda: of.solve_batch([(case.M, case.a, case.b)], reg=asked.lam)[0], _result


def sinkhorn(rng: Any, case: Case) -> Entropic:
    asked = _asked(rng, case, tol=1e-9)
    call = lambda: of.sinkhorn(case.a, case.b, case.M, asked.lam, numItermax=10_000)  # noqa: E731
    return case, asked, call, lambda P, told: (dense(P), not told)


def solve_unbalanced(rng: Any, case: Case) -> Entropic:
    asked = _asked(rng, case, one_of(rng, (0.1, 1.0, 10.0)))
    return case, asked, lambda: of.solve(case.M, case.a, case.b, reg=asked.lam, unbalanced=asked.rho), _result


DOORS = (solve, solve_mask, solve_labels, solve_points, solve_batch, sinkhorn)


def judged(case: Case, asked: Asked, P: np.ndarray, converged: bool, known: Truth) -> tuple[str, str]:
    """A kind of `judge.KINDS`, and why."""
    if asked.rho is None and not known.feasible:
        return ("bad plan", "converged, though no plan exists") if converged else ("infeasible ok", "")
    if not np.isfinite(P).all() or (P < 0).any():
        return "bad plan", "a negative or infinite entry"
    if (P[~np.isfinite(case.M)] > 0).any():
        return "bad plan", "mass on a forbidden pair"
    a, b = weights_of(case, balanced=asked.rho is None)
    if not converged and asked.rho is None and known.imbalance > asked.tol / 10:
        return "ok", "rounding of the weights is above the tolerance"
    if not converged:
        return "not converged", f"marginals are off by {_off(P, a, b):.2g}"
    if asked.rho is not None:
        wrong = _residual(case.M, P, a, b, asked.lam, asked.rho)
        return ("ok", "") if wrong <= FORM else ("wrong value", f"the condition of the optimum is off by {wrong:.2g}")
    if _off(P, a, b) > (2 * asked.tol + 4 * known.imbalance) * max(1.0, a.sum()):
        return "bad plan", f"converged, and marginals are off by {_off(P, a, b):.2g}"
    wrong = _from_form(case.M / asked.lam, P)
    return ("ok", "") if wrong <= FORM else ("wrong value", f"log P is off its form by {wrong:.2g}")


def _off(P: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(P.sum(1) - a).sum() + np.abs(P.sum(0) - b).sum())


def _from_form(C: np.ndarray, P: np.ndarray) -> float:
    """How far log P + C is from u_i + v_j at most, with the u and v of least squares."""
    i, j = np.nonzero(P > LEAST)
    L = np.log(P[i, j]) + C[i, j]
    n, m = P.shape
    k = np.arange(len(i))
    A = coo_array((np.ones(2 * len(i)), (np.concatenate([k, k]), np.concatenate([i, n + j]))), shape=(len(i), n + m)).tocsr()
    fit = lsqr(A, L, atol=1e-14, btol=1e-14, iter_lim=5000)[0]
    return float(np.abs(A @ fit - L).max(initial=0.0))


def _residual(M: np.ndarray, P: np.ndarray, a: np.ndarray, b: np.ndarray, lam: float, rho: float) -> float:
    i, j = np.nonzero(P > LEAST)
    row, column = np.log(P.sum(1)[i] / a[i]), np.log(P.sum(0)[j] / b[j])
    return float(np.abs(np.log(P[i, j] / a[i] / b[j]) + M[i, j] / lam + rho / lam * (row + column)).max(initial=0.0))
