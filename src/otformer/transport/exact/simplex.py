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

**The start** is greedy: in the order of reduced costs an arc carries all that its row still has or its column still wants.
Every such arc exhausts one of its ends, so they form a forest, in every tree of which at most one node is left with
anything: there it hangs on the root, and at a row if no node is.

**No cycling.** The tree is strongly feasible: an arc without flow points to the root. Of the arcs that could leave, the last
on the way around from the top of the cycle does, and this stays so. In the end, when no artificial arc carries flow, all
that are left are of rows, at the same level, and p are potentials of the whole graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from otformer.transport.exact.compiled import compiled

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
# Rows of the array that is the tree: for each node its parent, the arc to it, whether that goes up, the level of its
# potential, its depth, its first child, and the neighbours among its siblings; −1 where there is none.
PARENT, ARC, UP, LEVEL, DEPTH, CHILD, NEXT, BEFORE = range(8)


@compiled
def _hang(tree: Ints, node: int, parent: int, arc: int, up: int) -> None:
    tree[PARENT, node], tree[ARC, node], tree[UP, node] = parent, arc, up
    child = tree[CHILD, parent]
    tree[NEXT, node], tree[BEFORE, node], tree[CHILD, parent] = child, -1, node
    if child >= 0:
        tree[BEFORE, child] = node


@compiled
def _take_off(tree: Ints, node: int) -> None:
    after, before = tree[NEXT, node], tree[BEFORE, node]
    if before >= 0:
        tree[NEXT, before] = after
    else:
        tree[CHILD, tree[PARENT, node]] = after
    if after >= 0:
        tree[BEFORE, after] = before


@compiled
def _following(tree: Ints, node: int, top: int) -> int:
    """The next node of the subtree of ``top``, parents before children; −1 after the last."""
    if tree[CHILD, node] >= 0:
        return tree[CHILD, node]
    while node != top and tree[NEXT, node] < 0:
        node = tree[PARENT, node]
    return -1 if node == top else tree[NEXT, node]


@compiled
def potentials(tree: Ints, p: Floats, cost: Floats) -> None:
    """p, levels and depths of all nodes from the tree, in place."""
    root, artificial = len(p) - 1, len(p) - 1
    node = _following(tree, root, root)
    while node >= 0:
        above, arc, up = tree[PARENT, node], tree[ARC, node], tree[UP, node]
        sign = 1 if up else -1
        p[node] = p[above] + sign * cost[arc]
        tree[LEVEL, node] = tree[LEVEL, above] + sign * (arc < artificial)
        tree[DEPTH, node] = tree[DEPTH, above] + 1
        node = _following(tree, node, root)


@compiled
def plant(source: Ints, target: Ints, order: Ints, flow: Ints, left: Ints, rows: int) -> Ints:
    """The greedy start: a tree of arcs taken in this ``order``; ``left`` [nodes] is what every node has to send or to
    receive.

    Arcs 0 … nodes − 1 are the artificial ones.
    """
    nodes = len(left)
    tree = np.full((8, nodes + 1), -1)
    other, arc_of, count = np.empty(2 * nodes, np.int64), np.empty(2 * nodes, np.int64), np.zeros(nodes + 1, np.int64)
    taken, many = np.empty(nodes, np.int64), 0
    for arc in order:
        i, j = source[arc], target[arc]
        if left[i] > 0 and left[j] > 0:
            sent = min(left[i], left[j])
            flow[arc] = sent
            left[i] -= sent
            left[j] -= sent
            taken[many] = arc
            many += 1
            count[i] += 1
            count[j] += 1
    start = np.zeros(nodes + 1, np.int64)
    for k in range(nodes):
        start[k + 1] = start[k] + count[k]
    count[:] = 0
    for k in range(many):
        arc = taken[k]
        for node, end in ((source[arc], target[arc]), (target[arc], source[arc])):
            other[start[node] + count[node]], arc_of[start[node] + count[node]] = end, arc
            count[node] += 1
    stack = np.empty(nodes, np.int64)
    for turn in range(2):  # trees hang on a node that is not exhausted, then those without one on a row
        for top in range(nodes if turn == 0 else rows):
            if tree[PARENT, top] >= 0 or (turn == 0 and left[top] == 0):
                continue
            _hang(tree, top, nodes, top, 1 if top < rows else 0)
            flow[top] = left[top]
            stack[0], size = top, 1
            while size:
                size -= 1
                node = stack[size]
                for k in range(start[node], start[node + 1]):
                    if tree[PARENT, other[k]] < 0 and other[k] != top:
                        _hang(tree, other[k], node, arc_of[k], 1 if other[k] < rows else 0)
                        stack[size] = other[k]
                        size += 1
    for top in range(rows, nodes):  # columns that want nothing
        if tree[PARENT, top] < 0:
            _hang(tree, top, nodes, top, 0)
    tree[LEVEL, nodes], tree[DEPTH, nodes] = 0, 0
    return tree


@compiled
def pivot(
    source: Ints, target: Ints, cost: Floats, flow: Ints, tree: Ints, p: Floats, at: int, block: int, slack: float, most: int
) -> tuple[int, int]:
    """Up to ``most`` pivots, in place; how many were made, and the arc to go on from. Fewer than ``most``: it is optimal."""
    first, arcs = len(p) - 1, len(source)
    for made in range(most):
        best, least, lowest, seen, looked = -1, -slack, 0, 0, 0
        while looked < arcs - first and best < 0:
            for _ in range(min(block, arcs - first - looked)):
                at = at + 1 if at + 1 < arcs else first
                i, j = source[at], target[at]
                level = tree[LEVEL, j] - tree[LEVEL, i]
                if level <= lowest:
                    reduced = cost[at] - p[i] + p[j]
                    if level < lowest or reduced < least:
                        best, lowest, least = at, level, reduced
                seen += 1
            looked = seen
        if best < 0:
            return made, at
        _turn(source, target, cost, flow, tree, p, best)
    return most, at


@compiled
def _turn(source: Ints, target: Ints, cost: Floats, flow: Ints, tree: Ints, p: Floats, arc: int) -> None:
    """``arc`` enters."""
    i, j = source[arc], target[arc]
    # Around from the top: down to i, over the arc to j, up again. Flow falls on arcs that go up to i's side, down to j's.
    least, out, of_row = np.int64(2**62), -1, True
    a, b = i, j
    while a != b:
        if tree[DEPTH, a] >= tree[DEPTH, b]:
            if tree[UP, a] and flow[tree[ARC, a]] < least:
                least, out, of_row = flow[tree[ARC, a]], a, True
            a = tree[PARENT, a]
        else:
            b = tree[PARENT, b]
    top, b = a, j
    while b != top:
        if not tree[UP, b] and flow[tree[ARC, b]] <= least:
            least, out, of_row = flow[tree[ARC, b]], b, False
        b = tree[PARENT, b]
    if least > 0:
        flow[arc] += least
        a, b = i, j
        while a != top:
            flow[tree[ARC, a]] += -least if tree[UP, a] else least
            a = tree[PARENT, a]
        while b != top:
            flow[tree[ARC, b]] += least if tree[UP, b] else -least
            b = tree[PARENT, b]
    shift, level = cost[arc] - p[i] + p[j], tree[LEVEL, j] - tree[LEVEL, i]
    node, parent, by, up = (i, j, arc, 1) if of_row else (j, i, arc, 0)
    start = node
    if not of_row:
        shift, level = -shift, -level
    while True:
        above, old, old_up = tree[PARENT, node], tree[ARC, node], tree[UP, node]
        _take_off(tree, node)
        _hang(tree, node, parent, by, up)
        if node == out:
            break
        parent, by, up, node = node, old, 1 - old_up, above
    node = start
    while node >= 0:
        p[node] += shift
        tree[LEVEL, node] += level
        tree[DEPTH, node] = tree[DEPTH, tree[PARENT, node]] + 1
        node = _following(tree, node, start)
