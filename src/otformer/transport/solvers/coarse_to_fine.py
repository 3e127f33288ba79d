"""Annealing from coarse to fine: early stages of a solve on means of neighbours instead of all points."""

from __future__ import annotations

from collections.abc import Iterator

from otformer.transport.costs.kernel import Kernel, mass_of, nothing
from otformer.transport.solvers.annealing import STAGE_ERROR, STAGE_LAYERS, State, direct_then_annealed, temperatures

FEWEST_POINTS = {"cuda": 16384, "cpu": 2048}  # of a coarse stage: a pass over fewer is no faster
STAGES_AFTER = {300: 0.0}  # layers at the final λ on all points, after which stages on all of them are tried
ROUGHLY = 0.25  # times tol: where a stage on the way to a rough end may stop; layers on fewer points cost less than on all
FULL_STAGE_ERROR = {"cuda": 3e-3, "cpu": 1e-3}  # marginal error, as a share of the mass, at which a stage on all points ends


def coarse_to_fine(
    stream: Kernel, reg: float, tol: float, max_depth: int, memory: int = 32, ridge: float = 1e-12
) -> Iterator[State]:
    """`annealing.annealed`, its stages on fewer points where that is enough; the states of the last one, on all points.

    How many points a stage needs, the kernel knows (``strides``), but not under ``FEWEST_POINTS``. The u of a stage gives
    the next one its first v, by a column block from the points of the one to those of the other.
    """
    spread, mass = stream.spread, mass_of(stream)
    u, v, here, depth = nothing(stream.log_a), nothing(stream.log_b), stream, 0
    before, last = (1, 1), reg  # strides along both curves, and λ, of the stage before
    fewest = FEWEST_POINTS[v.device.type]
    for lam, coarse in [*((lam, True) for lam in temperatures(spread, reg)), (reg, False)]:
        rows, columns = stream.strides(lam, fewest) if coarse else (1, 1)
        final = lam == reg and rows == columns == 1
        if not final and max_depth // 2 - depth < 3:
            continue  # no layers left for a stage on the way
        if (rows, columns) != before:
            across, here = stream.thinned(before[0], columns), stream.thinned(rows, columns)
            v = -last * across.log_ratio(u, nothing(here.log_b), last, rows=False)
            # Small numbers: a constant is free, and it would cost float32 its digits.
            v -= (v * here.log_b.exp()).sum() / mass
            v, depth = v + nothing(here.log_b), depth + 1
        before, last = (rows, columns), lam
        fair = (FULL_STAGE_ERROR[v.device.type] if rows == columns == 1 else STAGE_ERROR) * mass
        enough = tol if final else max(fair, ROUGHLY * tol)
        limit = max_depth - depth if final else min(STAGE_LAYERS, max_depth // 2 - depth)
        states = direct_then_annealed(here, v, lam, enough, limit, memory, ridge, STAGES_AFTER if final else {})
        for u, new, error, layers in states:
            if final:
                yield u, new, error, depth + layers
        if final:
            return
        if here is not stream:
            here.release()
        v, depth = new, depth + layers
