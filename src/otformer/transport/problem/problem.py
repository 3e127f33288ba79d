"""A transport problem: a cost matrix and two weight vectors, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks


@dataclass(frozen=True, eq=False)
class Problem:
    """Cost C [n, m] and weights a [n], b [m] of equal mass, one dtype, one device.

    Sums that agree up to rounding are made to agree exactly in ``b``; errors are measured against ``target``, b as given.
    """

    C: Tensor
    a: Tensor
    b: Tensor
    target: Tensor

    @classmethod
    def from_cost(cls, M: Any, a: Any = None, b: Any = None) -> Problem:
        """From a cost matrix; default weights are uniform with total mass 1, as in POT."""
        C = checks.tensor("M", M)
        if C.ndim != 2:
            raise ValueError(f"M must have shape (n, m), got {tuple(C.shape)}")
        n, m = C.shape
        if (n == 0) != (m == 0):
            raise ValueError(f"M must have rows and columns, or neither, got shape {(n, m)}: mass has nowhere to go")
        weights = [
            checks.weights(name, w, (size,), C) if w is not None else C.new_full((size,), 1 / max(size, 1))
            for name, w, size in (("a", a, n), ("b", b, m))
        ]
        if n:
            for name, w in zip("ab", weights, strict=True):
                if float(w.detach().sum()) <= 0:
                    raise ValueError(f"{name} must have a positive sum, got all zeros")
            checks.same_mass(*weights)
        a, target = weights
        b = (target.double() * (a.double().sum() / target.double().sum())).to(C) if n else target
        return cls(C, a, b, target)

    def double(self) -> Problem:
        """In float64, differentiably."""
        return Problem(self.C.double(), self.a.double(), self.b.double(), self.target.double())

    def detach(self) -> Problem:
        return Problem(self.C.detach(), self.a.detach(), self.b.detach(), self.target.detach())


def read_potentials(potentials: Any, u_like: Tensor, v_like: Tensor) -> tuple[Tensor, Tensor]:
    """(u, v) of an earlier result, checked, in the shape and dtype of the two given; −inf is what an absent point has."""
    try:
        u, v = (torch.as_tensor(t).detach().to(u_like) for t in potentials)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"potentials must be a pair of arrays (u, v), got {type(potentials).__name__}") from None
    if u.shape != u_like.shape or v.shape != v_like.shape:
        shapes = f"{tuple(u_like.shape)} and {tuple(v_like.shape)}, got {tuple(u.shape)} and {tuple(v.shape)}"
        raise ValueError(f"potentials must have shapes {shapes}")
    if not all(bool((t < torch.inf).all()) for t in (u, v)):
        raise ValueError("potentials must be numbers or −inf, got nan or +inf among them")
    return u, v


def points_cost(X_a: Any, X_b: Any) -> Tensor:
    """‖X_a[i] − X_b[j]‖² of checked points, [n, m], by differences."""
    x, y = checks.points("X_a", X_a), checks.points("X_b", X_b)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"X_a and X_b must have the same dimension, got {tuple(x.shape)} and {tuple(y.shape)}")
    if x.dtype != y.dtype or x.device != y.device:
        raise ValueError(f"X_a and X_b must agree, got {x.dtype} on {x.device} and {y.dtype} on {y.device}")
    C = squared_distances(x, y)
    if C.numel() and not math.isfinite(float(C.max())):
        raise ValueError(f"X_a and X_b must have finite squared distances, got points up to {float(x.abs().max()):g}")
    return C


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """‖x_i − y_j‖², [n, m], a coordinate at a time: no cancellation, no n × m × d array."""
    C = x.new_zeros(len(x), len(y))
    for k in range(x.shape[1]):
        C.addcmul_(*((x[:, None, k] - y[None, :, k]),) * 2)
    return C


def like_input(value: Any, result: Tensor) -> Any:
    """A numpy array if the user gave numpy (or lists), a tensor if a tensor."""
    return result if isinstance(value, Tensor) else np.asarray(result.cpu())
