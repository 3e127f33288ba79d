r"""Soft sorting, ranking, top k and quantiles: transport of values onto pieces of [0, 1], in order.

Items have values x_i and weights a_i, Σa = 1. Pieces [e_j, e_j+1] of [0, 1] have their lengths b_j for weights and their
middles for places. Values and places are brought to mean 0 and variance 1, the places as those of k equal pieces, for k
items. The plan P between them, cost (x_i − y_j)², blurs over about √reg standard deviations; as reg → 0 it puts the
items into the pieces in ascending order. So with

    k equal pieces:                               Σ_i P_ij x_i / b_j are the sorted values, Σ_j P_ij j / a_i the ranks;
    pieces up to 1 − K/k and from there:          P_i1 / a_i is item i's share in the K greatest;
    the piece [h/k, (h+1)/k], h = q (k − 1):      Σ_i P_i1 x_i / b_1 is the quantile q, linear between neighbours.

**Where to start.** With P_ij = exp(2 x_i y_j/reg + f_i + g_j), log b_j − g_j = log Σ_i exp(2 x_i y_j/reg + f_i), and the
derivative of that in y_j is 2/reg times E[x|y_j], the mean of what comes there. As reg → 0 this is Q, the quantile of the
items at the place's share of the mass. For normal x and y it is ρQ: their plan is normal of some correlation ρ, E[x|y] = ρy,
with x y ρ/(1 − ρ²) in the exponent: ρ/(1 − ρ²) = 2/reg, ρ = √(1 + reg²/16) − reg/4. With Q at the edge between two pieces,

    g_j+1 − g_j ≈ log(b_j+1/b_j) − (2ρ/reg) Q(e_j+1) (y_j+1 − y_j).

This is seldom exact, but leaves little to do at any reg. Constants added to rows and columns of logits do not change a plan:
the sums of the second terms, times reg, are added to the columns, then each row's greatest entry is brought to 0 (f, up to
logarithms), and the solvers, which begin with f = log a or g = log b, begin near the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from otformer import checks
from otformer.memory import Need, needs, shape
from otformer.nn import inputs, line_plan
from otformer.nn.balance import balance

LEAST_SUM = 1e-100  # of a plan that did not converge: less is nothing, and its inverse square overflows
LEAST_SHARE = 1e-20  # of the mass: an item of less is absent, since sums of float64 do not know of it
SAME_SHARE = 1e-9  # of the mass: ends of items and pieces that are nearer are one, since sums are rounded


class Sorting(nn.Module):
    """The base of the soft sorting layers: λ, tolerance, and the plan onto pieces of [0, 1]."""

    def __init__(self, reg: float = 0.1, tol: float = 1e-6, max_depth: int = 10_000) -> None:
        super().__init__()
        self.reg = checks.positive("reg", reg)
        self.tol, self.max_depth = checks.not_negative("tol", tol), checks.count("max_depth", max_depth, least=2)

    def _problem(self, x: Tensor, a: Tensor, edges: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return x standardised [B, n], places y, weights b and the start [B, s] of the pieces between edges [B, s + 1]."""
        b, places = edges.diff(dim=1), (edges[:, 1:] + edges[:, :-1]) / 2
        flat = (1 - count.square().reciprocal()).clamp_min(1e-9)  # one item has no variance
        y = (places - 0.5) * (12 / flat).sqrt()
        x = _standard(x, a)
        with torch.no_grad():
            blur = 1 / (self.reg / 4 + math.hypot(1, self.reg / 4))  # ρ; no difference of great numbers
            steps = -2 * blur * _quantiles(x, a, edges[:, 1:-1]) * y.diff(dim=1)
            start = nn.functional.pad(steps.cumsum(1), (1, 0))
        return x, y, b, start

    def _plan(self, x: Tensor, a: Tensor, y: Tensor, b: Tensor, start: Tensor) -> Tensor:
        """Compute the plan [B, n, s] of a `_problem`."""
        # (x − y)² = x² − 2 x y + y², of which a plan of given sums sees the middle term alone
        logits = torch.stack([2 * x, torch.ones_like(x)], 2) @ torch.stack([y, start], 1)
        logits = logits - logits.detach().amax(2, keepdim=True)
        return balance(logits, x.new_full((1,), self.reg), a, b, self.tol, self.max_depth, "values")

    def _pieces(self, x: Tensor, a: Tensor, edges: Tensor, count: Tensor) -> Tensor:
        """Compute the plan [B, n, s] of values x [B, n], weights a [B, n], onto the pieces between edges [B, s + 1]."""
        x, y, b, start = self._problem(x, a, edges, count)
        return self._plan(x, a, y, b, start)

    def _need(self, values: Tensor, pieces: int | None = None) -> Need:
        """Estimate the memory of the plan of n values onto so many pieces, by default n."""
        *lead, n = shape(values, 1)
        return inputs.need(lead, n, n if pieces is None else pieces, 6 if pieces is None else 12)

    def extra_repr(self) -> str:
        return f"reg={self.reg:g}"


class SoftSort(Sorting):
    r"""Differentiable sorting, ascending: transport of n values onto n places; `sorting` has the formula.

    Exact as reg → 0, otherwise blurred over about √reg standard deviations. Evenly spaced neighbours are distinguished if
    reg is well below 24/n². The places are equal shares of the mass: with weights, sorted_j is the mean of the values
    between the shares j/n and (j + 1)/n of it. Absent items come last, as 0.

    >>> soft = SoftSort(reg=0.001)
    >>> soft(torch.tensor([3.0, -1.0, 2.0])).round(decimals=3).tolist()
    [-1.0, 2.0, 3.0]
    >>> soft.rank(torch.tensor([3.0, -1.0, 2.0])).round(decimals=3).tolist()
    [2.0, 0.0, 1.0]
    >>> soft.carry(torch.tensor([3.0, -1.0, 2.0]), torch.eye(3)).round(decimals=3).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """

    @needs(lambda self, values, **_: self._need(values))
    def forward(self, values: Tensor, weights: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """values (..., n) → soft sorted values (..., n). weights (..., n), default equal; mask (..., n), True = present."""
        x, a, count = _read(values, weights, mask)
        x, a, scale = _unit(x, a)
        sorted_values = _whole(self._onto_places(x, a, count, x[:, :, None], back=True)[:, :, 0], scale)
        return sorted_values.to(values.dtype).reshape(values.shape)

    @needs(lambda self, values, **_: self._need(values))
    def rank(self, values: Tensor, weights: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """values (..., n) → soft ranks (..., n), from 0 for the smallest; 0 for absent items."""
        x, a, count = _read(values, weights, mask)
        places = torch.arange(x.shape[1], device=x.device).to(x)[:, None]
        return self._onto_places(x, a, count, places, back=False).to(values.dtype).reshape(values.shape)

    @needs(lambda self, values, **_: self._need(values))
    def carry(self, values: Tensor, columns: Tensor, weights: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """columns (..., n, c), a table with one row per value → the same table, sorted as the values are."""
        x, a, count = _read(values, weights, mask)
        if not isinstance(columns, Tensor) or columns.shape[:-1] != values.shape or not columns.is_floating_point():
            expected = f"a tensor of floats of shape {(*values.shape, 'c')}"
            raise checks.ArgumentError("columns", f"be {expected}", inputs.kind(columns))
        table = torch.where(a[:, :, None] > 0, columns.reshape(*x.shape, columns.shape[-1]).to(x), 0.0)
        return self._onto_places(x, a, count, table, back=True).to(columns.dtype).reshape(columns.shape)

    def _need(self, values: Tensor, pieces: int | None = None) -> Need:
        by_factors = isinstance(values, Tensor) and values.ndim > 0 and line_plan.suits(values, self.reg, self.tol)
        return line_plan.need(values) if by_factors else super()._need(values, pieces)

    def _onto_places(self, x: Tensor, a: Tensor, count: Tensor, table: Tensor, back: bool) -> Tensor:
        """Average a table of places [n, c] for each item, or (``back``) one of items [B, n, c] for each place.

        There are as many places as items; the others stay empty. Long lists need no n × n plan (line_plan.py).
        """
        steps = torch.arange(x.shape[1] + 1, dtype=x.dtype, device=x.device)
        x, y, b, start = self._problem(x, a, (steps / count).clamp_max(1.0), count)
        table = table.expand(len(x), *table.shape[-2:])

        def by_plan(x: Tensor, a: Tensor, table: Tensor, y: Tensor, b: Tensor, start: Tensor) -> Tensor:
            P = self._plan(x, a, y, b, start)
            return _means(P.mT if back else P, table)

        if not line_plan.usable(x, a, self.reg, self.tol):
            return by_plan(x, a, table, y, b, start)
        lines, found = line_plan.find_lines(x, a, y, b, start / self.reg, self.reg, self.tol, self.max_depth)
        if not bool(found.any()):
            return by_plan(x, a, table, y, b, start)
        means = line_plan.Carry.apply(x[found], a[found], table[found], lines, back)
        means = means / (lines.sums() if back else torch.where(a > 0, a, 1.0)[found])[:, :, None]
        if bool(found.all()):
            return means
        others = by_plan(*(t[~found] for t in (x, a, table, y, b, start)))
        return torch.zeros_like(table, dtype=means.dtype).index_put((found,), means).index_put((~found,), others)


class SoftRank(SoftSort):
    """Differentiable ranks, from 0 for the smallest of n values to n − 1: `SoftSort.rank` as a layer.

    >>> SoftRank(reg=0.001)(torch.tensor([3.0, -1.0, 2.0])).round(decimals=3).tolist()
    [2.0, 0.0, 1.0]
    """

    @needs(lambda self, values, **_: self._need(values))
    def forward(self, values: Tensor, weights: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """values (..., n) → soft ranks (..., n)."""
        return self.rank(values, weights, mask)


class SoftTopK(Sorting):
    """Soft membership of n values in the k greatest (or least): numbers in [0, 1] with sum k, 0 or 1 as reg → 0.

    With weights, the share of each item's mass that lies in the top k/n of the total; the weighted mean is k/n.

    >>> SoftTopK(2, reg=0.001)(torch.tensor([3.0, -1.0, 2.0, 0.0])).round(decimals=3).tolist()
    [1.0, 0.0, 1.0, 0.0]
    """

    def __init__(self, k: int, reg: float = 0.1, largest: bool = True, tol: float = 1e-6, max_depth: int = 10_000) -> None:
        super().__init__(reg, tol, max_depth)
        self.k, self.largest = checks.count("k", k), bool(largest)

    @needs(lambda self, values, **_: self._need(values, 2))
    def forward(self, values: Tensor, weights: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """values (..., n), at least k of them present → (..., n)."""
        x, a, count = _read(values, weights, mask)
        if self.k > x.shape[1]:
            raise checks.ArgumentError("k", f"be at most the {x.shape[1]} values", self.k)
        share = self.k / count
        cut = 1 - share if self.largest else share
        edges = torch.cat([torch.zeros_like(cut), cut, torch.ones_like(cut)], 1)
        chosen = x.new_tensor([[0.0], [1.0]] if self.largest else [[1.0], [0.0]])
        return _means(self._pieces(x, a, edges, count), chosen).to(values.dtype).reshape(values.shape)

    def extra_repr(self) -> str:
        return f"k={self.k}, largest={self.largest}, {super().extra_repr()}"


class SoftQuantile(Sorting):
    """Quantiles of n values, linear between neighbours as in torch.quantile, which is their limit as reg → 0.

    q : one level in [0, 1], or several. With weights, the mean over a window of 1/n of the mass.

    >>> SoftQuantile(0.5, reg=0.001)(torch.tensor([3.0, -1.0, 2.0])).round(decimals=3)
    tensor(2.)
    """

    levels: Tensor

    def __init__(
        self, q: float | Sequence[float] = 0.5, reg: float = 0.1, tol: float = 1e-6, max_depth: int = 10_000
    ) -> None:
        super().__init__(reg, tol, max_depth)
        self.several = isinstance(q, (list, tuple))
        each: Any = q if self.several else [q]
        numbers = [checks.not_negative("q", level) for level in each]
        if not numbers or max(numbers) > 1:
            raise checks.ArgumentError("q", "be a number from 0 to 1, or several", repr(q))
        self.register_buffer("levels", torch.tensor(numbers, dtype=torch.float64), persistent=False)

    @needs(lambda self, values, **_: self._need(values, 3 * len(self.levels)))
    def forward(self, values: Tensor, weights: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """values (..., n) → quantiles (...), or (..., number of levels) if q has several."""
        x, a, count = _read(values, weights, mask)
        x, a, scale = _unit(x, a)
        Q = len(self.levels)
        x, a, count, scale = (t.repeat_interleave(Q, 0) for t in (x, a, count, scale))
        start = self.levels.to(x).repeat(len(x) // Q)[:, None] * (count - 1) / count
        edges = torch.cat([torch.zeros_like(start), start, start + 1 / count, torch.ones_like(start)], 1).clamp_max(1.0)
        found = _whole(_means(self._pieces(x, a, edges, count).mT, x[:, :, None])[:, 1], scale)
        lead = values.shape[:-1]
        return found.to(values.dtype).reshape((*lead, Q) if self.several else lead)

    def extra_repr(self) -> str:
        return f"q={self.levels.tolist()}, {super().extra_repr()}"


def _read(values: Any, weights: Any, mask: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Read x [B, n], 0 for absent items, a [B, n] of sum 1, and the number of items [B, 1], in float64."""
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.ndim == 0 or values.shape[-1] == 0:
        raise checks.ArgumentError("values", "be a tensor of floats of shape (..., n), n at least 1", inputs.kind(values))
    shape = tuple(values.shape)
    present = inputs.mask("mask", mask, shape, values)
    x, a = values.double(), torch.ones_like(values, dtype=torch.float64)
    if weights is not None:
        a = inputs.weights("weights", weights, shape, values).expand(shape)
    if present is not None:
        x, a = torch.where(present, x, 0.0), torch.where(present, a, 0.0)
    x, a = x.reshape(-1, shape[-1]), a.reshape(-1, shape[-1])
    a = a / inputs.divisor(a)
    a = torch.where(a.abs() < LEAST_SHARE, 0.0, a)
    x = torch.where(a > 0, x, 0.0)  # nor may what is absent overflow beside values that are much smaller
    return x, a, (a > 0).sum(1, keepdim=True).double()


def _unit(x: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return x/s, a and s [B, 1], the greatest |x| of each problem, with changed derivatives; `_whole` undoes it.

    Sorted values and quantiles have F(x, a) = s F(x/s, a): derivatives in x are those of F at x/s, no factor s or 1/s is in
    them, and none is multiplied on the way (1e307 times a few would be infinite); those in a have s, at the very end.
    """
    scale = x.detach().abs().amax(1, keepdim=True)
    scale = torch.where((scale > 0) & (scale < torch.inf), scale, 1.0)
    return (x / scale).detach() + (x - x.detach()), a.detach() + scale * (a - a.detach()), scale


def _whole(y: Tensor, scale: Tensor) -> Tensor:
    """Multiply by the scale that `_unit` took out; keep the derivatives of y."""
    return (scale * y).detach() + (y - y.detach())


def _standard(x: Tensor, a: Tensor) -> Tensor:
    """Standardise to mean 0 and variance 1 under the weights a [B, n]; equal values become 0."""
    largest = torch.where(a > 0, x.detach(), 0.0).abs().amax(1, keepdim=True)
    x = x / torch.where(largest > 0, largest, 1.0)  # then squares neither overflow nor vanish
    centred = x - (a * x).sum(1, keepdim=True)
    variance = (a * centred.square()).sum(1, keepdim=True)
    return centred / torch.where(variance > 0, variance, 1.0).sqrt()


def _quantiles(x: Tensor, a: Tensor, shares: Tensor) -> Tensor:
    """Find values [B, s] up to which given shares of the mass a [B, n] of x [B, n] lie; halfway at the end of an item."""
    x, order = x.sort(dim=1)
    ends = a.gather(1, order).cumsum(1)
    sides = (torch.searchsorted(ends, share) for share in (shares - SAME_SHARE, shares + SAME_SHARE))
    low, high = (x.gather(1, side.clamp_max(x.shape[1] - 1)) for side in sides)
    return (low + high) / 2


def _means(P: Tensor, table: Tensor) -> Tensor:
    """Average Σ_j P_ij table_j / Σ_j P_ij for plans P [B, n, m] and a table [B, m, c] or [m, c]; 0 for rows without mass.

    The sums, which are the weights up to tol, come with the product: one look at P, and one for its gradient.
    """
    sums, total = (P @ nn.functional.pad(table, (0, 1), value=1.0)).split([table.shape[-1], 1], dim=-1)
    return sums / torch.where(total > LEAST_SUM, total, 1.0)
