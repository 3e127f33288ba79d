r"""Sinkhorn's iteration: the rows and the columns of a plan are brought to their sums in turn.

With X = log P an iteration is two normalisations,

    X_ij ← log a_i + X_ij − log Σ_k exp X_ik,      X_ij ← log b_j + X_ij − log Σ_k exp X_kj.

`iterate` is the loop of it, whatever computes the sums: log-softmax of a matrix here, kernels that never form one in
transport/solvers/blocks.py. What follows an iterate is its image, or what an acceleration makes of it.

[1] R. Sinkhorn: A relationship between arbitrary positive matrices and doubly stochastic matrices. 1964.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

FORBIDDEN = -1e30  # stands for −∞: the difference of two of them is a number

Follow = Callable[[Tensor, Any], Tensor]  # z and what a step found at it → the next z


def iterate(
    step: Callable[[Tensor], Any], z: Tensor, follow: Follow | None = None, most: int = sys.maxsize
) -> Iterator[tuple[Tensor, Any]]:
    """Yield z and the result of ``step`` at z, ``most`` times; the first item of the result is the next z.

    ``follow`` gives another. It is called when the next iterate is asked for: the last one has no successor to compute.

    >>> [float(z) for z, _ in iterate(lambda z: (z / 2,), torch.tensor(8.0), most=3)]
    [8.0, 4.0, 2.0]
    """
    for remaining in range(most, 0, -1):
        found = step(z)
        yield z, found
        if remaining > 1:
            z = found[0] if follow is None else follow(z, found)


def alternated(X: Tensor, mask: Tensor, a: Tensor | None, b: Tensor | None, most: int) -> Iterator[Tensor]:
    """Yield log P [..., n, m] after each of ``most`` iterations from X, rows first; sums a and b are all 1 if None.

    P is 0 outside of ``mask``, which must leave every row and column of positive sum an entry. Differentiable.

    >>> *_, X = alternated(torch.tensor([[3.0, 0.0], [3.0, 1.0]]), torch.tensor(True), None, None, 30)
    >>> X.exp()
    tensor([[0.6225, 0.3775],
            [0.3775, 0.6225]])
    """
    absent = ~mask
    log_a, log_b = (0.0 if w is None else torch.where(w > 0, w, 1.0).log().to(X).unsqueeze(axis)
                    for w, axis in ((a, -1), (b, -2)))  # fmt: skip

    def step(X: Tensor) -> tuple[Tensor]:
        X = (X.log_softmax(-1) + log_a).masked_fill(absent, FORBIDDEN)
        return ((X.log_softmax(-2) + log_b).masked_fill(absent, FORBIDDEN),)

    for _, (X,) in iterate(step, X.masked_fill(absent, FORBIDDEN), most=most):  # noqa: B020
        yield X
