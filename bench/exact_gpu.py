"""Exact transport on a GPU: `of.solve_sample(x, y, reg=0)` between points that lie there, and many small problems at once.

    PYTHONPATH=src python bench/exact_gpu.py --out DIR [--only CASE …] [--minutes 8]

The cases run one after another in a process that ends itself when one is over its time; another then goes on with the next.
Every result is a line of exact_gpu.jsonl in --out as soon as there is one, so that a run that is killed keeps what it has,
and a run with --keep goes on from there; the table comes at the end. --help lists the cases.

Times are of the second call (the first compiles), from points on the device in float64 until value, gap and permutation or
pairs have been read; ``first`` is the call before it, compilation included. ``gap`` is relative to the value, over all pairs
in float64; ``GiB`` is the most that was allocated on the device, points included. With --parts a third call says where the
time goes: the start, all looks at all pairs, the flow on the sparse graph. --check recomputes the certificate.

Exact transport needs numba, also on a GPU: pip install numba.

Without a GPU, ``--device cpu --shrink 50`` tries the cases on sizes a fiftieth as large.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from exact_gpu_families import TARGETS, certificate, drawn
from gpu_common import one_line, timed

import otformer as of
from otformer.lab.benchmarks.exact_peers import Problem, make, uniform

BATCH, SMALL = 10_000, 64  # problems of so many points each
LOOPED = 1_000  # of them that scipy solves; its time is scaled up
Row = dict[str, Any]


class Case(NamedTuple):
    """``run`` takes the options; ``limit``: seconds for all of it."""

    run: Callable[[argparse.Namespace], Row]
    limit: float
    what: str


def points(problem: Callable[[int], Problem], n: int, options: argparse.Namespace) -> Row:
    """One problem of n points per side."""
    device = options.device
    p = problem(max(n // options.shrink, 20))
    x, y, a, b = (None if t is None else torch.from_numpy(t).to(device) for t in p)

    def run() -> Any:
        result: Any = of.solve_sample(x, y, a, b, reg=0)
        _ = float(result.value), result.gap, result.pairs[1].cpu()
        return result

    first, _, _ = timed(run, device)
    seconds, result, gib = timed(run, device)
    value = float(result.value)
    told = {"n": len(p.x), "d": p.x.shape[1], "seconds": seconds, "first": first, "value": value}
    told |= {"gap": result.gap / abs(value), "converged": result.converged, "rounds": result.rounds}
    told |= {"layers": result.depth, "method": result.method, "GiB": gib}
    told |= certificate(p, result, device) if options.check else {}
    return told | (parts(run, device) if options.parts else {})


def parts(run: Callable[[], Any], device: str) -> Row:
    """Seconds of the three parts of one call, by functions inside of it: the one thing here that is not public."""
    from otformer.transport.costs.matrix import MatrixCost
    from otformer.transport.costs.points import PointsCost
    from otformer.transport.exact import all_pairs, find_optimum, flow_graph

    spent: Row = {}
    with ExitStack() as stack:
        for part, owners, name in (
            ("start, s", [find_optimum], "_potentials"),
            ("looks, s", [MatrixCost, PointsCost], "least"),
            ("flow, s", [flow_graph.Matching, flow_graph.Tree, all_pairs.AllPairs], "run"),
        ):
            for owner in owners:
                inner = getattr(owner, name)

                def outer(*args: Any, _inner: Any = inner, _part: str = part, **options: Any) -> Any:
                    seconds, result, _ = timed(lambda: _inner(*args, **options), device)
                    spent[_part] = spent.get(_part, 0.0) + seconds
                    return result

                stack.enter_context(mock.patch.object(owner, name, outer))
        run()
    return spent


def batch(where: str, options: argparse.Namespace) -> Row:
    """Many small problems: in one call, or (scipy) some of them one by one."""
    M = np.random.default_rng(0).random((max(BATCH // options.shrink, 20), SMALL, SMALL))
    if where == "scipy":
        from scipy.optimize import linear_sum_assignment

        some = M[:LOOPED]
        seconds, found, _ = timed(lambda: [m[linear_sum_assignment(m)].mean() for m in some], "cpu")
        return {"n": len(M), "seconds": seconds * len(M) / len(some), "solved": len(some), "value": float(np.mean(found))}
    costs = torch.from_numpy(M).to(options.device if where == "device" else "cpu")

    def run() -> list[Any]:
        results = of.solve_batch(costs, reg=0)
        _ = torch.stack([r.value for r in results]).cpu()
        return results

    first, _, _ = timed(run, costs.device.type)
    seconds, results, gib = timed(run, costs.device.type)
    values = [float(r.value) for r in results]
    gap = max(r.gap / abs(value) for r, value in zip(results, values, strict=True))
    told = {"n": len(M), "seconds": seconds, "first": first, "value": float(np.mean(values[:LOOPED])), "gap": gap}
    return told | {"converged": all(r.converged for r in results), "method": results[0].method, "GiB": gib}


def _uniform(d: int, n: int) -> Problem:
    return Problem(*uniform(d)(n, np.random.default_rng([d, n])))


def _cases() -> dict[str, Case]:
    """In the order of what matters most."""
    cases = {}
    for n, d, limit in (
        (10_000, 3, 60), (10_000, 32, 60), (65_536, 3, 60), (65_536, 16, 60), (262_144, 3, 120), (1_000_000, 3, 300),
    ):  # fmt: skip
        cases[f"{n}x{d}"] = Case(partial(points, partial(_uniform, d), n), limit, "uniform")
    for name, family, n, limit, what in (
        ("clusters", "clustered", 20_000, 60, "20 clusters → 15 clusters, 3-D"),
        ("clusters-large", "clustered", 262_144, 200, "20 clusters → 15 clusters, 3-D"),
        ("ring", "ring", 20_000, 60, "Gaussian → ring, 2-D"),
        ("ties", "ties", 8_000, 60, "integer grid, 3-D"),
        ("weights", "weights", 20_000, 90, "uniform in 3-D, random weights"),
    ):
        cases[name] = Case(partial(points, partial(make, family), n), limit, what)
    for name, hard in TARGETS.items():
        limit, what = 5 * hard.aim + 60, f"aim: {hard.aim:.0f} s; see exact_gpu_families.py"
        cases[name] = Case(partial(points, partial(drawn, name), hard.n), limit, what)
    for where, what in (("device", "in one call, on the device"), ("cpu", "in one call, on the CPU"), ("scipy", "a loop")):
        cases[f"batch-{where}"] = Case(partial(batch, where), 90, f"{BATCH:,} random costs {SMALL} × {SMALL}, {what}")
    return cases


CASES = _cases()


def add(out: Path, **row: Any) -> None:
    with (out / "exact_gpu.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    print("  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()), flush=True)


def recorded(out: Path) -> dict[str, Row]:
    """The rows so far, by case."""
    file = out / "exact_gpu.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {row["case"]: row for row in rows}


def child(options: argparse.Namespace) -> None:
    """The cases one after another; an alarm without a handler ends the process, wherever it is."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    end = time.monotonic() + 60 * options.minutes
    for name in options.only:
        limit = min(CASES[name].limit, end - time.monotonic())
        if limit < 5:
            add(options.out, case=name, failed="no time left")
            continue
        print(f"── {name}: {CASES[name].what}, at most {limit:.0f} s", flush=True)
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it has not converged is in the row
                row = CASES[name].run(options)
        except Exception as error:  # the next case has its turn
            row = {"failed": one_line(error)}
        signal.setitimer(signal.ITIMER_REAL, 0)
        add(options.out, case=name, **row)
        if options.device == "cuda":
            torch.cuda.empty_cache()


def run_all(options: argparse.Namespace) -> None:
    """Children until every case has a row: one that ended in the middle of a case has failed in it."""
    end = time.monotonic() + 60 * options.minutes
    left = [name for name in options.only if name not in recorded(options.out)]
    while left:
        minutes = max(0.0, (end - time.monotonic()) / 60)
        command = [sys.executable, __file__, "--child", "--out", str(options.out), "--minutes", str(minutes)]
        command += [
            "--device",
            options.device,
            "--shrink",
            str(options.shrink),
            *["--parts"] * options.parts,
            *["--check"] * options.check,
            "--only",
            *left,
        ]
        status = subprocess.run(command, check=False).returncode
        left = [name for name in left if name not in recorded(options.out)]
        if left:
            why = "over its time" if status == -signal.SIGALRM else f"exit status {status}"
            add(options.out, case=left.pop(0), failed=why)


def table(rows: dict[str, Row]) -> str:
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    lines = [keys, ["---"] * len(keys), *([_shown(row.get(key, "")) for key in keys] for row in rows.values())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(value: Any) -> str:
    return f"{value:,}" if type(value) is int else f"{value:.4g}" if isinstance(value, float) else str(value)


def arguments() -> argparse.Namespace:
    about = "\n".join(f"  {name:15} at most {case.limit:3.0f} s  {case.what}" for name, case in CASES.items())
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"cases:\n{about}", formatter_class=style)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "bench/results")))
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--minutes", type=float, default=8.0, help="end within this time")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--shrink", type=int, default=1, help="divide all sizes by this")
    parser.add_argument("--parts", action="store_true", help="a third call, which says where the time goes")
    parser.add_argument("--check", action="store_true", help="recompute the certificate here, over all pairs in float64")
    parser.add_argument("--keep", action="store_true", help="keep the rows of an earlier run, run only the other cases")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.child:
        child(options)
        return
    if importlib.util.find_spec("numba") is None:
        sys.exit("exact transport needs numba, which is not installed: pip install numba")
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("bench/exact_gpu.py needs a CUDA device; --device cpu --shrink 50 tries it without")
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.keep:
        (options.out / "exact_gpu.jsonl").write_text("")
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"{name}, {os.cpu_count()} cores, Python {sys.version.split()[0]}, torch {torch.__version__}", flush=True)
    run_all(options)
    print("\n" + table(recorded(options.out)))


if __name__ == "__main__":
    main()
