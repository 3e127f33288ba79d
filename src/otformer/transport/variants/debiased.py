r"""Debiased losses between weighted measures (transport/compat/like_geomloss.py has the definitions).

**OT(α, β)** takes the engine of `solve`, with ``reach`` that of the unbalanced problem (solvers/damped.py).

**OT(α, α)** has f = g, and one block relaxed by θ, f ← f + θ (T(f) − f) with T(f) = f − ε log(P1/α), solves it. T never
increases distances, so this converges for every θ < 1. At the solution T has the Jacobian −D_α⁻¹P; the kernels
exp(−‖x − y‖ᵖ/pε), p = 1 or 2, are positive definite, so the step has eigenvalues in [1 − 2θ, 1 − θ]: with θ = ⅔ every step
leaves a third of the error, at any ε. The first takes θ = ½, which is right where f is the same all around a point. With
``reach`` T is damped by d < 1, and θ = 2/(2 + d).

`matrix_losses` works on stacks of matrices, `PointsLoss` on one pair of clouds without matrices, in O(n + m) memory: costs
s ‖x − y‖², as squared distances between points √s x and √s y, or ‖x − y‖. A point without mass has ABSENT_WEIGHT: the plan
does not feel it, and its potential is defined.

**Gradients** without matrices are found when they are asked for, one product with each plan: OT has the derivative
Σ_j P_ij ∂C_ij/∂x_i in x_i, ½ OT(α, α) twice the half of it. **Second derivatives**, of the debiased loss of squared
distances, balanced, are those of W = min Σ P C + ε Σ P log P (costs/plan_value.py) in W(α, β) − ½ W(α, α) − ½ W(β, β), the
same loss: entropies cancel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from typing import NamedTuple

import torch
from torch import Tensor

from otformer import callers, checks
from otformer.network.alternating import iterate
from otformer.transport.costs.clouds import Rule, box_spread, ends, middles, moved
from otformer.transport.costs.kernel import Kernel
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.costs.plan import Operator
from otformer.transport.costs.plan_value import StreamedValue, cost_slope, own_squares
from otformer.transport.costs.points import PointsCost
from otformer.transport.derivatives.envelope import Envelope, LazyEnvelope, Slope
from otformer.transport.solvers.anderson import Number, every
from otformer.transport.solvers.blocks import annealed, least_error
from otformer.transport.solvers.damped import ROUGH_TOL, damped, slack
from otformer.transport.solvers.mixed import Mixed
from otformer.transport.types import ABSENT_WEIGHT, Form, Goal, Problem

Pair = tuple[Tensor, Tensor]
MAX_DEPTH = 10_000  # layers
MEANINGLESS = 0.01  # of the mass: no plan with such an error counts as found, whatever rounding allows
STALLED = 0.8  # of the error left by a step that should leave a third of it: rounding is all there is
SINGLE_SPREAD = 1e5  # range of costs, in units of ε, up to which float32 leads anywhere


@dataclass(frozen=True)
class Loss:
    """Hold the settings of the loss: ε; ρ or None; the error to reach; debiased or not."""

    eps: float
    rho: float | None
    tol: float
    debias: bool

    def reachable(self, spread: float) -> float:
        """Return the error to reach: not below the rounding of potentials of the size of costs, divided by ε."""
        contraction = 1.0 if self.rho is None else slack(self.eps, self.rho, self.rho)
        return max(self.tol, 16 * torch.finfo(torch.float64).eps * spread / (self.eps * contraction))

    def combined(self, a: Tensor, b: Tensor, between: Pair, within: Pair | None) -> tuple[Pair, Tensor, Pair]:
        """Return (F, G), the losses, and their derivatives in the weights, of potentials of OT(α, β), OT(α, α), OT(β, β)."""
        F, G = between
        at_a, at_b = self.phi(F), self.phi(G)
        if within is not None:
            at_a, at_b = at_a - self.phi(within[0]), at_b - self.phi(within[1])
            F, G = F - within[0], G - within[1]
        return (F, G), (a * at_a[0]).sum(-1) + (b * at_b[0]).sum(-1), (at_a[1], at_b[1])

    def phi(self, f: Tensor) -> Tensor:
        """[2, ..., n]: what a unit of mass with potential f adds to the loss, and the loss's derivative in that mass."""
        if self.rho is None:
            return torch.stack([f, f])
        lost = -torch.expm1(-f / self.rho)
        return torch.stack([(self.rho + self.eps / 2) * lost, (self.rho + self.eps) * lost - self.eps / 2])

    def within(self, kernel: Kernel, a: Tensor, rough: Kernel | None = None) -> Tensor:
        """Find f = g [..., n] of the measures that a kernel holds on both sides, by the relaxed step.

        ``rough`` is one of less exact, faster passes, which are followed as far as they lead.
        """
        eps, rho, tol = self.eps, self.rho, self.reachable(kernel.spread)
        damping = 1.0 if rho is None else 1 / (1 + eps / rho)
        thetas = chain([1 / 2], repeat(2 / (2 + damping)))

        def relaxed(kernel: Kernel, f: Tensor, stalled: float = math.inf) -> tuple[Tensor, Tensor, Tensor]:
            """Take steps to an error of ``tol``, or until one leaves more than ``stalled`` of it: f, log(P1/a), error."""
            log_a, last = kernel.log_a.to(a), math.inf

            def step(f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                u = f + eps * (log_a + 0.5)
                log_ratio = kernel.log_ratio(u, u, eps, rows=True).to(a)
                image = damping * (f - eps * log_ratio)
                return image, log_ratio, (a * torch.expm1((image - f) / eps).abs()).sum(-1) / a.sum(-1)

            steps = iterate(step, f, lambda f, to: f + next(thetas) * (to[0] - f), MAX_DEPTH)
            for f, (_, log_ratio, error) in steps:  # noqa: B007
                if every(error < tol) or (stalled < math.inf and not every(error < stalled * last)):
                    break
                last = error
            return f, log_ratio, error

        f = -damping / (1 + damping) * eps * kernel.log_a.to(a)  # the solution where points are far apart
        if rough is not None:
            f, _, _ = relaxed(rough, f, STALLED)
        f, log_ratio, error = relaxed(kernel, f)
        warn(error, tol)
        # The best level: with it Σ α exp(−f/ρ) is the mass of the plan, and the loss stationary, its error of second order.
        allowed = a.sum(-1) if rho is None else (a * (-f / rho).exp()).sum(-1)
        level = (allowed / (a * log_ratio.exp()).sum(-1)).log() / (2 / eps + (0 if rho is None else 1 / rho))
        return f + level[..., None]

    def levelled(self, f: Tensor, g: Tensor, a: Tensor, b: Tensor) -> Pair:
        """Set the best levels: Σ a f = Σ b g, or with ρ masses A = Σ α exp(−f/ρ) and B = Σ β exp(−g/ρ) that the plan has.

        A is that already, for f is that of g: with A exp(−p/ρ) = B exp(−q/ρ) = A exp((p + q)/ε), p = −ρ q/(ρ + ε).
        """
        eps, rho = self.eps, self.rho
        if rho is None:
            half = ((a * f).sum(-1, keepdim=True) - (b * g).sum(-1, keepdim=True)) / (2 * b.sum(-1, keepdim=True))
            return f - half, g + half
        mass_a, mass_b = (torch.logsumexp(w.log() - h / rho, -1, keepdim=True) for w, h in ((a, f), (b, g)))
        q = (mass_b - mass_a) * rho * (rho + eps) / (2 * rho + eps)
        return f - rho / (rho + eps) * q, g + q


def matrix_losses(loss: Loss, costs: list[Tensor], a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (F [B, n], G [B, m], losses [B]) of costs [B, n, m], and if debiased [B, n, n] and [B, m, m]; float64.

    The losses are differentiable in costs and weights.
    """
    α, β, *C = (t.detach() for t in (a, b, *costs))
    f, g = _between(loss, C[0], α, β)
    plans, within = [_plan(C[0], α, β, f, g, loss.eps)], None
    if loss.debias:
        kernels = (
            MatrixCost(D, 0.0, _spread(D, loss.eps)).kernel(logs(w), logs(w), loss.eps, damped=loss.rho)
            for D, w in zip(C[1:], (α, β), strict=True)
        )
        within = loss.within(next(kernels), α), loss.within(next(kernels), β)
        plans += [-0.5 * _plan(D, w, w, h, h, loss.eps) for D, w, h in zip(C[1:], (α, β), within, strict=True)]
    (F, G), value, slopes = loss.combined(α, β, (f, g), within)
    return F, G, Envelope.apply(value, [*slopes, *plans], a, b, *costs)


def _between(loss: Loss, C: Tensor, a: Tensor, b: Tensor) -> Pair:
    """Find f [B, n] and g [B, m] of OT(α, β) for costs [B, n, m]."""
    log_a, log_b, spread, eps, rho = logs(a), logs(b), _spread(C, loss.eps), loss.eps, loss.rho
    tol = loss.reachable(spread)
    if rho is not None:
        low = C.amin((-2, -1))[..., None]
        kernel = MatrixCost(C - low[..., None], 0.0, spread).kernel(log_a, log_b, eps, damped=rho)
        (f, g, error, _), _ = damped(kernel, (0.0, 0.0), (log_a, log_b), eps, (rho, rho), Goal(tol, MAX_DEPTH))
        own = rho / (eps + 2 * rho) * low  # what costs that are all higher by low add to f and to g (solvers/damped.py)
        f, g = f + own, g + own
    else:
        kernel, mass = MatrixCost(C, 0.0, spread).kernel(log_a, log_b, eps), b.sum(-1)
        u, v, error, _ = least_error(annealed(kernel, eps, MAX_DEPTH, measure=lambda gaps: gaps.sum(-1) / mass), tol)
        f, g = u - eps * log_a, v - eps * (log_b + 1)
    warn(error, tol)
    return loss.levelled(f, g, a, b)


def _plan(C: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor, eps: float) -> Tensor:
    return a[..., :, None] * b[..., None, :] * ((f[..., :, None] + g[..., None, :] - C) / eps).exp()


class Term(NamedTuple):
    """Hold one OT that is solved: potentials f and g of C, its plan, and how far the clouds' middles are apart, [d]."""

    f: Tensor
    g: Tensor
    operator: Operator
    apart: Tensor

    def slope(self, rows: bool) -> Tensor:
        """Σ_j P_ij ∂C_ij/∂x_i [n, d], or the same of the columns [m, d]."""
        return cost_slope(self.operator, self.apart) if rows else cost_slope(self.operator.T, -self.apart)


@dataclass(frozen=True)
class PointsLoss(Loss):
    """The loss between clouds, with the cost ``scale``·‖x − y‖² or, with ``root``, ‖x − y‖."""

    scale: float
    root: bool

    def __call__(self, x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """F [n], G [m] and the loss, in float64; the loss is differentiable in x [n, d], y [m, d], a [n] and b [m]."""
        single = x.dtype != torch.float64
        x, y, a, b = (t.double() for t in (x, y, a, b))
        with torch.no_grad():
            terms, within = [self._between(x, y, a, b, single)], None
            if self.debias:
                terms += [self._itself(x, a, single), self._itself(y, b, single)]
                within = terms[1].f, terms[2].f
            (F, G), value, (in_a, in_b) = self.combined(a, b, (terms[0].f, terms[0].g), within)
        slopes: list[Slope] = [in_a, in_b, *(partial(self._slope, terms, rows) for rows in (True, False))]
        again = partial(self._again, terms) if self.debias and self.rho is None and not self.root else None
        return F, G, LazyEnvelope.apply(value, slopes, again, a, b, x, y)

    def _between(self, x: Tensor, y: Tensor, a: Tensor, b: Tensor, single: bool) -> Term:
        """Solve OT(α, β)."""
        sides, apart = self._sides(x, y)
        log_a, log_b = logs(a), logs(b)
        tol = self.reachable(sides.spread)
        if self.rho is None:
            mass = float(a.sum())
            w_a, w_b = log_a.exp(), log_b.exp() * (mass / b.sum())
            problem = Problem(sides, w_a, w_b, w_b, self.eps, mass, Form(x.device, single))
            u, v, *_, kernel, known = Mixed().run(problem, Goal(tol * mass, MAX_DEPTH))
            if known is None:
                missing = w_b * torch.expm1(kernel.log_ratio(u, v, self.eps, rows=False)).abs()
                known = float(missing.sum())
            error = known / mass
            f, g = u + sides.p - self.eps * log_a, v + sides.q - self.eps * (log_b + 1)
        else:
            kernel, strength = sides.kernel(log_a, log_b, self.eps), (self.rho, self.rho)
            (f, g, error, _), kernel = damped(
                kernel, sides.gauge(), (log_a, log_b), self.eps, strength, Goal(tol, MAX_DEPTH), single
            )
        warn(error, tol)
        f, g = self.levelled(f, g, a, b)
        return Term(f, g, self._operator(kernel, sides, f - sides.p, g - sides.q), apart)

    def _itself(self, x: Tensor, a: Tensor, single: bool) -> Term:
        """Solve OT(α, α)."""
        sides, apart = self._sides(x, x)
        sides, log_a = replace(sides, y=sides.x, q=sides.p), logs(a)  # one cloud, laid out once
        kernel = sides.kernel(log_a, log_a, self.eps).deciding(self.tol, self.eps)
        fits = sides.spread / self.eps < SINGLE_SPREAD
        f = self.within(kernel, a, kernel.rough(single, max(ROUGH_TOL, self.tol)) if fits else None)
        return Term(f, f, self._operator(kernel, sides, f, f), apart)

    def _sides(self, x: Tensor, y: Tensor) -> tuple[PointsCost, Tensor]:
        """The cost as a distance, or its square, between clouds about the origin; and how far apart their middles were."""
        x, y = self.scale**0.5 * x, self.scale**0.5 * y
        still = x.detach(), y.detach()
        finite(box_spread(*still), self.eps)
        c, e = middles(ends(*still), Rule(self.root))
        x, y, p, q = moved(x, y, x.new_zeros(len(x)), y.new_zeros(len(y)), c, e)
        sides = PointsCost(x, y, p, q, Rule(self.root), box_spread(x.detach(), y.detach(), Rule(self.root)))
        return sides, checks.local(c - e).to(x)

    def _operator(self, kernel: Kernel, sides: PointsCost, f: Tensor, g: Tensor) -> Operator:
        """P_ij = α_i β_j exp((f_i + g_j − c_ij)/ε)."""
        u, v = f + self.eps * (kernel.log_a.to(f) + 0.5), g + self.eps * (kernel.log_b.to(g) + 0.5)
        return sides.planned(kernel, u, v, self.eps)

    def _slope(self, terms: list[Term], rows: bool) -> Tensor:
        """The gradient of the loss in x [n, d], or in y [m, d]."""
        total = terms[0].slope(rows)
        if self.debias:
            total = total - terms[1 if rows else 2].slope(True)
        return self.scale**0.5 * total

    def _again(self, terms: list[Term], a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The loss, but for a constant, as a function of its inputs that can be differentiated twice."""
        total, eps = a.new_zeros(()), checks.local(self.eps)
        between = (1.0, x, y, a, b), (-0.5, x, x, a, a), (-0.5, y, y, b, b)
        for term, (share, s, t, w_s, w_t) in zip(terms, between, strict=True):
            sides, _ = self._sides(s, t)
            W = StreamedValue.apply(
                term.operator, total.detach(), w_s, w_t, sides.x, sides.y, *own_squares(sides.x, sides.y, sides.rule), eps
            )
            total = total + share * (W + w_s @ sides.p + w_t @ sides.q)
        return total


def _spread(C: Tensor, eps: float) -> float:
    """max C − min C of costs that are finite."""
    low, high = (float(end) for end in torch.aminmax(C))  # not a number if any cost is none
    finite(max(abs(low), abs(high)), eps)
    return high - low


def finite(largest: float, eps: float) -> None:
    """Refuse costs that are infinite once divided by ε."""
    if not math.isfinite(largest / eps):
        raise ValueError(f"costs must be finite, divided by ε too: got costs up to {largest:g}, ε = {eps:g}")


def logs(weights: Tensor) -> Tensor:
    return weights.clamp_min(ABSENT_WEIGHT * float(weights.sum(-1).max())).log()


def warn(error: Number, tol: float) -> None:
    """Warn where the error is above ``tol``, or where rounding, which ``tol`` never goes below, is all there is."""
    tol = min(tol, MEANINGLESS)
    if not every(error < tol):
        callers.warn(f"not converged: error {float(checks.local(error).max()):.3g}, tol is {tol:g}; raise blur or tol")
