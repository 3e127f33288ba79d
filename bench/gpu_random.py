"""2,000 random streaming problems: is a result ever called converged that is not?

The error is the L1 error of both marginals in float64, from the potentials returned and the points given. λ is such that the
largest cost is 2 to 3,000 times λ. Every problem has its seed; a row of its own shows one that is wrong, and the first one
with an error message.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from typing import Any

import numpy as np
import torch
from gpu_common import Bench, Problem, marginal_error, one_line, solve
from torch import Tensor

PROBLEMS, LAYERS = 2000, 2000
SIZE = 3000
DIMENSIONS = (1, 2, 3, 5, 8, 16, 64)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TOLS = (1e-2, 1e-3, 1e-4, 1e-6)
OUTCOMES = ("right", "wrong", "open", "raised")  # converged and below tol, converged and above, not converged, an error
OFFSETS = (0.0, 0.0, 1.0, 30.0)  # of the clouds, in their widths


def random(bench: Bench) -> None:
    warnings.simplefilter("ignore", RuntimeWarning)  # that one did not converge is counted
    end = time.monotonic() + bench.seconds
    found: list[tuple[str, str, float]] = []  # dtype, outcome, error/tol
    messages: set[str] = set()
    for seed in range(max(40, PROBLEMS // bench.shrink)):
        if time.monotonic() > end:
            break
        p, tol = draw(seed, bench.device)
        outcome, ratio, message = judge(p, tol)
        found.append((str(p.x.dtype).removeprefix("torch."), outcome, ratio))
        if message and message not in messages:
            messages.add(message)
            sizes = f"{len(p.x)} × {len(p.y)} × {p.x.shape[1]}"
            bench.add(case=f"seed {seed}: {sizes}, λ = {p.reg:.3g}, tol {tol:g}, {p.x.dtype}", message=message)
    for kind in [*sorted({kind for kind, _, _ in found}), "all"]:
        rows = [row for row in found if kind in (row[0], "all")]
        outcomes = Counter(outcome for _, outcome, _ in rows)
        bench.add(case=kind, ran=len(rows), **{o: outcomes[o] for o in OUTCOMES}, worst=max(ratio for _, _, ratio in rows))


def judge(p: Problem, tol: float) -> tuple[str, float, str]:
    """One of OUTCOMES, error/tol of what is called converged, and what there is to say."""
    try:
        r = solve(p, tol, max_depth=LAYERS)
    except Exception as raised:  # that it raises is what is to be found
        return "raised", 0.0, one_line(raised)
    if not r.converged:
        return "open", 0.0, ""
    error = marginal_error(p, *r.potentials)
    if error <= tol:  # false for NaN
        return "right", error / tol, ""
    return "wrong", error / tol, f"error {error:.3g}, read as {r.marginal_error:.3g}"


def draw(seed: int, device: str) -> tuple[Problem, float]:
    """A problem and its tol."""
    rng = np.random.default_rng(seed)
    n, m = (round(SIZE ** rng.random()) for _ in range(2))
    d, dtype = int(rng.choice(DIMENSIONS)), DTYPES[rng.integers(len(DTYPES))]
    offset = rng.choice(OFFSETS) * rng.normal(size=d)
    x, y = (torch.as_tensor(_cloud(rng, size, d) + offset, device=device).to(dtype) for size in (n, m))
    largest = float(torch.cdist(x.double(), y.double()).max()) ** 2  # of the points as they are given
    ratio = float(np.exp(rng.uniform(np.log(2), np.log(3000))))
    reg = (largest or 1.0) / ratio
    a, b = (_random_weights(rng, size, dtype, device) for size in (n, m))
    return Problem(x, y, a, b, reg), float(rng.choice(TOLS))


def _cloud(rng: np.random.Generator, n: int, d: int) -> Any:
    kind = rng.integers(4)
    points = rng.random((n, d)) if kind == 0 else rng.normal(size=(n, d))
    if kind == 2:
        points = 0.1 * points + rng.random((5, d))[rng.integers(5, size=n)]
    if kind == 3:
        points *= np.logspace(0, -2, d)
    if rng.random() < 0.2:
        points[n // 2 :] = points[: n - n // 2]  # every point of the first half twice
    return points * 10 ** rng.uniform(-1, 1)


def _random_weights(rng: np.random.Generator, n: int, dtype: torch.dtype, device: str) -> Tensor | None:
    """None, random, or random with zeros; of mass 1, and in float32 where the points have less."""
    kind = rng.integers(3)
    if kind == 0:
        return None
    w = rng.random(n) + 1e-3
    if kind == 2:
        w *= rng.random(n) > 0.3
    w = w if w.any() else np.ones(n)
    return torch.as_tensor(w / w.sum(), device=device).to(torch.promote_types(dtype, torch.float32))
