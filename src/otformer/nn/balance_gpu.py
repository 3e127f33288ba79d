"""Small problems of `balance` on a CUDA device: one launch forward, one backward. The kernels: balance_kernels.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from otformer.nn import balance_kernels as kernels
from otformer.nn.balance_cpu import SMALL_SINKHORN, SMALL_STEPS
from otformer.transport.solvers.blocks import LAYERS

THREAD_ENTRIES = 16  # of problems that a thread has to itself; its registers hold some more, not twice as many
THREADS, THREAD_WARPS = 32, 2  # a warp has; warps of a program of such problems
WARP_ENTRIES = {torch.float32: 256, torch.float64: 128}  # that a warp holds, of one problem or several
LEAST_SIDE = 2  # rows and columns are filled up to a power of 2 from here
GRADIENT_SINGLE, GRADIENT_DOUBLE = 1e-12, 1e-24  # squared relative residuals of the gradient's system


def usable(logits: Tensor) -> bool:
    """Whether the kernels can run: a CUDA device, and triton."""
    return logits.is_cuda and kernels.tl is not None


def solve(
    logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, tol: float, max_depth: int, P: Tensor, f: Tensor, g: Tensor
) -> Tensor:
    """Fills P, f and g; the error of every problem [B]."""
    error, plan = f.new_empty(len(logits)), _room(P)
    most = max(1, min(max_depth // LAYERS, SMALL_STEPS))
    given = (_laid(logits), *_shared(temperature, a, b, f))
    _launch(kernels.solve, given, (plan, f, g, error), _sizes(logits, temperature, a, b), (tol, SMALL_SINKHORN, most), f)
    _take(plan, P)
    return error


def backward(
    G: Tensor, logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor,
    Y: Tensor, w_u: Tensor, w_v: Tensor, heat: Tensor,
) -> None:  # fmt: skip
    """Fills Y, the gradient in logits, w_u and w_v, those in a and b, and heat [B], that in the temperature."""
    moved, enough = _room(Y), GRADIENT_SINGLE if f.dtype == torch.float32 else GRADIENT_DOUBLE
    given = (_laid(G), _laid(logits), *_shared(temperature, a, b, f))
    sizes = _sizes(logits, temperature, a, b)
    _launch(kernels.backward, given, (f, g, moved, w_u, w_v, heat), sizes, (enough,), f)
    _take(moved, Y)


def shape(entries: int, numbers: torch.dtype) -> tuple[int, int]:
    """Problems of a program and its warps: a problem to a thread, several to a warp, or several warps to a problem.

    Two warps at least: with one, Triton 3.6 makes a program of two nested loops that never ends.

    >>> shape(4 * 4, torch.float32), shape(8 * 8, torch.float32), shape(32 * 32, torch.float64)
    ((64, 2), (8, 2), (1, 8))
    """
    if entries <= THREAD_ENTRIES:
        return THREADS * THREAD_WARPS, THREAD_WARPS
    warps = max(2, entries // WARP_ENTRIES[numbers])
    return max(1, warps * WARP_ENTRIES[numbers] // entries), warps


def _filled(n: int, m: int) -> tuple[int, int]:
    """Rows and columns that the kernels have for n and m."""
    return max(LEAST_SIDE, 1 << (n - 1).bit_length()), max(LEAST_SIDE, 1 << (m - 1).bit_length())


def _alone(t: Tensor) -> bool:
    """Whether each problem of a stack [B, n, m] is one thread's."""
    N, M = _filled(*t.shape[1:])
    return N * M <= THREAD_ENTRIES


def _laid(t: Tensor) -> Tensor:
    """A stack [B, n, m] in the order in which threads that lie beside each other read it: [n, m, B] if each has its own."""
    return t.permute(1, 2, 0).contiguous() if _alone(t) else t.contiguous()


def _room(out: Tensor) -> Tensor:
    """Where a kernel writes what is to fill ``out`` [B, n, m]."""
    return out.new_empty(*out.shape[1:], len(out)) if _alone(out) else out


def _take(room: Tensor, out: Tensor) -> None:
    if room is not out:
        out.copy_(room.permute(2, 0, 1))


def _shared(temperature: Tensor, a: Tensor, b: Tensor, like: Tensor) -> tuple[Tensor, ...]:
    return tuple(t.to(like.dtype).contiguous() for t in (temperature, a, b))


def _sizes(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor) -> tuple[int, ...]:
    """How many problems, rows, columns; how far apart problems, rows and columns are in memory; what they share."""
    B, n, m = logits.shape
    steps = (1, m * B, B) if _alone(logits) else (n * m, m, 1)
    return (B, n, m, *steps, len(temperature), len(a), len(b))


def _launch(
    kernel: Any, given: tuple[Tensor, ...], out: tuple[Tensor, ...], sizes: tuple[int, ...], rest: tuple[float, ...],
    like: Tensor,
) -> None:  # fmt: skip
    """The kernel over all problems, in the numbers of ``like``."""
    N, M = _filled(*sizes[1:3])
    batch, warps = shape(N * M, like.dtype)
    kind = kernels.tl.float32 if like.dtype == torch.float32 else kernels.tl.float64
    with torch.cuda.device_of(like):
        kernel[(-(-sizes[0] // batch),)](*given, *out, *sizes, *rest, BATCH=batch, N=N, M=M, NUMBERS=kind, num_warps=warps)
