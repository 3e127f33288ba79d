"""Time and memory of `solve_sharded` against n, rows of the cost over the ranks.

    torchrun --nproc-per-node 2 bench/sharded.py [--sizes 500 1000 2000 4000] [--reg 0.001]

Rank 0 prints a Markdown table and the fitted exponents; the error is the one `solve_sharded` computes in float64 over all
ranks, memory the most any rank's resident set grew by.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import otformer as of
from otformer.lab.benchmarks.measure import peak_memory
from otformer.lab.benchmarks.problems import make


def measure(n: int, reg: float, before: float) -> tuple[float, float, Any]:
    """Seconds, MiB and the result of one problem, the most over the ranks."""
    problem = make("uniform-2d", n)
    x, y = torch.from_numpy(problem.x), torch.from_numpy(problem.y)
    mine = x.tensor_split(dist.get_world_size())[dist.get_rank()]
    dist.barrier()
    start = time.perf_counter()
    result = of.solve_sharded(mine, y, reg=reg, tol=1e-6)
    numbers = torch.tensor([time.perf_counter() - start, peak_memory() - before], dtype=torch.float64)
    dist.all_reduce(numbers, dist.ReduceOp.MAX)
    return *numbers.tolist(), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[500, 1000, 2000, 4000])
    parser.add_argument("--reg", type=float, default=0.001)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    sizes = sorted(options.sizes)
    measure(100, options.reg, 0.0)  # warm
    before = peak_memory()
    rows = [(n, *measure(n, options.reg, before)) for n in sizes]  # sizes grow, so the peak so far is this one's
    if dist.get_rank() == 0:
        print(f"\nuniform-2d, λ = {options.reg:g}, tol 1e-6, {dist.get_world_size()} gloo ranks, one thread each\n")
        print("| n | time, s | memory per rank, MiB | layers | error |\n|---|---|---|---|---|")
        for n, seconds, memory, result in rows:
            print(f"| {n} | {seconds:.3g} | {memory:.0f} | {result.depth} | {result.marginal_error:.1e} |")
        logs = np.log([[n, seconds, max(memory, 1.0)] for n, seconds, memory, _ in rows])
        slopes = [np.polyfit(logs[:, 0], logs[:, k], 1)[0] for k in (1, 2)]
        print(f"\ntime ∝ n^{slopes[0]:.2f}, memory ∝ n^{slopes[1]:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
