"""Reading a sparse matrix: the pairs that it holds are allowed, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from otformer import checks


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
