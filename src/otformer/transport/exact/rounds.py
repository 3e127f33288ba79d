r"""From rough potentials to the optimum and its proof.

    1. For every point the k pairs of least reduced cost c_ij − u_i − v_j: a sparse graph.
    2. The best flow on the graph, and its potentials (f, g), exactly.                                   flow_graph.py
    3. *Pricing*, over all pairs: f*_i = min_j (c_ij − g_j). Pairs below f_i are not on the graph, or it would not be best:
       the least of every row are added, and 2 goes on from where it was. Where there are none, all is done.

**Stuck.** The first graph may not carry everything. Where flow is stuck, potentials f rise by ``far`` and g fall
(assignment.py), so that pairs that lead out of there and cost no more than that are found by pricing; while there are too
few, ``far`` grows. If not even pairs as far as any two costs differ are found, there is no plan. Potentials that have been
that far have lost digits: as long as a pair in use is not tight for what is left of them, step 2 goes on with the same
graph, where all have moved so that most are small again.

**It ends.** A round adds pairs, or ``far`` grows, which it does a few times only, or the gap is halved. Where potentials
have lost digits the pairs may be on the graph already, and two rounds could undo each other for ever. So after
STALLED_ROUNDS without progress, either whole numbers take over (whole_numbers.py), or only pairs that are not on the graph
count: of these there are finitely many.

**All pairs.** Rounds are cheap while little is wrong. Where costs can be had one by one (`Cost.direct`), they go on only
while each takes a third of the gap away. Where they do not, because of ties or of mass that goes far, a network simplex over
all pairs goes on from the tree at hand (all_pairs.py), and ends it.

**The certificate.** (f*, g) satisfy f*_i + g_j ≤ c_ij for every pair, by definition of the minimum. So for every plan P

    Σ P_ij c_ij ≥ Σ P_ij (f*_i + g_j) = Σ a_i f*_i + Σ b_j g_j,

the *bound*, and for the plan found the difference is gap = Σ P_ij (c_ij − f*_i − g_j), a sum of terms that are not
negative: it has no cancellation, and whatever went wrong in the layers, on the graph or in rounding, it would show there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from otformer.transport.costs.cost import Cost
from otformer.transport.exact.all_pairs import ALL_PAIRS, AllPairs, reached
from otformer.transport.exact.assignment import COST_ROUNDING, Floats, Ints, middle
from otformer.transport.exact.flow_graph import Clock, Graph, Sent, Tree, empty_graph, tree_of

PAIRS = 12  # of least reduced cost, by rows and by columns, that the graph begins with
ADDED = 4  # pairs of a row that may be added in a round
NO_TIME = "any plan: time was up"
FARTHER = 4.0  # from one round to the next, as long as something cannot be sent
FALLING = 2 / 3  # the share of the gap that a round leaves, while rounds are better than sweeps over all pairs
SWEPT = 20_000**2  # pairs up to where sweeps over all of them take less time than a few rounds more
STALLED_BEFORE_SWEEPS = 4  # rounds without progress, where there are more pairs
STALLED_ROUNDS, PROGRESS = 32, 0.99  # rounds without progress; the share of the gap that is left after some


class Optimum(NamedTuple):
    """Hold the plan as a list of pairs, potentials feasible for all pairs, and primal minus dual in units of weight."""

    sent: Sent
    f: Floats
    g: Floats
    gap: float
    rounds: int
    unsent: Ints  # what rows could not send: time ran out, or no allowed pair reaches it
    unmet: Ints  # what columns have not received
    method: str

    @property
    def total(self) -> int:
        """Return the sum of the supply."""
        return int(self.sent.units.sum() + self.unsent.sum())


class _Proof:
    """Keep, of potentials that are feasible for all pairs, those of the highest bound so far."""

    def __init__(self, supply: Ints, demand: Ints) -> None:
        self.supply, self.demand, self.bound = supply, demand, -math.inf

    def offer(self, f: Floats, g: Floats) -> None:
        bound = float(self.supply @ f + self.demand @ g)
        if bound > self.bound:
            self.bound, self.f, self.g = bound, f.copy(), g.copy()


def optimum(
    pairs: Cost, supply: Ints, demand: Ints, v: Floats, spread: float, clock: Clock, handed_over: bool = False
) -> Optimum:
    """Find the best plan that sends ``supply`` [n] to ``demand`` [m], whole numbers of the same sum, from potentials v [m].

    ``spread`` bounds the range of all costs that are not infinite. Where this gets stuck, a plan that is not the best is
    returned if it is ``handed_over`` to another method. Once time is up, the best bound so far comes with the plan.
    """
    proof = _Proof(supply, demand)
    if clock.remaining < math.inf and not clock.expired:  # or what little time allows might have a lower bound than none
        zero = np.zeros(len(demand))
        proof.offer(pairs.least(zero, 1, rows=True)[0][:, 0], zero)
    found = _search(pairs, supply, demand, v, spread, clock, handed_over, proof)
    if not clock.expired or proof.bound == -math.inf:
        return found
    return found._replace(f=proof.f, g=proof.g, gap=found.sent.gap(proof.f, proof.g))


def _search(
    pairs: Cost, supply: Ints, demand: Ints, v: Floats, spread: float, clock: Clock, handed_over: bool, proof: _Proof
) -> Optimum:
    direct = pairs.direct()
    v = v - middle(v)  # a constant is free, and a large one costs digits
    values, places = pairs.least(v, 1 if clock.expired else min(PAIRS, pairs.shape[1]), rows=True)
    proof.offer(values[:, 0], v)
    if clock.expired:  # nothing sent
        none = np.empty(0, np.int64)
        return Optimum(Sent(none, none, none, np.empty(0)), values[:, 0], v, 0.0, 1, supply, demand, NO_TIME)
    swept = direct is not None and math.prod(pairs.shape) <= SWEPT
    graph, far = _first_graph(pairs, supply, demand, v, values, places, Tree if swept else empty_graph)
    # Where pairs are forbidden, potentials of a plan may differ by as much as a path through all points costs.
    rounds, best, most, before, gap = 0, None, sum(pairs.shape) * spread + (spread == 0), b"", math.inf
    least, stalled = (demand.sum() + 1, math.inf), 0  # units that are not sent, and the gap of the rest
    far = max(far, most / FARTHER**10)  # where there are ties the pairs of a row may all cost the same
    while True:
        graph.run(clock, min(far, most))
        rounds += 1
        values, places = pairs.least(graph.g, min(ADDED, pairs.shape[1]), rows=True)
        (unsent, unmet), sent, f = graph.unsent(), graph.sent(), values[:, 0]
        proof.offer(f, graph.g)
        clock.tell(lambda: reached(proof.bound, graph))
        gap, last = sent.gap(f, graph.g), gap
        score = unsent.sum(), gap
        stalled = 0 if score[0] < least[0] or gap < PROGRESS * least[1] else stalled + 1
        if best is None or score < least:
            least, best = score, Optimum(sent, f, graph.g.copy(), gap, rounds, unsent.copy(), unmet.copy(), graph.method)
        if handed_over and stalled > STALLED_ROUNDS:
            return best._replace(rounds=rounds)
        centre = middle(graph.g)
        room = abs(values + centre) + abs(graph.f + centre)[:, None] + abs(graph.g - centre)[places]
        below = graph.f[:, None] - values > COST_ROUNDING * room
        i, j = np.nonzero(below)[0], places[below]
        if stalled > STALLED_ROUNDS:
            i, j = _not_among(i, j, *graph.pairs(), pairs.shape[1])
        new = i.tobytes() + j.tobytes() != before  # or they are on the graph, and only rounding, or no way out, is left
        more = (len(i) and new) or (unsent.any() and far < most)
        if clock.expired or not (more or (gap < last / 2 and not _tight(sent, f + centre, graph.g - centre))):
            return best._replace(rounds=rounds)
        if direct is not None and (not gap < FALLING * last if swept else stalled > STALLED_BEFORE_SWEEPS):
            tree = graph if isinstance(graph, Tree) else tree_of(graph, supply, demand, clock)
            AllPairs(tree, direct, spread).run(clock, proof.bound)
            found = of_tree(tree, pairs)
            proof.offer(found.f, found.g)
            return found._replace(rounds=rounds + 1)
        far, before = far * FARTHER if unsent.any() else far, i.tobytes() + j.tobytes()
        if new:
            graph.add(i, j, pairs.costs(i, j))


def of_tree(graph: Tree, pairs: Cost) -> Optimum:
    """Return what sweeps over all pairs have found."""
    sent, g, (unsent, unmet) = graph.sent(), graph.g, graph.unsent()
    f = pairs.least(g, 1, rows=True)[0][:, 0]
    return Optimum(sent, f, g, sent.gap(f, g), 1, unsent, unmet, ALL_PAIRS)


def _not_among(i: Ints, j: Ints, rows: Ints, columns: Ints, m: int) -> tuple[Ints, Ints]:
    """Return the pairs (i, j) that are none of (rows, columns)."""
    new = ~np.isin(i * m + j, rows * m + columns)
    return i[new], j[new]


def _tight(sent: Sent, f: Floats, g: Floats) -> bool:
    """Return whether every pair in use costs f_i + g_j, but for the rounding of numbers as large as these."""
    room = abs(sent.cost) + abs(f[sent.i]) + abs(g[sent.j])
    return bool((sent.cost - g[sent.j] - f[sent.i] <= COST_ROUNDING * room).all())


def _first_graph(
    pairs: Cost, supply: Ints, demand: Ints, v: Floats, values: Floats, places: Ints, empty: Callable[..., Graph]
) -> tuple[Graph, float]:
    """Build the graph of the pairs of least reduced cost of every point, those of the rows being ``places`` [n, k].

    Return also how much dearer the last pair of a row is than its first, on average.
    """
    n, m = pairs.shape
    u, last = values[:, 0].copy(), values[:, -1]
    i, j = listed(places)
    column, row = listed(pairs.least(u, min(PAIRS, n), rows=False)[1])
    # Where many pairs cost the same, all lists name the same few columns: pairs in the order given do not.
    along = np.arange(max(n, m))
    order, across = along * n // len(along), along * m // len(along)
    found, tied = pairs.costs(row, column), pairs.costs(order, across)
    new = found - v[column] > last[row]  # others are on the lists of the rows already
    as_good = np.isfinite(tied) & (tied - v[across] <= last[order])
    graph = empty(supply, demand, u, v)
    graph.add(
        np.concatenate([i, row[new], order[as_good]]),
        np.concatenate([j, column[new], across[as_good]]),
        np.concatenate([pairs.costs(i, j), found[new], tied[as_good]]),
    )
    finite = np.isfinite(last)
    return graph, float((last - u)[finite].mean()) if finite.any() else math.inf


def listed(places: Ints) -> tuple[Ints, Ints]:
    """Return lists [n, k] as pairs (i, j), [E] each, without places −1."""
    some = places >= 0
    return np.nonzero(some)[0], places[some]
