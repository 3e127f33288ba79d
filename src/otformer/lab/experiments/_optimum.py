r"""An optimal permutation, and what stands out from it.

Number the columns so that row i goes to column i, and let W_ik = C_ik − C_ii. Any other permutation moves rows around cycles
and costs the sum of W along them. Of all cycles Δ is the least weight, and ρ the least weight per row in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from otformer.transport.reference import assignment


@dataclass(frozen=True)
class Optimum:
    """The optimal permutation of a cost C [n, n], Δ, ρ, reduced costs R_ik ≥ 0 of row i and the column of row k, and the
    least range of potentials v that prove it."""

    best: Tensor
    gap: float
    gap_per_row: float
    reduced: Tensor
    reach: float


def optimum(C: Tensor) -> Optimum:
    """The optimum by scipy, and what stands out from it: shortest paths (Floyd) and the least mean cycle (Karp) of W.

    >>> found = optimum(torch.tensor([[0.0, 1.0], [1.0, 0.5]]))  # the other permutation costs 2 instead of 0.5
    >>> found.best.tolist(), found.gap, found.gap_per_row
    ([0, 1], 1.5, 0.75)
    """
    best, n = assignment(C), len(C)
    W = C[:, best] - C.gather(1, best[:, None])
    off = W.clone().fill_diagonal_(math.inf)
    paths = off.clone()
    for k in range(n):
        paths = torch.minimum(paths, paths[:, k, None] + paths[k])
    height = paths.amin(0).clamp(max=0)  # of the shortest path to a row from anywhere: R_ik = W_ik + h_i − h_k ≥ 0
    walks = [torch.full_like(C[0], math.inf).index_fill_(0, torch.tensor([0]), 0.0)]
    for _ in range(n):  # least weight of a walk of so many steps from row 0 to each
        walks.append((walks[-1][:, None] + off).amin(0))
    steps_left = torch.arange(n, 0, -1, dtype=C.dtype)[:, None]
    means = ((walks[-1] - torch.stack(walks[:-1])) / steps_left).nan_to_num(math.inf, math.inf, -math.inf).amax(0)
    reduced = (W + height[:, None] - height).clamp(min=0)
    return Optimum(best, float(paths.diagonal().min()), float(means.min()), reduced, -float(height.min()))
