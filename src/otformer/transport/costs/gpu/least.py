r"""The k pairs of least c_ij − v_j of every point, among all pairs, on a CUDA device: costs/gpu/least_kernels.py."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otformer.errors import ArgumentError
from otformer.transport.costs.clouds import PLAIN, Rule, box_spread
from otformer.transport.costs.gpu import least_kernels as kernels
from otformer.transport.costs.gpu.layout import DOUBLE, NEAREST, Side
from otformer.transport.costs.gpu.passes import CHUNK, FAR_DOUBLE, ROWS, Passes, far_shares, splits_of

MOST_PLACES = 32  # list that a program holds of each of its rows
ROUGH_UP_TO = 512  # tiles of columns; of more, half are spared by first looking at the chunk where the nearest stands
PRODUCTS_FROM, HELD = 128, 2**28  # dimensions from where a library's products are faster; their entries at once
AT_ONCE = 2**24  # coordinates subtracted at once in `GpuPairs.costs`


class GpuPairs:
    """All pairs of points x [n, d] and y [m, d] about the origin, float64, c_ij as the rule says. Memory O((n + m)(d + k)).

    ```
    pairs = GpuPairs(x, y)
    values, places = pairs.least(v, 12, rows=True)   # [n, 12]: the least of c_ij − v_j in row i, and their j
    ```
    """

    def __init__(self, x: Tensor, y: Tensor, rule: Rule = PLAIN) -> None:
        labels = rule.labels or (None, None)
        self.x, self.y, self.rule, self.shape = x, y, rule, (len(x), len(y))
        self.sides = tuple(
            Side.build(points, points.new_zeros(len(points)), True, own) for points, own in zip((x, y), labels, strict=True)
        )
        self.spread = box_spread(x, y, rule)

    def costs(self, i: Tensor, j: Tensor) -> Tensor:
        """c_ij [E] of the pairs (i, j), by differences of coordinates; inf where labels forbid one."""
        step = max(1, AT_ONCE // self.x.shape[1])
        parts = [(self.x[p] - self.y[q]).square_().sum(1) for p, q in zip(i.split(step), j.split(step), strict=True)]
        found = self.rule.cost(torch.cat(parts))
        if self.rule.labels is None:
            return found
        own, other = self.rule.labels
        return found.masked_fill((own[i] == other[j]) != self.rule.same, math.inf)

    @torch.no_grad()
    def least(self, potential: Tensor, k: int, rows: bool) -> tuple[Tensor, Tensor]:
        """The k least c_ij − v_j of every row i, ascending, [n, k] float64, and their j [n, k] int64.

        Of every column, with ``rows`` False: the least c_ij − u_i, and i, [m, k]. Where fewer than k pairs are allowed, or
        have a finite potential, values are +∞ and places −1. Values are as exact as `costs`. In more than 8 dimensions a
        pair may be taken for another one whose value differs by the rounding of ‖x‖² + ‖y‖².
        """
        own, other = self.sides if rows else self.sides[::-1]
        if potential.shape != (other.size,):
            raise ArgumentError("potential", f"have shape ({other.size},)", tuple(potential.shape))
        if not 1 <= k <= MOST_PLACES:
            raise ArgumentError("k", f"be from 1 to {MOST_PLACES}", k)
        with torch.cuda.device_of(self.x):
            find = self._near if self.x.shape[1] <= NEAREST else self._far
            tops, places = find(own, other, other.lay(potential), k)
            if len(tops) > 1:
                tops, chosen = tops.transpose(0, 1).flatten(1).topk(k)
                places = places.transpose(0, 1).flatten(1).gather(1, chosen)
            return self._settled(own, other, places.view(-1, k), potential, rows)

    def _settled(self, own: Side, other: Side, places: Tensor, potential: Tensor, rows: bool) -> tuple[Tensor, Tensor]:
        """Values of the pairs found, ascending, and places, both as the points were given."""
        places = own.take(places).long()
        there = places.clamp(min=0)
        there = there if other.order is None else other.order[there]
        here = torch.arange(own.size, device=there.device)[:, None].expand_as(there)
        pair = (here, there) if rows else (there, here)
        values = self.costs(*(t.reshape(-1) for t in pair)).view_as(there) - potential[there]
        values, order = values.masked_fill_(places < 0, math.inf).sort(1)
        return values, there.masked_fill_(places < 0, -1).gather(1, order)

    def _options(self, own: Side, other: Side, k: int) -> tuple[tuple[Tensor, Tensor], dict[str, int]]:
        """Labels, or something in their place, and what both kernels are made for."""
        pairs = Passes(DOUBLE, self.rule).pairs
        labels = (own.labels, other.labels) if pairs else (own.log_w, other.log_w)
        return labels, {"K": 1 << (k - 1).bit_length(), "ROOT": self.rule.root, "PAIRS": pairs}  # type: ignore[return-value]

    def _near(self, own: Side, other: Side, potential: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Greatest entries and their columns, [shares, N, k], both in the order of the layout."""
        n, m, width = len(own.log_w), len(other.log_w), DOUBLE.columns
        labels, options = self._options(own, other, k)
        h, tops, slopes = Passes(DOUBLE, self.rule).columns(other, potential)
        boxes, d = other.boxes(DOUBLE), len(other.points)
        if self.rule.root:  # plain distances have no slopes
            tops, slopes = h.view(-1, width).amax(1), torch.zeros_like(slopes)
        finite = torch.where(h.isfinite(), h, 0.0).abs().amax()
        reach = torch.where(tops.isfinite(), tops, 0.0).abs() + (slopes.abs() * (boxes[d:] - boxes[:d])).sum(0)
        reach = reach.amax() + finite + 2 * self.spread
        options |= {"D": d, "ROWS": ROWS, "COLUMNS": width, "CHUNK": CHUNK, "num_warps": ROWS // 32}
        given = own.points, other.points, h, tops, slopes, boxes, *labels
        nearest, known = h.new_empty(n // ROWS, dtype=torch.int32), h.new_empty(n)
        kernels.near_first[(n // ROWS,)](*given, nearest, known, n, m, k, **options)

        def read(splits: int, turns: int, known: Tensor) -> tuple[Tensor, Tensor]:
            out, places = h.new_empty(splits, n, k), h.new_empty(splits, n, k, dtype=torch.int32)
            grid = n // ROWS, splits
            kernels.near_least[grid](*given, nearest, known, reach, out, places, n, m, k, turns, **options)
            return out, places

        if m // width > ROUGH_UP_TO:
            known = read(1, 1, known)[0][0].amin(1)
        splits = splits_of(n // ROWS, m // width, h.device)
        return read(splits, -(-(m // width) // (CHUNK * splits)), known)

    def _far(self, own: Side, other: Side, potential: Tensor, k: int) -> tuple[Tensor, Tensor]:
        n, m = len(own.log_w), len(other.log_w)
        if self.x.shape[1] >= PRODUCTS_FROM and not self.rule.root and self.rule.labels is None:
            return self._by_products(own, other, potential, k)
        labels, options = self._options(own, other, k)
        h = potential if self.rule.root else potential - other.squares
        splits, share = far_shares(n, m, FAR_DOUBLE, h.device)
        out, places = h.new_empty(splits, n, k), h.new_empty(splits, n, k, dtype=torch.int32)
        kernels.far_least[(n // FAR_DOUBLE["BM"], splits)](
            own.points, other.points, h, own.squares, other.squares, *labels, out, places, n, m, own.size, other.size,
            own.points.shape[1], share, k, **FAR_DOUBLE, **options,
        )  # fmt: skip
        return out, places

    def _by_products(self, own: Side, other: Side, potential: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The same by matrix products of a library, which use what a device has for them."""
        n, m = len(own.log_w), other.size
        h = (potential - other.squares)[:m]
        out, places = h.new_full((1, n, k), -math.inf), torch.full((1, n, k), -1, dtype=torch.int32, device=h.device)
        for rows in torch.arange(own.size, device=h.device).split(max(1, HELD // m)):
            first, last = int(rows[0]), int(rows[-1]) + 1
            top = torch.addmm(h, own.points[first:last], other.points.mT, alpha=2).topk(min(k, m))
            out[0, first:last, : min(k, m)], places[0, first:last, : min(k, m)] = top.values, top.indices.int()
        places.masked_fill_(out == -math.inf, -1)
        return out, places
