r"""What a cost has to be able to do: all that any stage asks of it.

A new kind of cost is a class with the verbs of `Cost` that have no default here. `solve`, `solve_unbalanced`, `solve_batch`
and ``reg=0`` then take it in place of a matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer.errors import ArgumentError
from otformer.transport.costs.kernel import Kernel, returned
from otformer.transport.costs.plan import PlanProducts
from otformer.transport.derivatives.envelope import LazyEnvelope, NotDifferentiable, Slope
from otformer.transport.types import Answer, Problem, Solved

REFUSED = "value has gradients; plan, value_linear and potentials of this problem have none"


VERBS = ("shape", "spread", "log_sums", "products", "cost_sums", "least", "costs", "take")  # those without a default


class Direct(NamedTuple):
    """Hold costs as arrays for compiled loops: entries C [n, m], or points x [n, d] and y [d, m], whichever is not empty."""

    C: np.ndarray
    x: np.ndarray
    y: np.ndarray
    root: bool  # plain distances, not their squares


class Cost:
    """Costs c_ij of n × m pairs, however they are kept; +inf forbids a pair. All numbers are float64.

    ``shape`` is (n, m), ``spread`` the range of the finite costs or a bound on it. Potentials, weights and values are
    tensors for the layers (`log_sums`, `products`), numpy arrays for exact transport (`least`, `costs`).
    """

    shape: tuple[int, int]
    spread: float
    device = torch.device("cpu")
    dense: Any = None  # all costs [n, m], where they are kept as a matrix
    tensors = False  # whether results are tensors though weights are none
    near = False  # whether neighbours in `order` are near each other

    # What the layers need

    def log_sums(self, h: Tensor, reg: float, rows: bool) -> Tensor:
        """log Σ_j exp((h_j − c_ij)/λ) of the rows [n] for h [m]; of the columns [m], over i, for h [n]."""
        raise NotImplementedError

    def products(self, u: Tensor, v: Tensor, reg: float, values: Tensor, rows: bool) -> Tensor:
        """P @ values for values [m, k], P_ij = exp((u_i + v_j − c_ij)/λ − 1); Pᵀ @ values for values [n, k] if not rows."""
        raise NotImplementedError

    def cost_sums(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """Σ_j P_ij c_ij of the rows [n], or Σ_i P_ij c_ij of the columns [m]."""
        raise NotImplementedError

    # What exact transport needs

    def least(self, potential: np.ndarray, k: int, rows: bool) -> tuple[np.ndarray, np.ndarray]:
        """The k least c_ij − v_j of every row with their j, both [n, k], ascending; of columns c_ij − u_i, i, [m, k].

        Where fewer than k pairs are allowed, values are inf and places −1.
        """
        raise NotImplementedError

    def costs(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """c of the pairs (i, j), [E]; inf for those that are forbidden."""
        raise NotImplementedError

    def take(self, rows: Any, columns: Any) -> Cost:
        """The cost between some of the rows and some of the columns, by their indices."""
        raise NotImplementedError

    # What has a default

    def gauge(self) -> tuple[Any, Any]:
        """p and q: the caller's cost is c_ij + p_i + q_j, its potentials u + p and v + q."""
        return 0.0, 0.0

    def started(self, u: Tensor, v: Tensor, reg: float) -> tuple[Any, Any] | None:
        """Potentials of the caller's cost as a start for c; None where they can be of no use."""
        p, q = self.gauge()
        return u - p, v - q

    def matrix(self, solver: str) -> Any:
        """All costs [n, m], for ``solver``, which is named where the cost forms none."""
        if self.dense is None:
            raise ArgumentError("M", f"be a cost matrix for {solver}", f"{type(self).__name__}, which forms none")
        return self.dense

    def as_tensors(self) -> Cost:
        return self

    def from_zero(self) -> Cost:
        """The cost less its least entry, for layers."""
        return self

    def pairs(self) -> Any:
        """What answers `least` and `costs`: the cost itself, or an index of it."""
        return self

    def direct(self) -> Direct | None:
        """All costs for compiled loops, inf those of forbidden pairs; None where loops cannot have them one by one."""
        return None

    def transposed(self) -> Cost | None:
        """The cost of columns to rows, if there is a quick way to it; gauges change sides."""
        return None

    def allowed(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows and columns of the pairs that are allowed, where the others are forbidden; None: all are."""
        return None

    def without_costs(self) -> Cost | None:
        """The same pairs allowed, at cost 0: whether a plan exists at all; None where all pairs are allowed."""
        return None

    def order(self) -> tuple[Any, Any] | None:
        """An order of rows and columns in which neighbours are near each other, if there is one."""
        return None

    def clouds(self) -> Any:
        """The cost itself where it is one between points that others may stand for, as `PointsCost.between` has it."""
        return None

    def places(self) -> tuple[Tensor, Tensor] | None:
        """Tables [n, ·] and [m, ·] of what a row and a column are known by, where equal ones may be merged."""
        return None

    def kernel(
        self, log_a: Tensor, log_b: Tensor, reg: float, mass: float | None = None, damped: float | None = None
    ) -> Kernel:
        """The cost between weighted points, for layers at λ; ``damped``: how far apart their potentials may come."""
        return CostKernel(self, log_a, log_b)

    def planned(self, kernel: Any, u: Tensor, v: Tensor, reg: float) -> PlanProducts:
        """The plan of potentials as products, by the verbs of the cost or of its ``kernel``."""
        return PlanProducts(self, (u, v, torch.as_tensor(reg, dtype=torch.float64, device="cpu")))

    def slopes(self, plan: Any, marginals: tuple[Tensor, Tensor]) -> list[Slope]:
        """Gradients of Σ P C in what the cost is a function of (`Inputs.cost`), P held still."""
        return []

    def entries(self, inputs: tuple[Tensor, ...], i: Tensor, j: Tensor) -> Tensor:
        """Costs of the pairs (i, j) as a function of these inputs, differentiably."""
        return torch.from_numpy(self.costs(i.cpu().numpy(), j.cpu().numpy()))

    def answer(self, problem: Problem, solved: Solved) -> Answer:
        """What is true of a solution: by products with its plan, in O(n + m) memory."""
        plan = self.planned(solved.plan, solved.u, solved.v, problem.entropy)
        r, c = plan.marginals()
        error = float((r - problem.a).abs().sum() + (c - problem.target).abs().sum())
        if not math.isfinite(error):
            raise ValueError(f"max_depth must be larger, or reg: after {solved.depth} layers the plan is still infinite")
        p, q = self.gauge()
        u, v = solved.u + p, solved.v + q
        value = r @ u + c @ v - problem.entropy * r.sum()  # λ log P = u + v − C − λ: no more than the marginals are needed
        weights: list[Slope] = [u, v]
        return priced(
            problem, plan, (r, c), (u, v), value, weights, lambda linear: (value - linear) / problem.entropy, error
        )


def given_cost(M: Any) -> Cost | None:
    """A cost that has all verbs; None for anything else that may be a cost matrix."""
    if not isinstance(M, Cost):
        return None
    for verb in VERBS:
        if getattr(M, verb, None) is None or getattr(type(M), verb, None) is getattr(Cost, verb, ()):
            raise ArgumentError("M", f"have the verb {verb!r} (transport/costs/cost.py)", f"{type(M).__name__} without it")
    if not M.spread >= 0:
        came = f"{M.spread} of {type(M).__name__}"
        raise ArgumentError("M", "have a spread, the range of its finite costs, of 0 or above", came)
    return M.as_tensors()


def priced(
    problem: Problem, plan: PlanProducts, marginals: tuple[Tensor, Tensor], potentials: tuple[Tensor, Tensor],
    value: Tensor, in_weights: list[Slope], in_reg: Callable[[Tensor], Tensor], error: float,
) -> Answer:  # fmt: skip
    """Build an answer whose value is differentiable; differentiating anything else raises.

    ``in_weights`` are those in a and b, ``in_reg`` finds that in λ from Σ P C.
    """
    inputs: tuple[Tensor, ...] = ()
    form, (u, v), parts = problem.form, potentials, None
    if problem.wanted is not None:
        inputs = (*problem.wanted.cost, problem.wanted.a, problem.wanted.b, problem.wanted.reg)
        slopes = [*problem.cost.slopes(plan, marginals), *in_weights, lambda: in_reg(linear(problem.cost, plan, marginals))]
        value = LazyEnvelope.apply(value, slopes, None, *inputs)
        *parts, u, v = NotDifferentiable.apply(REFUSED, (*plan.parts, u, v), *inputs)
    given = form.give(problem.whole(u, 0), double=True), form.give(problem.whole(v, 1), double=True)
    read = {
        "plan": plan.given(problem, parts and tuple(parts)),
        "value_linear": partial(_given, problem, plan, marginals, inputs),
    }
    return Answer(given, form.number(value), float(marginals[0].sum()), error, read)


def linear(cost: Cost, plan: PlanProducts, marginals: tuple[Tensor, Tensor]) -> Tensor:
    """Σ P C = Σ P c + Σ_i p_i (P1)_i + Σ_j q_j (Pᵀ1)_j."""
    (r, c), (p, q) = marginals, cost.gauge()
    return plan.cost_sums().sum() + (r * p).sum() + (c * q).sum()


def _given(problem: Problem, plan: PlanProducts, marginals: tuple[Tensor, Tensor], inputs: tuple[Tensor, ...]) -> Any:
    """Return Σ P C in the caller's type; its backward raises."""
    value = linear(problem.cost, plan, marginals)
    return problem.form.number(NotDifferentiable.apply(REFUSED, (value,), *inputs)[0] if inputs else value)


class CostKernel(Kernel):
    """The kernel of any cost, by its own verbs."""

    def __init__(self, cost: Cost, log_a: Tensor, log_b: Tensor) -> None:
        self.cost, self.log_a, self.log_b, self.spread = cost, log_a, log_b, cost.spread

    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        if rows:
            return self._sums(v, reg, True) + u / reg - 1 - self.log_a
        return self._sums(u, reg, False) + v / reg - 1 - self.log_b

    def _sums(self, h: Tensor, reg: float, rows: bool) -> Tensor:
        shape = *h.shape[:-1], self.cost.shape[-2 if rows else -1]  # a matrix cost may have a batch of problems
        return returned(self.cost, "log_sums", self.cost.log_sums(h, reg, rows), shape)
