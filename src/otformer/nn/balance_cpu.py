"""Small problems of `balance` on a CPU: in chunks that fit a cache, problems on the last axis, in float64.

Chunks are shared among as many threads as torch has: numpy lets go of Python's lock inside its loops.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from otformer.nn.small import solve_marginals_small, solve_small
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.types import Array

CHUNK_ENTRIES = 2**17  # entries of a chunk: 1 MiB in float64


def solve(
    logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, tol: float, max_depth: int, P: Tensor, f: Tensor, g: Tensor
) -> Tensor:
    """Fills P, f and g; the error of every problem [B]."""
    error = torch.empty(len(logits), dtype=torch.float64, device="cpu")

    def solve_part(part: slice) -> None:
        X, _, w_a, w_b = _read(logits, temperature, a, b, part)
        u, v = solve_small(X, w_a, w_b, tol, max_depth // LAYERS)
        plan = _plan(X, u, v)
        off = np.maximum(np.abs(plan.sum(1) - w_a).max(0), np.abs(plan.sum(0) - w_b).max(0))  # of what is returned
        error[part] = torch.from_numpy(off / np.maximum(w_a.max(0), w_b.max(0)))
        P[part], f[part], g[part] = _back(plan), _back(u), _back(v)

    _each_chunk(logits, solve_part)
    return error


def backward(
    G: Tensor, logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor,
    Y: Tensor, w_u: Tensor, w_v: Tensor, heat: Tensor,
) -> None:  # fmt: skip
    """Fills Y, the gradient in logits, w_u and w_v, those in a and b, and heat [B], that in the temperature."""

    def pull_part(part: slice) -> None:
        X, tau, *_ = _read(logits, temperature, a, b, part)
        P = _plan(X, _along(f[part]), _along(g[part]))
        M = np.multiply(P, _along(G[part]), out=np.zeros_like(P), where=P > 0)  # what meets no mass is not read
        u, v = solve_marginals_small(P, M.sum(1), M.sum(0))
        w_u[part], w_v[part] = _back(u), _back(v)
        P *= u[:, None] + v
        M -= P
        M /= tau
        heat[part] = torch.from_numpy(-np.multiply(M, X, out=np.zeros_like(M), where=M != 0).sum((0, 1)))
        Y[part] = _back(M)

    _each_chunk(logits, pull_part)


def _each_chunk(logits: Tensor, work: Callable[[slice], None]) -> None:
    """Do it with each chunk. What is not a number is found in the error, or, in a gradient, tells a GradScaler its scale."""

    @torch.no_grad()  # this and numpy's settings are a thread's own
    def quietly(part: slice) -> None:
        with np.errstate(all="ignore"):
            work(part)

    room = max(1, CHUNK_ENTRIES // logits[0].numel())
    parts = [slice(start, min(start + room, len(logits))) for start in range(0, len(logits), room)]
    threads = min(torch.get_num_threads(), len(parts))
    if threads < 2:
        for part in parts:
            quietly(part)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(quietly, parts):
            pass


def _read(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, part: slice) -> tuple[Array, Array, Array, Array]:
    """X = (logits − their greatest)/τ [n, m, B], −∞ for absent points; τ [B]; weights [n, B] and [m, B], of the same sum."""
    k = torch.arange(part.start, part.stop, device="cpu")
    tau, w_a, w_b = (np.ascontiguousarray(t[k % len(t)].double().numpy().T) for t in (temperature, a, b))
    X = _along(logits[part])
    w_b *= w_a.sum(0) / w_b.sum(0)
    for w, absent in ((w_a, w_a == 0), (w_b, w_b == 0)):
        if absent.any():
            X[np.broadcast_to(absent[:, None] if w is w_a else absent, X.shape)] = -np.inf
    X = (X - X.max((0, 1))) / tau  # only differences matter, and these are not to be lost beside f
    return X, tau, w_a, w_b


def _plan(X: Array, u: Array, v: Array) -> Array:
    P = X + u[:, None]
    P += v
    return np.exp(P, out=P)


def _along(t: Tensor) -> Array:
    """[B, …] as float64 with problems on the last axis, in one copy."""
    flat = t.reshape(len(t), -1).mT.to(torch.float64, memory_format=torch.contiguous_format).contiguous()
    return flat.numpy().reshape(*t.shape[1:], len(t))


def _back(t: Array) -> Tensor:
    return torch.from_numpy(t).movedim(-1, 0)
