r"""Points given several times: one point with the weight of all of them, and the plan between these places shared out again.

Equal rows of a matrix are points given several times too, and equal columns. Pairs between equal points cost the same, so
there are as many optimal plans as ways to share: shortest paths see all of these ties. Merged, the points of a place have
one potential and nothing is tied. Let U_IJ units go from place I to place J, in whole numbers. Put the units of all pairs
(I, J) on a line, place after place, and on the same line the units of the points, in the same order of their places: each
piece of the line between two ends belongs to one point and to one pair (`staircase`). So the pairs are shared out among the
rows, and the pieces, in the order of J, among the columns.

- Whole numbers stay whole: where every point has one unit, every piece is one unit, and the plan is a permutation.
- With K and L places a plan of K + L − 1 pairs becomes one of n + L − 1 pieces at most, then of n + m − 1.
- Costs are the same, so the potentials of the places are those of their points, and the gap is the same number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer.transport.costs.cost import Cost
from otformer.transport.exact.assignment import Ints
from otformer.transport.exact.flow_graph import Sent
from otformer.transport.exact.rounds import Optimum
from otformer.transport.exact.units import Units
from otformer.transport.types import Problem, to_numpy

OFTEN = 2  # times a point of one side is given, on average, from where on merging pays


class MergedPoints(NamedTuple):
    """Hold the places of one side's points: one of the points at each, [K], and the place of every point, [n]."""

    first: Ints
    place: Ints

    def sums(self, units: Ints) -> Ints:
        """Sum whole numbers [n] of the points over each place, [K]."""
        return _sums(self.place, units, len(self.first))


class Places(NamedTuple):
    """Hold the places of both sides."""

    rows: MergedPoints
    columns: MergedPoints

    def merged(self, problem: Problem, units: Units) -> tuple[Problem, Units]:
        """Return the problem between places."""
        problem = problem.as_tensors()
        i, j = (torch.as_tensor(side.first, device=problem.cost.device) for side in self)
        weights = {
            name: w.new_zeros(len(side.first)).index_add(0, torch.as_tensor(side.place, device=w.device), w)
            for name, w, side in (("a", problem.a, self.rows), ("b", problem.b, self.columns))
        }
        first = None if problem.start is None else (problem.start[0][i], problem.start[1][j])
        cost = problem.cost.take(i, j)
        fewer = replace(problem, cost=cost, start=first, support=None, wanted=None, target=weights["b"], **weights)
        return fewer, units._replace(supply=self.rows.sums(units.supply), demand=self.columns.sums(units.demand))

    def shared(self, found: Optimum, units: Units) -> Optimum:
        """Expand a plan between merged points to the original points, unsent mass included."""
        I, J, sent, cost = found.sent
        K, L = len(self.rows.first), len(self.columns.first)
        rest = self.rows.sums(units.supply) - _sums(I, sent, K)
        i, pair, sent = _share(self.rows, units.supply, np.append(I, np.arange(K)), np.append(sent, rest))
        going = pair < len(I)
        unsent = _sums(i[~going], sent[~going], len(units.supply))
        i, pair, sent = i[going], pair[going], sent[going]
        rest = self.columns.sums(units.demand) - _sums(J[pair], sent, L)
        j, piece, sent = _share(self.columns, units.demand, np.append(J[pair], np.arange(L)), np.append(sent, rest))
        going = piece < len(i)
        unmet = _sums(j[~going], sent[~going], len(units.demand))
        piece = piece[going]
        shared = Sent(i[piece], j[going], sent[going], cost[pair[piece]])
        f, g = found.f[self.rows.place], found.g[self.columns.place]
        return found._replace(sent=shared, f=f, g=g, unsent=unsent, unmet=unmet)


def places(cost: Cost) -> Places | None:
    """Find the places of all points, if those of one side are given often; otherwise None."""
    tables = cost.places()
    if tables is None or not any(_often(table) for table in tables):
        return None
    rows, columns = (_side(table) for table in tables)
    repeated = any(OFTEN * len(side.first) <= len(side.place) for side in (rows, columns))
    return Places(rows, columns) if repeated else None


def _often(table: Tensor) -> bool:
    """Return whether points [n, d] may be given often: a sort of one coordinate shows it, where most of them differ."""
    return OFTEN * len(torch.unique(table[:, 0])) <= len(table)


def _side(table: Tensor) -> MergedPoints:
    """Merge the points whose coordinates and labels are all equal."""
    _, first, place = np.unique(to_numpy(table), axis=0, return_index=True, return_inverse=True)
    return MergedPoints(first, place.reshape(-1))


def _share(side: MergedPoints, units: Ints, places: Ints, amounts: Ints) -> tuple[Ints, Ints, Ints]:
    """Share amounts [E] of places among their points, whose units [n] have the same sums: points, which amount, and units.

    >>> side = MergedPoints(np.array([0, 1]), np.array([0, 1, 0]))
    >>> [t.tolist() for t in _share(side, np.array([2, 5, 2]), np.array([1, 0, 0]), np.array([5, 1, 3]))]
    [[0, 0, 2, 1], [1, 2, 2, 0], [1, 1, 2, 5]]
    """
    points, amount = np.argsort(side.place, kind="stable"), np.argsort(places, kind="stable")
    of_points, of_amounts, pieces = staircase(units[points], amounts[amount])
    return points[of_points], amount[of_amounts], pieces


def _sums(at: Ints, units: Ints, many: int) -> Ints:
    """Sum whole numbers [E] by their places, [many]; exactly, which np.bincount does not."""
    out = np.zeros(many, np.int64)
    np.add.at(out, at, units)
    return out


def staircase(supply: Ints, demand: Ints) -> tuple[Ints, Ints, Ints]:
    """Return rows, columns and units of the plan that sends in the order of both.

    >>> [t.tolist() for t in staircase(np.array([0, 3, 1]), np.array([2, 2]))]
    [[1, 1, 2], [0, 1, 1], [2, 1, 1]]
    """
    out, into = np.cumsum(supply), np.cumsum(demand)
    ends = np.union1d(out, into)
    ends = ends[ends > 0]
    units = np.diff(ends, prepend=0)
    return np.searchsorted(out, ends), np.searchsorted(into, ends), units
