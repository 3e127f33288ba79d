"""What is true of a streamed solution: its error and value, and products with the plan, in O(n + m) memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from otformer.transport.costs.cost import number
from otformer.transport.costs.entries import Entries, EntriesProducts
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.costs.plan import SINGLE_RESIDUAL, Operator, Parts, Product, StreamedPotentials
from otformer.transport.costs.plan_distances import Distances
from otformer.transport.costs.plan_value import StreamedValue, own_squares
from otformer.transport.costs.rounding import Rounded, round_matrix, round_stream
from otformer.transport.derivatives.implicit import CG_RESIDUAL
from otformer.transport.types import Answer, Problem, Solved

if TYPE_CHECKING:
    from otformer.transport.costs.points import PointsCost


def answer_points(cost: PointsCost, problem: Problem, solved: Solved) -> Answer:
    """The answer of potentials (u, v) of ‖x − y‖², or of ‖x − y‖. Its plan is known by them, and never formed."""
    form, wanted = problem.form, problem.wanted
    u, v, a, b = solved.u, solved.v, problem.a, problem.b
    if not len(u):
        empty = form.give(a.new_zeros(problem.shape))
        nothing = {"plan": empty, "value_linear": form.number(0.0), "rounded": partial(_rounded, cost, problem, solved)}
        return Answer((form.give(u), form.give(v)), form.number(0.0), 0.0, 0.0, nothing)
    operator = _operator(cost, problem, solved)
    error, mass = (solved.error, problem.mass) if solved.error is not None else _measured(problem, operator)
    whole = u + cost.p, v + cost.q
    # The dual, Σ a u + Σ b v − λ Σ P, is the value to second order in the error.
    value = a @ whole[0] + b @ whole[1] - problem.entropy * mass
    parts: Parts | None = None
    if wanted is not None:
        x, y, p, q = wanted.cost
        alone = (x, y, *own_squares(x, y, cost.rule), wanted.reg)  # without p and q, which do not change the plan
        moving = StreamedValue.apply(operator, value - a @ cost.p - b @ cost.q, wanted.a, wanted.b, *alone)
        value = moving + wanted.a @ p + wanted.b @ q
        parts = (*alone[:4], *StreamedPotentials.apply(operator, wanted.a, wanted.b, *alone), wanted.reg)
    potentials = form.give(problem.whole(whole[0], 0), double=True), form.give(problem.whole(whole[1], 1), double=True)
    found: dict[str, Any] = {
        "plan": partial(operator.given, problem, parts),
        "value_linear": partial(_linear, cost, problem, operator, parts),
        "rounded": partial(_rounded, cost, problem, solved),
    }
    return Answer(potentials, number(problem, value), mass, error, found)


def _operator(cost: PointsCost, problem: Problem, solved: Solved) -> Operator:
    """The plan as products, of numbers alone."""
    operator = cost.planned(solved.plan, solved.u, solved.v, problem.entropy)
    return replace(operator, residual=SINGLE_RESIDUAL if solved.plan.single else CG_RESIDUAL)


def _measured(problem: Problem, operator: Operator) -> tuple[float, float]:
    """Marginal error and mass of a plan, in float64, by two products."""
    r, c = operator.marginals()
    return float((r - problem.a).abs().sum() + (c - problem.target).abs().sum()), float(r.sum())


def _rounded(cost: PointsCost, problem: Problem, solved: Solved) -> Rounded:
    """The plan with the marginals made exact, its products in float64."""
    if not len(problem.a):
        empty = problem.a.new_zeros(0, 0)
        return round_matrix(replace(problem, cost=MatrixCost(empty)), empty, problem.b)
    passes = Entries(cost, problem)
    products = EntriesProducts(passes, _operator(cost, problem, solved).parts)
    return round_stream(cost, problem, passes, replace(products.given(problem), numpy=False))


def _linear(cost: PointsCost, problem: Problem, operator: Operator, parts: Parts | None) -> Any:
    """Σ P C = Σ P c + Σ_i p_i (P1)_i + Σ_j q_j (Pᵀ1)_j."""
    r, c = operator.marginals()
    linear = operator.cost_sums().sum() + r @ cost.p + c @ cost.q
    if parts is not None:
        assert problem.wanted is not None
        moving = _moving_linear(operator, parts, *problem.wanted.cost[2:])
        linear = linear + (moving - moving.detach())
    return number(problem, linear)


def _moving_linear(operator: Operator, parts: Parts, p: Tensor, q: Tensor) -> Tensor:
    """Σ P C, for its derivatives: Σ_i (p_i + ‖x_i‖²) r_i + (P(q + ‖y‖²))_i − 2 x_i·(Py)_i; Σ P c for plain distances."""
    if operator.kernel.rule.root:
        return Distances.apply(operator, *parts)
    x, y, x_sq, y_sq = parts[:4]
    sums = Product.apply(operator, torch.cat([torch.ones_like(q)[:, None], (y_sq + q)[:, None], y], 1), *parts)
    return ((x_sq + p) * sums[:, 0] + sums[:, 1] - 2 * (x * sums[:, 2:]).sum(1)).sum()
