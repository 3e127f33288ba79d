r"""The optimum of a transport problem in whole numbers, with its proof; nothing of otformer's is used.

Floats are whole numbers times a power of two, so costs and weights become Python ints without rounding. The method is the
transportation simplex: a tree of n + m − 1 pairs with f_i + g_j = c_ij on it; a pair with c_ij < f_i + g_j enters, and of
the cycle it closes the pair with the least flow against it leaves.

It ends: with a_i + ε and b_m + nε no two sets of rows and columns have equal mass, so every flow of a tree is positive and
every pivot lowers the cost. Here ε is 1 and weights are multiplied by K > n. A flow of the true weights on the last tree is
a whole number above −n/K, so it is ≥ 0, and the tree is optimal for them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

SMALL = 2**52  # sums of three costs below it are exact in int64


@dataclass(frozen=True)
class Optimum:
    """An optimal tree of one problem: pairs, flows and potentials in Fractions of the given units."""

    rows: np.ndarray  # [n + m - 1]
    columns: np.ndarray
    flow: list[Fraction]
    value: Fraction  # without what is forbidden
    forbidden: Fraction  # mass on forbidden pairs: 0 where a plan exists
    f: list[Fraction]
    g: list[Fraction]
    pivots: int


def whole(values: np.ndarray) -> tuple[list[int], int]:
    """Whole numbers and the exponent e with values = numbers · 2^−e, exactly."""
    pairs = [float(v).as_integer_ratio() for v in values.ravel()]
    e = max((q.bit_length() - 1 for _, q in pairs), default=0)
    numbers = [p << (e - q.bit_length() + 1) for p, q in pairs]
    even = min(((x & -x).bit_length() - 1 for x in numbers if x), default=0)
    return [x >> even for x in numbers], e - even


def ints(values: list[int], shape: tuple[int, ...]) -> np.ndarray:
    small = all(-SMALL < v < SMALL for v in values)
    made = np.empty(len(values), np.int64 if small else object)
    made[:] = values
    return made.reshape(shape)


def fractions(weights: np.ndarray | None, n: int, mass: Fraction = Fraction(1)) -> list[Fraction]:
    """Weights as given; None is uniform."""
    return [mass / n] * n if weights is None else [Fraction(float(w)) for w in weights]


def solved(C: np.ndarray, a: list[Fraction], b: list[Fraction], start: np.ndarray | None = None) -> Optimum:
    """The optimum for positive a [n], b [m] of one mass, b scaled to that of a; +inf forbids.

    start : flows [n, m] from which the first tree is made, for instance POT's; any will do.
    """
    n, m = C.shape
    allowed = np.isfinite(C)
    numbers, e = whole(np.where(allowed, C, 0.0))
    top = max(map(abs, numbers), default=0)
    wall = 4 * (n + m) * (top + 1)  # a path that avoids one forbidden pair is always cheaper
    costs = ints([c if ok else wall for c, ok in zip(numbers, allowed.ravel(), strict=True)], (n, m))
    mass_a, mass_b = sum(a), sum(b)
    a, b = [w * mass_b for w in a], [w * mass_a for w in b]  # exactly balanced, in units of 1/mass_b
    unit = math.lcm(*(w.denominator for w in (*a, *b)))
    supply, demand = [int(w * unit) for w in a], [int(w * unit) for w in b]
    tree = Tree(costs, supply, demand, start, C.argsort(axis=None, kind="stable"))
    pivots = tree.optimise()
    flow = tree.true_flow()
    scale = Fraction(1) / (unit * mass_b)
    f, g = tree.f, tree.g
    pairs = list(flow)
    sent = [flow[p] for p in pairs]
    value = sum(x * int(costs[p]) for p, x in zip(pairs, sent, strict=True) if allowed[p])
    lost = sum(x for p, x in zip(pairs, sent, strict=True) if not allowed[p])
    return Optimum(
        np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs]), [x * scale for x in sent],
        Fraction(value) * scale / Fraction(2) ** e, lost * scale,
        [Fraction(int(x)) / Fraction(2) ** e for x in f], [Fraction(int(x)) / Fraction(2) ** e for x in g], pivots,
    )  # fmt: skip


class Tree:
    """A spanning tree of rows 0…n−1 and columns n…n+m−1, with flows of the perturbed weights."""

    def __init__(
        self, costs: np.ndarray, supply: list[int], demand: list[int], start: np.ndarray | None, by_cost: np.ndarray
    ) -> None:
        self.costs, self.n, self.m = costs, len(supply), len(demand)
        self.times = 2 * (self.n + 1)
        self.supply = [w * self.times + 1 for w in supply]
        self.demand = [w * self.times for w in demand]
        self.demand[-1] += self.n
        self.flow = self._first(start, iter(by_cost.tolist()))
        self.near: dict[int, set[int]] = defaultdict(set)
        for i, j in self.flow:
            self.near[i].add(self.n + j)
            self.near[self.n + j].add(i)
        self._hang()

    def _first(self, start: np.ndarray | None, by_cost: Iterator[int]) -> dict[tuple[int, int], int]:
        """A basic plan: leaves of the start's graph first, then the cheapest pair; each step closes one row or column."""
        n, m, left = self.n, self.m, [*self.supply, *self.demand]
        near: list[set[int]] = [set() for _ in left]
        if start is not None:
            for i, j in zip(*np.nonzero(start > 0), strict=True):
                near[int(i)].add(n + int(j))
                near[n + int(j)].add(int(i))
        open_ = [True] * (n + m)
        leaves = [k for k in range(n + m) if len(near[k]) == 1]
        flow: dict[tuple[int, int], int] = {}
        while len(flow) < n + m - 1:
            leaf = None
            while leaves and leaf is None:
                leaf = leaves.pop()
                leaf = leaf if open_[leaf] and len(near[leaf]) == 1 else None
            if leaf is not None:
                other = next(iter(near[leaf]))
                i, j = (leaf, other) if leaf < n else (other, leaf)
            else:
                i, j = next((c // m, n + c % m) for c in by_cost if open_[c // m] and open_[n + c % m])
            x = min(left[i], left[j])
            flow[i, j - n] = x
            left[i] -= x
            left[j] -= x
            closed = i if left[i] == 0 else j  # never both but at the end: masses of sets differ
            open_[closed] = False
            for k in near[closed]:
                near[k].discard(closed)
                if len(near[k]) == 1:
                    leaves.append(k)
            near[closed].clear()
        return flow

    def _hang(self) -> None:
        """Parents, depths and potentials of all nodes from row 0."""
        n, costs = self.n, self.costs
        self.parent, self.depth = [-1] * (n + self.m), [-1] * (n + self.m)
        pot: list[int] = [0] * (n + self.m)
        self.depth[0], stack = 0, [0]
        while stack:
            k = stack.pop()
            for other in self.near[k]:
                if self.depth[other] < 0:
                    self.parent[other], self.depth[other] = k, self.depth[k] + 1
                    pot[other] = int(costs[k, other - n] if k < n else costs[other, k - n]) - pot[k]
                    stack.append(other)
        assert min(self.depth) >= 0, "not a tree"
        self.pot = pot

    @property
    def f(self) -> list[int]:
        return self.pot[: self.n]

    @property
    def g(self) -> list[int]:
        return self.pot[self.n :]

    def reduced(self) -> np.ndarray:
        small = self.costs.dtype != object and max(map(abs, self.pot)) < SMALL
        costs = self.costs if small else self.costs.astype(object)
        f, g = np.empty(self.n, costs.dtype), np.empty(self.m, costs.dtype)
        f[:], g[:] = self.f, self.g
        return costs - f[:, None] - g

    def optimise(self) -> int:
        """Pivot until no pair has a negative reduced cost; how many pivots it took."""
        pivots = 0
        while True:
            R = self.reduced()
            best = R.argmin(1)
            tries = sorted((R[i, j], i, int(j)) for i, j in enumerate(best) if R[i, j] < 0)
            if not tries:
                return pivots
            for _, i, j in tries:
                if int(self.costs[i, j]) < self.pot[i] + self.pot[self.n + j]:
                    self._pivot(i, j)
                    pivots += 1

    def _pivot(self, i: int, j: int) -> None:
        ups: tuple[list[int], list[int]] = ([i], [self.n + j])  # from both ends to where they meet
        while ups[0][-1] != ups[1][-1]:
            side = ups[0] if self.depth[ups[0][-1]] >= self.depth[ups[1][-1]] else ups[1]
            side.append(self.parent[side[-1]])
        path = [*ups[0], *reversed(ups[1][:-1])]  # i … n+j; its pairs lose and gain flow in turn
        pairs = [self._pair(p, q) for p, q in pairwise(path)]
        x, gone = min((self.flow[p], p) for p in pairs[::2])
        for k, p in enumerate(pairs):
            self.flow[p] += x if k % 2 else -x
        del self.flow[gone]
        self.flow[i, j] = x
        self.near[gone[0]].discard(self.n + gone[1])
        self.near[self.n + gone[1]].discard(gone[0])
        self.near[i].add(self.n + j)
        self.near[self.n + j].add(i)
        self._hang()

    def _pair(self, p: int, q: int) -> tuple[int, int]:
        return (p, q - self.n) if p < self.n else (q, p - self.n)

    def true_flow(self) -> dict[tuple[int, int], int]:
        """Flows of the weights as given, on the same tree: leaves send all they have."""
        n = self.n
        left = [(w - 1) // self.times for w in self.supply] + [w // self.times for w in self.demand]
        left[-1] = (self.demand[-1] - n) // self.times
        flow: dict[tuple[int, int], int] = {}
        for k in sorted(range(len(left)), key=lambda k: -self.depth[k])[:-1]:
            flow[self._pair(k, self.parent[k])] = left[k]
            left[self.parent[k]] -= left[k]
        assert left[0] == 0, "weights are not balanced"
        assert all(x >= 0 for x in flow.values()), "not a plan"
        return flow


def start_of(C: np.ndarray, a: list[Fraction], b: list[Fraction], big: np.ndarray) -> Any:
    """POT's plan where big entries and forbidden pairs are brought near the rest: a good start, not an answer.

    Optimality compares sums of costs along cycles, in which every pair stands once; so an entry above (n + m) times the
    range of the rest is as good as any above it.
    """
    import ot

    n, m = C.shape
    useful = np.isfinite(C) & ~big
    low, high = (C[useful].min(), C[useful].max()) if useful.any() else (0.0, 1.0)
    scale = max(high - low, 1e-300)
    near, far = np.zeros((n, m)), 4.0 * (n + m)
    near[useful] = (C[useful] - low) / scale
    large = np.isfinite(C) & big
    if large.any():
        top = np.abs(C[large]).max()
        near[large] = np.sign(C[large]) * far * (1 + far * np.abs(C[large] / top))
    near[~np.isfinite(C)] = far**3
    left, right = (np.array([float(x) for x in w]) for w in (a, b))
    return ot.emd(left / left.sum(), right / right.sum(), near, numItermax=1_000_000, check_marginals=False)
