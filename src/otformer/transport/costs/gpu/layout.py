r"""Points as the kernels read them, and how exactly a pass computes.

**Order.** Vectors here are in the order of the layout, filled up to whole blocks; `Side.lay` and `Side.take` go there and
back. Filling has potentials −∞.

**Precision.** A pass is log Σ_j exp((h_j − c_ij)/λ). With float32 numbers its logits err by 2⁻²⁴ C/λ and more: good for
steps, not for a verdict. So there are three kinds:

    SINGLE   all in float32
    MIXED    logits in float64, their exponentials in float32
    DOUBLE   all in float64

Rounding of a MIXED pass. Take z_ij = (h_j − c_ij)/(λ ln 2) − top_i in float64 (errors of 10⁻¹⁶ |z|, nothing beside the rest)
and round it to float32: the term 2^z changes by |z| 2⁻²⁴ ln 2 at most. Averaged with the terms' shares w_j of their sum this
is under Σ w_j log₂(1/w_j) 2⁻²⁴ ln 2, an entropy, no more than ln m units of 2⁻²⁴: 17 for m = 2²⁴. The hardware's 2^z errs
by 4 units, a float32 sum of 32 of them to 31, all terms left out are under 4 (for a rough ``tol`` more, which
`GpuStream.rounding` adds), and sums over tiles are float64. Together 56 units of 2⁻²⁴, less than ``MIXED_ROUNDING`` = 2⁻¹⁸
of a row's sum, whatever λ and the costs are. A marginal error is a sum over rows: it errs by no more than that share of the
mass. tests/transport/test_gpu_passes.py measures it against float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from otformer.transport.costs.clouds import morton

NEAREST = 8  # the most dimensions in which coordinates are subtracted; beyond, entries are matrix products
DEPTH = 64  # coordinates of points in many dimensions are filled up to a multiple of this with zeros; up to 32, to 32
BLOCK = 256  # every layout is filled up to a multiple of this
MIXED_ROUNDING = 2.0**-18  # of a sum in a MIXED pass, as a share of it
DOUBLE_ROUNDING = 2.0**-40  # of a sum in a DOUBLE pass: 10⁻¹⁶ C/λ for costs up to 10³ λ, and more than its terms' rounding


class Precision(NamedTuple):
    """What the numbers of a pass are; ``columns`` of a tile, of which one thread adds up exponentials; least bits kept."""

    numbers: torch.dtype
    exponentials: torch.dtype
    columns: int
    rounding: float


SINGLE = Precision(torch.float32, torch.float32, 64, math.inf)
MIXED = Precision(torch.float64, torch.float32, 32, MIXED_ROUNDING)
DOUBLE = Precision(torch.float64, torch.float64, 32, DOUBLE_ROUNDING)


@dataclass(frozen=True, eq=False)
class Side:
    """One cloud, n points filled up to N with copies of the last; what a pass reads is made when it is first asked for."""

    points: Tensor  # float64; [d, N] in few dimensions, [n, d] in many
    log_w: Tensor  # [N] float64, −∞ for filling
    order: Tensor | None  # [n], where each point stood in the list given; None: as given
    size: int  # n
    labels: Tensor | None = None  # [N] int32
    tiled: bool = False  # neighbours stand together: tiles of them can be left out
    near: bool = True  # few dimensions: entries are sums of squared differences

    @classmethod
    def build(cls, points: Tensor, log_w: Tensor, ordered: bool, labels: Tensor | None = None, tiled: bool = False) -> Side:
        """Points [n, d]; ``ordered``: they are put along a curve, by label first; ``tiled``: they are along one already."""
        n, d = points.shape
        order = None
        if ordered and d <= NEAREST:
            order = morton(points)
            if labels is not None:
                order = order[labels[order].argsort(stable=True)]
            points, log_w = points[order], log_w[order]
            labels = None if labels is None else labels[order]
        fill, pad = -n % BLOCK, torch.nn.functional.pad
        if fill:
            points = torch.cat([points, points[-1:].expand(fill, -1)]) if d <= NEAREST else points
            log_w = pad(log_w, (0, fill), value=-math.inf)
            labels = None if labels is None else torch.cat([labels, labels[-1:].expand(fill)])
        labels = None if labels is None else labels.to(torch.int32)
        lacks = 0 if d <= NEAREST else -d % (32 if d <= 32 else DEPTH)
        points = points.mT if d <= NEAREST else pad(points, (0, lacks)) if lacks else points
        return cls(points.contiguous(), log_w, order, n, labels, tiled or order is not None, d <= NEAREST)

    def sums_of(self, potential: Tensor, reg: Tensor) -> Tensor:
        """λ log of the sums [N] of rows of which this potential is exact; 0 for filling, which has no part in any."""
        return torch.where(self.log_w > -math.inf, reg * (self.log_w + 1) - potential, 0.0)

    def log_ratio(self, potential: Tensor, exact: Tensor, reg: float) -> Tensor:
        """log(S/w) [N] for a potential, given the one for which S = w; 0 for filling."""
        return torch.where(self.log_w > -math.inf, (potential - exact) / reg, 0.0)

    @cached_property
    def squares(self) -> Tensor:
        """‖x‖² [N] float64, of points in many dimensions."""
        squares = torch.linalg.vector_norm(self.points, dim=1).square_()
        return torch.nn.functional.pad(squares, (0, len(self.log_w) - self.size))

    @cached_property
    def single(self) -> Tensor:
        """The points in float32."""
        return self.points.float()

    def numbers(self, precision: Precision) -> Tensor:
        return self.single if precision.numbers == torch.float32 else self.points

    def boxes(self, precision: Precision) -> Tensor:
        """[2d, tiles]: least and greatest coordinates of the tiles of columns; nothing where tiles are not of neighbours."""
        if not self.tiled:
            return self.log_w
        return self._single_boxes if precision.numbers == torch.float32 else self._double_boxes

    @cached_property
    def _single_boxes(self) -> Tensor:
        return self._boxes(self.single, SINGLE.columns)

    @cached_property
    def _double_boxes(self) -> Tensor:
        return self._boxes(self.points, MIXED.columns)

    def _boxes(self, points: Tensor, columns: int) -> Tensor:
        tiles = points.view(len(points), -1, columns)
        return torch.cat([tiles.amin(2), tiles.amax(2)])

    def lay(self, t: Tensor, fill: float = -math.inf) -> Tensor:
        """A vector [n] of the list given, in this order, [N] float64."""
        t = t.double() if self.order is None else t.double()[self.order]
        return torch.nn.functional.pad(t, (0, len(self.log_w) - self.size), value=fill)

    def take(self, t: Tensor) -> Tensor:
        """A vector [N] or columns [N, k] of this order, as the list was given."""
        t = t[: self.size]
        return t if self.order is None else torch.empty_like(t).index_copy_(0, self.order, t)

    def copy(self) -> Side:
        """The same in memory of its own."""
        return replace(self, points=self.points.clone(), log_w=self.log_w.clone())

    @cached_property
    def extents(self) -> list[tuple[int, float]]:
        """For groups of 2, 4, 8, … neighbours: how many, and the mean of their variances (all coordinates together)."""
        if self.order is None:
            return []
        strides = [2**k for k in range(1, 11) if self.size >= 2**k]
        groups = (self.points[:, : self.size // s * s].view(len(self.points), -1, s) for s in strides)
        found = torch.stack([g.var(2, correction=0).sum(0).mean() for g in groups]).tolist() if strides else []
        return list(zip(strides, found, strict=True))

    def thinned(self, stride: int) -> Side:
        """Every ``stride`` neighbours as one point with their mass.

        ‖x − y‖² is linear in (x, ‖x‖²): the mean cost of the neighbours is that of their mean, and a term of this side
        alone, which changes no plan.
        """
        if stride == 1:
            return self
        n, pad = self.size, torch.nn.functional.pad
        fill = -n % stride
        logs = pad(self.log_w[:n], (0, fill), value=-math.inf).view(-1, stride)
        points = pad(self.points[:, :n], (0, fill)).view(len(self.points), -1, stride)
        return Side.build((points * logs.softmax(1)).sum(2).mT, logs.logsumexp(1), False, tiled=True)
