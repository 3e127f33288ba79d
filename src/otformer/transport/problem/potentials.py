"""Reading potentials of an earlier, similar problem: a warm start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.transport.problem.problem import Pair, Problem


def read_potentials(potentials: Any, u_like: Tensor, v_like: Tensor) -> tuple[Tensor, Tensor]:
    """(u, v) of an earlier result, checked, in the shape and dtype of the two given; −inf is what an absent point has."""
    try:
        u, v = (checks.unseen("potentials", t).detach().to(u_like) for t in potentials)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"potentials must be a pair of arrays (u, v), got {type(potentials).__name__}") from None
    if u.shape != u_like.shape or v.shape != v_like.shape:
        shapes = f"{tuple(u_like.shape)} and {tuple(v_like.shape)}, got {tuple(u.shape)} and {tuple(v.shape)}"
        raise ValueError(f"potentials must have shapes {shapes}")
    if not all(bool((t < torch.inf).all()) for t in (u, v)):
        raise ValueError("potentials must be numbers or −inf, got nan or +inf among them")
    return u, v


def started(problem: Problem, potentials: Any) -> Problem:
    """The problem with potentials to start from: finite also for a point that had no mass then, as if its mass were tiny.

    A constant moved from u to v changes nothing: v is centred. No start where v varies more than that of any plan can.
    """
    C = checks.local(problem.cost)
    u, v = read_potentials(potentials, *(C.new_empty(size) for size in problem.shape))
    if problem.kept is not None:
        u, v = u[checks.local(problem.kept.rows)], v[checks.local(problem.kept.columns)]
    known = v[v.isfinite()]
    reach = problem.spread + 100 * problem.reg
    if not len(known) or not float(known.max() - known.min()) <= reach:
        return problem
    middle = known.mean()
    u, v = u + middle - problem.low, v - middle
    nearest = (C - v).amin(1)  # what u is as λ → 0: where it is far from that, v alone is used
    u = torch.where((u - nearest).abs() <= reach, u, nearest).nan_to_num(posinf=0.0)
    v = torch.where(v.isneginf(), (C - u[:, None]).amin(0), v)
    start: Pair = (u, v) if isinstance(problem.cost, Tensor) else (u.numpy(), v.numpy())
    return replace(problem, start=start)
