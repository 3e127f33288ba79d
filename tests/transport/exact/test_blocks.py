"""A simplex block by block: the flow of the whole, whatever the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from needs import missing

pytest.importorskip("numba", reason=missing("exact"))

from otformer.transport.exact import blocks, flow_graph  # noqa: E402
from otformer.transport.exact.flow_graph import Clock, Tree  # noqa: E402
from otformer.transport.exact.units import in_units  # noqa: E402


def tree(n, m, near, seed=0):
    """Points along a line with random weights, and arcs between those that are near."""
    rng = np.random.default_rng(seed)
    x, y = np.sort(rng.random(n)), np.sort(rng.random(m))
    a, b = rng.random(n), rng.random(m)
    units = in_units(a / a.sum(), b / b.sum(), 1.0)
    C = cdist(x[:, None], y[:, None], "sqeuclidean")
    i, j = np.nonzero(C < near**2)
    made = Tree(units.supply, units.demand, C.min(1), np.zeros(m))
    made.add(i, j, C[i, j])
    return made


@pytest.mark.parametrize("near", [0.3, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_blocks_change_nothing(near, seed, monkeypatch):
    whole = tree(300, 260, near, seed)
    monkeypatch.setattr(flow_graph, "NODES", 10**9)
    whole.run(Clock(None), 0.0)
    for module in (flow_graph, blocks):
        monkeypatch.setattr(module, "NODES", 40)
    monkeypatch.setattr(blocks, "WITHIN", 0.0)
    parts = tree(300, 260, near, seed)
    parts.run(Clock(None), 0.0)
    costs = [float(t.sent().units @ t.sent().cost) for t in (whole, parts)]
    assert costs[1] == pytest.approx(costs[0], rel=1e-9)
    assert parts.unsent()[0].sum() == whole.unsent()[0].sum()


def test_most_of_the_work_is_done_in_blocks(monkeypatch):
    pivots = {}
    inner = Tree.pivot

    def counted(self, clock, most):
        made = inner(self, clock, most)
        pivots[self.root] = pivots.get(self.root, 0) + made[0]
        return made

    monkeypatch.setattr(Tree, "pivot", counted)
    for module in (flow_graph, blocks):
        monkeypatch.setattr(module, "NODES", 100)
    monkeypatch.setattr(blocks, "WITHIN", 0.0)
    some = tree(800, 800, 0.05)
    some.run(Clock(None), 0.0)
    assert pivots[1600] < 0.5 * sum(pivots.values())
