"""Checks of the layers' inputs by shape, dtype and device alone; the solvers check the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from otformer.errors import ArgumentError
from otformer.memory import Need, matrices

SMALLER = "give smaller batches, or fewer points at once"


def need(lead: Sequence[int], n: int, m: int, held: float, instead: str = SMALLER) -> Need:
    """Estimate the memory of ``held`` arrays as large as matrices [lead, n, m]."""
    count = math.prod(lead)
    return Need(matrices("matrix", n, m, count), held * count * n * m, instead)


def kind(t: Any) -> str:
    return f"{tuple(t.shape)} of {t.dtype}" if isinstance(t, Tensor) else type(t).__name__


def matrix(name: str, t: Any) -> Tensor:
    """Check that t is a tensor of floats with two axes or more."""
    if not isinstance(t, Tensor) or not t.is_floating_point() or t.ndim < 2:
        raise ArgumentError(name, "be a tensor of floats of shape (..., n, m)", kind(t))
    return t


def mask(name: str, t: Any, shape: tuple[int, ...], like: Tensor) -> Tensor | None:
    """Expand a boolean tensor to ``shape``; None stays None."""
    return None if t is None else _placed(name, t, shape, like, boolean=True).expand(shape)


def weights(name: str, t: Any, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Check that weights broadcast to ``shape``; expand their last axis, in float64."""
    t = _placed(name, t, shape, like, boolean=False)
    return t.double().expand(*t.shape[:-1], shape[-1])


def _placed(name: str, t: Any, shape: tuple[int, ...], like: Tensor, boolean: bool) -> Tensor:
    expected = "a boolean tensor" if boolean else "a tensor of floats"
    fits = isinstance(t, Tensor) and t.ndim >= 1 and (t.dtype == torch.bool if boolean else t.is_floating_point())
    sizes = zip(reversed(t.shape), reversed(shape), strict=False) if fits else ()
    if not fits or t.ndim > len(shape) or any(own not in (1, whole) for own, whole in sizes):
        raise ArgumentError(name, f"be {expected} that broadcasts to {shape}", kind(t))
    if t.device != like.device:
        raise ArgumentError(name, f"be on {like.device}", t.device)
    return t


def sums(
    a: Any, b: Any, rows: Tensor | None, columns: Tensor | None, shape: tuple[int, ...], like: Tensor
) -> tuple[Tensor, Tensor]:
    """Return row sums [..., n] and column sums [..., m] of matrices of this shape, 0 if absent, in float64.

    Both 1 by default, or constant with the total of the other. b is scaled to the total of a, which is checked to be equal
    before anything is solved: gradients in both are those of a function that has them in all directions.
    """
    lead, (n, m) = shape[:-2], shape[-2:]
    w_a, w_b = (
        torch.ones(size, dtype=torch.float64, device=like.device) if w is None else weights(name, w, (*lead, size), like)
        for name, w, size in (("a", a, n), ("b", b, m))
    )
    w_a, w_b = (w if t is None else torch.where(t, w, 0.0) for w, t in ((w_a, rows), (w_b, columns)))
    if a is None and b is not None:
        w_a = w_a * (w_b.sum(-1, keepdim=True) / divisor(w_a))
    elif b is None and a is not None:
        w_b = w_b * (w_a.sum(-1, keepdim=True) / divisor(w_b))
    return w_a, w_b


def divisor(w: Tensor) -> Tensor:
    """Sum weights to [..., 1], and replace sums of 0 by 1, so that weights of 0 reach their check."""
    total = w.sum(-1, keepdim=True)
    return torch.where(total > 0, total, 1.0)


def stacked(w: Tensor, lead: tuple[int, ...]) -> Tensor:
    """Reshape weights to [1, n] where all problems share them, else to [B, n]."""
    return w[None] if w.ndim == 1 else w.expand(*lead, w.shape[-1]).flatten(0, -2)
