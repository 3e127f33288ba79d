"""DoublyStochastic beside unrolled Sinkhorn iterations in torch, on this machine's CPU or GPU: time, memory, marginal error.

    python bench/layers.py [--device cuda] [--repeat 5] [--cases 100000x4x4 1000x64x64]

On a GPU the kernels of other projects stand beside (layers_peers.py). All sides run in one process, in turns, through public
calls: forward, and the backward of a random linear loss. The best of the turns is printed. Memory is what autograd keeps
between forward and backward (on a GPU: the most that was allocated in both, without logits, output and gradient). The error
is the largest difference of a row or column sum from 1, in float64.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

import otformer as of

ITERATIONS = 20
Layer = Callable[[Tensor], Tensor]


def unrolled(logits: Tensor) -> Tensor:
    """What others do: exponentials, then rows and columns divided by their sums in turn."""
    P = (logits - logits.amax((-2, -1), keepdim=True)).exp()
    for _ in range(ITERATIONS):
        P = P / P.sum(-1, keepdim=True)
        P = P / P.sum(-2, keepdim=True)
    return P


class Turn(NamedTuple):
    forward: float  # seconds
    backward: float
    megabytes: float
    error: float
    gradient: Tensor


def one_turn(layer: Layer, logits: Tensor, probe: Tensor) -> Turn:
    x = logits.clone().requires_grad_()
    cuda, kept = x.is_cuda, {}

    def keep(t: Tensor) -> Tensor:
        if t.data_ptr() != x.data_ptr():
            kept[t.data_ptr()] = t.untyped_storage().nbytes()
        return t

    wait(cuda)
    before = torch.cuda.memory_allocated() if cuda else 0
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        P = layer(x)
    wait(cuda)
    middle = time.perf_counter()
    P.backward(probe)
    wait(cuda)
    end = time.perf_counter()
    room = torch.cuda.max_memory_allocated() - before - 2 * x.nbytes if cuda else sum(kept.values())
    exact = P.detach().double()
    error = max(float((exact.sum(axis) - 1).abs().max()) for axis in (-1, -2))
    assert x.grad is not None
    return Turn(middle - start, end - middle, room / 2**20, error, x.grad)


def wait(cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()


def compare(case: str, scale: float, device: str, repeat: int, compiled: bool) -> None:
    shape = tuple(int(size) for size in case.split("x"))
    generator = torch.Generator().manual_seed(0)
    logits, probe = (torch.randn(shape, generator=generator).to(device) for _ in range(2))
    logits *= scale
    sides: dict[str, Layer] = {f"{ITERATIONS} unrolled, eager": unrolled}
    if compiled:
        sides[f"{ITERATIONS} unrolled, compiled"] = torch.compile(unrolled)
    if device == "cuda" and shape[1] == shape[2]:
        from layers_peers import peers

        others, missing = peers(ITERATIONS, shape[1], logits)
        sides |= others
        print("\n".join(["", *missing]))
    sides["of.nn.DoublyStochastic"] = of.nn.DoublyStochastic()
    turns: dict[str, list[Turn]] = {name: [] for name in sides}
    for turn in range(repeat + 1):  # the first is to warm up
        for name, layer in sides.items():
            done = one_turn(layer, logits, probe)
            if turn:
                turns[name].append(done)
    print(f"\n{case} float32 on {device}, {torch.get_num_threads()} threads; logits of standard deviation {scale:g}")
    print(f"{'':26}{'forward ms':>12}{'backward ms':>12}{'both ms':>12}{'times ours':>12}{'MiB':>9}{'error':>10}")
    best = {name: min(t.forward + t.backward for t in own) for name, own in turns.items()}
    ours = best["of.nn.DoublyStochastic"]
    for name, own in turns.items():
        forward, backward = min(t.forward for t in own), min(t.backward for t in own)
        numbers = f"{1e3 * forward:12.2f}{1e3 * backward:12.2f}{1e3 * best[name]:12.2f}{best[name] / ours:12.2f}"
        print(f"{name:26}{numbers}{own[-1].megabytes:9.1f}{own[-1].error:10.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--cases", nargs="+", default=["100000x4x4", "1000x64x64"])
    parser.add_argument("--scale", type=float, default=1.0, help="standard deviation of the logits")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out: it needs a C++ compiler")
    options = parser.parse_args()
    for case in options.cases:
        compare(case, options.scale, options.device, options.repeat, not options.no_compile)


if __name__ == "__main__":
    main()
