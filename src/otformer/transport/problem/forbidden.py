"""Forbidden pairs of a cost matrix: infinite costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.problem.problem import Array


def greatest_allowed(C: Array, low: float) -> float:
    """The greatest cost that is not infinite, where some are: +inf forbids a pair, anything else is an error."""
    t = checks.local(C)
    if low == -math.inf or math.isnan(low):
        wrong = checks.first_not_finite(torch.where(t == math.inf, 0.0, t))
        raise ValueError(f"M must be finite, or inf for a forbidden pair, got {wrong}")
    return float(torch.where(t.isinf(), -math.inf, t).max())


def masked(C: Array, mask: Any) -> Array:
    """inf where the mask is False."""
    try:
        allowed = mask if isinstance(mask, Tensor) else torch.from_numpy(np.array(mask))
    except (TypeError, ValueError):
        raise ValueError(f"mask must be a boolean array of shape {tuple(C.shape)}, got {type(mask).__name__}") from None
    if allowed.dtype != torch.bool or tuple(allowed.shape) != tuple(C.shape):
        kind = str(allowed.dtype).removeprefix("torch.")
        expected = f"boolean of shape {tuple(C.shape)}, True where a pair may match"
        raise ValueError(f"mask must be {expected}, got {kind} of shape {tuple(allowed.shape)}")
    if isinstance(C, Tensor):
        return torch.where(allowed.to(C.device), C, math.inf)
    return np.where(allowed.cpu().numpy(), C, math.inf)


def check_reachable(C: Array) -> None:
    """A point that has mass needs somebody to send it to."""
    t = checks.local(C)
    for side, name in ((1, "row"), (0, "column")):
        lost = t.isinf().all(side).nonzero()
        if len(lost):
            raise ValueError(f"M or mask forbids every pair of {name} {int(lost[0])}, which has mass: leave that point out")
