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

**Its parts.** `plant` makes a tree, `pivot` prices arcs by the block and lets the best one `enter`, which exchanges any arc
for one of the tree, wherever it came from. Costs are float64 here; where these are too coarse, digits.py has `pivot` in
whole numbers on the same tree.

[1] W. H. Cunningham: A network simplex method. Mathematical Programming, 1976.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from otformer.transport.compiled import by_row, compiled
from otformer.transport.exact.assignment import COST_ROUNDING, Floats, Ints

Span = np.ndarray[Any, np.dtype[np.int32]]  # a tree, [nodes, 8]
# Columns of the array that is the tree: for each node its parent, the arc to it, whether that goes up, the level of its
# potential, its depth, its first child, and the neighbours among its siblings; −1 where there is none.
PARENT, ARC, UP, LEVEL, DEPTH, CHILD, NEXT, BEFORE = range(8)


@compiled
def _attach(tree: Span, node: int, parent: int, arc: int, up: int) -> None:
    """Make ``node`` the first child of ``parent``."""
    tree[node, PARENT], tree[node, ARC], tree[node, UP] = parent, arc, up
    child = tree[parent, CHILD]
    tree[node, NEXT], tree[node, BEFORE], tree[parent, CHILD] = child, -1, node
    if child >= 0:
        tree[child, BEFORE] = node


@compiled
def _detach(tree: Span, node: int) -> None:
    """Take ``node`` out of the children of its parent."""
    after, before = tree[node, NEXT], tree[node, BEFORE]
    if before >= 0:
        tree[before, NEXT] = after
    else:
        tree[tree[node, PARENT], CHILD] = after
    if after >= 0:
        tree[after, BEFORE] = before


@compiled
def following(tree: Span, node: int, top: int) -> int:
    """Return the next node of the subtree of ``top``, parents before children; −1 after the last."""
    if tree[node, CHILD] >= 0:
        return tree[node, CHILD]
    while node != top and tree[node, NEXT] < 0:
        node = tree[node, PARENT]
    return -1 if node == top else tree[node, NEXT]


@compiled
def recompute(tree: Span, p: Floats, cost: Floats) -> None:
    """Compute potentials, levels and depths of all nodes from the tree and the potential of its root, in place."""
    root = len(p) - 1
    node = following(tree, root, root)
    while node >= 0:
        above, arc, sign = tree[node, PARENT], tree[node, ARC], 1 if tree[node, UP] else -1
        p[node] = p[above] + sign * cost[arc]
        tree[node, LEVEL] = tree[above, LEVEL] + sign * (arc < root)
        tree[node, DEPTH] = tree[above, DEPTH] + 1
        node = following(tree, node, root)


@compiled
def plant(source: Ints, target: Ints, order: Ints, cost: Floats, flow: Ints, weights: Ints, rows: int) -> Span:
    """Build a tree of the arcs in this ``order`` that close no cycle; write its flow, and on artificial arcs what it cannot
    carry.

    ``weights`` [nodes] is what every node has to send or to receive. Arcs 0 … nodes − 1 are the artificial ones.
    """
    nodes = len(weights)
    tree, taken = np.full((nodes + 1, 8), -1, np.int32), _forest(source, target, order, nodes)
    ends = np.concatenate((source[taken], target[taken]))
    start, order_of_ends = by_row(ends, nodes)
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
        if above[node] < nodes and (has[node] >= 0 if node < rows else has[node] < 0):
            has[above[node]] += has[node]
            flow[arc_of[node]] = abs(has[node])
        else:
            above[node] = nodes
    for k in range(nodes):
        node = queue[k]
        if above[node] < nodes:
            _attach(tree, node, above[node], arc_of[node], 1 if node < rows else 0)
        else:
            up = has[node] >= 0
            _attach(tree, node, nodes, node, 1 if up else 0)
            flow[node] = abs(has[node])
            if up != (node < rows):  # the arc goes the other way
                cost[node] *= -1
    tree[nodes, LEVEL], tree[nodes, DEPTH] = 0, 0
    return tree


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
    source: Ints, target: Ints, cost: Floats, flow: Ints, tree: Span, p: Floats, at: int, block: int, most: int
) -> tuple[int, int]:
    """Make up to ``most`` pivots, in place; return how many (fewer: it is optimal), and the arc to go on from.

    An arc enters only if its reduced cost is below 0 by more than rounding.
    """
    first, arcs = len(p) - 1, len(source)
    for made in range(most):
        best, least, lowest, seen, looked = -1, 0.0, 0, 0, 0
        while looked < arcs - first and best < 0:
            for _ in range(min(block, arcs - first - looked)):
                at = at + 1 if at + 1 < arcs else first
                i, j = source[at], target[at]
                level = tree[j, LEVEL] - tree[i, LEVEL]
                if level <= lowest:
                    reduced = cost[at] - p[i] + p[j]
                    sure = level < 0 or reduced < -COST_ROUNDING * (abs(cost[at]) + abs(p[i]) + abs(p[j]))
                    if level < lowest or (reduced < least and sure):
                        best, lowest, least = at, level, reduced
                seen += 1
            looked = seen
        if best < 0:
            return made, at
        enter(source, target, cost, flow, tree, p, best)
    return most, at


@compiled
def enter(source: Ints, target: Ints, cost: Floats, flow: Ints, tree: Span, p: Floats, arc: int) -> None:
    """Make ``arc`` an arc of the tree in place of the one that it drives out; flow, potentials and levels follow."""
    i, j = source[arc], target[arc]
    shift, level = cost[arc] - p[i] + p[j], tree[j, LEVEL] - tree[i, LEVEL]
    top, sign = turn(source, target, flow, tree, arc)
    node = top
    while node >= 0:
        p[node] += sign * shift
        tree[node, LEVEL] += sign * level
        tree[node, DEPTH] = tree[tree[node, PARENT], DEPTH] + 1
        node = following(tree, node, top)


@compiled
def turn(source: Ints, target: Ints, flow: Ints, tree: Span, arc: int) -> tuple[int, int]:
    """Send flow around the cycle that ``arc`` closes, and exchange it for the arc that leaves the tree.

    Return the top of the part of the tree that hangs on ``arc`` now, and the sign by which the reduced cost of the arc moves
    the potentials of that part. The depths of its nodes are not up to date.
    """
    i, j = source[arc], target[arc]
    # Around from the top: down to i, over the arc to j, up again. Flow falls on arcs that go up to i's side, down to j's.
    least, out, of_row = np.int64(2**62), -1, True
    a, b = i, j
    while a != b:
        if tree[a, DEPTH] >= tree[b, DEPTH]:
            if tree[a, UP] and flow[tree[a, ARC]] < least:
                least, out, of_row = flow[tree[a, ARC]], a, True
            a = tree[a, PARENT]
        else:
            b = tree[b, PARENT]
    top, b = a, j
    while b != top:
        if not tree[b, UP] and flow[tree[b, ARC]] <= least:
            least, out, of_row = flow[tree[b, ARC]], b, False
        b = tree[b, PARENT]
    if least > 0:
        flow[arc] += least
        a, b = i, j
        while a != top:
            flow[tree[a, ARC]] += -least if tree[a, UP] else least
            a = tree[a, PARENT]
        while b != top:
            flow[tree[b, ARC]] += least if tree[b, UP] else -least
            b = tree[b, PARENT]
    node, parent, by, up = (i, j, arc, 1) if of_row else (j, i, arc, 0)
    start = node
    while True:
        above, old, old_up = tree[node, PARENT], tree[node, ARC], tree[node, UP]
        _detach(tree, node)
        _attach(tree, node, parent, by, up)
        if node == out:
            break
        parent, by, up, node = node, old, 1 - old_up, above
    return start, 1 if of_row else -1
