r"""A debiased loss between two weighted clouds without matrices, in O(n + m) memory (compat/like_geomloss.py has the
definitions). Costs are s ‖x − y‖², as squared distances between points √s x and √s y, or ‖x − y‖.

OT(α, β) takes the streamed engine of `solve_sample`, with ``reach`` that of the unbalanced one; OT(α, α) the relaxed step
of variants/debiased.py. A point without mass has ABSENT_WEIGHT: the plan does not feel it, and its potential is defined.

**Gradients** are found when they are asked for, one product with each plan: OT has the derivative Σ_j P_ij ∂C_ij/∂x_i in
x_i, ½ OT(α, α) twice the half of it. **Second derivatives**, of the debiased loss of squared distances, balanced, are those
of W = min Σ P C + ε Σ P log P (streaming/value.py) in W(α, β) − ½ W(α, α) − ½ W(β, β), the same loss: entropies cancel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from otformer import checks
from otformer.transport.derivatives.envelope import LazyEnvelope, Slope
from otformer.transport.executors.clouds import Rule, box_spread, ends, middles, moved
from otformer.transport.executors.open import AnyStream, open_stream
from otformer.transport.problem.problem import Form, Goal, Problem, Sides
from otformer.transport.solvers.mixed import Mixed
from otformer.transport.streaming.plan import Operator, Parts
from otformer.transport.streaming.value import StreamedValue, cost_slope, own_squares
from otformer.transport.variants.debiased import MAX_DEPTH, averaged, balanced, finite, levelled, logs, phi, rounding, warn
from otformer.transport.variants.unbalanced_streamed import damped_stream

SINGLE_SPREAD = 1e5  # range of costs, in units of ε, up to which float32 leads anywhere


class Term(NamedTuple):
    """One OT that is solved: potentials f and g of C, its plan, and how far the clouds' middles are apart, [d]."""

    f: Tensor
    g: Tensor
    operator: Operator
    apart: Tensor

    def slope(self, rows: bool) -> Tensor:
        """Σ_j P_ij ∂C_ij/∂x_i [n, d], or the same of the columns [m, d]."""
        return cost_slope(self.operator, self.apart) if rows else cost_slope(self.operator.T, -self.apart)


@dataclass(frozen=True)
class Losses:
    """Which loss: cost ``scale``·‖x − y‖² or, with ``root``, ‖x − y‖; ε; ρ or None; the error to reach; debiased or not."""

    scale: float
    root: bool
    eps: float
    rho: float | None
    tol: float
    debias: bool

    def __call__(self, x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """F [n], G [m] and the loss, in float64; the loss is differentiable in x [n, d], y [m, d], a [n] and b [m]."""
        single = x.dtype != torch.float64
        x, y, a, b = (t.double() for t in (x, y, a, b))
        with torch.no_grad():
            terms = [self._between(x, y, a, b, single)]
            F, G = terms[0].f, terms[0].g
            at_a, at_b = phi(F, self.eps, self.rho), phi(G, self.eps, self.rho)
            if self.debias:
                terms += [self._within(x, a, single), self._within(y, b, single)]
                f, g = terms[1].f, terms[2].f
                at_a, at_b = at_a - phi(f, self.eps, self.rho), at_b - phi(g, self.eps, self.rho)
                F, G = F - f, G - g
            value = a @ at_a[0] + b @ at_b[0]
        slopes: list[Slope] = [at_a[1], at_b[1], *(partial(self._slope, terms, rows) for rows in (True, False))]
        again = partial(self._again, terms) if self.debias and self.rho is None and not self.root else None
        return F, G, LazyEnvelope.apply(value, slopes, again, a, b, x, y)

    @property
    def rule(self) -> Rule:
        return Rule(root=self.root)

    def _between(self, x: Tensor, y: Tensor, a: Tensor, b: Tensor, single: bool) -> Term:
        """OT(α, β)."""
        sides, apart = self._sides(x, y)
        spread, log_a, log_b = box_spread(sides.x, sides.y, self.rule), logs(a), logs(b)
        tol = max(self.tol, rounding(spread, self.eps, self.rho))
        if self.rho is None:
            mass = float(a.sum())
            w_a, w_b = log_a.exp(), log_b.exp() * (mass / b.sum())
            problem = Problem(sides, w_a, w_b, w_b, self.eps, mass, 0.0, spread, Form(x.device, single))
            u, v, *_, stream, known = Mixed().run(problem, Goal(tol * mass, MAX_DEPTH))
            if known is None:
                missing = w_b * torch.expm1(stream.log_ratio(u, v, self.eps, rows=False)).abs()
                known = float(missing.sum())
            error = checks.local(known / mass)
            f, g = balanced(u + sides.p - self.eps * log_a, v + sides.q - self.eps * (log_b + 1), a, b)
        else:
            whole, strength = open_stream(sides, log_a, log_b, spread, self.eps), (self.rho, self.rho)
            executor, (f, g, error, _) = damped_stream(
                whole, sides, (log_a, log_b), self.eps, strength, Goal(tol, MAX_DEPTH), single or x.is_cuda
            )
            stream, (f, g) = executor.stream, levelled(f, g, a, b, self.eps, self.rho)
        warn(error, tol)
        return Term(f, g, self._operator(stream, sides, f - sides.p, g - sides.q), apart)

    def _within(self, x: Tensor, a: Tensor, single: bool) -> Term:
        """OT(α, α)."""
        sides, apart = self._sides(x, x)
        sides, log_a = sides._replace(y=sides.x, q=sides.p), logs(a)  # one cloud, laid out once
        spread = box_spread(sides.x, sides.y, self.rule)
        stream = open_stream(sides, log_a, log_a, spread, self.eps).precise(self.tol, self.eps)
        rough = stream.in_float32() if (single or x.is_cuda) and spread / self.eps < SINGLE_SPREAD else None
        f = averaged(stream, a, spread, self.eps, self.rho, self.tol, rough)
        return Term(f, f, self._operator(stream, sides, f, f), apart)

    def _sides(self, x: Tensor, y: Tensor) -> tuple[Sides, Tensor]:
        """The cost as a distance, or its square, between clouds about the origin; and how far apart their middles were."""
        x, y = self.scale**0.5 * x, self.scale**0.5 * y
        still = x.detach(), y.detach()
        finite(box_spread(*still), self.eps)
        c, e = middles(ends(*still), self.rule)
        sides = Sides(*moved(x, y, x.new_zeros(len(x)), y.new_zeros(len(y)), c, e), self.rule)
        return sides, checks.local(c - e).to(x)

    def _operator(self, stream: AnyStream, sides: Sides, f: Tensor, g: Tensor) -> Operator:
        """P_ij = α_i β_j exp((f_i + g_j − c_ij)/ε)."""
        u, v = f + self.eps * (stream.log_a.to(f) + 0.5), g + self.eps * (stream.log_b.to(g) + 0.5)
        x, y, x_sq, y_sq, reg = self._alone(sides)
        return Operator(stream, (x, y, x_sq, y_sq, u, v, reg))

    def _alone(self, sides: Sides) -> Parts:
        """What c is a function of, and ε."""
        return sides.x, sides.y, *own_squares(sides.x, sides.y, self.rule), checks.local(self.eps)

    def _slope(self, terms: list[Term], rows: bool) -> Tensor:
        """The gradient of the loss in x [n, d], or in y [m, d]."""
        total = terms[0].slope(rows)
        if self.debias:
            total = total - terms[1 if rows else 2].slope(True)
        return self.scale**0.5 * total

    def _again(self, terms: list[Term], a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The loss, but for a constant, as a function of its inputs that can be differentiated twice."""
        total = a.new_zeros(())
        between = (1.0, x, y, a, b), (-0.5, x, x, a, a), (-0.5, y, y, b, b)
        for term, (share, s, t, w_s, w_t) in zip(terms, between, strict=True):
            sides, _ = self._sides(s, t)
            W = StreamedValue.apply(term.operator, total.detach(), w_s, w_t, *self._alone(sides))
            total = total + share * (W + w_s @ sides.p + w_t @ sides.q)
        return total
