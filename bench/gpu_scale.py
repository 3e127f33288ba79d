"""Sections about size: memory, time against n, and one pass of the kernel itself."""

from __future__ import annotations

import math
import warnings

import torch
from gpu_common import TOL, Bench, marginal_error, solve
from gpu_families import alike, cube

LIMIT = 3.0  # GiB, for 1,000,000 × 64


def memory(bench: Bench) -> None:
    """64 dimensions: the least depth, and what that allocates."""
    warnings.simplefilter("ignore", RuntimeWarning)  # four layers do not converge
    solve(alike("cube", 1000, 64, 0.001, cube).draw(bench), max_depth=4)  # compiles
    for n in (250_000, 1_000_000):
        family = alike("cube", n, 64, 0.001, cube)
        p = family.draw(bench)
        with bench.attempt("otformer", family.case):
            seconds, r, gib = bench.timed(lambda p=p: solve(p, max_depth=4))
            bench.add(case=family.case, seconds=seconds, layers=r.depth, gib=gib, limit=LIMIT,
                      points_gib=2 * p.x.numel() * 4 / 2**30)  # fmt: skip


def scaling(bench: Bench) -> None:
    """Time and memory to the error against n, three dimensions; exponents fitted where n ≥ 30,000."""
    large: list[tuple[float, ...]] = []
    for n in (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000):
        family = alike("cube", n, 3, 0.001, cube)
        p = family.draw(bench)
        with bench.attempt("otformer", family.case):
            (seconds, r, gib), _ = bench.second(lambda p=p: solve(p, TOL))
            bench.add(case=family.case, seconds=seconds, layers=r.depth, error=marginal_error(p, *r.potentials),
                      converged=r.converged, gib=gib)  # fmt: skip
            large += [(math.log(n), math.log(seconds), math.log(gib))] if n >= 30_000 and gib else []
    if len(large) > 1:
        logs = torch.tensor(large, dtype=torch.float64).mT
        logs -= logs.mean(1, keepdim=True)
        time_exponent, memory_exponent = (logs[1:] @ logs[0] / logs[0].square().sum()).tolist()
        bench.add(case="fitted, n ≥ 30,000", time_exponent=time_exponent, memory_exponent=memory_exponent)


def passes(bench: Bench) -> None:
    """**The one section that is not of public calls**: the executor's kernel, one pass from v = 0.

    Over all pairs (λ = 0.1, or 64 dimensions), and with far tiles left out.
    """
    from otformer.transport.costs.gpu.kernel import OnGpu
    from otformer.transport.costs.gpu.layout import DOUBLE, MIXED, SINGLE

    kinds = {"float32": SINGLE, "float64 logits": MIXED, "float64": DOUBLE}
    for d, n in ((3, 50_000), (3, 1_000_000), (64, 50_000)):
        p = alike("cube", n, d, 0.001, cube).draw(bench, dtype=torch.float64)
        uniform = torch.full_like(p.x[:, 0], 1 / len(p.x)).log()
        with bench.attempt("otformer", f"{n:,} × {d}"):
            stream = OnGpu(p.x - p.x.mean(0), p.y - p.y.mean(0), uniform, uniform, 1.0, 0.001).stream
            v = torch.where(stream.log_b > -math.inf, 0.0, stream.log_b)
            for name, kind in kinds.items():
                for reg in (0.1, 0.001) if kind is SINGLE else (0.001,):
                    numbers, one = stream.at(kind, TOL).numbers(reg), stream.at(kind, TOL)
                    columns = one.columns(v, rows=False)
                    one.block(columns, numbers, rows=True)
                    seconds = bench.median(lambda o=one, c=columns, k=numbers: o.block(c, k, rows=True), 3)
                    bench.add(case=f"{n:,} × {d}, {name}, λ = {reg:g}", seconds=seconds)
