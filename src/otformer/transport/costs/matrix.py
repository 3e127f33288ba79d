"""A cost matrix, a numpy array for small problems, otherwise a tensor; and the error, value and derivatives of a solution.

Its dense kernel is a layer as two lines on the matrix. Layer by layer it has the same numbers as the matrices of
network/transformer.py: with S_i = Σ_j exp((u_i + v_j − C_ij)/λ − 1), head ``rows`` does u_i ← u_i − γ tanh(½ log(S_i/a_i)),
head ``columns`` the same for v with column sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.costs.absorbed import Absorbed
from otformer.transport.costs.cost import Cost, CostKernel, Direct
from otformer.transport.costs.equal_rows import equal_rows
from otformer.transport.costs.kernel import Kernel, reach
from otformer.transport.costs.pairs import least_of_matrix
from otformer.transport.costs.plan import PlanProducts
from otformer.transport.costs.rounding import Rounded, round_matrix
from otformer.transport.derivatives.envelope import Slope
from otformer.transport.derivatives.implicit import Potentials, Value, log_plan
from otformer.transport.types import Answer, Array, Inputs, Problem, Solved, to_numpy

IN_MEMORY = 50.0  # (ρ + λ): costs within it have a kernel in memory in which no sum of damped layers can underflow
MADE_AGAIN = 1e6  # range of costs, in units of λ, up to which potentials give the plan to nine digits


class MatrixCost(Cost):
    """C − low [n, m], inf where a pair is forbidden; ``low`` is subtracted because only differences of costs matter."""

    def __init__(self, C: Array, low: float = 0.0, spread: float = math.inf) -> None:
        self.dense, self.low, self.spread, self.shape = C, low, spread, C.shape

    def log_sums(self, h: Tensor, reg: float, rows: bool) -> Tensor:
        H = (h[..., None, :] if rows else h[..., :, None]) - checks.local(self.dense)  # [..., n, m]
        return torch.logsumexp(H.mul_(1 / reg), -1 if rows else -2)

    def products(self, u: Tensor, v: Tensor, reg: float, values: Tensor, rows: bool) -> Tensor:
        P = self.planned(None, u, v, reg).P
        return (P if rows else P.mT) @ values

    def cost_sums(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        return self.planned(None, u, v, reg).cost_sums(1 if rows else 0)

    @cached_property
    def _array(self) -> np.ndarray:
        """All costs for numba; for a matrix on a GPU a copy, made once."""
        return np.ascontiguousarray(to_numpy(self.dense), dtype=np.float64)

    def least(self, potential: np.ndarray, k: int, rows: bool) -> tuple[np.ndarray, np.ndarray]:
        return least_of_matrix(self._array, potential, k, rows)

    def costs(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._array[i, j]
        return found

    def direct(self) -> Direct:
        return Direct(self._array, np.empty((0, 0)), np.empty((0, 0)), root=False)

    def transposed(self) -> MatrixCost:
        return MatrixCost(np.ascontiguousarray(to_numpy(self.dense).T), self.low, self.spread)

    def gauge(self) -> tuple[float, float]:
        return self.low, 0.0

    def as_tensors(self) -> MatrixCost:
        return self if isinstance(self.dense, Tensor) else MatrixCost(torch.from_numpy(self.dense), self.low, self.spread)

    def take(self, rows: Any, columns: Any) -> MatrixCost:
        return MatrixCost(self.dense[rows][:, columns], self.low, self.spread)

    def from_zero(self) -> MatrixCost:
        return MatrixCost(self.dense - self.dense.min(), 0.0, self.spread)

    def without_costs(self) -> MatrixCost | None:
        C = checks.local(self.dense)
        return MatrixCost(torch.where(C.isinf(), C, 0.0), 0.0, 0.0) if bool(C.isinf().any()) else None

    def places(self) -> tuple[Tensor, Tensor] | None:
        """A number for every row and column, that equal ones share; None if neither are given often."""
        sides = equal_rows(self._array), equal_rows(self._array.T)
        if sides[0] is sides[1] is None:
            return None
        rows, columns = (np.arange(n) if known is None else known for n, known in zip(self.shape, sides, strict=True))
        return torch.from_numpy(rows[:, None]), torch.from_numpy(columns[:, None])

    def kernel(
        self, log_a: Tensor, log_b: Tensor, reg: float, mass: float | None = None, damped: float | None = None
    ) -> Kernel:
        near = damped is None or self.spread < IN_MEMORY * (damped + reg)
        return (Absorbed if near else Dense)(self.dense, log_a, log_b, self.spread)

    def started(self, u: Tensor, v: Tensor, reg: float) -> tuple[Array, Array] | None:
        """Finite also for a point that had no mass then, as if its mass were tiny.

        A constant moved from u to v changes nothing: v is centred. No start where v varies more than that of any plan can.
        """
        C, known, most = checks.local(self.dense), v[v.isfinite()], reach(self.spread, reg)
        if not len(known) or not float(known.max() - known.min()) <= most:
            return None
        middle = known.mean()
        u, v = u + middle - self.low, v - middle
        nearest = (C - v).amin(1)  # what u is as λ → 0: where it is far from that, v alone is used
        u = torch.where((u - nearest).abs() <= most, u, nearest).nan_to_num(posinf=0.0)
        v = torch.where(v.isneginf(), (C - u[:, None]).amin(0), v)
        return (u, v) if isinstance(self.dense, Tensor) else (u.numpy(), v.numpy())

    def planned(self, kernel: Any, u: Tensor, v: Tensor, reg: float) -> MatrixProducts:
        C = self.dense if isinstance(u, np.ndarray) else checks.local(self.dense)
        return MatrixProducts.of(plan_of(C, u, v, reg), C)

    def slopes(self, plan: Any, marginals: tuple[Tensor, Tensor]) -> list[Slope]:
        return [plan.P]

    def entries(self, inputs: tuple[Tensor, ...], i: Tensor, j: Tensor) -> Tensor:
        return inputs[0][i, j]

    def answer(self, problem: Problem, solved: Solved) -> Answer:
        """The answer, and what is true of it once the plan is rounded to the caller's dtype."""
        u, v, reg, form = solved.u, solved.v, problem.entropy, problem.form
        problem = problem.as_tensors() if isinstance(u, Tensor) else problem
        C, low = problem.cost.dense, problem.cost.gauge()[0]
        P = solved.plan if solved.plan is not None else plan_of(C, u, v, reg)
        rows, columns = P.sum(1), P.sum(0)
        mass = float(rows.sum())
        # λ log P = u + v − C − λ, so Σ P C + λ Σ P log P needs no more than the marginals.
        value = float(rows @ u + columns @ v) + (low - reg) * mass
        # A solver's own plan is more exact than one made from u and v, whose rounding is a share cost/λ · ε of every entry.
        again = solved.plan is None or problem.cost.spread < MADE_AGAIN * reg
        linear = partial(_linear, problem, u, v) if again else partial(float, _against_cost(problem, P))
        if form.single:
            with np.errstate(under="ignore"):
                P = P.float() if isinstance(P, Tensor) else P.astype(np.float32)
            rounded = P.double() if isinstance(P, Tensor) else P.astype(np.float64)
            rows, columns = rounded.sum(1), rounded.sum(0)
        error = float(abs(rows - problem.a).sum() + abs(columns - problem.target).sum())
        if not math.isfinite(error):
            raise ValueError(f"max_depth must be larger, or reg: after {solved.depth} layers the plan is still infinite")
        whole_u, whole_P = u + low, P
        if problem.support is not None:
            whole_u, v, whole_P = problem.whole(whole_u, 0), problem.whole(v, 1), problem.whole_plan(P)
        number: Any = value if form.device is None else form.number(value)
        potentials: tuple[Any, Any] = (whole_u, v)
        if form.device is not None or form.single or isinstance(P, Tensor):
            potentials = form.give(whole_u, double=True), form.give(v, double=True)
            whole_P = form.give(whole_P)
        parts: dict[str, Any] = {"plan": whole_P, "value_linear": partial(_given, problem, linear)}
        if problem.wanted is not None:
            number, moving, parts = _with_derivatives(problem.as_tensors(), problem.wanted, u, solved.v, value, P, linear)
            potentials = moving or potentials
        parts["rounded"] = partial(_rounded, problem, u, solved.v)
        return Answer(potentials, number, mass, error, parts)


class Dense(CostKernel):
    """The kernel of a matrix C [..., n, m] with positive weights a [..., n], b [..., m]. A leading batch axis is allowed."""

    def __init__(self, C: Tensor, log_a: Tensor, log_b: Tensor, spread: float = math.inf) -> None:
        super().__init__(MatrixCost(C, 0.0, spread), log_a, log_b)
        self.C = C

    def plan(self, u: Tensor, v: Tensor, reg: float) -> Array:
        return plan_of(self.C, u, v, reg)


@dataclass(frozen=True, eq=False)
class MatrixProducts(PlanProducts):
    """The products of a plan that is a matrix P, its only part."""

    C: Tensor = field(kw_only=True)

    @classmethod
    def of(cls, P: Tensor, C: Tensor) -> MatrixProducts:
        return cls(None, (P,), C=C)

    @property
    def P(self) -> Tensor:
        return self.parts[0]

    def marginals(self) -> tuple[Tensor, Tensor]:
        return self.P.sum(1), self.P.sum(0)

    def cost_sums(self, axis: int = 1) -> Tensor:
        return torch.where(self.P > 0, self.P * self.C, 0.0).sum(axis)

    def given(self, problem: Problem, parts: tuple[Tensor, ...] | None = None) -> Any:
        return problem.form.give(problem.whole_plan(self.P if parts is None else parts[0]))


@np.errstate(under="ignore")
def plan_of(C: Array, u: Array, v: Array, reg: float) -> Array:
    """P_ij = exp((u_i + v_j − C_ij)/λ − 1), [..., n, m]."""
    logs = u[..., None] + v[..., None, :]
    logs -= C
    logs /= reg
    logs -= 1
    return logs.exp_() if isinstance(logs, Tensor) else np.exp(logs, out=logs)


def _given(problem: Problem, known: Callable[[], float]) -> Any:
    """Evaluate a lazy number and convert it to the caller's type."""
    return problem.form.number(known())


def _linear(problem: Problem, u: Array, v: Array) -> float:
    """Σ P C, from the problem's own numbers, whatever has become of the plan given."""
    return _against_cost(problem, plan_of(problem.cost.dense, u, v, problem.entropy))


def _against_cost(problem: Problem, P: Array) -> float:
    """Σ P C; forbidden pairs have no part in it."""
    C = problem.cost.dense
    if bool((math.inf == C).any()):
        C = torch.where(C.isinf(), 0.0, C) if isinstance(C, Tensor) else np.where(np.isinf(C), 0.0, C)
    return float(P.reshape(-1) @ C.reshape(-1)) + problem.cost.gauge()[0] * float(P.sum())


def _rounded(problem: Problem, u: Array, v: Array) -> Rounded:
    """The plan with the marginals made exact, from the problem's own numbers."""
    problem, u, v = problem.as_tensors(), checks.local(u), checks.local(v)
    return round_matrix(problem, plan_of(problem.cost.dense, u, v, problem.entropy), v)


def _with_derivatives(
    problem: Problem, wanted: Inputs, u: Array, v: Array, value: float, P: Array, known: Callable[[], float]
) -> tuple[Tensor, tuple[Any, Any] | None, dict[str, Any]]:
    """The value, and the plan and its linear part when they are read, differentiable in what was wanted.

    Potentials have derivatives in forward mode only: in reverse mode they are plain numbers.
    """
    (C,), a, b, reg = wanted
    u, v, P = (torch.as_tensor(t, dtype=torch.float64, device=C.device) for t in (u, v, P))
    if bool(C.isinf().any()):  # far enough for exp to be 0, and finite, so that 0 · log 0 is 0
        C = torch.where(C.isinf(), float(u.max() + v.max()) + 800 * problem.entropy, C)
    number = Value.apply(value, C, a, b, reg, u, v, problem.cost.gauge()[0])
    moving = Potentials.apply(C, a, b, reg, u, v)
    linear, give = partial(_moving_linear, problem, C, reg, moving, P, known), problem.form.give
    potentials = None
    if checks.has_tangent(moving[0]):
        whole = problem.whole(moving[0] + problem.cost.gauge()[0], 0), problem.whole(moving[1], 1)
        potentials = give(whole[0], double=True), give(whole[1], double=True)
    return give(number), potentials, {"plan": partial(_moving_plan, problem, C, reg, moving, P), "value_linear": linear}


def _moving(C: Tensor, reg: Tensor, moving: tuple[Tensor, Tensor], P: Tensor) -> Tensor:
    """The plan found, with its derivatives."""
    log_P = log_plan(C, *moving, reg)
    return P * (log_P - log_P.detach()).exp()


def _moving_plan(problem: Problem, C: Tensor, reg: Tensor, moving: tuple[Tensor, Tensor], P: Tensor) -> Any:
    return problem.form.give(problem.whole_plan(_moving(C, reg, moving, P)))


def _moving_linear(
    problem: Problem, C: Tensor, reg: Tensor, moving: tuple[Tensor, Tensor], P: Tensor, known: Callable[[], float]
) -> Any:
    """Σ P C of the problem's own cost, whatever has become of the caller's, with its derivatives."""
    plan = _moving(C, reg, moving, P)
    linear = (plan * C).sum() + problem.cost.gauge()[0] * plan.sum()
    number = torch.as_tensor(known(), dtype=torch.float64, device=C.device)
    return problem.form.give(number + (linear - linear.detach()))
