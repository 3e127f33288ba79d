r"""All the layers to come in one step: Newton's method on the column side, for small and for stubborn problems.

A row block makes the rows of the plan P exact. The column block that follows adds r_j = log(b_j/c_j), c = Pᵀ1, to v_j/λ.
To first order the residual after it is M r, then M² r, and so on, with

    M = diag(1/c) Pᵀ diag(1/a) P,      rows that sum to 1, eigenvalues in [0, 1].

Sinkhorn's layers add these up one by one. Their discounted sum, discount 1/(1 + μ), is one linear system:

    δ = Σ_k (1 + μ)^−k M^k r = (1 + μ) [diag((1 + μ) c) − Pᵀ diag(1/a) P]⁻¹ (c r).

μ = ∞ is a Sinkhorn block, μ = 0 is Newton's step for log c = log b. μ falls tenfold after a step that lowers the error and
rises tenfold after one that does not (Levenberg and Marquardt). A constant in δ changes nothing; b bᵀ/Σb added to the
matrix takes it out.

Layers are products with an absorbed kernel (transport/executors/absorbed.py says why), in numpy: for twenty points a
call costs a microsecond, not the work in it. The smaller side plays the columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WIDE = 200.0  # costs that are no more λ apart need no stages
ENOUGH = 1e-6  # error of a stage, as a share of the mass: what is left over is far away in units of the next λ
DIRECT = 100  # layers at the final λ, before stages are thought better
DRIFT = 100.0  # in units of λ: K is made anew when v has moved further
LONGEST = 50.0  # in units of λ, the longest step
TRUST = 10.0  # in units of λ, a step this long is not too long
QUICK = 0.1  # while a plain block leaves no more than this share of the error, plain blocks go on
FLOOR = 3  # plain blocks that fail to lower the error before rounding is taken to be all that is left
ROUNDING = 1e-13  # relative, of the dual value
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Found:
    """Potentials of C ≥ 0 and their plan, layers run, and the error after every step at the final λ."""

    u: Array
    v: Array
    plan: Array
    depth: int
    errors: list[float]


def falling(spread: float, reg: float) -> Iterator[float]:
    """λ of the stages: ``reg`` alone if costs are within WIDE of it; else a tenth of their range, a third of that, …"""
    lam = spread / 10
    while spread > WIDE * reg and lam > 1.5 * reg:
        yield lam
        lam /= 3
    yield reg


def l1(t: Array) -> float:
    return float(np.abs(t).sum())


def newton(
    C: Array,
    a: Array,
    b: Array,
    reg: float,
    tol: float,
    max_depth: int,
    start: tuple[Array, Array] | None = None,
    size: Callable[[Array], float] = l1,
) -> Found:
    """Plan of C [n, m] ≥ 0 for positive weights of equal mass, until ``size`` of the marginal violation is below tol.

    Two layers a step, and two more for the matrix of a step that is not plain. λ falls in stages, unless the first plan,
    that of ``start`` (u, v) or of v = 0, has three quarters of the mass in place.

    >>> found = newton(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0.5, 0.5]), np.array([0.4, 0.6]), 0.1, 1e-9, 100)
    >>> found.plan.sum(0).round(8).tolist(), found.depth < 50
    ([0.4, 0.6], True)
    """
    if C.shape[0] < C.shape[1]:
        start = None if start is None else (start[1], start[0])
        found = newton(np.ascontiguousarray(C.T), b, a, reg, tol, max_depth, start, size)
        return Found(found.v, found.u, found.plan.T, found.depth, found.errors)
    mass, spread, depth = float(b.sum()), float(C.max()), 0
    stage = _Stage(C, a, b, reg, np.zeros(len(b)) if start is None else start[1], size)
    wide = spread > WIDE * reg and max_depth >= 4
    if not wide or l1(stage.c - b) < mass / 2:
        stage.run(tol, min(DIRECT, max_depth // 2) if wide else max_depth)
    if not wide or stage.error < tol:
        return Found(stage.u, stage.v, stage.plan, stage.depth, stage.errors)
    v, depth = np.zeros(len(b)), stage.depth
    for lam in falling(spread, reg):
        final = lam == reg
        if final or depth + 4 <= max_depth // 2:
            stage = _Stage(C, a, b, lam, v, size)
            stage.run(tol if final else ENOUGH * mass, max_depth - depth if final else max_depth // 2 - depth)
            v, depth = stage.v, depth + stage.depth
    return Found(stage.u, v, stage.plan, depth, stage.errors)


class _Stage:
    """Steps at one λ; x = (v − v⁰)/λ, measured from the v⁰ that is absorbed in K. Attributes are of the best x so far."""

    def __init__(self, C: Array, a: Array, b: Array, reg: float, v: Array, size: Callable[[Array], float]) -> None:
        self.C, self.a, self.b, self.reg, self.size = C, a, b, reg, size
        self.error, self.depth = math.inf, 0
        self.errors: list[float] = []
        self._absorb(v)
        self.dual = -math.inf
        self._try(self.x)

    @property
    def v(self) -> Array:
        return self._v + self.reg * self.x

    @property
    def u(self) -> Array:
        return self._u + self.reg * (np.log(self.p) + 1)

    @property
    def plan(self) -> Array:
        P = self.K * self.q
        P *= self.p[:, None]
        return P

    def _absorb(self, v: Array) -> None:
        """K for reference potentials v and the u that belongs to it; the best x becomes 0."""
        K = self.C - v
        self._u, self._v = K.min(1), v
        K -= self._u[:, None]
        K *= -1 / self.reg
        self.K = np.exp(K, out=K)
        self.x, self.q = np.zeros(len(v)), np.ones(len(v))
        self.p = self.a / self.K.sum(1)
        self.dual = float(self.a @ np.log(self.p))

    def run(self, enough: float, limit: int) -> None:
        """Until the error is below ``enough``, or ``limit`` layers are used up, or nothing but rounding is left."""
        mu, failed = math.inf, 0
        while self.error >= enough and self.depth + 2 <= limit and failed < FLOOR:
            if float(np.abs(self.x).max()) > DRIFT - LONGEST:
                self._absorb(self.v)
            before = self.error
            step, mu = self._step(mu if self.depth + 4 <= limit else math.inf)
            better = self._try(self.x + step)
            if mu < math.inf:
                mu = mu / 10 if better else mu * 10
            elif not better:
                failed += 1
            elif QUICK * before < self.error:
                mu = 0.01

    def _try(self, x: Array) -> bool:
        """A row block and a column block from x; kept if the dual value rises, or stands and the error falls."""
        q = np.exp(x)
        p = self.a / np.maximum(self.K @ q, TINY)
        t = np.maximum(p @ self.K, TINY)
        c = q * t
        dual, error = float(self.b @ x + self.a @ np.log(p)), self.size(c - self.b)
        self.depth += 2
        self.errors.append(error)
        gain, rounding = dual - self.dual, ROUNDING * (1 + abs(dual))
        if not (gain > rounding or (error < self.error and gain > -rounding)):
            return False
        self.x, self.p, self.q, self.c, self.error, self.dual = x, p, q, c, error, dual
        self.r = np.log(self.b / t) - x
        self._gram: Array | None = None
        return True

    def _step(self, mu: float) -> tuple[Array, float]:
        """δ of the formula above from the best x, and its μ: raised until δ is not much longer than a plain step."""
        longest = min(max(TRUST, 2 * float(np.abs(self.r).max())), LONGEST)
        while mu <= 100:
            step = self._discounted(mu)
            if float(np.abs(step).max()) <= longest:
                return step, mu
            mu *= 10
        return np.clip(self.r, -LONGEST, LONGEST), math.inf

    def _discounted(self, mu: float) -> Array:
        if self._gram is None:
            Q = self.K * self.q
            Q *= (self.p / np.sqrt(self.a))[:, None]
            self._gram = np.outer(self.b, self.b / self.b.sum()) - Q.T @ Q
            self.depth += 2
        S = self._gram.copy()
        S.flat[:: len(S) + 1] += (1 + mu) * self.c
        try:
            return np.linalg.solve(S, (1 + mu) * self.c * self.r)
        except np.linalg.LinAlgError:
            return np.full(len(S), np.inf)
