r"""Coarse to fine: potentials to begin with, from a problem of fewer points.

Every fourth row and column, or fewer of very many, are a smaller problem; each has the weight of those up to the next. Its
potentials u, solved for by the same method, give v_j = min_i (c_ij − u_i) over its rows i, for all columns. Mass that goes
far is settled there. A side of few points keeps them all. Points are in an order in which neighbours are near each other,
where there is one (`Cost.order`), so that every part of space is represented; rows of a matrix are taken as they stand.
"""

from __future__ import annotations

import numpy as np

from otformer.transport.costs.cost import Cost
from otformer.transport.exact.assignment import Floats, Ints, middle
from otformer.transport.exact.flow_graph import Clock
from otformer.transport.exact.rounds import optimum
from otformer.transport.exact.units import in_units

STRIDE = 4  # points of which one stays
COARSEST = 300  # points of a side from which on all of them begin with v = 0
MOST_POINTS = 12_500  # points of a side that one level has at most, but for the problem itself


def from_coarser(cost: Cost, a: Floats, b: Floats, clock: Clock) -> Floats:
    """Return potentials v [m] of the columns."""
    n, m = cost.shape
    if max(n, m) <= COARSEST or clock.expired:
        return np.zeros(m)
    (rows, s), (columns, t) = (_fewer(w) for w in (a, b))
    fewer = cost.take(rows, columns).pairs()
    v = from_coarser(fewer, s, t, clock)
    units = in_units(s, t, float(s.sum()))
    found = optimum(fewer, units.supply, units.demand, v, cost.spread, clock)
    u = found.f - middle(found.f)
    return cost.take(rows, np.arange(m)).pairs().least(u, 1, rows=False)[0][:, 0]


def _fewer(w: Floats) -> tuple[Ints, Floats]:
    """Return some of the points, and the weight of each with those up to the next; all points where there are few."""
    stride = max(STRIDE, -(-len(w) // MOST_POINTS)) if len(w) > COARSEST // STRIDE else 1
    first = np.arange(0, len(w), stride)
    return first, np.add.reduceat(w, first)
