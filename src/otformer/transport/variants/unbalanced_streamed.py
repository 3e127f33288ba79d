r"""Unbalanced transport between points without the n × m matrix (variants/unbalanced.py has the problem and the blocks).

The blocks run on a stream of c_ij alone, whose potentials have p and q taken out: with M_ij = c_ij + p_i + q_j and R = r sᵀ,

    P_ij = R_ij exp((f_i + g_j − M_ij)/λ) = exp((u_i + v_j − c_ij)/λ − 1),  u = f − p + λ (log r + 1),  v = g − q + λ log s.

Since λ log(P_ij/R_ij) = f_i + g_j − M_ij, the value needs no more than the marginals P1 and Pᵀ1:

    Σ P M + λ KL(P|R) = Σ_i f_i (P1)_i + Σ_j g_j (Pᵀ1)_j + λ (ΣR − ΣP).

**Gradients** are those of the envelope theorem, each found when it is asked for: P1 in p and Pᵀ1 in q; in x one product with
P, Σ_j P_ij ∂c_ij/∂x_i; in λ one pass more, KL(P|R) = (Σ f P1 + Σ g Pᵀ1 − Σ P M)/λ + ΣR − ΣP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from otformer.transport.derivatives.envelope import LazyEnvelope, NotDifferentiable, Slope
from otformer.transport.executors.open import AnyStream, open_stream
from otformer.transport.problem.finish import tell
from otformer.transport.problem.problem import Goal, Problem, Sides
from otformer.transport.problem.result import Result
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.streaming.plan import Operator, StreamedPlan
from otformer.transport.streaming.solve import PATIENCE, SINGLE_RANGE
from otformer.transport.streaming.value import cost_slope, own_squares
from otformer.transport.variants.unbalanced import REFUSED, damped_blocks, marginal_slope, relative_entropy, slack

DAMPED = "damped Sinkhorn blocks, Anderson-mixed, streamed"
SINGLE_ROUNDING = 2**-24  # of log(P1/a) in float32, in units of costs/λ


class Shifted:
    """An executor of the cost c_ij + p_i + q_j, made of a stream of c; in float64. ``spread`` bounds the range of costs."""

    def __init__(self, stream: AnyStream, p: Tensor, q: Tensor) -> None:
        self.stream, self.p, self.q = stream, p, q
        self.log_a, self.log_b = stream.log_a.to(p), stream.log_b.to(q)
        self.spread = stream.spread + sum(float(own.max() - own.min()) for own in (p, q))

    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        return self.stream.log_ratio(u - self.p, v - self.q, reg, rows).to(self.p)


def damped_stream(
    stream: AnyStream, sides: Sides, log_R: tuple[Tensor, Tensor], reg: float, strength: tuple[float, float], goal: Goal,
    single: bool,
) -> tuple[Shifted, tuple[Tensor, Tensor, Tensor, int]]:  # fmt: skip
    """Damped blocks on a stream, in float32 first if ``single``: the executor of the last ones, and what they found."""
    # The error is what a step moves, over λ and the slack: so much more precise does a step have to be.
    room = slack(reg, *strength)
    executor = Shifted(stream.precise(goal.tol * room, reg), sides.p, sides.q)
    floor, start, taken = SINGLE_ROUNDING * (1 + executor.spread / reg) / room, None, 0
    fits = max(executor.spread, 1 / reg) < SINGLE_RANGE and goal.max_depth >= 2 * LAYERS
    if single and fits and floor < 1:
        rough = Shifted(stream.in_float32(), sides.p.float(), sides.q.float())
        log_r, log_s = (logs.float() for logs in log_R)
        near, most = max(goal.tol, floor), goal.max_depth - LAYERS
        found = damped_blocks(rough, (log_r, log_s), executor.spread, reg, strength, near, most, patience=PATIENCE)
        start, taken = found[1].double(), found[3]
        start = start if bool(start.isfinite().all()) else None
    limit, off = goal.max_depth - taken, 2 * executor.stream.rounding(reg) / room  # what two passes may err by
    enough = max(goal.tol - off, off / 4)
    f, g, error, depth = damped_blocks(executor, log_R, executor.spread, reg, strength, enough, limit, start)
    return executor, (f, g, error + off, depth + taken)


@dataclass(frozen=True, eq=False)
class _Found:
    """A solution: its plan as products, the potentials and the marginals of it, and ΣR."""

    operator: Operator
    sides: Sides
    potentials: tuple[Tensor, Tensor]  # f, g
    marginals: tuple[Tensor, Tensor]  # P1, Pᵀ1
    reference: Tensor

    def linear(self) -> Tensor:
        """Σ P M."""
        own = self.marginals[0] @ self.sides.p + self.marginals[1] @ self.sides.q
        return self.operator.cost_sums().sum() + own

    def entropic(self) -> Tensor:
        """Σ P M + λ KL(P|R)."""
        (f, g), (rows, columns), reg = self.potentials, self.marginals, self.operator.parts[6]
        return rows @ f + columns @ g + reg * (self.reference - rows.sum())

    def apart(self) -> Tensor:
        """KL(P|R)."""
        return (self.entropic() - self.linear()) / self.operator.parts[6]


def solve_unbalanced_streamed(problem: Problem, goal: Goal, strength: tuple[float, float], reg_type: str) -> Result:
    """`solve_unbalanced` of a problem whose cost is `Sides`; ``plan`` is a `StreamedPlan`."""
    sides, form, lam = problem.cost, problem.form, problem.reg
    if not len(problem.a):
        nothing = {"plan": form.give(problem.a.new_zeros(problem.shape)), "value_linear": form.number(0.0)}
        empty = form.give(problem.a), form.give(problem.b)
        return Result(empty, form.number(0.0), 0.0, True, 0, "no layers: no points", 0.0, 0.0, nothing)
    with torch.no_grad():
        found, error, depth = _find(problem, goal, strength, reg_type)
        value = found.entropic()
        for rho, marginal, weights in zip(strength, found.marginals, (problem.a, problem.b), strict=True):
            value = value + (0.0 if rho == math.inf else rho * relative_entropy(marginal, weights))
    if not math.isfinite(float(value)):
        raise ValueError(f"X_a and X_b have costs too low: the mass of the plan overflows, got reg = {lam:g}")
    plan_parts, (f, g) = found.operator.parts, found.potentials
    if problem.wanted is not None:
        inputs = _inputs(problem)
        value = LazyEnvelope.apply(value, _slopes(problem, found, strength, reg_type), None, *inputs)
        *plan_parts, f, g = NotDifferentiable.apply(REFUSED, (*plan_parts, f, g), *inputs)
    everything = [torch.arange(len(w), device=w.device) for w in (problem.a, problem.b)]
    rows, columns = everything if problem.kept is None else problem.kept[:2]
    plan = StreamedPlan(found.operator, tuple(plan_parts), (rows, columns), problem.shape, numpy=form.device is None)
    potentials = form.give(problem.whole(f, 0), double=True), form.give(problem.whole(g, 1), double=True)
    sides = zip(found.marginals, (problem.a, problem.target), strict=True)
    off = sum(float((marginal - weights).abs().sum()) for marginal, weights in sides)
    if not error < goal.tol:
        tell(error, depth, goal, lam, name="error")
    parts = {"plan": plan, "value_linear": partial(_linear, problem, found)}
    number, mass = _number(problem, value), float(found.marginals[0].sum())
    return Result(potentials, number, off, error < goal.tol, depth, DAMPED, mass, error, parts)


def _find(problem: Problem, goal: Goal, strength: tuple[float, float], reg_type: str) -> tuple[_Found, float, int]:
    """The solution, its error, and the layers it took."""
    sides, lam, log_a, log_b = problem.cost, problem.reg, problem.a.log(), problem.b.log()
    log_r, log_s = (log_a, log_b) if reg_type == "kl" else (log_a * 0, log_b * 0)
    stream = open_stream(sides, log_a, log_b, problem.spread, lam)
    single = problem.form.single or stream.log_a.is_cuda
    executor, (f, g, error, depth) = damped_stream(stream, sides, (log_r, log_s), lam, strength, goal, single)
    u, v = f + lam * (log_r + 1), g + lam * log_s
    rows = problem.a * executor.log_ratio(u, v, lam, rows=True).exp()
    columns = problem.b * executor.log_ratio(u, v, lam, rows=False).exp()
    own = own_squares(sides.x, sides.y, sides.rule)
    reg = torch.tensor(lam, dtype=torch.float64, device="cpu")
    operator = Operator(executor.stream, (sides.x, sides.y, *own, u - sides.p, v - sides.q, reg))
    reference = log_r.exp().sum() * log_s.exp().sum()
    return _Found(operator, sides, (f, g), (rows, columns), reference), float(error), depth


def _slopes(problem: Problem, found: _Found, strength: tuple[float, float], reg_type: str) -> list[Slope]:
    """Gradients of the value in x, y, p, q, a, b and λ."""
    in_weights: list[Slope] = []
    masses = problem.b.sum(), problem.a.sum()  # of the other side
    sides = zip(strength, found.potentials, found.marginals, (problem.a, problem.b), masses, strict=True)
    for rho, h, marginal, weights, other in sides:
        slope = marginal_slope(h, rho)
        in_weights.append(slope + problem.reg * (other - marginal / weights) if reg_type == "kl" else slope)
    in_points = partial(cost_slope, found.operator), partial(cost_slope, found.operator.T)
    return [*in_points, *found.marginals, *in_weights, found.apart]


def _inputs(problem: Problem) -> tuple[Tensor, ...]:
    assert problem.wanted is not None
    cost, a, b, reg = problem.wanted
    return *cost, a, b, reg


def _linear(problem: Problem, found: _Found) -> Any:
    linear = found.linear()
    if problem.wanted is not None:
        (linear,) = NotDifferentiable.apply(REFUSED, (linear,), *_inputs(problem))
    return _number(problem, linear)


def _number(problem: Problem, value: Tensor) -> Any:
    return problem.form.number(value) if problem.wanted is None else problem.form.give(value)
