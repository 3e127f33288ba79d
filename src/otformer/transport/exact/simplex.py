r"""Transport between any weights on a sparse graph, exactly: a network simplex that starts from the network's potentials.

Nodes are the n rows, the m columns and a root. Arcs go from rows to columns; one more for every node, *artificial*, from a
row to the root and from the root to a column, carries what has not found its way. A basis is a spanning tree: its arcs
alone carry flow, and potentials p with p_source − p_target = cost on each of them are determined by it (f_i = p_i, g_j =
−p_j). An arc with cost − f_i − g_j < 0 enters: flow goes around the cycle it closes until an arc of the tree has none left,
which leaves. Cut off there, one part of the tree is hung up again by the entering arc, and its potentials move by the
reduced cost.

**Artificial arcs** are dearer than anything else: costs are pairs (level, cost) in lexicographic order, artificial arcs of
level 1, all others of level 0, which is the limit of a "big M" without its rounding. The cost of the artificial arc of a
node is the network's potential of it, so that parts of the tree that hang on the root have nearly the right potentials.

**The start.** In the order of reduced costs arcs that close no cycle form a tree (Kruskal). Its flow follows from the
leaves on: what a node has in all, with what hangs on it, goes to the node above. Where it would have to go the wrong way
the tree is cut, and the part below hangs on the root. With the network's potentials few cuts are needed, and most arcs of
this tree are those of the optimum.

**No cycling.** The tree is strongly feasible: an arc without flow points to the root. Of the arcs that could leave, the last
on the way around from the top of the cycle does, and this stays so [1]. In the end, when no artificial arc carries flow, all
that are left go up, at the same level, and p are potentials of the whole graph.

**The list.** Nodes stand in a list in which every subtree is one piece, its top first. A subtree that is hung up by another
node v_0, below its old top v_k, becomes v_0 with all below it, then v_1 with what else was below that, … up to v_k: each of
these is two old pieces at most, so the list is put together again in as many steps as the path is long. Potentials of the
part cut off move, or those of all others the other way, whichever are fewer: only differences count.

**Its parts.** `plant` makes a tree, `pivot` prices arcs by the block and lets the best one `enter`, which exchanges any arc
for one of the tree, wherever it came from. Costs are float64 here; where these are too coarse, digits.py has `pivot` in
whole numbers on the same tree, and all_pairs.py prices pairs that are on no list.

[1] W. H. Cunningham: A network simplex method. Mathematical Programming, 1976.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from otformer.transport.compiled import by_row, compiled
from otformer.transport.exact.assignment import COST_ROUNDING, Floats, Ints

Span = np.ndarray[Any, np.dtype[np.int32]]  # a tree, [7, nodes]
# Rows of the array that is the tree: of each node its parent (−1 of the root), whether the arc between them goes up, the
# level of its potential, the nodes of its subtree, its neighbours in the list, and the last of its subtree in the list.
PARENT, UP, LEVEL, SIZE, NEXT, BACK, LAST = range(7)


def no_tree(nodes: int) -> tuple[Span, Ints, Floats, Ints]:
    """Return a tree without arcs; and for every node but the root the arc to its parent, its cost, and its flow."""
    return np.full((7, nodes + 1), -1, np.int32), np.full(nodes, -1), np.zeros(nodes), np.zeros(nodes, np.int64)


@compiled
def enlist(tree: Span) -> None:
    """Put the nodes of a tree that is known by its parents into the list."""
    nodes = tree.shape[1]
    root, child, beside = nodes - 1, np.full(nodes, -1, np.int32), np.full(nodes, -1, np.int32)
    for node in range(root):
        above = tree[PARENT, node]
        beside[node], child[above] = child[above], node
    order, node = np.empty(nodes, np.int32), root
    for k in range(nodes):
        order[k] = node
        if child[node] >= 0:
            node = child[node]
        else:
            while node != root and beside[node] < 0:
                node = tree[PARENT, node]
            node = beside[node]
    tree[SIZE] = 1
    for k in range(nodes - 1, 0, -1):
        tree[SIZE, tree[PARENT, order[k]]] += tree[SIZE, order[k]]
    for k in range(nodes):
        node, after = order[k], order[(k + 1) % nodes]
        tree[NEXT, node], tree[BACK, after] = after, node
        tree[LAST, node] = order[k + tree[SIZE, node] - 1]


@compiled
def recompute(tree: Span, cost: Floats, p: Floats, lift: int) -> None:
    """Compute potentials and levels of all nodes from those of the root; artificial arcs are ``lift`` levels high."""
    root = len(p) - 1
    tree[LEVEL, root] = 0
    node = tree[NEXT, root]
    while node != root:
        above, sign = tree[PARENT, node], 1 if tree[UP, node] else -1
        p[node] = p[above] + sign * cost[node]
        tree[LEVEL, node] = tree[LEVEL, above] + (sign * lift if above == root else 0)
        node = tree[NEXT, node]


@compiled
def plant(
    source: Ints, target: Ints, costs: Floats, order: Ints, dual: Floats, weights: Ints, rows: int,
    tree: Span, arc: Ints, cost: Floats, flow: Ints,
) -> None:  # fmt: skip
    """Build a tree of the arcs in this ``order`` that close no cycle, with its flow; mass that it cannot carry is attached
    to the root.

    ``weights`` [nodes] is what every node has to send or to receive, ``dual`` [nodes] its potential at the root.
    """
    nodes = len(weights)
    taken = _forest(source, target, order, nodes)
    ends = np.concatenate((source[taken], target[taken]))
    start, order_of_ends = np.empty(nodes + 1, np.int64), np.empty(len(ends), np.int64)
    by_row(ends, start, order_of_ends)
    beside = taken[order_of_ends % max(1, len(taken))]
    above, arc_of, queue, many = np.full(nodes, -1), np.full(nodes, -1), np.empty(nodes, np.int64), 0
    for top in range(nodes):  # nodes of a tree after the one that they hang on
        if above[top] >= 0:
            continue
        above[top], queue[many], first = nodes, top, many
        many += 1
        while first < many:
            node = queue[first]
            first += 1
            for k in range(start[node], start[node + 1]):
                other = source[beside[k]] + target[beside[k]] - node
                if above[other] < 0:
                    above[other], arc_of[other], queue[many] = node, beside[k], other
                    many += 1
    has = weights.copy()
    has[rows:] *= -1
    for k in range(nodes - 1, -1, -1):  # from the leaves on, what a node has in all; columns want it
        node = queue[k]
        flow[node] = abs(has[node])
        tree[UP, node] = node < rows
        if above[node] < nodes and (has[node] >= 0 if node < rows else has[node] < 0):
            has[above[node]] += has[node]
            tree[PARENT, node], arc[node], cost[node] = above[node], arc_of[node], costs[arc_of[node]]
        else:
            up = has[node] >= 0
            tree[PARENT, node], tree[UP, node] = nodes, up
            cost[node] = dual[node] if up == (node < rows) else -dual[node]  # if the arc goes the other way
    enlist(tree)


@compiled
def _forest(source: Ints, target: Ints, order: Ints, nodes: int) -> Ints:
    """Return the arcs, of those in ``order``, that connect what was not connected before (Kruskal)."""
    leader, taken, many = np.arange(nodes), np.empty(nodes, np.int64), 0
    for arc in order:
        i, j = source[arc], target[arc]
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        while leader[j] != j:
            leader[j] = leader[leader[j]]
            j = leader[j]
        if i != j:
            leader[i] = j
            taken[many] = arc
            many += 1
    return taken[:many].copy()


@compiled
def pivot(
    source: Ints, target: Ints, costs: Floats, tree: Span, arc: Ints, cost: Floats, flow: Ints, p: Floats,
    at: int, block: int, most: int,
) -> tuple[int, int]:  # fmt: skip
    """Make up to ``most`` pivots, in place; return how many (fewer: it is optimal), and the arc to go on from.

    An arc enters only if its reduced cost is below 0 by more than rounding.
    """
    arcs, levels = len(source), tree[LEVEL]
    for made in range(most):
        best, least, lowest, looked = -1, 0.0, 0, 0
        while looked < arcs and best < 0:
            many = min(block, arcs - looked)
            for _ in range(many):
                at = at + 1 if at + 1 < arcs else 0
                i, j = source[at], target[at]
                level, reduced = levels[j] - levels[i], costs[at] - p[i] + p[j]
                if (level < lowest or (level == lowest and reduced < least)) and (
                    level < 0 or reduced < -COST_ROUNDING * (abs(costs[at]) + abs(p[i]) + abs(p[j]))
                ):
                    best, lowest, least = at, level, reduced
            looked += many
        if best < 0:
            return made, at
        enter(tree, arc, cost, flow, p, source[best], target[best], best, costs[best])
    return most, at


@compiled
def enter(tree: Span, arc: Ints, cost: Floats, flow: Ints, p: Floats, i: int, j: int, new: int, price: float) -> None:
    """Make the arc ``new`` from i to j at this ``price`` one of the tree; flow, potentials and levels follow."""
    shift, level = price - p[i] + p[j], tree[LEVEL, j] - tree[LEVEL, i]
    top, sign = turn(tree, arc, cost, flow, i, j, new, price)
    nodes, size = len(p), tree[SIZE, top]
    if level != 0:
        node = top
        for _ in range(size):
            tree[LEVEL, node] += sign * level
            node = tree[NEXT, node]
    if 2 * size > nodes:
        top, size, sign = tree[NEXT, tree[LAST, top]], nodes - size, -sign
    after, shift = tree[NEXT], sign * shift
    for _ in range(size):
        p[top] += shift
        top = after[top]


@compiled
def turn(tree: Span, arc: Ints, cost: Floats, flow: Ints, i: int, j: int, new: int, price: float) -> tuple[int, int]:
    """Send flow around the cycle that the arc ``new`` from i to j closes, and exchange it for the arc that leaves the tree.

    Return the top of the part of the tree that hangs on the new arc, and the sign by which its reduced cost moves the
    potentials there.
    """
    # Around from the top: down to i, over the arc to j, up again. Flow falls on arcs that go up to i's side, down to j's.
    least, out, of_row, a, b = np.int64(2**62), i, True, i, j
    while a != b:
        if tree[SIZE, a] <= tree[SIZE, b]:  # it is not above b then
            if tree[UP, a] and flow[a] < least:
                least, out = flow[a], a
            a = tree[PARENT, a]
        else:
            b = tree[PARENT, b]
    top, b = a, j
    while b != top:
        if not tree[UP, b] and flow[b] <= least:
            least, out, of_row = flow[b], b, False
        b = tree[PARENT, b]
    if least > 0:
        a, b = i, j
        while a != top:
            flow[a] += -least if tree[UP, a] else least
            a = tree[PARENT, a]
        while b != top:
            flow[b] += least if tree[UP, b] else -least
            b = tree[PARENT, b]
    moved, above = tree[SIZE, out], tree[PARENT, out]
    start, parent = (i, j) if of_row else (j, i)
    a, b = above, parent
    while a != top:
        tree[SIZE, a] -= moved
        a = tree[PARENT, a]
    while b != top:
        tree[SIZE, b] += moved
        b = tree[PARENT, b]
    _rehang(tree, arc, cost, flow, start, out, parent, 1 if of_row else 0, new, price, least)
    return start, 1 if of_row else -1


@compiled
def _rehang(
    tree: Span, arc: Ints, cost: Floats, flow: Ints, start: int, out: int, parent: int, up: int, new: int, price: float,
    units: Any,
) -> None:  # fmt: skip
    """Hang the subtree of ``out`` on ``parent``, by its node ``start``; the path between them turns around."""
    above, last, size, before, moved = tree[PARENT, out], tree[LAST, out], 0, tree[BACK, out], tree[SIZE, out]
    # What is left of a subtree when that of the node below is taken out: up to ``left``, and from ``beyond`` up to its end.
    node, to, end = start, parent, tree[LAST, start]
    tail, left, beyond = end, tree[BACK, start], tree[NEXT, end]
    while True:
        over, own = tree[PARENT, node], (arc[node], cost[node], flow[node], tree[UP, node], tree[SIZE, node])
        tree[PARENT, node], tree[UP, node], tree[SIZE, node] = to, up, moved - size
        arc[node], cost[node], flow[node] = new, price, units
        if node == out:
            break
        to, new, price, units, up, size = node, own[0], own[1], own[2], 1 - own[3], own[4]
        back, over_end = tree[BACK, over], tree[LAST, over]
        tree[NEXT, tail], tree[BACK, over] = over, tail
        tail = left
        if over_end != end:
            tree[NEXT, left], tree[BACK, beyond] = beyond, left
            tail = end = over_end
            beyond = tree[NEXT, end]
        left, node = back, over
    # The piece leaves the list, and comes back behind its new parent.
    tree[NEXT, before], tree[BACK, beyond] = beyond, before
    _set_last(tree, above, last, before)
    while node != start:
        tree[LAST, node] = tail
        node = tree[PARENT, node]
    tree[LAST, start] = tail
    after = tree[NEXT, parent]
    tree[NEXT, parent], tree[BACK, start], tree[NEXT, tail], tree[BACK, after] = start, parent, after, tail
    _set_last(tree, parent, parent, tail)


@compiled
def _set_last(tree: Span, node: int, old: int, new: int) -> None:
    """Let subtrees that ended with ``old``, from that of ``node`` upwards, end with ``new``."""
    while node >= 0 and tree[LAST, node] == old:
        tree[LAST, node] = new
        node = tree[PARENT, node]
