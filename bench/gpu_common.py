"""What both sides of the GPU benchmark share: the points, the error in float64, the clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

REG, TOL = 0.001, 1e-4
SAFE = 0.85  # of the tolerance: where solvers stop by their own float32 reading
CASES = [(d, n) for d in (3, 64) for n in (10_000, 50_000)]
Potentials = tuple[Tensor, Tensor]


def cube(n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two uniform clouds, float32, scaled so that the largest cost is 1 (of the first 50,000 points where d > 3)."""
    generator = torch.Generator("cuda").manual_seed(seed)
    x, y = (torch.rand(n, d, generator=generator, device="cuda") for _ in range(2))
    far = max(float(torch.cdist(part, y[:50_000]).max()) for part in x[:50_000].split(5000)) if d > 3 else math.sqrt(d)
    return x / far, y / far


def exact_error(x: Tensor, y: Tensor, u: Tensor, v: Tensor) -> float:
    """The error as defined above, for P_ij = exp((u_i + v_j − C_ij)/λ − 1)."""
    return max(_side_error(x, y, u.double(), v.double()), _side_error(y, x, v.double(), u.double()))


def _side_error(x: Tensor, y: Tensor, u: Tensor, v: Tensor) -> float:
    n, middle, total = len(x), y.double().mean(0), 0.0
    rows = torch.arange(n, device="cuda") if n <= 50_000 else torch.randperm(n, device="cuda")[:4096]
    x, y = x.double() - middle, y.double() - middle
    u, v = u - (x * x).sum(1), v - (y * y).sum(1)  # ‖x − y‖² = ‖x‖² + ‖y‖² − 2 x·y, its rounding 10⁻¹² of λ
    for part in rows.split(max(1, 2**27 // len(y))):
        logs = torch.addmm(v, x[part], y.mT, alpha=2).add_(u[part, None]).div_(REG).sub_(1)
        total += float((n * logs.exp_().sum(1) - 1).abs().sum())
    return total / len(rows)


def timed(run: Callable[[], Any]) -> tuple[float, Any, float]:
    """Seconds, what came back, and the most GiB allocated meanwhile, points included."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    result = run()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result, torch.cuda.max_memory_allocated() / 2**30
