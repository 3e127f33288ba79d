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

import torch
from torch import Tensor

from otformer.network.features import Features, squared_euclidean
from otformer.transport.executors.clouds import TILE, Cloud, Rule, box_spread, centred, own_costs, thin

Block = tuple[Tensor, Tensor, Tensor]  # columns [k], logits [r, k] but for a term of the row alone, that term [r]
LEAST = -1e30  # stands for −∞ where a difference of two of them is taken


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

    def __init__(
        self, features: Features, log_a: Tensor, log_b: Tensor, block: int | None = None, rule: Rule | None = None
    ) -> None:
        x, y = features.x.detach(), features.y.detach()
        self.log_a, self.log_b = log_a.contiguous(), log_b.contiguous()
        self.block, self.rule = block or (2**26 if x.is_cuda else 2**18), rule or Rule()
        x, y, p, q = centred(x, y, *own_costs(features))
        self.x, self.y = Cloud.build(x, p.detach()), Cloud.build(y, q.detach())

    def thinned(self, rows: int, columns: int) -> Stream:
        """Every ``rows`` neighbours of x along the curve and every ``columns`` of y as one point, with their mass."""
        if rows == columns == 1:
            return self
        x, x_sq, log_a = thin(self.x, self.log_a, rows)
        y, y_sq, log_b = thin(self.y, self.log_b, columns)
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

    def precise(self, tol: float) -> Stream:
        """The same stream, its passes with rounding errors far below ``tol``."""
        return self

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


def _exp(logits: Tensor) -> Tensor:
    """exp in place; what is under ε⁵ becomes ε⁵, for near subnormal numbers exp takes a CPU thirty times as long."""
    return logits.clamp_min_(5 * math.log(torch.finfo(logits.dtype).eps)).exp_()
