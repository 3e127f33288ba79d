"""Many small problems: one call at n = 20, and ten thousand ragged sentences; against a loop over POT's ``sinkhorn``.

Runs in one process; the two sides take turns call by call (``small``) or part by part (``ragged``).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from otformer.benchmarks.measure import EFFORTS, marginal_error, peak_memory, pin
from otformer.benchmarks.peers import PEERS, Answer, Peer, ours
from otformer.benchmarks.problems import Problem, make, sentences

POT = "POT sinkhorn"
CALLS = 1500  # calls of each side per problem of ``small``; fewer where a call is slow
BUDGET = 5.0  # seconds for all calls of the slower side
SAMPLE = 300  # sentences that POT solves; its time for all of them is extrapolated from these
REG = 0.05


def effort_for(peer: Peer, problem: Problem, reg: float, tol: float) -> float:
    """The least power of two at which the computed error is below ``tol``."""
    effort = 1.0
    while marginal_error(problem, peer.prepare(problem, reg, tol, effort)(), reg) >= tol:
        if effort >= EFFORTS:
            raise RuntimeError(f"{peer.name} does not reach {tol:g} on {problem.family}, n = {len(problem.a)}, λ = {reg:g}")
        effort *= 2
    return effort


def small(tol: float, seed: int) -> list[dict[str, Any]]:
    """n = 20, one call: medians over many calls, the two sides in turns."""
    rows = []
    for family, reg in (("uniform-2d", REG), ("gaussian-10d", REG), ("words", REG), ("random", REG), ("uniform-2d", 0.01)):
        problem = make(family, 20, seed)
        names = ("otformer", POT)
        efforts = {name: effort_for(PEERS[name], problem, reg, tol) for name in names}
        calls = {name: PEERS[name].prepare(problem, reg, tol, efforts[name]) for name in names}
        first = {name: _timed(call) for name, call in calls.items()}
        count = min(CALLS, max(20, int(BUDGET / max(seconds for seconds, _ in first.values()))))
        cpu: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(count):
            for name, call in calls.items():
                cpu[name].append(_timed(call)[0])
        for name in names:
            answer = first[name][1]
            error = marginal_error(problem, answer, reg)
            middle = statistics.median(cpu[name])
            common = {"scenario": "small", "family": family, "n": 20, "reg": reg, "peer": name, "rounds": count}
            rows.append(common | {"time": middle, "wall": middle, "passes": answer.passes, "error": error})
    return rows


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of this thread, and what came of them."""
    start = time.thread_time()
    out = call()
    return time.thread_time() - start, out


def solve_all(problems: Sequence[Problem], reg: float, tol: float) -> list[Answer]:
    """Ours, in one call."""
    import otformer as of

    return [ours(r, reg) for r in of.solve_batch([(p.C, p.a, p.b) for p in problems], reg=reg, tol=tol)]


def ragged(tol: float, seed: int, count: int, rounds: int) -> list[dict[str, Any]]:
    """``count`` sentence pairs: ours in one call, POT on a sample, extrapolated in proportion."""
    problems = sentences(count, seed)
    sample = problems[:SAMPLE]
    pot = PEERS[POT]
    loop = [pot.prepare(p, REG, tol, effort_for(pot, p, REG, tol)) for p in sample]
    solve_all(sample[:50], REG, tol)
    mine: list[float] = []
    theirs: list[float] = []
    middle: list[float] = []
    memory = peak_memory()
    for _ in range(rounds):
        seconds, answers = _timed(lambda: solve_all(problems, REG, tol))
        mine.append(seconds)
        each, others = zip(*(_timed(call) for call in loop), strict=True)
        theirs.append(statistics.mean(each) * count)
        middle.append(statistics.median(each) * count)
    memory = peak_memory() - memory
    worst = max(marginal_error(p, answer, REG) for p, answer in zip(problems, answers, strict=True))
    if not worst < tol:
        raise RuntimeError(f"otformer's computed error is {worst:.3g} on the worst of {count} sentences, tol is {tol:g}")
    pairs = zip(sample, answers[: len(sample)], others, strict=True)
    gap = max(float(np.abs(_plan(p, answer) - _plan(p, other)).max()) for p, answer, other in pairs)
    worst_pot = max(marginal_error(p, other, REG) for p, other in zip(sample, others, strict=True))
    common = {"scenario": "ragged", "family": "sentences", "n": count, "reg": REG, "rounds": rounds}
    time_ours, time_pot = statistics.median(mine), statistics.median(theirs)
    note = (
        f"from {len(sample)} of {count} sentences; a few slow ones dominate: were all like the median, "
        f"{statistics.median(middle):.3g} s; plans differ from ours by at most {gap:.1e}"
    )
    return [
        common | {"peer": "otformer", "time": time_ours, "wall": time_ours, "error": worst, "memory": memory},
        common | {"peer": POT, "time": time_pot, "wall": time_pot, "error": worst_pot, "note": note},
    ]


def _plan(p: Problem, answer: Answer) -> np.ndarray:
    return np.exp(answer.f[:, None] + answer.g - p.C / REG)


def main() -> None:
    spec = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    pin(spec["threads"])
    rows = small(spec["tol"], spec["seed"]) if spec["kind"] == "small" else ragged(
        spec["tol"], spec["seed"], spec["count"], spec["rounds"]
    )  # fmt: skip
    print("\n" + json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
