"""The library's entry points, as calls on a case: each returns a function to time, and a function that reads what it gave."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
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


def _filled(rng: Any, M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The matrix with ordinary numbers in place of inf, and where it was finite."""
    there = np.isfinite(M)
    return np.where(there, M, rng.choice(M[there], M.shape) if there.any() else 1.0), there


def _result(tol: float) -> Read:
    def read(r: Any) -> Answer:
        f, g = (plain(p) for p in r.potentials)
        return Answer(dense(r.plan), float(r.value), bool(r.converged), (f, g), tol)

    return read


def solve(rng: Any, case: Case) -> Door:
    tol = one_of(rng, (1e-6, 1e-9))
    return case, lambda: of.solve(case.M, case.a, case.b, reg=0, tol=tol), _result(tol)


def solve_mask(rng: Any, case: Case) -> Door:
    M, mask = _filled(rng, case.M)
    return case, lambda: of.solve(M, case.a, case.b, reg=0, mask=mask), _result(1e-6)


def solve_tensor(rng: Any, case: Case) -> Door:
    M, a, b = (None if t is None else torch.tensor(t) for t in (case.M, case.a, case.b))
    return case, lambda: of.solve(M, a, b, reg=0), _result(1e-6)


def solve_batch(rng: Any, case: Case) -> Door:
    problem = [case.M] if case.a is None and case.b is None else [(case.M, case.a, case.b)]
    beside = [np.eye(3)] * int(rng.integers(0, 3))
    return case, lambda: of.solve_batch([*beside, *problem], reg=0)[-1], _result(1e-6)


def solve_sample(rng: Any, case: Case) -> Door:
    x, y = (np.zeros((n, 1)) for n in case.shape)
    return case, lambda: of.solve_sample(x, y, case.a, case.b, reg=0, metric=lambda *_: case.M), _result(1e-6)


def solve_labels(rng: Any, case: Case) -> Door:
    assert case.labels is not None
    M = case.M.copy()
    off = case.labels[0][:, None] != case.labels[1]
    M[off] = rng.random(off.sum())
    x, y = (np.zeros((n, 1)) for n in case.shape)
    names = [np.array([f"block {k}" for k in part]) if rng.random() < 0.5 else part for part in case.labels[:1]]
    labels = (names[0], case.labels[1].astype(str) if names[0].dtype.kind == "U" else case.labels[1])
    labels = (names[0], np.array([f"block {k}" for k in case.labels[1]])) if names[0].dtype.kind == "U" else labels
    call = lambda: of.solve_sample(x, y, case.a, case.b, reg=0, metric=lambda *_: M, labels=labels)  # noqa: E731
    return case, call, _result(1e-6)


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
    return _assigned(rng, case, bool(rng.integers(2)))


def _assigned(rng: Any, case: Case, most: bool) -> Door:
    """Judged as transport of weights 1; a row or column of cost 0 takes what is left over of the longer side."""
    n, m = case.shape
    given = -case.M if most else case.M
    short = abs(n - m)
    shape = (n + (n < m), m + (m < n))
    M, big, weights = np.zeros(shape), np.zeros(shape, bool), [np.ones(k) for k in shape]
    M[:n, :m], big[:n, :m] = case.M, case.big
    if n != m:
        weights[0 if n < m else 1][-1] = short
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


DENSE = (solve, solve_mask, solve_tensor, solve_batch, solve_sample, emd, emd2)
ASSIGNMENTS = (linear_sum_assignment, assignment)
BLOCKS = (*DENSE, solve_labels, emd_sparse)
