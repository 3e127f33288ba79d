r"""All the layers to come in one step: Newton's method on the column side, for small and for stubborn problems.

A row block makes the rows of the plan P exact. The column block that follows adds r_j = log(b_j/c_j), c = Pᵀ1, to v_j/λ.
To first order the residual after it is M r, then M² r, and so on, with

    M = diag(1/c) Pᵀ diag(1/a) P,      rows that sum to 1, eigenvalues in [0, 1].

Sinkhorn's layers add these up one by one. Their discounted sum, discount 1/(1 + μ), is one linear system:

    δ = Σ_k (1 + μ)^−k M^k r = (1 + μ) [diag((1 + μ) c) − Pᵀ diag(1/a) P]⁻¹ (c r).

μ = ∞ is a Sinkhorn block, μ = 0 is Newton's step for log c = log b. μ falls tenfold after a step that raises the dual and
rises tenfold after one that does not (Levenberg and Marquardt). A constant in δ changes nothing; b bᵀ/Σb added to the
matrix takes it out.

Layers are products with an absorbed kernel (transport/costs/absorbed.py says why), in numpy: for twenty points a
call costs a microsecond, not the work in it. The smaller side plays the columns.

[1] K. Levenberg: A method for the solution of certain non-linear problems in least squares. Quart. Appl. Math. 2, 1944.
[2] C. Brauer, C. Clason, D. Lorenz, B. Wirth: A Sinkhorn–Newton method for entropic optimal transport. arXiv:1710.06635.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from otformer.transport.costs.absorbed import DRIFT, absorb
from otformer.transport.solvers.blocks import ANNEAL_ABOVE, temperatures
from otformer.transport.types import Goal, Problem, Solved, to_numpy

Array = NDArray[np.float64]

NEWTON_STAGE_ERROR = 1e-6  # error of a stage, as a share of the mass: what is left over is far away in units of the next λ
DIRECT_LAYERS = 100  # at the final λ, before stages are thought better
LONGEST = 50.0  # step, in units of λ
TRUST = 10.0  # step, in units of λ, that is never too long
PLAIN_WHILE = 0.1  # share of the error that a plain block may leave for plain blocks to go on
FAILURES = 3  # plain blocks that fail to lower the error before rounding is taken to be all that is left
ROUNDING = 1e-13  # relative, of the dual value
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Newton:
    """The solver for few points: Levenberg–Marquardt on the column potentials, each step the sum of all blocks to come.

    A step costs n·m·min(n, m) multiplications.

    >>> import otformer as of
    >>> of.solve([[0.0, 1.0], [1.0, 0.0]], reg=0.01, solver=of.Newton()).method
    'Sinkhorn blocks with Newton steps'
    """

    def run(self, problem: Problem, goal: Goal) -> Solved:
        matrix, a, b, start = problem.cost.matrix("Newton"), problem.a, problem.b, problem.start
        C = matrix
        if isinstance(C, torch.Tensor):
            C, a, b = (to_numpy(t) for t in (C, a, b))
            start = None if start is None else (to_numpy(start[0]), to_numpy(start[1]))
        found = newton(C, a, b, problem.entropy, goal.tol, goal.max_depth, start, spread=problem.cost.spread)
        u, v, P = found.u, found.v, found.plan
        if isinstance(matrix, torch.Tensor):
            u, v, P = (torch.from_numpy(t).to(matrix) for t in (u, v, P))  # type: ignore[assignment]
        return Solved(u, v, found.depth, "Sinkhorn blocks with Newton steps", P)


@dataclass(frozen=True, eq=False)
class Found:
    """Potentials of C ≥ 0 and their plan, layers run, and the error after every step at the final λ."""

    u: Array
    v: Array
    plan: Array
    depth: int
    errors: list[float]


@np.errstate(under="ignore")
def newton(
    C: Array,
    a: Array,
    b: Array,
    reg: float,
    tol: float,
    max_depth: int,
    start: tuple[Array, Array] | None = None,
    size: Callable[[Array], float] | None = None,
    spread: float | None = None,
) -> Found:
    """Plan of C [n, m] ≥ 0 for positive weights of equal mass, until ``size`` of the marginal violation, by default its
    L1 norm, is below tol.

    ``spread`` is the greatest finite cost.

    Two layers a step, and two more for the matrix of a step that is not plain. λ falls in stages, unless the first plan,
    that of ``start`` (u, v) or of v = 0, has three quarters of the mass in place.

    >>> found = newton(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0.5, 0.5]), np.array([0.4, 0.6]), 0.1, 1e-9, 100)
    >>> found.plan.sum(0).round(8).tolist(), found.depth < 50
    ([0.4, 0.6], True)
    """
    if C.shape[0] < C.shape[1]:
        start = None if start is None else (start[1], start[0])
        found = newton(np.ascontiguousarray(C.T), b, a, reg, tol, max_depth, start, size, spread)
        return Found(found.v, found.u, found.plan.T, found.depth, found.errors)
    mass, depth, spread = float(b.sum()), 0, float(C.max()) if spread is None else spread
    stage = _Stage(C, a, b, reg, np.zeros(len(b)) if start is None else start[1], size)
    wide = spread > ANNEAL_ABOVE * reg and max_depth >= 4
    if not wide or float(np.abs(stage.c - b).sum()) < mass / 2:
        stage.run(tol, min(DIRECT_LAYERS, max_depth // 2) if wide else max_depth)
    v, depth = np.zeros(len(b)), stage.depth
    for lam in temperatures(spread, reg) if wide and not stage.error < tol else ():
        final = lam == reg
        if final or depth + 4 <= max_depth // 2:
            stage = _Stage(C, a, b, lam, v, size)
            stage.run(tol if final else NEWTON_STAGE_ERROR * mass, max_depth - depth if final else max_depth // 2 - depth)
            v, depth = stage.v, depth + stage.depth
    P = stage.K * stage.q
    P *= stage.p[:, None]
    return Found(stage.u0 + stage.reg * (np.log(stage.p) + 1), stage.v0 + stage.reg * stage.x, P, depth, stage.errors)


def coupling(K: Any, p: Any, q: Any) -> Any:
    """Pᵀ P of plans P = p K q, [..., m, m]: with p/√a for p what Newton's matrix is the diagonal less of; any arrays."""
    Q = K * q[..., None, :]
    Q *= p[..., :, None]
    return Q.swapaxes(-1, -2) @ Q


class _Stage:
    """Steps at one λ; x = (v − v⁰)/λ, measured from the v⁰ that is absorbed in K. Attributes are of the best x so far."""

    def __init__(self, C: Array, a: Array, b: Array, reg: float, v: Array, size: Callable[[Array], float] | None) -> None:
        self.C, self.a, self.b, self.reg, self.size = C, a, b, reg, size
        self.root_a, self.log_b = np.sqrt(a), np.log(b)
        self.error, self.depth = math.inf, 0
        self.errors: list[float] = []
        self._absorb(v)
        self.dual = -math.inf
        self._try(self.x)

    @property
    def v(self) -> Array:
        return self.v0 + self.reg * self.x

    def _absorb(self, v: Array) -> None:
        """K for reference potentials v and the u that belongs to it; the best x becomes 0."""
        self.K, self.u0 = absorb(self.C, v, self.reg)
        self.v0 = v
        self.x, self.q = np.zeros(len(v)), np.ones(len(v))
        self.p = self.a / self.K.sum(1)
        self.dual = float(self.a @ np.log(self.p))

    def run(self, enough: float, limit: int) -> None:
        """Until the error is below ``enough``, or ``limit`` layers are used up, or nothing but rounding is left."""
        mu, failed = math.inf, 0
        while self.error >= enough and self.depth + 2 <= limit and failed < FAILURES:
            if float(np.abs(self.x).max()) > DRIFT[torch.float64] - LONGEST:
                self._absorb(self.v)
            before = self.error
            step, mu = self._step(mu if self.depth + 4 <= limit else math.inf)
            better = self._try(self.x + step)
            if mu < math.inf:
                mu = mu / 10 if better else mu * 10
            elif not better:
                failed += 1
            elif PLAIN_WHILE * before < self.error:
                mu = 0.01

    def _try(self, x: Array) -> bool:
        """A row block and a column block from x; kept if the dual value rises, or stands and the error falls."""
        q = np.exp(x)
        p = self.a / np.maximum(self.K @ q, TINY)
        t = np.maximum(p @ self.K, TINY)
        c = q * t
        dual, gap = float(self.b @ x + self.a @ np.log(p)), c - self.b
        error = float(np.abs(gap).sum()) if self.size is None else self.size(gap)
        self.depth += 2
        self.errors.append(error)
        gain, rounding = dual - self.dual, ROUNDING * (1 + abs(dual))
        if not (gain > rounding or (error < self.error and gain > -rounding)):
            return False
        self.x, self.p, self.q, self.c, self.error, self.dual = x, p, q, c, error, dual
        self.r = self.log_b - np.log(t) - x
        self._gram: Array | None = None
        return True

    def _step(self, mu: float) -> tuple[Array, float]:
        """δ of the formula above from the best x, and its μ: raised until δ is not much longer than a plain step."""
        longest = min(max(TRUST, 2 * float(np.abs(self.r).max())), LONGEST)
        if mu <= 100 and self._gram is None:
            self._gram = np.outer(self.b, self.b / self.b.sum()) - coupling(self.K, self.p / self.root_a, self.q)
            self.depth += 2
        while mu <= 100:
            S = self._gram.copy()  # type: ignore[union-attr]
            S.flat[:: len(S) + 1] += (1 + mu) * self.c
            try:
                step = np.linalg.solve(S, (1 + mu) * self.c * self.r)
            except np.linalg.LinAlgError:  # singular: as if too long
                step = np.full(len(S), np.inf)
            if float(np.abs(step).max()) <= longest:
                return step, mu
            mu *= 10
        return np.clip(self.r, -LONGEST, LONGEST), math.inf
