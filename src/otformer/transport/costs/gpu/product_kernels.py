# ruff: noqa: RUF005 - the forms that it prefers are not Triton
r"""Triton kernels of products with the plan, Σ_j P_ij g_ij W_jk, P never formed.

As in a pass (costs/gpu/pass_kernels.py) a program takes a tile of rows and a share of the columns. What it makes is
relative to the weight of the row: P_ij/a_i = 2^(s t_ij + r_i), r_i = s h_i − log₂e − log₂a_i, so that light points keep
their digits; exponents are float64 numbers, exponentials those of the precision. A tile whose greatest entry is under
2^(−s cut) of every a_i is left out.
A few columns of W (NARROW) are added up as a pass adds its terms, one by one, in float64 over the tiles; many are a matrix
product, in the precision of the exponentials.
GAIN says what g is: 0 one, 1 the cost c_ij, 2 its inverse distance 1/‖x_i − y_j‖, 0 where points coincide.
"""

from __future__ import annotations

from otformer.transport.costs.gpu.language import tl
from otformer.transport.costs.gpu.pass_kernels import bound_of, entries, far_entries, jit, leaning, rows_of


@jit
def _gained(P, c, GAIN: tl.constexpr, ROOT: tl.constexpr):
    if GAIN == 1:
        P = P * c.to(P.dtype)
    if GAIN == 2:
        apart = c
        if not ROOT:
            apart = tl.sqrt(c)
        P = tl.where(apart > 0, P / tl.where(apart > 0, apart, 1.0).to(P.dtype), 0.0)
    return P


@jit
def _nothing(w, ROWS: tl.constexpr, WIDTH: tl.constexpr, NARROW: tl.constexpr):
    """Sums of nothing: [ROWS, WIDTH], or a tuple of [ROWS]."""
    if NARROW:
        total = ()
        for _ in tl.static_range(WIDTH):
            total = total + (tl.zeros([ROWS], tl.float64),)
    else:
        total = tl.zeros([ROWS, WIDTH], w.dtype.element_ty)
    return total


@jit
def _added(P, w, columns, m, total, WIDTH: tl.constexpr, NARROW: tl.constexpr, PRECISION: tl.constexpr):
    """The sums with those of a tile, P [COLUMNS, ROWS], added."""
    if NARROW:
        new = ()
        for k in tl.static_range(WIDTH):
            new = new + (total[k] + tl.sum(P * tl.load(w + k * m + columns)[:, None], 0).to(tl.float64),)
    else:
        place = columns.to(tl.int64)[:, None] * (tl.num_programs(2) * WIDTH) + tl.program_id(2) * WIDTH
        values = tl.load(w + place + tl.arange(0, WIDTH)[None, :])
        new = tl.dot(tl.trans(P), values, total, input_precision=PRECISION, out_dtype=w.dtype.element_ty)
    return new


@jit
def near_products(
    x, y, h, tops, slopes, boxes, labels_x, labels_y, rest, w, out, consts, n, m,
    D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr, ROOT: tl.constexpr,
    PAIRS: tl.constexpr, GAIN: tl.constexpr, WIDTH: tl.constexpr, NARROW: tl.constexpr, PRECISION: tl.constexpr,
    TILED: tl.constexpr,
):  # fmt: skip
    """out [chunk of W, share, n, WIDTH] of W [m, chunks · WIDTH], NARROW [share, WIDTH, n] of W [WIDTH, m].

    ``rest`` is r [n], +∞ for filling.
    """
    split, splits, tiles = tl.program_id(1), tl.num_programs(1), m // COLUMNS
    rows, lanes, inner = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, CHUNK), tl.arange(0, COLUMNS)
    scale, cut = tl.load(consts), tl.load(consts + 3)
    xs, low, high, label = rows_of(x, labels_x, rows, n, D, PAIRS)
    own = tl.load(rest + rows)
    there = own < float("inf")
    total = _nothing(w, ROWS, WIDTH, NARROW)
    # Filling is judged as another row is, and what it makes is not looked at.
    seen = tl.where(there, own, tl.min(own, 0))
    own = tl.where(there, own, -float("inf"))
    if TILED:
        lean, tilt = leaning(xs, low, high, -seen / scale, D, ROWS, ROOT)
        floor = tl.min(-seen / scale - tilt, 0) - cut
        for start in range(split, tiles, CHUNK * splits):
            J = start + splits * lanes
            keep = (tiles > J) & ~(bound_of(low, high, lean, tops, slopes, boxes, J, tiles, D, ROOT) < floor)
            tile = tl.min(tl.where(keep, J, tiles), 0)
            while tile < tiles:
                t, c = entries(xs, y, h, label, labels_y, tile, m, D, ROWS, COLUMNS, ROOT, PAIRS)
                P = _gained(tl.exp2((t * scale + own[None, :]).to(w.dtype.element_ty)), c, GAIN, ROOT)
                total = _added(P, w, tile * COLUMNS + inner, m, total, WIDTH, NARROW, PRECISION)
                tile = tl.min(tl.where(keep & (tile < J), J, tiles), 0)
    else:
        for tile in range(split, tiles, splits):
            t, c = entries(xs, y, h, label, labels_y, tile, m, D, ROWS, COLUMNS, ROOT, PAIRS)
            P = _gained(tl.exp2((t * scale + own[None, :]).to(w.dtype.element_ty)), c, GAIN, ROOT)
            total = _added(P, w, tile * COLUMNS + inner, m, total, WIDTH, NARROW, PRECISION)
    if NARROW:
        for k in tl.static_range(WIDTH):
            tl.store(out + (split * WIDTH + k).to(tl.int64) * n + rows, total[k])
    else:
        place = ((tl.program_id(2) * splits + split) * n + rows).to(tl.int64)
        tl.store(out + place[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], total)


@jit
def far_products(
    x, y, h, squares_x, squares_y, labels_x, labels_y, rest, w, out, consts, n, m, size_x, size_y, d, share,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ROOT: tl.constexpr, PAIRS: tl.constexpr, GAIN: tl.constexpr,
    WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The same in many dimensions; ``rest`` comes with −s ‖x‖² in it unless ROOT, h with −‖y‖²."""
    split, splits = tl.program_id(1), tl.num_programs(1)
    rows, wide = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, WIDTH)
    scale, own = tl.load(consts), tl.load(rest + rows)
    own = tl.where(own < float("inf"), own, -float("inf"))
    x_rows = x + rows.to(tl.int64)[:, None] * d
    x_at = x_rows + tl.arange(0, BK)[None, :]
    squares, label = tl.load(squares_x + rows), rows
    if PAIRS > 0:
        label = tl.load(labels_x + rows)
    total = tl.zeros([BM, WIDTH], w.dtype.element_ty)
    w_at = w + tl.program_id(2) * WIDTH + wide[None, :]
    stride = tl.num_programs(2) * WIDTH
    for start in range(split * share, tl.minimum((split + 1) * share, m), BN):
        columns = start + tl.arange(0, BN)
        t = far_entries(
            x_at, x_rows, rows[:, None] < size_x, y, h, squares, squares_y, label, labels_y, columns, size_y, d,
            BM, BN, BK, ROOT, PAIRS, "ieee",
        )  # fmt: skip
        P = tl.exp2((t * scale + own[:, None]).to(w.dtype.element_ty))
        if GAIN > 0:
            reach = tl.load(h + columns)[None, :] - t
            if not ROOT:
                reach += squares[:, None] + tl.load(squares_y + columns)[None, :]
            P = _gained(P, tl.where(t > -float("inf"), tl.maximum(reach, 0.0), 0.0), GAIN, ROOT)
        values = tl.load(w_at + columns.to(tl.int64)[:, None] * stride)
        total = tl.dot(P, values, total, input_precision=PRECISION, out_dtype=w.dtype.element_ty)
    place = ((tl.program_id(2) * splits + split) * n + rows).to(tl.int64)
    tl.store(out + place[:, None] * WIDTH + wide[None, :], total)
