# ruff: noqa: RUF005 - the forms that it prefers are not Triton
r"""Triton kernels of a pass, G_i = λ log Σ_j exp((h_j − c_ij)/λ), c_ij = ‖x_i − y_j‖² or ‖x_i − y_j‖.

A program takes one tile of rows and a share of the tiles of columns; settle_kernels.py puts the shares together. Shares are
made when there are too few tiles of rows to keep the device busy. Logits are in base 2: s = log₂e/λ, and with t_ij the entry
h_j − c_ij the sum is 2^top_i Σ_j 2^(s t_ij − top_i), top_i at or above the greatest s t_ij so far.

- `near`, in few dimensions, takes differences of coordinates, so nothing cancels. A thread holds a row and goes through
  the columns: maxima and sums need no other thread. Tiles of columns that cannot matter are left out, see below.
- `far`, in many, is a tiled matrix product of the centred points, −‖x_i − y_j‖² + ‖x_i‖² = 2 x_i·y_j − ‖y_j‖², the ‖x_i‖²
  taken off at the end. In float32 the product is ``tf32x3``: each factor is split into two TF32 numbers that together hold
  all but its last bits, and three products are summed in float32. This is not TF32, which keeps 10 bits.

Leaving tiles out. A tile of columns J matters to a tile of rows I only if some entry t_ij is not far below S_i, λ log of a
row's sum. Both h and S may be steep, where mass goes far, so a line is taken off each: with any slopes s of J and r of I,
c_J and c_I the middles of the boxes around both,

    t_ij − S_i ≤ max_J (h_j − s·(y_j − c_J)) − min_I (S_i − r·(x_i − c_I))
                 + max over both boxes of  s·(y − c_J) − r·(x − c_I) − ‖x − y‖²,

and the last is a sum over coordinates, each at x = hi_J − r/2 if s > r, else lo_J − r/2, pushed into I's interval, and
y = x + s/2, pushed into J's. The slopes are those of regressions, one coordinate after the other. Terms are positive, so the
sum over some tiles bounds S_i from below: the tile best for the middle of I is looked at first, and then all so far. (In
the course of a solve S_i is nearly known from the step before: no tile need be looked for, and none is looked at in vain.)
A tile whose bound is under −cut holds only terms under 2^(−s cut) of every row's sum. With s cut = log₂(m/ε) all that is
left out is under ε of the sum. For plain distances there are no slopes. No comparison with NaN is true, and then the tile
stays.

``consts`` holds float64 numbers, which a kernel's arguments are not: s, λ, s as float32 holds it, and cut.
With TRITON_INTERPRET=1 the kernels run on CPU tensors.
"""

from __future__ import annotations

from otformer.transport.costs.gpu import language
from otformer.transport.costs.gpu.language import constant, tl

CLOSE = constant(2.0**-20)  # squared distance, in units of the squared norms: nearer points are subtracted
LEAST = constant(-1e30)  # stands for −∞ where a difference of two of them is taken
jit = language.jit("size_x", "size_y", "splits", "share")


@jit
def bound_of(low, high, lean, tops, slopes, boxes, J, tiles, D: tl.constexpr, ROOT: tl.constexpr):
    """An upper bound on t_ij − r·(x_i − c_I) for the tiles J [CHUNK], r = ``lean``; −∞ past the last tile."""
    inside = tiles > J
    bound = tl.load(tops + J, mask=inside, other=-float("inf"))
    apart = tl.zeros_like(bound)
    for k in tl.static_range(D):
        low_j = tl.load(boxes + k * tiles + J, mask=inside, other=0.0)
        high_j = tl.load(boxes + (D + k) * tiles + J, mask=inside, other=0.0)
        if ROOT:
            gap = tl.maximum(tl.maximum(low_j - high[k], low[k] - high_j), 0.0)
            apart += gap * gap
        else:
            slope = tl.load(slopes + k * tiles + J, mask=inside, other=0.0)
            x = tl.minimum(tl.maximum(tl.where(slope > lean[k], high_j, low_j) - 0.5 * lean[k], low[k]), high[k])
            y = tl.minimum(tl.maximum(x + 0.5 * slope, low_j), high_j)
            apart += (y - x) * (y - x) + lean[k] * (x - 0.5 * (low[k] + high[k])) - slope * (y - 0.5 * (low_j + high_j))
    if ROOT:
        apart = tl.sqrt(apart)
    return bound - apart


@jit
def leaning(xs, low, high, S, D: tl.constexpr, ROWS: tl.constexpr, ROOT: tl.constexpr):
    """The slopes r of S [ROWS] over the rows, a tuple; and r·(x_i − c_I) [ROWS]. All 0 for plain distances."""
    lean, tilt = (), tl.zeros_like(S)
    usable = (tl.min(S, 0) > LEAST / 2) & (tl.max(S, 0) < -LEAST / 2)
    for k in tl.static_range(D):
        r = tl.sum(xs[k] * 0, 0)
        if not ROOT:
            x = xs[k] - tl.sum(xs[k], 0) / ROWS
            spread = tl.sum(x * x, 0)
            r = tl.where(usable & (spread > 0), tl.sum(x * (S - tilt), 0) / tl.where(spread > 0, spread, 1.0), 0.0)
            tilt += r * (xs[k] - 0.5 * (low[k] + high[k]))
        lean = lean + (r,)
    return lean, tilt


@jit
def entries(
    xs, y, h, label, labels, J, m,
    D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROOT: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """t_ij = h_j − c_ij of the rows and tile J of columns, and c_ij, both [COLUMNS, ROWS]: threads lie along the rows.

    PAIRS: 0 all, 1 those of equal labels, 2 those of different ones; t is −∞ for the others.
    """
    columns = J * COLUMNS + tl.arange(0, COLUMNS)
    gap = tl.load(y + columns)[:, None] - xs[0][None, :]
    c = gap * gap
    for k in tl.static_range(1, D):
        gap = tl.load(y + k * m + columns)[:, None] - xs[k][None, :]
        c += gap * gap
    if ROOT:
        c = tl.sqrt(c)
    t = tl.load(h + columns)[:, None] - c
    if PAIRS > 0:
        equal = tl.load(labels + columns)[:, None] == label[None, :]
        t = tl.where(equal if PAIRS == 1 else ~equal, t, -float("inf"))
    return t, c


@jit
def add(t, top, total, scale, AXIS: tl.constexpr, MIXED: tl.constexpr):
    """top and total [ROWS] with the terms 2^(s t − top) of a tile added; in a MIXED pass top is a whole number."""
    if MIXED:
        e = (t * tl.expand_dims(scale, AXIS) - tl.expand_dims(top, AXIS)).to(tl.float32)
        if tl.max(tl.max(e, AXIS), 0) > 0:  # seldom, for the tile that promised most came first
            new = tl.maximum(top, tl.ceil(tl.max(t, AXIS) * scale))
            total = total * tl.exp2(top - new)
            top = new
            e = (t * tl.expand_dims(scale, AXIS) - tl.expand_dims(top, AXIS)).to(tl.float32)
        total += tl.sum(tl.exp2(e), AXIS).to(tl.float64)
    else:
        new = tl.maximum(top, tl.max(t, AXIS) * scale)
        e = t * tl.expand_dims(scale, AXIS) - tl.expand_dims(new, AXIS)
        total = total * tl.exp2(top - new) + tl.sum(tl.exp2(e), AXIS)
        top = new
    return top, total


@jit
def rows_of(x, labels, rows, n, D: tl.constexpr, PAIRS: tl.constexpr):
    """Coordinates of the rows, a tuple; the box around them; their labels."""
    xs, low, high = (), (), ()
    for k in tl.static_range(D):
        x_k = tl.load(x + k * n + rows)
        xs, low, high = xs + (x_k,), low + (tl.min(x_k, 0),), high + (tl.max(x_k, 0),)
    label = rows
    if PAIRS > 0:
        label = tl.load(labels + rows)
    return xs, low, high, label


@jit
def near(
    x, y, h, tops, slopes, boxes, labels_x, labels_y, hint, out_top, out_total, consts, n, m,
    D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr, ROOT: tl.constexpr,
    PAIRS: tl.constexpr, MIXED: tl.constexpr, TILED: tl.constexpr, HINT: tl.constexpr, MARGIN: tl.constexpr,
    EXPONENTIAL: tl.constexpr,
):  # fmt: skip
    """Sums of the tiles of rows. With HINT every row's S is known already, up to MARGIN bits, from the step before."""
    split, splits, tiles = tl.program_id(1), tl.num_programs(1), m // COLUMNS
    rows, lanes = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, CHUNK)
    number = h.dtype.element_ty
    scale, cut = tl.zeros([ROWS], number) + tl.load(consts).to(number), tl.load(consts + 3).to(number)
    xs, low, high, label = rows_of(x, labels_x, rows, n, D, PAIRS)
    top, total = tl.full([ROWS], LEAST, number), tl.zeros([ROWS], tl.float64)
    if TILED:
        first = 0
        if HINT:
            top = tl.load(hint + rows).to(number) * scale  # near enough to what it will be: no greatest term need be found
            least = top - MARGIN
            if MIXED:
                top = tl.ceil(top)
        else:
            flat, middle = (), ()
            for k in tl.static_range(D):
                flat, middle = flat + (low[k] * 0,), middle + (0.5 * (low[k] + high[k]),)
            best, where = tl.full([CHUNK], -float("inf"), number), tl.zeros([CHUNK], tl.int32)
            for start in range(0, tiles, CHUNK):
                bound = bound_of(middle, middle, flat, tops, slopes, boxes, start + lanes, tiles, D, ROOT)
                where = tl.where(bound > best, start + lanes, where)
                best = tl.where(bound > best, bound, best)
            nearest = tl.min(tl.where(best == tl.max(best, 0), where, tiles - 1), 0)
            t, _ = entries(xs, y, h, label, labels_y, nearest, m, D, ROWS, COLUMNS, ROOT, PAIRS)
            top = tl.maximum(tl.max(t, 0) * scale, LEAST)
            if MIXED:
                top = tl.ceil(top)
            least = top + tl.log2(tl.sum(tl.exp2((t * scale[None, :] - top[None, :]).to(tl.float32)), 0)).to(number)
            first = nearest // (CHUNK * splits)
        lean, tilt = leaning(xs, low, high, least / scale, D, ROWS, ROOT)

        # The tiles of a share lie splits apart: those that matter are neighbours, and every share gets its part of them.
        # The chunk of the nearest tile comes first: with it most of the sum is known, and what the others must reach.
        rounds = tl.cdiv(tiles, CHUNK * splits)
        for turn in range(rounds):
            chunk = first + turn
            chunk = tl.where(chunk < rounds, chunk, chunk - rounds)
            J = chunk * CHUNK * splits + split + splits * lanes
            known = least
            if not HINT:
                known = tl.maximum(least, top + tl.log2(total.to(tl.float32)).to(number))
            floor = tl.min(known / scale - tilt, 0) - cut
            keep = (tiles > J) & ~(bound_of(low, high, lean, tops, slopes, boxes, J, tiles, D, ROOT) < floor)
            tile = tl.min(tl.where(keep, J, tiles), 0)
            while tile < tiles:
                t, _ = entries(xs, y, h, label, labels_y, tile, m, D, ROWS, COLUMNS, ROOT, PAIRS)
                if HINT:
                    total += tl.sum(tl.exp2((t * scale[None, :] - top[None, :]).to(EXPONENTIAL)), 0).to(tl.float64)
                else:
                    top, total = add(t, top, total, scale, 0, MIXED)
                tile = tl.min(tl.where(keep & (tile < J), J, tiles), 0)
    else:
        for tile in range(split, tiles, splits):
            t, _ = entries(xs, y, h, label, labels_y, tile, m, D, ROWS, COLUMNS, ROOT, PAIRS)
            top, total = add(t, top, total, scale, 0, MIXED)
    tl.store(out_top + split * n + rows, top)
    tl.store(out_total + split * n + rows, total)


@jit
def far_entries(
    x_at, x_rows, here, y, h, squares_x, squares_y, label, labels, columns, size_y, d,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ROOT: tl.constexpr, PAIRS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """t_ij [BM, BN] = h_j − c_ij, but for ‖x_i‖² unless ROOT; h comes with −‖y_j‖² in it unless ROOT.

    There are rows ``here`` [BM, 1] and ``size_y`` columns; the points of filling are at the origin. x_at and x_rows point to
    BK coordinates of every row, and to the first.
    """
    depth = tl.arange(0, BK)
    y_at = y + columns.to(tl.int64)[None, :] * d + depth[:, None]
    number = h.dtype.element_ty
    products = tl.zeros([BM, BN], number)
    there = columns[None, :] < size_y
    for k in range(0, d, BK):
        x_k, y_k = tl.load(x_at + k, mask=here, other=0.0), tl.load(y_at + k, mask=there, other=0.0)
        products = tl.dot(x_k, y_k, products, input_precision=PRECISION, out_dtype=number)
    if ROOT:
        norms = squares_x[:, None] + tl.load(squares_y + columns)[None, :]
        squares = norms - 2.0 * products
        if tl.max(tl.max((squares < CLOSE * norms).to(tl.int32), 1), 0) > 0:  # digits are lost: coordinates are subtracted
            squares = tl.zeros([BM, BN], number)
            for k in range(0, d):
                y_k = tl.load(y + columns.to(tl.int64) * d + k, mask=columns < size_y, other=0.0)
                gap = tl.load(x_rows + k, mask=here, other=0.0) - y_k[None, :]
                squares += gap * gap
        t = tl.load(h + columns)[None, :] - tl.sqrt(tl.maximum(squares, 0.0))
    else:
        t = 2.0 * products + tl.load(h + columns)[None, :]
    if PAIRS > 0:
        equal = tl.load(labels + columns)[None, :] == label[:, None]
        t = tl.where(equal if PAIRS == 1 else ~equal, t, -float("inf"))
    return t


@jit
def far(
    x, y, h, squares_x, squares_y, labels_x, labels_y, out_top, out_total, consts, n, m, size_x, size_y, d, share,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ROOT: tl.constexpr, PAIRS: tl.constexpr, MIXED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    split, rows = tl.program_id(1), tl.program_id(0) * BM + tl.arange(0, BM)
    number = h.dtype.element_ty
    scale = tl.zeros([BM], number) + tl.load(consts).to(number)
    x_rows = x + rows.to(tl.int64)[:, None] * d
    x_at = x_rows + tl.arange(0, BK)[None, :]
    squares, label = scale, rows
    if ROOT:
        squares = tl.load(squares_x + rows)
    if PAIRS > 0:
        label = tl.load(labels_x + rows)
    top, total = tl.full([BM], LEAST, number), tl.zeros([BM], tl.float64)
    for start in range(split * share, tl.minimum((split + 1) * share, m), BN):
        columns = start + tl.arange(0, BN)
        t = far_entries(
            x_at, x_rows, rows[:, None] < size_x, y, h, squares, squares_y, label, labels_y, columns, size_y, d,
            BM, BN, BK, ROOT, PAIRS, PRECISION,
        )  # fmt: skip
        top, total = add(t, top, total, scale, 1, MIXED)
    tl.store(out_top + split * n + rows, top)
    tl.store(out_total + split * n + rows, total)
