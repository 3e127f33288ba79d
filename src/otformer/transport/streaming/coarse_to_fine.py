"""Annealing from coarse to fine: early stages of a streamed solve on means of neighbours instead of all points."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from otformer.transport.executors.stream import Stream
from otformer.transport.solvers.annealing import State, warm
from otformer.transport.solvers.newton import falling

COARSEST = {"cuda": 16384, "cpu": 2048}  # the fewest points of a stage of `coarse_to_fine`: a pass over fewer is no faster
POINTS = 4  # of such a stage, for every ball of radius √λ
FAIR = {"cuda": 3e-3, "cpu": 1e-3}  # of the mass: the error where a stage on all points ends; on fewer, 1e-3


def coarse_to_fine(stream: Stream, reg: float, tol: float, max_depth: int) -> Iterator[State]:
    """`stages.annealed`, its stages on fewer points where that is enough; the states of the last one, on all points.

    A plan at λ is blurred over √λ: a stage there has ``POINTS`` for every ball of that size, (spread/λ)^(d/2) balls in
    all, but not under ``COARSEST``. Its u gives the next stage its first v, by a column block from the points of the one to
    those of the other. Beyond three dimensions neighbours on the curve are not near, and all stages have all points.
    """
    d, spread, mass = stream.x.points.shape[1], stream.spread, float(stream.log_b.exp().sum())
    u, v, depth, before, last, here = *stream.start(), 0, (1, 1), reg, stream
    for lam in [*falling(spread, reg), 0.0]:
        size = max(COARSEST[v.device.type], POINTS * (spread / lam) ** (d / 2)) if lam and d <= 3 else torch.inf
        lam, rows, columns = lam or reg, *(max(1, int(len(w) / size)) for w in (stream.log_a, stream.log_b))
        final = lam == reg and rows == columns == 1
        if not final and max_depth // 2 - depth < 3:
            continue  # no layers left for a stage on the way
        if (rows, columns) != before:
            across, here = stream.thinned(before[0], columns), stream.thinned(rows, columns)
            v = -last * across.excess(u, torch.zeros_like(here.log_b), last, rows=False)
            v, depth = v - v.mean(), depth + 1  # small numbers: a constant is free, and it would cost float32 its digits
        before, last = (rows, columns), lam
        fair = (FAIR[v.device.type] if rows == columns == 1 else 1e-3) * mass
        enough, limit = tol if lam == reg else fair, max_depth - depth if final else min(200, max_depth // 2 - depth)
        for u, new, error, layers in warm(here, v, spread, lam, enough, limit):
            if final:
                yield u, new, error, depth + layers
        if final:
            return
        v, depth = new, depth + layers
