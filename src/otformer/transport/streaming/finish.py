"""What is true of a streamed solution: its error and value, and products with the plan, in O(n + m) memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from otformer.transport.derivatives.implicit import CG_RESIDUAL
from otformer.transport.problem.finish import Solved, tell
from otformer.transport.problem.problem import Goal, Problem, Sides
from otformer.transport.problem.result import Result
from otformer.transport.streaming.distances import Distances
from otformer.transport.streaming.entries import Entries, EntriesPlan
from otformer.transport.streaming.plan import SINGLE_RESIDUAL, Operator, Parts, Product, StreamedPlan, StreamedPotentials
from otformer.transport.streaming.value import StreamedValue, own_squares


def finish_streamed(problem: Problem, solved: Solved, goal: Goal, warn: bool) -> Result:
    """The result of potentials (u, v) of ‖x − y‖², or of ‖x − y‖. Its plan is known by them, and never formed."""
    sides, form, wanted = problem.cost, problem.form, problem.wanted
    assert isinstance(sides, Sides)
    u, v, a, b = solved.u, solved.v, problem.a, problem.b
    if not len(u):
        empty, rounded = form.give(a.new_zeros(problem.shape)), partial(_rounded, problem, solved)
        nothing = {"plan": empty, "value_linear": form.number(0.0), "rounded": rounded}
        return Result((form.give(u), form.give(v)), form.number(0.0), 0.0, True, 0, solved.method, 0.0, 0.0, nothing)
    error, mass = (solved.error, problem.mass) if solved.error is not None else _measured(problem, solved)
    whole = u + sides.p, v + sides.q
    # The dual, Σ a u + Σ b v − λ Σ P, is the value to second order in the error.
    value = a @ whole[0] + b @ whole[1] - problem.reg * mass
    parts: Parts | None = None
    if wanted is not None:
        x, y, p, q = wanted.cost
        alone = (x, y, *own_squares(x, y, sides.rule), wanted.reg)  # without p and q, which do not change the plan
        operator = _operator(problem, solved)
        moving = StreamedValue.apply(operator, value - a @ sides.p - b @ sides.q, wanted.a, wanted.b, *alone)
        value = moving + wanted.a @ p + wanted.b @ q
        parts = (*alone[:4], *StreamedPotentials.apply(operator, wanted.a, wanted.b, *alone), wanted.reg)
    potentials = form.give(problem.whole(whole[0], 0), double=True), form.give(problem.whole(whole[1], 1), double=True)
    found: dict[str, Any] = {
        "plan": partial(_plan, problem, solved, parts),
        "value_linear": partial(_linear, problem, solved, parts),
        "rounded": partial(_rounded, problem, solved),
    }
    if warn and not error < goal.tol:
        tell(error, solved.depth, goal, problem.reg)
    return Result(
        potentials, _number(problem, value), error, error < goal.tol, solved.depth, solved.method, mass, error, found
    )


def _operator(problem: Problem, solved: Solved) -> Operator:
    """The plan as products, of numbers alone."""
    x, y, *_, rule = problem.cost
    reg = torch.as_tensor(problem.reg, dtype=torch.float64, device="cpu")  # on the CPU: to read it is to wait for nobody
    parts = (x, y, *own_squares(x, y, rule), solved.u, solved.v, reg)
    return Operator(solved.plan, parts, residual=SINGLE_RESIDUAL if solved.plan.single else CG_RESIDUAL)


def _measured(problem: Problem, solved: Solved) -> tuple[float, float]:
    """Marginal error and mass of a plan, in float64, by two products."""
    operator = _operator(problem, solved)
    r, c = operator.right(torch.ones_like(problem.b)), operator.left(torch.ones_like(problem.a))
    return float((r - problem.a).abs().sum() + (c - problem.target).abs().sum()), float(r.sum())


def _plan(problem: Problem, solved: Solved, parts: Parts | None, kind: type[StreamedPlan] = StreamedPlan) -> StreamedPlan:
    operator, kept = _operator(problem, solved), problem.kept
    rows, columns = kept[:2] if kept is not None else (torch.arange(len(w), device=w.device) for w in (problem.a, problem.b))
    return kind(operator, parts or operator.parts, (rows, columns), problem.shape, problem.form.device is None)


def _rounded(problem: Problem, solved: Solved) -> Any:
    """The plan with the marginals made exact, its products in float64."""
    from otformer.transport.exact.rounding import round_matrix, round_stream

    if not len(problem.a):
        empty = problem.a.new_zeros(0, 0)
        return round_matrix(replace(problem, cost=empty), empty, problem.b)
    passes = Entries(problem)
    plan = _plan(problem, solved._replace(plan=passes), None, EntriesPlan)
    return round_stream(problem, passes, replace(plan, numpy=False))


def _linear(problem: Problem, solved: Solved, parts: Parts | None) -> Any:
    """Σ P C = Σ P c + Σ_i p_i (P1)_i + Σ_j q_j (Pᵀ1)_j."""
    operator, sides = _operator(problem, solved), problem.cost
    ones = torch.ones_like(problem.b), torch.ones_like(problem.a)
    linear = operator.cost_sums().sum() + operator.right(ones[0]) @ sides.p + operator.left(ones[1]) @ sides.q
    if parts is not None:
        assert problem.wanted is not None
        moving = _moving_linear(operator, parts, *problem.wanted.cost[2:])
        linear = linear + (moving - moving.detach())
    return _number(problem, linear)


def _moving_linear(operator: Operator, parts: Parts, p: Tensor, q: Tensor) -> Tensor:
    """Σ P C, for its derivatives: Σ_i (p_i + ‖x_i‖²) r_i + (P(q + ‖y‖²))_i − 2 x_i·(Py)_i; Σ P c for plain distances."""
    if operator.stream.rule.root:
        return Distances.apply(operator, *parts)
    x, y, x_sq, y_sq = parts[:4]
    sums = Product.apply(operator, torch.cat([torch.ones_like(q)[:, None], (y_sq + q)[:, None], y], 1), *parts)
    return ((x_sq + p) * sums[:, 0] + sums[:, 1] - 2 * (x * sums[:, 2:]).sum(1)).sum()


def _number(problem: Problem, t: Tensor) -> Any:
    return float(t) if problem.form.device is None else t.to(problem.form.dtype)
