"""Point clouds on a CUDA device: a kernel whose vectors are in the order of its layout (costs/gpu/layout.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from otformer.transport.costs.clouds import PLAIN, Rule
from otformer.transport.costs.gpu.layout import DOUBLE, MIXED, SINGLE, Precision, Side
from otformer.transport.costs.gpu.passes import Columns, Passes, params
from otformer.transport.costs.gpu.step_loop import Loop, borrow, give_back
from otformer.transport.costs.gpu.steps import GpuSteps
from otformer.transport.costs.kernel import Kernel

STRICT_BITS = 22  # all terms that a MIXED pass leaves out are under 2⁻²² of a sum, part of its MIXED_ROUNDING,
MIXED_BITS, DOUBLE_BITS = 10, 14  # or so far below ``tol``, as with a DOUBLE pass
LOOSE_BITS = 6  # below ``tol``: every one of the terms that a float32 pass leaves out
LOOSEST = 1e-3  # tol of a float32 pass: stages on the way to a rough end are no rougher
AHEAD = 4.0  # times below the present error: what a float32 step aims at
NEAR = 0.25  # variance of neighbours that are taken as one point, in units of the squared blur of a plan
DECIDES = 16.0  # times its own rounding: the least tol for which a pass may say whether it is met


@dataclass(eq=False)
class GpuStream(Kernel):
    """Two clouds and the precision of passes between them; potentials are u [N] and v [M], float64.

    ``tol`` is the error, as a share of the mass, that passes are to lead to: terms that cannot matter to it are left out.
    """

    x: Side
    y: Side
    spread: float  # a bound on the range of the costs
    mass: float
    rule: Rule = PLAIN
    precision: Precision = SINGLE
    tol: float = 0.0
    _loop: Loop | None = field(default=None, init=False)  # of its steps; one at a time
    _expected: Tensor | None = field(default=None, init=False)

    coarsens = True

    def __post_init__(self) -> None:
        self.log_a, self.log_b = self.x.log_w, self.y.log_w

    @property
    def finish(self) -> str:  # type: ignore[override]
        return "float32 and float64" if self.precision is MIXED else "float64"

    @property
    def squares(self) -> float:
        return self.spread**2 if self.rule.root else self.spread

    @cached_property
    def passes(self) -> Passes:
        only_double = self.rule.root and not self.x.near  # squares of near points cancel
        return Passes(MIXED if only_double and self.precision is SINGLE else self.precision, self.rule)

    def at(self, precision: Precision, tol: float) -> GpuStream:
        """The same clouds with passes of another precision."""
        return replace(self, precision=precision, tol=tol)

    def deciding(self, tol: float, reg: float) -> GpuStream:
        """The same with passes exact enough to decide whether an error is below ``tol``, a share of the mass."""
        mixed = self.at(MIXED, tol)
        return mixed if tol >= DECIDES * mixed.rounding(reg) else self.at(DOUBLE, tol)

    def rounding(self, reg: float) -> float:
        """A bound on the error of a side's sums, as a share of the mass; infinite in float32."""
        of_costs = 2.0**-31 if self.rule.root and not self.x.near else 2.0**-50  # roots of differences of squares
        left_out = 2.0 ** -(DOUBLE_BITS if self.precision is DOUBLE else MIXED_BITS) * self.tol
        return self.passes.precision.rounding + left_out + of_costs * self.spread / reg

    def numbers(self, reg: float) -> Tensor:
        """λ and what follows from it, as the kernels read them."""
        return params(reg, self.bits(), self.x.points.device)

    def bits(self, error: float = 0.0) -> float:
        """How far below a row's sum a term is left out; in float32 less far while the ``error`` of the mass is large."""
        if self.precision is SINGLE:
            return LOOSE_BITS - math.log2(max(min(self.tol, LOOSEST), error / AHEAD, 1e-14))
        points, below = math.log2(max(self.x.size, self.y.size)), -math.log2(min(max(self.tol, 1e-14), 1.0))
        return points + (min(STRICT_BITS, MIXED_BITS + below) if self.precision is MIXED else DOUBLE_BITS + below)

    def columns(self, potential: Tensor, rows: bool) -> Columns:
        """A potential of the rows (x), or of the columns (y), as a pass over it reads it."""
        return self.passes.columns(self.x if rows else self.y, potential)

    def block(self, columns: Columns, numbers: Tensor, rows: bool, known: Tensor | None = None) -> tuple[Tensor, Columns]:
        """The potential that makes rows (or columns) exact, given that of the other side.

        ``known`` is one within MARGIN bits of λ of it.
        """
        own, other = (self.x, self.y) if rows else (self.y, self.x)
        sums = None if known is None else own.sums_of(known, numbers[1])
        return self.passes.settle(own, self.passes.sums(own, other, columns, numbers, sums), numbers)

    def steps(self, reg: float, v: Tensor, memory: int, ridge: float) -> GpuSteps:
        """Sinkhorn steps from v at one λ, Anderson-mixed."""
        self._loop = self._loop or borrow(self, memory)
        found = GpuSteps(self, self._loop, reg, v, ridge)
        if self._expected is not None:
            self._loop.expect(self._expected)
            self._expected = None
        return found

    def expect(self, u: Tensor) -> None:
        """The next steps start from a u near this one."""
        self._expected = u

    def release(self) -> None:
        """The steps' memory is free for another problem."""
        if self._loop is not None:
            give_back(self._loop)
            self._loop = None

    def exact(self, potential: Tensor, reg: float, rows: bool, known: Tensor | None = None) -> Tensor:
        """`block` from a potential [M] to one [N], or back."""
        return self.block(self.columns(potential, not rows), self.numbers(reg), rows, known)[0]

    @torch.no_grad()
    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """log(S/w) of the rows [N] or the columns [M], 0 for filling."""
        own, mine, potential = (self.x, u, v) if rows else (self.y, v, u)
        return own.log_ratio(mine, self.exact(potential, reg, rows), reg)

    def strides(self, reg: float, fewest: int) -> tuple[int, int]:
        """How many neighbours of x, and of y, can be one point each at this λ; ``fewest`` points are left at least.

        A plan is blurred over √λ (over λ for plain distances): a mean will do for points whose variance is small beside it.
        """
        if not self.x.near or self.rule.labels is not None:
            return 1, 1
        blur = NEAR * (reg * reg if self.rule.root else reg)
        small = [[s for s, e in side.extents if e <= blur and side.size // s >= fewest] for side in (self.x, self.y)]
        return max(small[0], default=1), max(small[1], default=1)

    def thinned(self, rows: int, columns: int) -> GpuStream:
        """Every ``rows`` neighbours of x along the curve and every ``columns`` of y as one point, with their mass."""
        return replace(self, x=self.x.thinned(rows), y=self.y.thinned(columns))
