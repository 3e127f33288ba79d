"""Costs of a graph against POT and scipy on the matrix with forbidden pairs, and what is refused."""

from __future__ import annotations

import tracemalloc

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linprog
from scipy.sparse import coo_array, csc_array, csr_array
from scipy.spatial.distance import cdist

import otformer as of

rng = np.random.default_rng(0)
X, Y = rng.random((2, 60, 3))
D = cdist(X, Y, "sqeuclidean")
BIG = 1e3  # stands for a forbidden pair where an oracle has no inf


def neighbours(D: np.ndarray, k: int) -> np.ndarray:
    """Which pairs are among the k nearest of their row or of their column, by sorting all."""
    return (D.argsort(1).argsort(1) < k) | (D.argsort(0).argsort(0) < k)


def held(M: np.ndarray) -> csr_array:
    """The finite entries of a matrix, zeros among them."""
    i, j = np.nonzero(np.isfinite(M))
    return csr_array((M[i, j], (i, j)), shape=M.shape)


HOLES = np.where(neighbours(D, 8), D, np.inf)


@pytest.mark.parametrize(("n", "m", "k"), [(60, 60, 8), (60, 25, 3), (1, 7, 1), (20, 20, 20)])
def test_the_graph_of_neighbours_is_that_of_sorted_distances(n, m, k):
    graph, D = of.neighbour_graph(X[:n], Y[:m], k), cdist(X[:n], Y[:m], "sqeuclidean")
    expected = neighbours(D, k)
    np.testing.assert_array_equal(np.stack(graph.allowed(), 1), np.argwhere(expected))
    np.testing.assert_allclose(graph.edges[0].data, D[expected], rtol=1e-14)


def test_points_that_coincide_cost_nothing_and_are_allowed():
    graph = of.neighbour_graph(np.repeat(X[:5], 2, 0), X[:5], k=2)
    r = of.solve(graph, reg=0)
    assert (r.value, r.converged) == (0.0, True)
    assert float(of.solve(graph, reg=0.01).value_linear) < 1e-3


@pytest.mark.parametrize("reg", [1.0, 0.05, 0.01])
def test_an_entropic_plan_is_pots_and_a_sparse_matrix(reg):
    graph = of.neighbour_graph(X, Y, k=8)
    r = of.solve(graph, reg=reg, tol=1e-10)
    a = np.full(60, 1 / 60)
    P = ot.sinkhorn(a, a, np.where(np.isinf(HOLES), BIG, HOLES), reg, "sinkhorn_log", 100_000, stopThr=1e-12)
    P[np.isinf(HOLES)] = 0
    assert r.converged
    sparse = graph.plan(*r.potentials, reg)
    np.testing.assert_allclose(sparse.toarray(), P, atol=1e-8)
    assert sparse.nnz == np.isfinite(HOLES).sum()
    assert np.asarray(r.plan)[np.isinf(HOLES)].max() == 0


@pytest.mark.parametrize("shape", [(12, 12), (15, 9), (1, 6)])
@pytest.mark.parametrize("low", [0.0, -3.0])
def test_an_exact_plan_is_that_of_a_linear_program(shape, low):
    random = np.random.default_rng(shape[0])
    n, m = shape
    M = np.where(random.random(shape) < 0.6, random.random(shape) + low, np.inf)
    plan = np.where(np.isfinite(M) | (random.random(shape) < 0.2), random.random(shape), 0)  # so that there is one
    plan /= plan.sum()
    M = np.where((plan > 0) & np.isinf(M), 2.0, M)
    i, j = np.nonzero(np.isfinite(M))
    sums = np.zeros((n + m, len(i)))
    sums[i, np.arange(len(i))] = sums[n + j, np.arange(len(i))] = 1
    a, b = plan.sum(1), plan.sum(0)
    oracle = linprog(M[i, j], A_eq=sums, b_eq=np.append(a, b), method="highs")
    r = of.solve(of.GraphCost(held(M)), a, b, reg=0)
    assert oracle.success
    assert r.converged
    assert r.value == pytest.approx(oracle.fun, rel=1e-8, abs=1e-10)
    f, g = r.potentials
    assert ((f[:, None] + g - M)[np.isfinite(M)] <= 1e-12).all()
    assert np.isfinite(M[r.plan.nonzero()]).all()


def test_an_unbalanced_plan_is_pots():
    a, b = rng.random(60), 2 * rng.random(60)
    P = ot.unbalanced.sinkhorn_unbalanced(
        a, b, np.where(np.isinf(HOLES), BIG, HOLES), 0.05, 1.0, "sinkhorn_stabilized", reg_type="kl", numItermax=10**5,
        stopThr=1e-14,
    )  # fmt: skip
    r = of.solve(of.GraphCost(held(HOLES)), a, b, reg=0.05, unbalanced=1.0, tol=1e-10)
    assert r.converged
    np.testing.assert_allclose(np.asarray(r.plan), P, atol=1e-7)


@pytest.mark.parametrize("reg", [0.05, 0])
def test_a_batch_is_its_problems_one_by_one(reg):
    graphs = [of.neighbour_graph(X[:n], Y[:n], k=n // 2) for n in (12, 30)]
    for graph, r in zip(graphs, of.solve_batch(graphs, reg=reg), strict=True):
        M = np.full(graph.shape, BIG)
        M[graph.allowed()] = graph.edges[0].data
        n = len(M)
        a = np.full(n, 1 / n)
        P = ot.emd(a, a, M) if reg == 0 else ot.sinkhorn(a, a, M, reg, "sinkhorn_log", 10**5, stopThr=1e-12)
        assert r.converged
        assert r.value_linear == pytest.approx((P * M).sum(), rel=1e-4 if reg else 1e-9)


FORMS = {
    "csr": held, "coo": lambda M: held(M).tocoo(), "csc": lambda M: csc_array(held(M)),
    "float32": lambda M: held(M).astype(np.float32), "torch": lambda M: torch.sparse_coo_tensor(
        np.stack(np.nonzero(np.isfinite(M))), M[np.isfinite(M)], M.shape, check_invariants=False),
    "inf": lambda M: csr_array((M.ravel(), np.divmod(np.arange(M.size), M.shape[1])), shape=M.shape),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_sparse_form_is_the_same_graph(form):
    M = HOLES.copy()
    M[0, np.isfinite(M[0]).argmax()] = 0.0  # a pair that costs nothing is allowed
    r, s = of.solve(of.GraphCost(FORMS[form](M)), reg=0.05), of.solve(M, reg=0.05)
    assert isinstance(r.value, torch.Tensor) == (form == "torch")
    assert float(r.value) == pytest.approx(s.value, rel=1e-6)


def test_memory_is_that_of_edges():
    x, y = rng.random((2, 20_000, 2))
    of.solve(of.neighbour_graph(x[:50], y[:50], k=30), reg=0.1)
    tracemalloc.start()
    graph = of.neighbour_graph(x, y, k=8)
    of.solve(graph, reg=0.01, unbalanced=0.1, tol=1e-2, max_depth=20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 8 * len(graph.allowed()[0]) < 20_000**2  # bytes, of which the plan alone would have 8 n²


def test_a_graph_without_a_plan_says_so():
    narrow = csr_array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])  # two rows for one column
    with pytest.raises(ValueError, match="allow no plan with these marginals: row"):
        of.solve(of.GraphCost(narrow), reg=0)
    with pytest.warns(RuntimeWarning, match="not converged"):
        r = of.solve(of.GraphCost(narrow), reg=0.1, max_depth=200)
    assert not r.converged
    assert np.isfinite(np.asarray(r.plan)).all()
    assert np.isfinite(r.value)
    with pytest.raises(ValueError, match=r"block of row 0 and column 0.*has mass 0.7 in a and 0.5 in b"):
        of.solve(of.GraphCost(csr_array(np.eye(2))), [0.7, 0.3], [0.5, 0.5])
    with pytest.raises(ValueError, match="forbids every pair of row 1"):
        of.solve(of.GraphCost(csr_array([[1.0, 1.0], [0.0, 0.0]])))


@pytest.mark.parametrize("c", [1e308, -1e308])
def test_costs_that_overflow_are_refused(c):
    graph = of.GraphCost(csr_array(np.full((3, 3), c)))
    with pytest.raises(ValueError, match="costs must lie less than 1e300 apart"):
        of.solve(graph, reg=1e-3)
    with pytest.raises(ValueError, match=r"reg must be so large that cost/reg is finite, got 1e-200"):
        of.solve(of.GraphCost(csr_array(np.full((3, 3), 1e200))), reg=1e-200)


POINTS = [[0.0, 1.0], [2.0, 3.0]]
BAD = {
    "nan": (lambda: of.GraphCost(csr_array([[np.nan]])), r"M must hold finite numbers, or inf.*got nan at index 0"),
    "-inf": (lambda: of.GraphCost(csr_array([[-np.inf]])), r"M must hold finite numbers, or inf.*got -inf at index 0"),
    "twice": (
        lambda: of.GraphCost(coo_array(([1.0, 2.0, 3.0], ([0, 0, 1], [0, 0, 1])), shape=(2, 2))),
        "M must hold every pair once, got 1 duplicates among 3",
    ),
    "dense": (lambda: of.GraphCost(np.eye(2)), "M must be a sparse matrix of scipy or a sparse tensor, got ndarray"),
    "dense tensor": (lambda: of.GraphCost(torch.eye(2)), "M must be a sparse matrix .* got Tensor"),
    "no rows": (lambda: of.GraphCost(csr_array((0, 3))), r"M must have shape \(n, m\), both at least 1.* got \(0, 3\)"),
    "3 axes": (lambda: of.GraphCost(torch.zeros(2, 2, 2).to_sparse()), r"M must have shape \(n, m\).* got \(2, 2, 2\)"),
    "hybrid": (lambda: of.GraphCost(torch.eye(2).to_sparse(1)), "M must be sparse in rows and columns, got 1 dense"),
    "complex": (lambda: of.GraphCost(csr_array([[1j]])), "M must be float16, .* got dtype complex128"),
    "gradient": (
        lambda: of.GraphCost(torch.eye(2).to_sparse().requires_grad_()),
        "M must be in memory and without a gradient, got a tensor on cpu that requires a gradient",
    ),
    "no pairs": (lambda: of.solve(of.GraphCost(csr_array((2, 2)))), "forbids every pair of row 0"),
    "k = 3": (lambda: of.neighbour_graph(POINTS, POINTS, k=3), "k must be a whole number of at most 2, got 3"),
    "k = 0": (lambda: of.neighbour_graph(POINTS, POINTS, k=0), "k must be a whole number of at least 1, got 0"),
    "k = 1.5": (lambda: of.neighbour_graph(POINTS, POINTS, k=1.5), "k must be a whole number of at least 1, got 1.5"),
    "nan points": (lambda: of.neighbour_graph(POINTS, [[0, np.nan]], k=1), r"X_b must be finite, got nan at index \(0, 1\)"),
    "inf points": (lambda: of.neighbour_graph([[0, np.inf]], POINTS, k=1), r"X_a must be finite, got inf at index \(0, 1\)"),
    "far points": (
        lambda: of.neighbour_graph([[1e200]], [[0.0]], k=1),
        "X_a and X_b must have neighbours nearer .* got one",
    ),
    "dimensions": (lambda: of.neighbour_graph(POINTS, [[0.0]], k=1), r"X_b must have 2 coordinates .* got shape \(1, 1\)"),
    "one axis": (lambda: of.neighbour_graph([0.0], POINTS, k=1), r"X_a must have shape \(n, d\), got \(1,\)"),
    "no points": (lambda: of.neighbour_graph(np.zeros((0, 2)), POINTS), r"X_a and X_b must have points .* \(0, 2\)"),
    "no axes": (
        lambda: of.neighbour_graph(np.zeros((2, 0)), np.zeros((2, 0))),
        r"must have points with coordinates.*\(2, 0\)",
    ),
    "points that learn": (
        lambda: of.neighbour_graph(torch.tensor(POINTS, requires_grad=True), POINTS),
        "X_a must be in memory and without a gradient, got a tensor on cpu that requires a gradient",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line_that_names_the_argument(what):
    run, message = BAD[what]
    with pytest.raises(ValueError, match=message) as caught:
        run()
    assert "\n" not in str(caught.value)
