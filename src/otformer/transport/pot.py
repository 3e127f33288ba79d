r"""POT's ``ot.sinkhorn`` and ``ot.sinkhorn2`` on our engine: change the import, keep the call.

Same problem, min Σ P M + reg Σ P log P over plans with marginals a and b; same arguments; same return values; same meaning
of the two that decide when to stop:

    ``stopThr``     the L2 norm of Pᵀ1 − b. Rows are exact after every iteration, here as in POT.
    ``numItermax``  iterations of two passes over the cost each, those of falling λ included.

What differs, on purpose: all five of POT's methods run the same engine, which needs no stabilising; the work is done in
float64 whatever the dtype of M, so that ``stopThr=1e-9`` can be met in float32 too; of all iterates the one with the least
error is returned; and derivatives come from the solution (transport/gradient.py), not from going back through iterations.
"""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.absorbed import Absorbed
from otformer.transport.blocks import LAYERS
from otformer.transport.gradient import Potentials, log_plan
from otformer.transport.newton import newton
from otformer.transport.problem import Problem, like_input
from otformer.transport.small import Ordinary, ordinary
from otformer.transport.stages import warm

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
    and ``warmstart``. Scalings are fixed up to a factor: it is chosen so that max u = max v. Where reg is so small that a
    scaling leaves the range of floats, u and v hold 0 or inf there, as exponentials do; the logs, and the plan, are right.

    The plan and the losses are differentiable in tensors M, a, b and reg.

    >>> sinkhorn([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], 1).round(8).tolist()
    [[0.36552929, 0.13447071], [0.13447071, 0.36552929]]
    """
    if method.lower() not in METHODS:
        raise ValueError(f"Unknown method '{method}': it must be one of {', '.join(METHODS)}")
    if unknown := set(kwargs) - set(UNNEEDED):
        raise TypeError(f"unknown argument {sorted(unknown)[0]}: beside POT's own, {', '.join(UNNEEDED)} are accepted")
    checks.count("numItermax", numItermax)
    checks.not_negative("stopThr", stopThr)
    lam = checks.positive("reg", reg.detach() if isinstance(reg, Tensor) else reg)
    a, b = None if len(a) == 0 else a, None if len(b) == 0 else b
    dtype, several = torch.float64, False
    quick = None if warmstart is not None or verbose or isinstance(reg, Tensor) else ordinary(M, a, b)
    if quick is not None:
        found = [_small(quick, lam, _Limits(numItermax, stopThr, verbose))]
    else:
        C = checks.tensor("M", M)
        dtype, b = C.dtype, None if b is None else checks.tensor("b", b)
        several = b is not None and b.ndim == 2
        histograms = b.unbind(1) if several else (b,)
        starts = _starts(warmstart, len(histograms), several, lam if method.lower() in IN_COST_UNITS else 1.0)
        limits = _Limits(numItermax, stopThr / math.sqrt(len(histograms)), verbose)  # POT's norm is that of all histograms
        found = [
            _solve(Problem.from_cost(C.double(), a, histogram), reg, lam, start, limits)
            for histogram, start in zip(histograms, starts, strict=True)
        ]
    error = math.hypot(*(f.errors[-1] for f in found))
    if warn and not error < stopThr:
        warnings.warn(
            "Sinkhorn did not converge. You might want to increase the number of iterations `numItermax` or the "
            f"regularization parameter `reg`: the error is {error:.3g}, stopThr is {stopThr:g}.",
            UserWarning,
            stacklevel=2,
        )
    result = torch.stack([(f.plan * C).sum() for f in found]) if several else found[0].plan
    result = like_input(M, result.to(dtype))
    if not log:
        return result
    log_u, log_v = (torch.stack(t, -1) for t in zip(*((f.log_u, f.log_v) for f in found), strict=True))
    if not several:
        log_u, log_v = log_u[:, 0], log_v[:, 0]
    tensors = {"log_u": log_u, "log_v": log_v, "u": log_u.exp(), "v": log_v.exp(), "alpha": lam * log_u, "beta": lam * log_v}
    arrays = {name: like_input(M, t.to(dtype)) for name, t in tensors.items()}
    pair = ("alpha", "beta") if method.lower() in IN_COST_UNITS else ("log_u", "log_v")
    iterations = max(f.iterations for f in found) - 1
    return result, arrays | {
        "err": [error] if several else found[0].errors,
        "niter": iterations,
        "n_iter": iterations,
        "logu": arrays["log_u"],
        "logv": arrays["log_v"],
        "warmstart": (arrays[pair[0]], arrays[pair[1]]),
    }


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
    if method.lower() not in METHODS_2:
        raise ValueError(f"Unknown method '{method}': it must be one of {', '.join(METHODS_2)}")
    result, details = sinkhorn(a, b, M, reg, method, numItermax, stopThr, verbose, True, warn, warmstart, **kwargs)
    if result.ndim == 2:
        result = (result * (M if isinstance(M, Tensor) else np.asarray(M))).sum()
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


def _small(problem: Ordinary, reg: float, limits: _Limits) -> _Found:
    """A small problem by Newton steps (transport/small.py)."""
    C, a, b, target, low = problem
    found = newton(C, a, b, reg, limits.error, LAYERS * limits.iterations, size=_l2)
    log_u, log_v = (found.u + low) / reg - 1, found.v / reg
    half = (float(log_u.max()) - float(log_v.max())) / 2
    errors = [*found.errors, _l2(found.plan.sum(0) - target)]
    tensor = torch.from_numpy
    return _Found(tensor(found.plan), tensor(log_u - half), tensor(log_v + half), errors, found.depth // LAYERS)


def _l2(t: Any) -> float:
    return math.sqrt(float(t @ t))


def _solve(problem: Problem, reg: float | Tensor, lam: float, start: Tensor | None, limits: _Limits) -> _Found:
    """``reg`` is λ, perhaps with a gradient; ``lam`` is its number."""
    rows, columns = problem.a > 0, problem.b > 0  # a point without mass is absent
    whole = bool(rows.all()) and bool(columns.all())
    C, a, b = (problem.C if whole else problem.C[rows][:, columns]), problem.a[rows], problem.b[columns]
    if start is not None:
        if start.shape != columns.shape:
            raise ValueError(f"warmstart must fit b of shape {tuple(columns.shape)}, got {tuple(start.shape)}")
        start = checks.tensor("warmstart", start.to(C)[columns])
    with torch.no_grad():
        u, v, errors, iterations = _iterate(C, a, b, lam, start, limits)
    scale = torch.as_tensor(reg, dtype=C.dtype, device=C.device)
    moving_u, moving_v = Potentials.apply(C, a, b, scale, u, v)
    P = log_plan(C, moving_u, moving_v, scale).exp()
    plan = P if whole else torch.zeros_like(problem.C).index_put((rows.nonzero(), columns.nonzero().T), P)
    log_u, log_v = (torch.full(w.shape, -torch.inf, dtype=C.dtype, device=C.device) for w in (rows, columns))
    log_u[rows], log_v[columns] = u / lam - 1, v / lam
    error = float((P.sum(0) - b).detach().norm())
    half = (log_u.max() - log_v.max()) / 2
    return _Found(plan, log_u - half, log_v + half, [*errors, error], iterations)


def _iterate(
    C: Tensor, a: Tensor, b: Tensor, reg: float, start: Tensor | None, limits: _Limits
) -> tuple[Tensor, Tensor, list[float], int]:
    """The potentials of least error, the errors at the final λ, and the iterations in all."""
    low = float(C.min())
    spread = float(C.max()) - low
    if not math.isfinite(spread / reg):
        raise ValueError(f"reg is too small: cost/reg overflows, got reg = {reg:g}, costs {spread:g} apart")
    executor = _Watched(C - low, a.log(), b.log())
    best, least, errors, depth = (torch.zeros_like(a), torch.zeros_like(b)), math.inf, [], 0
    first = None if start is None else reg * start
    for u, v, _, depth in warm(executor, first, spread, reg, 0.0, LAYERS * limits.iterations):
        errors.append(executor.error)
        if limits.verbose:
            logger.info("iteration %d: error %.6e", depth // LAYERS - 1, executor.error)
        if not executor.error >= least:
            best, least = (u, v), executor.error
        if executor.error < limits.error:
            break
    return best[0] + low, best[1], errors, depth // LAYERS


class _Watched(Absorbed):
    """Keeps the L2 norm of Pᵀ1 − b of the last column pass: POT's measure, where the engine's is L1."""

    error = math.inf

    def excess(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        excess = super().excess(u, v, reg, rows)
        if not rows:
            self.error = float((self.log_b.exp() * torch.expm1(excess)).norm())
        return excess


def _starts(warmstart: Any, count: int, several: bool, scale: float) -> list[Tensor | None]:
    """log v for every histogram: u follows from it. POT gives several as matrices (·, k), or as a list of k pairs."""
    if warmstart is None:
        return [None] * count
    pairs = several and isinstance(warmstart[0], (tuple, list))
    given = [pair[1] for pair in warmstart] if pairs else [warmstart[1]]
    logs = [(t.detach() if isinstance(t, Tensor) else torch.as_tensor(np.asarray(t, dtype=float))) / scale for t in given]
    if several and not pairs:
        logs = list(logs[0].unbind(-1))
    if len(logs) != count:
        raise ValueError(f"warmstart must be for {count} histograms, got {len(logs)}")
    return list(logs)
