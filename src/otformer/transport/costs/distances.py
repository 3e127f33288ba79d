"""Distances between all pairs of points, by differences, and their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from otformer import checks
from otformer.transport.types import Array


def squared_distances(x: Array, y: Array) -> Array:
    """‖x_i − y_j‖² [..., n, m] of points [..., n, d] and [..., m, d], by differences: no cancellation."""
    n, m, d = x.shape[-2], y.shape[-2], x.shape[-1]
    if isinstance(x, np.ndarray) and x.ndim == 2 and n * m * d > 2**18:  # below, importing it takes longer
        from scipy.spatial.distance import cdist

        return cdist(x, y, "sqeuclidean")
    if n * m * d <= 2**12 or (d > 8 and n * m * d <= 2**22):  # one array of all differences: fewer calls
        difference = x[..., :, None, :] - y[..., None, :, :]
        return (torch if isinstance(x, Tensor) else np).einsum("...k,...k->...", difference, difference)
    C = x[..., :, None, 0] - y[..., None, :, 0]
    C *= C
    for k in range(1, d):  # no n × m × d array
        difference = x[..., :, None, k] - y[..., None, :, k]
        difference *= difference
        C += difference
    return C


def distances(x: Tensor, y: Tensor) -> Tensor:
    """‖x_i − y_j‖ [n, m], by differences: no cancellation."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def root_of(squares: Tensor) -> Tensor:
    """√C with gradient 0 where points coincide."""
    there = squares > 0
    return torch.where(there, torch.where(there, squares, 1.0).sqrt(), 0.0)


class SquaredDistances(Function):
    """C_ij = ‖x_i − y_j‖², already computed, as a function of the points [..., n, d]: O(nm) memory in any dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, C: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        return C.clone()

    @staticmethod
    def jvp(ctx: Any, dx: Tensor, dy: Tensor, _: Any) -> Tensor:
        x, y = ctx.saved_tensors
        middle = y.detach().mean(-2, keepdim=True)
        x, y = x - middle, y - middle
        return 2 * ((x * dx).sum(-1)[..., :, None] + (y * dy).sum(-1)[..., None, :] - dx @ y.mT - x @ dy.mT)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, y = ctx.saved_tensors
        middle = y.detach().mean(-2, keepdim=True)  # of differences only: less cancellation
        x, y = x - middle, y - middle
        return 2 * (x * g.sum(-1)[..., None] - g @ y), 2 * (y * g.sum(-2)[..., None] - g.mT @ x), None


def moving_squares(x: Tensor, y: Tensor) -> Tensor:
    """‖x_i − y_j‖² [..., n, m], differentiable if one of the two is to be."""
    C = squared_distances(x.detach(), y.detach())
    return SquaredDistances.apply(x, y, C) if checks.derivative_wanted(x, y) else C
