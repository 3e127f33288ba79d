"""The points of a prompt, where they can be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from otformer.show.coarse import Array
from otformer.show.points import MOST

if TYPE_CHECKING:
    from otformer.network.trace import Trace


def points_of(trace: Trace, problem: int) -> tuple[Array, Array] | None:
    """x [n, d] and y [m, d] of one problem, absent points left out; None if they are not points of 1 or 2 dimensions.

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
