"""Small problems without ceremony: numpy from end to end, since a call costs more than the arithmetic of twenty points.

Only what is certainly valid and ordinary is taken here: a float64 matrix in memory, positive weights, no derivatives. For
everything else the answer is None, and `solve` goes its careful way, which also knows what to say about bad input.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from otformer.transport.problem.result import Result
from otformer.transport.solvers.newton import newton

Array = NDArray[np.float64]
Ordinary = tuple[Array, Array, Array, Array, float]

NETWORK = "Sinkhorn blocks with Newton steps"
SMALL = 200**3  # n·m·min(n, m): the multiplications in the matrix of a Newton step


def is_small(n: int, m: int) -> bool:
    """Whether Newton steps cost no more than the calls of other layers."""
    return n * m * min(n, m) <= SMALL


def quick(M: Any, a: Any, b: Any, reg: Any, tol: Any, max_depth: Any) -> Result | None:
    """`solve` for a small and ordinary problem, or None."""
    if type(reg) not in (float, int) or type(tol) not in (float, int) or type(max_depth) is not int:
        return None
    read = ordinary(M, a, b)
    if read is None or max_depth < 2 or not 1e-300 < reg < 1e300 or not 0 <= tol < math.inf:
        return None
    C, a, b, target, low = read
    mass = float(a.sum())
    tol = tol * min(1.0, mass)
    if not float(C.max()) / reg < math.inf:
        return None
    found = newton(C, a, b, reg, tol, max_depth)
    rows, columns = found.plan.sum(1), found.plan.sum(0)
    error = float(np.abs(rows - a).sum() + np.abs(columns - target).sum())
    if not error < tol:
        warn_not_converged(error, found.depth, tol, reg, 5)
    # log P = (u + v − C)/λ − 1, so Σ P C + λ Σ P log P needs the marginals only.
    u, mass = found.u + low, float(rows.sum())
    value: Any
    linear: Any
    value, linear = float(rows @ u + columns @ found.v) - reg * mass, float((found.plan * C).sum()) + low * mass
    as_given = torch.from_numpy if isinstance(M, Tensor) else np.asarray
    if isinstance(M, Tensor):
        value, linear = M.new_tensor(value), M.new_tensor(linear)
    potentials = as_given(u), as_given(found.v)
    return Result(as_given(found.plan), potentials, value, linear, error, error < tol, found.depth, NETWORK)


def ordinary(M: Any, a: Any, b: Any) -> Ordinary | None:
    """C ≥ 0 [n, m] less its least entry, a [n], b [m] of equal mass, b as given, that entry; None if there is any doubt."""
    arrays = [_array(given) for given in (M, a, b)]
    C = arrays[0]
    if C is None or C.ndim != 2 or not C.size or not is_small(*C.shape):
        return None
    weights = []
    for given, array, size in zip((a, b), arrays[1:], C.shape, strict=True):
        if given is None:
            array = np.full(size, 1 / size)
        elif array is None or array.shape != (size,) or not float(array.min()) > 0:
            return None
        weights.append(array)
    low, high = float(C.min()), float(C.max())
    with np.errstate(over="ignore"):
        total_a, total_b = float(weights[0].sum()), float(weights[1].sum())
    if not high - low < math.inf or not abs(total_a - total_b) <= 1e-5 * max(total_a, total_b) < math.inf:
        return None
    return C - low, weights[0], weights[1] * (total_a / total_b), weights[1], low


def _array(given: Any) -> Array | None:
    if isinstance(given, Tensor):
        plain = given.dtype == torch.float64 and given.device.type == "cpu" and not given.requires_grad
        return given.contiguous().numpy() if plain else None
    return np.ascontiguousarray(given, np.float64) if type(given) is np.ndarray and given.dtype == np.float64 else None


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quietly() -> Iterator[None]:
    """No warnings from `warn_not_converged` inside, in this thread: the caller says it once, for all problems."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def warn_not_converged(error: float, depth: int, tol: float, reg: float, stacklevel: int, hint: str = "") -> None:
    if _quiet.get():
        return
    warnings.warn(
        f"not converged: marginal error {error:.3g} after {depth} layers, tol is {tol:g} (reg = {reg:g}); "
        f"raise reg, tol or max_depth{hint}",
        RuntimeWarning,
        stacklevel=stacklevel,
    )
