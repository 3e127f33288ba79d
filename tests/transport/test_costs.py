"""Every kind of cost through the same problems: entropic, unbalanced, batched and exact, against POT."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import ot
import pytest
import scipy.sparse
import torch
from scipy.sparse import coo_array

import otformer as of
from otformer.transport import costs
from otformer.transport.costs.clouds import Rule
from otformer.transport.costs.cost import VERBS, Cost, given_cost
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.costs.points import PointsCost
from otformer.transport.costs.ranks import Ranks, RanksCost


class Plain(Cost):
    """CONTRIBUTING's recipe, word by word, for a cost that is a matrix."""

    def __init__(self, C: np.ndarray) -> None:
        self.C, self.shape, self.spread = torch.from_numpy(C), C.shape, float(np.ptp(C[np.isfinite(C)]))

    def log_sums(self, h, reg, rows):
        return torch.logsumexp(((h if rows else h[:, None]) - self.C) / reg, 1 if rows else 0)

    def _plan(self, u, v, reg):
        return ((u[:, None] + v - self.C) / reg - 1).exp()

    def products(self, u, v, reg, values, rows):
        P = self._plan(u, v, reg)
        return (P if rows else P.T) @ values

    def cost_sums(self, u, v, reg, rows):
        P = self._plan(u, v, reg)
        return torch.where(P > 0, P * self.C, 0.0).sum(1 if rows else 0)

    def least(self, potential, k, rows):
        values = (self.C if rows else self.C.T).numpy() - potential
        places = values.argsort(1)[:, :k]
        values = np.take_along_axis(values, places, 1)
        return values, np.where(np.isfinite(values), places, -1)

    def costs(self, i, j):
        return self.C.numpy()[i, j]

    def take(self, rows, columns):
        return Plain(self.C.numpy()[np.asarray(rows)][:, np.asarray(columns)])

    def allowed(self):
        finite = self.C.isfinite().numpy()
        return None if finite.all() else np.nonzero(finite)


rng = np.random.default_rng(0)
FULL = rng.random((30, 20)) + 1
HOLES = np.where(rng.random(FULL.shape) < 0.5, np.inf, FULL)
EDGES = np.nonzero(np.isfinite(HOLES))
A, B = rng.dirichlet(np.ones(30)), rng.dirichlet(np.ones(20))
LIGHT = np.where(np.arange(30) == 3, 0.0, A) / (1 - A[3])
X, Y = rng.random((30, 2)), rng.random((20, 2)) + 0.1
SQUARES = ((X[:, None] - Y) ** 2).sum(2)


def between(x: np.ndarray, y: np.ndarray) -> PointsCost:
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    return PointsCost(x, y, torch.zeros(len(x)).double(), torch.zeros(len(y)).double(), Rule(), float(SQUARES.max()))


def spread_over_ranks() -> RanksCost:
    return RanksCost(torch.from_numpy(X), torch.from_numpy(Y), Ranks())


COSTS = {
    "matrix": lambda: (MatrixCost(FULL - 1, 1.0, float(np.ptp(FULL))), FULL),
    "points": lambda: (between(X, Y), SQUARES),
    "ranks": lambda: (spread_over_ranks(), SQUARES),
    "plain": lambda: (Plain(FULL), FULL),
    "holes": lambda: (Plain(HOLES), HOLES),
    "graph": lambda: (of.GraphCost(coo_array((HOLES[EDGES], EDGES), shape=HOLES.shape)), HOLES),
}


@pytest.fixture(scope="module", autouse=True)
def group():
    """One rank, for `RanksCost`."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def kinds(cost: type[Cost] = Cost) -> set[type[Cost]]:
    """The classes of the library that are costs."""
    below = set().union(*map(kinds, cost.__subclasses__()))
    return below | ({cost} if cost.__module__.startswith("otformer") and cost is not Cost else set())


def gauge(cost: Cost) -> np.ndarray:
    """p_i + q_j, [n, m]."""
    p, q = (np.asarray(t) for t in cost.gauge())
    return np.zeros(cost.shape) + p.reshape(-1, 1) + q


def test_every_cost_of_the_library_is_here():
    for module in pkgutil.iter_modules(costs.__path__):
        importlib.import_module(f"{costs.__name__}.{module.name}")
    assert kinds() == {type(make()[0]) for make in COSTS.values()} - {Plain}


@pytest.mark.parametrize("kind", COSTS)
def test_every_cost_has_all_verbs_and_they_agree(kind):
    cost, M = COSTS[kind]()
    given = given_cost(cost)
    n, m = given.shape
    C = Plain(M - gauge(given))
    u, v, reg = torch.from_numpy(rng.normal(0, 0.1, n)), torch.from_numpy(rng.normal(0, 0.1, m)), 0.05
    for rows in (True, False):
        h, W = (v, torch.from_numpy(rng.random((m, 3)))) if rows else (u, torch.from_numpy(rng.random((n, 3))))
        torch.testing.assert_close(given.log_sums(h, reg, rows), C.log_sums(h, reg, rows), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(given.products(u, v, reg, W, rows), C.products(u, v, reg, W, rows), rtol=1e-9, atol=0)
        torch.testing.assert_close(given.cost_sums(u, v, reg, rows), C.cost_sums(u, v, reg, rows), rtol=1e-9, atol=0)
        for found, expected in zip(given.least(h.numpy(), 3, rows), C.least(h.numpy(), 3, rows), strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    i, j = rng.integers(0, n, 50), rng.integers(0, m, 50)
    np.testing.assert_allclose(given.costs(i, j), C.costs(i, j), rtol=0, atol=1e-12)
    some = given.take(torch.tensor([3, 5, 9]), torch.tensor([4, 2]))
    at = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    np.testing.assert_allclose(some.costs(*at) + gauge(some).T.ravel(), M[[3, 5, 9]][:, [4, 2]].T.ravel(), atol=1e-12)
    assert some.shape == (3, 2)


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("reg", [0.5, 0.02])
@pytest.mark.parametrize("a", [A, LIGHT], ids=["all", "a weight of 0"])
def test_an_entropic_plan_is_pots(kind, reg, a):
    cost, M = COSTS[kind]()
    r = of.solve(cost, a, B, reg=reg, tol=1e-10)
    with np.errstate(divide="ignore"):  # POT takes the log of weights
        P = ot.sinkhorn(a, B, np.where(np.isinf(M), 1e3, M), reg, "sinkhorn_log", 20_000, stopThr=1e-12)
    assert r.converged
    assert np.abs(np.asarray(r.plan) - P).max() < 1e-8
    assert np.abs(r.plan.sum(1) - a).sum() + np.abs(r.plan.sum(0) - B).sum() == pytest.approx(r.marginal_error, abs=1e-12)
    assert r.value_linear == pytest.approx((P * np.where(P > 0, np.where(np.isinf(M), 0, M), 0)).sum(), rel=1e-7)
    np.testing.assert_allclose(r.apply(np.arange(20.0)), P @ np.arange(20.0), atol=1e-8)
    rows = r.plan.rows(2, 5) if hasattr(r.plan, "rows") else r.plan[2:5]
    np.testing.assert_allclose(rows, P[2:5], atol=1e-8)


@pytest.mark.parametrize("kind", COSTS)
def test_an_unbalanced_plan_is_that_of_the_matrix(kind):
    cost, M = COSTS[kind]()
    r, s = (of.solve(C, A, 2 * B, reg=0.1, unbalanced=(1.0, 2.0), tol=1e-9) for C in (cost, M))
    assert r.converged
    assert np.abs(np.asarray(r.plan) - s.plan).max() < 1e-9
    assert r.value == pytest.approx(s.value, rel=1e-9)


@pytest.mark.parametrize("kind", COSTS)
def test_an_exact_plan_costs_what_pots_does(kind):
    cost, M = COSTS[kind]()
    r = of.solve(cost, A, B, reg=0)
    assert r.converged
    assert r.value == pytest.approx(ot.emd2(A, B, np.where(np.isinf(M), 1e3, M)), rel=1e-9)


def test_a_batch_takes_costs_beside_matrices():
    one, two, three = of.solve_batch([Plain(FULL), (Plain(HOLES), A, B), FULL], reg=0.1, tol=1e-9)
    assert one.value == pytest.approx(three.value, rel=1e-8)
    assert two.value == pytest.approx(of.solve(HOLES, A, B, reg=0.1, tol=1e-9).value, rel=1e-8)


def test_the_value_has_gradients_in_the_weights_and_the_plan_refuses_them():
    found = []
    for M in (Plain(FULL), FULL):
        a, reg = torch.tensor(A, requires_grad=True), torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
        r = of.solve(M, a, B, reg=reg, tol=1e-11)
        found.append(torch.autograd.grad(r.value, (a, reg)))
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-8)
    r = of.solve(Plain(FULL), torch.tensor(A, requires_grad=True), B)
    with pytest.raises(RuntimeError, match="gradients only in the vector"):
        (r.plan @ torch.ones(20, dtype=torch.float64)).sum().backward()


@pytest.mark.parametrize("verb", VERBS)
def test_a_cost_that_lacks_a_verb_is_refused_by_its_name(verb):
    cost = Plain(FULL)
    setattr(cost, verb, None)
    with pytest.raises(ValueError, match=f"M must have the verb '{verb}'.*got Plain without it"):
        of.solve(cost)


def test_what_a_cost_cannot_do_is_refused():
    with pytest.raises(ValueError, match="mask must be None where M is a Cost, here Plain: its verb `allowed` says"):
        of.solve(Plain(FULL), mask=np.ones((30, 20), bool))
    with pytest.raises(ValueError, match="M must be a cost matrix for Newton, got Plain, which forms none"):
        of.solve(Plain(FULL), solver=of.Newton())
    lonely = FULL.copy()
    lonely[4] = np.inf
    with pytest.raises(ValueError, match="forbids every pair of row 4"):
        of.solve(Plain(lonely))


def test_messages_name_rows_as_they_were_given():
    """A point without mass is left out before costs are looked at; the row that is named is one of all."""
    lonely = FULL.copy()
    lonely[4] = np.inf
    light = np.where(np.arange(30) < 2, 0.0, A) / A[2:].sum()
    for M in (lonely, Plain(lonely), of.GraphCost(scipy.sparse.csr_array(np.where(np.isinf(lonely), 0.0, lonely)))):
        with pytest.raises(ValueError, match="forbids every pair of row 4, which has mass"):
            of.solve(M, light, B)


def test_what_works_on_matrices_alone_refuses_a_graph_in_one_line():
    graph = of.GraphCost(scipy.sparse.csr_array(FULL))
    for call in (lambda: of.solve_partial(graph, mass=0.5), lambda: of.sinkhorn(A, B, graph, 0.1)):
        with pytest.raises(ValueError, match=r"M must be a cost matrix for .*, got GraphCost"):
            call()


def test_a_graph_is_not_changed_through_what_it_gives():
    graph = of.GraphCost(scipy.sparse.csr_array(FULL))
    before = of.solve(graph, A, B, reg=0).value
    plan = graph.plan(np.full(30, -1e3), np.zeros(20), 0.01)
    plan.eliminate_zeros()
    assert of.solve(graph, A, B, reg=0).value == before


def test_a_graph_without_a_plan_has_no_gradients():
    """Row 0 may send to column 0 alone, which wants less than it has."""
    M = scipy.sparse.csr_array(([1.0, 1.0, 1.0, 1.0, 1.0], ([0, 1, 1, 2, 2], [0, 0, 1, 1, 2])), shape=(3, 3))
    a = torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64, requires_grad=True)
    with pytest.warns(RuntimeWarning, match="not converged"):
        r = of.solve(of.GraphCost(M), a, [0.3, 0.3, 0.4], reg=0.1, max_depth=200)
    with pytest.raises(RuntimeError, match="no plan with these marginals"):
        torch.autograd.grad(r.value, a)
