"""A cost that is known for few pairs, the edges of a graph between rows and columns; all other pairs are forbidden.

Edges are kept in the order of rows and in the order of columns (CSR), so that the edges of a point are a slice. A layer
takes O(E) time, and everything O(E + n + m) memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.spatial import cKDTree
from torch import Tensor

from otformer import checks
from otformer.transport.compiled import compiled
from otformer.transport.costs.cost import Cost
from otformer.transport.costs.pairs import no_pairs, offer

FARTHEST = 1e150  # distance whose square is still far from overflow


class GraphCost(Cost):
    """The stored entries of a sparse matrix M (n, m) of scipy or torch, zeros included; every other pair is forbidden.

    >>> import otformer as of
    >>> graph = GraphCost(csr_array(([1.0, 0.0, 3.0], ([0, 0, 1], [0, 1, 0])), shape=(2, 2)))
    >>> of.solve(graph, reg=0.1).plan.dense().round(4).tolist(), of.solve(graph, reg=0).value
    ([[0.0, 0.5], [0.5, 0.0]], 1.5)
    """

    def __init__(self, M: Any) -> None:
        check_in_memory("M", M)
        self.tensors, edges = isinstance(M, Tensor), read_sparse(M, once=True).astype(np.float64)
        self.edges, self.shape = (edges, edges.T.tocsr()), (edges.shape[0], edges.shape[1])
        self.own = [np.repeat(np.arange(len(side.indptr) - 1), np.diff(side.indptr)) for side in self.edges]
        # The range with 0, though no cost may be 0: so costs over λ do not overflow where it over λ does not.
        self.spread = float(edges.data.max(initial=0.0)) - float(edges.data.min(initial=0.0))

    def log_sums(self, h: Tensor, reg: float, rows: bool) -> Tensor:
        edges, own = self.edges[not rows], self.own[not rows]  # every point has an edge, or is refused (problem/read.py)
        logits = (h.numpy()[edges.indices] - edges.data) / reg
        top = np.maximum.reduceat(logits, edges.indptr[:-1])
        return torch.from_numpy(top + np.log(np.add.reduceat(np.exp(logits - top[own]), edges.indptr[:-1])))

    def plan(self, u: Any, v: Any, reg: float) -> csr_array:
        """P_ij = exp((u_i + v_j − c_ij)/λ − 1) of the pairs that are allowed, as a sparse matrix."""
        edges = self.edges[0]
        P = np.exp((np.asarray(u)[self.own[0]] + np.asarray(v)[edges.indices] - edges.data) / reg - 1)
        return csr_array((P, edges.indices.copy(), edges.indptr.copy()), shape=self.shape)  # the graph stays as it is

    def products(self, u: Tensor, v: Tensor, reg: float, values: Tensor, rows: bool) -> Tensor:
        P = self.plan(u, v, reg)
        return torch.from_numpy((P if rows else P.T) @ values.numpy())

    def cost_sums(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        P = self.plan(u, v, reg)
        P.data *= self.edges[0].data
        return torch.from_numpy(P.sum(1 if rows else 0))

    def least(self, potential: np.ndarray, k: int, rows: bool) -> tuple[np.ndarray, np.ndarray]:
        edges, (values, places) = self.edges[not rows], no_pairs(self.shape[not rows], k)
        _least(edges.indptr, edges.indices, edges.data - potential[edges.indices], values, places)
        return values, places

    def costs(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        (rows, columns), wanted = self.allowed(), np.asarray(i, np.int64) * self.shape[1] + j
        held = np.append(rows * self.shape[1] + columns, -1)
        at = np.searchsorted(held[:-1], wanted)
        return np.where(held[at] == wanted, np.append(self.edges[0].data, np.inf)[at], np.inf)

    def take(self, rows: Any, columns: Any) -> GraphCost:
        return GraphCost(self.edges[0][np.asarray(rows)][:, np.asarray(columns)])

    def without_costs(self) -> GraphCost:
        edges = self.edges[0]
        return GraphCost(csr_array((np.zeros(edges.nnz), edges.indices, edges.indptr), shape=self.shape))

    def allowed(self) -> tuple[np.ndarray, np.ndarray]:
        return self.own[0].copy(), self.edges[0].indices.astype(np.int64)


@compiled
def _least(starts: np.ndarray, other: np.ndarray, reduced: np.ndarray, values: np.ndarray, places: np.ndarray) -> None:
    for i in range(len(values)):
        for e in range(starts[i], starts[i + 1]):
            if reduced[e] < values[i, -1]:
                offer(values[i], places[i], reduced[e], other[e])


def check_in_memory(name: str, given: Any) -> None:
    """A tensor on a GPU, or one that requires a gradient, is refused: edges are numpy arrays."""
    if isinstance(given, Tensor) and (given.device.type != "cpu" or checks.derivative_wanted(given)):
        got = f"a tensor on {given.device}{' that requires a gradient' * given.requires_grad}"
        raise checks.ArgumentError(name, "be in memory and without a gradient", got, f"use {name}.detach().cpu()")


def is_sparse(M: Any) -> bool:
    """Whether this is a sparse matrix of scipy, or a sparse tensor."""
    return hasattr(M, "tocoo") or (isinstance(M, Tensor) and M.layout != torch.strided)


def read_sparse(M: Any, once: bool = False) -> csr_array:
    """The pairs that M allows with their costs, in memory, float32 or float64; explicit zeros count, inf forbids a pair.

    A pair that M holds more than once costs the sum, or is refused if it may be there only ``once``.
    """
    if not is_sparse(M):
        raise checks.ArgumentError("M", "be a sparse matrix of scipy or a sparse tensor", type(M).__name__)
    if len(M.shape) != 2 or 0 in M.shape:
        raise checks.ArgumentError("M", "have shape (n, m), both at least 1 where it is sparse", tuple(M.shape))
    if isinstance(M, Tensor):
        listed = M.detach().to_sparse_coo()
        if listed.dense_dim():
            raise checks.ArgumentError("M", "be sparse in rows and columns", f"{listed.dense_dim()} dense dimension")
        (i, j), c = listed._indices().cpu().numpy(), checks.array("M", listed._values().cpu())
    else:
        listed = M.tocoo()
        i, j, c = listed.row, listed.col, checks.array("M", listed.data)
    allowed = c != np.inf
    i, j, c = i[allowed], j[allowed], c[allowed]
    if not np.isfinite(c).all():
        raise checks.ArgumentError("M", "hold finite numbers, or inf for a forbidden pair", checks.first_not_finite(c))
    held = csr_array((c, (i, j)), shape=M.shape)
    held.sum_duplicates()  # sorts columns too
    if once and held.nnz < len(c):
        raise checks.ArgumentError("M", "hold every pair once", f"{len(c) - held.nnz} duplicates among {len(c)}")
    return held


def neighbour_graph(X_a: Any, X_b: Any, k: int = 10) -> GraphCost:
    """The cost ‖x − y‖² between every point of X_a (n, d) and X_b (m, d) and its k nearest points of the other side.

    It forbids all other pairs. A pair is an edge if either point is among the k nearest of the other.

    Parameters
    ----------
    X_a, X_b : array (n, d) and (m, d)
        Points. Trees find neighbours fast in few dimensions; in many dimensions they compare nearly all pairs.
    k : int
        Neighbours per point, at most n and m. A plan with given marginals may need many (docs/how-to/graph.md).

    Returns
    -------
    GraphCost
        With k max(n, m) to k (n + m) edges.

    Examples
    --------
    >>> neighbour_graph([[0.0], [1.0], [5.0]], [[0.2], [4.0]], k=1).edges[0].toarray().round(2).tolist()
    [[0.04, 0.0], [0.64, 0.0], [0.0, 1.0]]
    """
    for name, given in (("X_a", X_a), ("X_b", X_b)):
        check_in_memory(name, given)
    x = checks.points("X_a", X_a).double().numpy()
    y = checks.points("X_b", X_b, dim=x.shape[1]).double().numpy()
    if not x.size or not y.size:
        raise checks.ArgumentError("X_a and X_b", "have points with coordinates", f"shapes {x.shape} and {y.shape}")
    (n, m), nearest = (len(x), len(y)), range(1, checks.count("k", k, most=min(len(x), len(y))) + 1)
    (right, j), (left, i) = cKDTree(y).query(x, nearest), cKDTree(x).query(y, nearest)  # [n, k] and [m, k]
    distances = np.append(right, left)
    if not distances.max() <= FARTHEST:
        raise checks.ArgumentError("X_a and X_b", f"have neighbours nearer than {FARTHEST:g}", f"one at {distances.max():g}")
    both = np.append(np.arange(n)[:, None] * m + j, i * m + np.arange(m)[:, None])
    pairs, first = np.unique(both, return_index=True)  # most are on the lists of both sides
    graph = GraphCost(csr_array((distances[first] ** 2, np.divmod(pairs, m)), shape=(n, m)))
    graph.tensors = isinstance(X_a, Tensor) or isinstance(X_b, Tensor)
    return graph
