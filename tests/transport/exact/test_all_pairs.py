"""Sweeps over all pairs, the tree that they keep, and the ways that lead to them: by POT, and by their invariants."""

from __future__ import annotations

import logging
import signal

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist

from needs import missing

pytest.importorskip("numba", reason=missing("exact"))

import otformer as of
from otformer.transport.costs.cost import Direct
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.exact import coarse_to_fine, find_optimum, flow_graph, rounds
from otformer.transport.exact.all_pairs import ALL_PAIRS, on_matrix, unclear
from otformer.transport.exact.coarse_to_fine import from_coarser
from otformer.transport.exact.flow_graph import Clock, Tree
from otformer.transport.exact.simplex import BACK, LAST, NEXT, PARENT, SIZE
from otformer.transport.exact.units import in_units

NONE = np.empty((0, 0))


def problem(n: int, m: int, kind: str, seed: int = 0):
    rng = np.random.default_rng([seed, n, m])
    x, y = rng.random((n, 2)), rng.random((m, 2)) * [1.0, 0.3] + [2.0, 0.0]
    C = {
        "far": cdist(x, y, "sqeuclidean"),
        "ties": rng.integers(0, 3, (n, m)).astype(float),
        "random": rng.random((n, m)),
        "tails": cdist(rng.standard_cauchy((n, 2)), rng.standard_cauchy((m, 2)), "sqeuclidean"),
        "path": abs(np.arange(n)[:, None] / n - np.arange(m) / m) + 1e-3 * rng.random((n, m)),
    }[kind]
    a, b = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(m))
    return C, a, b


KINDS = ["far", "ties", "random", "tails", "path"]


def is_whole(tree: np.ndarray) -> None:
    """Check that the list has every node once, each subtree in one piece behind its top, and sizes and ends are right."""
    nodes, root = tree.shape[1], tree.shape[1] - 1
    order = [root]
    while len(order) < nodes:
        order.append(int(tree[NEXT, order[-1]]))
    assert sorted(order) == list(range(nodes))
    assert tree[NEXT, order[-1]] == root
    place = np.argsort(order)
    assert all(tree[BACK, tree[NEXT, k]] == k for k in range(nodes))
    size = np.ones(nodes, int)
    for k in order[:0:-1]:
        assert place[tree[PARENT, k]] < place[k]
        size[tree[PARENT, k]] += size[k]
    np.testing.assert_array_equal(tree[SIZE], size)
    for k in range(nodes):
        assert tree[LAST, k] == order[place[k] + size[k] - 1]


@pytest.mark.parametrize("kind", KINDS)
def test_every_pivot_leaves_a_tree(kind):
    C, a, b = problem(17, 23, kind)
    units = in_units(a, b, 1.0)
    tree = Tree(units.supply, units.demand, C.min(1), np.zeros(23))
    i, j = np.divmod(np.arange(C.size), 23)
    tree.add(i, j, C.ravel())
    tree.plant(C.min(1), np.zeros(23))
    tree._renew()
    is_whole(tree.tree)
    for _ in range(500):
        made, _ = tree._pivot(0, 40, 1)
        is_whole(tree.tree)
        assert (tree.on_tree[3] >= 0).all()
        if not made:
            break
    assert not made
    sent = tree.sent()
    out = np.zeros(17, np.int64)
    np.add.at(out, sent.i, sent.units)
    np.testing.assert_array_equal(out, units.supply)
    assert float(sent.units @ sent.cost) * units.unit == pytest.approx(ot.emd2(a, b, C), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (40, 40), (120, 30)])
def test_sweeps_over_a_matrix(shape, kind):
    C, a, b = problem(*shape, kind)
    units = in_units(a, b, 1.0)
    graph = on_matrix(C, units.supply, units.demand, Clock(None))
    sent, slack = graph.sent(), C - graph.f[:, None] - graph.g
    assert not graph.unsent()[0].any()
    assert float(sent.units @ sent.cost) * units.unit == pytest.approx(ot.emd2(a, b, C), rel=1e-9, abs=1e-12)
    assert slack.min() > -1e-9 * C.max()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_from_lists_to_sweeps(kind, seed, monkeypatch):
    """What problems of thousands of points do, on small ones: coarse problems, lists, rounds, then all pairs."""
    for name, value in (("SWEPT_UP_TO", 0), ("TRIED_UP_TO", 0)):
        monkeypatch.setattr(find_optimum, name, value)
    for name, value in (("PAIRS", 2), ("ADDED", 1), ("FALLING", 0.0)):
        monkeypatch.setattr(rounds, name, value)
    monkeypatch.setattr(coarse_to_fine, "COARSEST", 8)
    C, a, b = problem(90, 70, kind, seed)
    for weights in ((a, b), (None, None)):
        r = of.solve(C, *weights, reg=0)
        whole = [np.full(k, 1 / k) if w is None else w for k, w in zip(C.shape, weights, strict=True)]
        assert r.converged
        assert float(r.value) == pytest.approx(ot.emd2(*whole, C), rel=1e-9, abs=1e-12)


def test_where_rounds_stall_a_matching_becomes_a_tree(monkeypatch):
    for name, value in (("SWEPT_UP_TO", 0), ("TRIED_UP_TO", 0)):
        monkeypatch.setattr(find_optimum, name, value)
    for name, value in (("SWEPT", 0), ("STALLED_BEFORE_SWEEPS", -1), ("PAIRS", 2), ("ADDED", 1)):
        monkeypatch.setattr(rounds, name, value)
    C, *_ = problem(80, 80, "far")
    r = of.solve(C, reg=0)
    assert (r.converged, r.method.endswith(ALL_PAIRS), r.permutation is not None) == (True, True, True)
    assert float(r.value) == pytest.approx(C[np.arange(80), ot.lp.emd([], [], C).argmax(1)].mean(), rel=1e-12)


def test_far_more_columns_than_rows(monkeypatch):
    turned = []
    inner = find_optimum._transposed
    monkeypatch.setattr(find_optimum, "_transposed", lambda p: turned.append(inner(p)) or turned[-1])
    for n, m, kind in ((4, 300, "far"), (3, 200, "tails"), (30, 31, "random")):
        C, a, b = problem(n, m, kind)
        r = of.solve(C, a, b, reg=0)
        assert float(r.value) == pytest.approx(ot.emd2(a, b, C), rel=1e-9)
        plan = r.dense()
        np.testing.assert_allclose(plan.sum(1), a, atol=1e-12)
        np.testing.assert_allclose(plan.sum(0), b, atol=1e-12)
        f, g = r.potentials
        assert (C - f[:, None] - g).min() > -1e-9 * C.max()
    assert [t is None for t in turned] == [False, False, True]


@pytest.mark.parametrize("n", [200, 900])
def test_coarse_potentials_are_a_good_start(n):
    C, a, b = problem(n, n, "far")
    v = from_coarser(MatrixCost(C, 0.0, float(np.ptp(C))), a, b, Clock(None))
    bound, none = (float(a @ (C - h).min(1) + b @ h) for h in (v, 0 * b))
    value = ot.emd2(a, b, C)
    assert bound <= value * (1 + 1e-12)
    assert n <= coarse_to_fine.COARSEST or value - bound < 0.1 * (value - none)


def test_pairs_that_float64_cannot_tell():
    rng = np.random.default_rng(3)
    x, y = rng.random((30, 3)), rng.random((40, 3))
    C = cdist(x, y, "sqeuclidean")
    f = np.zeros(30)
    g = (C - f[:, None]).min(0) + np.where(np.arange(40) % 4 == 0, 1e-3, 0.0)
    C[5, :7] = np.inf
    found = unclear(Direct(C, NONE, NONE, False), f, g)
    room = 2.0**-46 * (abs(C) + abs(f)[:, None] + abs(g))
    below = (C - f[:, None] - g <= room) & (np.inf > C)
    np.testing.assert_array_equal(found, np.nonzero(below))
    assert len(found[0]) >= 40 - 7
    C = cdist(x, y, "sqeuclidean")
    by_points = unclear(Direct(NONE, x, np.ascontiguousarray(y.T), False), f, g)
    np.testing.assert_array_equal(by_points, unclear(Direct(C, NONE, NONE, False), f, g))


@pytest.mark.slow
def test_ctrl_c_while_pairs_are_looked_at_is_a_keyboard_interrupt():
    """A compiled function that made arrays turned the signal into an error of the interpreter, or ended the process."""
    C = np.random.default_rng(0).random((3000, 3000))
    look = Direct(C, NONE, NONE, False), np.zeros(3000), np.zeros(3000)
    unclear(*look)  # compiled
    kinds = []
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for delay in np.linspace(1e-3, 0.02, 30):
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                while True:
                    unclear(*look)
            except BaseException as error:
                kinds.append(type(error))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert kinds == [KeyboardInterrupt] * 30


def test_a_long_solve_says_how_near_it_is(monkeypatch, caplog):
    monkeypatch.setattr(flow_graph, "TELL_EVERY", 0.0)
    monkeypatch.setattr(find_optimum, "SWEPT_UP_TO", 0)
    C, a, b = problem(300, 300, "tails")
    with caplog.at_level(logging.INFO, logger="otformer"):
        of.solve(C, a, b, reg=0)
    said = [record.getMessage() for record in caplog.records]
    assert said
    assert all(line.startswith("exact transport, ") and ("gap" in line or "mass" in line) for line in said)


def test_nothing_is_said_where_nobody_listens(caplog):
    C, a, b = problem(60, 60, "random")
    of.solve(C, a, b, reg=0)
    assert not caplog.records
