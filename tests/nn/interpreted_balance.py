"""Checks of the kernels of `balance` on a CPU, in Triton's interpreter: TRITON_INTERPRET=1 python interpreted_balance.py"""

from __future__ import annotations

import torch

from otformer.nn import balance_cpu, balance_gpu
from otformer.nn import balance_kernels as kernels
from otformer.nn.balance_problems import Gradients, LogitStack, Plans
from otformer.transport.types import Goal

DOUBLE, SINGLE, HALF = torch.float64, torch.float32, torch.bfloat16


def compare(shape: tuple[int, ...], dtype: torch.dtype, scale: float, masked: bool, tol: float) -> None:
    """Plans, errors and all gradients by the kernels and by balance_cpu.py, which has tests of its own."""
    B, n, m = shape
    generator = torch.Generator().manual_seed(0)
    L = (scale * torch.randn(shape, generator=generator, dtype=DOUBLE)).to(dtype)
    a, b = (
        torch.rand(B, n, generator=generator, dtype=DOUBLE) + 0.5,
        torch.rand(1, m, generator=generator, dtype=DOUBLE) + 0.5,
    )
    if masked:
        a[1, 0], b[0, -1], L[:, 1, 0], L[1, 0] = 0.0, 0.0, -torch.inf, torch.nan
    a = 7 * a / a.sum(1, keepdim=True)
    b = 7 * b / b.sum(1, keepdim=True)
    temperature, G = torch.tensor([0.7, 1.3], dtype=DOUBLE), torch.randn(shape, generator=generator, dtype=DOUBLE).to(dtype)
    numbers = SINGLE if dtype != DOUBLE else DOUBLE
    found = []
    for backend, kind in ((balance_cpu, DOUBLE), (balance_gpu, numbers)):
        sizes, stack = ((B, n), (B, m), (B,)), LogitStack(L, temperature, a, b)
        plans = Plans(torch.empty_like(L), *(torch.empty(size, dtype=kind) for size in sizes))
        backend.solve(stack, Goal(tol, 1000), plans)
        assert plans.error.max() <= tol, (plans.error.max(), shape, dtype)
        out = Gradients(torch.empty_like(L), *(torch.empty(size, dtype=kind) for size in sizes))
        backend.backward(stack, G, plans.f, plans.g, out)
        w = (out.w_u.double()[:, :, None] + out.w_v.double()[:, None, :]) * (plans.P > 0)  # up to a constant
        found.append([t.double() for t in (plans.P, out.Y, w, out.heat)])
    for expected, own in zip(*found, strict=True):
        allowed = {DOUBLE: 1e-9, SINGLE: 3e-4, HALF: 1e-2}[dtype]
        assert float((own - expected).norm()) <= allowed * float(expected.norm()), (shape, dtype, own, expected)


def bad() -> None:
    """What is no problem has the error inf, and the others beside it are solved."""
    L, one = torch.zeros(4, 3, 3), torch.ones(1, 3)
    L[0, 1, 1], L[1, 2, 0], L[2, 1] = torch.nan, torch.inf, -torch.inf
    out = Plans(torch.empty_like(L), torch.empty(4, 3), torch.empty(4, 3), torch.empty(4))
    balance_gpu.solve(LogitStack(L, torch.ones(1), one, one), Goal(1e-6, 1000), out)
    assert out.error.isposinf().tolist() == [True, True, True, False]
    assert (out.P[3] - 1 / 3).abs().max() < 1e-6


def far_apart() -> None:
    """Rows 2³⁰ entries apart, as where problems are 3·10⁸: the third is 2³¹ from the first. The memory is not touched."""
    step, one = 2**30, torch.ones(1, 3)
    room = torch.empty(2 * step + 3, dtype=HALF)
    L = room.as_strided((3, 3), (step, 1))
    L.copy_(torch.eye(3))
    f, g, error = torch.empty(1, 3), torch.empty(1, 3), torch.empty(1)
    sizes = (1, 3, 3, 1, step, 1, 1, 1, 1)
    balance_gpu._launch(kernels.solve, (room, torch.ones(1), one, one), (room, f, g, error), sizes, (1e-6, 6, 64), f)
    expected = torch.eye(3).softmax(1)  # whose columns have the sums of its rows
    assert float((L.float() - expected).abs().max()) < 1e-2, L


if __name__ == "__main__":
    for shape, masked in (((4, 2, 2), False), ((66, 4, 4), True), ((2, 3, 7), True), ((2, 32, 32), True)):
        for dtype, tol in ((DOUBLE, 1e-10), (SINGLE, 1e-6), (HALF, 1e-6)):
            compare(shape, dtype, 2.0, masked, tol)
    compare((64, 4, 4), SINGLE, 6.0, False, 1e-6)
    bad()
    far_apart()
