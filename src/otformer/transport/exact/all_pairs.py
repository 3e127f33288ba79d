r"""A network simplex over all pairs, whose costs are on no list: it goes on from the tree of a sparse graph.

A pair that is not on the tree carries nothing, so the tree of n + m arcs (simplex.py) is all that has to be kept. The pair
that enters is the least c_ij − g_j of a row i, if that is below f_i: one look at m pairs, of a matrix or of points. Rows
come in turn, in steps of a golden section of all, so that neighbours do not undo each other. When no row has one, the tree
is optimal for all pairs.

**Artificial arcs** cost M more than the potential of their node. A row and a column that both hang on the root with
something left have a pair of reduced cost c_ij − u_i − v_j − 2M, if they may match: with 2M above the largest c_ij − u_i −
v_j nothing is left in the end. This M is no larger than costs and potentials are, and takes no digits from them. Where pairs
are forbidden it has to grow to what a path through all points costs.

**Rounding.** The first sweeps leave alone what is below 0 by no more than the rounding of potentials that have moved often.
Then potentials are recomputed from the tree, and sweeps with a finer sieve go on, for a limited number of pivots.
"""

from __future__ import annotations

import numpy as np

from otformer.transport.compiled import compiled
from otformer.transport.costs.cost import Direct
from otformer.transport.costs.pairs import LANES, golden_step
from otformer.transport.exact.assignment import COST_ROUNDING, Floats, Ints, middle
from otformer.transport.exact.flow_graph import Clock, Graph, Tree
from otformer.transport.exact.simplex import PARENT, UP, Span, enlist, enter, recompute

ALL_PAIRS = "a network simplex over all pairs"
SIEVES = COST_ROUNDING, COST_ROUNDING / 16  # of what a cost is compared with
PIVOTS = 200, 4  # per node, with each of them; a dozen are needed
FARTHER = 4.0  # M from one time to the next


class AllPairs:
    """Sweeps over the rows of a cost that let pairs enter the tree of a graph."""

    def __init__(self, graph: Tree, direct: Direct, spread: float) -> None:
        self.graph, self.direct = graph, direct
        self.step, self.at = golden_step(graph.shape[0]), 0
        self.far, self.farthest = 0.0, sum(graph.shape) * spread
        self._lift(spread + 2 * float(abs(graph.start).max()))
        graph.far = 0.0

    def run(self, clock: Clock, bound: float) -> None:
        """Pivot until no pair can enter, time is up, or there were more pivots than rounding explains.

        ``bound`` is of the value, to be told of.
        """
        for sieve, most in zip(SIEVES, PIVOTS, strict=True):
            while True:
                self._recompute()
                done = self._sweeps(clock, bound, sieve, most * self.graph.root)
                if not (done and self.far < self.farthest and self.graph.artificial().any()):
                    break
                self._lift(FARTHER * self.far)
        self._recompute()

    def _lift(self, far: float) -> None:
        """Let M be ``far``."""
        tree, _, cost, _ = self.graph.on_tree
        cost[tree[PARENT, :-1] == self.graph.root] += far - self.far
        self.far = far

    def _recompute(self) -> None:
        tree, _, cost, _ = self.graph.on_tree
        recompute(tree, cost, self.graph.p, 0)
        self.graph.p[-1] -= middle(self.graph.p)
        recompute(tree, cost, self.graph.p, 0)

    def _sweeps(self, clock: Clock, bound: float, sieve: float, most: int) -> bool:
        """Go through the rows until none has a pair that can enter; return whether none has."""
        n, quiet = self.graph.shape[0], 0
        for first, last in clock.portions(most):
            self.at, quiet = _sweep(
                *self.direct, *self.graph.on_tree, self.graph.p, self.step, sieve, self.at, quiet, last - first
            )
            clock.tell(lambda: reached(bound, self.graph))
            if quiet >= n:
                return True
        return False


def reached(bound: float, graph: Graph) -> str:
    """Describe in words the distance of the current plan to a bound of the optimum, in units of weight."""
    unsent = int(graph.unsent()[0].sum())
    if unsent:
        return f"{unsent / (unsent + int(graph.sent().units.sum())):.1%} of the mass has no path yet"
    units, cost = graph.sent()[2:]
    value = float(units @ cost)
    return f"gap at most {max(0.0, value - bound) / max(abs(value), 5e-324):.2g} of the value"


def on_matrix(C: Floats, supply: Ints, demand: Ints, clock: Clock) -> Tree:
    """Solve a small problem by sweeps alone; each row first sends its mass along the cheapest free entries."""
    u = C.min(1)
    v = (C - u[:, None]).min(0)
    graph = Tree(supply, demand, u, v)
    _send(C, v, graph.start, graph.weights, *graph.on_tree)
    none = np.empty((0, 0))
    AllPairs(graph, Direct(C, none, none, root=False), float(C.max() - C.min())).run(clock, -np.inf)
    return graph


@compiled
def _send(C: Floats, v: Floats, dual: Floats, weights: Ints, tree: Span, arc: Ints, cost: Floats, flow: Ints) -> None:
    """Build a tree: of every pair that carries something one point has nothing left, and hangs on the other."""
    n, root, left = len(C), len(weights), weights.copy()
    for i in range(n):
        while left[i] > 0:
            least, j = np.inf, -1
            for k in range(len(v)):
                if C[i, k] - v[k] < least and left[n + k] > 0:
                    least, j = C[i, k] - v[k], k
            sent = min(left[i], left[n + j])
            left[i] -= sent
            left[n + j] -= sent
            # An arc that leads down must carry something, now and later: so the column hangs on the row if both are done.
            node, above = (n + j, i) if left[n + j] == 0 else (i, n + j)
            tree[PARENT, node], tree[UP, node], cost[node], flow[node] = above, node < n, C[i, j], sent
    for node in range(root):
        if tree[PARENT, node] < 0:
            tree[PARENT, node], tree[UP, node], cost[node] = root, node < n, dual[node]
    enlist(tree)


@compiled
def _sweep(
    C: Floats, x: Floats, y: Floats, root: bool, tree: Span, arc: Ints, cost: Floats, flow: Ints, p: Floats,
    step: int, sieve: float, i: int, quiet: int, most: int,
) -> tuple[int, int]:  # fmt: skip
    """Let the least pair of each row enter, up to ``most`` in all or until no row has one.

    Return the row to go on with, and how many rows in turn have had none.
    """
    n = max(len(C), len(x))
    made, h, room = 0, p[n:-1], np.empty(LANES)
    while quiet < n and made < most:
        j = _least_entry(C[i], h) if len(C) else _least_point(x[i], y, h, root, room)
        c = C[i, j] if len(C) else distance(x[i], y, j, root)
        if c - p[i] + h[j] < -sieve * (abs(c) + abs(p[i]) + abs(h[j])):
            enter(tree, arc, cost, flow, p, i, n + j, 0, c)
            made, quiet = made + 1, 0
        else:
            quiet += 1
        i = i + step if i + step < n else i + step - n
    return i, quiet


@compiled
def _least_entry(c: Floats, h: Floats) -> int:
    """Return the place of the least c_j + h_j."""
    least, place = np.inf, 0
    for first in range(0, len(c), LANES):
        some, own, below = c[first : first + LANES], h[first : first + LANES], 0
        for t in range(len(some)):
            below += some[t] + own[t] < least
        if below:
            for t in range(len(some)):
                if some[t] + own[t] < least:
                    least, place = some[t] + own[t], first + t
    return place


@compiled
def _least_point(x: Floats, y: Floats, h: Floats, root: bool, c: Floats) -> int:
    """Return the place of the least distance from x [d] to a column of y [d, m], plus h."""
    least, place, m = np.inf, 0, len(h)
    for first in range(0, m, LANES):
        many, below = min(LANES, m - first), 0
        own = h[first : first + many]
        for t in range(many):
            c[t] = 0.0
        for k in range(len(x)):
            some, at = y[k, first : first + many], x[k]
            for t in range(many):
                gap = at - some[t]
                c[t] += gap * gap
        if root:
            for t in range(many):
                c[t] = np.sqrt(c[t])
        for t in range(many):
            below += c[t] + own[t] < least
        if below:
            for t in range(many):
                if c[t] + own[t] < least:
                    least, place = c[t] + own[t], first + t
    return place


@compiled
def distance(x: Floats, y: Floats, j: int, root: bool) -> float:
    """Return the cost of x [d] and column j of y [d, m], summed as everywhere."""
    c = 0.0
    for k in range(len(x)):
        gap = x[k] - y[k, j]
        c += gap * gap
    return np.sqrt(c) if root else c


def unclear(direct: Direct, f: Floats, g: Floats) -> tuple[Ints, Ints]:
    """Return the pairs whose reduced cost c − f_i − g_j is below 0, or is not above it by more than rounding."""
    counts, none = np.empty(len(f), np.int64), np.empty(0, np.int64)
    _unclear(*direct, f, g, counts, none)
    columns = np.empty(int(counts.sum()), np.int64)
    _unclear(*direct, f, g, counts, columns)
    return np.repeat(np.arange(len(f)), counts), columns


@compiled
def _unclear(C: Floats, x: Floats, y: Floats, root: bool, f: Floats, g: Floats, counts: Ints, columns: Ints) -> None:
    """Count these pairs of every row; where there is room for them, write their columns instead."""
    m, many, size = len(g), 0, COST_ROUNDING * np.abs(g)
    room, c = np.empty(LANES), np.empty(m)
    for i in range(len(f)):
        if len(columns) and counts[i] == 0:
            continue
        if len(C):
            c = C[i]
        else:
            for j in range(m):
                c[j] = distance(x[i], y, j, root)
        u, own, before = f[i], COST_ROUNDING * abs(f[i]), many
        for first in range(0, m, LANES):
            some, v, of_v, below = c[first : first + LANES], g[first : first + LANES], size[first : first + LANES], 0
            for t in range(len(some)):
                room[t] = some[t] - u - v[t] - (COST_ROUNDING * abs(some[t]) + own + of_v[t])
                below += room[t] <= 0
            if len(columns) == 0:
                many += below
            elif below:
                for t in range(len(some)):
                    if room[t] <= 0:
                        columns[many] = first + t
                        many += 1
        if len(columns) == 0:
            counts[i] = many - before
