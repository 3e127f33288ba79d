r"""Sinkhorn blocks at one λ, Anderson-mixed: the engine of `solve` and `sort`.

A row block (attention + feed-forward, network/sinkhorn_block.py) sets u_i ← u_i − λ log(S_i/a_i): the rows of the plan
are then exact, so the column block that follows sees the *true* marginal error of that plan, |Σ_i P_ij − b_j|, at no
extra cost. Its residual f = −λ log(S_j/b_j) is mixed (transport/anderson.py); if the error doubles, the mixing forgets
and goes on from the best plain step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from otformer.transport.anderson import Anderson
from otformer.transport.dense import Dense

LAYERS = 2  # layers, passes over the cost, in one step


def blocks(dense: Dense, reg: float, v: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Steps from v, for ever: (u, v, error) with exact rows and error_j = |Σ_i P_ij − b_j|, [m]."""
    b = dense.log_b.exp()
    mixing, least, best = Anderson(weight=b), math.inf, v
    while True:
        u = -reg * dense.excess(torch.zeros_like(dense.log_a), v, reg, rows=True)
        excess = dense.excess(u, v, reg, rows=False)
        error = b * torch.expm1(excess).abs()
        yield u, v, error
        f, size = -reg * excess, float(error.sum())
        if size > 2 * least:
            mixing.forget()
            v, least = best, math.inf
            continue
        if size < least:
            least, best = size, v + f
        v = mixing.step(v, f - (f * b).sum() / b.sum())
