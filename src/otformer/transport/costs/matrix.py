"""A cost matrix: a numpy array for small problems, otherwise a tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.transport.costs.absorbed import Absorbed
from otformer.transport.costs.cost import Cost
from otformer.transport.costs.dense import Dense
from otformer.transport.costs.kernel import Kernel, reach
from otformer.transport.costs.matrix_answer import answer_matrix, plan_of
from otformer.transport.costs.pairs import MatrixPairs
from otformer.transport.costs.plan import PlanProducts
from otformer.transport.derivatives.envelope import Slope
from otformer.transport.types import Answer, Array, Problem, Solved, to_numpy

IN_MEMORY = 50.0  # (ρ + λ): costs within it have a kernel in memory in which no sum of damped layers can underflow


class MatrixCost(Cost):
    """C − low [n, m], inf where a pair is forbidden; ``low`` is subtracted because only differences of costs matter."""

    def __init__(self, C: Array, low: float = 0.0, spread: float = math.inf) -> None:
        self.dense, self.low, self.spread, self.shape = C, low, spread, C.shape

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

    def pairs(self) -> MatrixPairs:
        return MatrixPairs(to_numpy(self.dense))

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
        return MatrixProducts.of(plan_of(self.dense, u, v, reg), self.dense)

    def slopes(self, plan: Any, marginals: tuple[Tensor, Tensor]) -> list[Slope]:
        return [plan.P]

    def entries(self, inputs: tuple[Tensor, ...], i: Tensor, j: Tensor) -> Tensor:
        return inputs[0][i, j]

    def answer(self, problem: Problem, solved: Solved) -> Answer:
        return answer_matrix(problem, solved)


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

    def cost_sums(self) -> Tensor:
        return torch.where(self.P > 0, self.P * self.C, 0.0).sum(1)

    def given(self, problem: Problem, parts: tuple[Tensor, ...] | None = None) -> Any:
        return problem.form.give(problem.whole_plan(self.P if parts is None else parts[0]))
