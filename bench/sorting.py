"""SoftRank and SoftSort beside fast-soft-sort and torchsort: how exact, how smooth and how fast, on a CPU.

    python bench/sorting.py [--sizes 10 100 1000] [--families normal even …] [--functions rank sort] [--repeat 3]

The other projects project onto permutations by isotonic regression, with a quadratic ("l2") or an entropic ("kl") penalty,
in O(n log n). Their code is not ours and not here: the packages fast_soft_sort and torchsort (with its extension built) are
looked for among what is installed and in carry/peers; one that is absent is left out with a line. Neither has a top k.

**Values.** Lists of n, `FAMILIES` below, brought to mean 0 and variance 1: a strength means the same for every list.

**Strength.** Every side blurs, and more of it is smoother and less exact; their units have nothing in common. Each has, for
each family and n, the strongest whose mean error is at most 1 % of the scale: of n for ranks, of the standard deviation for
sorted values. It is looked for on the lists of the table, by halves of a decade from 1000 down to 1e-9, then by bisection.

**Columns.** mean, worst: the error to exact ranks (ties share theirs), in units of n, or to the sorted values. hard: share
of entries in the gradient of a random linear loss that are those of the exact function, which for ranks are 0 (to 1e-6 of
the list's greatest entry). turned: share of neighbours in the exact order that come out in the other one (by more than 1e-6
of the scale). nan: share of outputs and gradients that are no finite numbers. Times: forward and backward of that loss in
float32 through public calls, all sides in turns, the best of the turns, summed over the families that every side has a
strength for; "cpu" is the process's own time.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from layers_peers import PEERS
from scipy.stats import rankdata
from torch import Tensor

from otformer.nn import SoftRank, SoftSort

FAMILIES: dict[str, Callable[[int, int, torch.Generator], Tensor]] = {
    "normal": lambda B, n, g: torch.randn(B, n, generator=g),
    "uniform": lambda B, n, g: torch.rand(B, n, generator=g),
    "sorted": lambda B, n, g: torch.randn(B, n, generator=g).sort(1).values,
    "even": lambda B, n, g: torch.rand(B, n, generator=g).argsort(1).double(),
    "heavy": lambda B, n, g: torch.tan(math.pi * (torch.rand(B, n, generator=g) - 0.5)),  # Cauchy
    "ties": lambda B, n, g: torch.randint(max(2, n // 5), (B, n), generator=g).double(),
    "clustered": lambda B, n, g: torch.randint(5, (B, n), generator=g) + 0.05 * torch.randn(B, n, generator=g),
}
GRID, BISECTIONS = [10 ** (3 - k / 2) for k in range(25)], 5
EXACT_ENOUGH, SAME = 0.01, 1e-6  # of the scale: the mean error that is allowed, and what counts as no difference
BATCHES = {10: (1, 256), 100: (1, 256), 1000: (1, 64)}  # lists at a time
CHOSEN_ON = {10: 256, 100: 16, 1000: 2}  # lists
Side = Callable[[Tensor, float], Tensor]
Strengths = dict[tuple[str, str], float]  # by family and side


class Quality(NamedTuple):
    """What one side does to the lists of one family; the docstring above says what the numbers are."""

    mean: float
    worst: float
    hard: float
    turned: float
    nan: float


def sides(function: str) -> tuple[dict[str, Side], list[str]]:
    """x [B, n], strength → ranks from 0, or sorted values; and a line for each project that is absent."""
    ours = SoftRank if function == "rank" else SoftSort
    found: dict[str, Side] = {"otformer": lambda x, reg: ours(reg)(x)}
    missing, first = [], 1 if function == "rank" else 0  # they rank from 1
    for name, module in {"fast-soft-sort": "fast_soft_sort.pytorch_ops", "torchsort": "torchsort"}.items():
        try:
            call: Any = getattr(importlib.import_module(module), f"soft_{function}")
        except ImportError as error:
            missing.append(f"{name} is left out: {error}")
            continue
        for kind in ("l2", "kl"):
            found[f"{name} {kind}"] = lambda x, strength, call=call, kind=kind: (
                call(x, regularization=kind, regularization_strength=strength) - first
            )
    return found, missing


def lists(family: str, B: int, n: int) -> Tensor:
    x = FAMILIES[family](B, n, torch.Generator().manual_seed(n)).double()
    x = x - x.mean(1, keepdim=True)
    return (x / x.std(1, correction=0, keepdim=True).clamp_min(1e-12)).float()


def exact(function: str, x: Tensor) -> Tensor:
    return x.sort(1).values if function == "sort" else torch.from_numpy(rankdata(x.numpy(), axis=1) - 1).float()


def errors(function: str, found: Tensor, x: Tensor) -> Tensor:
    """|found − exact| [B, n], in units of n for ranks."""
    return (found.detach() - exact(function, x)).abs() / (x.shape[1] if function == "rank" else 1)


def strongest(function: str, side: Side, x: Tensor) -> float | None:
    """By the rule above."""

    def enough(strength: float) -> bool:
        return float(errors(function, side(x, strength), x).mean()) <= EXACT_ENOUGH

    strength = next((s for s in GRID if enough(s)), None)
    step = GRID[0] / GRID[1]
    for _ in range(BISECTIONS) if strength else ():
        step = math.sqrt(step)
        strength = strength * step if enough(strength * step) else strength
    return strength


def turn(side: Side, x: Tensor, strength: float, probe: Tensor) -> tuple[Tensor, Tensor, float, float]:
    """Output, gradient, seconds, processor seconds."""
    x = x.clone().requires_grad_()
    start = time.perf_counter(), time.process_time()
    found = side(x, strength)
    found.backward(probe)
    seconds = time.perf_counter() - start[0], time.process_time() - start[1]
    assert x.grad is not None
    return found.detach(), x.grad, *seconds


def quality(function: str, side: Side, x: Tensor, strength: float) -> Quality:
    n, probe = x.shape[1], torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    found, grad, *_ = turn(side, x, strength, probe)
    off, order = errors(function, found, x), x.argsort(dim=1, stable=True)
    hard = torch.zeros_like(probe) if function == "rank" else torch.zeros_like(probe).scatter(1, order, probe)
    greatest = grad.nan_to_num(0.0).abs().amax(1, keepdim=True).clamp_min(SAME)
    same = (grad - hard).abs() <= SAME * greatest
    scale, rising = (n, found.gather(1, order)) if function == "rank" else (1, found)
    turned = (rising.diff(dim=1) < -SAME * scale).double().mean() if n > 1 else torch.zeros(())
    nan = torch.stack([~found.isfinite(), ~grad.isfinite()]).double().mean()
    return Quality(float(off.mean()), float(off.max()), float(same.double().mean()), float(turned), float(nan))


def compare(function: str, n: int, families: list[str], repeat: int) -> None:
    own, missing = sides(function)
    print("\n".join(["", *missing]))
    strengths: Strengths = {}
    print(f"{function}, n = {n}, {CHOSEN_ON[n]} lists of each family")
    print(f"{'':10}  {'':18}{'strength':>10}{'mean':>9}{'worst':>9}{'hard':>8}{'turned':>9}{'nan':>7}")
    for family in families:
        x = lists(family, CHOSEN_ON[n], n)
        for name, side in own.items():
            strength = strongest(function, side, x)
            if strength is None:
                print(f"{family:10}  {name:18}{'none':>10}", flush=True)
                continue
            strengths[family, name] = strength
            q = quality(function, side, x, strength)
            numbers = f"{strength:10.2g}{q.mean:9.4f}{q.worst:9.4f}{q.hard:8.1%}{q.turned:9.1%}{q.nan:7.1%}"
            print(f"{family:10}  {name:18}{numbers}", flush=True)
    timed = [family for family in families if all((family, name) in strengths for name in own)]
    for B in BATCHES[n]:
        measure(function, B, n, timed, own, strengths, repeat)


def measure(
    function: str, B: int, n: int, families: list[str], own: dict[str, Side], strengths: Strengths, repeat: int
) -> None:
    """The times of one table."""
    total = {name: [0.0, 0.0] for name in own}
    for family in families:
        x, probe = lists(family, B, n), torch.randn(B, n, generator=torch.Generator().manual_seed(2))
        best = {name: [math.inf, math.inf] for name in own}
        for _ in range(repeat + 1):  # the first is to warm up; it is never the best
            for name, side in own.items():
                *_, wall, cpu = turn(side, x, strengths[family, name], probe)
                best[name] = [min(old, new) for old, new in zip(best[name], (wall, cpu), strict=True)]
        total = {name: [a + b for a, b in zip(total[name], best[name], strict=True)] for name in own}
    print(f"{function}, {B} × {n}: forward and backward, {len(families)} families, {torch.get_num_threads()} threads")
    print(f"{'':18}{'wall ms':>10}{'cpu ms':>10}{'ours / it, cpu':>16}")
    for name, (wall, cpu) in total.items():
        print(f"{name:18}{1e3 * wall:10.2f}{1e3 * cpu:10.2f}{total['otformer'][1] / cpu:16.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", choices=sorted(BATCHES), default=sorted(BATCHES))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--functions", nargs="+", choices=("rank", "sort"), default=["rank", "sort"])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    sys.path.insert(0, str(PEERS))
    for function in options.functions:
        for n in options.sizes:
            compare(function, n, options.families, options.repeat)


if __name__ == "__main__":
    main()
