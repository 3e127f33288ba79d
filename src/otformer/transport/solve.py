r"""Solving by adding layers until the computed marginal error is below ``tol``.

transport/choose.py chooses the layers: Sinkhorn blocks, Anderson-mixed or with Newton steps, λ falling where it is small
against the costs; small problems that are plainly in order take a short cut (transport/fast_path.py).

With ``schedule`` one of the paper's fixed-weight networks runs instead, to the depth it needs. Derivatives never go through
the layers: transport/derivatives/implicit.py has them from the solution.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from otformer import checks
from otformer.network.schedule import SCHEDULES, Schedule, named
from otformer.transport.choose import Goal, Solved, run_layers
from otformer.transport.derivatives.implicit import SquaredDistances, attach
from otformer.transport.fast_path import is_small, quick, warn_not_converged
from otformer.transport.problem.problem import Problem, like_input, points_cost, read_potentials
from otformer.transport.problem.result import Result
from otformer.transport.solvers.annealing import Pair
from otformer.transport.streaming.solve import solve_streamed
from otformer.transport.variants.unbalanced import solve_unbalanced

LARGE = 10**8  # entries of a cost matrix that "auto" does not form any more
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
    unbalanced: float | tuple[float, float] | None = None,
) -> Result:
    """Entropic optimal transport for a cost matrix: min Σ P M + λ Σ P log P over plans with marginals a and b.

    Parameters: M (n, m); a (n,) and b (m,), default uniform with total mass 1; reg = λ > 0; tol, the L1 marginal error to
    reach; max_depth, the most layers to use; schedule, ``"auto"`` or a fixed-weight network (`AligningTransformer`).
    potentials (u, v) of an earlier, similar problem are a warm start, given up where they do not help. unbalanced = ρ, or a
    pair, replaces the marginal constraints by ρ KL penalties: see `solve_unbalanced`, whose result it is.
    Warns, and returns ``converged=False``, if ``tol`` is not reached.

    Tensors that require a gradient (M, a, b, reg) make ``value``, ``value_linear`` and ``plan`` differentiable, by the
    envelope theorem and implicit differentiation. b is scaled to the mass of a, and the derivative knows it: that of value
    is u + ⟨b, v⟩/Σb in a and v − ⟨b, v⟩/Σb in b, along changes that keep the masses simply u and v. The cost of a point
    without mass has gradient 0, and its weight no derivative at all: the number given there is only finite.

    >>> r = solve([[0.0, 1.0], [1.0, 0.0]], reg=0.1)
    >>> r.plan.round(4).tolist(), r.converged
    ([[0.5, 0.0], [0.0, 0.5]], True)
    """
    if unbalanced is not None:
        return _unbalanced(M, a, b, reg, unbalanced, tol, max_depth, schedule, potentials)
    ordinary = isinstance(schedule, str) and schedule == "auto" and potentials is None
    found = quick(M, a, b, reg, tol, max_depth) if ordinary else None
    return found if found is not None else _solve(Problem.from_cost(M, a, b), M, reg, tol, max_depth, schedule, potentials)


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
    unbalanced: float | tuple[float, float] | None = None,
    executor: str = "auto",
) -> Result:
    """`solve` between points, rows of X_a (n, d) and X_b (m, d), with the squared Euclidean cost (not half of it).

    executor: ``"dense"`` forms the n × m cost, ``"stream"`` never does (`solve_streamed`: O(n + m) memory, other costs, a
    plan that has products and rows but no matrix); ``"auto"`` streams above 10⁸ entries.

    >>> solve_sample([[0.0], [1.0]], [[0.1], [0.9]], reg=0.01).plan.argmax(1).tolist()
    [0, 1]
    """
    checks.choice("executor", executor, ("auto", "dense", "stream"))
    streams = unbalanced is None and isinstance(schedule, str) and schedule == "auto"
    if executor == "stream" and not streams:
        raise ValueError("executor 'stream' goes with neither schedule nor unbalanced")
    if executor == "stream" or (executor == "auto" and streams and _entries(X_a, X_b) > LARGE):
        return solve_streamed(X_a, X_b, a, b, reg, tol, max_depth, potentials)
    C = points_cost(_plain(X_a), _plain(X_b))
    if _learning(X_a, X_b):
        C = SquaredDistances.apply(checks.tensor("X_a", X_a), checks.tensor("X_b", X_b), C)
    if unbalanced is not None:
        cost = C if C.requires_grad else like_input(X_a, C)
        return _unbalanced(cost, a, b, reg, unbalanced, tol, max_depth, schedule, potentials)
    problem = Problem.from_cost(C, a, b)
    return _solve(problem, X_a, reg, tol, max_depth, schedule, potentials)


def _entries(X_a: Any, X_b: Any) -> int:
    return math.prod(t.shape[0] if getattr(t, "shape", ()) else 0 for t in (X_a, X_b))


def _unbalanced(
    M: Any, a: Any, b: Any, reg: Any, strength: Any, tol: float, max_depth: int, schedule: Any, potentials: Any
) -> Result:
    if schedule != "auto" or potentials is not None:
        raise ValueError("unbalanced goes with neither schedule nor potentials")
    return solve_unbalanced(M, a, b, reg=reg, reg_m=strength, tol=tol, max_depth=max_depth)


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
    name = None if layers is None else f"{type(named(schedule)).__name__} layers"

    # float32 problems are solved in float64 too: the errors of float32 passes would stop them near 1e-6.
    dtype, problem = problem.C.dtype, problem.double()
    low, high = (float(t) for t in torch.aminmax(problem.C.detach())) if problem.C.numel() else (0.0, 0.0)
    if lam > 1e300:
        raise ValueError(f"reg must be at most 1e300, got {lam:g}")
    if not math.isfinite((high - low) / lam):
        raise ValueError(f"reg is too small: cost/reg overflows, got reg = {lam:g}, costs {high - low:g} apart")
    # Only differences of costs matter: what all have in common is taken out, and given back to u and the value at the end.
    low = low if abs(low) > high - low or is_small(*problem.C.shape) else 0.0
    problem = replace(problem, C=problem.C - low) if low else problem
    plain = problem.detach()
    tol = tol * min(1.0, float(plain.a.sum())) if plain.C.numel() else tol  # little mass is no excuse
    start = None if potentials is None else _start(potentials, plain, low, high - low + 100 * lam)
    solved = run_layers(plain, Goal(high - low, lam, tol, max_depth), layers, start)
    learning = _learning(problem.C, problem.a, problem.b, reg)
    result = _result(plain, low, solved, lam, tol, name or solved.network, plain.C if learning else given, dtype)
    return (attach(result, problem, solved.u, solved.v, reg, low) if learning else result).to(dtype)


def _start(potentials: Any, problem: Problem, low: float, reach: float) -> Pair | None:
    """Potentials of an earlier result, checked; finite also for a point that had no mass then: as if its mass were tiny.

    A constant moved from u to v changes nothing: v is centred. None where v varies by more than ``reach``: no plan's does.
    """
    u, v = read_potentials(potentials, problem.a, problem.b)
    known = v[v.isfinite()]
    if not len(known) or not float(known.max() - known.min()) <= reach:
        return None
    middle = known.mean()
    v = v - middle
    u = torch.where(u.isneginf(), (problem.C - v).amin(1), u + middle - low).nan_to_num(posinf=0.0)
    v = torch.where(v.isneginf(), (problem.C - u[:, None]).amin(0), v)
    return u, v


def _result(
    problem: Problem, low: float, solved: Solved, reg: float, tol: float, name: str, given: Any, dtype: torch.dtype
) -> Result:
    """The plan of the potentials, and what is true of it once it is rounded to ``dtype``."""
    C, a, u, v, depth = problem.C, problem.a, solved.u, solved.v, solved.depth
    f, g = u / reg - 1, v / reg  # log P_ij = f_i + g_j − C_ij/λ
    P = solved.plan if solved.plan is not None else torch.add(f[:, None], g).sub_(C, alpha=1 / reg).exp_()
    rows, columns = P.sum(1), P.sum(0)
    error = float((rows - a).abs().sum() + (columns - problem.target).abs().sum())
    if dtype != torch.float64:
        rounded = P.to(dtype).double()
        error = float((rounded.sum(1) - a).abs().sum() + (rounded.sum(0) - problem.target).abs().sum())
    if not math.isfinite(error):
        raise ValueError(f"schedule and max_depth do not fit this problem: after {depth} layers its plan is still infinite")
    # Σ P C + λ Σ P log P = λ (Σ_i f_i P_i· + Σ_j g_j P_·j): no second matrix of logarithms.
    value = low * rows.sum() + reg * sum(torch.where(t > 0, t * h, 0.0).sum() for t, h in ((rows, f), (columns, g)))
    linear = low * rows.sum() + torch.dot(P.reshape(-1), C.reshape(-1))
    converged = error < tol or not C.numel()
    if not converged:
        warn_not_converged(error, depth, tol, reg, 6, ", or use float64" if dtype == torch.float32 else "")
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
