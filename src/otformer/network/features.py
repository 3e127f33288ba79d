r"""Costs as features: everything that enters the prompt in place of (x, y, ‖x‖², ‖y‖²).

The heads compute −C_ij = 2 x_i·y_j − p_i − q_j from the registers x, y, x_sq = p and y_sq = q. Any cost of the form

    C_ij = p_i + q_j − 2 f_i·g_j

is therefore solved by the *same weights*, given other numbers in the prompt:

    squared Euclidean   f = x,        g = y,          p = ‖x‖²,   q = ‖y‖²
    Mahalanobis         f = Lx,       g = Ly,         p = ‖Lx‖²,  q = ‖Ly‖²       (W = LᵀL)
    cosine              f = x/‖x‖/2,  g = y/‖y‖,      p = 1/2,    q = 1/2         (C = 1 − cos)
    inner product       f = x/2,      g = y,          p = q = 0                   (C = −x·y)
    cost matrix M       f_i = e_i,    g_j = −M_{·j}/2, p = q = 0                  (d = number of rows)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.memory import Need, matrices, needs, shape


@dataclass(frozen=True, eq=False)
class Features:
    """Numbers for the registers x, y, x_sq, y_sq: C_ij = x_sq_i + y_sq_j − 2 x_i·y_j. Leading batch axes are allowed."""

    x: Tensor  # [..., n, d]
    y: Tensor  # [..., m, d]
    x_sq: Tensor  # [..., n]
    y_sq: Tensor  # [..., m]

    @classmethod
    def of_points(cls, x: Tensor, y: Tensor) -> Features:
        """The squared Euclidean distance, with no argument checks."""
        return cls(x, y, (x * x).sum(-1), (y * y).sum(-1))

    def cost(self) -> Tensor:
        """The cost matrix these features stand for, [..., n, m]."""
        return self.x_sq[..., :, None] + self.y_sq[..., None, :] - 2 * self.x @ self.y.mT


def squared_euclidean(x: Any, y: Any) -> Features:
    """C_ij = ‖x_i − y_j‖².

    >>> squared_euclidean([[0.0], [1.0]], [[3.0]]).cost()
    tensor([[9.],
            [4.]], dtype=torch.float64)
    """
    return _in_range(Features.of_points(*pair(x, y)))


def mahalanobis(x: Any, y: Any, W: Any) -> Features:
    """C_ij = (x_i − y_j)ᵀ W (x_i − y_j), W symmetric and positive semi-definite, [d, d]."""
    x, y = pair(x, y)
    d = x.shape[-1]
    W = checks.tensor("W", W).to(x)
    if tuple(W.shape) != (d, d):
        raise checks.ArgumentError("W", f"have shape ({d}, {d})", tuple(W.shape))
    if not torch.allclose(W, W.mT, atol=1e-6 * float(W.abs().max())):
        raise checks.ArgumentError("W", "be symmetric")
    try:
        values, vectors = torch.linalg.eigh(W)
    except torch.linalg.LinAlgError:  # it did not converge; or it did, to nan
        values = vectors = W.new_full((d, d), torch.nan)
    if not bool(values.isfinite().all() and vectors.isfinite().all()):
        raise checks.ArgumentError("W", f"have eigenvalues within {W.dtype}", f"entries to {float(W.abs().max()):g}")
    if float(values.min()) < -1e-6 * float(values.abs().max()):
        raise checks.ArgumentError("W", "be positive semi-definite", f"an eigenvalue of {values.min().item():g}")
    L = values.clamp_min(0).sqrt()[:, None] * vectors.mT  # W = LᵀL
    return squared_euclidean(x @ L.mT, y @ L.mT)


def _in_range(made: Features) -> Features:
    """Features whose costs are finite, by |C_ij| ≤ max p + max q + 2 d max|f| max|g|."""
    parts = (t.detach().abs().amax() if t.numel() else t.new_zeros(()) for t in (made.x_sq, made.y_sq, made.x, made.y))
    p, q, f, g = (float(t) for t in parts)
    if not p + q + f * g * 2 * made.x.shape[-1] <= torch.finfo(made.x.dtype).max:
        kind = str(made.x.dtype).removeprefix("torch.")
        raise checks.ArgumentError("x and y", f"have costs within {kind}", f"coordinates to {max(f, g):g}")
    return made


def cosine(x: Any, y: Any) -> Features:
    """C_ij = 1 − x_i·y_j/(‖x_i‖‖y_j‖); no point may be zero."""
    x, y = pair(x, y)
    x, y = _unit("x", x), _unit("y", y)
    return Features(x / 2, y, torch.full_like(x[..., 0], 0.5), torch.full_like(y[..., 0], 0.5))


def _unit(name: str, x: Tensor) -> Tensor:
    """Rows of length 1; scaled by the largest coordinate first, so that squares neither overflow nor vanish."""
    if x.shape[-1] == 0:
        raise ValueError(f"{name} has points without coordinates: their cosine with anything is undefined")
    largest = x.abs().amax(-1, keepdim=True)
    if bool((largest == 0).any()):
        raise ValueError(f"{name} has a zero vector: its cosine with anything is undefined")
    x = x / largest
    return x / x.norm(dim=-1, keepdim=True)


def inner_product(x: Any, y: Any) -> Features:
    """C_ij = −x_i·y_j."""
    x, y = pair(x, y)
    zeros = (t.new_zeros(t.shape[:-1]) for t in (x, y))
    return _in_range(Features(x / 2, y, *zeros))


@needs(lambda M, **_: Need(matrices("cost", *shape(M)[-2:]), 3 * math.prod(shape(M)), "solve takes the matrix itself"))
def cost_matrix(M: Any, *others: Any) -> Features:
    """Any cost matrix, [n, m] or [batch, n, m]: a one-hot vector names token i, so d = n. It takes no points."""
    if others:
        advice = "squared_euclidean(x, y) takes points"
        raise checks.ArgumentError("M", "be one matrix of costs", f"{1 + len(others)} arguments", advice)
    M = checks.tensor("M", M)
    if M.ndim not in (2, 3):
        raise checks.ArgumentError("M", "have shape (n, m) or (batch, n, m)", tuple(M.shape))
    eye = torch.eye(M.shape[-2], dtype=M.dtype, device=M.device).expand(*M.shape[:-1], M.shape[-2])
    return Features(eye, -M.mT / 2, M.new_zeros(M.shape[:-1]), M.new_zeros(*M.shape[:-2], M.shape[-1]))


def pair(x: Any, y: Any, dim: int | None = None) -> tuple[Tensor, Tensor]:
    """Two point sets of the same dimension (``dim``, if it is given), dtype, device and batch shape."""
    plain = not isinstance(x, Tensor) and not isinstance(y, Tensor)
    x, y = checks.points("x", x, dim, batch=True), checks.points("y", y, dim, batch=True)
    if plain:  # arrays of two precisions are promoted, as numpy does
        both = torch.promote_types(x.dtype, y.dtype)
        x, y = x.to(both), y.to(both)
    for same, what, kinds in (
        (x.shape[-1] == y.shape[-1], "have the same dimension", (tuple(x.shape), tuple(y.shape))),
        (x.shape[:-2] == y.shape[:-2], "have the same batch shape", (tuple(x.shape), tuple(y.shape))),
        (x.dtype == y.dtype, "have the same dtype", (x.dtype, y.dtype)),
        (x.device == y.device, "be on the same device", (x.device, y.device)),
    ):
        if not same:
            advice = "" if isinstance(kinds[0], tuple) else "y.to(x) converts y"
            raise checks.ArgumentError("x and y", what, f"{kinds[0]} and {kinds[1]}", advice)
    return x, y
