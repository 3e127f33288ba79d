"""The stream of a CUDA device for everybody else: vectors in the order the points were given."""

from __future__ import annotations

import math
from copy import copy

import torch
from torch import Tensor

from otformer.transport.costs.clouds import PLAIN, Rule
from otformer.transport.costs.gpu.laid_kernel import GpuStream
from otformer.transport.costs.gpu.layout import MIXED, SINGLE, Side
from otformer.transport.costs.gpu.passes import MARGIN
from otformer.transport.costs.gpu.products import product
from otformer.transport.costs.kernel import Kernel

ORDER_ABOVE = 200.0  # spread of the costs, in units of λ, from where tiles of neighbours are worth the sorting
ORDER_LARGE_ABOVE = 40.0  # the same for many pairs
MANY_PAIRS = 2e8


class OnGpu(Kernel):
    """The interface of `costs.tiles.Stream`, in kernels.

    Points x [n, d], y [m, d] about the origin, float64; the cost is c_ij; logs of positive weights. ``spread`` bounds the
    range of costs, and ``reg`` is the λ it will be used at: with both it is known whether sorting is worth the while.
    ``mass`` is that of both sides, if it is known.
    """

    def __init__(
        self, x: Tensor, y: Tensor, log_a: Tensor, log_b: Tensor, spread: float, reg: float, rule: Rule = PLAIN,
        mass: float | None = None,
    ) -> None:  # fmt: skip
        many = len(x) * len(y) > MANY_PAIRS
        ordered = spread > (ORDER_LARGE_ABOVE if many else ORDER_ABOVE) * reg
        labels = rule.labels or (None, None)
        self.log_a, self.log_b, self.rule = log_a, log_b, rule
        first = Side.build(x, log_a, ordered, labels[0])
        self.sides = first, first if y is x and log_b is log_a else Side.build(y, log_b, ordered, labels[1])
        mass = float(log_b.exp().sum()) if mass is None else mass
        self.stream, self.spread = GpuStream(*self.sides, spread, mass, rule, MIXED), spread
        self._last: dict[
            bool, tuple[Tensor, float, Tensor]
        ] = {}  # of rows, of columns: the other's potential, λ, the exact one

    suffix = ", streamed"

    def deciding(self, tol: float, reg: float) -> OnGpu:
        return self._of(self.stream.deciding(tol, reg))

    def rough(self, single: bool, tol: float) -> OnGpu:
        return self._of(self.stream.at(SINGLE, tol))

    def _of(self, stream: GpuStream) -> OnGpu:
        other = copy(self)
        other.stream = stream
        return other

    @property
    def laid(self) -> GpuStream:
        return self.stream

    @property
    def single(self) -> bool:
        """Whether exponentials are those of float32."""
        return self.stream.precision.exponentials == torch.float32

    def rounding(self, reg: float) -> float:
        return self.stream.rounding(reg)

    def lay(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.sides[0].lay(u), self.sides[1].lay(v)

    def take(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.sides[0].take(u), self.sides[1].take(v)

    @torch.no_grad()
    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        own = self.sides[not rows]
        with torch.cuda.device_of(self.log_a):
            mine, other = self.lay(u, v) if rows else self.lay(u, v)[::-1]
            exact = self.stream.exact(other, reg, rows, self._nearly(other, reg, rows))
            self._last[rows] = other.clone(), reg, exact
            return own.take(own.log_ratio(mine, exact, reg))

    def _nearly(self, other: Tensor, reg: float, rows: bool) -> Tensor | None:
        """The last exact potential, if the next one is near it: no log Σ_j exp(h_j …) moves by more than any h_j does."""
        before, last, exact = self._last.get(rows, (None, 0.0, None))
        if before is None or last != reg or not self.sides[0].tiled:
            return None
        moved = float((other - before).nan_to_num(nan=0.0).abs().max())  # filling has −∞
        return exact if moved <= 0.5 * MARGIN * math.log(2) * reg else None

    def products(self, u: Tensor, v: Tensor, reg: float, values: Tensor, rows: bool, inverse: bool = False) -> Tensor:
        """As of a cost, also for a vector; with ``inverse`` every P_ij is divided by ‖x_i − y_j‖."""
        return self._product(u, v, reg, values, "inverse" if inverse else "one", rows)

    def cost_sums(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        return self._product(u, v, reg, torch.ones_like(v if rows else u), "cost", rows)

    @torch.no_grad()
    def _product(self, u: Tensor, v: Tensor, reg: float, values: Tensor, gain: str, rows: bool) -> Tensor:
        potentials, (own, other) = self.lay(u, v), self.sides if rows else self.sides[::-1]
        mine, theirs = potentials if rows else potentials[::-1]
        columns = values.double().reshape(len(values), -1)
        columns = columns if other.order is None else columns[other.order]
        columns = torch.nn.functional.pad(columns, (0, 0, 0, len(other.log_w) - other.size))
        stream = self.stream if self.stream.precision is not SINGLE else self.stream.at(MIXED, self.stream.tol)
        with torch.cuda.device_of(self.log_a):
            out = product(stream.passes, own, other, mine, theirs, columns, stream.numbers(reg), gain)
        return own.take(out).reshape(own.size, *values.shape[1:])
