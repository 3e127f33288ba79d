"""The card of a trace in a notebook or a terminal: attention after a few layers, the points, and the marginal error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from otformer import checks
from otformer.network.weights import HEADS, HeadName
from otformer.show.card import Card, Picture
from otformer.show.coarse import CELLS, Array, block_size, blocks
from otformer.show.curve import Curve
from otformer.show.heat import Heat, checked_labels
from otformer.show.points import MOST, Points

if TYPE_CHECKING:
    from otformer.network.trace import Trace

LARGEST = 2**20  # entries of a plan that is formed to be drawn
MAPS, CURVE = 4, 24  # layers that are drawn as matrices, and in the curve


@torch.no_grad()
def card(
    trace: Trace,
    layers: Sequence[int] | None = None,
    head: HeadName = "rows",
    labels: Any = None,
    problem: int = 0,
    cells: int = CELLS,
) -> Card:
    """Draw one problem; ``layers``: those that are drawn, four from the first to the last if None."""
    *batch, n, m = trace.shape
    k = checks.count("problem", problem, least=0, most=len(trace.prompt.a) - 1)
    small = n * m <= LARGEST
    chosen = (spread(trace.layers, MAPS) if layers is None else layers) if small else ()
    texts = checked_labels(labels, (n, m))
    pictures: list[Picture] = [heat(trace, layer, head, k, texts, cells) for layer in chosen]
    points = points_of(trace, k) if small else None
    if points is not None:
        pictures.append(lines(trace, -1, k, points))
    if small and len(trace) > 1:
        curve = spread(trace.layers, CURVE)
        errors = [float(trace.marginal_errors([layer]).reshape(-1)[k]) for layer in curve]
        pictures.append(Curve(curve, errors, "marginal error"))
    kept = "" if len(trace) == trace.depth + 1 else f", {len(trace)} kept"
    facts = {
        "plan": f"{n:,} × {m:,}" + (f", {batch[0]} of them; drawn is number {k + 1}" if batch else ""),
        "layers": f"{trace.depth}{kept}",
        "network": repr(trace.network),
    }
    note = "" if small else f"attention has {n * m:.3g} entries, more than {LARGEST:.2g}, and is not drawn"
    return Card("Trace", facts, pictures, trace.verdict(), trace.converged, note)


def heat(trace: Trace, layer: int, head: HeadName, k: int, labels: Any, cells: int = CELLS) -> Heat:
    """Draw the attention of a head, its own side on the rows; blocks of it are means over rows, so still shares."""
    A = attention(trace, layer, k, checks.choice("head", head, HEADS))
    sums, rows = blocks(A, cells), np.diff([*range(0, len(A), block_size(len(A), cells)), len(A)])
    assert sums is not None  # A is below LARGEST
    sides, texts = ("x", "y"), labels
    if head == "columns":
        sides, texts = ("y", "x"), None if labels is None else labels[::-1]
    number = trace.layers[trace._kept(layer)]
    return Heat(sums / rows[:, None], f"layer {number}", A.shape, 1.0, sides, texts)


def lines(trace: Trace, layer: int, k: int, points: tuple[Array, Array]) -> Points:
    """Draw the points, and lines whose strength is the attention after a layer."""
    present = trace.prompt.x_present[k].cpu().numpy(), trace.prompt.y_present[k].cpu().numpy()
    title = f"the points, layer {trace.layers[trace._kept(layer)]}"
    return Points(*points, attention(trace, layer, k)[np.ix_(*present)], title, "x filled, y open; lines: where x looks")


def attention(trace: Trace, layer: int, k: int, head: HeadName = "rows") -> Array:
    """Return the attention of a head in problem k, [n, m] or [m, n]."""
    A = trace.attention(layer, head)
    return (A[k] if trace.prompt.batched else A).double().cpu().numpy()


def spread(kept: Sequence[int], count: int) -> list[int]:
    """Choose at most ``count`` ≥ 2 of the kept layers, first and last among them, closer together at the start.

    >>> spread(list(range(101)), 6)
    [0, 4, 16, 36, 64, 100]
    """
    last = len(kept) - 1
    if last < count:
        return list(kept)
    return [kept[k] for k in sorted({round(last * (i / (count - 1)) ** 2) for i in range(count)})]


def points_of(trace: Trace, problem: int) -> tuple[Array, Array] | None:
    """Return x [n, d] and y [m, d] of one problem, without absent points; None if they are not points of 1 or 2 dimensions.

    Features of another cost (features.py) are not points: their squares are not ‖x‖² and ‖y‖². With ``scale="auto"`` points
    are centred and scaled, which leaves the picture as it is.
    """
    prompt, r = trace.prompt, trace.network.registers
    if r.dim > 2:
        return None
    sides = []
    for name, present in (("x", prompt.x_present[problem]), ("y", prompt.y_present[problem])):
        Z = prompt.Z[problem, : len(present)][present].double().cpu()
        t = Z[:, r[name]]
        squares = f"{name}_sq" in r and Z[:, r.column(f"{name}_sq")]
        if not 0 < len(t) <= MOST or (squares is not False and not torch.allclose(squares, t.square().sum(1), rtol=1e-4)):
            return None
        sides.append(t.numpy())
    return sides[0], sides[1]
