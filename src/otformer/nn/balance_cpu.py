r"""Small problems of `balance` on a CPU, many at once: Sinkhorn steps, then Newton steps that never lower the dual.

Problems are on the last axis, so that every line runs along memory, in float64. Chunks of them fit a cache, and are shared
among as many threads as torch has: numpy releases Python's lock inside its loops.

Wanted are f, g with P_ij = exp(X_ij + f_i + g_j) of row sums a and column sums b. They maximise

    D(g) = Σ_j b_j g_j − Σ_i a_i log Σ_j exp(X_ij + g_j),

f being such that rows are exact. D is concave; its gradient is b − c, c the column sums, and its Hessian −S with
S = diag(c) − Pᵀ diag(1/a) P. A few Sinkhorn steps g ← g + log(b/c) come first, then Newton steps S d = b − c.

**A Newton step of length t = log(1 + κ)/κ, κ = max d − min d, never lowers D.** Let h(t) = D(g + t d), so h'(0) = d·(b − c),
which is d·S d = −h''(0). −h'' is a sum over rows of a_i times the variance of d under the row's shares, and its derivative
one of third central moments, which are at most κ times the variance: −h''(t) ≤ −h''(0) e^{κt}. Integrated,
h'(t) ≥ h'(0) (1 − (e^{κt} − 1)/κ), not negative up to e^{κt} = 1 + κ. Near the solution t = 1 − κ/2 + …: convergence
remains quadratic.

S has the null vector 1, to which b − c is orthogonal. S + c cᵀ/Σc is regular where S has no other, and its solution solves
S d = b − c too: the sum of its equations says Σ_j c_j d_j = 0. Absent points have weight 0; their entries of P are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from otformer.nn import balance_large
from otformer.nn.balance_lanes import pull_plans, scale_plans
from otformer.nn.balance_problems import Gradients, LogitStack, Plans
from otformer.transport.derivatives.implicit import DIRECT_RIDGE
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.solvers.newton import TINY
from otformer.transport.solvers.stacked import Stack, run_stack
from otformer.transport.types import Array, Goal

CHUNK_ENTRIES = 2**17  # entries of a chunk: 1 MiB in float64
SMALL_SIDE = 32  # rows and columns at most, of problems that are not mild
LANES_SIDE = 128  # rows and columns at most, of those that are
RESIDUAL, SINGLE_RESIDUAL = 1e-12, 1e-10  # relative, of gradients in float64 and in less
SMALL_SINKHORN, SMALL_STEPS = 6, 64  # Sinkhorn steps, and all steps, at most


def solve(stack: LogitStack, goal: Goal, out: Plans) -> None:
    """Fill in plans, potentials and errors: of mild problems, and up to `SMALL_SIDE` of the others."""

    def mild(k: Tensor) -> None:
        part = slice(int(k[0]), int(k[-1]) + 1)
        P, f, g, error = (_numbers(t[part]) for t in out)
        scale_plans(*_given(stack, k), goal.tol, P, f, g, error)
        for whole, own in zip(out, (P, f, g, error), strict=True):
            _put(whole, part, own)

    def small(k: Tensor) -> None:
        X, _, w_a, w_b = _read(stack, k)
        u, v = solve_small(X, w_a, w_b, goal.tol, goal.max_depth // LAYERS)
        plan = _plan(X, u, v)
        off = np.maximum(np.abs(plan.sum(1) - w_a).max(0), np.abs(plan.sum(0) - w_b).max(0))  # of what is returned
        off /= np.maximum(w_a.max(0), w_b.max(0))
        for whole, own in zip(out, (plan, u, v, off), strict=True):
            whole[k] = _back(own).to(whole)

    out.error.fill_(torch.inf)  # of a problem that is not solved here
    _each_chunk(stack.logits, torch.arange(len(out.f), device="cpu"), mild)
    if max(stack.logits.shape[1:]) <= SMALL_SIDE:
        _each_chunk(stack.logits, (~(out.error <= goal.tol)).nonzero()[:, 0], small)


def backward(stack: LogitStack, G: Tensor, f: Tensor, g: Tensor, out: Gradients) -> None:
    """Fill in the gradients of a loss with the gradient G in the plans."""
    finished = torch.zeros(len(G), dtype=torch.bool, device="cpu")
    least = RESIDUAL if stack.logits.dtype == torch.float64 else SINGLE_RESIDUAL

    def mild(k: Tensor) -> None:
        part = slice(int(k[0]), int(k[-1]) + 1)
        Y, w_u, w_v, heat = filled = [_numbers(t[part]) for t in out]
        L, tau, a, b = _given(stack, k)
        own_f, own_g, own_G = (_numbers(t[part]) for t in (f, g, G))
        pull_plans(L, tau, a, b, own_f, own_g, own_G, least, Y, w_u, w_v, heat, finished[part].numpy())
        for whole, own in zip(out, filled, strict=True):
            _put(whole, part, own)

    def small(k: Tensor) -> None:
        X, tau, *_ = _read(stack, k)
        P = _plan(X, _along(f[k]), _along(g[k]))
        M = np.multiply(P, _along(G[k]), out=np.zeros_like(P), where=P > 0)  # what meets no mass is not read
        u, v = solve_marginals_small(P, M.sum(1), M.sum(0))
        P *= u[:, None] + v
        M -= P
        M /= tau
        heat = -np.multiply(M, X, out=np.zeros_like(M), where=M != 0).sum((0, 1))
        for whole, own in zip(out, (M, u, v, heat), strict=True):
            whole[k] = _back(own).to(whole)

    _each_chunk(stack.logits, torch.arange(len(G), device="cpu"), mild)
    left = (~finished).nonzero()[:, 0]
    if max(stack.logits.shape[1:]) <= SMALL_SIDE:
        _each_chunk(stack.logits, left, small)
    else:
        balance_large.backward(stack, G, f, g, out, left)


def _each_chunk(logits: Tensor, problems: Tensor, work: Callable[[Tensor], None]) -> None:
    """Call ``work`` on chunks. Errors show what is not a number; in a gradient it tells a GradScaler its scale."""

    @torch.no_grad()  # this and numpy's settings are a thread's own
    def quietly(part: Tensor) -> None:
        with np.errstate(all="ignore"):
            work(part)

    parts = problems.split(max(1, CHUNK_ENTRIES // logits[0].numel())) if len(problems) else ()
    threads = min(torch.get_num_threads(), len(parts))
    if threads < 2:
        for part in parts:
            quietly(part)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(quietly, parts):
            pass


def _numbers(t: Tensor) -> Array:
    """Return t as an array in memory's order; numbers of less than 32 bits become float32."""
    return (t if t.dtype in (torch.float32, torch.float64) else t.float()).contiguous().numpy()


def _put(whole: Tensor, part: slice, own: Array) -> None:
    """Write back what `_numbers` copied."""
    if own.ctypes.data != whole[part].data_ptr():
        whole[part] = torch.from_numpy(own).to(whole)


def _given(stack: LogitStack, k: Tensor) -> tuple[Array, Array, Array, Array]:
    """Return logits [B, n, m], τ [B] and weights [B, n], [B, m] of equal sums, of problems that follow each other."""
    tau, w_a, w_b = (t.contiguous().numpy() for t in stack.numbers(k))
    return _numbers(stack.logits[int(k[0]) : int(k[-1]) + 1]), tau, w_a, w_b


def _read(stack: LogitStack, k: Tensor) -> tuple[Array, Array, Array, Array]:
    """Return X = (logits − greatest)/τ [n, m, B], −∞ for absent points; τ [B]; weights [n, B], [m, B] of equal sums."""
    tau, w_a, w_b = (np.ascontiguousarray(t.numpy().T) for t in stack.numbers(k))
    X = _along(stack.logits[k])
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
    """Copy [B, …] to float64 with problems on the last axis."""
    flat = t.reshape(len(t), -1).mT.to(torch.float64, memory_format=torch.contiguous_format).contiguous()
    return flat.numpy().reshape(*t.shape[1:], len(t))


def _back(t: Array) -> Tensor:
    return torch.from_numpy(t).movedim(-1, 0)


def solve_small(X: Array, a: Array, b: Array, tol: float, most: int) -> tuple[Array, Array]:
    """Find f [n, B], g [m, B] for X [n, m, B], −∞ where P is 0, and a [n, B], b [m, B] of equal sums.

    Done where the greatest |c_j − b_j| is within tol in units of the greatest weight; rows are exact. ``most`` steps.
    """
    if X.shape[0] < X.shape[1]:  # the Newton system is as large as the side of the columns
        g, f = solve_small(X.swapaxes(0, 1), b, a, tol, most)
        return f, g
    (f, g), *_ = run_stack(_Logs(X, a, b), np.full(X.shape[2], tol), max(1, min(most, SMALL_STEPS)))
    return f, g


class _Logs(Stack):
    """Plans exp(X + f + g), [n, m, B]; f [n, B] and g [m, B]."""

    axis, pack = -1, 0.6

    def __init__(self, X: Array, a: Array, b: Array) -> None:
        self.X, self.a, self.b, self.P = X, a, b, X
        self.f, self.g = _start(X, a, b)
        self.scale = np.maximum(a.max(0), b.max(0))

    @property
    def state(self) -> tuple[Array, Array]:
        return self.f, self.g

    def rows(self, step: int, last: bool) -> Array:
        P = self.X + self.f[:, None]
        P += self.g
        np.exp(P, out=P)
        ratio = np.where(self.a > 0, self.a / np.maximum(P.sum(1), TINY), 1.0)
        self.f = self.f + np.log(ratio)
        P *= ratio[:, None]
        self.P, self.c = P, P.sum(0)
        return np.abs(self.b - self.c).max(0) / self.scale

    def columns(self, step: int) -> None:
        a, b, c = self.a, self.b, self.c
        self.g = self.g + (_sinkhorn(b, c) if step <= SMALL_SINKHORN else _newton(self.P, a, b, c))


def solve_marginals_small(P: Array, g_u: Array, g_v: Array) -> tuple[Array, Array]:
    """Solve H w = g as in derivatives/implicit.py for plans P [n, m, B]: w_u [n, B], w_v [m, B]; 0 for absent points."""
    if P.shape[0] < P.shape[1]:
        w_v, w_u = solve_marginals_small(P.swapaxes(0, 1), g_v, g_u)
        return w_u, w_v
    r, c = np.maximum(P.sum(1), TINY), P.sum(0)
    w_v = _solve(P, r, c, g_v - (P * (g_u / r)[:, None]).sum(0))
    return (g_u - (P * w_v).sum(1)) / r, w_v


def _start(X: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Make a step on rows and one on columns, each from the greatest entry down: no sum is 0 from here on."""
    with np.errstate(divide="ignore", invalid="ignore"):
        top = X.max(1)
        f = np.where(a > 0, np.log(a / np.exp(X - top[:, None]).sum(1)) - top, 0.0)
        Y = X + f[:, None]
        top = Y.max(0)
        return f, np.where(b > 0, np.log(b / np.exp(Y - top).sum(0)) - top, 0.0)


def _sinkhorn(b: Array, c: Array) -> Array:
    return np.log(np.where(b > 0, b / np.maximum(c, TINY), 1.0))


def _newton(P: Array, a: Array, b: Array, c: Array) -> Array:
    d = _solve(P, np.maximum(a, TINY), c, b - c)
    spread = np.maximum(np.ptp(d, 0), TINY)
    return d * (np.log1p(spread) / spread)


def _solve(P: Array, r: Array, c: Array, y: Array) -> Array:
    """Solve (S + c cᵀ/Σc) d = y by elimination, for all problems at once; S is positive, so no pivots are needed."""
    m, d = len(c), y.copy()
    S = c[:, None] * (c / np.maximum(c.sum(0), TINY))
    for row in P / np.sqrt(r)[:, None]:
        S -= row[:, None] * row
    diagonal = np.arange(m)
    S[diagonal, diagonal] += np.where(c > 0, (1 + DIRECT_RIDGE) * c, 1.0)  # an absent column has d = y = 0
    for k in range(m - 1):
        factor = S[k + 1 :, k] / S[k, k]
        S[k + 1 :, k + 1 :] -= factor[:, None] * S[k, k + 1 :]
        d[k + 1 :] -= factor * d[k]
    for k in range(m - 1, -1, -1):
        d[k] = (d[k] - (S[k, k + 1 :] * d[k + 1 :]).sum(0)) / S[k, k]
    return d
