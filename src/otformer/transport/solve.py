"""The public functions for one problem: from a cost matrix, between points, and between points without the matrix."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.callers import own_keywords
from otformer.errors import ConflictError
from otformer.memory import needs
from otformer.network.features import Features
from otformer.network.schedule import Schedule
from otformer.transport.choose import Solver, given_solver, solve_problem
from otformer.transport.costs.graph import GraphCost, is_sparse
from otformer.transport.needs import of_cost, of_sample
from otformer.transport.problem.read import read_cost
from otformer.transport.problem.read_points import read_points
from otformer.transport.result.description import KEPT_POINTS, Description
from otformer.transport.result.exact_finish import solve_exact
from otformer.transport.result.known_points import KnownPoints
from otformer.transport.result.result import Result
from otformer.transport.types import Goal, Problem
from otformer.transport.variants.unbalanced import read_penalty

F = TypeVar("F", bound=Callable[..., Any])
MAX_DEPTH = 10_000  # layers, unless others are asked for


def eager(function: F) -> F:
    """Run outside ``torch.compile``: depth depends on the data, so only fragments of a graph could be compiled."""

    @own_keywords
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # torch.compiler.disable imports the compiler, which takes seconds: not before somebody compiles.
        run = torch.compiler.disable(function) if torch.compiler.is_compiling() else function
        return run(*args, **kwargs)

    return call  # type: ignore[return-value]


@eager
@needs(lambda M, **_: of_cost(M))
def solve(
    M: Any,
    a: Any = None,
    b: Any = None,
    reg: float | Tensor | None = 0.1,
    tol: float = 1e-6,
    max_depth: int = MAX_DEPTH,
    schedule: str | Schedule = "auto",
    potentials: tuple[Any, Any] | None = None,
    unbalanced: float | tuple[float, float] | None = None,
    solver: Solver | None = None,
    mask: Any = None,
    max_time: float | None = None,
) -> Result:
    r"""Entropic optimal transport for a cost matrix, exact if λ is 0,

        min_P  Σ_ij P_ij M_ij + λ Σ_ij P_ij log P_ij      over P ≥ 0 with P1 = a and Pᵀ1 = b.

    Parameters
    ----------
    M : array (n, m), sparse matrix, Features or GraphCost
        Cost: numpy, a tensor or lists; +inf, or the mask of a numpy masked array, forbids a pair. A sparse matrix of scipy
        or torch allows its stored pairs and forbids all others (`GraphCost`). Results are float32 for costs in float32,
        float16 or bfloat16: rounded to half precision, plan entries of about 1/(n m) would not have the reported marginals.
    a, b : array (n,) and (m,), optional
        Weights of equal sum; by default uniform, with the mass of the other side, or 1. A point of weight 0 is absent.
    reg : float or Tensor
        λ > 0, in the units of M; 0 or None minimise Σ P M itself (docs/exact.md).
    tol : float
        L1 marginal error to reach (times the mass, if that is below 1). An exact solve always runs to the end; it counts as
        converged if its gap to the bound is at most ``tol`` times the value.
    max_depth : int
        The most layers (passes over the cost); at least 2.
    schedule : str or Schedule
        ``"auto"``, or one of the paper's fixed-weight networks, equivalent to ``solver=Network(schedule)``.
    potentials : (u, v), optional
        Potentials of an earlier, similar problem: a warm start, ignored if it does not help.
    unbalanced : float or pair, optional
        ρ: replaces the marginal constraints by ρ KL penalties, see `solve_unbalanced`.
    solver : solver, optional
        ``Newton()``, ``Mixed(memory=16)``, ``Network("relaxed")``, …; by default transport/choose.py chooses.
    mask : boolean array (n, m), optional
        False forbids a pair.
    max_time : float, optional
        Seconds after which an exact solve ends with its current plan and bound; None and inf set no limit.

    Returns
    -------
    Result
        If ``tol`` is not reached, ``converged`` is False and a RuntimeWarning says so. For λ = 0 an `ExactResult`:
        sparse plan, ``permutation``, potentials that are feasible for all pairs, ``gap``.

    Notes
    -----
    Tensors that require a gradient (M, a, b, reg) make ``value``, ``value_linear`` and ``plan`` differentiable, by the
    envelope theorem and implicit differentiation. b is scaled to the mass of a, and the derivative includes this scaling:
    that of value is u + ⟨b, v⟩/Σb in a and v − ⟨b, v⟩/Σb in b, along changes that keep the masses simply u and v. The costs
    of a point without mass have gradient 0. Its weight has no derivative: the number returned there is finite but has no
    meaning.

    Examples
    --------
    >>> r = solve([[0.0, 1.0], [1.0, 0.0]], reg=0.1)
    >>> r.plan.round(4).tolist(), r.converged
    ([[0.5, 0.0], [0.0, 0.5]], True)
    >>> solve([[0.0, 1.0], [1.0, 0.0]], reg=0.1, mask=[[False, True], [True, True]]).plan.round(4).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    >>> r = solve([[3.0, 1.0], [1.0, 0.0]], reg=0)
    >>> r.permutation.tolist(), r.value, r.gap
    ([1, 0], 1.0, 0.0)
    """
    reg, M = 0 if reg is None else reg, GraphCost(M) if is_sparse(M) else M
    read = partial(read_cost, M, a, b, mask=mask)
    found = _solve(read, reg, tol, max_depth, schedule, potentials, unbalanced, solver, max_time)
    return described(found, reg, M, unbalanced=unbalanced)


@eager
@needs(
    lambda X_a, X_b, metric, executor, solver, mask, schedule, **_: of_sample(
        X_a, X_b, metric, executor if solver is mask is None and schedule == "auto" else "dense"
    )
)
def solve_sample(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    reg: float | Tensor | None = 0.1,
    tol: float = 1e-6,
    max_depth: int = MAX_DEPTH,
    schedule: str | Schedule = "auto",
    potentials: tuple[Any, Any] | None = None,
    unbalanced: float | tuple[float, float] | None = None,
    executor: str = "auto",
    metric: str | Features | Callable[[Any, Any], Any] = "sqeuclidean",
    solver: Solver | None = None,
    mask: Any = None,
    labels: tuple[Any, Any] | None = None,
    allow: str = "equal",
    max_time: float | None = None,
) -> Result:
    """`solve` between points, rows of X_a (n, d) and X_b (m, d), with the squared Euclidean cost (not half of it).

    Parameters
    ----------
    X_a, X_b : array (n, d) and (m, d)
        Points, in the units whose square λ has.
    a, b, reg, tol, max_depth, schedule, potentials, unbalanced, solver, mask, max_time
        As in `solve`.
    executor : str
        ``"dense"`` forms the n × m cost, ``"stream"`` never does (`solve_streamed`: O(n + m) memory, a plan that has
        products and rows but no matrix); ``"auto"`` streams above 10⁸ entries.
    metric : str, Features or function
        ``"sqeuclidean"`` ‖x − y‖², ``"euclidean"`` ‖x − y‖, ``"cosine"`` 1 − cos(x, y), ``"inner"`` −x·y; `Features` (then
        X_a and X_b are None); or a function that maps X_a and X_b to the cost matrix, or one row of each to a number.
    labels : pair of arrays (n,) and (m,), optional
        Whole numbers or strings that decide which pairs may match. They need no mask, so ``"stream"`` takes them too.
    allow : str
        ``"equal"``: only points of the same label may match; ``"different"``: only points of different labels.

    Returns
    -------
    Result

    Examples
    --------
    >>> solve_sample([[0.0], [1.0]], [[0.1], [0.9]], reg=0.01).plan.argmax(1).tolist()
    [0, 1]
    >>> solve_sample([[0.0], [1.0]], [[0.1], [0.9]], reg=0.01, labels=(["p", "q"], ["q", "p"])).plan.argmax(1).tolist()
    [1, 0]
    """
    reg = 0 if reg is None else reg
    if executor not in ("auto", "dense", "stream"):
        checks.choice("executor", executor, ("auto", "dense", "stream"))
    if executor == "stream":
        _alone("executor='stream'", schedule=schedule, solver=solver, mask=mask)
    if not (solver is None and mask is None and isinstance(schedule, str) and schedule == "auto"):
        executor = "dense"
    read = partial(read_points, X_a, X_b, a, b, mask=mask, metric=metric, executor=executor, labels=labels, allow=allow)
    found = _solve(read, reg, tol, max_depth, schedule, potentials, unbalanced, solver, max_time)
    return _located(
        described(found, reg, metric, X_a, X_b, unbalanced), X_a, X_b, metric, mask is labels is unbalanced is None
    )


@eager
@needs(lambda X_a, X_b, cost, **_: of_sample(X_a, X_b, cost, "stream"))
def solve_streamed(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    reg: float | Tensor = 0.1,
    tol: float = 1e-6,
    max_depth: int = MAX_DEPTH,
    potentials: tuple[Any, Any] | None = None,
    cost: str | Features = "sqeuclidean",
    labels: tuple[Any, Any] | None = None,
    allow: str = "equal",
    unbalanced: float | tuple[float, float] | None = None,
) -> Result:
    """`solve_sample` in O(n + m) memory: ``plan`` is a `StreamedPlan`, an operator, not a matrix (solvers/precision.py).

    Parameters
    ----------
    X_a, X_b, a, b, reg, tol, max_depth, potentials, labels, allow
        As in `solve_sample`.
    cost : str or Features
        ``"sqeuclidean"`` ‖x − y‖², ``"euclidean"`` ‖x − y‖, ``"inner"`` −x·y, ``"cosine"`` 1 − cos(x, y), or `Features`
        of any other, with X_a and X_b None.
    unbalanced : float or pair, optional
        As in `solve`; not with potentials. Only the result's ``value`` is differentiable, and only once.

    Returns
    -------
    Result
        ``value``, ``value_linear`` and products (``result.apply``, ``result.map``, ``result.plan @ w``) are differentiable
        as in `solve`, in X_a, X_b (or the features), a, b, reg and the vectors, in O(n + m) memory: ``value`` twice, for
        Hessian-vector products, the others once.

    Examples
    --------
    >>> r = solve_streamed([[0.0], [1.0]], [[0.1], [0.9]], reg=0.01)
    >>> r.plan.argmax(1).tolist(), r.map([5.0, 7.0]).round(6).tolist()
    ([0, 1], [5.0, 7.0])
    """
    read = partial(read_points, X_a, X_b, a, b, metric=cost, executor="stream", labels=labels, allow=allow)
    found = _solve_entropic(read, reg, tol, max_depth, "auto", potentials, unbalanced, None)
    return _located(described(found, reg, cost, X_a, X_b, unbalanced), X_a, X_b, cost, labels is unbalanced is None)


def _solve(
    read: Callable[..., Problem], reg: Any, tol: Any, max_depth: Any, schedule: Any, potentials: Any, unbalanced: Any,
    solver: Any, max_time: Any,
) -> Result:  # fmt: skip
    """Solve what ``read`` reads: exactly where λ is the number 0, otherwise with entropy."""
    if isinstance(reg, checks.NUMBERS) and reg == 0 and reg is not False:
        _alone("reg=0", schedule=schedule, unbalanced=unbalanced, solver=solver)
        if max_depth != MAX_DEPTH:  # the default is no request
            raise ConflictError("max_depth", "reg=0", repr(max_depth), "an exact solve has max_time")
        problem = read(reg=None, potentials=potentials)
        return solve_exact(problem, checks.not_negative("tol", tol), checks.seconds("max_time", max_time))
    if max_time is not None:
        raise ConflictError("max_time", "reg > 0", repr(max_time), "layers are limited by max_depth")
    return _solve_entropic(read, reg, tol, max_depth, schedule, potentials, unbalanced, solver)


def _solve_entropic(
    read: Callable[..., Problem], reg: Any, tol: Any, max_depth: Any, schedule: Any, potentials: Any, unbalanced: Any,
    solver: Any,
) -> Result:  # fmt: skip
    """Solve what ``read`` reads with entropy, its marginals fixed or penalised."""
    if unbalanced is not None:
        _alone("unbalanced", schedule=schedule, potentials=potentials, solver=solver)
        return solve_problem(read(reg=reg, penalty=read_penalty(unbalanced)), Goal.read(tol, max_depth))
    problem = read(reg=reg, potentials=potentials)
    return solve_problem(problem, Goal.read(tol, max_depth, problem.mass), given_solver(solver, schedule))


def _alone(name: str, **others: Any) -> None:
    """Refuse the others; None and "auto" are no requests."""
    given = [other for other, value in others.items() if not (value is None or (isinstance(value, str) and value == "auto"))]
    if given:
        raise ConflictError(name, " and ".join(given))


def described(result: Result, reg: Any, cost: Any, X_a: Any = None, X_b: Any = None, unbalanced: Any = None) -> Result:
    """The result with what was solved in words, of arguments that a solve has accepted.

    λ and points are copied, as whoever gave them may change them. All in one function: every small solve goes through it.
    """
    reg = reg.detach().clone() if isinstance(reg, Tensor) else reg
    if X_a is None:
        found = Description(cost if isinstance(cost, Features) else None, reg, unbalanced is None)
    else:
        x, y = (t if isinstance(t, (np.ndarray, Tensor)) else checks.tensor("points", t) for t in (X_a, X_b))
        dim, points = x.shape[-1], None
        if dim <= 2 and max(len(x), len(y)) <= KEPT_POINTS:
            x, y = (t.detach().clone() if isinstance(t, Tensor) else t.copy() for t in (x, y))
            points = x, y
        found = Description(cost, reg, unbalanced is None, dim, points)
    result.parts["asked"] = found
    return result


def _located(result: Result, X_a: Any, X_b: Any, metric: Any, free: bool) -> Result:
    """The result with its points, for maps of new ones, where all pairs were allowed and sums are given."""
    if free and X_a is not None:
        result.parts["known_points"] = KnownPoints(X_a, X_b, metric)
    return result
