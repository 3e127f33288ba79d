"""Products with a plan on a CUDA device (costs/gpu/product_kernels.py)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otformer.transport.costs.gpu import product_kernels as kernels
from otformer.transport.costs.gpu.layout import MIXED, Side
from otformer.transport.costs.gpu.passes import (
    CHUNK,
    FAR_DOUBLE,
    HINTED_SPLITS,
    PRECISION,
    ROWS,
    Passes,
    far_shares,
    splits_of,
)

GAINS = {"one": 0, "cost": 1, "inverse": 2}
ROOM = 2**26  # numbers of a product held at once
NARROW = 4  # columns, up to which they are added up one by one


def product(
    passes: Passes, own: Side, other: Side, mine: Tensor, theirs: Tensor, values: Tensor, numbers: Tensor, gain: str
) -> Tensor:
    """Σ_j P_ij g_ij values_jk [N, k], float64; potentials mine [N] and theirs [M], values [M, k], in the layout's order.

    Columns are scaled to a greatest value of 1 before they are rounded to what the precision multiplies.
    """
    few = own.near and values.shape[1] <= NARROW
    wide = values.shape[1] if few else 16 if values.shape[1] <= 16 or own.near else 64
    step = max(1, ROOM // (len(own.log_w) * wide)) * wide
    parts = [_product(passes, own, other, mine, theirs, part, numbers, gain, wide) for part in values.split(step, 1)]
    return torch.cat(parts, 1) if len(parts) > 1 else parts[0]


def _product(
    passes: Passes, own: Side, other: Side, mine: Tensor, theirs: Tensor, values: Tensor, numbers: Tensor, gain: str,
    wide: int,
) -> Tensor:  # fmt: skip
    assert passes.precision.numbers == torch.float64
    n, m, k = len(own.log_w), len(other.log_w), values.shape[1]
    dtype = passes.precision.exponentials
    largest = values.abs().amax(0).clamp_min(torch.finfo(torch.float64).tiny)
    w = torch.nn.functional.pad((values / largest).to(dtype), (0, -k % wide)).contiguous()
    chunks = w.shape[1] // wide
    row = mine if own.near or passes.rule.root else mine - own.squares
    rest = row * numbers[0] - math.log2(math.e) * (1 + own.log_w)
    rest = torch.where(own.log_w > -math.inf, rest, math.inf)
    labels = own.labels if passes.pairs else own.log_w, other.labels if passes.pairs else own.log_w
    columns = passes.columns(other, theirs)
    options = dict(
        ROOT=passes.rule.root, PAIRS=passes.pairs, GAIN=GAINS[gain], WIDTH=wide,
        PRECISION=PRECISION if passes.precision is MIXED else "ieee",
    )  # fmt: skip
    if own.near:
        width, few = passes.precision.columns, wide <= NARROW
        splits = splits_of(n // ROWS, m // width, w.device)
        splits = max(splits, min(HINTED_SPLITS, m // width)) if few else splits
        out = row.new_empty(1, splits, wide, n) if few else w.new_empty(chunks, splits, n, wide)
        values = w.mT.contiguous() if few else w
        kernels.near_products[(n // ROWS, splits, chunks)](
            own.points, other.points, *columns, other.boxes(passes.precision), *labels, rest, values, out, numbers, n, m,
            D=len(own.points), ROWS=ROWS, COLUMNS=width, CHUNK=CHUNK, NARROW=few,
            TILED=own.tiled and other.tiled, num_warps=ROWS // 32, **options,
        )  # fmt: skip
        out = out.mT if few else out
    else:
        splits, share = far_shares(n, m, FAR_DOUBLE, w.device)
        out = w.new_empty(chunks, splits, n, wide)
        kernels.far_products[(n // FAR_DOUBLE["BM"], splits, chunks)](
            own.points, other.points, columns.h, own.squares, other.squares, *labels, rest, w, out, numbers, n, m,
            own.size, other.size, own.points.shape[1], share, **FAR_DOUBLE, **options,
        )  # fmt: skip
    sums = out.double().sum(1).transpose(0, 1).reshape(n, -1)[:, :k]
    return sums * (largest * own.log_w.exp()[:, None])
