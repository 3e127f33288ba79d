"""Exact couplings for flow matching: `OTPlanSampler.pairs` beside POT's emd on torch.cdist², which is what torchcfm runs.

    python bench/couplings.py [--sizes 256 1024 4096] [--dims 2 784 3072] [--repeat 3] [--only-ours]

**Problems.** n points x0 of a normal distribution, float32, and n points x1 uniform in a cube: noise, and data that are not.

**Columns.** Times are of whole calls, points to pairs, both sides in turns, the best of the turns, and "ratio" is POT's over
ours; a machine with other work on it changes both, not always alike. "excess" is POT's mean cost over ours, less 1, both
summed in float64 from the pairs by differences. "left out" is the share of x0 that n draws with replacement from a
permutation miss: torchcfm draws so by default, and the draw is made here, not by torchcfm. `sample_plan(replace=False)`
misses none. "profile" has the three functions of ours that take longest, with their shares. torchcfm stops POT's solver at
100,000 iterations; here it may take `ITERATIONS`.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable

import ot
import torch
from torch import Tensor

from otformer.nn.couplings import OTPlanSampler

ITERATIONS = 10**7  # of POT's solver at most
Pairs = tuple[Tensor, Tensor]


def points(n: int, d: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(n + d)
    return torch.randn(n, d, generator=g), torch.rand(n, d, generator=g)


def ours(x: Tensor, y: Tensor) -> Pairs:
    return OTPlanSampler("exact").pairs(x, y)


def pots(x: Tensor, y: Tensor) -> Pairs:
    plan = ot.emd([], [], (torch.cdist(x, y) ** 2).numpy(), numItermax=ITERATIONS)
    i, j = torch.from_numpy(plan).nonzero().unbind(1)
    return i, j


def mean_cost(x: Tensor, y: Tensor, pairs: Pairs) -> float:
    i, j = pairs
    return float((x[i].double() - y[j].double()).square().sum(1).mean())


def timed(call: Callable[[Tensor, Tensor], Pairs], x: Tensor, y: Tensor) -> tuple[float, Pairs]:
    start = time.perf_counter()
    found = call(x, y)
    return time.perf_counter() - start, found


def profile(x: Tensor, y: Tensor) -> str:
    profiler = cProfile.Profile()
    profiler.runcall(ours, x, y)
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    own = sorted(((entry[2], place[2]) for place, entry in stats.items()), reverse=True)
    total = sum(seconds for seconds, _ in own)
    return ", ".join(f"{name.split('.')[-1].strip('<>}')} {seconds / total:.0%}" for seconds, name in own[:3])


def compare(n: int, d: int, repeat: int, only_ours: bool) -> str:
    x, y = points(n, d)
    calls = [ours] if only_ours else [ours, pots]
    turns = [[timed(call, x, y) for call in calls] for _ in range(repeat)]
    seconds = [min(turn[k][0] for turn in turns) for k in range(len(calls))]
    costs = [mean_cost(x, y, found) for _, found in turns[0]]
    line = f"{n:6} {d:6} {seconds[0]:10.3f}"
    if not only_ours:
        left = 1 - len(torch.randint(n, (n,)).unique()) / n
        line += f" {seconds[1]:10.3f} {seconds[1] / seconds[0]:7.1f} {costs[1] / costs[0] - 1:10.1e} {left:9.0%}"
    return f"{line}   {profile(x, y)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 784, 3072])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only-ours", action="store_true")
    args = parser.parse_args()
    for d in (2, 16):  # what is compiled on the first call is compiled here
        for n in (64, 600, 1100):
            ours(*points(n, d))
    print(f"{torch.get_num_threads()} threads of torch")
    print(f"{'n':>6} {'d':>6} {'ours, s':>10}", end="")
    print("   profile" if args.only_ours else f" {'POT, s':>10} {'ratio':>7} {'excess':>10} {'left out':>9}   profile")
    for n in args.sizes:
        for d in args.dims:
            print(compare(n, d, args.repeat, args.only_ours), flush=True)


if __name__ == "__main__":
    main()
