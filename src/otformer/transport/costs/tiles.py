r"""The streaming kernel: the passes of transport/costs/matrix.py without the cost matrix, in O(n + m) memory.

Every cost with features (network/features.py) is a squared distance up to terms that belong to one side,

    C_ij = x_sq_i + y_sq_j − 2 x_i·y_j = ‖x_i − y_j‖² + p_i + q_j,     p_i = x_sq_i − ‖x_i‖²,  q_j = y_sq_j − ‖y_j‖²,

and a squared distance may be taken from any origin, even one for each side (`moved`): clouds far apart are no harder than
near ones. Points are put in Morton order and cut into tiles of neighbours. For the rows of one tile, with c its centre and
h_j = v_j − q_j,

    h_j − ‖x_i − y_j‖² = (h_j − ‖y_j − c‖²) + 2 (x_i − c)·(y_j − c) − ‖x_i − c‖²:

one matrix product per block, whose rounding is that of *local* coordinates. Tiles that cannot matter are left out: by the
bounding boxes no entry of tile J exceeds max_J h − dist(I, J)², and where that lies log(m/ε) below the greatest entry of
every row of I, its share of the sums is under ε, the rounding of the dtype. At small λ in few dimensions most tiles go.

A `Rule` changes little of this. For plain distances a block is taken by differences, and bounds have dist instead of dist²
(nothing of one side can be split off, so both clouds are moved alike). Where labels forbid pairs these are −∞ in a block,
and tiles whose labels leave no pair are left out; for equal labels the points of each stand together, and most tiles go.

All of it is torch operations, on a CPU; a CUDA device has kernels instead (transport/costs/gpu/).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from otformer import checks
from otformer.network.features import Features, squared_euclidean
from otformer.transport.costs.clouds import PLAIN, TILE, Cloud, Rule, box_spread, ends, middles, moved, own_costs, thin
from otformer.transport.costs.distances import distances
from otformer.transport.costs.kernel import Kernel

Block = tuple[Tensor, Tensor, Tensor]  # columns [k], logits [r, k] but for a term of the row alone, that term [r]
POINTS_PER_BALL = 4  # of a thinned stream, for every ball of radius √λ
LEAST = -1e30  # stands for −∞ where a difference of two of them is taken


class Stream(Kernel):
    """A problem with features, n × m never formed; ``log_ratio`` as in `Dense`.

    Potentials are in the dtype of the points or in float64, and so is what comes out.

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
        self.block, self.rule = block or (2**26 if x.is_cuda else 2**18), rule or PLAIN
        c, e = middles(ends(x, y), self.rule)
        p, q = (torch.zeros_like(t[:, 0]) for t in (x, y)) if self.rule.root else own_costs(features)
        x, y, p, q = moved(x, y, p.detach(), q.detach(), c, e)
        labels, self.apart = self.rule.labels or (None, None), checks.local(c - e).to(x)
        self.x, self.y = (Cloud.build(*side, self.rule.same) for side in ((x, p, labels[0]), (y, q, labels[1])))
        shifts = (float(side.shift.max() - side.shift.min()) for side in (self.x, self.y))
        self.spread = box_spread(self.x.box, self.y.box, self.rule) + sum(shifts)  # where annealing starts

    suffix = ", streamed"
    coarsens = True

    def thinned(self, rows: int, columns: int) -> Stream:
        """Every ``rows`` neighbours of x along the curve and every ``columns`` of y as one point, with their mass.

        All points as they are where there are labels: neighbours may differ in them.
        """
        if rows == columns == 1 or self.rule.labels is not None:
            return self
        x, x_sq, log_a = thin(self.x, self.log_a, rows)
        y, y_sq, log_b = thin(self.y, self.log_b, columns)
        return Stream(Features(x, y, x_sq, y_sq), log_a, log_b, self.block, self.rule)

    @property
    def squares(self) -> float:
        return self.spread**2 if self.rule.root else self.spread

    def strides(self, reg: float, fewest: int) -> tuple[int, int]:
        """How many neighbours of x, and of y, can be one point each at this λ; ``fewest`` points are left at least.

        A plan is blurred over √λ: ``POINTS_PER_BALL`` for every ball of that size, (spread/λ)^(d/2) balls in all. Beyond
        three dimensions neighbours on the curve are not near, and neighbours of different labels do not do the same.
        """
        d = self.x.points.shape[1]
        if d > 3 or self.rule.labels is not None:
            return 1, 1
        size = max(fewest, POINTS_PER_BALL * (self.spread / reg) ** (d / 2))
        return max(1, int(len(self.log_a) / size)), max(1, int(len(self.log_b) / size))

    @property
    def single(self) -> bool:
        """Whether exponentials are those of float32."""
        return self.log_a.dtype == torch.float32

    def rough(self, single: bool, tol: float) -> Stream | None:
        if not single:
            return None
        points = (side.points[side.order.argsort()].float() for side in (self.x, self.y))
        return Stream(squared_euclidean(*points), self.log_a.float(), self.log_b.float(), self.block, self.rule)

    @torch.no_grad()
    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        return self._log_ratio(*self._turned(u, v, rows), reg)

    @torch.no_grad()
    def products(self, u: Tensor, v: Tensor, reg: float, values: Tensor, rows: bool, inverse: bool = False) -> Tensor:
        """As of a cost, also for a vector; with ``inverse`` every P_ij is divided by ‖x_i − y_j‖, and is 0 if that is 0."""
        return self._apply(*self._turned(u, v, rows), reg, values, _inverse if inverse else None)

    @torch.no_grad()
    def cost_sums(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """As of a cost: positive terms, nothing cancels."""
        weigh = _itself if self.rule.root else torch.square
        return self._apply(*self._turned(u, v, rows), reg, torch.ones_like(v if rows else u), weigh)

    def _turned(self, u: Tensor, v: Tensor, rows: bool) -> tuple[Cloud, Cloud, Tensor, Tensor, Tensor]:
        """Clouds, potentials and log weights, those of the rows first, or those of the columns."""
        return (self.x, self.y, u, v, self.log_a) if rows else (self.y, self.x, v, u, self.log_b)

    def _log_ratio(self, own: Cloud, other: Cloud, u: Tensor, v: Tensor, log_a: Tensor, reg: float) -> Tensor:
        h, mine = other.sort(v).to(other.points), own.sort(u).double() / reg - 1 - log_a[own.order].double()
        out = torch.full_like(u, -torch.inf)  # of rows without an allowed pair
        for rows, chunks in self._tiles(own, other, h, reg, None):
            top, total = h.new_full((len(rows),), LEAST), h.new_zeros(len(rows))
            for _, logits, rest in chunks:  # noqa: B007
                new = torch.maximum(top, logits.amax(1))
                total = total * (top - new).exp() + self._exp(logits.sub_(new[:, None])).sum(1)
                top = new
            # top is exact as the reference of the sum: what is added to it in float64 keeps the digits of float32.
            out[own.order[rows]] = (top.double() + total.log().double() + rest + mine[rows]).to(out)
        return out

    def _apply(
        self, own: Cloud, other: Cloud, u: Tensor, v: Tensor, log_a: Tensor, reg: float, values: Tensor,
        weigh: Callable[[Tensor], Tensor] | None,
    ) -> Tensor:  # fmt: skip
        """Σ_j P_ij g_ij values_j, [n] or [n, k]; ``weigh`` makes the g of distances ‖x_i − y_j‖, None is 1."""
        checks.vectors("values", values, len(other.order))
        h, mine = other.sort(v).to(other.points), own.sort(u).double()
        columns = values.to(h).reshape(len(values), -1)[other.order]  # [m, k]
        out = u.new_zeros(len(own.order), columns.shape[1])
        least = reg * (1 + log_a[own.order].double()) - mine  # where one entry alone would be all of a_i
        apart = self.apart if own is self.x else -self.apart
        for rows, chunks in self._tiles(own, other, h, reg, least):
            total = torch.zeros(len(rows), columns.shape[1], dtype=torch.float64, device=h.device)
            for places, logits, rest in chunks:
                P = self._exp(logits.add_((rest + mine[rows] / reg - 1).to(h)[:, None]))
                if weigh is not None:
                    P *= weigh(distances(own.points[rows] + apart, other.points[places]))
                total += (P @ columns[places]).double()
            out[own.order[rows]] = total.to(out)
        return out.reshape(len(out), *values.shape[1:])

    def _tiles(
        self, own: Cloud, other: Cloud, h: Tensor, reg: float, least: Tensor | None
    ) -> Iterator[tuple[Tensor, Iterator[Block]]]:
        """For each tile of rows [r], the blocks of logits (h_j − c_ij)/λ that matter to it, if there are any.

        What matters is judged against ``least`` [n], by default a lower bound on every row's greatest h_j − c_ij.
        """
        tops, places, cost = other.tops(h), torch.arange(len(h), device=h.device), self.rule.cost
        cut = reg * (math.log(len(h)) - math.log(torch.finfo(h.dtype).eps))
        for i, rows in enumerate(torch.arange(len(own.order), device=h.device).split(TILE)):
            low, high = own.low[i], own.high[i]
            some, every = self._matches(own, i, other) or (None, None)
            gap = torch.maximum(other.low - high, low - other.high).clamp_min(0)  # [tiles, d]
            if least is None:
                reach = torch.maximum(high - other.low, other.high - low)
                bounds = tops - cost((reach * reach).sum(1))
                if some is not None and every is not None:  # a tile where every row has a pair, if there is one
                    bounds = bounds.masked_fill(~(every if bool(every.any()) else some), -torch.inf)
                nearest = int(bounds.argmax())
                inside = places[nearest * TILE : (nearest + 1) * TILE]
                entries = h[inside] - cost(distances(own.points[rows], other.points[inside]).square())
                floor = float(self._allowed(entries, own, rows, other, inside).amax(1).min())
            else:
                floor = float(least[rows].min())
            keep = ~(tops - cost((gap * gap).sum(1)) < floor - cut)  # true also where a potential is not a number
            keep = keep if some is None else keep & some
            columns = places[keep.repeat_interleave(TILE)[: len(h)]]
            if len(columns):
                masked = every is not None and not bool(every[keep].all())
                yield rows, self._blocks(own, rows, other, h, columns, (low + high) / 2, reg, masked)

    def _matches(self, own: Cloud, i: int, other: Cloud) -> tuple[Tensor, Tensor] | None:
        """Which tiles of ``other`` have a pair with tile i that labels allow, and of which all pairs are, [tiles] each."""
        if self.rule.labels is None:
            return None
        (low, high), (least, greatest) = own.label_ranges[:, i], other.label_ranges
        disjoint = (greatest < low) | (high < least)
        equal = (low == high) & (least == low) & (greatest == low)
        return (~disjoint, equal) if self.rule.same else (~equal, disjoint)

    def _allowed(self, entries: Tensor, own: Cloud, rows: Tensor, other: Cloud, columns: Tensor) -> Tensor:
        """Entries [r, k], those of forbidden pairs −∞, in place."""
        if own.labels is None or other.labels is None:
            return entries
        return entries.masked_fill_(~self.rule.may_match(own.labels[rows], other.labels[columns]), -torch.inf)

    def _blocks(
        self, own: Cloud, rows: Tensor, other: Cloud, h: Tensor, columns: Tensor, centre: Tensor, reg: float, masked: bool
    ) -> Iterator[Block]:
        """Blocks of some columns for rows about ``centre``; ``masked`` if pairs among them are forbidden."""
        x = own.points[rows] - centre
        rest, scaled = -(x * x).sum(1).double() / reg, x * (2 / reg)
        if self.rule.root:
            rest = torch.zeros_like(rest)
        room = x.new_empty(len(x) * min(width := max(1, self.block // len(x)), len(columns)))
        for places in columns.split(width):
            y = other.points[places] - centre
            if self.rule.root:
                logits = distances(x, y).neg_().add_(h[places]).div_(reg)
            else:
                logits = room[: len(x) * len(places)].view(len(x), len(places))
                torch.addmm((h[places] - (y * y).sum(1)) / reg, scaled, y.mT, out=logits)
            yield places, self._allowed(logits, own, rows, other, places) if masked else logits, rest

    def _exp(self, logits: Tensor) -> Tensor:
        """exp in place; what is under ε⁵ becomes ε⁵, for near subnormal numbers exp takes a CPU thirty times as long.

        With labels it becomes 0: a forbidden pair has no part in anything.
        """
        least = 5 * math.log(torch.finfo(logits.dtype).eps)
        if self.rule.labels is None:
            return logits.clamp_min_(least).exp_()
        return logits.masked_fill_(logits < least, -torch.inf).exp_()


def _itself(distances: Tensor) -> Tensor:
    return distances


def _inverse(distances: Tensor) -> Tensor:
    return torch.where(distances > 0, 1 / distances, 0.0)
