"""Problems that try to break a theorem: weights 1e-8 … 1e2, n ≠ m, λ 1e-3 … 1e2, costs of any sign; solutions known.

A problem is made from its solution: a positive P* and any u*, v* give C = u*_i + v*_j − λ(1 + log P*_ij), and the sums of P*
are its weights. Every problem is of that form, and nothing has to be solved. All of a shape are one batch, in numpy; nothing
here imports otformer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
Pair = tuple[Array, Array]  # u [B, n] and v [B, m], or what belongs to rows and to columns
SHAPES = ((1, 1), (1, 4), (2, 2), (3, 2), (2, 7), (5, 5), (6, 9), (12, 4))
EACH = 150  # problems of a shape: 1,200 in all


@dataclass(frozen=True)
class Problems:
    """B problems of one shape: C [B, n, m], λ [B, 1], weights and a solution [B, n], [B, m], log P* [B, n, m]."""

    C: Array
    reg: Array
    a: Array
    b: Array
    u: Array
    v: Array
    log_plan: Array
    random: np.random.Generator

    @property
    def mass(self) -> Array:
        return self.a.sum(1)

    def start(self, most: float = 60.0) -> Pair:
        """Points at distances of up to ``most`` times λ from the solution, in all orders of magnitude down to λ/1000."""
        scale = self.reg * np.exp(self.random.uniform(np.log(1e-3), np.log(most), self.reg.shape))
        rough = [scale * self.random.uniform(-1, 1, t.shape) for t in (self.u, self.v)]
        return self.u + rough[0], self.v + rough[1]

    def log_matrix(self, u: Array, v: Array) -> Array:
        """log M, [B, n, m]."""
        return (u[:, :, None] + v[:, None] - self.C) / self.reg[..., None] - 1

    def excess(self, u: Array, v: Array) -> Pair:
        """z = log(S/a) and z' = log(S'/b)."""
        log = self.log_matrix(u, v)
        return log_sum(log, 2) - np.log(self.a), log_sum(log, 1) - np.log(self.b)

    def layer(self, u: Array, v: Array, rows: float | Array, columns: float | Array) -> Pair:
        """A layer by its formula, steps in units of λ: u − γ (S − a)/(S + a)."""
        z, other = self.excess(u, v)
        return u - rows * self.reg * np.tanh(z / 2), v - columns * self.reg * np.tanh(other / 2)

    def gradient(self, u: Array, v: Array) -> Array:
        """‖∇L‖₁ [B]: the L1 error of the marginals."""
        z, other = self.excess(u, v)
        return np.abs(self.a * np.expm1(z)).sum(1) + np.abs(self.b * np.expm1(other)).sum(1)

    def divergence(self, u: Array, v: Array) -> Array:
        """KL(P*‖M) = Σ P* log(P*/M) − P* + M [B], from the potentials' distances, so that nothing cancels."""
        d = ((u - self.u)[:, :, None] + (v - self.v)[:, None]) / self.reg[..., None]
        return (np.exp(self.log_plan) * (np.expm1(d) - d)).sum((1, 2))

    def dual(self, u: Array, v: Array) -> Array:
        """L by its definition [B]."""
        linear = (self.a * u).sum(1) + (self.b * v).sum(1)
        return self.reg[:, 0] * np.exp(self.log_matrix(u, v)).sum((1, 2)) - linear

    def distance(self, u: Array, v: Array) -> Array:
        """The sup-norm distance to the nearest solution [B]: half the range of (u − u*, v* − v)."""
        return osc(np.concatenate([u - self.u, self.v - v], 1)) / 2

    def log_phi(self) -> Array:
        """log φ [B], by its definition over four indices."""
        C = self.C / self.reg[..., None]
        differences = C[:, :, None] - C[:, None]  # [B, n, n, m]
        return osc(differences).max((1, 2))


@dataclass
class Tally:
    """How many problems a test has drawn, and the largest ratio of what was measured to its bound."""

    problems: int = 0
    largest: float = 0.0

    def holds(self, measured: Array | float, bound: Array | float, slack: Array | float = 0.0) -> None:
        """Fail where measured > bound + slack. Bounds that rounding could reach do not count for the ratio."""
        measured, bound, slack = np.broadcast_arrays(measured, bound, slack)
        worst = float(np.max(measured - bound - slack, initial=-np.inf))
        assert worst <= 0, f"above its bound by {worst:g}"
        counted = np.isfinite(bound) & (bound > 1e3 * slack) & (bound > 0)
        self.largest = max(self.largest, float(np.max(measured[counted] / bound[counted], initial=0.0)))

    def record(self, property_of: Callable[[str, object], None], of: str = "") -> None:
        """For docs/theorem-tests.md, by pytest's record_property; ``of`` where a test has several bounds."""
        property_of("problems", self.problems)
        property_of(f"largest ratio{of and ' of '}{of}", self.largest)


def osc(t: Array) -> Array:
    return t.max(-1) - t.min(-1)


def log_sum(t: Array, axis: int) -> Array:
    most = t.max(axis, keepdims=True)
    return np.log(np.exp(t - most).sum(axis)) + most.squeeze(axis)


def given(log_plan: list[list[float]], e: list[float], f: list[float], reg: float = 0.3) -> tuple[Problems, Pair]:
    """One problem with that log P* and u* = v* = 0, and the point u = λe, v = λf."""
    log, one = np.array([log_plan]), np.full((1, 1), reg)
    a, b = np.exp(log_sum(log, 2)), np.exp(log_sum(log, 1))
    C = -reg * (1 + log)
    made = Problems(C, one, a, b, 0 * a, 0 * b, log, np.random.default_rng(0))
    return made, (reg * np.array([e]), reg * np.array([f]))


def leaking(distance: float = 100.0, leak: float = 1e-2) -> tuple[Problems, Pair]:
    """The worst case of Theorem C: two blocks of mass 1, 2·distance·λ apart, and a leak from one into the other.

    The leak is what the point lacks, so L − L* ≈ R‖∇L‖₁ (B.1); every |S − a| is half of it, so Cauchy and Schwarz lose
    nothing; and the heads' moves cancel in each block.
    """
    half = leak / 2
    log = [[0.0, math.log(leak)], [-2 * distance - 60, 0.0]]
    return given(log, [-distance, distance], [distance + half, half - distance])


def problems(seed: int, steep: float = 40.0, each: int = EACH) -> Iterator[Problems]:
    """1,200 problems, 150 of a shape. ``steep``: the largest spread of log P* before its sums are set."""
    for k, (n, m) in enumerate(SHAPES):
        random = np.random.default_rng([seed, k])
        reg = np.exp(random.uniform(np.log(1e-3), np.log(1e2), (each, 1)))
        a, b = (10 ** random.uniform(-8, 2, (each, size)) for size in (n, m))
        mild = random.random((each, 1)) < 0.3  # some have the paper's equal weights
        a, b = np.where(mild, 1.0, a), np.where(mild, n / m, b)
        b *= (a.sum(1) / b.sum(1))[:, None]
        log = random.uniform(0, steep, (each, 1, 1)) * random.standard_normal((each, n, m)) * random.random((each, 1, 1))
        for _ in range(20):  # towards these weights; the sums that it has then are the weights
            log -= log_sum(log, 2)[:, :, None] - np.log(a)[:, :, None]
            log -= log_sum(log, 1)[:, None] - np.log(b)[:, None]
        size = reg * 10 ** random.uniform(-1, 2, (each, 1))
        u, v = (size * random.uniform(-1, 1, (each, count)) for count in (n, m))
        C = u[:, :, None] + v[:, None] - reg[..., None] * (1 + log)
        yield Problems(C, reg, np.exp(log_sum(log, 2)), np.exp(log_sum(log, 1)), u, v, log, random)
