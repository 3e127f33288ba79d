r"""Costs that are Monge in some order of rows and columns: the order is found, and the plan is a staircase.

c is *Monge* in an order of rows and an order of columns if c_ij + c_kl ≤ c_il + c_kj for i before k, j before l. Then the
staircase of that order is an optimal plan, and its potentials prove it (one_dimension.py). Such costs are: distances and
squared distances between points of a line, in whatever dimension it lies, and squared distances from any points to those of
a line, ‖x − y‖² = (t_x − t_y)² and a part that only x has; u_i v_j; 1/(i + j); anything that is Monge with the columns
reversed, which is another order of them; and any of these plus p_i + q_j.

**The order.** With r before s, c_rj − c_sj grows along the columns, and with j before l, c_ij − c_il along the rows. So two
rows give an order of the columns, and two columns one of the rows, but for those that they do not distinguish. Let

    X(r, s; j, l) = c_rl + c_sj − c_rj − c_sl ≥ 0,

which is the sum of X over all cells between neighbours in that rectangle. So it is greatest between the first row and the
last, the first column and the last. If columns tie for these two rows, X between them is 0 for any two rows: they differ by
a constant, and may stand in any order. Rows likewise. What is left to find are the ends. By turns, the two columns that
differ most for the two rows, and the two rows that differ most for these columns, let X grow; where several are at an end
alike, one of them is drawn, for the true end is among them. It ends when X has stopped growing, after a few dozen rows and
columns: all costs are never looked at.

**Rejection.** Any part of such costs is of the same kind. In a part of SAMPLES rows and columns the ends are found by
looking at all of it, and X ≥ 0 is tested between all neighbours: costs without that order do not pass, but for a rare one.

Costs are rounded, and samples tell little of costs that are nearly Monge: the staircase is a proposal (structure.py).
"""

from __future__ import annotations

import numpy as np
import torch

from otformer.transport.costs.cost import Cost
from otformer.transport.exact.assignment import COST_ROUNDING, Floats, Ints
from otformer.transport.exact.flow_graph import Sent
from otformer.transport.exact.one_dimension import Stairs, stairs
from otformer.transport.exact.units import Units

SAMPLES = 8, 96  # rows and columns of a part that is tested
NEARLY = 2.0**-20  # of costs that are compared: those that are Monge but for this are worth a proposal
MOST_TURNS, IN_VAIN = 64, 8  # of looks for the ends; of those without finding more


def staircase_plan(pairs: Cost, units: Units) -> tuple[Sent, Floats] | None:
    """Return the staircase of costs that look Monge in some order, and potentials g [m]; None if they do not."""
    order = _order(pairs)
    if order is None:
        return None
    rows, columns = order
    steps = stairs(*(torch.from_numpy(w[:, None]) for w in (units.supply[rows], units.demand[columns])))
    i, j, masses = (t[:, 0].numpy() for t in steps[:3])
    i, j = rows[i], columns[j]
    cost, used = pairs.costs(i, j), masses > 0
    if not np.isfinite(cost).all():
        return None
    return Sent(i[used], j[used], masses[used], cost[used]), _potentials(steps, cost)[np.argsort(columns)]


def _potentials(steps: Stairs, cost: Floats) -> Floats:
    """Return g [m] of the columns in order; sums in more digits than costs, where the machine has them."""
    right, columns = ~steps.down[:, 0].numpy(), steps.columns[:, 0].numpy()
    g = np.zeros(columns[-1] + 1, np.longdouble)
    g[columns[1:]] = np.cumsum(right * np.diff(cost.astype(np.longdouble)))
    return (g - np.median(g)).astype(np.float64)  # small, and so rounded little


def _order(pairs: Cost) -> tuple[Ints, Ints] | None:
    """Return an order of rows [n] and one of columns [m] in which the costs may be Monge."""
    ends = _sampled(pairs)
    if ends is None:
        return None
    rng, best, patience, turns = np.random.default_rng(0), -np.inf, IN_VAIN, MOST_TURNS
    while patience and turns:
        by_column, room = _differences(pairs, *ends, rows=True)
        if not np.isfinite(by_column).all():
            return None
        by_row, room = _differences(pairs, *_drawn_ends(by_column, room, rng), rows=False)
        if not np.isfinite(by_row).all():
            return None
        ends, grown = _drawn_ends(by_row, room, rng), float(np.ptp(by_row))
        patience, turns = IN_VAIN if grown > best + room else patience - 1, turns - 1
        best = max(best, grown)
    return np.argsort(by_row, kind="stable"), np.argsort(_differences(pairs, *ends, rows=True)[0], kind="stable")


def _sampled(pairs: Cost) -> tuple[int, int] | None:
    """Return the ends of a sample of the rows; None if a part of the costs is not Monge in any order."""
    ends = None
    for many in SAMPLES:
        rows, columns = (np.arange(many) * size // many for size in pairs.shape)
        ends = _ends(pairs.costs(np.repeat(rows, many), np.tile(columns, many)).reshape(many, many))
        if ends is None:
            return None
        ends = int(rows[ends[0]]), int(rows[ends[1]])
    return ends


def _ends(C: Floats) -> tuple[int, int] | None:
    """Return the first and the last row of costs [k, k] in the order in which they are Monge, None if in no order."""
    if not np.isfinite(C).all():
        return None
    first = int(np.ptp(C - C[0], axis=1).argmax())
    last = int(np.ptp(C - C[first], axis=1).argmax())
    columns = np.argsort(C[first] - C[last])
    C = C[:, columns]
    C = C[np.argsort(C[:, 0] - C[:, -1])]
    X = C[:-1, 1:] + C[1:, :-1] - C[:-1, :-1] - C[1:, 1:]
    size = abs(C[:-1, 1:]) + abs(C[1:, :-1]) + abs(C[:-1, :-1]) + abs(C[1:, 1:])
    return (first, last) if (X + NEARLY * size >= 0).all() else None


def _differences(pairs: Cost, first: int, last: int, rows: bool) -> tuple[Floats, float]:
    """Return c of one row less c of another, [m], and by how much it may be rounded; of two columns, [n], if not rows."""
    others = np.arange(pairs.shape[rows])
    both = np.full(len(others), first), np.full(len(others), last)
    one, other = (pairs.costs(at, others) if rows else pairs.costs(others, at) for at in both)
    with np.errstate(invalid="ignore"):  # inf less inf, of forbidden pairs
        return one - other, COST_ROUNDING * float(max(abs(one).max(), abs(other).max()))


def _drawn_ends(differences: Floats, room: float, rng: np.random.Generator) -> tuple[int, int]:
    """Draw one of those of least difference, and one of those of greatest."""
    low = np.flatnonzero(differences <= differences.min() + room)
    high = np.flatnonzero(differences >= differences.max() - room)
    return int(rng.choice(low)), int(rng.choice(high))
