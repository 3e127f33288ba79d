r"""A stack of small problems of one size, [B, n, m], each finishing for itself: over-relaxed blocks, then Newton steps.

With K_ij = exp(−C_ij/λ) a block needs no logarithms: the plan is P_ij = p_i K_ij q_j, a row block sets p = a/(K q), a column
block q = b/(Kᵀ p), and both marginals of the plan in between are by-products. After a few such steps both are over-relaxed,

    p ← p (a/(p ∘ K q))^ω,      q ← q (b/(q ∘ Kᵀ p))^ω,

and what is not done then is finished by Newton's method, exact and quadratic where the blocks are slow. With exact rows the
column sums c(v) of the plan have the derivative S/λ, S = diag(c) − Pᵀ diag(1/a) P, so the step is

    S (dv/λ) = b − c,      q ← q exp(dv/λ),

no longer than ``LONGEST_NEWTON``. S has the null vector 1, and b − c is orthogonal to it: adding a number to one entry of
the diagonal makes the system regular and only pins that entry of dv to 0. For problems of 60 points a Newton step costs as
much as 30 blocks; it would cost more with more points, and there `solve` is better.

Small λ: it falls to its value by factors of `blocks.COOLING`, and K is made again from the potentials of the stage
before.

The same lines run on numpy arrays (on a CPU several times faster than torch at such sizes) and on CUDA tensors.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer.transport.solvers.blocks import COOLING, LAYERS
from otformer.transport.solvers.newton import TINY, coupling
from otformer.transport.types import Array

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


def solve_stacked(C: Array, a: Array, b: Array, reg: float, tol: Array, max_depth: int, stages: int) -> StackedPotentials:
    """Potentials for costs C [B, n, m] ≥ 0, weights a [B, n], b [B, m] > 0 and errors to reach tol [B].

    ``stages`` is `annealing_steps` of the widest range of costs. The smaller side plays the columns: S is as large as that.
    """
    if C.shape[1] < C.shape[2]:
        v, u, done, depth = solve_stacked(C.swapaxes(1, 2), b, a, reg, tol, max_depth, stages)
        return StackedPotentials(u, v, done, depth)
    xp = _module(C)
    u, v, mass = 0 * a, 0 * b, a.sum(-1)
    q, remaining = b, max_depth // LAYERS
    depth = xp.zeros_like(tol)
    with np.errstate(all="ignore"):  # what is not a number is not done
        for k in range(stages, -1, -1):
            lam = reg * COOLING**k
            K = xp.exp((u[:, :, None] + v[:, None, :] - C) / lam) if k < stages else xp.exp(C * (-1 / lam))
            enough, most = (1e-2 * mass, remaining // 2) if k else (SLACK * tol, remaining)
            most = min(most, PLAIN_STEPS + RELAXED_STEPS + NEWTON_STEPS)
            (p, q), error, steps = run_stack(_Scalings(K, a, b, q), enough, most)
            u, v, q = u + lam * xp.log(p), v + lam * xp.log(q), xp.ones_like(b)
            depth, remaining = depth + LAYERS * steps, remaining - int(steps.max())
    return StackedPotentials(u + reg, v, error < enough, depth)


class Stack:
    """Problems of one size that `run_stack` solves; every attribute of it is an array of all of them, along ``axis``."""

    axis: int  # 0: the first, or −1: the last
    pack: float  # share of the problems still going, up to which the others are left behind

    @property
    def state(self) -> tuple[Array, Array]:
        """The target sums of rows and columns."""
        raise NotImplementedError

    def rows(self, step: int, last: bool) -> Array | None:
        """A row block, and the errors [B] of the plan after it; None where this step does not look at them."""
        raise NotImplementedError

    def columns(self, step: int) -> None:
        """A column block, or what is better than one."""
        raise NotImplementedError

    def at(self, problems: Array) -> Any:
        return problems if self.axis == 0 else (..., problems)

    def keep(self, problems: Array) -> None:
        for name, t in list(vars(self).items()):
            setattr(self, name, t[self.at(problems)])


def run_stack(stack: Stack, tol: Array, most: int) -> tuple[list[Array], Array, Array]:
    """The state with the least error seen, that error, and the steps taken, each [B]; each problem until it is below tol."""
    xp = _module(tol)
    out, least, steps = [xp.empty_like(t) for t in stack.state], xp.full_like(tol, math.inf), xp.zeros_like(tol)
    active, best, error, step = _indices(len(tol), tol), stack.state, least, 0

    def leave(which: Any) -> None:
        for whole, part in zip((*out, least), (*best, error), strict=True):
            whole[stack.at(active[which])] = part[stack.at(which)]
        steps[active[which]] = step

    for step in range(1, most + 1):
        found = stack.rows(step, step == most)
        if found is not None:
            better = found <= error
            if xp is np and better.all():
                best, error = stack.state, found
            else:
                each = better[:, None] if stack.axis == 0 else better
                best = tuple(xp.where(each, new, old) for new, old in zip(stack.state, best, strict=True))
                error = xp.where(better, found, error)
            going = ~(error <= tol)
            count = int(going.sum())
            if count == 0 or step == most:
                break
            if count <= stack.pack * len(active):
                leave(~going)
                active, error, tol = active[going], error[going], tol[going]
                best = tuple(t[stack.at(going)] for t in best)
                stack.keep(going)
        stack.columns(step)
    leave(slice(None))
    return out, least, steps


class _Scalings(Stack):
    """Plans p K q, [B, n, m]; scalings p [B, n] and q [B, m]."""

    axis, pack = 0, 0.8

    def __init__(self, K: Array, a: Array, b: Array, q: Array) -> None:
        self.K, self.a, self.b, self.p, self.q = K, a, b, _module(K).ones_like(a), q
        self.sums = q  # of columns, of K p

    @property
    def state(self) -> tuple[Array, Array]:
        return self.p, self.q

    def rows(self, step: int, last: bool) -> Array | None:
        xp, sums = _module(self.K), (self.K @ self.q[:, :, None])[:, :, 0]
        self.p = _relaxed(self.p, self.a / sums, _omega(step))
        self.sums = (self.p[:, None, :] @ self.K)[:, 0, :]
        if not (last or step > PLAIN_STEPS + RELAXED_STEPS or step % LOOK_EVERY == 1):
            return None
        return xp.abs(self.p * sums - self.a).sum(-1) + xp.abs(self.q * self.sums - self.b).sum(-1)

    def columns(self, step: int) -> None:
        if step > PLAIN_STEPS + RELAXED_STEPS:
            self.q = _newton(self.K, self.a, self.b, self.p, self.q, self.sums)
        else:
            self.q = _relaxed(self.q, self.b / self.sums, _omega(step))


def _omega(step: int) -> float:
    return OMEGA if PLAIN_STEPS < step <= PLAIN_STEPS + RELAXED_STEPS else 1.0


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
