r"""Assignments of many matrices on a CUDA device, with their proofs: costs/gpu/assign_kernels.py."""

from __future__ import annotations

import torch
from torch import Tensor

from otformer.transport.costs.gpu import assign_kernels as kernels

LEAST_COLUMNS, A_WARP = 32, 128  # columns of a program, and those that one warp holds


@torch.no_grad()
def assign(C: Tensor) -> tuple[Tensor, ...]:
    """Of matrices C [B, n, n], n ≤ 512, what exact/small_assignments.py finds: to, f, g [B, n], low, spread, total, gap [B].

    Costs are read from their least, ``low``, up, in float64: c = C − low. Infinite ones are forbidden. Then
    f_i = min_j (c_ij − g_j) over all pairs, total = Σ c_i,to(i) and gap = Σ (c_i,to(i) − f_i − g_to(i)); it is inf where
    there is no assignment.
    """
    count, n, _ = C.shape
    low = C.flatten(1).amin(1).double()
    c = C.double() - low[:, None, None]
    spread = c.masked_fill(c.isinf(), 0.0).flatten(1).amax(1)  # nan stays nan
    g = c.amin(1)
    g.masked_fill_(g.isinf(), 0.0)
    to = torch.full((count, n), -1, dtype=torch.int64, device=C.device)
    columns = max(LEAST_COLUMNS, 1 << (n - 1).bit_length())
    if count:
        with torch.cuda.device_of(C):
            kernels.assign[(count,)](c, g, to, n, COLUMNS=columns, num_warps=max(1, columns // A_WARP))
    f = (c - g[:, None, :]).amin(2)
    there = to.clamp(min=0)
    own = c.gather(2, there[:, :, None])[:, :, 0]
    gap = (own - g.gather(1, there) - f).sum(1)  # rounded as f is, so never negative
    return to, f, g, low, spread, own.sum(1), gap.masked_fill_((to < 0).any(1), torch.inf)
