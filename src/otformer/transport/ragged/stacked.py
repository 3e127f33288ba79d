r"""A stack of small problems of one size, [B, n, m], each finishing for itself: over-relaxed blocks, then Newton steps.

With K_ij = exp(−C_ij/λ) a block needs no logarithms: the plan is P_ij = p_i K_ij q_j, a row block sets p = a/(K q), a column
block q = b/(Kᵀ p), and both marginals of the plan in between are by-products. After a few such steps both are over-relaxed,

    p ← p (a/(p ∘ K q))^ω,      q ← q (b/(q ∘ Kᵀ p))^ω,

and what is not done then is finished by Newton's method, exact and quadratic where the blocks are slow. With exact rows the
column sums c(v) of the plan have the derivative S/λ, S = diag(c) − Pᵀ diag(1/a) P, so the step is

    S (dv/λ) = b − c,      q ← q exp(dv/λ),

no longer than ``LONGEST_NEWTON``. S has the null vector 1, and b − c is orthogonal to it: adding a number to one entry
of the
diagonal makes the system regular and only pins that entry of dv to 0. For problems of 60 points a Newton step costs as much
as 30 blocks; it would cost more with more points, and there `solve` is better.

Small λ: it falls to its value by factors of `annealing.COOLING`, and K is made again from the potentials of the stage
before.

The same lines run on numpy arrays (on a CPU several times faster than torch at such sizes) and on CUDA tensors.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer.transport.problem.problem import Array
from otformer.transport.solvers.annealing import COOLING
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.solvers.newton import TINY, coupling

STACK_ENTRIES = {"cpu": 2**16, "cuda": 2**26}  # entries in the costs of one stack, at most: to fit a cache, to fill a GPU
ALONE_ABOVE = {"cpu": 2**16, "cuda": 2**20}  # entries in the cost of a problem, above which it is better off alone
METHOD = "batched over-relaxed Sinkhorn blocks, Newton-polished"
PLAIN_STEPS, RELAXED_STEPS, NEWTON_STEPS = 4, 24, 24  # at most
OMEGA = 1.5  # the best for σ² = 8/9; see network/schedule.py
LOOK_EVERY = 4  # steps from one look at the errors to the next
LONGEST_NEWTON = 3.0  # step, in units of λ
RIDGE = 1e-14  # share of the diagonal added to it: parts that exchange no mass must not make S singular
STACK_ANNEAL_ABOVE = 50.0  # spread of the costs, in units of λ, up to which a stack has no stages
WIDEST_SPREAD = 1e12  # of the costs, in units of λ, that a stack takes
SLACK = 0.9  # share of the tolerance at which to stop: rounding the plan comes after


class StackedPotentials(NamedTuple):
    """u [B, n], v [B, m] with P_ij = exp((u_i + v_j − C_ij)/λ − 1); done [B]: error below tol; depth [B]: layers."""

    u: Array
    v: Array
    done: Array
    depth: Array


def annealing_steps(spread: Array, reg: float) -> Array:
    """How often λ falls, for ranges of costs [B]: not at all within ``STACK_ANNEAL_ABOVE`` λ, else from about a tenth of
    the range.

    >>> annealing_steps(np.array([1.0, 10.0, 1e3]), reg=0.1).tolist()
    [0, 3, 7]
    """
    ratio = np.maximum(spread / (10 * reg), 1)
    return np.where(spread <= STACK_ANNEAL_ABOVE * reg, 0, np.ceil(np.log(ratio) / math.log(COOLING))).astype(int)


def solve_stacked(C: Array, a: Array, b: Array, reg: float, tol: Array, max_depth: int, falls: int) -> StackedPotentials:
    """Potentials for costs C [B, n, m] ≥ 0, weights a [B, n], b [B, m] > 0 and errors to reach tol [B].

    ``falls`` is `annealing_steps` of the widest range of costs. The smaller side plays the columns: S is as large as that.
    """
    if C.shape[1] < C.shape[2]:
        v, u, done, depth = solve_stacked(C.swapaxes(1, 2), b, a, reg, tol, max_depth, falls)
        return StackedPotentials(u, v, done, depth)
    xp = _module(C)
    u, v, mass = 0 * a, 0 * b, a.sum(-1)
    q, left = b, max_depth // LAYERS
    depth = xp.zeros_like(tol)
    with np.errstate(all="ignore"):  # what is not a number is not done
        for k in range(falls, -1, -1):
            lam = reg * COOLING**k
            K = xp.exp((u[:, :, None] + v[:, None, :] - C) / lam) if k < falls else xp.exp(C * (-1 / lam))
            enough, most = (1e-2 * mass, left // 2) if k else (SLACK * tol, left)
            p, q, error, steps = _balance(K, a, b, q, enough, most)
            u, v, q = u + lam * xp.log(p), v + lam * xp.log(q), xp.ones_like(b)
            depth, left = depth + LAYERS * steps, left - int(steps.max())
    return StackedPotentials(u + reg, v, error < enough, depth)


def _balance(K: Array, a: Array, b: Array, q: Array, tol: Array, most: int) -> tuple[Array, Array, Array, Array]:
    """Scalings p, q of the plan p K q with the least error seen, that error, and the steps taken, each [B]."""
    xp = _module(K)
    active = _indices(len(tol), tol)
    best_p, best_q, least, steps = xp.ones_like(a), xp.ones_like(b), xp.full_like(tol, math.inf), xp.zeros_like(tol)
    p, last = best_p, min(most, PLAIN_STEPS + RELAXED_STEPS + NEWTON_STEPS)
    for step in range(1, last + 1):
        polish = step > PLAIN_STEPS + RELAXED_STEPS
        omega = OMEGA if PLAIN_STEPS < step <= PLAIN_STEPS + RELAXED_STEPS else 1.0
        sums = (K @ q[:, :, None])[:, :, 0]
        p = _relaxed(p, a / sums, omega)
        columns = (p[:, None, :] @ K)[:, 0, :]
        if polish or step % LOOK_EVERY == 1 or step == last:
            error = xp.abs(p * sums - a).sum(-1) + xp.abs(q * columns - b).sum(-1)
            better = error < least[active]
            where = active[better]
            best_p[where], best_q[where], least[where] = p[better], q[better], error[better]
            steps[active] = step
            alive = ~(least[active] < tol[active])
            count = int(alive.sum())
            if count == 0:
                break
            if count <= 0.8 * len(active):
                active, K, a, b, p, q, columns = (t[alive] for t in (active, K, a, b, p, q, columns))
        q = _newton(K, a, b, p, q, columns) if polish else _relaxed(q, b / columns, omega)
    return best_p, best_q, least, steps


def _relaxed(old: Array, new: Array, omega: float) -> Array:
    return new if omega == 1 else old * (new / old) ** omega


def _newton(K: Array, a: Array, b: Array, p: Array, q: Array, columns: Array) -> Array:
    """The next q, where p makes the rows exact and ``columns`` is Kᵀ p."""
    xp = _module(K)
    S, c = -coupling(K, p / a**0.5, q), q * columns
    each, pinned, diagonal = _indices(len(b), b), b.argmax(1), _indices(b.shape[1], b)
    S[:, diagonal, diagonal] += (1 + RIDGE) * c + TINY
    S[each, pinned, pinned] += c[each, pinned]
    f = (b - c)[:, :, None]
    d = (torch.linalg.solve_ex(S, f)[0] if isinstance(S, Tensor) else np.linalg.solve(S, f))[:, :, 0]
    longest = xp.amax(xp.abs(d), 1)[:, None]
    return q * xp.exp(d * (LONGEST_NEWTON / xp.clip(longest, LONGEST_NEWTON, None)))


def _module(t: Array) -> Any:
    return torch if isinstance(t, Tensor) else np


def _indices(count: int, like: Array) -> Array:
    return torch.arange(count, device=like.device) if isinstance(like, Tensor) else np.arange(count)
