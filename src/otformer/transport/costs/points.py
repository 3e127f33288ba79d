"""Point clouds: c_ij = ‖x_i − y_j‖² or ‖x_i − y_j‖, never formed; kernels on a CUDA device, blocks of torch elsewhere.

The error and value of a solution, and products with its plan, take O(n + m) memory.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import callers
from otformer.extras import absence
from otformer.network.features import Features
from otformer.transport.costs.clouds import Rule, morton
from otformer.transport.costs.cost import Cost, Direct, linear
from otformer.transport.costs.distances import root_of
from otformer.transport.costs.entries import Entries, EntriesProducts
from otformer.transport.costs.kernel import Kernel
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.costs.plan import SINGLE_RESIDUAL, Operator, Parts, Product, StreamedPotentials
from otformer.transport.costs.plan_value import Distances, StreamedValue, cost_slope, own_squares
from otformer.transport.costs.rounding import Rounded, round_matrix, round_stream
from otformer.transport.costs.tiles import Stream
from otformer.transport.derivatives.envelope import Slope
from otformer.transport.derivatives.implicit import CG_RESIDUAL
from otformer.transport.types import Answer, Problem, Solved, to_numpy

INTERPRETED = False  # whether kernels run on CPU tensors too, in Triton's interpreter: tests set it
FEW, FORMED = 8, 2**25  # dimensions up to where a cost takes no longer than its entry; entries that are formed in others
MOST_ORDERED = 8  # dimensions in which neighbours along a curve are near


@dataclass(frozen=True, eq=False)
class PointsCost(Cost):
    """C_ij = c_ij + p_i + q_j between points x [n, d] and y [m, d] about the origin; what c is, ``rule`` says."""

    x: Tensor
    y: Tensor
    p: Tensor
    q: Tensor
    rule: Rule
    spread: float  # bounds the range of c
    formable: bool = (
        False  # whether a matrix may be made where that is faster: not where no more than O(n + m) was asked for
    )

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return len(self.x), len(self.y)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.x.device

    def gauge(self) -> tuple[Tensor, Tensor]:
        return self.p, self.q

    def kernel(
        self, log_a: Tensor, log_b: Tensor, reg: float, mass: float | None = None, damped: float | None = None
    ) -> Kernel:
        if (self.x.is_cuda or INTERPRETED) and has_triton():
            from otformer.transport.costs.gpu.kernel import OnGpu

            return OnGpu(self.x, self.y, log_a, log_b, self.spread, reg, self.rule, mass)
        return Stream(Features.of_points(self.x, self.y), log_a, log_b, rule=self.rule)

    def take(self, rows: Any, columns: Any) -> PointsCost:
        i, j = (torch.as_tensor(at, device=self.device) for at in (rows, columns))
        labels, rule = self.rule.labels, self.rule
        rule = rule if labels is None else rule._replace(labels=(labels[0][i], labels[1][j]))
        return replace(self, x=self.x[i], y=self.y[j], p=self.p[i], q=self.q[j], rule=rule)

    def clouds(self) -> PointsCost | None:
        return self if self.rule.labels is None else None

    def between(self, x: Tensor, y: Tensor) -> PointsCost:
        """The same cost between other points, no farther apart than these."""
        return replace(self, x=x, y=y, p=torch.zeros_like(x[:, 0]), q=torch.zeros_like(y[:, 0]))

    def log_sums(self, h: Tensor, reg: float, rows: bool) -> Tensor:
        zeros = self.p * 0, self.q * 0  # logs of weights 1
        kernel, own = self.kernel(*zeros, reg), zeros[not rows] + reg
        return kernel.log_ratio(*((own, h) if rows else (h, own)), reg, rows)

    def products(self, u: Tensor, v: Tensor, reg: float, values: Tensor, rows: bool) -> Tensor:
        return self._weighted(u, v, reg).products(u, v, reg, values, rows)

    def cost_sums(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        return self._weighted(u, v, reg).cost_sums(u, v, reg, rows)

    def _weighted(self, u: Tensor, v: Tensor, reg: float) -> Any:
        """The kernel whose weights are the marginals of this plan: by them it knows which tiles do not matter."""
        return self.kernel(self.log_sums(v, reg, True) + u / reg - 1, self.log_sums(u, reg, False) + v / reg - 1, reg)

    @cached_property
    def _pairs(self) -> Any:
        """An index of the points, which has `least` and `costs`."""
        if self.x.is_cuda:
            from otformer.transport.costs.gpu.least import GpuPairs

            return GpuPairs(self.x, self.y, self.rule)
        from otformer.transport.costs.point_pairs import PointPairs

        return PointPairs(self.x.numpy(), self.y.numpy(), self.rule)

    def _placed(self, t: np.ndarray) -> Any:
        """An array where the index is."""
        return torch.from_numpy(np.ascontiguousarray(t)).to(self.device) if self.x.is_cuda else t

    def least(self, potential: np.ndarray, k: int, rows: bool) -> tuple[np.ndarray, np.ndarray]:
        values, places = self._pairs.least(self._placed(potential), k, rows)
        return to_numpy(values), to_numpy(places)

    def costs(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        found: np.ndarray = to_numpy(self._pairs.costs(self._placed(i), self._placed(j)))
        return found

    def pairs(self) -> Cost:
        """A matrix, if reading its entries is faster than computing them."""
        few = self.formable and len(self.x) * len(self.y) <= FORMED
        if not few or self.x.shape[1] <= FEW or self.direct() is None:
            return self
        return MatrixCost(self._pairs.matrix(), 0.0, self.spread)

    def transposed(self) -> PointsCost:
        labels = self.rule.labels
        rule = self.rule if labels is None else self.rule._replace(labels=labels[::-1])
        return replace(self, x=self.y, y=self.x, p=self.q, q=self.p, rule=rule)

    def direct(self) -> Direct | None:
        if self.x.is_cuda or self.rule.labels is not None:
            return None
        y = np.ascontiguousarray(self.y.numpy().T)
        return Direct(np.empty((0, 0)), np.ascontiguousarray(self.x.numpy()), y, bool(self.rule.root))

    @property
    def near(self) -> bool:  # type: ignore[override]
        return self.x.shape[1] <= MOST_ORDERED

    def order(self) -> tuple[Tensor, Tensor] | None:
        return (morton(self.x), morton(self.y)) if self.near else None

    def places(self) -> tuple[Tensor, Tensor]:
        """Coordinates, and labels where there are any."""
        x, y, labels = self.x, self.y, self.rule.labels
        if labels is not None:
            x, y = (torch.column_stack([t, own.to(t)]) for t, own in ((x, labels[0]), (y, labels[1])))
        return x, y

    def planned(self, kernel: Any, u: Tensor, v: Tensor, reg: float) -> Operator:
        lam = torch.as_tensor(reg, dtype=torch.float64, device="cpu")  # on the CPU: to read it is to wait for nobody
        return Operator(kernel, (self.x, self.y, *own_squares(self.x, self.y, self.rule), u, v, lam))

    def slopes(self, plan: Operator, marginals: tuple[Tensor, Tensor]) -> list[Slope]:
        return [partial(cost_slope, plan), partial(cost_slope, plan.T), *marginals]

    def entries(self, inputs: tuple[Tensor, ...], i: Tensor, j: Tensor) -> Tensor:
        x, y, p, q = inputs
        apart = (x[i] - y[j]).square().sum(1)
        return (root_of(apart) if self.rule.root else apart) + p[i] + q[j]

    def answer(self, problem: Problem, solved: Solved) -> Answer:
        """The answer of potentials (u, v) of ‖x − y‖², or of ‖x − y‖. Its plan is known by them, and never formed."""
        form, wanted = problem.form, problem.wanted
        u, v, a, b = solved.u, solved.v, problem.a, problem.b
        if not len(u):
            empty = form.give(a.new_zeros(problem.shape))
            nothing = {"plan": empty, "value_linear": form.number(0.0), "rounded": partial(self._rounded, problem, solved)}
            return Answer((form.give(u), form.give(v)), form.number(0.0), 0.0, 0.0, nothing)
        operator = self._operator(problem, solved)
        error, mass = (solved.error, problem.mass) if solved.error is not None else _measured(problem, operator)
        whole = u + self.p, v + self.q
        # The dual, Σ a u + Σ b v − λ Σ P, is the value to second order in the error.
        value = a @ whole[0] + b @ whole[1] - problem.entropy * mass
        parts: Parts | None = None
        if wanted is not None:
            x, y, p, q = wanted.cost
            alone = (x, y, *own_squares(x, y, self.rule), wanted.reg)  # without p and q, which do not change the plan
            moving = StreamedValue.apply(operator, value - a @ self.p - b @ self.q, wanted.a, wanted.b, *alone)
            value = moving + wanted.a @ p + wanted.b @ q
            parts = (*alone[:4], *StreamedPotentials.apply(operator, wanted.a, wanted.b, *alone), wanted.reg)
        potentials = form.give(problem.whole(whole[0], 0), double=True), form.give(problem.whole(whole[1], 1), double=True)
        found: dict[str, Any] = {
            "plan": partial(operator.given, problem, parts),
            "value_linear": partial(self._linear, problem, operator, parts),
            "rounded": partial(self._rounded, problem, solved),
        }
        return Answer(potentials, form.number(value), mass, error, found)

    def _operator(self, problem: Problem, solved: Solved) -> Operator:
        """The plan as products, of numbers alone."""
        operator = self.planned(solved.plan, solved.u, solved.v, problem.entropy)
        return replace(operator, residual=SINGLE_RESIDUAL if solved.plan.single else CG_RESIDUAL)

    def _rounded(self, problem: Problem, solved: Solved) -> Rounded:
        """The plan with the marginals made exact, its products in float64."""
        if not len(problem.a):
            empty = problem.a.new_zeros(0, 0)
            return round_matrix(replace(problem, cost=MatrixCost(empty)), empty, problem.b)
        passes = Entries(self, problem)
        products = EntriesProducts(passes, self._operator(problem, solved).parts)
        return round_stream(self, problem, passes, replace(products.given(problem), numpy=False))

    def _linear(self, problem: Problem, operator: Operator, parts: Parts | None) -> Any:
        """Σ P C in the caller's type, with its derivatives if ``parts`` have any."""
        value = linear(self, operator, operator.marginals())
        if parts is not None:
            assert problem.wanted is not None
            moving = _moving_linear(operator, parts, *problem.wanted.cost[2:])
            value = value + (moving - moving.detach())
        return problem.form.number(value)


def _measured(problem: Problem, operator: Operator) -> tuple[float, float]:
    """Marginal error and mass of a plan, in float64, by two products."""
    r, c = operator.marginals()
    return float((r - problem.a).abs().sum() + (c - problem.target).abs().sum()), float(r.sum())


def _moving_linear(operator: Operator, parts: Parts, p: Tensor, q: Tensor) -> Tensor:
    """Σ P C, for its derivatives: Σ_i (p_i + ‖x_i‖²) r_i + (P(q + ‖y‖²))_i − 2 x_i·(Py)_i; Σ P c for plain distances."""
    if operator.kernel.rule.root:
        return Distances.apply(operator, *parts)
    x, y, x_sq, y_sq = parts[:4]
    sums = Product.apply(operator, torch.cat([torch.ones_like(q)[:, None], (y_sq + q)[:, None], y], 1), *parts)
    return ((x_sq + p) * sums[:, 0] + sums[:, 1] - 2 * (x * sums[:, 2:]).sum(1)).sum()


@functools.cache
def has_triton() -> bool:
    """Whether kernels can run; warns once if they cannot."""
    try:
        importlib.import_module("triton")
        return True
    except ImportError as error:
        why = absence(error, "triton")
    callers.warn(f"triton is {why}: streams on the GPU run in blocks of torch operations, several times slower")
    return False
