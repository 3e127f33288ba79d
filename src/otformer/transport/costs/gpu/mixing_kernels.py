"""Triton kernels of Anderson mixing (solvers/anderson.py): what a step must read of its past, in one look each.

``control`` [2 + memory], float64, comes from the host: the slot that the newest change goes to (−1: none), how many θ there
are, and these. The kernels are the same for every step, so that a captured one can be replayed.
"""

from __future__ import annotations

from otformer.transport.costs.gpu.language import tl
from otformer.transport.costs.gpu.pass_kernels import jit
from otformer.transport.costs.gpu.settle_kernels import pass_columns


@jit
def advance(
    v, f, last_v, last_f, moves, control, points, squares, h, tops, slopes, m,
    MEMORY: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr, SQUARES: tl.constexpr,
    ROOT: tl.constexpr,
):  # fmt: skip
    """v ← v + f − Σ_k θ_k (ΔV_k + ΔF_k), as the next pass reads it too; v and f become the last ones."""
    j, k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, MEMORY)
    used = tl.load(control + 1)
    past = tl.load(moves + k.to(tl.int64)[:, None] * m + j[None, :], mask=k[:, None] < used, other=0.0).to(tl.float64)
    shares = tl.load(control + 2 + k, mask=k < used, other=0.0)
    old_v, old_f = tl.load(v + j), tl.load(f + j)
    new = old_v + old_f - tl.sum(past * shares[:, None], 0)
    tl.store(last_v + j, old_v)
    tl.store(last_f + j, old_f)
    tl.store(v + j, new)
    pass_columns(new, j, points, squares, h, tops, slopes, m, D, BLOCK, COLUMNS, SQUARES, ROOT)


@jit
def remember(v, f, last_v, last_f, log_w, consts, moves, changes, control, out, m, width, BLOCK: tl.constexpr):
    """ΔF = f − last f and ΔV + ΔF into their slot, and sums over a block of points, weighted with w.

    out[block]: Σ w |exp(−f/λ) − 1|, Σ w f, Σ w ΔF, then for every k Σ w f ΔF_k and Σ w ΔF ΔF_k. One program for each k;
    those of slots not yet in use write nothing that is read.
    """
    block, k = tl.program_id(0), tl.program_id(1)
    j = block * BLOCK + tl.arange(0, BLOCK)
    logs = tl.load(log_w + j)
    there = logs > -float("inf")
    w, residual, slot = tl.exp(logs), tl.load(f + j), tl.load(control).to(tl.int32)
    out += block * width
    if k == 0:
        off = tl.abs(tl.exp(-residual / tl.load(consts + 1)) - 1.0)
        tl.store(out, tl.sum(tl.where(there, w * off, 0.0), 0))
    if slot >= 0:
        change, at = residual - tl.load(last_f + j), k.to(tl.int64) * m + j
        past = change
        if k == slot:
            move = tl.where(there, tl.load(v + j) - tl.load(last_v + j), 0.0) + change
            tl.store(moves + at, move.to(moves.dtype.element_ty))
            tl.store(changes + at, change.to(moves.dtype.element_ty))
            tl.store(out + 1, tl.sum(w * residual, 0))
            tl.store(out + 2, tl.sum(w * change, 0))
        else:
            past = tl.load(changes + at).to(tl.float64)
        tl.store(out + 3 + 2 * k, tl.sum(w * residual * past, 0))
        tl.store(out + 4 + 2 * k, tl.sum(w * change * past, 0))
