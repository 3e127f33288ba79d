"""flash-sinkhorn's solvers for the GPU benchmark; bench/gpu.py says how they are run.

Its potentials are relative to the product of the weights, P_ij = a_i b_j exp((f_i + g_j − C_ij)/λ), so ours are
u = f + λ (log a + 1) and v = g + λ log b. It works on f̂ = f − ‖x‖² and ĝ = g − ‖y‖², and its two updates are

    f̂ ← −δ λ log Σ_j b_j exp((ĝ_j + 2 x_i·y_j)/λ) + (δ − 1)‖x_i‖²,      the same for ĝ,      δ = ρ/(ρ + λ), balanced 1.

After the first of them the rows are exact: what ĝ moves by next tells the columns' error.

    balanced     Σ_j b_j |exp((g_j − g'_j)/λ) − 1|, the L1 error of both marginals
    unbalanced   max_j |g_j − g'_j| / (λ (1 − δ²)), which bounds |g − g*|/λ (transport/variants/unbalanced.py)
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import torch
from gpu_common import TOL, Bench, Potentials, Problem, marginal_error
from torch import Tensor

LONG, PATIENCE = 8.0, 20.0  # seconds of counting: the function is not timed as well; counting ends
PAIRS = 5e9  # points times points: its dense solver is not run on more
STALLED = 50, 0.95  # tens of iterations in which the error must fall by this factor
SIX = {(128, 128, 32, 8), (128, 64, 32, 4), (64, 64, 32, 4), (64, 128, 16, 4), (64, 64, 16, 4), (128, 64, 16, 8)}


class Counted(NamedTuple):
    potentials: Potentials  # f and g, with rows exact
    iterations: int
    read: float  # the error, as read from its float32 numbers
    seconds: float
    reached: bool


def few_shapes(bench: Bench) -> None:
    """Its kernels tune over six of their shapes (three pipeline stages), unless all are asked for."""
    from flash_sinkhorn.kernels import apply_flash, apply_ott, sinkhorn_flashstyle_sqeuclid, sinkhorn_triton_grad_sqeuclid

    if bench.tune_all:
        return
    for module in (apply_flash, apply_ott, sinkhorn_flashstyle_sqeuclid, sinkhorn_triton_grad_sqeuclid):
        for name in [name for name in dir(module) if name.endswith("_autotune")]:
            tuner = getattr(module, name)
            shapes = [c for c in tuner.configs if c.num_stages == 3 and (*c.kwargs.values(), c.num_warps) in SIX]
            tuner.configs = shapes or tuner.configs[:6]


def centred(p: Problem) -> Potentials:
    """Its points: far from the origin ‖x‖² would lose what λ needs."""
    middle = (p.x.mean(0) + p.y.mean(0)) / 2
    return (p.x - middle).contiguous(), (p.y - middle).contiguous()


def as_ours(p: Problem, f: Tensor, g: Tensor) -> Potentials:
    """u and v of its f and g, in float64."""
    a, b = (w.double() for w in p.weights())
    return f.double().reshape(-1) + p.reg * (a.log() + 1), g.double().reshape(-1) + p.reg * b.log()


def count(p: Problem, tol: float = TOL, rho: float = math.inf) -> Counted:
    """Iterations of its kernel, from its start, until the error is below tol; read every ten."""
    from flash_sinkhorn.kernels.sinkhorn_flashstyle_sqeuclid import flashsinkhorn_lse_fused as update

    (x, y), (a, b) = centred(p), p.weights()
    log_a, log_b, x_sq, y_sq = a.log(), b.log(), (x * x).sum(1), (y * y).sum(1)
    damping = 1 / (1 + p.reg / rho)
    options: dict[str, Any] = dict(cost_scale=1.0, damping=damping, allow_tf32=False, use_exp2=True, autotune=True)
    g, errors = -y_sq, []
    update(x, y, g, log_b, p.reg, **options), update(y, x, -x_sq, log_a, p.reg, **options)  # tunes
    start = time.monotonic()
    for k in range(1, 20_001):
        f = update(x, y, g, log_b, p.reg, **options) + (damping - 1) * x_sq
        new = update(y, x, f, log_a, p.reg, **options) + (damping - 1) * y_sq
        if k % 10 == 0:
            moved = (g - new) / p.reg
            error = (b * torch.expm1(moved).abs()).sum() if rho == math.inf else moved.abs().max() / (1 - damping**2)
            errors.append(float(error))
            if errors[-1] < tol or time.monotonic() - start > PATIENCE or _stalled(errors):
                break
        g = new
    return Counted((f + x_sq, g + y_sq), k, errors[-1], time.monotonic() - start, errors[-1] < tol)


def _stalled(errors: list[float]) -> bool:
    """Rounding in float32 has the error stand still above tol."""
    steps, factor = STALLED
    return len(errors) > steps and errors[-1] > factor * errors[-1 - steps]


def alternating(p: Problem, iterations: int, points: Potentials) -> Potentials:
    """Its function for f and g."""
    from flash_sinkhorn.sinkhorn_solvers import sinkhorn_flashstyle_alternating

    options: dict[str, Any] = dict(eps=p.reg, n_iters=iterations, allow_tf32=False, autotune=True)
    return sinkhorn_flashstyle_alternating(*points, *p.weights(), **options)


def compare(bench: Bench, case: str, p: Problem, ours: float, again: float | None, tol: float = TOL) -> None:
    """Its side of a case that took us ``ours`` seconds, and ``again`` when repeated."""
    with bench.attempt("flash", case):
        few_shapes(bench)
        if len(p.x) * len(p.y) > PAIRS:
            raise ValueError(f"not run: {len(p.x):,} × {len(p.y):,} pairs a pass")
        counted, points = count(p, tol), centred(p)
        seconds, pair, repeated = counted.seconds, counted.potentials, {}
        if seconds < LONG:
            seconds, pair, _ = bench.timed(lambda: alternating(p, counted.iterations, points))
            if again is not None:
                median = bench.median(lambda: alternating(p, counted.iterations, points), 5)
                repeated = dict(flash_again=median, ratio_again=median / again)
        bench.add(case=case, flash_seconds=seconds, flash_passes=2 * counted.iterations, flash_read=counted.read,
                  flash_error=marginal_error(p, *as_ours(p, *pair)), flash_reached=counted.reached, ratio=seconds / ours,
                  **repeated)  # fmt: skip


def compare_multiscale(bench: Bench, case: str, p: Problem, ours: float, tol: float) -> None:
    """Its multiscale mode, which stops by itself at tol and solves for points it has rounded to TF32."""
    with bench.attempt("multiscale", case):
        from flash_sinkhorn.multiscale import preprocess_coordinates, solve_multiscale

        few_shapes(bench)
        a, b = p.weights()

        def run() -> Any:
            points = preprocess_coordinates(p.x, p.y, a, b)
            return points, solve_multiscale(*points, a, b, p.reg, tol)

        run()  # compiles and tunes
        seconds, (points, (f, g, info)), gib = bench.timed(run)
        u, v = as_ours(p, f, g)
        rounded = p._replace(x=points[0], y=points[1])
        bench.add(case=case, multiscale_seconds=seconds, multiscale_error=marginal_error(p, u, v),
                  multiscale_error_of_rounded_points=marginal_error(rounded, u, v), multiscale_accepted=info.accepted,
                  multiscale_gib=gib, ratio=seconds / ours)  # fmt: skip
