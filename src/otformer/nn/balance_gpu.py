"""Small problems of `balance` on a CUDA device: one launch forward, one backward. The kernels: balance_kernels.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from otformer.nn import balance_kernels as kernels
from otformer.nn.balance_cpu import SMALL_SINKHORN, SMALL_STEPS
from otformer.nn.balance_problems import Gradients, LogitStack, Plans
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.types import Goal

THREAD_ENTRIES = 16  # of problems that a thread has to itself; its registers hold some more, not twice as many
THREADS, THREAD_WARPS = 32, 2  # a warp has; warps of a program of such problems
WARP_ENTRIES = {torch.float32: 256, torch.float64: 128}  # that a warp holds, of one problem or several
LEAST_SIDE = 2  # rows and columns are filled up to a power of 2 from here
GRADIENT_SINGLE, GRADIENT_DOUBLE = 1e-12, 1e-24  # squared relative residuals of the gradient's system


def usable(logits: Tensor) -> bool:
    """Return whether the kernels can run: on a CUDA device, with triton."""
    return logits.is_cuda and kernels.tl is not None


def solve(stack: LogitStack, goal: Goal, out: Plans) -> None:
    """Fill in plans, potentials and errors of all problems."""
    plan, most = _buffer(out.P), max(1, min(goal.max_depth // LAYERS, SMALL_STEPS))
    rest = (goal.tol, SMALL_SINKHORN, most)
    _launch(kernels.solve, _given(stack, out.f), (plan, *out[1:]), _sizes(stack), rest, out.f)
    _copy_back(plan, out.P)


def backward(stack: LogitStack, G: Tensor, f: Tensor, g: Tensor, out: Gradients) -> None:
    """Fill in the gradients of a loss with the gradient G in the plans."""
    moved, enough = _buffer(out.Y), GRADIENT_SINGLE if f.dtype == torch.float32 else GRADIENT_DOUBLE
    given = (_arranged(G), *_given(stack, f))
    _launch(kernels.backward, given, (f, g, moved, *out[1:]), _sizes(stack), (enough,), f)
    _copy_back(moved, out.Y)


def shape(entries: int, numbers: torch.dtype) -> tuple[int, int]:
    """Choose the problems and warps of a program: a problem to a thread, several to a warp, or several warps to a problem.

    Two warps at least: with one, Triton 3.6 makes a program of two nested loops that never ends.

    >>> shape(4 * 4, torch.float32), shape(8 * 8, torch.float32), shape(32 * 32, torch.float64)
    ((64, 2), (8, 2), (1, 8))
    """
    if entries <= THREAD_ENTRIES:
        return THREADS * THREAD_WARPS, THREAD_WARPS
    warps = max(2, entries // WARP_ENTRIES[numbers])
    return max(1, warps * WARP_ENTRIES[numbers] // entries), warps


def _filled(n: int, m: int) -> tuple[int, int]:
    """Round n and m up to the rows and columns of a kernel."""
    return max(LEAST_SIDE, 1 << (n - 1).bit_length()), max(LEAST_SIDE, 1 << (m - 1).bit_length())


def _one_thread(t: Tensor) -> bool:
    """Return whether one thread holds each problem of a stack [B, n, m]."""
    N, M = _filled(*t.shape[1:])
    return N * M <= THREAD_ENTRIES


def _arranged(t: Tensor) -> Tensor:
    """Order a stack [B, n, m] as neighbouring threads read it: as [n, m, B] if each has a problem of its own."""
    return t.permute(1, 2, 0).contiguous() if _one_thread(t) else t.contiguous()


def _buffer(out: Tensor) -> Tensor:
    """Return what a kernel writes to, in place of ``out`` [B, n, m] where the order differs."""
    return out.new_empty(*out.shape[1:], len(out)) if _one_thread(out) else out


def _copy_back(buffer: Tensor, out: Tensor) -> None:
    if buffer is not out:
        out.copy_(buffer.permute(2, 0, 1))


def _given(stack: LogitStack, like: Tensor) -> tuple[Tensor, ...]:
    return (_arranged(stack.logits), *(t.to(like.dtype).contiguous() for t in stack[1:]))


def _sizes(stack: LogitStack) -> tuple[int, ...]:
    """Count problems, rows and columns, their strides in memory, and the temperatures and weights they share."""
    B, n, m = stack.logits.shape
    steps = (1, m * B, B) if _one_thread(stack.logits) else (n * m, m, 1)
    return (B, n, m, *steps, *map(len, stack[1:]))


def _launch(
    kernel: Any, given: tuple[Tensor, ...], out: tuple[Tensor, ...], sizes: tuple[int, ...], rest: tuple[float, ...],
    like: Tensor,
) -> None:  # fmt: skip
    """Run the kernel over all problems, in the dtype of ``like``."""
    N, M = _filled(*sizes[1:3])
    batch, warps = shape(N * M, like.dtype)
    kind = kernels.tl.float32 if like.dtype == torch.float32 else kernels.tl.float64
    with torch.cuda.device_of(like):
        kernel[(-(-sizes[0] // batch),)](*given, *out, *sizes, *rest, BATCH=batch, N=N, M=M, NUMBERS=kind, num_warps=warps)
