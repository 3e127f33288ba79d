"""The GPU benchmark: us and flash-sinkhorn on CUDA, float32, uniform points in a cube, the largest cost 1, λ = 0.001.

    PYTHONPATH=src python bench/gpu.py [--minutes 8] [--only SECTION …] [--tune-all]

flash_sinkhorn is used if it is installed or on PYTHONPATH. Every section runs in a process of its own, which is ended when
its time is up; results are printed and, as they come, written to gpu.jsonl and gpu.csv in --out ($OUT or bench/results).

``error`` is max(mean_i |n Σ_j P_ij − 1|, mean_j |n Σ_i P_ij − 1|), computed here in float64 from the potentials a solver
returned and the points it was given; over 4,096 rows and columns drawn at random where n > 50,000. Times are of a second
run, from points on the device to potentials; ours are of the public `of.solve_sample(…, executor="stream")`. The iterations
of flash-sinkhorn end when its own reading of the error is under SAFE times tol.
flash-sinkhorn's alternating solver, run without TF32, has no stop by marginals: its iterations are counted first (its own
kernel, error read every ten), then its function is timed for that many; where counting took over LONG seconds, the time
of the counting stands. It tunes its kernel over 44 shapes; here over six of them unless --tune-all. Its multiscale mode
stops by itself at tol and solves for points it has rounded to TF32.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu_common import CASES, REG, TOL, cube, exact_error, timed
from gpu_flash import flash, multiscale
from torch import Tensor

import otformer as of
from otformer.files import write_csv


def ours(x: Tensor, y: Tensor, tol: float, max_depth: int = 2000) -> Any:
    """The public call. Its tol bounds the sum of both sides' errors, so it is met if that of the worse side is."""
    return of.solve_sample(x, y, reg=REG, tol=tol, max_depth=max_depth, executor="stream")


def solve(add: Callable[..., None], d: int, n: int, tol: float = TOL) -> None:
    x, y = cube(n, d)
    ours(x, y, tol)  # compiles, and loads what torch loads when it is first used
    seconds, r, memory = timed(lambda: ours(x, y, tol))
    add(who="otformer", d=d, n=n, tol=tol, seconds=seconds, passes=r.depth, read=r.marginal_error,
        error=exact_error(x, y, *r.potentials), gib=memory)  # fmt: skip


def ours_section(add: Callable[..., None]) -> None:
    for d, n in CASES:
        solve(add, d, n)


def million(add: Callable[..., None]) -> None:
    for tol in (1e-3, TOL):
        solve(add, 3, 1_000_000, tol)


def memory(add: Callable[..., None]) -> None:
    """64 dimensions: the least depth, and what that allocates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # four layers do not converge
        ours(*cube(1000, 64), TOL, max_depth=4)  # compiles
        for n in (250_000, 500_000, 1_000_000):
            x, y = cube(n, 64)
            seconds, r, gib = timed(lambda x=x, y=y: ours(x, y, TOL, max_depth=4))
            add(who="otformer", d=64, n=n, seconds=seconds, passes=r.depth, gib=gib, points_gib=2 * x.numel() * 4 / 2**30)


def passes(add: Callable[..., None]) -> None:
    """The kernel itself, one pass from v = 0: over all pairs (λ = 0.1, or 64 dimensions), and with far tiles left out."""
    from otformer.transport.executors import stream as executor


    for d, n, dtype in ((3, 50_000, "float32"), (3, 50_000, "float64"), (3, 1_000_000, "float32"), (3, 1_000_000, "float64"),
                        (64, 50_000, "float32")):  # fmt: skip
        x, y = cube(n, d)
        x, y = (t.to(getattr(torch, dtype)) for t in (x, y))
        uniform = torch.full_like(x[:, 0], 1 / n).log()
        stream = executor.Stream(of.squared_euclidean(x, y), uniform, uniform)
        u, v = torch.zeros_like(uniform), torch.zeros_like(uniform)
        for reg in (0.1, REG) if dtype == "float32" else (REG,):
            stream.log_ratio(u, v, reg, rows=True)
            times = [timed(lambda s=stream, u=u, v=v, reg=reg: s.log_ratio(u, v, reg, rows=True))[0] for _ in range(3)]
            add(who="otformer", d=d, n=n, dtype=dtype, reg=reg, seconds=sorted(times)[1])


def scaling(add: Callable[..., None]) -> None:
    """Time and memory to the error against n, three dimensions; exponents fitted where n ≥ 30,000."""
    rows: list[dict[str, Any]] = []

    def keep(**row: Any) -> None:
        rows.append(row)
        add(**row)

    for n in (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000):
        solve(keep, 3, n)
    large = [row for row in rows if row["n"] >= 30_000]
    logs = torch.tensor([[math.log(row[key]) for row in large] for key in ("n", "seconds", "gib")], dtype=torch.float64)
    logs -= logs.mean(1, keepdim=True)
    slopes = logs[1:] @ logs[0] / logs[0].square().sum()
    add(who="otformer", d=3, fitted="n ≥ 30,000", time_exponent=float(slopes[0]), memory_exponent=float(slopes[1]))


def sentences(add: Callable[..., None]) -> None:
    """10,000 ragged problems in one call, costs on the device, λ = 0.05, tol 1e-6."""
    from otformer.benchmarks.problems import sentences as generate

    problems = [torch.as_tensor(p.C, device="cuda") for p in generate(10_000)]
    of.solve_batch(problems, reg=0.05, tol=1e-6)
    seconds, results, gib = timed(lambda: of.solve_batch(problems, reg=0.05, tol=1e-6))
    worst = max(_plan_error(r.plan) for r in results)
    add(who="otformer", problems=len(results), seconds=seconds, converged=sum(r.converged for r in results), error=worst,
        gib=gib)  # fmt: skip


def _plan_error(plan: Tensor) -> float:
    """L1 error of both marginals against uniform ones."""
    plan, (n, m) = plan.double(), plan.shape
    return float((plan.sum(1) - 1 / n).abs().sum() + (plan.sum(0) - 1 / m).abs().sum())


# ── the harness ───────────────────────────────────────────────────────────────────────────────────────────────────────

SECTIONS: dict[str, tuple[Callable[[Callable[..., None]], None], float]] = {  # and seconds, at most
    "ours": (ours_section, 40),
    "million": (million, 150.0),
    "memory": (memory, 40),
    "passes": (passes, 30),
    "flash": (flash, 130),
    "multiscale": (multiscale, 90),
    "sentences": (sentences, 60),
    "scaling": (scaling, 50),
}


def child(section: str, out: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False

    def add(**values: Any) -> None:
        row = {"section": section, **values}
        with (out / "gpu.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print("  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()), flush=True)

    SECTIONS[section][0](add)


def ratios(rows: list[dict[str, Any]]) -> list[str]:
    """Their time over ours, problem by problem."""
    mine = {(r["d"], r["n"], r["tol"]): r["seconds"] for r in rows if r["section"] in ("ours", "million")}
    theirs = [r for r in rows if r["section"] in ("flash", "multiscale") and (r["d"], r["n"], r["tol"]) in mine]
    return [
        f"{r['who']}, d = {r['d']}, n = {r['n']:,}, tol {r['tol']:g}: "
        f"{r['seconds'] / mine[r['d'], r['n'], r['tol']]:.1f} times our time"
        + ("" if r.get("reached", True) else " and not there yet")
        for r in theirs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "bench/results")))
    parser.add_argument("--minutes", type=float, default=8.0, help="end within this time")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--tune-all", action="store_true", help="let flash-sinkhorn tune over all of its shapes")
    parser.add_argument("--child", choices=SECTIONS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench/gpu.py needs a CUDA device")
    if options.child:
        child(options.child, options.out)
        return
    end = time.monotonic() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu.jsonl").write_text("")
    print(f"{torch.cuda.get_device_name()}, Python {sys.version.split()[0]}, torch {torch.__version__}", flush=True)
    for name in options.only:
        limit = min(SECTIONS[name][1], end - time.monotonic())
        if name in ("flash", "multiscale") and importlib.util.find_spec("flash_sinkhorn") is None:
            print(f"{name}: flash_sinkhorn is not there", flush=True)
        elif limit > 10:
            command = [sys.executable, __file__, "--child", name, "--out", str(options.out)]
            try:
                subprocess.run(command + ["--tune-all"] * options.tune_all, timeout=limit, check=False)
            except subprocess.TimeoutExpired:
                print(f"{name}: ended after {limit:.0f} s", flush=True)
        else:
            print(f"{name}: no time left", flush=True)
    rows = [json.loads(line) for line in (options.out / "gpu.jsonl").read_text().splitlines()]
    columns = dict.fromkeys((key for row in rows for key in row), "")
    write_csv(options.out / "gpu.csv", [columns | row for row in rows])
    print("\n".join(ratios(rows)))


if __name__ == "__main__":
    main()
