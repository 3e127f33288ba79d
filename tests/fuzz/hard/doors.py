"""The library's entry points on a case: each gives a function to time, and one that reads what it returned."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse
import torch

from fuzz.hard.draws import Case, one_of
from fuzz.hard.judge import Answer
from fuzz.inputs import plain
from fuzz.oracles import dense
from fuzz.public import of

Read = Callable[[Any], Answer]
Door = tuple[Case, Callable[[], Any], Read]  # the problem to judge, the call, how to read its answer


def filled(rng: Any, M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The matrix with ordinary numbers in place of inf, and where it was finite."""
    there = np.isfinite(M)
    return np.where(there, M, rng.choice(M[there], M.shape) if there.any() else 1.0), there


def _result(tol: float, floor: Fraction = Answer.floor) -> Read:
    def read(r: Any) -> Answer:
        f, g = (plain(p) for p in r.potentials)
        return Answer(
            dense(r.plan), float(r.value), bool(r.converged), (f, g) if floor == Answer.floor else None, tol, floor
        )

    return read


def solve(rng: Any, case: Case) -> Door:
    tol = one_of(rng, (1e-6, 1e-9))
    return case, lambda: of.solve(case.M, case.a, case.b, reg=0, tol=tol), _result(tol)


def solve_mask(rng: Any, case: Case) -> Door:
    M, mask = filled(rng, case.M)
    return case, lambda: of.solve(M, case.a, case.b, reg=0, mask=mask), _result(1e-6)


def solve_tensor(rng: Any, case: Case) -> Door:
    M, a, b = (None if t is None else torch.tensor(t) for t in (case.M, case.a, case.b))
    return case, lambda: of.solve(M, a, b, reg=0), _result(1e-6)


def solve_single(rng: Any, case: Case) -> Door:
    """Costs of float32; above its range they are clipped."""
    case.M = np.where(np.isinf(case.M), np.inf, np.clip(case.M, -1e37, 1e37).astype(np.float32).astype(float))
    return case, lambda: of.solve(case.M.astype(np.float32), case.a, case.b, reg=0), _result(1e-6, Fraction(1, 2**17))


def solve_batch(rng: Any, case: Case) -> Door:
    """In a list beside others, or stacked."""
    if case.a is None and case.b is None:
        stacked = np.stack([rng.random(case.shape), case.M])
        return case, lambda: of.solve_batch(stacked, reg=0)[-1], _result(1e-6)
    beside: list[Any] = [np.eye(3)] * int(rng.integers(0, 3))
    return case, lambda: of.solve_batch([*beside, (case.M, case.a, case.b)], reg=0)[-1], _result(1e-6)


def solve_sample(rng: Any, case: Case) -> Door:
    x, y = (np.zeros((n, 1)) for n in case.shape)
    return case, lambda: of.solve_sample(x, y, case.a, case.b, reg=0, metric=lambda *_: case.M), _result(1e-6)


def named_labels(rng: Any, case: Case) -> tuple[np.ndarray, tuple[Any, Any]]:
    """Costs with ordinary numbers between blocks, and labels, whole numbers or words, that forbid these pairs."""
    assert case.labels is not None
    M, off = case.M.copy(), case.labels[0][:, None] != case.labels[1]
    M[off] = rng.random(off.sum())
    words = rng.random() < 0.5
    row, column = (np.array([f"block {k}" for k in part]) if words else part for part in case.labels)
    return M, (row, column)


def solve_labels(rng: Any, case: Case) -> Door:
    M, labels = named_labels(rng, case)
    x, y = (np.zeros((n, 1)) for n in case.shape)

    def call() -> Any:
        return of.solve_sample(x, y, case.a, case.b, reg=0, metric=lambda *_: M, labels=labels)

    return case, call, _result(1e-6)


def labelled_points(rng: Any, case: Case) -> tuple[Case, np.ndarray, np.ndarray, dict[str, Any]]:
    """Blocks of points in the plane, whose costs are distances, and how to say so."""
    x, y = rng.random((case.shape[0], 2)), rng.random((case.shape[1], 2))
    _, labels = named_labels(rng, case)
    squares = ((x[:, None] - y) ** 2).sum(-1)
    M = np.where(case.labels[0][:, None] == case.labels[1], squares, np.inf)  # type: ignore[index]
    return replace(case, M=M), x, y, {"labels": labels, "executor": one_of(rng, ("auto", "dense", "stream"))}


def solve_points(rng: Any, case: Case) -> Door:
    posed, x, y, how = labelled_points(rng, case)
    return posed, lambda: of.solve_sample(x, y, case.a, case.b, reg=0, **how), _result(1e-6)


def _emd_read(found: Any) -> Answer:
    plan, log = found
    return Answer(dense(plan), float(log["cost"]), log["result_code"] == 1, (plain(log["u"]), plain(log["v"])), 1e-9)


def _lists(case: Case) -> list[Any]:
    return [[] if w is None else w for w in (case.a, case.b)]


def emd(rng: Any, case: Case) -> Door:
    return case, lambda: of.emd(*_lists(case), case.M, log=True), _emd_read


def emd_sparse(rng: Any, case: Case) -> Door:
    i, j = np.nonzero(np.isfinite(case.M))
    M = scipy.sparse.coo_array((case.M[i, j], (i, j)), shape=case.shape)
    if rng.random() < 0.5:
        M = M.tocsr()
    return case, lambda: of.emd(*_lists(case), M, log=True), _emd_read


def emd2(rng: Any, case: Case) -> Door:
    def read(found: Any) -> Answer:
        value, log = found
        return Answer(None, float(value), log["result_code"] == 1, tol=1e-9)

    return case, lambda: of.emd2(*_lists(case), case.M, log=True), read


def linear_sum_assignment(rng: Any, case: Case) -> Door:
    """Judged as transport of weights 1; a row or column of cost 0 takes what is left over of the longer side."""
    (n, m), most = case.shape, bool(rng.integers(2))
    given = -case.M if most else case.M
    shape = (n + (n < m), m + (m < n))
    M, big, weights = np.zeros(shape), np.zeros(shape, bool), [np.ones(k) for k in shape]
    M[:n, :m], big[:n, :m] = case.M, case.big
    if n != m:
        weights[0 if n < m else 1][-1] = abs(n - m)
    posed = replace(case, M=M, big=big, a=weights[0], b=weights[1], words=[*case.words, "maximize" if most else "minimize"])

    def read(found: Any) -> Answer:
        rows, columns = (plain(k).astype(int) for k in found)
        assert len(set(rows)) == len(set(columns)) == len(rows) == len(columns) == min(n, m), "not one to one"
        P = np.zeros(shape)
        P[rows, columns] = 1.0
        if n < m:
            P[-1] = 1 - P[:-1].sum(0)
        if m < n:
            P[:, -1] = 1 - P[:, :-1].sum(1)
        return Answer(P, None, True, tol=1e-9)

    return posed, lambda: of.linear_sum_assignment(given, maximize=most), read


def assignment(rng: Any, case: Case) -> Door:
    n = min(case.shape)
    posed = replace(case, M=case.M[:n, :n], big=case.big[:n, :n], a=np.ones(n), b=np.ones(n), labels=None)
    x = np.zeros((n, 1))

    def read(sigma: Any) -> Answer:
        sigma = plain(sigma).astype(int)
        assert sorted(sigma) == list(range(n)), "not a permutation"
        P = np.zeros((n, n))
        P[np.arange(n), sigma] = 1.0
        return Answer(P, None, True, tol=1e-6)

    return posed, lambda: of.assignment(x, x, metric=lambda *_: posed.M), read


def quiet(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a call returns, and its warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        return call(), [str(w.message) for w in told]


DENSE = (solve, solve_mask, solve_tensor, solve_single, solve_batch, solve_sample, emd, emd2)
ASSIGNMENTS = (linear_sum_assignment, assignment)
BLOCKS = (*DENSE, solve_labels, solve_points, emd_sparse)
