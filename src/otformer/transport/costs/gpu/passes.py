"""Passes on a CUDA device: which kernel runs over which tiles, in which precision (costs/gpu/pass_kernels.py)."""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otformer.transport.costs.clouds import Rule
from otformer.transport.costs.gpu import pass_kernels as kernels
from otformer.transport.costs.gpu import settle_kernels as settling
from otformer.transport.costs.gpu.layout import BLOCK, MIXED, SINGLE, Precision, Side

ROWS = 32  # `near`: a row for each thread of one warp
CHUNK = 128  # `near`: tiles of columns judged at once
MARGIN = 2.0  # bits that a row's sum may have fallen since it was last known
HINTED_SPLITS = 8  # at least, where nothing is looked for: the last tiles of rows, with boxes of many far points, take long
PROGRAMS = 16  # programs wanted for each multiprocessor
# `far`: block of rows, of columns and of coordinates; in float32 the second where there are more than 32 coordinates.
FAR_SINGLE: tuple[dict[str, int], dict[str, int]] = (
    {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 3},
    {"BM": 128, "BN": 64, "BK": 64, "num_warps": 8, "num_stages": 2},
)
FAR_DOUBLE = {"BM": 64, "BN": 32, "BK": 16, "num_warps": 4, "num_stages": 3}
PRECISION = "tf32x3"  # of float32 products in `far`


class Columns(NamedTuple):
    """Potentials as a pass reads them: h [N] in the pass's numbers, less ‖y‖² in many dimensions.

    In few dimensions of every tile its slopes [d, tiles], and the greatest of what they leave [tiles].
    """

    h: Tensor
    tops: Tensor
    slopes: Tensor


class Sums(NamedTuple):
    """Shares of the sums of rows: tops and totals, both [splits, N]."""

    tops: Tensor
    totals: Tensor


def params(reg: float, bits: float, device: torch.device) -> Tensor:
    """The kernels' constants for λ, and the threshold for skipping a tile: a share of 2^−bits of a row's sum."""
    scale = math.log2(math.e) / reg
    return torch.tensor([scale, reg, ctypes.c_float(scale).value, bits / scale], dtype=torch.float64, device=device)


@dataclass(frozen=True)
class Passes:
    """Passes of one precision and cost; kernels are launched, nothing is waited for."""

    precision: Precision
    rule: Rule

    @property
    def pairs(self) -> int:
        return 0 if self.rule.labels is None else 1 if self.rule.same else 2

    @property
    def exponential(self) -> Any:
        """The type of exponentials, as Triton calls it."""
        return kernels.tl.float32 if self.precision.exponentials == torch.float32 else kernels.tl.float64

    def columns(self, side: Side, potential: Tensor) -> Columns:
        """Potentials [N] float64, as a pass over this side reads them."""
        out = self.new_columns(side)
        settling.spread[(len(potential) // BLOCK,)](
            potential, side.numbers(self.precision), self.squares_of(side), *out, len(potential), **self.shape_of(side)
        )
        return out

    def sums(self, own: Side, other: Side, columns: Columns, numbers: Tensor, known: Tensor | None = None) -> Sums:
        """The sums of the rows of ``own`` over the columns of ``other``.

        ``known`` [N]: λ log of these sums, where they are not less by more than MARGIN bits. It tells what can be left out.
        """
        n, m, device = len(own.log_w), len(other.log_w), own.points.device
        x, y = own.numbers(self.precision), other.numbers(self.precision)
        labels = (own.labels, other.labels) if self.pairs else (own.log_w, own.log_w)
        options = {"ROOT": self.rule.root, "PAIRS": self.pairs, "MIXED": self.precision is MIXED}
        if own.near:
            tiles, shares = n // ROWS, m // self.precision.columns
            splits = splits_of(tiles, shares, device)
            splits = splits if known is None else max(splits, min(HINTED_SPLITS, shares))
            sums = _room(x, splits, n)
            kernels.near[(tiles, splits)](
                x, y, *columns, other.boxes(self.precision), *labels, own.log_w if known is None else known, *sums, numbers,
                n, m, D=len(x), ROWS=ROWS, COLUMNS=self.precision.columns, CHUNK=CHUNK, TILED=own.tiled and other.tiled,
                HINT=known is not None, MARGIN=MARGIN, EXPONENTIAL=self.exponential, num_warps=ROWS // 32, **options,
            )  # fmt: skip
            return sums
        far = FAR_SINGLE[x.shape[1] > 32] if self.precision is SINGLE else FAR_DOUBLE
        tiles, (splits, share) = n // far["BM"], far_shares(n, m, far, device)
        sums = _room(x, splits, n)
        kernels.far[(tiles, splits)](
            x, y, columns.h, own.squares, other.squares, *labels, *sums, numbers, n, m, own.size, other.size, x.shape[1],
            share, PRECISION=PRECISION if x.dtype == torch.float32 else "ieee", **far, **options,
        )  # fmt: skip
        return sums

    def settle(self, own: Side, sums: Sums, numbers: Tensor, out: Tensor | None = None) -> tuple[Tensor, Columns]:
        """The potential [N] that makes this side exact, λ(log w + 1) − G, and its form for a pass."""
        columns, n = self.new_columns(own), len(own.log_w)
        out = torch.empty_like(own.log_w) if out is None else out
        points = own.numbers(self.precision)
        settling.settle[(n // BLOCK,)](
            *sums, own.log_w, points, self.squares_of(own), numbers, out, *columns, n, len(sums.tops), **self.shape_of(own)
        )
        return out, columns

    def residual(self, own: Side, sums: Sums, numbers: Tensor, potential: Tensor, out: Tensor) -> None:
        """How far a potential is from the one that makes this side exact, into ``out`` [N]."""
        n = len(own.log_w)
        settling.residual[(n // BLOCK,)](
            *sums, own.log_w, self.squares_of(own), numbers, potential, out, n, len(sums.tops), BLOCK=BLOCK,
            SQUARES=self.with_squares(own),
        )  # fmt: skip

    def shape_of(self, side: Side) -> dict[str, Any]:
        """What the kernels that make `Columns` are made for."""
        d = len(side.points) if side.tiled else 0
        rule = {"SQUARES": self.with_squares(side), "ROOT": self.rule.root}
        return {"D": d, "BLOCK": BLOCK, "COLUMNS": self.precision.columns, **rule}

    def with_squares(self, side: Side) -> bool:
        """Whether ‖x‖² is left out of the entries, and put into the potentials."""
        return not side.near and not self.rule.root

    def squares_of(self, side: Side) -> Tensor:
        return side.log_w if side.near else side.squares

    def new_columns(self, side: Side) -> Columns:
        n = len(side.log_w)
        h, tiles = side.log_w.new_empty(n, dtype=self.precision.numbers), n // self.precision.columns
        if not side.tiled:
            return Columns(h, h, h)
        return Columns(h, h.new_empty(tiles), h.new_empty(len(side.points), tiles))


def _room(x: Tensor, splits: int, n: int) -> Sums:
    return Sums(x.new_empty(splits, n), x.new_empty(splits, n, dtype=torch.float64))


def far_shares(n: int, m: int, far: dict[str, int], device: torch.device) -> tuple[int, int]:
    """Into how many shares `far` kernels cut the columns, and how many columns each has."""
    splits = splits_of(n // far["BM"], m // (4 * far["BN"]), device)
    return splits, -(-(m // far["BN"]) // splits) * far["BN"]


@functools.cache
def splits_of(tiles: int, shares: int, device: torch.device) -> int:
    """Into how many parts the columns are cut: enough programs for the device, and no empty part."""
    count = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    wanted = max(1, min(-(-PROGRAMS * count // tiles), shares))
    return -(-shares // -(-shares // wanted)) if shares else 1
