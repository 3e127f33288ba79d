"""Weights of points as tensors: none below zero, with a positive sum, and the same sum on both sides.

Two sums are equal up to the rounding of float32. transport/problem/weights.py reads the weights of a problem.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from otformer import checks
from otformer.errors import ArgumentError

CLOSE_MASSES = 1e-5  # relative difference up to which two sums of weights are equal


def weights(name: str, value: Any, shape: tuple[int, ...], like: Tensor, axis: int | None = -1) -> Tensor:
    """Non-negative weights of the given shape, in the dtype and on the device of ``like``.

    Their sums along ``axis`` must be positive; None: may be 0.
    """
    t = checks.tensor(name, value)
    if tuple(t.shape) != shape:
        raise ArgumentError(name, f"have shape {shape}", tuple(t.shape))
    if isinstance(value, Tensor) and t.device != like.device:
        raise ArgumentError(name, f"be on {like.device} as the other input", t.device)
    if bool((t < 0).any()):
        raise ArgumentError(name, "not be negative", f"{t.min().item():g}")
    if axis is not None and t.numel():
        positive_sums(name, t.detach().sum(axis))
    return t.to(like)


def positive_sums(name: str, totals: Any) -> None:
    """Refuse weights without mass; ``totals`` is their sum, or a tensor of sums."""
    if not bool((totals > 0).all() if isinstance(totals, Tensor) else totals > 0):
        raise ArgumentError(name, "have a positive sum", "all zeros")


def same_mass(a: Tensor, b: Tensor, names: str = "a and b") -> None:
    """The two weight vectors (last axis) have the same total, up to the rounding of float32 sums."""
    same_sums(a.detach().double().sum(-1), b.detach().double().sum(-1), names)


def same_sums(total_a: Any, total_b: Any, names: str = "a and b") -> None:
    """Refuse two sums of weights (floats, or tensors of equal length) that differ by more than float32 rounding."""
    agree = masses_agree(total_a, total_b) & (total_a < math.inf) & (total_b < math.inf)
    if agree is True or bool(checks.local(agree).all()):
        return
    total_a, total_b, bad = (checks.local(t).reshape(-1) for t in (total_a, total_b, ~checks.local(agree)))
    if not bool((total_a.isfinite() & total_b.isfinite()).all()):
        raise ArgumentError(names, "have finite sums")
    k = int(bad.nonzero()[0])
    pair = f"{total_a[k].item():g} and {total_b[k].item():g}"
    raise ArgumentError(names if checks.local(agree).ndim == 0 else f"problem {k}: {names}", "have the same sum", pair)


def masses_agree(total_a: Any, total_b: Any) -> Any:
    """Whether two sums of weights, or arrays of them, are equal up to the rounding of float32 sums."""
    return abs(total_a - total_b) <= CLOSE_MASSES * (total_a + total_b) / 2
