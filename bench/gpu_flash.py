"""flash-sinkhorn's two solvers for the GPU benchmark; bench/gpu.py says how they are run."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from gpu_common import CASES, REG, SAFE, TOL, Potentials, cube, exact_error, timed
from torch import Tensor

LONG, PATIENCE = 15.0, 40.0  # seconds of counting: the function is not timed as well; counting ends
SIX = {(128, 128, 32, 8), (128, 64, 32, 4), (64, 64, 32, 4), (64, 128, 16, 4), (64, 64, 16, 4), (128, 64, 16, 8)}


def flash(add: Callable[..., None]) -> None:
    """Its alternating solver."""
    from flash_sinkhorn.kernels import sinkhorn_flashstyle_sqeuclid as their
    from flash_sinkhorn.sinkhorn_solvers import sinkhorn_flashstyle_alternating as alternating

    if "--tune-all" not in sys.argv:
        tuner = their._flashsinkhorn_lse_fused_kernel_autotune
        tuner.configs = [c for c in tuner.configs if c.num_stages == 3 and (*c.kwargs.values(), c.num_warps) in SIX]
    for d, n in CASES:
        x, y = cube(n, d)
        a = torch.full((n,), 1 / n, device="cuda")
        middle = (x.mean(0) + y.mean(0)) / 2
        points = x - middle, y - middle
        (f, g), iterations, read, seconds, gib = _count(their, points, a)
        if seconds < LONG:
            call = dict(eps=REG, n_iters=iterations, allow_tf32=False, autotune=True)
            seconds, (f, g), gib = timed(lambda p=points, a=a, call=call: alternating(*p, a, a, **call))
        u, v = f + REG * (1 - math.log(n)), g - REG * math.log(n)
        add(who="flash-sinkhorn alternating", d=d, n=n, tol=TOL, seconds=seconds, passes=2 * iterations, read=read,
            reached=read < TOL, error=exact_error(x, y, u, v), gib=gib)  # fmt: skip


def _count(their: Any, points: Potentials, a: Tensor) -> tuple[Potentials, int, float, float, float]:
    """Potentials of iterations of its kernel from its start to the error; how many; the error; seconds; GiB."""
    x, y = (p.contiguous() for p in points)
    log_a, options = a.log(), dict(cost_scale=1.0, damping=1.0, allow_tf32=False, use_exp2=True, autotune=True)
    x_sq, y_sq = (x * x).sum(1), (y * y).sum(1)
    g = -y_sq
    their.flashsinkhorn_lse_fused(x, y, g, log_a, REG, **options)  # tunes

    def loop(g: Tensor) -> tuple[Potentials, int, float]:
        start, error = time.monotonic(), math.inf
        for k in range(1, 20_001):
            f = their.flashsinkhorn_lse_fused(x, y, g, log_a, REG, **options)
            new = their.flashsinkhorn_lse_fused(y, x, f, log_a, REG, **options)
            if k % 10 == 0:
                error = float(torch.expm1((g - new) / REG).abs().mean())
                if error < SAFE * TOL or time.monotonic() - start > PATIENCE:
                    break
            g = new
        return (f + x_sq, g + y_sq), k, error

    seconds, (pair, k, error), gib = timed(lambda: loop(g))
    return pair, k, error, seconds, gib


def multiscale(add: Callable[..., None]) -> None:
    from flash_sinkhorn.multiscale import preprocess_coordinates, solve_multiscale

    n = 1_000_000
    x, y = cube(n, 3)
    a = torch.full((n,), 1 / n, device="cuda")

    def run(tol: float) -> Any:
        points = preprocess_coordinates(x, y, a, a)
        return points, solve_multiscale(*points, a, a, REG, tol)

    for tol in (1e-3, TOL):
        run(tol)  # compiles and tunes
        seconds, (points, (f, g, info)), gib = timed(lambda tol=tol: run(tol))
        u, v = f + REG * (1 - math.log(n)), g - REG * math.log(n)
        add(who="flash-sinkhorn multiscale", d=3, n=n, tol=tol, seconds=seconds, accepted=info.accepted,
            fine_updates=info.fine_updates, error=exact_error(x, y, u, v), rounded_error=exact_error(*points, u, v),
            gib=gib)  # fmt: skip
