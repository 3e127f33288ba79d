r"""All squared distances of two clouds in many dimensions: a matrix product, and differences where it is rounded too much.

    c_ij = ‖x_i‖² + ‖y_j‖² − 2 x_i·y_j

takes far less time than Σ_k (x_ik − y_jk)², but it cancels. Coordinates are taken in K blocks of B. A BLAS sums the products
of a block, in any order, before it adds them to c. With u = 2⁻⁵³ rounding changes c_ij by at most

    B u · 2 Σ_k |x_ik y_jk|  +  (B + K + 1) u (‖x_i‖² + ‖y_j‖²)  +  (2K + 1) u (‖x_i‖² + ‖y_j‖²)
    of the products             of the norms                         of adding both up

and the sum of products is at most half of ‖x_i‖² + ‖y_j‖². So the error is at most (2B + 3K + 2) u (‖x_i‖² + ‖y_j‖²). An
entry for which this may be more than `ROUNDED` of it is summed from differences. Every entry then is as near to the true one
as that, or as differences are, and so is the cost of every plan, and the optimum.

Clouds about the origin have small norms: few entries need differences. Points at one place are among them, and get 0.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from otformer.transport.compiled import compiled, in_threads
from otformer.transport.costs.distances import squared_distances

FEW = 8  # dimensions up to where differences take no longer
BLOCK = 256  # coordinates that are summed apart
ROUNDED = 2.0**-40  # of an entry: what rounding may take from it
LEAST_SURE = 2.0**-1000  # of an entry: what underflow takes from larger ones does not matter
AT_ONCE = 2**24  # differences that are formed on a GPU


def squares_by_product(x: Tensor, y: Tensor) -> Tensor:
    """‖x_i − y_j‖² [n, m] between points x [n, d] and y [m, d], float64, about the origin for speed.

    >>> squares_by_product(torch.zeros(1, 9).double(), torch.arange(2.0).double()[:, None].expand(2, 9)).tolist()
    [[0.0, 9.0]]
    """
    if x.shape[1] <= FEW:
        return squared_distances(x, y) if x.is_cuda else torch.from_numpy(squared_distances(x.numpy(), y.numpy()))
    p, q = _norms(x), _norms(y)
    C = p[:, None] + q
    for own, other in zip(x.split(BLOCK, 1), y.split(BLOCK, 1), strict=True):
        C.addmm_(own, other.T, alpha=-2)
    least = (2 * BLOCK + 3 * math.ceil(x.shape[1] / BLOCK) + 2) * 2.0**-53 / ROUNDED  # of the sum of norms
    if x.is_cuda:
        _mend_on_gpu(x, y, p, q, least, C)
    else:
        a, b, u, v = (np.ascontiguousarray(t.numpy()) for t in (x, y, p, q))
        in_threads(lambda first, last: _mend(a, b, u, v, least, C.numpy(), first, last), len(C), C.numel())
    return C


def _norms(x: Tensor) -> Tensor:
    """‖x_i‖² [n]."""
    return torch.stack([block.square().sum(1) for block in x.split(BLOCK, 1)]).sum(0)


def _mend_on_gpu(x: Tensor, y: Tensor, p: Tensor, q: Tensor, least: float, C: Tensor) -> None:
    """`_mend`, of all rows, in torch."""
    sure = (LEAST_SURE + least * (p[:, None] + q) <= C) & C.isfinite()
    for at in (~sure).nonzero().split(max(1, AT_ONCE // x.shape[1])):
        i, j = at.unbind(1)
        C[i, j] = (x[i] - y[j]).square_().sum(1)


@compiled
def _mend(
    x: np.ndarray, y: np.ndarray, p: np.ndarray, q: np.ndarray, least: float, C: np.ndarray, first: int, last: int
) -> None:
    """Sum entries of these rows from differences: below ``least`` of the norms, below `LEAST_SURE`, or not finite."""
    d = x.shape[1]
    for i in range(first, last):
        a, c = x[i], C[i]
        for j in range(len(c)):
            if not LEAST_SURE + least * (p[i] + q[j]) <= c[j] < np.inf:
                b = y[j]
                s0 = s1 = s2 = s3 = 0.0
                for k in range(0, d - 3, 4):
                    g0, g1, g2, g3 = a[k] - b[k], a[k + 1] - b[k + 1], a[k + 2] - b[k + 2], a[k + 3] - b[k + 3]
                    s0, s1, s2, s3 = s0 + g0 * g0, s1 + g1 * g1, s2 + g2 * g2, s3 + g3 * g3
                for k in range(d - d % 4, d):
                    s0 += (a[k] - b[k]) ** 2
                c[j] = s0 + s1 + (s2 + s3)
