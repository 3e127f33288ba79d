"""Problems for the executor of a GPU, with what its passes and products are in float64, from the matrix.

Imports nothing that a bare GPU machine is without; in Triton's interpreter the same checks run on a CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from helpers.streams import clouds, weights
from otformer.transport.costs.clouds import PLAIN, Rule
from otformer.transport.costs.gpu.kernel import OnGpu
from otformer.transport.costs.gpu.layout import DOUBLE, MIXED, SINGLE, Precision

Duals = tuple[Tensor, Tensor]
PRODUCT_ROUNDING = {MIXED: 2.0**-17, DOUBLE: 1e-11}  # as a share of the sum of absolute values, and of the row's weight
LOGIT_ROUNDING = 2.0**-49  # of float64 logits, here and there, as a share of the greatest of their parts


@dataclass(frozen=True, eq=False)
class Case:
    """Points about the origin, x [n, d] and y [m, d], logs of weights, all float64, and which cost and pairs there are."""

    x: Tensor
    y: Tensor
    log_a: Tensor
    log_b: Tensor
    rule: Rule = PLAIN

    @cached_property
    def distances(self) -> Tensor:
        return torch.cdist(self.x, self.y, compute_mode="donot_use_mm_for_euclid_dist")

    @cached_property
    def C(self) -> Tensor:
        """The cost [n, m], +∞ for forbidden pairs."""
        c = self.distances if self.rule.root else self.distances.square()
        return c if self.rule.labels is None else c.masked_fill(~self.rule.may_match(*self.rule.labels), math.inf)

    @cached_property
    def spread(self) -> float:
        return float(self.C[self.C.isfinite()].max())

    def on(self, reg: float, precision: Precision) -> OnGpu:
        """The executor with passes of a precision."""
        mixed = OnGpu(self.x, self.y, self.log_a, self.log_b, self.spread, reg, self.rule)
        found = {MIXED: mixed, SINGLE: mixed.rough(True, 1e-6), DOUBLE: mixed.deciding(1e-12, reg)}[precision]
        assert found.stream.precision is precision
        return found

    def duals(self, reg: float) -> Duals:
        """Potentials of a plan whose rows are right: what a solver asks about."""
        v = 0.1 * torch.rand(len(self.y), generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(self.y)
        return -reg * self.log_ratio(torch.zeros_like(self.log_a), v, reg, rows=True), v

    def logits(self, u: Tensor, v: Tensor, reg: float) -> float:
        """How large the parts of (u + v − C)/λ are."""
        return (self.spread + max(float(t[t.isfinite()].abs().max()) for t in (u, v))) / reg

    def log_plan(self, u: Tensor, v: Tensor, reg: float) -> Tensor:
        return (u[:, None] + v - self.C) / reg - 1

    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        return torch.logsumexp(self.log_plan(u, v, reg), int(rows)) - (self.log_a if rows else self.log_b)


def case(n: int, m: int, d: int, device: str, rule: Rule = PLAIN, labels: int = 0, seed: int = 0) -> Case:
    """Uniform points with costs of about 1, random weights; labels 0, 1, … of both sides in turn, if any."""
    x, y = (t - (0.25 if d > 1 else 0.5) for t in clouds(n, m, d, seed))
    if labels:
        rule = rule._replace(labels=(torch.arange(n, device=device) % labels, torch.arange(m, device=device) % labels))
    return Case(*(t.to(device) for t in (x, y, weights(n).log(), weights(m, 2).log())), rule)


def check_pass(problem: Case, reg: float, precision: Precision, duals: Duals | None = None) -> None:
    """Both passes are as near to float64 as is said of them; in float32, to a few roundings of logits.

    So are two more whose potentials are near those of the first, which then know what to leave out.
    """
    executor = problem.on(reg, precision)
    u, v = duals or problem.duals(reg)
    logits, used = problem.logits(u, v, reg), executor.stream.passes.precision
    atol = {
        SINGLE: 2e-6 + 2.0**-19 * (1 / reg + logits),
        MIXED: executor.stream.rounding(reg),
        DOUBLE: 1e-11 + LOGIT_ROUNDING * logits,
    }[used]
    wave = [0.69 * reg * torch.sin(torch.arange(len(t)).to(t)) for t in (u, v)]  # just within half of MARGIN bits
    for f, g in ((u, v), (u + wave[0], v + wave[1])):
        for rows in (True, False):
            got, expected = executor.log_ratio(f, g, reg, rows), problem.log_ratio(f, g, reg, rows)
            torch.testing.assert_close(got, expected, rtol=0, atol=atol)


def check_products(problem: Case, reg: float, precision: Precision, duals: Duals | None = None) -> None:
    """P W, Pᵀ W, the same divided by distances, and Σ P c, for columns of different sizes and both signs."""
    executor, (u, v) = problem.on(reg, precision), duals or problem.duals(reg)
    P, g = problem.log_plan(u, v, reg).exp(), torch.Generator().manual_seed(7)
    inverse = torch.where(problem.distances > 0, 1 / problem.distances, 0.0)
    costs = torch.where(problem.C.isfinite(), problem.C, 0.0)
    sizes = torch.tensor([1.0, 1e6, 1e-9], dtype=torch.float64)
    W, Z = (torch.randn(k, 3, generator=g, dtype=torch.float64).mul(sizes).to(P) for k in reversed(P.shape))
    rounding = PRODUCT_ROUNDING[precision] + LOGIT_ROUNDING * problem.logits(u, v, reg)
    a, b, ones = problem.log_a.exp(), problem.log_b.exp(), torch.ones_like
    for got, plan, values, own in (
        (executor.products(u, v, reg, W, rows=True), P, W, a),
        (executor.products(u, v, reg, W[:, 0], rows=True), P, W[:, 0], a),
        (executor.products(u, v, reg, Z, rows=False), P.mT, Z, b),
        (executor.products(u, v, reg, W, inverse=True, rows=True), P * inverse, W, a),
        (executor.products(u, v, reg, Z, inverse=True, rows=False), (P * inverse).mT, Z, b),
        (executor.cost_sums(u, v, reg, rows=True), P * costs, ones(v), a),
        (executor.cost_sums(u, v, reg, rows=False), (P * costs).mT, ones(u), b),
    ):
        expected, size = plan @ values, plan @ values.abs()
        size = size + (own[:, None] if values.ndim == 2 else own) * values.abs().amax(0)
        assert got.shape == expected.shape
        assert bool(((got - expected).abs() <= rounding * size).all())


def steep(problem: Case, reg: float, slope: float, seed: int = 9) -> Duals:
    """Potentials that rise along a line, as where mass goes far, some columns absent; u makes the rows exact."""
    g = torch.Generator().manual_seed(seed)
    sizes = problem.y.shape[::-1]
    direction, noise = (torch.rand(k, generator=g, dtype=torch.float64).to(problem.y) for k in sizes)
    v = 4 * slope * (problem.y @ (direction - 0.5)) + 0.02 * noise
    v[::97] = -math.inf
    return -reg * problem.log_ratio(torch.zeros_like(problem.log_a), v, reg, rows=True), v


def share_that_reads_all(problem: Case, reg: float, duals: Duals) -> float:
    """Of how many rows a pass reads the tile of columns that matters least: it is spoiled once bounds on it are known."""
    stream, (u, v) = problem.on(reg, MIXED).stream, duals
    tops = stream.y.lay(problem.log_plan(u, v, reg).amax(0), fill=math.inf).view(-1, MIXED.columns).amax(1)
    least = int(tops.argmin()) * MIXED.columns
    columns, _ = stream.columns(stream.y.lay(v), rows=False), stream.y.boxes(MIXED)
    stream.y.points[:, least : least + MIXED.columns] = math.nan
    found, _ = stream.block(columns, stream.numbers(reg), rows=True)
    return float(found[: stream.x.size].isnan().double().mean())
