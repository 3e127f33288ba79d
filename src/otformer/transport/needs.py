"""What the public functions of this room need, in words and numbers, for those that run out of memory (memory.py).

The counts of float64 numbers beside the input are measured: peaks of 3,500 × 3,500 problems, rounded up.
"""

from __future__ import annotations

import math
from typing import Any

from otformer.memory import Need, matrices, shape
from otformer.network.features import Features
from otformer.transport.problem.read_points import STREAM_ABOVE

SOLVE = 4  # matrices as large as the cost that a solve holds at once
VARIANT = 6  # of an unbalanced or partial problem, or of a layer
DIVERGENCE = 9  # of three problems, with their plans
STREAM = "solve_sample(…, executor='stream') never forms it"
FEWER = "give fewer points"


def of_cost(M: Any, held: int = SOLVE, instead: str = STREAM) -> Need:
    """Of a cost matrix (n, m), or a stack of them, or `Features`."""
    if isinstance(M, Features):
        return of_points(M.x, M.y, held, instead)
    *lead, n, m = shape(M)
    count = math.prod(lead)
    return Need(matrices("cost", n, m, count), held * count * n * m, instead)


def of_points(x: Any, y: Any, held: int = SOLVE, instead: str = STREAM) -> Need:
    """Of the cost between points (n, d) and (m, d), or stacks of both."""
    *lead, n, _ = shape(x)
    count, m = math.prod(lead), shape(y)[-2]
    return Need(matrices("cost", n, m, count), held * count * n * m, instead)


def of_stream(x: Any, y: Any) -> Need:
    """Of points whose cost is never formed."""
    (*lead, n, d), m = shape(x), shape(y)[-2]
    return Need(f"a stream of {n:,} and {m:,} points", math.prod(lead) * (n + m) * (6 * d + 100), FEWER)


def of_sample(x: Any, y: Any, metric: Any, executor: str = "auto") -> Need:
    """Of points, or `Features` in their place, whose cost is formed or not."""
    x, y = (metric.x, metric.y) if isinstance(metric, Features) else (x, y)
    large = shape(x)[-2] * shape(y)[-2] > STREAM_ABOVE and not callable(metric)
    return of_stream(x, y) if executor == "stream" or (executor == "auto" and large) else of_points(x, y)


def of_batch(problems: Any) -> Need:
    """Of a list of problems, each a cost, or points, and weights; or of all of them stacked."""
    if isinstance(problems, tuple) and len(shape(problems[0], 0)) == 3:
        problems = list(zip(*(t for t in problems if t is not None), strict=False))
    sizes = [_extent(problem) for problem in problems] if hasattr(problems, "__len__") else []  # an iterator is used up
    n, m = max(sizes, key=math.prod, default=(0, 0))
    what = f"{len(sizes):,} problem{'s' * (len(sizes) != 1)} up to {n:,} × {m:,}" if sizes else "problems of an iterator"
    return Need(what, SOLVE * sum(map(math.prod, sizes)), "give fewer at once, or large ones to solve_sample")


def _extent(problem: Any) -> tuple[int, int]:
    """n and m of a problem of a batch."""
    first, *others = problem if isinstance(problem, tuple) else (problem,)
    points = others and len(shape(others[0], 0)) == 2
    return (shape(first)[-2], shape(others[0])[-2]) if points else shape(first)[-2:]  # type: ignore[return-value]
