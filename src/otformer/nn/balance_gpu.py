"""Small problems of `balance` on a CUDA device: one launch forward, one backward. The kernels: balance_kernels.py."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor

from otformer.nn import balance_kernels as kernels
from otformer.nn.small import SMALL_SINKHORN, SMALL_STEPS
from otformer.transport.solvers.blocks import LAYERS

WARP_ENTRIES = {torch.float32: 256, torch.float64: 128}  # that a warp holds, of one problem or several
LEAST_SIDE = 2  # rows and columns are filled up to a power of 2 from here
GRADIENT_SINGLE, GRADIENT_DOUBLE = 1e-12, 1e-24  # squared relative residuals of the gradient's system


def usable(logits: Tensor) -> bool:
    """Whether the kernels can run: a CUDA device, and triton."""
    return logits.is_cuda and importlib.util.find_spec("triton") is not None


def solve(
    logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, tol: float, max_depth: int, P: Tensor, f: Tensor, g: Tensor
) -> Tensor:
    """Fills P, f and g; the error of every problem [B]."""
    error = f.new_empty(len(logits))
    given = (logits.contiguous(), temperature.to(f.dtype), *(t.to(f.dtype).contiguous() for t in (a, b)))
    most = max(1, min(max_depth // LAYERS, SMALL_STEPS))
    _launch(kernels.solve, given, (P, f, g, error), (tol, SMALL_SINKHORN, most))
    return error


def backward(
    G: Tensor, logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor,
    Y: Tensor, w_u: Tensor, w_v: Tensor, heat: Tensor,
) -> None:  # fmt: skip
    """Fills Y, the gradient in logits, w_u and w_v, those in a and b, and heat [B], that in the temperature."""
    given = (logits.contiguous(), temperature.to(f.dtype), *(t.to(f.dtype).contiguous() for t in (a, b)))
    enough = GRADIENT_SINGLE if f.dtype == torch.float32 else GRADIENT_DOUBLE
    _launch(kernels.backward, given, (f, g, Y, w_u, w_v, heat), (enough,), (G.contiguous(),))


def shape(entries: int, numbers: torch.dtype) -> tuple[int, int]:
    """Problems of a program and its warps: several problems to a warp, or several warps to a problem.

    Two warps at least: with one, Triton 3.6 makes a program of two nested loops that never ends.

    >>> shape(4 * 4, torch.float32), shape(32 * 32, torch.float64)
    ((32, 2), (1, 8))
    """
    warps = max(2, entries // WARP_ENTRIES[numbers])
    return max(1, warps * WARP_ENTRIES[numbers] // entries), warps


def _launch(
    kernel: Any,
    given: tuple[Tensor, ...],
    rest: tuple[Tensor, ...],
    numbers: tuple[float, ...],
    first: tuple[Tensor, ...] = (),
) -> None:
    """The kernel over all problems; ``first`` goes before what is given, ``rest`` and ``numbers`` after."""
    logits, temperature, a, b = given
    B, n, m = logits.shape
    N, M = (max(LEAST_SIDE, 1 << (size - 1).bit_length()) for size in (n, m))
    batch, warps = shape(N * M, temperature.dtype)
    kind = kernels.tl.float32 if temperature.dtype == torch.float32 else kernels.tl.float64
    sizes = (B, n, m, 1, len(temperature), len(a), len(b))
    with torch.cuda.device_of(logits):
        given = (*first, *given, *rest)
        kernel[(-(-B // batch),)](*given, *sizes, *numbers, BATCH=batch, N=N, M=M, NUMBERS=kind, num_warps=warps)
