r"""Layers until the error is small enough: at falling λ, from a warm start, or those of a fixed-weight network.

Each generator yields (u, v, marginal error, layers so far) at the final λ; `best` takes the one with the least error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from otformer.network.schedule import Layer
from otformer.transport.executors.dense import Dense, run
from otformer.transport.solvers.blocks import LAYERS, Blocks, Executor
from otformer.transport.solvers.newton import falling

Pair = tuple[Tensor, Tensor]
State = tuple[Tensor, Tensor, float, int]  # u, v, marginal error, layers so far
NEAR, FAR = 60, 300  # layers


def best(states: Iterator[State]) -> tuple[Tensor, Tensor, int]:
    """The potentials with the least error, and the layers run in all."""
    least = next(states)
    depth = least[3]
    for state in states:
        depth = state[3]
        if state[2] <= least[2]:
            least = state
    return least[0], least[1], depth


def annealed(executor: Executor, spread: float, reg: float, tol: float, max_depth: int) -> Iterator[State]:
    """Blocks at falling λ, then at the final one to ``tol``; the states of the final λ. ``spread``: the range of costs."""
    mass = float(executor.log_b.exp().sum())
    v, depth = torch.zeros_like(executor.log_b), 0
    for lam in falling(spread, reg):
        # Annealing takes at most half of the layers, 200 a stage: the next stage needs no more than a fair answer.
        limit, enough = (max_depth, tol) if lam == reg else (min(depth + 200, max_depth // 2), 1e-3 * mass)
        steps = Blocks(executor, lam, v, spread)
        while depth + LAYERS <= limit:
            u, v, errors = next(steps)
            error = float(errors.sum())
            depth += LAYERS
            if lam == reg:
                yield u, v, error, depth
            if error < enough:
                break


def warm(
    executor: Executor, v: Tensor | None, spread: float, reg: float, tol: float, max_depth: int
) -> Iterator[State]:
    """Blocks at the final λ from v (None: from 0), or `annealed`, if that is too far.

    Too far is what misplaces more than half of the mass in the first plan, a hundredth of it after ``NEAR`` layers, or has
    not arrived after ``FAR``.
    """
    mass, depth = float(executor.log_b.exp().sum()), 0
    steps = Blocks(executor, reg, torch.zeros_like(executor.log_b) if v is None else v, spread)
    for u, v, errors in steps:
        error, depth = float(errors.sum()), depth + LAYERS
        yield u, v, error if math.isfinite(error) else math.inf, depth
        if error < tol or depth + LAYERS > max_depth:
            return
        allowed = mass / 2 if depth == LAYERS else mass / 100 if depth == NEAR else 0.0 if depth == FAR else math.inf
        if not error < allowed:
            break
    for u, v, error, more in annealed(executor, spread, reg, tol, max_depth - depth):
        yield u, v, error, depth + more


def fixed(dense: Dense, layers: tuple[Layer, ...], tol: float, start: Pair | None) -> Iterator[State]:
    """A fixed-weight network; the error of its plan at its own last λ, every ten layers and after the last.

    While λ is still falling that plan can be too large for a float: then the error is infinite.
    """
    a, b, reg = dense.log_a.exp(), dense.log_b.exp(), layers[-1].reg
    for depth, (u, v) in enumerate(run(dense, layers, start)):
        if depth and (depth % 10 == 0 or depth == len(layers)):
            P = dense.plan(u, v, reg)
            error = float((P.sum(1) - a).abs().sum() + (P.sum(0) - b).abs().sum())
            yield u, v, error if math.isfinite(error) else math.inf, depth
            if error < tol:
                return
