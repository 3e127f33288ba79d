"""Transport on a graph of nearest neighbours beside that between all pairs: values, seconds, and which k have a plan.

    python bench/graph.py [--points 2000 20000] [--dimensions 2 3] [--neighbours 10 20 40] [--reg 0.001] [--full-up-to 5000]

Both clouds are uniform in the unit cube, with equal weights. Columns: edges, as a share of all pairs; seconds to find the
neighbours; seconds of the exact solve on the graph, and by how much its value is above that of all pairs; the same for the
entropic solve at λ = ``--reg`` (Σ P C + λ Σ P log P). Above ``--full-up-to`` points the entropic problem of all pairs is
not solved. "none": the graph has no plan with these marginals. Compilation is not counted.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import otformer as of


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, None where there is no plan, and its seconds."""
    began = time.perf_counter()
    try:
        found = run()
    except ValueError as error:
        if not re.search("allow (no|a) plan", str(error)):
            raise
        found = None
    return found, time.perf_counter() - began


def column(found: Any, seconds: float, full: Any) -> str:
    """Seconds, and how far the value is above that of all pairs."""
    if found is None:
        return f"{seconds:8.2f} {'none':>9}"
    above = "" if full is None else f"{(found.value - full.value) / abs(full.value):9.1e}"
    return f"{seconds:8.2f} {above:>9}"


def compare(n: int, d: int, neighbours: list[int], reg: float, full_up_to: int) -> None:
    x, y = np.random.default_rng(0).random((2, n, d))
    exact_full, seconds = timed(partial(of.solve_sample, x, y, reg=0))
    entropic_full, line = None, f"{n:7,} {d:2} {'all':>4} {'100 %':>9} {'':8} {seconds:8.2f}"
    if n <= full_up_to:
        entropic_full, seconds = timed(partial(of.solve_sample, x, y, reg=reg))
        line += f" {'':9} {seconds:8.2f}"
    print(line, flush=True)
    for k in neighbours:
        graph, seconds = timed(partial(of.neighbour_graph, x, y, k))
        share = f"{100 * len(graph.allowed()[0]) / n**2:.2g} %"
        exact, exact_seconds = timed(partial(of.solve, graph, reg=0))
        columns = [column(exact, exact_seconds, exact_full)]
        if exact is not None:  # without a plan, layers would run up to max_depth
            columns.append(column(*timed(partial(of.solve, graph, reg=reg)), entropic_full))
        print(f"{n:7,} {d:2} {k:4} {share:>9} {seconds:8.2f}", *columns, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[2000, 20_000])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--neighbours", type=int, nargs="+", default=[10, 20, 40])
    parser.add_argument("--reg", type=float, default=1e-3)
    parser.add_argument("--full-up-to", type=int, default=5000)
    options = parser.parse_args()
    x, y = np.random.default_rng(1).random((2, 600, 2))
    for M in (of.neighbour_graph(x, y, 40), of.neighbour_graph(x, y, 8)):  # compile what solves, and what finds no plan
        timed(partial(of.solve, M, reg=0))
    timed(partial(of.solve_sample, x, y, reg=0))
    print(f"{'n':>7} {'d':>2} {'k':>4} {'edges':>9} {'find, s':>8} {'exact, s':>8} {'above':>9} {'λ, s':>8} {'above':>9}")
    for n in options.points:
        for d in options.dimensions:
            compare(n, d, options.neighbours, options.reg, options.full_up_to)


if __name__ == "__main__":
    main()
