"""Two versions of otformer on the problems of `otformer bench`, through the public functions, in one run.

    python bench/versions.py /path/to/old/src /path/to/new/src [--only small cpu ragged exact] [--limit 10]

The problems are made here and written to a file, so a version need not know the benchmark. Each version has a process of
its own; they take turns, round by round, so that both meet the same load. A row is the least over rounds of the processor
seconds of one call, the marginal error (exact: the relative gap) of both, and the ratio new/old: below 1 the new version
is faster. Rows above ``--retry`` are measured again with three times the rounds, which tells noise from a slowdown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ENTROPIC = ("uniform-2d", "sorting-1d", "gaussian-10d", "random", "gaussian-64d", "clustered", "words")
EXACT = ("uniform-2d", "uniform-3d", "uniform-20d", "clustered", "ring", "ties", "weights")


def serve() -> None:
    """Answer each line {"call", "file", "reg", "times"} with processor seconds per call and the error reached."""
    import time

    import numpy as np

    import otformer as of

    for line in sys.stdin:
        spec = json.loads(line)
        p, reg = np.load(spec["file"], allow_pickle=False), spec["reg"]
        C, x, y, a, b = (p.get(name, None) for name in ("C", "x", "y", "a", "b"))
        many = [(p[f"x{k}"], p[f"y{k}"]) for k in range(int(p["many"]))] if "many" in p else []
        run = {
            "solve": lambda: of.solve(C, a, b, reg=reg),  # noqa: B023
            "solve_sample": lambda: of.solve_sample(x, y, a, b, reg=reg),  # noqa: B023
            "stream": lambda: of.solve_sample(x, y, a, b, reg=reg, executor="stream"),  # noqa: B023
            "sinkhorn": lambda: of.sinkhorn(a, b, C, reg, stopThr=1e-7),  # noqa: B023
            "solve_batch": lambda: of.solve_batch(many, reg=reg),  # noqa: B023
        }[spec["call"]]
        run()
        start = time.process_time()
        for _ in range(spec["times"]):
            found: Any = run()
        seconds = (time.process_time() - start) / spec["times"]
        if spec["call"] == "solve_batch":
            error = max(r.marginal_error for r in found)
        elif spec["call"] == "sinkhorn":
            error = float(np.abs(found.sum(0) - b).sum() + np.abs(found.sum(1) - a).sum())
        else:
            error = found.gap / max(abs(float(found.value)), 1e-300) if reg == 0 else found.marginal_error
        print(json.dumps((seconds, float(error))), flush=True)


class Side:
    """One version, in a process that answers."""

    def __init__(self, source: str) -> None:
        environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--serve"]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, spec: dict[str, Any]) -> tuple[float, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(spec), file=self.process.stdin, flush=True)
        seconds, error = json.loads(self.process.stdout.readline())
        return seconds, error


def rows(scenario: str) -> Iterator[tuple[str, str, int, float]]:
    """Call, family, n and λ of a scenario."""
    if scenario == "small":
        yield from (("solve_sample", "uniform-2d", 20, reg) for reg in (0.05, 0.001))
        yield from (("sinkhorn", "uniform-2d", 20, reg) for reg in (0.05, 0.001))
        yield from (("solve", family, n, reg) for n in (20, 100, 200) for reg in (0.05, 0.001) for family in ENTROPIC)
    elif scenario == "cpu":
        yield "stream", "uniform-2d", 2000, 0.01
        yield from (("solve", family, 2000, reg) for reg in (0.05, 0.001) for family in ENTROPIC)
    elif scenario == "ragged":
        yield from (("solve_batch", "sentences", count, 0.05) for count in (100, 1000))
    else:
        yield from (("solve_sample", family, n, 0.0) for n in (20, 100, 500, 2000) for family in EXACT)
        yield from (("solve", family, n, 0.0) for n in (20, 100, 500, 2000) for family in EXACT)


def write_problem(scenario: str, family: str, n: int, file: Path) -> None:
    import numpy as np
    from scipy.spatial.distance import cdist

    from otformer.lab.benchmarks import exact_peers, problems

    if scenario == "ragged":
        many = problems.sentences(n)
        points = {f"{side}{k}": getattr(p, side) for k, p in enumerate(many) for side in "xy"}
        np.savez(file, many=n, **points)
        return
    p: Any = exact_peers.make(family, n) if scenario == "exact" else problems.make(family, n)
    C = cdist(p.x, p.y, "sqeuclidean") if scenario == "exact" else p.C
    arrays = {"x": p.x, "y": p.y, "a": p.a, "b": p.b, "C": C}
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", nargs="*", help="src folders of the old and the new version")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", default=["small", "cpu", "ragged", "exact"], metavar="SCENARIO")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds per row and version: slow rows have fewer rounds")
    parser.add_argument("--retry", type=float, default=1.05, help="ratios above this are measured again")
    options = parser.parse_args()
    if options.serve:
        return serve()
    if len(options.sources) != 2:
        parser.error(f"give two src folders, got {len(options.sources)}")
    old, new = (Side(source) for source in options.sources)
    print("| scenario | call | family | n | λ | old, ms | new, ms | new/old | error, old | error, new |")
    print("|---" * 10 + "|")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "problem.npz"
        for scenario, (call, family, n, reg) in ((s, row) for s in options.only for row in rows(s)):
            write_problem(scenario, family, n, file)
            spec = {"call": call, "file": str(file), "reg": reg, "times": 1}
            seconds, _ = new.ask(spec)
            spec["times"] = max(1, min(50, int(0.05 / max(seconds, 1e-6))))
            rounds = max(1, min(options.rounds, int(options.limit / max(seconds * (spec["times"] + 1), 1e-6))))
            measured = [(old.ask(spec), new.ask(spec)) for _ in range(rounds)]
            if min(m[1] for m in measured)[0] > options.retry * min(m[0] for m in measured)[0]:
                measured += [(old.ask(spec), new.ask(spec)) for _ in range(3 * rounds)]
            (before, e_before), (after, e_after) = (min(m[k] for m in measured) for k in (0, 1))
            numbers = f"{1e3 * before:.3g} | {1e3 * after:.3g} | {after / before:.2f} | {e_before:.1e} | {e_after:.1e}"
            print(f"| {scenario} | {call} | {family} | {n} | {reg:g} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
