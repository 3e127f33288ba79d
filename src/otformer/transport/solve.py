"""The public functions for one problem: from a cost matrix, between points, and between points without the matrix."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from otformer import checks
from otformer.memory import needs
from otformer.network.features import Features
from otformer.network.schedule import Schedule
from otformer.transport.choose import Solver, given_solver, solve_problem
from otformer.transport.needs import of_cost, of_sample
from otformer.transport.problem.asked import told
from otformer.transport.problem.problem import Goal, Problem
from otformer.transport.problem.read import ANY_REG, exact_executor, read_cost, read_points
from otformer.transport.problem.result import Result
from otformer.transport.variants.unbalanced import solve_unbalanced

F = TypeVar("F", bound=Callable[..., Any])
MAX_DEPTH = 10_000  # layers, unless others are asked for
NO_TIME_LIMIT = "max_time goes with reg = 0 only, got max_time = {!r}: layers are limited by max_depth"


def eager(function: F) -> F:
    """Runs outside of ``torch.compile``: depth depends on the data, so there is no graph to compile, only fragments."""

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
    reg: float | Tensor = 0.1,
    tol: float = 1e-6,
    max_depth: int = MAX_DEPTH,
    schedule: str | Schedule = "auto",
    potentials: tuple[Any, Any] | None = None,
    unbalanced: float | tuple[float, float] | None = None,
    solver: Solver | None = None,
    mask: Any = None,
    max_time: float | None = None,
) -> Result:
    r"""Entropic optimal transport for a cost matrix, or exact where λ is 0,

        min_P  Σ_ij P_ij M_ij + λ Σ_ij P_ij log P_ij      over P ≥ 0 with P1 = a and Pᵀ1 = b.

    Parameters
    ----------
    M : array (n, m) or Features
        Cost: numpy, a tensor or lists; +inf, or the mask of a masked array of numpy, forbids a pair. Results are float32 if
        it is, and if it is float16 or bfloat16: a plan of entries about 1/(n m) is rounded too much there to have the
        marginals it is said to have.
    a, b : array (n,) and (m,), optional
        Weights of equal sum; by default uniform, with the mass of the other side, or 1. A point of weight 0 is absent.
    reg : float or Tensor
        λ > 0, in the units of M; or the number 0, for the optimum of Σ P M itself (docs/exact.md).
    tol : float
        L1 marginal error to reach (times the mass, where that is below 1). Of an exact solve, which always goes to the end,
        the gap to the bound, relative to the value, up to which it is called converged.
    max_depth : int
        The most layers, passes over the cost, to use; at least 2.
    schedule : str or Schedule
        ``"auto"``, or one of the paper's fixed-weight networks, as ``solver=Network(schedule)``.
    potentials : (u, v), optional
        Of an earlier, similar problem: a warm start, given up where it does not help.
    unbalanced : float or pair, optional
        ρ: replaces the marginal constraints by ρ KL penalties, see `solve_unbalanced`.
    solver : solver, optional
        ``Newton()``, ``Mixed(memory=16)``, ``Network("relaxed")``, …; by default transport/choose.py chooses.
    mask : boolean array (n, m), optional
        False forbids a pair.
    max_time : float, optional
        Seconds after which an exact solve ends with the plan and the bound it has; None, or inf: none.

    Returns
    -------
    Result
        Where ``tol`` is not reached, ``converged`` is False and a RuntimeWarning says so. For λ = 0 an `ExactResult`:
        sparse plan, ``permutation``, potentials that are feasible for all pairs, ``gap``.

    Notes
    -----
    Tensors that require a gradient (M, a, b, reg) make ``value``, ``value_linear`` and ``plan`` differentiable, by the
    envelope theorem and implicit differentiation. b is scaled to the mass of a, and the derivative knows it: that of value
    is u + ⟨b, v⟩/Σb in a and v − ⟨b, v⟩/Σb in b, along changes that keep the masses simply u and v. The cost of a point
    without mass has gradient 0, and its weight no derivative at all: the number given there is only finite.

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
    if isinstance(reg, checks.NUMBERS) and reg == 0 and reg is not False:
        _alone("reg = 0", schedule=schedule, unbalanced=unbalanced, solver=solver)
        _no_layers(max_depth)
        return told(_exact(read_cost(M, a, b, ANY_REG, potentials, mask), tol, max_time), 0.0, M)
    if max_time is not None:
        raise ValueError(NO_TIME_LIMIT.format(max_time))
    if unbalanced is not None:
        _alone("unbalanced", schedule=schedule, potentials=potentials, solver=solver)
        result = solve_unbalanced(M, a, b, reg=reg, reg_m=unbalanced, tol=tol, max_depth=max_depth, mask=mask)
        return told(result, reg, M, unbalanced=unbalanced)
    problem = read_cost(M, a, b, reg, potentials, mask)
    chosen = None if solver is None and isinstance(schedule, str) and schedule == "auto" else given_solver(solver, schedule)
    return told(solve_problem(problem, Goal.read(tol, max_depth, problem.mass), chosen), reg, M)


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
    reg: float | Tensor = 0.1,
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
        X_a and X_b are None); or a function of X_a and X_b that gives the cost matrix.
    labels : pair of arrays (n,) and (m,), optional
        Whole numbers or strings: which pairs may match, without a mask, so for ``"stream"`` too.
    allow : str
        ``"equal"``: only points of the same label may match; ``"different"``: only points of two labels.

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
    if executor not in ("auto", "dense", "stream"):
        checks.choice("executor", executor, ("auto", "dense", "stream"))
    ordinary = solver is None and mask is None and isinstance(schedule, str) and schedule == "auto"
    if executor == "stream" and not ordinary:
        raise ValueError("executor 'stream' goes with neither schedule nor solver or mask")
    executor = executor if ordinary else "dense"
    if isinstance(reg, checks.NUMBERS) and reg == 0 and reg is not False:
        _alone("reg = 0", schedule=schedule, unbalanced=unbalanced, solver=solver)
        _no_layers(max_depth)
        executor = executor if executor != "auto" else exact_executor(X_a, X_b, metric)
        problem = read_points(X_a, X_b, a, b, ANY_REG, potentials, mask, metric, executor, labels=labels, allow=allow)
        return told(_exact(problem, tol, max_time), 0.0, metric, X_a, X_b)
    if max_time is not None:
        raise ValueError(NO_TIME_LIMIT.format(max_time))
    if unbalanced is not None:
        _alone("unbalanced", schedule=schedule, potentials=potentials, solver=solver)
        problem = read_points(X_a, X_b, a, b, reg, None, mask, metric, executor, False, labels, allow)
        result = solve_unbalanced(problem, reg_m=unbalanced, tol=tol, max_depth=max_depth)
        return told(result, reg, metric, X_a, X_b, unbalanced)
    problem = read_points(X_a, X_b, a, b, reg, potentials, mask, metric, executor, labels=labels, allow=allow)
    chosen = None if ordinary else given_solver(solver, schedule)
    return told(solve_problem(problem, Goal.read(tol, max_depth, problem.mass), chosen), reg, metric, X_a, X_b)


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
    """`solve_sample` in O(n + m) memory: ``plan`` is a `StreamedPlan`, an operator, not a matrix (streaming/solve.py).

    Parameters
    ----------
    X_a, X_b, a, b, reg, tol, max_depth, potentials, labels, allow
        As in `solve_sample`.
    cost : str or Features
        ``"sqeuclidean"`` ‖x − y‖², ``"euclidean"`` ‖x − y‖, ``"inner"`` −x·y, ``"cosine"`` 1 − cos(x, y), or `Features`
        of any other, with X_a and X_b None.
    unbalanced : float or pair, optional
        As in `solve`; not with potentials. Of the result ``value`` is differentiable, once, the rest not.

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
    if unbalanced is not None:
        if potentials is not None:
            raise ValueError("unbalanced goes without potentials")
        problem = read_points(X_a, X_b, a, b, reg, None, None, cost, "stream", False, labels, allow)
        result = solve_unbalanced(problem, reg_m=unbalanced, tol=tol, max_depth=max_depth)
        return told(result, reg, cost, X_a, X_b, unbalanced)
    problem = read_points(X_a, X_b, a, b, reg, potentials, None, cost, "stream", labels=labels, allow=allow)
    return told(solve_problem(problem, Goal.read(tol, max_depth, problem.mass)), reg, cost, X_a, X_b)


def _exact(problem: Problem, tol: Any, max_time: Any) -> Result:
    from otformer.transport.exact.solve import solve_exact

    return solve_exact(problem, checks.not_negative("tol", tol), checks.seconds("max_time", max_time))


def _no_layers(max_depth: Any) -> None:
    """An exact solve has no layers to limit; the default is no request."""
    if max_depth != MAX_DEPTH:
        raise ValueError(f"max_depth goes with reg > 0 only, got max_depth = {max_depth!r}: an exact solve has max_time")


def _alone(name: str, **others: Any) -> None:
    if any(value is not None and value != "auto" for value in others.values()):
        raise ValueError(f"{name} goes with neither {', '.join(list(others)[:-1])} nor {list(others)[-1]}")
