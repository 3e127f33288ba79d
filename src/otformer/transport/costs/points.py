"""Point clouds: c_ij = ‖x_i − y_j‖² or ‖x_i − y_j‖, never formed; kernels on a CUDA device, blocks of torch elsewhere."""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from otformer import callers
from otformer.extras import absence
from otformer.network.features import Features
from otformer.transport.costs.clouds import Rule, morton
from otformer.transport.costs.cost import Cost
from otformer.transport.costs.distances import root_of
from otformer.transport.costs.kernel import Kernel
from otformer.transport.costs.pairs import AllPairs, OnDevice
from otformer.transport.costs.plan import Operator
from otformer.transport.costs.plan_value import cost_slope, own_squares
from otformer.transport.costs.points_answer import answer_points
from otformer.transport.costs.tiles import Stream
from otformer.transport.derivatives.envelope import Slope
from otformer.transport.types import Answer, Problem, Solved

INTERPRETED = False  # whether kernels run on CPU tensors too, in Triton's interpreter: tests set it
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
        return PointsCost(self.x[i], self.y[j], self.p[i], self.q[j], rule, self.spread)

    def pairs(self) -> AllPairs:
        if self.x.is_cuda:
            from otformer.transport.costs.gpu.least import GpuPairs

            return OnDevice(GpuPairs(self.x, self.y, self.rule), self.device)
        from otformer.transport.costs.point_pairs import PointPairs

        return PointPairs(self.x.numpy(), self.y.numpy(), self.rule)

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
        return answer_points(self, problem, solved)


@functools.cache
def has_triton() -> bool:
    """Whether kernels can run; says so once if they cannot."""
    try:
        importlib.import_module("triton")
        return True
    except ImportError as error:
        why = absence(error, "triton")
    callers.warn(f"triton is {why}: streams on the GPU run in blocks of torch operations, several times slower")
    return False
