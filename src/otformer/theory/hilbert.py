r"""Hilbert's projective metric, the contraction factor of Sinkhorn, and nearly doubly stochastic matrices.

    μ(q, q') = log max_ij (q_i q'_j)/(q_j q'_i),      φ(Q) = max_ijkl (Q_ik Q_jl)/(Q_jk Q_il),
    η = (√φ − 1)/(√φ + 1) = tanh(¼ log φ).

A half-step of Sinkhorn on diag(p) Q diag(q) contracts μ by η (Birkhoff; Franklin and Lorenz 1989). With
Q = exp(−C/λ − 1), log φ is a range of differences of C/λ, so everything is computed from the cost and nothing overflows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otformer import checks


def hilbert_metric(q: Tensor, other: Tensor) -> Tensor:
    """μ(q, q') of positive vectors, over the last axis. 0 exactly where one is a multiple of the other.

    >>> hilbert_metric(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0])).exp()
    tensor(2.)
    """
    pair = []
    for name, given in (("q", q), ("other", other)):
        t = checks.tensor(name, given)
        if not t.numel() or not bool((t > 0).all()):
            raise checks.ArgumentError(name, "be positive numbers", f"shape {tuple(t.shape)}", "μ needs them")
        pair.append(t.log())
    shapes = [tuple(t.shape) for t in pair]
    if (1 not in map(len, shapes) and shapes[0] != shapes[1]) or shapes[0][-1:] != shapes[1][-1:]:
        raise checks.ArgumentError(
            "other", f"have the shape of q, {shapes[0]}, or its last axis alone", f"shape {shapes[1]}"
        )
    return spread(pair[0] - pair[1])


def spread(t: Tensor) -> Tensor:
    """max − min over the last axis; μ(e^{u/λ}, e^{u'/λ}) = spread((u − u')/λ)."""
    return t.amax(-1) - t.amin(-1)


def log_phi(C: Tensor, reg: float) -> float:
    """log φ(Q) for Q = exp(−C/λ − 1), C [n, m]; O(n² m) time, O(n m) memory.

    φ takes the largest Q_ik/Q_jk over k and divides it by the smallest over l, for the worst pair of rows i, j:
    log φ = max_ij spread_k((C_jk − C_ik)/λ).

    >>> log_phi(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), reg=0.5)   # Q_11 Q_22/(Q_21 Q_12) = e^{2/λ}
    4.0
    """
    reg, C = checks.positive("reg", reg), cost("C", C)
    return max(float(spread(row - C).max()) for row in C) / reg


def phi(C: Tensor, reg: float) -> float:
    """φ(Q); inf where it overflows."""
    return exp(log_phi(C, reg))


def eta(log_phi: float) -> float:
    """η = tanh(¼ log φ), in [0, 1]; rounds to 1 for log φ above about 75.

    >>> eta(0.0), round(eta(math.log(9.0)), 12)   # (3 − 1)/(3 + 1)
    (0.0, 0.5)
    """
    return math.tanh(checks.not_negative("log_phi", log_phi) / 4)


def inverse_gap(log_phi: float) -> float:
    """1/(1 − η) = (1 + √φ)/2, without the cancellation; inf where it overflows."""
    return (1 + exp(checks.not_negative("log_phi", log_phi) / 2)) / 2


def doubly_stochastic_gap(A: Tensor) -> Tensor:
    """The smallest ε for which A is in the paper's set S_ε: max(‖A1 − 1‖_∞, ‖Aᵀ1 − 1‖_∞)."""
    A = checks.tensor("A", A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or not A.numel():
        raise checks.ArgumentError("A", "be square matrices", f"shape {tuple(A.shape)}", "S_ε is a set of n × n matrices")
    rows, columns = (A.sum(-1) - 1).abs().amax(-1), (A.sum(-2) - 1).abs().amax(-1)
    return torch.maximum(rows, columns)


def cost(name: str, value: Tensor) -> Tensor:
    """A cost: a finite matrix with at least one entry, of any sign."""
    C = checks.tensor(name, value)
    if C.ndim != 2 or not C.numel():
        raise checks.ArgumentError(name, "be a finite matrix of shape (n, m)", f"shape {tuple(C.shape)}")
    return C


def exp(x: float) -> float:
    """e^x, inf where it overflows."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
