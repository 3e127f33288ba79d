r"""A simplex block by block: what neighbours send each other is settled where the tree is small.

A pivot moves a part of the tree, so one of 100,000 nodes takes a hundred times as long as one of 1,000, and most are
local. Rows that are neighbours in the order given are a *block*, with the columns whose cheapest row, by reduced cost, is
one of them. Blocks are solved alone, on the arcs within, in threads; then four neighbours are one block, which starts from a
tree of the arcs that carry something, and so on until all is one.

What belongs to another block goes *outside*: one more row and one more column buy and sell at the potentials there were, f_i
and g_j, plus a fee. Without it a block would send all it can within, over long ways that are undone later.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import torch

from otformer.transport.exact.assignment import Floats, Ints

if TYPE_CHECKING:
    from otformer.transport.exact.flow_graph import Clock, Tree

NODES = 4096  # of a block to begin with; fewer are solved as one
WITHIN = 0.75  # of the arcs, or neighbours are not near and blocks are of no use
TOGETHER = 4  # blocks that become one
FEE = 1.0  # of what goes outside, as a share of the median reduced cost


def by_blocks(tree: Tree, of: type[Tree], clock: Clock) -> tuple[Floats, Floats, Ints]:
    """Return potentials (f, g) of nearly the best flow on the arcs of a tree that is not planted yet, and the flow [E]."""
    (n, m), (i, j), cost = tree.shape, tree.pairs(), tree.cost[tree.root :]
    f, g = (t.copy() for t in np.split(tree.cost[: tree.root], [n]))
    reduced = cost - f[i] - g[j]
    flow, count, fee = np.zeros(len(i), np.int64), 1, FEE * float(np.median(np.abs(reduced)))
    while count * NODES < tree.root:
        count *= TOGETHER
    cheapest = np.zeros(m, np.int64)
    order = np.argsort(-reduced, kind="stable")
    cheapest[j[order]] = i[order]  # the last one written is the cheapest
    row_block = np.arange(n) * count // n
    column_block = row_block[cheapest]
    if (row_block[i] == column_block[j]).mean() < WITHIN:
        return f, g, flow
    while count > 1 and not clock.expired:
        within = np.where(row_block[i] == column_block[j], row_block[i], count)
        members = [_members(block, count) for block in (row_block, column_block, within)]

        def solve(b: int) -> None:
            rows, columns, arcs = (groups[b] for groups in members)  # noqa: B023
            _solve(tree, of, rows, columns, arcs, f, g, flow, fee, clock)

        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(solve, range(count)))
        row_block, column_block, count = row_block // TOGETHER, column_block // TOGETHER, count // TOGETHER
    return f, g, flow


def _solve(
    tree: Tree, of: type[Tree], rows: Ints, columns: Ints, arcs: Ints, f: Floats, g: Floats, flow: Ints, fee: float,
    clock: Clock,
) -> None:  # fmt: skip
    """Solve one block, its last row and column being the outside; write its potentials and its flow."""
    n, (i, j) = tree.shape[0], tree.pairs()
    supply, demand, own = tree.weights[:n][rows], tree.weights[n:][columns], np.arange(max(len(rows), len(columns)))
    fs, gs = np.append(f[rows], 0.0), np.append(g[columns], 0.0)
    part = of(np.append(supply, demand.sum()), np.append(demand, supply.sum()), fs, gs)
    part.add(np.searchsorted(rows, i[arcs]), np.searchsorted(columns, j[arcs]), tree.cost[tree.root :][arcs])
    part.flow[part.root :] = flow[arcs]
    part.add(own[: len(rows)], np.full(len(rows), len(columns)), fs[:-1] + fee)
    part.add(np.full(len(columns) + 1, len(rows)), np.arange(len(columns) + 1), np.append(gs[:-1] + fee, 0.0))
    part.plant_around(fs, gs)
    part.settle(clock)
    flow[arcs] = part.flow[part.root :][: len(arcs)]
    shift = part.p[part.root - 1]
    f[rows], g[columns] = part.p[: len(rows)] - shift, shift - part.p[len(rows) + 1 : -2]


def _members(block: Ints, count: int) -> list[Ints]:
    """Return the members of every block, ascending; those of none have the number ``count``."""
    order = np.argsort(block, kind="stable")
    return np.split(order, np.searchsorted(block[order], np.arange(1, count + 1)))[:count]
