r"""Solving by adding layers until the computed marginal error is below ``tol``.

The default network is made of Anderson-mixed Sinkhorn blocks (transport/blocks.py) on the absorbed executor
(transport/absorbed.py). Where λ is small against the costs it falls to its value by factors of 3: potentials travel while
steps are long.

With ``schedule`` one of the paper's fixed-weight networks runs instead, to the depth it needs. Derivatives never go through
the layers: transport/gradient.py has them from the solution.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from otformer import checks
from otformer.network.schedule import SCHEDULES, Layer, Schedule, named
from otformer.transport.absorbed import Absorbed
from otformer.transport.blocks import LAYERS, Blocks, Executor
from otformer.transport.dense import Dense, run
from otformer.transport.gradient import SquaredDistances, attach
from otformer.transport.problem import Problem, like_input
from otformer.transport.result import Result

Pair = tuple[Tensor, Tensor]
State = tuple[Tensor, Tensor, float, int]  # u, v, marginal error, layers so far
F = TypeVar("F", bound=Callable[..., Any])


def eager(function: F) -> F:
    """Runs outside of ``torch.compile``: depth depends on the data, so there is no graph to compile, only fragments."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # torch.compiler.disable imports the compiler, which takes seconds: not before somebody compiles.
        run = torch.compiler.disable(function) if torch.compiler.is_compiling() else function
        return run(*args, **kwargs)

    return call  # type: ignore[return-value]


@eager
def solve(
    M: Any,
    a: Any = None,
    b: Any = None,
    reg: float | Tensor = 0.1,
    tol: float = 1e-6,
    max_depth: int = 10_000,
    schedule: str | Schedule = "auto",
    potentials: tuple[Any, Any] | None = None,
) -> Result:
    """Entropic optimal transport for a cost matrix: min Σ P M + λ Σ P log P over plans with marginals a and b.

    Parameters: M (n, m); a (n,) and b (m,), default uniform with total mass 1; reg = λ > 0; tol, the L1 marginal error to
    reach; max_depth, the most layers to use; schedule, ``"auto"`` or a fixed-weight network (`AligningTransformer`).
    potentials (u, v) of an earlier, similar problem are a warm start, given up where they do not help.
    Warns, and returns ``converged=False``, if ``tol`` is not reached.

    Tensors that require a gradient (M, a, b, reg) make ``value``, ``value_linear`` and ``plan`` differentiable, by the
    envelope theorem and implicit differentiation. b is scaled to the mass of a, and the derivative knows it: that of value
    is u + ⟨b, v⟩/Σb in a and v − ⟨b, v⟩/Σb in b, along changes that keep the masses simply u and v. The cost of a point
    without mass has gradient 0, and its weight no derivative at all: the number given there is only finite.

    >>> r = solve([[0.0, 1.0], [1.0, 0.0]], reg=0.1)
    >>> r.plan.round(4).tolist(), r.converged
    ([[0.5, 0.0], [0.0, 0.5]], True)
    """
    return _solve(Problem.from_cost(M, a, b), M, reg, tol, max_depth, schedule, potentials)


@eager
def solve_sample(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    reg: float | Tensor = 0.1,
    tol: float = 1e-6,
    max_depth: int = 10_000,
    schedule: str | Schedule = "auto",
    potentials: tuple[Any, Any] | None = None,
) -> Result:
    """`solve` between points, rows of X_a (n, d) and X_b (m, d), with the squared Euclidean cost (not half of it).

    >>> solve_sample([[0.0], [1.0]], [[0.1], [0.9]], reg=0.01).plan.argmax(1).tolist()
    [0, 1]
    """
    problem = Problem.from_points(_plain(X_a), _plain(X_b), a, b)
    if _learning(X_a, X_b):
        C = SquaredDistances.apply(checks.tensor("X_a", X_a), checks.tensor("X_b", X_b), problem.C)
        problem = replace(problem, C=C)
    return _solve(problem, X_a, reg, tol, max_depth, schedule, potentials)


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _learning(*inputs: Any) -> bool:
    return torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in inputs)


def _solve(
    problem: Problem,
    given: Any,
    reg: float | Tensor,
    tol: float,
    max_depth: int,
    schedule: str | Schedule,
    potentials: tuple[Any, Any] | None,
) -> Result:
    lam, tol = checks.positive("reg", _plain(reg)), checks.not_negative("tol", tol)
    checks.count("max_depth", max_depth, least=2)
    if isinstance(schedule, str):
        checks.choice("schedule", schedule, ("auto", *SCHEDULES))
    layers = None if schedule == "auto" else named(schedule).layers(lam, max_depth)
    name = "annealed Sinkhorn blocks, Anderson-mixed" if layers is None else f"{type(named(schedule)).__name__} layers"

    # float32 problems are solved in float64 too: the errors of float32 passes would stop them near 1e-6.
    dtype, problem = problem.C.dtype, problem.double()
    # Only differences of costs matter: the smallest is taken out, and given back to u and to the value at the end.
    low = float(problem.C.detach().min()) if problem.C.numel() else 0.0
    problem = replace(problem, C=problem.C - low)
    plain = problem.detach()
    tol = tol * min(1.0, float(plain.a.sum())) if plain.C.numel() else tol  # little mass is no excuse
    if plain.C.numel() and not math.isfinite(float(plain.C.max()) / lam):
        raise ValueError(f"reg is too small: cost/reg overflows, got reg = {lam:g}, costs {float(plain.C.max()):g} apart")
    start = None if potentials is None else _start(potentials, plain, low)
    u, v, depth = _potentials(plain, lam, tol, max_depth, layers, start)
    learning = _learning(problem.C, problem.a, problem.b, reg)
    result = _result(plain, low, u, v, lam, tol, depth, name, plain.C if learning else given, dtype)
    return (attach(result, problem, u, v, reg, low) if learning else result).to(dtype)


def _potentials(
    problem: Problem, reg: float, tol: float, max_depth: int, layers: tuple[Layer, ...] | None, start: Pair | None
) -> tuple[Tensor, Tensor, int]:
    """u, v and the layers they took; −inf where a point has no mass: it is absent."""
    u, v = torch.full_like(problem.a, -torch.inf), torch.full_like(problem.b, -torch.inf)
    if not problem.C.numel():
        return u, v, 0
    rows, columns = problem.a > 0, problem.b > 0
    parts = problem.C[rows][:, columns], problem.a[rows].log(), problem.b[columns].log()
    if start is not None:
        start = start[0][rows], start[1][columns]
    if layers is not None:
        states = _fixed(Dense(*parts), layers, tol, start)
    elif start is not None:
        states = _warm(Absorbed(*parts), start[1], float(parts[0].max()), reg, tol, max_depth)
    else:
        states = annealed(Absorbed(*parts), float(parts[0].max()), reg, tol, max_depth)
    u[rows], v[columns], depth = best(states)
    return u, v, depth


def _start(potentials: Any, problem: Problem, low: float) -> Pair:
    """Potentials of an earlier result, checked; finite also for a point that had no mass then: as if its mass were tiny."""
    try:
        u, v = (torch.as_tensor(_plain(t)).to(problem.C) for t in potentials)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"potentials must be a pair of arrays (u, v), got {type(potentials).__name__}") from None
    if u.shape != problem.a.shape or v.shape != problem.b.shape:
        shapes = f"{tuple(problem.a.shape)} and {tuple(problem.b.shape)}, got {tuple(u.shape)} and {tuple(v.shape)}"
        raise ValueError(f"potentials must have shapes {shapes}")
    if not all(bool((t < torch.inf).all()) for t in (u, v)):  # −inf is what an absent point has
        raise ValueError("potentials must be numbers, got nan or +inf among them")
    u = torch.where(u.isneginf(), (problem.C - v).amin(1), u - low).nan_to_num(posinf=0.0)
    v = torch.where(v.isneginf(), (problem.C - u[:, None]).amin(0), v)
    return u, v


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


def _warm(executor: Executor, v: Tensor, spread: float, reg: float, tol: float, max_depth: int) -> Iterator[State]:
    """Blocks at the final λ from a given v; `annealed` instead, if the plan of v misplaces more than half of the mass."""
    mass, depth = float(executor.log_b.exp().sum()), 0
    steps = Blocks(executor, reg, v, spread)
    for u, v, errors in steps:
        error, depth = float(errors.sum()), depth + LAYERS
        yield u, v, error if math.isfinite(error) else math.inf, depth
        if error < tol or depth + LAYERS > max_depth:
            return
        if depth == LAYERS and not error < mass / 2:
            break
    for u, v, error, more in annealed(executor, spread, reg, tol, max_depth - depth):
        yield u, v, error, depth + more


def falling(spread: float, reg: float) -> Iterator[float]:
    """λ of the stages: ``reg`` alone if costs are within 200 of it; else a tenth of their range, a third of that, …"""
    lam = spread / 10
    while spread > 200 * reg and lam > 1.5 * reg:
        yield lam
        lam /= 3
    yield reg


def _fixed(dense: Dense, layers: tuple[Layer, ...], tol: float, start: Pair | None) -> Iterator[State]:
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


def _result(
    problem: Problem,
    low: float,
    u: Tensor,
    v: Tensor,
    reg: float,
    tol: float,
    depth: int,
    name: str,
    given: Any,
    dtype: torch.dtype,
) -> Result:
    """The plan of the potentials, and what is true of it once it is rounded to ``dtype``."""
    C = problem.C
    log_P = (u[:, None] + v[None, :] - C) / reg - 1
    P = log_P.exp()
    rounded = P.to(dtype).double()
    error = float((rounded.sum(1) - problem.a).abs().sum() + (rounded.sum(0) - problem.target).abs().sum())
    if not math.isfinite(error):
        raise ValueError(f"schedule and max_depth do not fit this problem: after {depth} layers its plan is still infinite")
    linear = (P * C).sum() + low * P.sum()
    value = linear + reg * torch.where(P > 0, P * log_P, 0.0).sum()
    converged = error < tol or not C.numel()
    if not converged:
        warnings.warn(
            f"not converged: marginal error {error:.3g} after {depth} layers, tol is {tol:g} (reg = {reg:g}); "
            "raise reg, tol or max_depth" + (", or use float64" if dtype == torch.float32 else ""),
            RuntimeWarning,
            stacklevel=5,
        )
    return Result(
        plan=like_input(given, P),
        potentials=(like_input(given, u + low), like_input(given, v)),
        value=value if isinstance(given, Tensor) else float(value),
        value_linear=linear if isinstance(given, Tensor) else float(linear),
        marginal_error=error,
        converged=converged,
        depth=depth,
        network=name,
    )
