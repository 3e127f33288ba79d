r"""Solving by adding layers until the computed marginal error is below ``tol``.

The default network is made of Anderson-mixed Sinkhorn blocks (transport/blocks.py) on the absorbed executor
(transport/absorbed.py). Where λ is small against the costs it falls to its value by factors of 4: potentials travel while
steps are long.

With ``schedule`` one of the paper's fixed-weight networks runs instead, to the depth it needs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.network.schedule import Layer, Schedule, named
from otformer.transport.absorbed import Absorbed
from otformer.transport.blocks import LAYERS, Executor, blocks
from otformer.transport.dense import Dense, run
from otformer.transport.problem import Problem, like_input
from otformer.transport.result import Result

State = tuple[Tensor, Tensor, float, int]  # u, v, marginal error, layers so far


def solve(
    M: Any,
    a: Any = None,
    b: Any = None,
    reg: float = 0.1,
    tol: float = 1e-6,
    max_depth: int = 10_000,
    schedule: str | Schedule = "auto",
) -> Result:
    """Entropic optimal transport for a cost matrix: min Σ P M + λ Σ P log P over plans with marginals a and b.

    Parameters: M (n, m); a (n,) and b (m,), default uniform with total mass 1; reg = λ > 0; tol, the L1 marginal error to
    reach; max_depth, the most layers to use; schedule, ``"auto"`` or a fixed-weight network (`AligningTransformer`).
    Warns, and returns ``converged=False``, if ``tol`` is not reached.

    >>> r = solve([[0.0, 1.0], [1.0, 0.0]], reg=0.1)
    >>> r.plan.round(4).tolist(), r.converged
    ([[0.5, 0.0], [0.0, 0.5]], True)
    """
    return _solve(Problem.from_cost(M, a, b), M, reg, tol, max_depth, schedule)


def solve_sample(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    reg: float = 0.1,
    tol: float = 1e-6,
    max_depth: int = 10_000,
    schedule: str | Schedule = "auto",
) -> Result:
    """`solve` between points, rows of X_a (n, d) and X_b (m, d), with the squared Euclidean cost (not half of it).

    >>> solve_sample([[0.0], [1.0]], [[0.1], [0.9]], reg=0.01).plan.argmax(1).tolist()
    [0, 1]
    """
    return _solve(Problem.from_points(X_a, X_b, a, b), X_a, reg, tol, max_depth, schedule)


def _solve(problem: Problem, given: Any, reg: float, tol: float, max_depth: int, schedule: str | Schedule) -> Result:
    reg, tol = checks.positive("reg", reg), checks.not_negative("tol", tol)
    checks.count("max_depth", max_depth, least=2)
    layers = None if schedule == "auto" else named(schedule).layers(reg, max_depth)
    name = "annealed Sinkhorn blocks, Anderson-mixed" if layers is None else f"{type(named(schedule)).__name__} layers"

    # Only differences of costs matter: the smallest is taken out, and given back to u and to the value at the end.
    low = float(problem.C.min()) if problem.C.numel() else 0.0
    problem = replace(problem, C=problem.C - low)
    if problem.C.numel() and not math.isfinite(float(problem.C.max()) / reg):
        raise ValueError(f"reg is too small: cost/reg overflows, got reg = {reg:g}, costs {float(problem.C.max()):g} apart")
    rows, columns = problem.a > 0, problem.b > 0  # a point without mass is absent
    u, v = torch.full_like(problem.a, -torch.inf), torch.full_like(problem.b, -torch.inf)
    depth = 0
    if problem.C.numel():
        parts = problem.C[rows][:, columns], problem.a[rows].log(), problem.b[columns].log()
        if layers is None:
            states = annealed(Absorbed(*parts), float(parts[0].max()), reg, tol, max_depth)
        else:
            states = _fixed(Dense(*parts), layers, tol)
        u[rows], v[columns], depth = _best(states)
    return _result(problem, low, u, v, reg, tol, depth, name, given)


def _best(states: Iterator[State]) -> tuple[Tensor, Tensor, int]:
    """The potentials with the least error, and the layers run in all."""
    best = next(states)
    depth = best[3]
    for state in states:
        depth = state[3]
        if state[2] <= best[2]:
            best = state
    return best[0], best[1], depth


def annealed(executor: Executor, spread: float, reg: float, tol: float, max_depth: int) -> Iterator[State]:
    """Blocks at falling λ, then at the final one to ``tol``; the states of the final λ. ``spread``: the range of costs."""
    mass = float(executor.log_b.exp().sum())
    v, depth = torch.zeros_like(executor.log_b), 0
    for lam in falling(spread, reg):
        # Annealing takes at most half of the layers, 24 a stage: a rough answer is all the next stage needs.
        limit, enough = (max_depth, tol) if lam == reg else (min(depth + 24, max_depth // 2), 0.05 * mass)
        steps = blocks(executor, lam, v, spread)
        while depth + LAYERS <= limit:
            u, v, errors = next(steps)
            error = float(errors.sum())
            depth += LAYERS
            if lam == reg:
                yield u, v, error, depth
            if error < enough:
                break


def falling(spread: float, reg: float) -> Iterator[float]:
    """λ of the stages: ``reg`` alone if costs are within 200 of it; else a tenth of their range, a quarter of that, …"""
    lam = spread / 10
    while spread > 200 * reg and lam > 1.5 * reg:
        yield lam
        lam /= 4
    yield reg


def _fixed(dense: Dense, layers: tuple[Layer, ...], tol: float) -> Iterator[State]:
    """A fixed-weight network; the error of its plan at its own last λ, every ten layers and after the last.

    While λ is still falling that plan can be too large for a float: then the error is infinite.
    """
    a, b, reg = dense.log_a.exp(), dense.log_b.exp(), layers[-1].reg
    for depth, (u, v) in enumerate(run(dense, layers)):
        if depth and (depth % 10 == 0 or depth == len(layers)):
            P = dense.plan(u, v, reg)
            error = float((P.sum(1) - a).abs().sum() + (P.sum(0) - b).abs().sum())
            yield u, v, error if math.isfinite(error) else math.inf, depth
            if error < tol:
                return


def _result(
    problem: Problem, low: float, u: Tensor, v: Tensor, reg: float, tol: float, depth: int, name: str, given: Any
) -> Result:
    """The plan of the potentials in float64, and what is true of it."""
    C, a, b = problem.C.double(), problem.a.double(), problem.b.double()
    log_P = (u.double()[:, None] + v.double()[None, :] - C) / reg - 1
    P = log_P.exp()
    error = float((P.sum(1) - a).abs().sum() + (P.sum(0) - b).abs().sum())
    if not math.isfinite(error):
        raise ValueError(f"schedule and max_depth do not fit this problem: after {depth} layers its plan is still infinite")
    linear = float((P * C).sum()) + low * float(P.sum())
    entropy = float(torch.where(P > 0, P * log_P, 0.0).sum())
    converged = error < tol or not C.numel()
    if not converged:
        warnings.warn(
            f"not converged: marginal error {error:.3g} after {depth} layers, tol is {tol:g} (reg = {reg:g}); "
            "raise reg, tol or max_depth" + (", or use float64" if problem.C.dtype == torch.float32 else ""),
            RuntimeWarning,
            stacklevel=4,
        )
    return Result(
        plan=like_input(given, P.to(problem.C)),
        potentials=(like_input(given, u + low), like_input(given, v)),
        value=linear + reg * entropy,
        value_linear=linear,
        marginal_error=error,
        converged=converged,
        depth=depth,
        network=name,
    )
