r"""Triton kernels of the k least c_ij − v_j of every row, in float64; the matrix is never formed.

Entries are t_ij = v_j − c_ij, as in a pass (costs/gpu/pass_kernels.py), and the greatest are kept. A program takes one
tile of rows and a share of the columns, and holds of every row a list of k entries with their columns, in no order. Of a
tile of columns the greatest entry of every row is put in place of the least in its list, and this is repeated for as long as
one of the rows gains by it.

- `near_least`, in few dimensions: a thread holds a row, and tiles of columns that cannot matter are left out.
- `far_least`, in many: all tiles, as matrix products; their rounding is that of ‖x‖² + ‖y‖².

Leaving tiles out. The bound b_IJ of a pass is at or above t_ij − r·(x_i − c_I) for all i of the tile I and j of J, whatever
the slopes r. With S_i at or below k entries of row i, the least in its list or what is known before, a tile is read unless

    b_IJ < min_I (S_i − r·(x_i − c_I)) − slack,

so that all its entries are under S_i. `near_first` finds the tile best for the middle of I, and in it a first S, with its
slopes r. Tiles are judged a chunk at a time, and those of a chunk read with the best first, until none is left that passes.

Rounding. Both sides are sums of less than 2⁶ terms, each of a few roundings, and no term or partial sum is above

    size = 2 max c + max |v| + max_J (|top_J| + Σ_k |s_k| width_k(J)) + Σ_k |r_k| width_k(I),

top_J and s as `Columns` has them (|S_i| and |t_ij| are at most max c + max |v|). They err by less than 2⁹ 2⁻⁵³ size = 2⁻⁴⁴
size, and so much is the slack: what is left out is under S_i as computed, too. All of size but the last sum is ``reach``.
Another kernel may round the entries that made S differently, so those that are under S_i by no more than slack are listed.
"""

from __future__ import annotations

from otformer.transport.costs.gpu import language
from otformer.transport.costs.gpu.language import constant, tl
from otformer.transport.costs.gpu.pass_kernels import bound_of, entries, far_entries, leaning, rows_of

BOUND_ROUNDING = constant(2.0**-44)  # of bounds, as a share of what they are made of
jit = language.jit("k", "turns", "share", "size_x", "size_y")


@jit
def empty_lists(k, K: tl.constexpr, ROWS: tl.constexpr, AXIS: tl.constexpr):
    """Lists of k entries −∞ with columns −1, [K, ROWS], or [ROWS, K] for AXIS 1; beyond k they are +∞, and stay so."""
    slots = tl.expand_dims(tl.arange(0, K), 1 - AXIS)
    best = tl.where(slots < k, -float("inf"), float("inf")).to(tl.float64)
    rows = tl.expand_dims(tl.zeros([ROWS], tl.int32), AXIS)
    return best + rows, slots * 0 + rows - 1


@jit
def put(t, first, best, place, known, SIZE: tl.constexpr, K: tl.constexpr, AXIS: tl.constexpr):
    """The lists with the entries of a tile, but for those below ``known`` [ROWS]; columns are along AXIS, from ``first``."""
    columns, slots = tl.expand_dims(tl.arange(0, SIZE), 1 - AXIS), tl.expand_dims(tl.arange(0, K), 1 - AXIS)
    top, least = tl.max(t, AXIS), tl.min(best, AXIS)
    gains = (top > least) & (top >= known)
    while tl.max(gains.to(tl.int32), 0) > 0:
        column = tl.min(tl.where(t == tl.expand_dims(top, AXIS), columns, SIZE), AXIS)
        slot = tl.min(tl.where(best == tl.expand_dims(least, AXIS), slots, K), AXIS)
        here = (slots == tl.expand_dims(slot, AXIS)) & tl.expand_dims(gains, AXIS)
        best = tl.where(here, tl.expand_dims(top, AXIS), best)
        place = tl.where(here, tl.expand_dims(first + column, AXIS), place)
        t = tl.where(columns == tl.expand_dims(column, AXIS), -float("inf"), t)
        top, least = tl.max(t, AXIS), tl.min(best, AXIS)
        gains = (top > least) & (top >= known)
    return best, place


@jit
def promise_of(
    low, high, lean, tops, slopes, boxes, label, labels, J, tiles,
    D: tl.constexpr, COLUMNS: tl.constexpr, ROOT: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """The bounds of the tiles J [CHUNK]: +∞ where it is not a number, −∞ where there is no such tile, or no pair allowed."""
    bound = bound_of(low, high, lean, tops, slopes, boxes, J, tiles, D, ROOT)
    bound = tl.where(bound == bound, bound, float("inf"))
    if PAIRS == 1:  # columns stand by label
        least = tl.load(labels + J * COLUMNS, mask=tiles > J, other=0)
        greatest = tl.load(labels + J * COLUMNS + COLUMNS - 1, mask=tiles > J, other=0)
        bound = tl.where((greatest < tl.min(label, 0)) | (least > tl.max(label, 0)), -float("inf"), bound)
    return bound


@jit
def near_first(
    x, y, h, tops, slopes, boxes, labels_x, labels_y, nearest, known, n, m, k,
    D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr, K: tl.constexpr, ROOT: tl.constexpr,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """The tile of columns best for the middle of every tile of rows, [n // ROWS], and the S [n] it gives them."""
    tiles, lanes = m // COLUMNS, tl.arange(0, CHUNK)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    xs, low, high, label = rows_of(x, labels_x, rows, n, D, PAIRS)
    level, middle = (), ()
    for c in tl.static_range(D):
        level, middle = level + (low[c] * 0,), middle + (0.5 * (low[c] + high[c]),)  # noqa: RUF005
    most, where = tl.full([CHUNK], -float("inf"), tl.float64), tl.zeros([CHUNK], tl.int32)
    for start in range(0, tiles, CHUNK):
        J = start + lanes
        bound = promise_of(middle, middle, level, tops, slopes, boxes, label, labels_y, J, tiles, D, COLUMNS, ROOT, PAIRS)
        where = tl.where(bound > most, J, where)
        most = tl.maximum(bound, most)
    tile = tl.min(tl.where(most == tl.max(most, 0), where, tiles - 1), 0)
    t, _ = entries(xs, y, h, label, labels_y, tile, m, D, ROWS, COLUMNS, ROOT, PAIRS)
    best, place = empty_lists(k, K, ROWS, 0)
    best, place = put(t, tile * COLUMNS, best, place, tl.min(best, 0), COLUMNS, K, 0)
    tl.store(nearest + tl.program_id(0), tile)
    tl.store(known + rows, tl.min(best, 0))


@jit
def near_least(
    x, y, h, tops, slopes, boxes, labels_x, labels_y, nearest, known, reach, out, places, n, m, k, turns,
    D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr, K: tl.constexpr, ROOT: tl.constexpr,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """out and places [share, n, k]: of every share of the columns the k greatest t_ij of each row, and j.

    S is at least ``known`` [n]. Of the chunks as many are looked at as there are ``turns``, from that of the nearest tile.
    """
    split, splits, tiles = tl.program_id(1), tl.num_programs(1), m // COLUMNS
    rows, lanes = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, CHUNK)
    xs, low, high, label = rows_of(x, labels_x, rows, n, D, PAIRS)
    S, first = tl.load(known + rows), tl.load(nearest + tl.program_id(0)) // (CHUNK * splits)
    lean, tilt = leaning(xs, low, high, S, D, ROWS, ROOT)
    size = tl.load(reach)
    for c in tl.static_range(D):
        size += tl.abs(lean[c]) * (high[c] - low[c])
    slack = BOUND_ROUNDING * size
    best, place = empty_lists(k, K, ROWS, 0)
    # The tiles of a share lie splits apart: those that matter are neighbours, and every share gets its part of them.
    chunks = tl.cdiv(tiles, CHUNK * splits)
    for turn in range(turns):
        chunk = tl.where(first + turn < chunks, first + turn, first + turn - chunks)
        J = chunk * CHUNK * splits + split + splits * lanes
        bound = promise_of(low, high, lean, tops, slopes, boxes, label, labels_y, J, tiles, D, COLUMNS, ROOT, PAIRS)
        floor, top = tl.min(tl.maximum(tl.min(best, 0), S) - tilt, 0) - slack, tl.max(bound, 0)
        while (top >= floor) & (top > -float("inf")):
            tile = tl.min(tl.where(bound == top, J, tiles), 0)
            t, _ = entries(xs, y, h, label, labels_y, tile, m, D, ROWS, COLUMNS, ROOT, PAIRS)
            best, place = put(t, tile * COLUMNS, best, place, S - slack, COLUMNS, K, 0)
            bound = tl.where(tile == J, -float("inf"), bound)
            floor, top = tl.min(tl.maximum(tl.min(best, 0), S) - tilt, 0) - slack, tl.max(bound, 0)
    slots = tl.arange(0, K)[:, None]
    at = (split * n + rows).to(tl.int64)[None, :] * k + slots
    tl.store(out + at, best, mask=slots < k)
    tl.store(places + at, place, mask=slots < k)


@jit
def far_least(
    x, y, h, squares_x, squares_y, labels_x, labels_y, out, places, n, m, size_x, size_y, d, share, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, K: tl.constexpr, ROOT: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """The same in many dimensions, but for ‖x_i‖² in t_ij unless ROOT; h comes with −‖y_j‖² in it then."""
    split, rows = tl.program_id(1), tl.program_id(0) * BM + tl.arange(0, BM)
    x_rows = x + rows.to(tl.int64)[:, None] * d
    x_at = x_rows + tl.arange(0, BK)[None, :]
    squares, label = tl.load(squares_x + rows), rows
    if PAIRS > 0:
        label = tl.load(labels_x + rows)
    best, place = empty_lists(k, K, BM, 1)
    known = tl.min(best, 1)
    for start in range(split * share, tl.minimum((split + 1) * share, m), BN):
        columns = start + tl.arange(0, BN)
        t = far_entries(
            x_at, x_rows, rows[:, None] < size_x, y, h, squares, squares_y, label, labels_y, columns, size_y, d,
            BM, BN, BK, ROOT, PAIRS, "ieee",
        )  # fmt: skip
        best, place = put(t, start, best, place, known, BN, K, 1)
    slots = tl.arange(0, K)[None, :]
    at = (split * n + rows).to(tl.int64)[:, None] * k + slots
    tl.store(out + at, best, mask=slots < k)
    tl.store(places + at, place, mask=slots < k)
