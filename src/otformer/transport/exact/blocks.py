r"""A simplex block by block: what neighbours send each other is settled where the tree is small.

A pivot moves a part of the tree, so one of 100,000 nodes takes a hundred times as long as one of 1,000, and most are
local. Rows that are neighbours in the order given are a *block*, with the columns whose cheapest row, by reduced cost, is
one of them. Blocks are solved alone, on the arcs within, in threads; then four neighbours are one block, which starts from a
tree of the arcs that carry something, and so on until all is one. Where potentials are good, little crosses the border of a
block, and later trees need few pivots. Blocks need not be balanced: what one cannot send waits on its artificial arcs.
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


def by_blocks(tree: Tree, kind: type[Tree], clock: Clock) -> tuple[Floats, Floats, Ints]:
    """Return potentials (f, g) of nearly the best flow on the arcs of a tree that is not planted yet, and the flow [E]."""
    (n, m), (i, j), cost = tree.shape, tree.pairs(), tree.cost[tree.root :]
    f, g = (t.copy() for t in np.split(tree.cost[: tree.root], [n]))
    flow, count = np.zeros(len(i), np.int64), -(-tree.root // NODES)
    reduced = cost - f[i] - g[j]
    cheapest = np.zeros(m, np.int64)
    order = np.argsort(-reduced, kind="stable")
    cheapest[j[order]] = i[order]  # the last one written is the cheapest
    row_block = np.arange(n) * count // n
    column_block = row_block[cheapest]
    if (row_block[i] == column_block[j]).mean() < WITHIN:
        return f, g, flow
    while count > 1 and not clock.expired:
        members = [
            _members(block, count)
            for block in (row_block, column_block, np.where(row_block[i] == column_block[j], row_block[i], count))
        ]

        def solve(b: int) -> None:
            rows, columns, arcs = (groups[b] for groups in members)  # noqa: B023
            part = kind(tree.weights[:n][rows], tree.weights[n:][columns], f[rows], g[columns])
            part.add(np.searchsorted(rows, i[arcs]), np.searchsorted(columns, j[arcs]), cost[arcs])
            part.flow[part.root :] = flow[arcs]
            part.plant_around(f[rows], g[columns])
            part.settle(clock)
            flow[arcs] = part.flow[part.root :]
            f[rows], g[columns] = part.anchored(f[rows], g[columns])

        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(solve, range(count)))
        row_block, column_block, count = row_block // TOGETHER, column_block // TOGETHER, -(-count // TOGETHER)
    return f, g, flow


def _members(block: Ints, count: int) -> list[Ints]:
    """Return the members of every block, ascending; those of none have the number ``count``."""
    order = np.argsort(block, kind="stable")
    return np.split(order, np.searchsorted(block[order], np.arange(1, count + 1)))[:count]
