r"""POT's ``ot.sinkhorn`` and ``ot.sinkhorn2`` on our engine: change the import, keep the call.

Same problem, min Σ P M + reg Σ P log P over plans with marginals a and b; same arguments; same return values; same meaning
of the two that decide when to stop:

    ``stopThr``     the L2 norm of Pᵀ1 − b. Rows are exact after every iteration, here as in POT.
    ``numItermax``  iterations of two passes over the cost each, those of falling λ included.

What differs, on purpose: all five of POT's methods run the same engine, which needs no stabilising; the work is done in
float64 whatever the dtype of M, so that ``stopThr=1e-9`` can be met in float32 too; of all iterates the one with the least
error is returned; and derivatives come from the solution (transport/derivatives/implicit.py), not from going back
through iterations.
"""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.derivatives.implicit import Potentials, log_plan
from otformer.transport.fast_path import Ordinary, is_small, ordinary
from otformer.transport.problem.problem import Problem, like_input
from otformer.transport.solvers.annealing import warm
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.solvers.newton import TINY, Array, l1, newton
from otformer.transport.variants.debiased import Watched

METHODS = ("sinkhorn", "sinkhorn_log", "greenkhorn", "sinkhorn_stabilized", "sinkhorn_epsilon_scaling")
METHODS_2 = ("sinkhorn", "sinkhorn_log", "sinkhorn_stabilized")
IN_COST_UNITS = ("sinkhorn_stabilized", "sinkhorn_epsilon_scaling")  # their warm starts are reg·log u, reg·log v
UNNEEDED = ("tau", "epsilon0", "numInnerItermax", "print_period")  # how POT's variants keep their floats in range
logger = logging.getLogger("otformer")


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
    a, b : weights of equal sum; ``[]`` means uniform. With b of shape (m, k) the k losses Σ P M are returned, not plans.
    M, reg : cost matrix, and λ > 0. Numpy arrays or lists in, numpy out; tensors in, tensors of the same dtype out.
    method : any of POT's names; all run the same engine. Another name is a ValueError, as in POT.
    numItermax, stopThr : stop after so many iterations, or when ‖Pᵀ1 − b‖₂ < stopThr.
    warn : a UserWarning if stopThr is not reached.   verbose : progress to the logger ``otformer``, level INFO.
    warmstart : (log u, log v) of an earlier call; for the stabilized and epsilon-scaling methods reg times that, as in POT.
    kwargs : parameters of POT's variants (tau, epsilon0, numInnerItermax, print_period), which this engine does not need.

    Returns
    -------
    The plan (n, m), or the losses (k,); with ``log=True`` also a dict: ``err`` (‖Pᵀ1 − b‖₂ after every step at the final
    λ, and last that of the returned plan), ``niter`` (index of the last iteration, from 0; a Newton step counts two), ``u``
    and ``v`` with P = diag(u) exp(−M/reg) diag(v), their logs ``log_u``, ``log_v``, reg times these ``alpha``, ``beta``,
    and ``warmstart``. Small problems with n < m are solved from the other side: there ``err`` is, on the way, ‖P1 − a‖₁
    before rows are made exact, a bound on ‖Pᵀ1 − b‖₂ after. Scalings are fixed up to a factor, chosen so that max u = max v.
    Where reg is so small that they leave the range of floats, u and v hold 0 or inf; the logs, and the plan, are right.

    The plan and the losses are differentiable in tensors M, a, b and reg; they are tensors where one of these requires it.

    >>> sinkhorn([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], 1).round(8).tolist()
    [[0.36552929, 0.13447071], [0.13447071, 0.36552929]]
    """
    method = _known(method, METHODS)
    if unknown := set(kwargs) - set(UNNEEDED):
        raise TypeError(f"unknown argument {sorted(unknown)[0]}: beside POT's own, {', '.join(UNNEEDED)} are accepted")
    checks.count("numItermax", numItermax)
    checks.not_negative("stopThr", stopThr)
    lam = checks.positive("reg", reg.detach() if isinstance(reg, Tensor) else reg)
    M, a, b = _array("M", M), _array("a", a), _array("b", b)
    a, b = (None if getattr(w, "shape", None) == (0,) else w for w in (a, b))
    dtype, several = torch.float64, False
    quick = None if warmstart is not None or isinstance(reg, Tensor) else ordinary(M, a, b)
    if quick is not None:
        found = [_small(quick, lam, _Limits(numItermax, stopThr, verbose))]
    else:
        C = checks.tensor("M", M)
        if C.ndim != 2 or 0 in C.shape:
            raise ValueError(f"M must have shape (n, m) with n, m of at least 1, got {tuple(C.shape)}")
        dtype, several = C.dtype, np.ndim(b) == 2
        histograms = checks.tensor("b", b).unbind(1) if several else (b,)
        if not histograms:
            raise ValueError(f"b must have shape (m,) or (m, k) with k of at least 1, got {tuple(b.shape)}")
        starts = _starts(warmstart, len(histograms), several, lam if method in IN_COST_UNITS else 1.0)
        limits = _Limits(numItermax, stopThr / math.sqrt(len(histograms)), verbose)  # POT's norm is that of all histograms
        found = [_solve(_problem(C, a, h), reg, lam, start, limits) for h, start in zip(histograms, starts, strict=True)]
    error = math.hypot(*(f.errors[-1] for f in found))
    if warn and not error < stopThr:
        advice = "You might want to increase the number of iterations `numItermax` or the regularization parameter `reg`"
        message = f"Sinkhorn did not converge. {advice}: the error is {error:.3g}, stopThr is {stopThr:g}."
        warnings.warn(message, UserWarning, stacklevel=2)
    result = torch.stack([(f.plan * C).sum() for f in found]) if several else found[0].plan
    kind = result if result.requires_grad else M  # a gradient needs a tensor, whatever M is
    result = like_input(kind, result.to(dtype))
    if not log:
        return result
    log_u, log_v = (torch.stack(t, -1) for t in zip(*((f.log_u, f.log_v) for f in found), strict=True))
    if not several:
        log_u, log_v = log_u[:, 0], log_v[:, 0]
    tensors = {"log_u": log_u, "log_v": log_v, "u": log_u.exp(), "v": log_v.exp(), "alpha": lam * log_u, "beta": lam * log_v}
    arrays = {name: like_input(kind, t.to(dtype)) for name, t in tensors.items()}
    arrays |= {"logu": arrays["log_u"], "logv": arrays["log_v"]}
    pair = ("alpha", "beta") if method in IN_COST_UNITS else ("log_u", "log_v")
    errors, last = [error] if several else found[0].errors, max(f.iterations for f in found) - 1
    return result, arrays | {"err": errors, "niter": last, "n_iter": last, "warmstart": (arrays[pair[0]], arrays[pair[1]])}


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
    """POT's ``ot.sinkhorn2``: the loss Σ P M of the plan of `sinkhorn`, without the entropy; (k,) of them if b is (m, k).

    >>> round(float(sinkhorn2([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], 1)), 8)
    0.26894142
    """
    method = _known(method, METHODS_2)
    result, details = sinkhorn(a, b, M, reg, method, numItermax, stopThr, verbose, True, warn, warmstart, **kwargs)
    if result.ndim == 2:
        result = (result * (checks.tensor("M", M).to(result) if isinstance(result, Tensor) else np.asarray(M))).sum()
    return (result, details) if log else result


@dataclass(frozen=True)
class _Limits:
    """When to stop: iterations, and the L2 error of the columns; whether to tell of progress."""

    iterations: int
    error: float
    verbose: bool


@dataclass(frozen=True)
class _Found:
    """One histogram's plan [n, m] and log scalings in float64, the errors on the way, and the iterations they took."""

    plan: Tensor
    log_u: Tensor
    log_v: Tensor
    errors: list[float]
    iterations: int


def _known(method: Any, methods: tuple[str, ...]) -> str:
    if not isinstance(method, str) or method.lower() not in methods:
        raise ValueError(f"Unknown method {method!r}: it must be one of {', '.join(methods)}")
    return method.lower()


def _array(name: str, given: Any) -> Any:
    """Lists as arrays; anything else as it is."""
    return checks.tensor(name, given).numpy() if isinstance(given, (list, tuple)) else given


def _problem(C: Tensor, a: Any, b: Any) -> Problem:
    """In float64. Sums that agree up to the rounding of the weights' own dtype are no error of the plan."""
    single = any(getattr(w, "dtype", None) in (torch.float32, np.float32) for w in (a, b))
    problem = Problem.from_cost(C.double(), *(w.double() if isinstance(w, Tensor) else w for w in (a, b)))
    total_a, total_b = float(problem.a.detach().sum()), float(problem.target.detach().sum())
    rounding = 4 * np.finfo(np.float32 if single else np.float64).eps * total_a
    return replace(problem, target=problem.b) if abs(total_a - total_b) <= rounding else problem


def _small(problem: Ordinary, reg: float, limits: _Limits) -> _Found:
    """A small problem by Newton steps (transport/fast_path.py)."""
    C, a, b, target, low = problem
    _within_range(float(C.max()), reg)
    P, u, v, errors, iterations = _newton(C, a, b, reg, limits)
    log_u, log_v = (u + low) / reg - 1, v / reg
    half = (float(log_u.max()) - float(log_v.max())) / 2
    plan, left, right = (torch.from_numpy(t) for t in (P, log_u - half, log_v + half))
    return _Found(plan, left, right, [*errors, _l2(P.sum(0) - target)], iterations)


def _newton(C: Array, a: Array, b: Array, reg: float, limits: _Limits) -> tuple[Array, Array, Array, list[float], int]:
    """Plan with exact rows, u, v, errors at the final λ and iterations in all, for C ≥ 0.

    Where n < m, `newton` makes columns exact, not rows: a row block ends it. What rows are wrong by moves to columns, so
    ‖Pᵀ1 − b‖₂ ≤ ‖Pᵀ1 − b‖₁ after the block ≤ ‖P1 − a‖₁ before it, which is the error that then counts on the way.
    """
    wide = C.shape[0] < C.shape[1]
    found = newton(C, a, b, reg, limits.error, LAYERS * limits.iterations, size=l1 if wide else _l2)
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
    return P, u, v, found.errors, found.depth // LAYERS


def _within_range(spread: float, reg: float) -> float:
    if not math.isfinite(spread / reg):
        raise ValueError(f"reg is too small: cost/reg overflows, got reg = {reg:g}, costs {spread:g} apart")
    return spread


def _l2(t: Any) -> float:
    return math.sqrt(float(t @ t))


def _solve(problem: Problem, reg: float | Tensor, lam: float, start: Tensor | None, limits: _Limits) -> _Found:
    """``reg`` is λ, perhaps with a gradient; ``lam`` is its number."""
    i, j = (problem.a > 0).nonzero()[:, 0], (problem.b > 0).nonzero()[:, 0]  # a point without mass is absent
    whole = len(i) == len(problem.a) and len(j) == len(problem.b)
    C, a, b, target = problem.C, problem.a, problem.b, problem.target
    if not whole:
        C, a, b, target = C[i[:, None], j], a[i], b[j], target[j]
    if start is not None:
        if start.shape != problem.b.shape:
            raise ValueError(f"warmstart must fit b of shape {tuple(problem.b.shape)}, got {tuple(start.shape)}")
        start = checks.tensor("warmstart", start.to(C)[j])
    scale = torch.as_tensor(reg).to(C).reshape(())
    with torch.no_grad():
        P, u, v, errors, iterations = _iterate(C, a, b, lam, start, limits)
        error = _l2(P.sum(0) - target)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (C, a, b, scale)):
        moving_u, moving_v = Potentials.apply(C, a, b, scale, u, v)
        log_P = log_plan(C, moving_u, moving_v, scale)
        P = P * (log_P - log_P.detach()).exp()  # the same plan, with its derivatives
    half = ((u.max() - v.max()) / lam - 1) / 2
    log_u, log_v = u / lam - 1 - half, v / lam + half
    if not whole:
        P = torch.zeros_like(problem.C).index_put((i[:, None], j), P)
        absent = (C.new_full((size,), -torch.inf) for size in problem.C.shape)
        log_u, log_v = next(absent).index_copy(0, i, log_u), next(absent).index_copy(0, j, log_v)
    return _Found(P, log_u, log_v, [*errors, error], iterations)


def _iterate(
    C: Tensor, a: Tensor, b: Tensor, reg: float, start: Tensor | None, limits: _Limits
) -> tuple[Tensor, Tensor, Tensor, list[float], int]:
    """The plan and potentials of least error, the errors at the final λ, and the iterations in all."""
    low = float(C.min())
    spread = _within_range(float(C.max()) - low, reg)
    if start is None and is_small(*C.shape):
        *found, errors, iterations = _newton((C - low).cpu().numpy(), a.cpu().numpy(), b.cpu().numpy(), reg, limits)
        P, u, v = (torch.from_numpy(t).to(C) for t in found)
        return P, u + low, v, errors, iterations
    executor, first = Watched(C - low, a.log(), b.log()), None if start is None else reg * start
    best, least, errors, depth = (torch.zeros_like(a), torch.zeros_like(b)), math.inf, [], 0
    for u, v, _, depth in warm(executor, first, spread, reg, 0.0, LAYERS * limits.iterations):
        errors.append(float(executor.gaps.norm()))
        if limits.verbose:
            logger.info("iteration %d: error %.6e", depth // LAYERS - 1, errors[-1])
        if not errors[-1] >= least:
            best, least = (u, v), errors[-1]
        if errors[-1] < limits.error:
            break
    return executor.plan(*best, reg), best[0] + low, best[1], errors, depth // LAYERS


def _starts(warmstart: Any, count: int, several: bool, scale: float) -> list[Tensor | None]:
    """log v for every histogram: u follows from it. POT gives several as matrices (·, k), or as a list of k pairs."""
    if warmstart is None:
        return [None] * count
    try:
        pairs = several and isinstance(warmstart[0], (tuple, list))
        given = [v for _, v in warmstart] if pairs else [warmstart[1]]
        logs = [torch.as_tensor(t.detach() if isinstance(t, Tensor) else np.asarray(t, dtype=float)) / scale for t in given]
        if several and not pairs:
            logs = list(logs[0].unbind(-1))
    except (TypeError, ValueError, IndexError, KeyError, RuntimeError):
        raise ValueError(f"warmstart must be a pair of arrays (log u, log v), got {warmstart!r}") from None
    if len(logs) != count:
        raise ValueError(f"warmstart must be for {count} histograms, got {len(logs)}")
    return list(logs)
