# mypy: ignore-errors
# Kernels are not Python to a type checker.
"""Triton kernels of Anderson mixing (solvers/anderson.py): what a step must read of its past, in one look each."""

from __future__ import annotations

from otformer.transport.executors.gpu.pass_kernels import jit, pass_columns

try:
    import triton.language as tl
except ImportError:  # a machine without a GPU reads this module, it does not run it
    tl = None


@jit
def remember(
    v, f, last_v, last_f, log_w, consts, moves, changes, out, m, width, slot, BLOCK: tl.constexpr
):  # fmt: skip
    """ΔF = f − last f and ΔV + ΔF into ``slot`` (none if it is negative), and sums over a block of points, weighted with w.

    out[block]: Σ w |exp(−f/λ) − 1|, Σ w f, Σ w ΔF, then for every k Σ w f ΔF_k and Σ w ΔF ΔF_k. One program for each k.
    """
    block, k = tl.program_id(0), tl.program_id(1)
    j = block * BLOCK + tl.arange(0, BLOCK)
    logs = tl.load(log_w + j)
    there = logs > -float("inf")
    w = tl.exp(logs)
    residual = tl.load(f + j)
    out += block * width
    if k == 0:
        off = tl.abs(tl.exp(-residual / tl.load(consts + 1)) - 1.0)
        tl.store(out, tl.sum(tl.where(there, w * off, 0.0), 0))
    if slot >= 0:
        change = residual - tl.load(last_f + j)
        if k == slot:
            move = tl.where(there, tl.load(v + j) - tl.load(last_v + j), 0.0) + change
            tl.store(moves + k.to(tl.int64) * m + j, move.to(moves.dtype.element_ty))
            tl.store(changes + k.to(tl.int64) * m + j, change.to(moves.dtype.element_ty))
            tl.store(out + 1, tl.sum(w * residual, 0))
            tl.store(out + 2, tl.sum(w * change, 0))
            past = change
        else:
            past = tl.load(changes + k.to(tl.int64) * m + j).to(tl.float64)
        tl.store(out + 3 + 2 * k, tl.sum(w * residual * past, 0))
        tl.store(out + 4 + 2 * k, tl.sum(w * change * past, 0))


@jit
def advance(
    v, f, moves, theta, squares, out, h, tops, m, used,
    MEMORY: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr, SQUARES: tl.constexpr,
):  # fmt: skip
    """v + f − Σ_k θ_k (ΔV_k + ΔF_k), and the same as the next pass reads it."""
    j, k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, MEMORY)
    known = k[:, None] < used
    past = tl.load(moves + k.to(tl.int64)[:, None] * m + j[None, :], mask=known, other=0.0).to(tl.float64)
    shares = tl.load(theta + k, mask=k < used, other=0.0)
    new = tl.load(v + j) + tl.load(f + j) - tl.sum(past * shares[:, None], 0)
    tl.store(out + j, new)
    pass_columns(new, j, squares, h, tops, j < m, BLOCK, COLUMNS, SQUARES)
