r"""POT's ``ot.sinkhorn`` and ``ot.sinkhorn2`` on our engine: change the import, keep the call.

Same problem, min Σ P M + reg Σ P log P over plans with marginals a and b; same arguments; same return values; same meaning
of the two that decide when to stop:

    ``stopThr``     the L2 norm of Pᵀ1 − b. Rows are exact after every iteration, here as in POT.
    ``numItermax``  iterations of two passes over the cost each, those of falling λ included.

What differs, on purpose: all five of POT's methods run the same engine, which needs no stabilising; the work is done in
float64 whatever the dtype of M, so that ``stopThr=1e-9`` can be met in float32 too; of all iterates the one with the least
error is returned; and derivatives come from the solution (derivatives/implicit.py), not from going back
through iterations.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import callers, checks
from otformer.memory import needs
from otformer.transport.needs import of_cost
from otformer.transport.problem.forbidden import unmasked
from otformer.transport.problem.read import read_cost
from otformer.transport.result.finish import finish
from otformer.transport.result.result import Result
from otformer.transport.solvers.blocks import LAYERS, State, direct_then_annealed, least_error
from otformer.transport.solvers.newton import TINY, newton
from otformer.transport.types import Array, Goal, Problem, Solved, to_numpy

METHODS = ("sinkhorn", "sinkhorn_log", "greenkhorn", "sinkhorn_stabilized", "sinkhorn_epsilon_scaling")
METHODS_2 = ("sinkhorn", "sinkhorn_log", "sinkhorn_stabilized")
IN_COST_UNITS = ("sinkhorn_stabilized", "sinkhorn_epsilon_scaling")  # their warm starts are reg·log u, reg·log v
UNNEEDED = ("tau", "epsilon0", "numInnerItermax", "print_period")  # how POT's variants keep their floats in range
ROUNDING_OF = {True: float(np.finfo(np.float32).eps), False: float(np.finfo(np.float64).eps)}  # by whether it is float32
logger = logging.getLogger("otformer")


@needs(lambda M, **_: of_cost(M))
def sinkhorn(
    a: Any,
    b: Any,
    M: Any,
    reg: Any,
    method: str = "sinkhorn",
    numItermax: int = 1000,
    stopThr: float = 1e-9,
    verbose: bool = False,
    log: bool = False,
    warn: bool = True,
    warmstart: Any = None,
    **kwargs: Any,
) -> Any:
    """POT's ``ot.sinkhorn``: the entropic plan between histograms a (n,) and b (m,) for the cost M (n, m).

    Parameters
    ----------
    a, b : weights of equal sum; ``[]`` means uniform. With b of shape (m, k) the function returns the k losses Σ P M, not
        plans.
    M, reg : cost matrix, and λ > 0. Numpy arrays or lists give numpy; tensors give tensors of the same dtype.
    method : any of POT's names; all run the same engine. Another name is a ValueError, as in POT.
    numItermax, stopThr : stop after this many iterations, or when ‖Pᵀ1 − b‖₂ < stopThr.
    warn : a UserWarning if stopThr is not reached.   verbose : progress to the logger ``otformer``, level INFO.
    warmstart : (log u, log v) of an earlier call; for the stabilized and epsilon-scaling methods reg times these logs, as
        in POT.
    kwargs : parameters of POT's variants (tau, epsilon0, numInnerItermax, print_period), which this engine does not need.

    Returns
    -------
    The plan (n, m), or the losses (k,); with ``log=True`` also a dict: ``err`` (‖Pᵀ1 − b‖₂ after every step at the final
    λ, and last that of the returned plan), ``niter`` (index of the last iteration, from 0; a Newton step counts two), ``u``
    and ``v`` with P = diag(u) exp(−M/reg) diag(v), their logs ``log_u``, ``log_v``, reg times these ``alpha``, ``beta``,
    and ``warmstart``. Small problems with n < m are solved from the other side. Their intermediate ``err`` is ‖P1 − a‖₁
    before the rows are made exact, a bound on ‖Pᵀ1 − b‖₂ afterwards. Scalings are fixed up to a factor, chosen so that max
    u = max v. If reg is so small that scalings leave the range of floats, u and v hold 0 or inf, but the logs and the plan
    are right.

    The plan and the losses are differentiable in tensors M, a, b and reg. They are tensors if one of these requires a
    gradient.

    >>> sinkhorn([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], 1).round(8).tolist()
    [[0.36552929, 0.13447071], [0.13447071, 0.36552929]]
    """
    method = _known(method, METHODS)
    if unknown := set(kwargs) - set(UNNEEDED):
        raise TypeError(f"unknown argument {sorted(unknown)[0]}: beside POT's own, {', '.join(UNNEEDED)} are accepted")
    checks.count("numItermax", numItermax)
    checks.not_negative("stopThr", stopThr)
    a, b = (None if np.shape(w) == (0,) else w for w in (a, b))
    several = np.ndim(b) == 2
    histograms = _columns(b) if several else (b,)
    units = checks.positive("reg", reg.detach() if isinstance(reg, Tensor) else reg) if method in IN_COST_UNITS else 1.0
    starts = _starts(warmstart, len(histograms), several, units)
    limits = _Limits(numItermax, stopThr / math.sqrt(len(histograms)), verbose)  # POT's norm is that of all histograms
    found = [_solve(M, a, h, reg, start, limits) for h, start in zip(histograms, starts, strict=True)]
    form, lam = found[0].problem.form, found[0].problem.entropy
    error = math.hypot(*(f.errors[-1] for f in found))
    if warn and not error < stopThr:
        advice = "You might want to increase the number of iterations `numItermax` or the regularization parameter `reg`"
        message = f"Sinkhorn did not converge. {advice}: the error is {error:.3g}, stopThr is {stopThr:g}."
        callers.warn(message, UserWarning)
    losses = [f.result.value_linear for f in found] if several else []
    result = (np.array(losses) if form.device is None else torch.stack(losses)) if several else found[0].result.plan
    if not log:
        return result
    log_u, log_v = (np.stack(t, -1) if several else t[0] for t in zip(*map(_log_scalings, found), strict=True))
    with np.errstate(over="ignore", under="ignore"):  # where scalings leave the range of floats their logs are still right
        logs = {"log_u": log_u, "log_v": log_v, "u": np.exp(log_u), "v": np.exp(log_v)}
    arrays = {name: form.give(t) for name, t in (logs | {"alpha": lam * log_u, "beta": lam * log_v}).items()}
    arrays |= {"logu": arrays["log_u"], "logv": arrays["log_v"]}
    pair = ("alpha", "beta") if method in IN_COST_UNITS else ("log_u", "log_v")
    errors, last = [error] if several else found[0].errors, max(f.solved.depth for f in found) // LAYERS - 1
    return result, arrays | {"err": errors, "niter": last, "n_iter": last, "warmstart": (arrays[pair[0]], arrays[pair[1]])}


@needs(lambda M, **_: of_cost(M))
def sinkhorn2(
    a: Any,
    b: Any,
    M: Any,
    reg: Any,
    method: str = "sinkhorn",
    numItermax: int = 1000,
    stopThr: float = 1e-9,
    verbose: bool = False,
    log: bool = False,
    warn: bool = False,
    warmstart: Any = None,
    **kwargs: Any,
) -> Any:
    """POT's ``ot.sinkhorn2``: the loss Σ P M of the plan of `sinkhorn`, without the entropy; shape (k,) if b is (m, k).

    >>> round(float(sinkhorn2([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], 1)), 8)
    0.26894142
    """
    method = _known(method, METHODS_2)
    result, details = sinkhorn(a, b, M, reg, method, numItermax, stopThr, verbose, True, warn, warmstart, **kwargs)
    if result.ndim == 2:
        M = unmasked(M)  # whose forbidden pairs, inf, have no part in the sum
        if isinstance(result, Tensor):
            result = (result * torch.where(result > 0, checks.unseen("M", M).to(result), 0.0)).sum()
        else:
            result = (result * np.where(result > 0, checks.array("M", M), 0.0)).sum()
    return (result, details) if log else result


class _Limits(NamedTuple):
    """When to stop: iterations, and the L2 error of the columns; whether to tell of progress."""

    iterations: int
    error: float
    verbose: bool


class _Found(NamedTuple):
    """One histogram's problem, solution and result, and the errors on the way."""

    problem: Problem
    solved: Solved
    result: Result
    errors: list[float]


def _known(method: Any, methods: tuple[str, ...]) -> str:
    if not isinstance(method, str) or method.lower() not in methods:
        raise ValueError(f"Unknown method {method!r}: it must be one of {', '.join(methods)}")
    return method.lower()


def _columns(b: Any) -> tuple[Any, ...]:
    """Histograms (m, k), one by one."""
    found = b.unbind(1) if isinstance(b, Tensor) else tuple(checks.array("b", b).T)
    if not found:
        raise checks.ArgumentError("b", "have shape (m,) or (m, k) with k of at least 1", tuple(b.shape))
    return found


def _solve(M: Any, a: Any, b: Any, reg: Any, start: Tensor | None, limits: _Limits) -> _Found:
    """Iterations until an L2 error of the columns; the plan has exact rows."""
    problem = read_cost(M, a, b, reg)
    C, errors = problem.cost.matrix("sinkhorn"), list[float]()
    if not len(problem.a):
        solved, errors = Solved(problem.a, problem.b, 0, "no layers: no points", C), []
    elif start is None and isinstance(C, np.ndarray):
        solved, errors = _newton(problem, limits)
    else:
        problem = problem.as_tensors()
        solved, errors = _iterate(problem, start, limits)
    # Sums that agree up to the rounding of the weights' own dtype are no error of the plan.
    single = any(getattr(w, "dtype", None) in (torch.float32, np.float32) for w in (a, b))
    near = abs(problem.mass - float(problem.target.sum())) <= 4 * ROUNDING_OF[single] * problem.mass
    error = _l2(solved.plan.sum(0) - (problem.b if near else problem.target))
    result = finish(problem, solved, Goal(limits.error, 2), warn=False)
    return _Found(problem, solved, result, [*errors, error])


def _log_scalings(found: _Found) -> tuple[Array, Array]:
    """log u and log v with P = diag(u) exp(−M/λ) diag(v) and max u = max v, in float64."""
    problem, solved, *_ = found
    log_u, log_v = (solved.u + problem.cost.gauge()[0]) / problem.entropy - 1, solved.v / problem.entropy
    half = (float(log_u.max()) - float(log_v.max())) / 2 if len(log_u) else 0.0
    return to_numpy(problem.whole(log_u - half, 0)), to_numpy(problem.whole(log_v + half, 1))


@np.errstate(under="ignore")
def _newton(problem: Problem, limits: _Limits) -> tuple[Solved, list[float]]:
    """A small problem, by Newton steps.

    Where n < m, `newton` makes columns exact, not rows: a row block ends it. What rows are wrong by moves to columns, so
    ‖Pᵀ1 − b‖₂ ≤ ‖Pᵀ1 − b‖₁ after the block ≤ ‖P1 − a‖₁ before it, which is the error that then counts on the way.
    """
    C, a, b, reg = problem.cost.dense, problem.a, problem.b, problem.entropy
    wide = C.shape[0] < C.shape[1]
    layers, size = LAYERS * limits.iterations, None if wide else _l2
    found = newton(C, a, b, reg, limits.error, layers, size=size, spread=problem.cost.spread)
    if limits.verbose:
        for step, error in enumerate(found.errors):
            logger.info("iteration %d: error %.6e", step, error)
    P, u, v = found.plan, found.u, found.v
    if wide:
        if not float(P.sum(1).min()) > TINY:  # far from the solution a row can be empty: start it from v alone
            u = (C - v).min(1)
            P = np.exp((u[:, None] + v - C) / reg - 1)
        factors = a / P.sum(1)
        P, u = P * factors[:, None], u + reg * np.log(factors)
    return Solved(u, v, found.depth, "Sinkhorn blocks with Newton steps", P), found.errors


def _iterate(problem: Problem, start: Tensor | None, limits: _Limits) -> tuple[Solved, list[float]]:
    """Find the plan and potentials of least error, and the errors at the final λ."""
    b, reg, first = problem.b, problem.entropy, None
    if start is not None:
        if tuple(start.shape) != problem.shape[1:]:
            raise checks.ArgumentError("warmstart", f"fit b of shape {problem.shape[1:]}", tuple(start.shape))
        at = slice(None) if problem.support is None else checks.local(problem.support.columns)
        first = reg * checks.tensor("warmstart", start.to(b)[at])
    kernel, errors = problem.cost.kernel(problem.a.log(), b.log(), reg), list[float]()

    def seen(states: Iterator[State]) -> Iterator[State]:
        for state in states:
            errors.append(state[2])
            if limits.verbose:
                logger.info("iteration %d: error %.6e", state[3] // LAYERS - 1, errors[-1])
            yield state

    states = direct_then_annealed(kernel, first, reg, LAYERS * limits.iterations, measure=_l2)
    u, v, _, depth = least_error(seen(states), limits.error)
    return Solved(u, v, depth, "Sinkhorn blocks, Anderson-mixed", kernel.plan(u, v, reg)), errors


def _l2(t: Any) -> float:
    return math.sqrt(float(t @ t))


def _starts(warmstart: Any, count: int, several: bool, scale: float) -> list[Tensor | None]:
    """log v for every histogram: u follows from it. POT gives several as matrices (·, k), or as a list of k pairs."""
    if warmstart is None:
        return [None] * count
    try:
        pairs = several and isinstance(warmstart[0], (tuple, list))
        given = [v for _, v in warmstart] if pairs else [warmstart[1]]
        logs = [checks.unseen("warmstart", t).detach() / scale for t in given]
        if several and not pairs:
            logs = list(logs[0].unbind(-1))
    except (TypeError, ValueError, IndexError, KeyError, RuntimeError):
        shown = " ".join(repr(warmstart).split())
        raise checks.ArgumentError("warmstart", "be a pair of arrays (log u, log v)", shown) from None
    if len(logs) != count:
        raise checks.ArgumentError("warmstart", f"be for {count} histograms", len(logs))
    return list(logs)
