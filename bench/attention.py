"""SinkhornAttention beside softmax attention: time, memory and column sums of one layer; and a task that both learn.

    python bench/attention.py [--device cuda] [--tokens 1024 4096 16384] [--heads 1] [--dtype bfloat16] [--tol 1e-5]
    python bench/attention.py --learn sort copy

One layer of head_dim 64 on random tokens, forward and the backward of a random linear loss, by public calls with
need_weights=False: torch.nn.MultiheadAttention (its fused attention), then SinkhornAttention with the same weights, balanced
and with soft columns. Every side runs once to warm up (on 256 tokens), then is timed. Memory is the peak in both directions
above what was there before: on a GPU that of torch's allocator, on a CPU of the process, which is a new one for each side.
"columns" is the greatest and the mean |sum/wanted − 1| over keys, of the attention matrix in float64, a block at a time.

--learn trains one layer with a linear output, same seeds, data and steps: to sort random tokens, or to copy them in reverse.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import time

import torch
from torch import Tensor, nn

from otformer.nn import SinkhornAttention

HEAD_DIM = 64
SIDES = {"softmax": None, "balanced": {}, "unbalanced=1": {"unbalanced": 1.0}}
WORDS, LENGTH, WIDTH, STEPS = 12, 10, 32, 300  # of the task


def attention(side: str, dim: int, heads: int, tol: float) -> nn.Module:
    torch.manual_seed(0)
    options = SIDES[side]
    if options is None:
        return nn.MultiheadAttention(dim, heads, batch_first=True)
    return SinkhornAttention(dim, heads, batch_first=True, tol=tol, **options)


def measure(side: str, tokens: int, options: argparse.Namespace) -> None:
    device, dtype, dim = torch.device(options.device), getattr(torch, options.dtype), HEAD_DIM * options.heads
    layer = attention(side, dim, options.heads, options.tol).to(device, dtype)
    generator = torch.Generator().manual_seed(0)
    x, probe = (torch.randn(1, tokens, dim, generator=generator).to(device, dtype) for _ in range(2))
    x = options.scale * x
    run(layer, x[:, :256], probe[:, :256])
    layer.zero_grad()
    before, x = peak(device, reset=True), x.requires_grad_()
    forward, backward = run(layer, x, probe)
    room = peak(device) - before
    assert x.grad is not None
    assert x.grad.isfinite().all()
    worst, mean = columns(layer, x.detach())
    numbers = f"{1e3 * forward:12.1f}{1e3 * backward:12.1f}{room:10.0f}{worst:12.1e}{mean:12.1e}"
    print(f"{tokens:8}  {side:14}{numbers}", flush=True)


def run(layer: nn.Module, x: Tensor, probe: Tensor) -> tuple[float, float]:
    """Seconds of forward and backward."""
    marks = [now(x)]
    out, _ = layer(x, x, x, need_weights=False)
    marks.append(now(x))
    (out * probe).sum().backward()
    marks.append(now(x))
    return marks[1] - marks[0], marks[2] - marks[1]


def now(x: Tensor) -> float:
    if x.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def peak(device: torch.device, reset: bool = False) -> float:
    """MiB."""
    if device.type != "cuda":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if reset:
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 2**20
    return torch.cuda.max_memory_allocated() / 2**20


@torch.no_grad()
def columns(layer: nn.Module, x: Tensor) -> tuple[float, float]:
    """Greatest and mean |column sum − wanted| over heads, wanted being 1, or what the penalty leaves: b exp(−g/ρ)."""
    from otformer.nn.attention_bias import BiasGoal, KeyBias, Passes

    heads, E = layer.num_heads, layer.embed_dim
    q, k, _ = (t.unflatten(2, (heads, -1)).transpose(1, 2)[0] for t in project(layer, x).chunk(3, -1))
    q = q * (1 / math.sqrt(E // heads))
    own, rows = torch.zeros(q.shape[:2], device=q.device), torch.ones(q.shape[:2], dtype=torch.bool, device=q.device)
    g, slack = torch.zeros(q.shape[:2], dtype=torch.float64, device=q.device), 0.0
    if isinstance(layer, SinkhornAttention):
        rho = math.inf if layer.unbalanced is None else layer.unbalanced
        g, slack = KeyBias.apply(q, k, own, rows, False, BiasGoal(rho, layer.tol, layer.max_depth)), 1 / rho
    sums = Passes(q, k, own, rows).to(torch.float64).columns(g)
    off = (sums * (slack * g).exp() - 1).abs()
    return float(off.max()), float(off.mean())


def project(layer: nn.Module, x: Tensor) -> Tensor:
    return nn.functional.linear(x, layer.in_proj_weight, layer.in_proj_bias)


class Reader(nn.Module):
    """Words and places in, one attention layer with a residual, words out."""

    def __init__(self, side: str) -> None:
        super().__init__()
        self.attention = attention(side, WIDTH, 4, 1e-6)
        torch.manual_seed(1)
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.randn(LENGTH, WIDTH))
        self.block = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128), nn.GELU(), nn.Linear(128, WORDS))

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places
        return self.block(x + self.attention(x, x, x, need_weights=False)[0])


def learn(task: str, side: str, steps: int = STEPS) -> tuple[float, float]:
    """Mean loss of the last 20 steps, and the share of words right in a new batch."""
    model, generator = Reader(side), torch.Generator().manual_seed(0)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=3e-3), []

    def batch() -> tuple[Tensor, Tensor]:
        words = torch.randint(WORDS, (64, LENGTH), generator=generator)
        return words, words.sort(1).values if task == "sort" else words.flip(1)

    for _ in range(steps):
        words, goal = batch()
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), goal.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    words, goal = batch()
    return sum(losses[-20:]) / 20, float((model(words).argmax(2) == goal).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--scale", type=float, default=1.0, help="standard deviation of the tokens")
    parser.add_argument("--tol", type=float, default=1e-5)
    parser.add_argument("--learn", nargs="+", choices=("sort", "copy"))
    parser.add_argument("--side", choices=SIDES, help="one side alone, in this process")
    options = parser.parse_args()
    if options.learn:
        for task in options.learn:
            for side in SIDES:
                loss, right = learn(task, side)
                print(f"{task:6}{side:14} loss {loss:.4f}, {100 * right:.1f} % of the words right", flush=True)
        return
    if options.side:
        for tokens in options.tokens:
            measure(options.side, tokens, options)
        return
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    print(f"{options.heads} heads of {HEAD_DIM}, {options.dtype} on {where}, torch {torch.__version__}, tol {options.tol:g}")
    print(f"{'tokens':>8}  {'':14}{'forward ms':>12}{'backward ms':>12}{'MiB':>10}{'columns':>12}{'mean':>12}", flush=True)
    for tokens in options.tokens:
        for side in SIDES:
            subprocess.run([sys.executable, *sys.argv, "--tokens", str(tokens), "--side", side], check=True)


if __name__ == "__main__":
    main()
