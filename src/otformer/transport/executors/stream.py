r"""The streaming executor: the passes of transport/executors/dense.py without the cost matrix, in O(n + m) memory.

Every cost with features (network/features.py) is a squared distance up to terms that belong to one side,

    C_ij = x_sq_i + y_sq_j − 2 x_i·y_j = ‖x_i − y_j‖² + p_i + q_j,     p_i = x_sq_i − ‖x_i‖²,  q_j = y_sq_j − ‖y_j‖²,

and a squared distance may be taken from any origin, even one for each side (`centred`): clouds far apart are no harder than
near ones. Points are put in Morton order and cut into tiles of neighbours. For the rows of one tile, with c its centre and
h_j = v_j − q_j,

    h_j − ‖x_i − y_j‖² = (h_j − ‖y_j − c‖²) + 2 (x_i − c)·(y_j − c) − ‖x_i − c‖²:

one matrix product per block, whose rounding is that of *local* coordinates. Tiles that cannot matter are left out: by the
bounding boxes no entry of tile J exceeds max_J h − dist(I, J)², and where that lies log(m/ε) below the greatest entry of
every row of I, its share of the sums is under ε, the rounding of the dtype. At small λ in few dimensions most tiles go.

On a CUDA device passes run in Triton kernels (transport/executors/stream_kernels.py), except those of float64 in more
than eight dimensions; these and all on a CPU in blocks of torch operations, as do products with the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from otformer.network.features import Features, squared_euclidean

TILE = 128  # points in a tile of the torch path
MASKS = 0x1F00000000FFFF, 0x1F0000FF0000FF, 0x100F00F00F00F00F, 0x10C30C30C30C30C3, 0x1249249249249249  # of `morton`
Block = tuple[Tensor, Tensor, Tensor]  # columns [k], logits [r, k] but for a term of the row alone, that term [r]
LEAST = -1e30  # stands for −∞ where a difference of two of them is taken


@dataclass(frozen=True)
class Cloud:
    """One side's points in Morton order, with the boxes around its tiles."""

    points: Tensor  # [n, d]
    order: Tensor  # [n], where each point stood in the list given
    shift: Tensor  # [n], p or q: the part of the cost that is this side's own
    low: Tensor  # [tiles, d], corners of the boxes
    high: Tensor

    @classmethod
    def build(cls, points: Tensor, shift: Tensor) -> Cloud:
        order = morton(points)
        points = points[order].contiguous()
        tiles = torch.cat([points, points[-1:].expand(-len(points) % TILE, -1)]).view(-1, TILE, points.shape[1])
        return cls(points, order, shift[order], tiles.amin(1), tiles.amax(1))

    def sort(self, potential: Tensor) -> Tensor:
        """h = potential − shift, in this order, [n]."""
        return potential[self.order] - self.shift

    def tops(self, h: Tensor) -> Tensor:
        """The greatest h of every tile, [tiles]."""
        return torch.nn.functional.pad(h, (0, -len(h) % TILE), value=-torch.inf).view(-1, TILE).amax(1)

    @cached_property
    def laid(self) -> Any:
        """As the kernels read it; None where they do not run."""
        from otformer.transport.executors import stream_kernels as kernels

        return kernels.lay(self) if kernels.fit(self.points) else None

    @cached_property
    def box(self) -> Tensor:
        """Opposite corners of the box around all points, [2, d]."""
        return torch.stack([self.low.amin(0), self.high.amax(0)])


def morton(points: Tensor) -> Tensor:
    """Indices that put points [n, d] in the order of a Z-shaped curve through their three widest coordinates, 20 bits each.

    >>> morton(torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.1, 0.0], [0.9, 1.0]])).tolist()
    [0, 2, 3, 1]
    """
    low, high = points.amin(0), points.amax(0)
    axes = (high - low).topk(min(3, points.shape[1])).indices
    size = (high - low)[axes].clamp_min(torch.finfo(points.dtype).tiny)
    cell = ((points[:, axes] - low[axes]).double() / size * (2**20 - 1)).long()  # [n, ≤ 3]
    for shift, mask in zip((32, 16, 8, 4, 2), MASKS, strict=True):  # two zeros come before every bit: halves move apart, …
        cell = (cell | cell << shift) & mask
    return (cell << torch.arange(len(axes), device=cell.device)).sum(1).argsort(stable=True)


class Stream:
    """A problem with features, n × m never formed; ``log_ratio`` as in `Dense`.

    ``log_a`` [n] and ``log_b`` [m] are the logs of positive weights; ``block`` is the number of entries of the cost held
    at once, by default what fits a CPU's cache (2 MB in float64).

    >>> x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> half = torch.log(torch.tensor([0.5, 0.5], dtype=torch.float64))
    >>> stream = Stream(squared_euclidean(x, x + 0.1), half, half)
    >>> stream.log_ratio(0 * half, 0 * half, 1.0, rows=True).round(decimals=4).tolist()
    [-0.0536, 0.0542]
    """

    def __init__(self, features: Features, log_a: Tensor, log_b: Tensor, block: int | None = None):
        x, y = features.x.detach(), features.y.detach()
        self.log_a, self.log_b = log_a.contiguous(), log_b.contiguous()
        self.block = block or (2**26 if x.is_cuda else 2**18)
        x, y, p, q = centred(x, y, *own_costs(features))
        self.x, self.y = Cloud.build(x, p.detach()), Cloud.build(y, q.detach())

    def thinned(self, rows: int, columns: int) -> Stream:
        """Every ``rows`` neighbours of x along the curve and every ``columns`` of y as one point, with their mass."""
        if rows == columns == 1:
            return self
        x, x_sq, log_a = _thin(self.x, self.log_a, rows)
        y, y_sq, log_b = _thin(self.y, self.log_b, columns)
        return Stream(Features(x, y, x_sq, y_sq), log_a, log_b, self.block)

    @property
    def spread(self) -> float:
        """An upper bound on max C − min C, from the boxes: where annealing starts."""
        return box_spread(self.x.box, self.y.box) + sum(
            float(side.shift.max() - side.shift.min()) for side in (self.x, self.y)
        )

    def in_float32(self) -> Stream:
        """The same points and weights, rounded."""
        points = (side.points[side.order.argsort()].float() for side in (self.x, self.y))
        return Stream(squared_euclidean(*points), self.log_a.float(), self.log_b.float(), self.block)

    @torch.no_grad()
    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """log(S_i/a_i) of the rows [n], or log(S_j/b_j) of the columns [m]."""
        sides = (self.x, self.y, u, v, self.log_a) if rows else (self.y, self.x, v, u, self.log_b)
        return self._log_ratio(*sides, reg)

    @torch.no_grad()
    def apply(self, u: Tensor, v: Tensor, reg: float, values: Tensor) -> Tensor:
        """P @ values for values [m] or [m, k]."""
        return self._apply(self.x, self.y, u, v, self.log_a, reg, values)

    @torch.no_grad()
    def apply_transposed(self, u: Tensor, v: Tensor, reg: float, values: Tensor) -> Tensor:
        """Pᵀ @ values for values [n] or [n, k]."""
        return self._apply(self.y, self.x, v, u, self.log_b, reg, values)

    def _log_ratio(self, own: Cloud, other: Cloud, u: Tensor, v: Tensor, log_a: Tensor, reg: float) -> Tensor:
        if v.is_cuda and own.laid is not None:
            from otformer.transport.executors import stream_kernels as kernels

            with torch.cuda.device_of(v):
                return kernels.log_ratio(own.laid, other.laid, u, v, log_a, reg)
        h, mine = other.sort(v), own.sort(u).double() / reg - 1 - log_a[own.order].double()
        out = torch.empty_like(log_a)
        for rows, chunks in self._tiles(own, other, h, reg, None):
            top, total = h.new_full((len(rows),), LEAST), h.new_zeros(len(rows))
            for _, logits, rest in chunks:  # noqa: B007
                new = torch.maximum(top, logits.amax(1))
                total = total * (top - new).exp() + _exp(logits.sub_(new[:, None])).sum(1)
                top = new
            # top is exact as the reference of the sum: what is added to it in float64 keeps the digits of float32.
            out[own.order[rows]] = (top.double() + total.log().double() + rest + mine[rows]).to(out)
        return out

    def _apply(self, own: Cloud, other: Cloud, u: Tensor, v: Tensor, log_a: Tensor, reg: float, values: Tensor) -> Tensor:
        if values.shape[:1] != other.order.shape or values.ndim > 2:
            m = len(other.order)
            raise ValueError(f"values must have shape ({m},) or ({m}, k), got {tuple(values.shape)}")
        h, mine = other.sort(v), own.sort(u).double()
        columns = values.to(h).reshape(len(values), -1)[other.order]  # [m, k]
        out = h.new_zeros(len(own.order), columns.shape[1])
        least = reg * (1 + log_a[own.order].double()) - mine  # where one entry alone would be all of a_i
        for rows, chunks in self._tiles(own, other, h, reg, least):
            total = torch.zeros(len(rows), columns.shape[1], dtype=torch.float64, device=h.device)
            for places, logits, rest in chunks:
                total += (_exp(logits.add_((rest + mine[rows] / reg - 1).to(h)[:, None])) @ columns[places]).double()
            out[own.order[rows]] = total.to(out)
        return out.reshape(len(out), *values.shape[1:])

    def _tiles(
        self, own: Cloud, other: Cloud, h: Tensor, reg: float, least: Tensor | None
    ) -> Iterator[tuple[Tensor, Iterator[Block]]]:
        """For each tile of rows [r], the blocks of logits (h_j − ‖x_i − y_j‖²)/λ that matter to it.

        What matters is judged against ``least`` [n], by default a lower bound on every row's greatest h_j − ‖x_i − y_j‖².
        """
        tops, places = other.tops(h), torch.arange(len(h), device=h.device)
        cut = reg * (math.log(len(h)) - math.log(torch.finfo(h.dtype).eps))
        for i, rows in enumerate(torch.arange(len(own.order), device=h.device).split(TILE)):
            low, high = own.low[i], own.high[i]
            gap = torch.maximum(other.low - high, low - other.high).clamp_min(0)  # [tiles, d]
            if least is None:
                reach = torch.maximum(high - other.low, other.high - low)
                nearest = int((tops - (reach * reach).sum(1)).argmax())
                inside = places[nearest * TILE : (nearest + 1) * TILE]
                apart = torch.cdist(own.points[rows], other.points[inside], compute_mode="donot_use_mm_for_euclid_dist")
                floor = float((h[inside] - apart.square()).amax(1).min())
            else:
                floor = float(least[rows].min())
            keep = ~(tops - (gap * gap).sum(1) < floor - cut)  # true also where a potential is not a number
            columns = places[keep.repeat_interleave(TILE)[: len(h)]]
            yield rows, self._blocks(own.points[rows], other.points, h, columns, (low + high) / 2, reg)

    def _blocks(self, x: Tensor, points: Tensor, h: Tensor, columns: Tensor, centre: Tensor, reg: float) -> Iterator[Block]:
        x = x - centre
        rest, x = -(x * x).sum(1).double() / reg, x * (2 / reg)
        room = x.new_empty(len(x) * min(width := max(1, self.block // len(x)), len(columns)))
        for places in columns.split(width):
            y = points[places] - centre
            logits = room[: len(x) * len(places)].view(len(x), len(places))
            yield places, torch.addmm((h[places] - (y * y).sum(1)) / reg, x, y.mT, out=logits), rest


def _thin(cloud: Cloud, log_weights: Tensor, stride: int) -> tuple[Tensor, Tensor, Tensor]:
    """Means of every ``stride`` neighbours: points, x_sq and log of the mass. C is linear in (x, x_sq): its mean too."""
    numbers = torch.cat([cloud.points, ((cloud.points * cloud.points).sum(1) + cloud.shift)[:, None]], 1)
    if stride == 1:  # in the order given
        numbers = numbers[cloud.order.argsort()]
        return numbers[:, :-1], numbers[:, -1], log_weights
    pad, fill = torch.nn.functional.pad, -len(numbers) % stride
    logs = pad(log_weights[cloud.order], (0, fill), value=-torch.inf).view(-1, stride)
    groups = pad(numbers, (0, 0, 0, fill)).view(-1, stride, numbers.shape[1])
    means = (logs.softmax(1)[..., None] * groups).sum(1)
    return means[:, :-1], means[:, -1], logs.logsumexp(1)


def box_spread(x: Tensor, y: Tensor) -> float:
    """The greatest squared distance between the boxes around two sets of points, [·, d]."""
    far = torch.maximum(x.amax(0) - y.amin(0), y.amax(0) - x.amin(0))
    return float((far * far).sum())


def own_costs(features: Features) -> tuple[Tensor, Tensor]:
    """p [n] and q [m]; the norms as `squared_euclidean` takes them, so that they vanish exactly for its features."""
    return features.x_sq - (features.x * features.x).sum(-1), features.y_sq - (features.y * features.y).sum(-1)


def centred(x: Tensor, y: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same costs ‖x_i − y_j‖² + p_i + q_j from clouds that lie about the origin, each moved by its own middle.

    With x = x' + c, y = y' + e and δ = c − e:  ‖x − y‖² = ‖x' − y'‖² + 2 δ·x' + ‖δ‖² − 2 δ·y', cross terms of one side each.

    >>> x, y, p, q = centred(*(torch.tensor(t) for t in ([[7.0], [9.0]], [[1.0]], [0.0, 0.0], [0.0])))
    >>> x.tolist(), y.tolist(), (p + q).tolist()
    ([[-1.0], [1.0]], [[0.0]], [35.0, 63.0])
    """
    c, e = _middle(x.detach()), _middle(y.detach())
    x, y, gap = x - c, y - e, c - e
    return x, y, p + 2 * (x * gap).sum(-1) + (gap * gap).sum(), q - 2 * (y * gap).sum(-1)


def _middle(points: Tensor) -> Tensor:
    """The middle of a cloud, [d], to a thousandth of its size: with so few digits, points lose none by x − middle."""
    low, high = points.amin(0), points.amax(0)
    size = float((high - low).max())
    if not size:
        return low
    step = 2.0 ** (math.frexp(size)[1] - 10)
    return ((low / 2 + high / 2) / step).round() * step


def _exp(logits: Tensor) -> Tensor:
    """exp in place; what is under ε⁵ becomes ε⁵, for near subnormal numbers exp takes a CPU thirty times as long."""
    return logits.clamp_min_(5 * math.log(torch.finfo(logits.dtype).eps)).exp_()
