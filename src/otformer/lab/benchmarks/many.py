"""Many small problems: one call at n = 20, and ten thousand ragged sentences; against a loop over POT's ``sinkhorn``.

Each is a task of one process; the two sides take turns call by call (``small``) or part by part (``ragged``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import mean, median
from typing import Any

import numpy as np

from otformer.lab.benchmarks.measure import marginal_error, peak_memory, tuned
from otformer.lab.benchmarks.peers import PEERS, Answer, ours
from otformer.lab.benchmarks.problems import Problem, make, sentences

POT = "POT sinkhorn"
CALLS = 1500  # calls of each side per problem of ``small``; fewer where a call is slow
BUDGET = 5.0  # seconds for all calls of the slower side
SAMPLE = 300  # sentences that POT solves; its time for all of them is extrapolated from these
REG = 0.05


def _prepared(name: str, problem: Problem, reg: float, tol: float) -> Callable[[], Answer]:
    """The call of a peer at the least effort, a power of two, at which the computed error is below ``tol``."""
    return PEERS[name].prepare(problem, reg, tol, tuned(PEERS[name], problem, reg, tol).effort)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return thread CPU seconds and the result."""
    start = time.thread_time()
    out = call()
    return time.thread_time() - start, out


def small(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """n = 20, one call: medians over many calls, the two sides in turns."""
    rows = []
    for family, reg in (("uniform-2d", REG), ("gaussian-10d", REG), ("words", REG), ("random", REG), ("uniform-2d", 0.01)):
        problem = make(family, 20, spec["seed"])
        calls = {name: _prepared(name, problem, reg, spec["tol"]) for name in ("otformer", POT)}
        first = {name: _timed(call) for name, call in calls.items()}
        count = min(CALLS, max(20, int(BUDGET / max(seconds for seconds, _ in first.values()))))
        turns = [[_timed(call)[0] for call in calls.values()] for _ in range(count)]
        for name, cpu in zip(calls, zip(*turns, strict=True), strict=True):
            answer, middle = first[name][1], median(cpu)
            row = {"family": family, "n": 20, "reg": reg, "peer": name, "rounds": count, "time": middle, "wall": middle}
            rows.append(row | {"passes": answer.passes, "error": marginal_error(problem, answer, reg)})
    return rows


def ragged(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """``count`` sentence pairs: ours in one call, POT on a sample, extrapolated in proportion."""
    import otformer as of

    tol, count = spec["tol"], spec["count"]
    problems = sentences(count, spec["seed"])
    sample = problems[:SAMPLE]
    loop = [_prepared(POT, p, REG, tol) for p in sample]

    def solve_all(some: list[Problem]) -> list[Answer]:
        return [ours(r, REG) for r in of.solve_batch([(p.C, p.a, p.b) for p in some], reg=REG, tol=tol)]

    solve_all(sample[:50])
    before, times = peak_memory(), []
    for _ in range(spec["rounds"]):
        seconds, answers = _timed(lambda: solve_all(problems))
        each, others = zip(*(_timed(call) for call in loop), strict=True)
        times.append((seconds, mean(each) * count, median(each) * count))
    memory = peak_memory() - before
    mine, theirs, typical = (median(column) for column in zip(*times, strict=True))
    worst, worst_pot = (
        max(marginal_error(p, one, REG) for p, one in zip(problems, found, strict=False)) for found in (answers, others)
    )
    if not worst < tol:
        raise RuntimeError(f"otformer's computed error is {worst:.3g} on the worst of {count} sentences, tol is {tol:g}")
    pairs = zip(sample, answers, others, strict=False)
    gap = max(float(np.abs(_plan(p, answer) - _plan(p, other)).max()) for p, answer, other in pairs)
    note = (
        f"from {len(sample)} of {count} sentences; a few slow ones dominate: were all like the median, "
        f"{typical:.3g} s; plans differ from ours by at most {gap:.1e}"
    )
    common = {"family": "sentences", "n": count, "reg": REG, "rounds": spec["rounds"]}
    return [
        common | {"peer": "otformer", "time": mine, "wall": mine, "error": worst, "memory": memory},
        common | {"peer": POT, "time": theirs, "wall": theirs, "error": worst_pot, "note": note},
    ]


def _plan(p: Problem, answer: Answer) -> np.ndarray:
    return np.exp(answer.f[:, None] + answer.g - p.C / REG)
