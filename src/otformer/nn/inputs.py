"""What the layers are given, read by shape, dtype and device alone: numbers are looked at where they are solved with."""

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
    """Of matrices [lead, n, m], so many as large at once."""
    count = math.prod(lead)
    return Need(matrices("matrix", n, m, count), held * count * n * m, instead)


def kind(t: Any) -> str:
    return f"{tuple(t.shape)} of {t.dtype}" if isinstance(t, Tensor) else type(t).__name__


def matrix(name: str, t: Any) -> Tensor:
    """A tensor of floats with two axes or more."""
    if not isinstance(t, Tensor) or not t.is_floating_point() or t.ndim < 2:
        raise ArgumentError(name, "be a tensor of floats of shape (..., n, m)", kind(t))
    return t


def mask(name: str, t: Any, shape: tuple[int, ...], like: Tensor) -> Tensor | None:
    """A boolean tensor that broadcasts to ``shape``, in that shape; None stays None."""
    return None if t is None else _placed(name, t, shape, like, boolean=True).expand(shape)


def weights(name: str, t: Any, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor of weights that broadcasts to ``shape`` and has its last axis, in float64."""
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
    """Row sums [..., n] and column sums [..., m] of matrices of this shape, 0 for what is absent, in float64.

    Both 1 by default, or constant with the total of the other. b is scaled to the total of a, which is checked to be equal
    before anything is solved: gradients in both are those of a function that has them in all directions.
    """
    lead, (n, m) = shape[:-2], shape[-2:]
    present = [torch.ones(n if k == 0 else m, dtype=torch.float64, device=like.device) if t is None else t.double()
               for k, t in enumerate((rows, columns))]  # fmt: skip
    w_a = present[0] if a is None else weights("a", a, (*lead, n), like)
    w_b = present[1] if b is None else weights("b", b, (*lead, m), like)
    w_a, w_b = (w if t is None else torch.where(t, w, 0.0) for w, t in ((w_a, rows), (w_b, columns)))
    if (a is None) != (b is None):
        total_a, total_b = w_a.sum(-1, keepdim=True), w_b.sum(-1, keepdim=True)
        if a is None:
            w_a = w_a * (total_b / divisor(w_a))
        else:
            w_b = w_b * (total_a / divisor(w_b))
    return w_a, w_b


def divisor(w: Tensor) -> Tensor:
    """The sums [..., 1] of weights; 1 where there is none to divide by, so that weights of 0 are not lost before a check."""
    total = w.sum(-1, keepdim=True)
    return torch.where(total > 0, total, 1.0)


def stacked(w: Tensor, lead: tuple[int, ...]) -> Tensor:
    """Weights as [1, n] where all problems share them, else as [B, n]."""
    return w[None] if w.ndim == 1 else w.expand(*lead, w.shape[-1]).flatten(0, -2)
