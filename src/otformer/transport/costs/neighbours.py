"""The graph of nearest neighbours between two clouds of points."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import cKDTree
from torch import Tensor

from otformer import checks
from otformer.transport.costs.graph import GraphCost, check_in_memory

FARTHEST = 1e150  # distance whose square is still far from overflow


def neighbour_graph(X_a: Any, X_b: Any, k: int = 10) -> GraphCost:
    """The cost ‖x − y‖² between every point of X_a (n, d) and X_b (m, d) and its k nearest points of the other side.

    It forbids all other pairs. A pair is an edge if either point is among the k nearest of the other.

    Parameters
    ----------
    X_a, X_b : array (n, d) and (m, d)
        Points. Trees find neighbours fast in few dimensions, and by comparing nearly all pairs in many.
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
