"""A simplex block by block: the flow of the whole, whatever the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from needs import missing

pytest.importorskip("numba", reason=missing("exact"))

from otformer.transport.exact import blocks, flow_graph
from otformer.transport.exact.flow_graph import Clock, Tree
from otformer.transport.exact.units import in_units


def tree(n, m, near, seed=0, g=None):
    """Points along a line with random weights, arcs between those that are near, and potentials of the columns."""
    rng = np.random.default_rng(seed)
    x, y = np.sort(rng.random(n)), np.sort(rng.random(m))
    a, b = rng.random(n), rng.random(m)
    units = in_units(a / a.sum(), b / b.sum(), 1.0)
    C = cdist(x[:, None], y[:, None], "sqeuclidean")
    i, j = np.nonzero(near**2 > C)
    g = np.zeros(m) if g is None else g
    made = Tree(units.supply, units.demand, np.where(near**2 > C, C - g, np.inf).min(1), g)
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


def test_blocks_leave_little_to_do(monkeypatch):
    pivots = {}
    inner = Tree.pivot

    def counted(self, clock, most):
        made = inner(self, clock, most)
        pivots[self.root] = pivots.get(self.root, 0) + made[0]
        return made

    monkeypatch.setattr(flow_graph, "NODES", 10**9)
    best = tree(800, 800, 0.3)
    best.run(Clock(None), 0.0)
    near = best.g + 1e-5 * np.random.default_rng(0).standard_normal(800)
    monkeypatch.setattr(Tree, "pivot", counted)
    tree(800, 800, 0.3, g=near).run(Clock(None), 0.0)
    alone = pivots.pop(1600)
    for module in (flow_graph, blocks):
        monkeypatch.setattr(module, "NODES", 100)
    monkeypatch.setattr(blocks, "WITHIN", 0.0)
    tree(800, 800, 0.3, g=near).run(Clock(None), 0.0)
    assert len(pivots) > 4
    assert pivots[1600] < 0.7 * alone
