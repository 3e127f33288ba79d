"""Independent answers that tests compare with: plans by POT, errors by summing, slopes by differences, random problems.

Nothing here imports otformer. POT is imported on use: a GPU machine may be without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def _numbers(t: Any) -> np.ndarray:
    t = t.dense() if hasattr(t, "dense") else t
    return np.asarray(t.detach().cpu() if isinstance(t, Tensor) else t, dtype=np.float64)


def pot_plan(C: Any, a: Any, b: Any, reg: float, stop: float = 1e-13) -> Any:
    """POT's plan exp((u_i + v_j − C_ij)/λ − 1) with sums a and b, and 0 in rows and columns without mass; None is 1/n."""
    import ot

    M = _numbers(C)
    left, right = (np.full(n, 1 / n) if w is None else _numbers(w) for n, w in zip(M.shape, (a, b), strict=True))
    P, kept = np.zeros_like(M), np.ix_(left > 0, right > 0)
    P[kept] = ot.bregman.sinkhorn_log(left[left > 0], right[right > 0], M[kept], reg, numItermax=100_000, stopThr=stop)
    assert marginal_error(P, left, right) < 1e-9 * left.sum(), "POT did not arrive"
    return torch.from_numpy(P) if isinstance(C, Tensor) else P


def marginal_error(plan: Any, a: Any, b: Any) -> float:
    """Σ_i |Σ_j P_ij − a_i| + Σ_j |Σ_i P_ij − b_j| in float64, of a plan that has to be finite."""
    P = _numbers(plan)
    assert np.isfinite(P).all()
    return float(np.abs(P.sum(1) - _numbers(a)).sum() + np.abs(P.sum(0) - _numbers(b)).sum())


def squared_cost(x: Any, y: Any) -> Any:
    """C_ij = Σ_k (x_ik − y_jk)², an array or a tensor as the points are, with a gradient if they have one."""
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def slope(f: Callable[[Any], Any], at: Any, direction: Any = 1.0, step: float = 1e-5) -> float:
    """(f(x + h d) − f(x − h d)) / 2h, the derivative of a number along a direction d."""
    return float(f(at + step * direction) - f(at - step * direction)) / (2 * step)


def best_assignment(C: Any) -> tuple[int, ...]:
    """The p that minimises Σ_i C[i, p_i] over all ways to give each row a column of its own."""
    M = _numbers(C)
    choices = itertools.permutations(range(M.shape[1]), M.shape[0])
    return min(choices, key=lambda p: sum(M[i, j] for i, j in enumerate(p)))


def problem(seed: int, n: int, m: int, d: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x [n, d], y [m, d] uniform in the cube, and weights a, b ∝ U(0.1, 1.1) of mass 1."""
    rng = np.random.default_rng(seed)
    a, b = rng.random(n) + 0.1, rng.random(m) + 0.1
    return rng.random((n, d)), rng.random((m, d)), a / a.sum(), b / b.sum()


def points(seed: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Tensors of numbers from U(0, 1), one after another from the same generator."""
    g = torch.Generator().manual_seed(seed)
    return [torch.rand(*shape, generator=g, dtype=dtype) for shape in shapes]


def uniform(seed: int, *shape: int) -> Tensor:
    """One tensor of numbers from U(0, 1) in float64."""
    return points(seed, shape)[0]
