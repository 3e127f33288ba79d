"""Reading weights: positive numbers of equal sum on both sides, in float64; points without mass are left out."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import checks, weight_checks
from otformer.transport.types import Array, Support


class Weights(NamedTuple):
    """Weights of the points that have mass, in float64; b scaled to the mass of a, and as given."""

    a: Array
    b: Array
    target: Array
    mass: float
    support: Support | None


def read_weights(a: Any, b: Any, shape: tuple[int, int], device: torch.device | None, balanced: bool = True) -> Weights:
    """By default uniform, with the mass of the other side (if balanced), or 1. Either precision is read in full."""
    with np.errstate(over="ignore"):  # sums that overflow are refused below
        named = zip("ab", (a, b), shape, strict=True)
        sides = [None if w is None else _read_side(name, w, n, device) for name, w, n in named]
    known = [side[2] for side in sides if side is not None and balanced]
    if len(known) == 2:
        weight_checks.same_sums(known[0], known[1])
    n, m = shape
    total = known[0] if known else 1.0
    full: Any = np.full if device is None else partial(torch.full, dtype=torch.float64, device=device)
    w_a, least_a, mass = sides[0] or (full((n,), total / max(n, 1)), 1.0, total)
    target, least_b, mass_b = sides[1] or (full((m,), total / max(m, 1)), 1.0, total)
    if device is not None:
        w_a, target = (torch.as_tensor(w, device=device) for w in (w_a, target))
    support = None
    if n and not (least_a > 0 and least_b > 0):
        rows, columns = (w.nonzero()[0] if device is None else w.nonzero()[:, 0] for w in (w_a, target))
        support, w_a, target = Support(rows, columns, shape), w_a[rows], target[columns]
    b = target * (mass / mass_b) if n and balanced and mass != mass_b else target
    return Weights(w_a, b, target, mass if n else 0.0, support)


def _read_side(name: str, given: Any, n: int, device: torch.device | None) -> tuple[Array, float, float]:
    """The weights of one side in float64, the least of them, and their sum."""
    w = checks.array(name, given, differentiable=True)
    if tuple(w.shape) != (n,):
        advice = "a number is reg, given by its name: reg=0.1" if name == "a" and w.ndim == 0 else ""
        raise checks.ArgumentError(name, f"have shape ({n},)", tuple(w.shape), advice)
    if isinstance(given, Tensor) and given.device.type != "cpu" and given.device != device:
        raise checks.ArgumentError(name, f"be on {device or 'cpu'} as the other input", given.device)
    w = w.double() if isinstance(w, Tensor) else np.array(w, np.float64)
    least, total = 1.0, 1.0
    if n:  # on a GPU in one look
        least, total = (
            torch.stack([w.min(), w.sum()]).tolist() if isinstance(w, Tensor) else (float(w.min()), float(w.sum()))
        )
    if not least >= 0:
        if math.isnan(least):
            raise checks.ArgumentError(name, "be finite", checks.first_not_finite(w))
        raise checks.ArgumentError(name, "not be negative", f"{least:g}")
    if not total < math.inf:
        if float(w.max()) == math.inf:
            raise checks.ArgumentError(name, "be finite", checks.first_not_finite(w))
        raise checks.ArgumentError("a and b", "have finite sums")
    weight_checks.positive_sums(name, total)
    return w, least, total


def scaled_to(a: Array, b: Array) -> Array:
    """b [..., m] scaled to the mass of a [..., n], differentiably."""
    return b * (a.sum(axis=-1, keepdims=True) / b.sum(axis=-1, keepdims=True))
