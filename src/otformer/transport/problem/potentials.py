"""Reading potentials of an earlier, similar problem: a warm start."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from otformer import checks


def read_potentials(potentials: Any, u_like: Tensor, v_like: Tensor) -> tuple[Tensor, Tensor]:
    """(u, v) of an earlier result, checked, in the shape and dtype of the two given; −inf is what an absent point has."""
    try:
        u, v = (checks.unseen("potentials", t).detach().to(u_like) for t in potentials)
    except (TypeError, ValueError, RuntimeError):
        raise checks.ArgumentError("potentials", "be a pair of arrays (u, v)", type(potentials).__name__) from None
    if u.shape != u_like.shape or v.shape != v_like.shape:
        shapes = f"{tuple(u_like.shape)} and {tuple(v_like.shape)}, got {tuple(u.shape)} and {tuple(v.shape)}"
        raise checks.ArgumentError("potentials", f"have shapes {shapes}")
    if not all(bool((t < torch.inf).all()) for t in (u, v)):
        raise checks.ArgumentError("potentials", "be numbers or −inf", "nan or +inf among them")
    return u, v
