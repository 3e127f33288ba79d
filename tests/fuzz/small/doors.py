"""The public functions that solve exactly, on a small problem: each is called, and its answer read."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.inputs import plain
from fuzz.oracles import dense
from fuzz.public import of
from fuzz.small.judge import Answer
from fuzz.small.problems import Small


def _read(result: Any) -> Answer:
    f, g = (plain(p) for p in result.potentials)
    return Answer(dense(result.plan), float(result.value), float(result.bound), bool(result.converged), (f, g))


def solve(small: Small) -> Answer:
    case = small.case
    return _read(of.solve(case.M, case.a, case.b, reg=0))


def solve_sample(small: Small) -> Answer:
    """From points; a matrix is handed in as a metric."""
    p, case = small.problem, small.case
    if p.M is None:
        answer = _read(of.solve_sample(p.x, p.y, p.a, p.b, reg=0, metric=p.metric))
        answer.cosine = p.metric == "cosine"
        return answer
    x, y = (np.zeros((n, 1)) for n in p.shape)
    return _read(of.solve_sample(x, y, p.a, p.b, reg=0, metric=lambda *_: case.M))


def emd(small: Small) -> Answer:
    """POT's call: the bound is the value less the gap."""
    case = small.case
    plan, log = of.emd(*([] if w is None else w for w in (case.a, case.b)), case.M, log=True)
    cost = float(log["cost"])
    return Answer(dense(plan), cost, cost - float(log["gap"]), log["result_code"] == 1, (plain(log["u"]), plain(log["v"])))


def solve_batch(small: Small) -> Answer:
    """The second of two like it, stacked where weights are equal."""
    case = small.case
    given: Any = np.stack([case.M, case.M]) if case.a is None else [np.eye(3), (case.M, case.a, case.b)]
    return _read(of.solve_batch(given, reg=0)[1])


DOORS = (solve, solve_sample, emd, solve_batch)
