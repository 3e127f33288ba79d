"""Two versions of otformer on the benchmark's own problems, through the public functions, in one run.

    python bench/versions.py /path/to/old/src /path/to/new/src --n 20 200 1000

Each version has a process of its own; they take turns, round by round, so that the machine's moods hit both. A row is the
least over rounds of the processor seconds of one call, the marginal error both reached, and the ratio new/old: under 1 the
new one is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

FAMILIES = ("uniform-2d", "sorting-1d", "gaussian-10d", "random", "gaussian-64d", "clustered", "words")


def serve() -> None:
    """Answer {"call", "family", "n", "reg", "times"} lines with processor seconds per call and the marginal error."""
    import time

    import numpy as np

    import otformer as of
    from otformer.lab.benchmarks.problems import make, sentences

    def call(spec: dict) -> tuple[float, float]:
        what, reg = spec["call"], spec["reg"]
        if what == "solve_batch":
            many = [(p.x, p.y) for p in sentences(spec["n"])]
            run = lambda: of.solve_batch(many, reg=reg)  # noqa: E731
        else:
            p = make(spec["family"], spec["n"])
            run = {
                "solve": lambda: of.solve(p.C, p.a, p.b, reg=reg),
                "solve_sample": lambda: of.solve_sample(p.x, p.y, reg=reg),
                "stream": lambda: of.solve_sample(p.x, p.y, reg=reg, executor="stream"),
                "sinkhorn": lambda: of.sinkhorn(p.a, p.b, p.C, reg, stopThr=1e-7),
            }[what]
        run()
        start = time.process_time()
        for _ in range(spec["times"]):
            found = run()
        seconds = (time.process_time() - start) / spec["times"]
        if what == "solve_batch":
            return seconds, max(r.marginal_error for r in found)
        if what == "sinkhorn":
            return seconds, float(np.abs(found.sum(0) - p.b).sum() + np.abs(found.sum(1) - p.a).sum())
        return seconds, found.marginal_error

    for line in sys.stdin:
        print(json.dumps(call(json.loads(line))), flush=True)


def start(source: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--serve"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process: subprocess.Popen[str], spec: dict) -> tuple[float, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(spec) + "\n")
    process.stdin.flush()
    return tuple(json.loads(process.stdout.readline()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", nargs="*", help="src folders of the old and the new version")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--n", nargs="+", type=int, default=[20, 200, 1000])
    parser.add_argument("--reg", nargs="+", type=float, default=[0.05, 0.001])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.serve:
        return serve()
    if len(options.sources) != 2:
        parser.error(f"give two src folders, got {len(options.sources)}")
    sides = [start(source) for source in options.sources]
    specs = [("solve_batch", "sentences", 1000, 0.05), ("stream", "uniform-2d", 2000, 0.01)]
    specs += [(what, "uniform-2d", 20, reg) for what in ("solve_sample", "sinkhorn") for reg in options.reg]
    specs += [("solve", family, n, reg) for n in options.n for reg in options.reg for family in FAMILIES]
    print("| call | family | n | λ | old, ms | new, ms | new/old | error, old | error, new |")
    print("|---" * 9 + "|")
    for what, family, n, reg in specs:
        spec = {"call": what, "family": family, "n": n, "reg": reg, "times": max(1, min(50, 2000 // n))}
        rounds = [[ask(side, spec) for side in sides] for _ in range(options.rounds)]
        (old, new), errors = ([min(r[k][0] for r in rounds) for k in (0, 1)]), rounds[0]
        row = f"{1e3 * old:.3g} | {1e3 * new:.3g} | {new / old:.2f} | {errors[0][1]:.1e} | {errors[1][1]:.1e}"
        print(f"| {what} | {family} | {n} | {reg:g} | {row} |", flush=True)


if __name__ == "__main__":
    main()
