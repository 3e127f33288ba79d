"""When float64 is not enough: the optimum in whole numbers, and what is left where no plan sends all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from otformer.transport.costs.cost import Cost
from otformer.transport.exact import digits
from otformer.transport.exact.assignment import Floats, Ints
from otformer.transport.exact.flow_graph import Clock, Sent, empty_graph
from otformer.transport.exact.repeated import staircase
from otformer.transport.exact.rounds import Optimum
from otformer.transport.exact.units import Units

EPSILON = 2.0**-52
WEIGHT_ROUNDING = 2.0**-46  # of a weight: sums that float64 calls equal differ by less
FLOOR = 2.0**-46  # of Σ P |C|: what rounding leaves of a gap, where costs cancel
MARGINAL = 1e-12  # share of the mass that a plan may not carry


def proved(gap: Any, value: Any, size: Any, tol: float) -> Any:
    """Whether a gap is at most tol·|value|, of numbers or arrays; ``size`` is Σ P |C|, of which some is rounding."""
    return np.isfinite(gap) & (gap <= tol * abs(value) + FLOOR * size)


def is_proved(found: Optimum, tol: float) -> bool:
    """Whether what is sent is optimal, in units, though every term c − f − g of the gap was rounded."""
    units, cost = found.sent.units, found.sent.cost
    gap = found.gap + rounding(found)
    return bool(proved(gap, float(units @ cost), float(units @ abs(cost)), tol))


def rounding(found: Optimum) -> float:
    """What float64 may have taken from the gap, in units: potentials that are large leave few digits of the costs."""
    if found.method == digits.IN_WHOLE_NUMBERS:
        return 0.0
    i, j, units, cost = found.sent
    return EPSILON * float(units @ (abs(cost) + abs(found.f[i]) + abs(found.g[j])))


def lost_digits(found: Optimum) -> bool:
    """Whether costs in use are so far below others, or below potentials, that float64 may not have told them apart."""
    size = abs(found.sent.cost)
    top = max(size.max(initial=0.0), abs(found.f).max(initial=0.0), abs(found.g).max(initial=0.0))
    few = (size <= digits.FEW_BITS_LEFT * top) & (size > 0)  # most often none
    return bool(few.any()) and digits.is_wide(np.append(found.sent.cost, top))


def is_rounding(found: Optimum) -> bool:
    """Whether no more is left than sums of the weights of a part may differ by: the marginal error tells of it."""
    return int(found.lost.sum()) <= MARGINAL * found.total


def of_all_pairs(pairs: Cost, units: Units, f: Floats, g: Floats, clock: Clock) -> Optimum:
    """The optimum, from potentials near it, of all pairs that are allowed."""
    n, m = pairs.shape
    i, j = np.divmod(np.arange(n * m), m)
    c = pairs.costs(i, j)
    allowed = np.isfinite(c)
    return _of_arcs(i[allowed], j[allowed], c[allowed], units.supply, units.demand, f, g, clock, units.rounded)


def of_graph(i: Ints, j: Ints, c: Floats, units: Units, f: Floats, g: Floats, tol: float, clock: Clock) -> Optimum:
    """The optimum on the arcs (i, j) [E] alone, of finite costs c: in float64, or in whole numbers if that is not enough."""
    supply, demand = units.supply, units.demand
    if len(c) and not digits.is_wide(c):
        graph = empty_graph(supply, demand, f, g)
        graph.add(i, j, c)
        graph.run(clock, float(np.ptp(c)))
        sent, g = graph.sent(), graph.g
        f = least_of_rows(i, c - g[j], len(supply))
        found = Optimum(sent, f, g, sent.gap(f, g), 1, *graph.unsent(), graph.method)
        if is_proved(found, tol) and not found.lost.any():
            return found
    return _of_arcs(i, j, c, supply, demand, f, g, clock, units.rounded)


def least_of_rows(i: Ints, values: Floats, n: int) -> Floats:
    """The least of the values [E] of each row (or column), 0 where it has none, [n]."""
    found = np.full(n, np.inf)
    np.minimum.at(found, i, values)
    return np.where(np.isinf(found), 0.0, found)


def _of_arcs(
    i: Ints, j: Ints, c: Floats, supply: Ints, demand: Ints, f: Floats, g: Floats, clock: Clock, rounded: bool
) -> Optimum:
    """In whole numbers. The gap is 0, of potentials before they are rounded to float64.

    Weights that differ by rounding alone may force a little mass through pairs that are as good as forbidden, dearer than
    anything a plan without them could cost. Where weights are ``rounded`` it is left where it is, as if they were.
    """
    given, (supply, demand) = (supply, demand), (supply.copy(), demand.copy())
    found = digits.finish(i, j, c, supply, demand, f, g, clock)
    astray = _astray(found.sent, supply, demand, float(c.min(initial=0.0)))
    if rounded and len(astray):
        for left, at in ((supply, found.sent.i), (demand, found.sent.j)):
            np.subtract.at(left, at[astray], found.sent.units[astray])
        found = digits.finish(i, j, c, supply, demand, found.f, found.g, clock)
    lost, wanting = found.lost + given[0] - supply, found.wanting + given[1] - demand
    gap, f, g = 0.0 if found.ended else math.inf, found.f, found.g
    # A weight below one unit is not sent: what it would cost is in the largest feasible potential, not in any other.
    f = np.where(given[0] == 0, least_of_rows(i, c - g[j], len(f)), f)
    g = np.where(given[1] == 0, least_of_rows(j, c - f[i], len(g)), g)
    return Optimum(found.sent, f, g, gap, 1, lost, wanting, digits.IN_WHOLE_NUMBERS)


def _astray(sent: Sent, supply: np.ndarray, demand: np.ndarray, low: float) -> np.ndarray:
    """Pairs in use that carry what rounding of the weights explains, and cost more than any plan without them."""
    room = np.minimum(supply[sent.i], demand[sent.j])
    order = np.argsort(sent.cost, kind="stable")
    cost, paths = sent.cost[order], min(len(supply), len(demand))
    dear = np.flatnonzero(cost[1:] - cost[:-1] > paths * (cost[:-1] - low))
    for first in dear + 1:
        some = order[first:]
        if (sent.units[some] <= WEIGHT_ROUNDING * room[some]).all():
            return some
    return order[:0]


def completed(found: Optimum, pairs: Cost, clock: Clock) -> Optimum:
    """What is left is sent anywhere if time is out; if it is not, there is no way to send it."""
    if is_rounding(found):
        return found
    if not clock.rung:
        row = int(np.flatnonzero(found.lost)[0])
        raise ValueError(
            f"M, mask or labels allow no plan with these marginals: row {row} and others that have mass can only send it to "
            "columns that want less"
        )
    rows, columns, units = staircase(found.lost, found.wanting)
    added = Sent(rows, columns, units, pairs.costs(rows, columns))
    sent = Sent(*(np.append(old, new) for old, new in zip(found.sent, added, strict=True)))
    gap = sent.gap(found.f, found.g)
    return found._replace(sent=sent, gap=gap if math.isfinite(gap) else math.inf)
