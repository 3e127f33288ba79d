r"""When float64 is not enough: the optimum in whole numbers (digits.py), and what is left where no plan sends all.

**Small potentials.** Let T be the greatest cost in use, low the least of all, and k = min(n, m). A cycle through a pair of
cost C that is not in use changes the value by at least C + (k − 1) low − k T, so what costs more than T + k (T − low) is not
used, and the plan stays optimal if all such costs are lowered to that. Potentials for lowered costs are feasible for the
given ones, and as small as the costs in use: they are what is returned.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from otformer.transport.costs.cost import Cost
from otformer.transport.exact import digits
from otformer.transport.exact.all_pairs import unclear
from otformer.transport.exact.assignment import Floats, Ints
from otformer.transport.exact.flow_graph import Clock, Sent, Tree, empty_graph
from otformer.transport.exact.repeated import staircase
from otformer.transport.exact.rounds import Optimum, listed
from otformer.transport.exact.units import Units

MOST_PIVOTS = 2**62
EPSILON = 2.0**-52
WEIGHT_ROUNDING = 2.0**-46  # of a weight: sums that float64 calls equal differ by less
FLOOR = 2.0**-46  # of Σ P |C|: what rounding leaves of a gap, where costs cancel
FIRST_PAIRS = 4  # pairs of a row that digits begin with, besides those in use
MARGINAL = 1e-12  # share of the mass that a plan may not carry


def proved(gap: Any, value: Any, size: Any, tol: float) -> Any:
    """Return whether a gap is at most tol·|value|, of numbers or arrays; ``size`` is Σ P |C|, of which some is rounding."""
    return np.isfinite(gap) & (gap <= tol * abs(value) + FLOOR * size)


def is_proved(found: Optimum, tol: float) -> bool:
    """Return whether what is sent is optimal, in units, though every term c − f − g of the gap was rounded."""
    units, cost = found.sent.units, found.sent.cost
    gap = found.gap + rounding(found)
    return bool(proved(gap, float(units @ cost), float(units @ abs(cost)), tol))


def rounding(found: Optimum) -> float:
    """Bound what rounding may have taken from the gap, in units: large potentials leave few digits of the costs."""
    if found.method == digits.IN_WHOLE_NUMBERS:
        return 0.0
    i, j, units, cost = found.sent
    return EPSILON * float(units @ (abs(cost) + abs(found.f[i]) + abs(found.g[j])))


def lost_digits(found: Optimum) -> bool:
    """Return whether costs in use are so far below others, or below potentials, that float64 may not distinguish them."""
    size = abs(found.sent.cost)
    top = max(size.max(initial=0.0), abs(found.f).max(initial=0.0), abs(found.g).max(initial=0.0))
    few = (size <= digits.FEW_BITS_LEFT * top) & (size > 0)  # most often none
    return bool(few.any()) and digits.is_wide(np.append(found.sent.cost, top))


def is_rounding(found: Optimum) -> bool:
    """Return whether the unsent mass is within the rounding of the weights; the marginal error shows it."""
    return int(found.unsent.sum()) <= MARGINAL * found.total


def of_all_pairs(pairs: Cost, units: Units, near: Optimum, clock: Clock) -> Optimum:
    """Find the optimum over all allowed pairs in whole numbers, from a plan and potentials near it.

    Pairs of clearly positive reduced cost need no digits. The graph begins with those in use and a few of every row; pairs
    of which float64 cannot tell, for the potentials of the graph, are added until there are none.
    """
    direct, f, g = pairs.direct(), near.f, near.g
    if direct is None or near.unsent.any():
        i, j = np.divmod(np.arange(pairs.shape[0] * pairs.shape[1]), pairs.shape[1])
        c = pairs.costs(i, j)
        allowed = np.isfinite(c)
        return _of_arcs(i[allowed], j[allowed], c[allowed], units.supply, units.demand, f, g, clock, units.rounded)
    m, found = len(g), near
    i, j = listed(pairs.least(g, min(FIRST_PAIRS, m), rows=True)[1])
    key = np.append(near.sent.i * m + near.sent.j, i * m + j)
    while True:
        i, j = np.divmod(np.unique(key), m)
        found = _of_arcs(i, j, pairs.costs(i, j), units.supply, units.demand, found.f, found.g, clock, units.rounded)
        rows, columns = unclear(direct, found.f, found.g)
        more = np.setdiff1d(rows * m + columns, i * m + j)
        if not len(more) or found.unsent.any() or not math.isfinite(found.gap):
            return found
        key = np.append(i * m + j, more)


def of_graph(i: Ints, j: Ints, c: Floats, units: Units, f: Floats, g: Floats, tol: float, clock: Clock) -> Optimum:
    """Find the optimum on the arcs (i, j) [E] alone, of finite costs c: in float64 or, if need be, in whole numbers."""
    if len(c) and not digits.is_wide(c):
        found = in_float64(i, j, c, units, f, g, clock)
        if is_proved(found, tol) and not found.unsent.any():
            return found
        f, g = found.f, found.g
    return _of_arcs(i, j, c, units.supply, units.demand, f, g, clock, units.rounded)


def in_float64(i: Ints, j: Ints, c: Floats, units: Units, f: Floats, g: Floats, clock: Clock) -> Optimum:
    """Solve on the arcs (i, j) [E] alone, of finite costs c, from potentials f [n] and g [m]."""
    graph = empty_graph(units.supply, units.demand, f, g)
    graph.add(i, j, c)
    graph.run(clock, float(np.ptp(c)))
    sent, g = graph.sent(), graph.g
    f = least_of_rows(i, c - g[j], len(f))
    return Optimum(sent, f, g, sent.gap(f, g), 1, *graph.unsent(), graph.method)


def least_of_rows(i: Ints, values: Floats, n: int) -> Floats:
    """Return the least of the values [E] of each row (or column), 0 where it has none, [n]."""
    found = np.full(n, np.inf)
    np.minimum.at(found, i, values)
    return np.where(np.isinf(found), 0.0, found)


def _of_arcs(
    i: Ints, j: Ints, c: Floats, supply: Ints, demand: Ints, f: Floats, g: Floats, clock: Clock, rounded: bool
) -> Optimum:
    """Find the optimum in whole numbers. The gap is 0, of potentials before they are rounded to float64.

    Weights that differ by rounding alone may force a little mass through pairs that are as good as forbidden, dearer than
    anything a plan without them could cost. Where weights are ``rounded`` it is not sent, as if the pairs were forbidden.
    """
    reduced_supply, reduced_demand = supply.copy(), demand.copy()
    found = _solved(i, j, c, supply, demand, f, g, clock)
    dropped = _dropped(found.sent, supply, demand, float(c.min(initial=0.0)))
    if rounded and len(dropped):
        for weights, at in ((reduced_supply, found.sent.i), (reduced_demand, found.sent.j)):
            np.subtract.at(weights, at[dropped], found.sent.units[dropped])
        found = _solved(i, j, c, reduced_supply, reduced_demand, found.f, found.g, clock)
    unsent, unmet = found.unsent + supply - reduced_supply, found.unmet + demand - reduced_demand
    # A weight below one unit is not sent: what it would cost is in the largest feasible potential, not in any other.
    f = np.where(supply == 0, least_of_rows(i, c - found.g[j], len(supply)), found.f)
    g = np.where(demand == 0, least_of_rows(j, c - f[i], len(demand)), found.g)
    return found._replace(f=f, g=g, unsent=unsent, unmet=unmet)


def _solved(i: Ints, j: Ints, c: Floats, supply: Ints, demand: Ints, f: Floats, g: Floats, clock: Clock) -> Optimum:
    """Solve on the arcs (i, j) [E] of finite costs c, from potentials f [n] and g [m]; the gap is inf if time is up."""
    tree = _WholeTree(supply, demand, np.zeros(len(f)), np.zeros(len(g)))
    tree.add(i, j, c)
    tree.plant(f, g)
    tree.price(c)
    _, optimal = tree.pivot(clock, MOST_PIVOTS)
    in_use = tree.sent().cost
    if len(in_use):
        top, low, paths = float(in_use.max()), float(c.min()), min(tree.shape)
        cap = top + paths * (top - low)
        if float(c.max()) > cap:
            tree.price(np.minimum(c, cap))
            optimal = tree.pivot(clock, MOST_PIVOTS)[1] and optimal
            tree.give_costs(c)
    gap = 0.0 if optimal else math.inf
    return Optimum(tree.sent(), *tree.rounded(), gap, 1, *tree.unsent(), digits.IN_WHOLE_NUMBERS)


class _WholeTree(Tree):
    """A tree whose costs and potentials have digits. Artificial arcs cost nothing but a level."""

    def price(self, c: Floats) -> None:
        """Set the costs [E] of all arcs."""
        self.cost, (self.digits, self.exponent) = c, digits.split(c)
        count = self.digits.shape[1]
        with np.errstate(over="ignore"):  # of digits that are 0
            self.units = np.ldexp(1.0, self.exponent + digits.BITS * np.arange(count))
        self.p, self.p_digits = np.zeros(self.root + 1), np.zeros((self.root + 1, count), np.int64)
        digits.recompute(self.tree, self.on_tree[1], self.p_digits, self.p, self.digits, self.units)

    def give_costs(self, c: Floats) -> None:
        """Set the costs c [E] of flow, keeping the tree and the potentials."""
        _, arc, cost, _ = self.on_tree
        cost[:] = np.where(arc >= 0, np.append(c, 0.0)[arc], 0.0)

    def _pivot(self, at: int, block: int, most: int) -> tuple[int, int]:
        arcs, potentials = (self.source, self.target, self.cost, self.digits), (self.p_digits, self.p, self.units)
        return digits.pivot(*arcs, *self.on_tree, *potentials, at, block, most)

    def rounded(self) -> tuple[Floats, Floats]:
        """Return f [n] and g [m], moved by a constant so that most are small, each rounded once."""
        exact = [sum(int(d) << (digits.BITS * t) for t, d in enumerate(row)) for row in self.p_digits[:-1]]
        n = self.shape[0]
        middle = sorted(exact[n:])[len(exact[n:]) // 2]
        up, down = 1 << max(0, self.exponent), 1 << max(0, -self.exponent)
        p = np.array([(value - middle) * up / down for value in exact])
        return p[:n], -p[n:]


def _dropped(sent: Sent, supply: np.ndarray, demand: np.ndarray, low: float) -> np.ndarray:
    """Return the pairs in use that carry no more than rounding of the weights and cost more than any plan without them."""
    weight = np.minimum(supply[sent.i], demand[sent.j])
    order = np.argsort(sent.cost, kind="stable")
    cost, paths = sent.cost[order], min(len(supply), len(demand))
    dear = np.flatnonzero(cost[1:] - cost[:-1] > paths * (cost[:-1] - low))
    for first in dear + 1:
        some = order[first:]
        if (sent.units[some] <= WEIGHT_ROUNDING * weight[some]).all():
            return some
    return order[:0]


def completed(found: Optimum, pairs: Cost, clock: Clock) -> Optimum:
    """Send the rest along any pairs if time ran out; otherwise raise, for no plan is feasible."""
    if is_rounding(found):
        return found
    if not clock.expired:
        row = int(np.flatnonzero(found.unsent)[0])
        raise ValueError(
            f"M, mask or labels allow no plan with these marginals: row {row} and others that have mass can only send it to "
            "columns that want less"
        )
    rows, columns, units = staircase(found.unsent, found.unmet)
    added = Sent(rows, columns, units, pairs.costs(rows, columns))
    sent = Sent(*(np.append(old, new) for old, new in zip(found.sent, added, strict=True)))
    gap = sent.gap(found.f, found.g)
    return found._replace(sent=sent, gap=gap if math.isfinite(gap) else math.inf)
