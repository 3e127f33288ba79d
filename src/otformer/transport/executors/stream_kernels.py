# mypy: ignore-errors
# ruff: noqa: RUF005
# Kernels are not Python to a type checker, and the forms that ruff prefers are not Triton.
r"""Triton kernels of the streaming executor: one pass, log Σ_j exp((h_j − ‖x_i − y_j‖²)/λ), in full float32 or float64.

A program takes one tile of rows and a share of the tiles of columns; `_merge` puts the shares together. Shares are made
when there are too few tiles of rows to keep the device busy. Logits are in base 2: s = log₂e/λ, and with t_ij the entry
h_j − ‖x_i − y_j‖² the sum is 2^top_i Σ_j 2^(s t_ij − top_i), top_i the greatest s t_ij so far.

- `_near`, in few dimensions, takes differences of coordinates, so nothing cancels. A thread holds a row and goes through
  the columns: maxima and sums need no other thread. Tiles of columns that cannot matter are left out, see below.
- `_far`, in many, is a tiled matrix product of the centred points, t_ij = 2 x_i·y_j + (h_j − ‖y_j‖²), its ‖x_i‖² added
  at the end. The product is ``tf32x3``: each float32 factor is split into two TF32 numbers that together hold all but its
  last bits, and three products are summed in float32. This is not TF32, which keeps 10 bits: its error is measured in
  tests/transport/test_stream.py against float64, at float32's own rounding.

Leaving tiles out. Let I be the box around a tile of rows and J that of a tile of columns, top_J its greatest h. Then
t_ij ≤ top_J − dist(I, J)² for every pair, and for the column with h_j = top_J also t_ij ≥ top_J − reach(I, J)², reach the
greatest distance between points of the boxes. The tile that guarantees most is looked at first. Terms are positive, so
the sum over it, or over all tiles so far, bounds the whole sum of a row from below: let 2^(s floor) be the least bound of
a row in I. A tile with top_J − dist(I, J)² < floor − cut holds only terms under 2^(−s cut) of every row's sum, and there
are not m such terms: with s cut = log₂(m/ε) all that is left out is under ε of the sum, the rounding of the dtype. Boxes
are of the very numbers the entries come from, and bounds are rounded as entries are, relative to dist². No comparison
with NaN is true, and then the tile stays.

Rounding: top_i is a number of the dtype and the exact reference of its row's sum; sums over tiles, and top_i/s + u_i,
where large terms cancel, are float64.

Only `Stream` imports this module. With TRITON_INTERPRET=1 the kernels run on CPU tensors.
"""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl

    jit, LEAST = triton.jit, tl.constexpr(-1e30)  # the second stands for −∞ where a difference of two of them is taken
except ImportError:  # a machine without a GPU reads this module, it does not run it
    triton = None

    def jit(kernel):
        return kernel


if TYPE_CHECKING:
    from otformer.transport.executors.clouds import Cloud

NEAREST = 8  # the most dimensions for `_near`
ROWS, COLUMNS = 32, {torch.float32: 64, torch.float64: 32}  # `_near`: a row for each thread of one warp; columns of a tile
DIGITS = {torch.float32: 23, torch.float64: 52}  # −log₂ ε
CHUNK = 128  # `_near`: tiles of columns judged at once
# `_far`: block of rows, of columns and of coordinates; the second where there are more than 32 coordinates.
FAR = (
    {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 3},
    {"BM": 128, "BN": 64, "BK": 64, "num_warps": 8, "num_stages": 2},
)
PRECISION = "tf32x3"  # of the products in `_far`
PROGRAMS = 16  # programs wanted for each multiprocessor


@dataclass(frozen=True)
class Laid:
    """A cloud as the kernels read it, N its points filled up to whole blocks with copies of the last."""

    points: Tensor  # [d, N] for `_near`; [N, d filled up with zeros] for `_far`
    order: Tensor  # [N], where each point stood in the list given, 0 for filling
    bias: Tensor  # [N], what is added to a potential on the columns' side: −∞ for filling
    shift: Tensor  # [n], float64, what is taken from a potential on the rows' side
    boxes: Tensor | None  # [2d, tiles] for `_near`: least and greatest coordinates of the tiles of columns


def fit(points: Tensor) -> bool:
    """Whether there is a kernel for these points [n, d]: float32, or float64 in few dimensions, on a CUDA device."""
    return triton is not None and points.is_cuda and (points.dtype == torch.float32 or points.shape[1] <= NEAREST)


def lay(cloud: Cloud) -> Laid:
    """The layout of a cloud, made once."""
    n, d = cloud.points.shape
    near, far = d <= NEAREST, FAR[d > 32]
    width = COLUMNS[cloud.points.dtype] if near else far["BM"]
    pad, fill = torch.nn.functional.pad, -n % width
    points = torch.cat([cloud.points, cloud.points[-1:].expand(fill, -1)])
    order, shift = pad(cloud.order, (0, fill)), cloud.shift.double()
    if near:
        tiles = points.view(-1, width, d)
        boxes = torch.cat([tiles.amin(1), tiles.amax(1)], 1).mT.contiguous()
        return Laid(points.mT.contiguous(), order, pad(-cloud.shift, (0, fill), value=-torch.inf), shift, boxes)
    shift = shift + cloud.points.double().square().sum(1)
    bias = pad(-shift.float(), (0, fill), value=-torch.inf)
    return Laid(pad(points, (0, -d % far["BK"])).contiguous(), order, bias, shift, None)


def log_ratio(own: Laid, other: Laid, u: Tensor, v: Tensor, log_a: Tensor, reg: float) -> Tensor:
    """log(S_i/a_i) [n] of the points of ``own``, S_i = Σ_j exp((u_i + v_j − C_ij)/λ − 1); vectors in the order given."""
    exact = math.log2(math.e) / reg
    scale, inverse = _float32(exact), _float32(1 / reg)
    rest = exact - scale if v.dtype == torch.float64 else 0.0
    h = v[other.order] + other.bias
    n, m = len(own.order), len(h)
    tiles = n // ROWS if own.boxes is not None else n // (far := FAR[own.points.shape[1] > 32])["BM"]
    splits = _splits(tiles, other.boxes.shape[1] if own.boxes is not None else m // (4 * far["BN"]), v.device)
    tops, totals = v.new_empty(splits, n), v.new_empty(splits, n, dtype=torch.float64)
    if own.boxes is not None:
        columns = COLUMNS[v.dtype]
        bits = math.log2(m) + DIGITS[v.dtype]
        _near[(tiles, splits)](
            own.points, other.points, h, h.view(-1, columns).amax(1), other.boxes, tops, totals, n, m, scale, rest,
            bits / scale, D=len(own.points), ROWS=ROWS, COLUMNS=columns, CHUNK=CHUNK, num_warps=ROWS // 32,
        )  # fmt: skip
    else:
        _far[(tiles, splits)](
            own.points, other.points, h, tops, totals, n, m, -(-(m // far["BN"]) // splits) * far["BN"], scale,
            D=own.points.shape[1], PRECISION=PRECISION, **far,
        )  # fmt: skip
    out = torch.empty_like(log_a)
    _merge[(-(-len(out) // 256),)](
        tops, totals, own.order, u.contiguous(), own.shift, log_a, out, len(out), n, splits, scale, rest,
        inverse, 1 / reg - inverse, BLOCK=256,
    )  # fmt: skip
    return out


def _float32(number: float) -> float:
    """The float32 number that a kernel is given for a Python one."""
    return ctypes.c_float(number).value


@functools.cache
def _splits(tiles: int, shares: int, device: torch.device) -> int:
    """Into how many parts the columns are cut: enough programs for the device, and no empty part."""
    count = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    wanted = max(1, min(-(-PROGRAMS * count // tiles), shares))
    return -(-shares // -(-shares // wanted)) if shares else 1


@jit
def _bound(low, high, tops, boxes, J, tiles, D: tl.constexpr, FARTHEST: tl.constexpr):
    """top_J − dist(I, J)² for the tiles J [CHUNK], or with FARTHEST top_J − reach(I, J)²; −∞ past the last tile."""
    inside = tiles > J
    bound = tl.load(tops + J, mask=inside, other=-float("inf"))
    for k in tl.static_range(D):
        low_j = tl.load(boxes + k * tiles + J, mask=inside, other=0.0)
        high_j = tl.load(boxes + (D + k) * tiles + J, mask=inside, other=0.0)
        if FARTHEST:
            gap = tl.maximum(high[k] - low_j, high_j - low[k])
        else:
            gap = tl.maximum(tl.maximum(low_j - high[k], low[k] - high_j), 0.0)
        bound -= gap * gap
    return bound


@jit
def _entries(xs, y, h, J, m, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """t_ij = h_j − ‖x_i − y_j‖² of the rows and tile J of columns, [COLUMNS, ROWS]: threads lie along the rows."""
    columns = J * COLUMNS + tl.arange(0, COLUMNS)
    t = tl.broadcast_to(tl.load(h + columns)[:, None], [COLUMNS, ROWS])
    for k in tl.static_range(D):
        gap = tl.load(y + k * m + columns)[:, None] - xs[k][None, :]
        t -= gap * gap
    return t


@jit
def _near(
    x, y, h, tops, boxes, out_top, out_total, n, m, scale, rest, cut,
    D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    split, splits, tiles = tl.program_id(1), tl.num_programs(1), m // COLUMNS
    rows, lanes = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, CHUNK)
    number = h.dtype.element_ty
    scale = tl.zeros([ROWS], number) + scale + rest
    xs, low, high = (), (), ()
    for k in tl.static_range(D):
        x_k = tl.load(x + k * n + rows)
        xs, low, high = xs + (x_k,), low + (tl.min(x_k, 0),), high + (tl.max(x_k, 0),)

    best, where = tl.full([CHUNK], -float("inf"), number), tl.zeros([CHUNK], tl.int32)
    for start in range(0, tiles, CHUNK):
        bound = _bound(low, high, tops, boxes, start + lanes, tiles, D, True)
        where = tl.where(bound > best, start + lanes, where)
        best = tl.where(bound > best, bound, best)
    nearest = tl.min(tl.where(best == tl.max(best, 0), where, tiles - 1), 0)
    t = _entries(xs, y, h, nearest, m, D, ROWS, COLUMNS)
    top = tl.maximum(tl.max(t, 0) * scale, LEAST)
    least = top + tl.log2(tl.sum(tl.exp2(t * scale[None, :] - top[None, :]), 0))

    # The tiles of a share lie splits apart: those that matter are neighbours, and every share gets its part of them.
    total = tl.zeros([ROWS], tl.float64)
    for start in range(split, tiles, CHUNK * splits):
        J = start + splits * lanes
        floor = tl.min(tl.maximum(least, top + tl.log2(total.to(number))) / scale, 0) - cut
        keep = (tiles > J) & ~(_bound(low, high, tops, boxes, J, tiles, D, False) < floor)
        tile = tl.min(tl.where(keep, J, tiles), 0)
        while tile < tiles:
            t = _entries(xs, y, h, tile, m, D, ROWS, COLUMNS)
            new = tl.maximum(top, tl.max(t, 0) * scale)
            total = total * tl.exp2(top - new) + tl.sum(tl.exp2(t * scale[None, :] - new[None, :]), 0)
            top = new
            tile = tl.min(tl.where(keep & (tile < J), J, tiles), 0)
    tl.store(out_top + split * n + rows, top)
    tl.store(out_total + split * n + rows, total)


@jit
def _far(
    x, y, h, out_top, out_total, n, m, share, scale,
    D: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    split = tl.program_id(1)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    depth = tl.arange(0, BK)
    x_at = x + rows.to(tl.int64)[:, None] * D + depth[None, :]
    top = tl.full([BM], LEAST, tl.float32)
    total = tl.zeros([BM], tl.float64)
    for start in range(split * share, tl.minimum((split + 1) * share, m), BN):
        columns = start + tl.arange(0, BN)
        y_at = y + columns.to(tl.int64)[None, :] * D + depth[:, None]
        products = tl.zeros([BM, BN], tl.float32)
        for k in range(0, D, BK):
            products = tl.dot(tl.load(x_at + k), tl.load(y_at + k), products, input_precision=PRECISION)
        t = 2.0 * products + tl.load(h + columns)[None, :]
        new = tl.maximum(top, tl.max(t, 1) * scale)
        total = total * tl.exp2(top - new) + tl.sum(tl.exp2(t * scale - new[:, None]), 1)
        top = new
    tl.store(out_top + split * n + rows, top)
    tl.store(out_total + split * n + rows, total)


@jit
def _merge(
    tops, totals, order, u, shift, log_a, out, n, stride, splits, scale, rest, inverse, remainder, BLOCK: tl.constexpr
):  # fmt: skip
    """Shares put together, and the row's own terms: out = (top/s + u − shift)/λ + ln Σ − 1 − ln a.

    s = scale + rest and 1/λ = inverse + remainder: a kernel is given float32 numbers.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    top = tl.full([BLOCK], LEAST, tops.dtype.element_ty)
    total = tl.zeros([BLOCK], tl.float64)
    for k in range(splits):
        share = tl.load(tops + k * stride + i, mask=inside, other=LEAST)
        new = tl.maximum(top, share)
        part = tl.load(totals + k * stride + i, mask=inside, other=0.0)
        total = total * tl.exp2(top - new) + part * tl.exp2(share - new)
        top = new
    place = tl.load(order + i, mask=inside, other=0)
    own = tl.load(u + place, mask=inside, other=0.0).to(tl.float64) - tl.load(shift + i, mask=inside, other=0.0)
    greatest = top.to(tl.float64) / (tl.zeros([BLOCK], tl.float64) + scale + rest) + own
    log_sum = greatest * inverse + greatest * remainder + tl.log(total)
    tl.store(out + place, log_sum - 1.0 - tl.load(log_a + place, mask=inside, other=0.0), mask=inside)
