"""Triton kernels between two passes: from sums to potentials, and from potentials to what the next pass reads.

Notation and ``consts`` are those of costs/gpu/pass_kernels.py.
"""

from __future__ import annotations

from otformer.transport.costs.gpu.language import tl
from otformer.transport.costs.gpu.pass_kernels import LEAST, jit


@jit
def pass_columns(
    g, i, points, squares, h, tops, slopes, n, D: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
    SQUARES: tl.constexpr, ROOT: tl.constexpr,
):  # fmt: skip
    """Potentials as the next pass reads them; of every tile the slopes s, and the greatest h_j − s·(y_j − c_J).

    D = 0: no tile is left out, and nothing is asked of them. Bounds of plain distances (ROOT) know no slopes: they are 0.
    """
    if SQUARES:
        g = g - tl.load(squares + i)
    g = g.to(h.dtype.element_ty)
    tl.store(h + i, g)
    if D > 0:
        TILES: tl.constexpr = BLOCK // COLUMNS
        tiles, count = tl.program_id(0) * TILES + tl.arange(0, TILES), n // COLUMNS
        rest = tl.reshape(g, [TILES, COLUMNS])
        there = rest > -float("inf")  # not true where it is not a number: such a tile has no slopes
        some = tl.maximum(tl.sum(there.to(g.dtype), 1), 1.0)
        wrong = tl.max((rest != rest).to(tl.int32), 1) > 0
        for k in tl.static_range(D):
            y = tl.reshape(tl.load(points + k * n + i), [TILES, COLUMNS])
            middle = 0.5 * (tl.min(y, 1) + tl.max(y, 1))
            off = tl.where(there, y - (tl.sum(tl.where(there, y, 0.0), 1) / some)[:, None], 0.0)
            spread = tl.sum(off * off, 1)
            slope = tl.sum(off * tl.where(there, rest, 0.0), 1) / tl.where(spread > 0, spread, 1.0)
            slope = tl.where((spread > 0) & (tl.abs(slope) < -LEAST), slope, 0.0)
            if ROOT:
                slope = tl.zeros_like(slope)
            rest = rest - slope[:, None] * (y - middle[:, None])
            tl.store(slopes + k * count + tiles, slope)
        tl.store(tops + tiles, tl.where(wrong, float("nan"), tl.max(rest, 1)))


@jit
def spread(
    potentials, points, squares, h, tops, slopes, n, D: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
    SQUARES: tl.constexpr, ROOT: tl.constexpr,
):  # fmt: skip
    """Potentials [N] float64 as a pass reads them."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pass_columns(tl.load(potentials + i), i, points, squares, h, tops, slopes, n, D, BLOCK, COLUMNS, SQUARES, ROOT)


@jit
def _settled(tops, totals, log_w, squares, consts, i, n, splits, BLOCK: tl.constexpr, SQUARES: tl.constexpr):
    """λ(log w + 1) − G: the potential that makes a side exact, [BLOCK] float64."""
    top = tl.full([BLOCK], LEAST, tl.float64)
    total = tl.zeros([BLOCK], tl.float64)
    for k in range(splits):
        share = tl.load(tops + k * n + i).to(tl.float64)
        new = tl.maximum(top, share)
        total = total * tl.exp2(top - new) + tl.load(totals + k * n + i) * tl.exp2(share - new)
        top = new
    reg = tl.load(consts + 1)
    scale = tl.load(consts + 2) if tops.dtype.element_ty == tl.float32 else tl.load(consts)
    g = reg * (tl.load(log_w + i) + 1.0 - tl.log(total)) - top / scale
    if SQUARES:
        g = g + tl.load(squares + i)
    return g


@jit
def settle(
    tops, totals, log_w, points, squares, consts, out, h, out_tops, slopes, n, splits,
    D: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr, SQUARES: tl.constexpr,
    ROOT: tl.constexpr,
):  # fmt: skip
    """A block: the potential that makes a side exact, and the same as the next pass reads it."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = _settled(tops, totals, log_w, squares, consts, i, n, splits, BLOCK, SQUARES)
    tl.store(out + i, g)
    pass_columns(g, i, points, squares, h, out_tops, slopes, n, D, BLOCK, COLUMNS, SQUARES, ROOT)


@jit
def residual(
    tops, totals, log_w, squares, consts, potential, out, n, splits, BLOCK: tl.constexpr, SQUARES: tl.constexpr
):  # fmt: skip
    """f = the potential that makes a side exact − the present one; 0 for filling."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = _settled(tops, totals, log_w, squares, consts, i, n, splits, BLOCK, SQUARES)
    tl.store(out + i, tl.where(tl.load(log_w + i) > -float("inf"), g - tl.load(potential + i), 0.0))
