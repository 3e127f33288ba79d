"""Hilbert's distance to the solution and what a layer must leave of it, for theorems L and P of docs/theorems.md."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from helpers.extreme import Array, Pair, Problems, osc
from otformer import theory
from otformer.transport import reference

Record = Callable[[str, object], None]  # pytest's record_property


def apart(p: Problems, u: Array, v: Array) -> Array:
    """m = max(μ(p, p*), μ(q, q*)) [B]."""
    return np.maximum(osc((u - p.u) / p.reg), osc((v - p.v) / p.reg))


def rounding(p: Problems, u: Array, v: Array) -> Array:
    """What float64 may do to m in a layer."""
    sizes = [np.abs(t).max(1) for t in (u, v, p.u, p.v, p.C.reshape(len(p.C), -1))]
    return 1e-14 * (1 + np.max(sizes, axis=0) / p.reg[:, 0])


def shares(p: Problems, tau: Array, step: Array) -> Array:
    """c [B] of each problem; ``step`` [B] in units of λ."""
    given = zip(p.reg[:, 0], p.log_phi(), tau, step * p.reg[:, 0], strict=True)
    return np.array([theory.contraction(reg, phi, t, gamma) if gamma else 0.0 for reg, phi, t, gamma in given])


def largest(found: Array, bound: Array, least: Array) -> float:
    """The largest found/bound where the bound is above rounding."""
    told = bound > least
    return float((found[told] / bound[told]).max(initial=0.0))


def steepest(*excess: Array) -> Array:
    return np.max([np.abs(np.tanh(z / 2)).max(1) for z in excess], axis=0)


def two_by_two(gap: float, scale: float, s: float) -> tuple[torch.Tensor, Pair, Pair]:
    """P* = [[p, 1−p], [1−p, p]] at λ = 1, and e = −f = s(1, −1) with M multiplied by e^scale; (u, v) and (u*, v*)."""
    C, sign = torch.tensor([[0.0, gap], [gap, 0.0]]).double(), torch.tensor([1.0, -1.0]).double()
    u, v = reference.sinkhorn(C, 1.0)
    return C, (u + s * sign + scale, v - s * sign), (u, v)
