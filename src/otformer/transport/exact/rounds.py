r"""From rough potentials to the optimum and its proof.

    1. For every point the k pairs of least reduced cost c_ij − u_i − v_j: a sparse graph.
    2. The best flow on the graph, and its potentials (f, g), exactly.                                       graphs.py
    3. *Pricing*, over all pairs: f*_i = min_j (c_ij − g_j). Pairs below f_i are not on the graph, or it would not be best:
    the
       least of every row are added, and 2 goes on from where it was. Where there are none, all is done.

**Stuck.** The first graph may not carry everything. Where flow is stuck, potentials f rise by ``far`` and g fall
(assignment.py), so that pairs that lead out of there and cost no more than that are found by pricing; while there are too
few, ``far`` grows. If not even pairs as far as any two costs differ are found, there is no plan.

**The certificate.** (f*, g) satisfy f*_i + g_j ≤ c_ij for every pair, by definition of the minimum. So for every plan P

    Σ P_ij c_ij ≥ Σ P_ij (f*_i + g_j) = Σ a_i f*_i + Σ b_j g_j,

the *bound*, and for the plan found the difference is gap = Σ P_ij (c_ij − f*_i − g_j), a sum of terms that are not
negative: it has no cancellation, and whatever went wrong in the layers, on the graph or in rounding, it would show there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from otformer.transport.exact.graphs import Clock, Floats, Graph, Ints, Matching, Sent, Tree
from otformer.transport.exact.pairs import AllPairs

PAIRS = 12  # of least reduced cost, by rows and by columns, that the graph begins with
ADDED = 4  # pairs of a row that may be added in a round
COST_ROUNDING = 2.0**-46  # of the range of costs: sums of a few numbers as large
FARTHER = 4.0  # from one round to the next, as long as something cannot be sent
FAR = 4.0  # times the range of costs: more than two potentials of a graph that hangs together differ by


class Optimum(NamedTuple):
    """The plan as a list of pairs, potentials that are feasible for all pairs, and primal minus dual in units of weight."""

    sent: Sent
    f: Floats
    g: Floats
    gap: float
    rounds: int
    lost: Ints  # what rows could not send: the clock has rung, or nothing leads there
    wanting: Ints  # what columns have not received


def optimum(pairs: AllPairs, supply: Ints, demand: Ints, v: Floats, spread: float, clock: Clock) -> Optimum:
    """The best plan that sends ``supply`` [n] to ``demand`` [m], whole numbers of the same sum, from potentials v [m].

    ``spread`` bounds the range of all costs that are not infinite.
    """
    graph, far = _first_graph(pairs, supply, demand, v, spread)
    rounds, best, most = 0, None, FAR * spread + (spread == 0)
    far = max(far, most / FARTHER**6)  # where there are ties the pairs of a row may all cost the same
    while True:
        graph.run(clock, min(far, most))
        rounds += 1
        values, places = pairs.least(graph.g, min(ADDED, pairs.shape[1]), rows=True)
        (left, wanting), sent, f = graph.unsent(), graph.sent(), values[:, 0]
        gap = float(sent.units @ (sent.cost - f[sent.i] - graph.g[sent.j]))
        if best is None or (not left.any() and (best.lost.any() or gap < best.gap)):
            best = Optimum(sent, f, graph.g.copy(), gap, rounds, left.copy(), wanting.copy())
        below = values < (graph.f - COST_ROUNDING * spread)[:, None]
        if clock.rung or not (below.any() or (left.any() and far < most)):
            return best._replace(rounds=rounds)
        far = far * FARTHER if left.any() else far
        i, j = np.nonzero(below)[0], places[below]
        graph.add(i, j, pairs.costs(i, j))


def _first_graph(pairs: AllPairs, supply: Ints, demand: Ints, v: Floats, spread: float) -> tuple[Graph, float]:
    """The pairs of least reduced cost of every point; how much dearer the last of a row is than its first, on average."""
    n, m = pairs.shape
    values, places = pairs.least(v, min(PAIRS, m), rows=True)
    u, last = values[:, 0].copy(), values[:, -1]
    i, j = _listed(places)
    column, row = _listed(pairs.least(u, min(PAIRS, n), rows=False)[1])
    cost = pairs.costs(row, column)
    new = cost - v[column] > last[row]  # others are on the lists of the rows already
    slack = COST_ROUNDING * spread
    if n == m and (supply == supply[0]).all() and (demand == supply[0]).all():
        graph: Graph = Matching(n, v, slack)
    else:
        graph = Tree(supply, demand, u, v, slack)
    graph.add(np.append(i, row[new]), np.append(j, column[new]), np.append(pairs.costs(i, j), cost[new]))
    listed = np.isfinite(last)
    return graph, float((last - u)[listed].mean()) if listed.any() else math.inf


def _listed(places: Ints) -> tuple[Ints, Ints]:
    """Lists [n, k] as pairs (i, j), [E] each, without places −1."""
    some = places >= 0
    return np.nonzero(some)[0], places[some]
