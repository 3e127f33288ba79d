"""What is true of a streamed solution: its marginals, its value, and products with the plan, in O(n + m) memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from otformer.transport.executors.clouds import Rule
from otformer.transport.executors.open import open_stream
from otformer.transport.problem.finish import Solved, tell
from otformer.transport.problem.problem import Goal, Problem, Sides
from otformer.transport.problem.result import Result
from otformer.transport.streaming.distances import Distances
from otformer.transport.streaming.plan import Operator, Parts, Product, StreamedPlan, StreamedPotentials, StreamedValue


def finish_streamed(problem: Problem, solved: Solved, goal: Goal, warn: bool) -> Result:
    """The result of potentials (u, v) of ‖x − y‖², or of ‖x − y‖. Its plan is known by them, and never formed."""
    sides, form = problem.cost, problem.form
    assert isinstance(sides, Sides)
    u, v, a, b = solved.u, solved.v, problem.a, problem.b
    rows, columns = (torch.arange(len(w), device=w.device) for w in (a, b)) if problem.kept is None else problem.kept[:2]
    if not len(u):
        nothing = {"plan": form.give(a.new_zeros(problem.shape)), "value_linear": form.number(0.0)}
        return Result((form.give(u), form.give(v)), form.number(0.0), 0.0, True, 0, solved.method, 0.0, 0.0, nothing)
    reg = torch.as_tensor(problem.reg, dtype=u.dtype)  # on the CPU: to read it is to wait for nobody
    still = (sides.x, sides.y, *_own(sides.x, sides.y, sides.rule))
    stream = solved.plan or open_stream(sides, a.log(), b.log(), problem.spread, problem.reg)
    operator = Operator(stream, (*still, u, v, reg))
    error, mass = (solved.error, problem.mass) if solved.error is not None else _measured(operator, a, problem.target)
    # The dual, Σ a u + Σ b v − λ Σ P, is the value to second order in the error.
    value = a @ u + b @ v - problem.reg * mass
    wanted = problem.wanted
    p, q, parts = sides.p, sides.q, operator.parts
    if wanted is not None:
        x, y, p, q = wanted.cost
        alone = (x, y, *_own(x, y, sides.rule), wanted.reg)  # the problem without p and q, which do not change the plan
        value = StreamedValue.apply(operator, value, wanted.a, wanted.b, *alone)
        parts = (*alone[:4], *StreamedPotentials.apply(operator, wanted.a, wanted.b, *alone), wanted.reg)
        a, b = wanted.a, wanted.b
    value = value + a @ p + b @ q
    plan = StreamedPlan(operator, parts, (rows, columns), problem.shape, numpy=form.device is None)
    whole = problem.whole(u + sides.p, 0), problem.whole(v + sides.q, 1)
    potentials = form.give(whole[0], double=True), form.give(whole[1], double=True)
    linear = partial(_linear, problem, operator, parts, p, q)
    found: dict[str, Any] = {"plan": plan, "value_linear": linear}
    if warn and not error < goal.tol:
        tell(error, solved.depth, goal, problem.reg)
    number, converged = _number(problem, value), error < goal.tol
    return Result(potentials, number, error, converged, solved.depth, solved.method, mass, error, found)


def _measured(operator: Operator, a: Tensor, b: Tensor) -> tuple[float, float]:
    """Marginal error and mass of a plan, in float64, by two products."""
    *_, u, v, _ = operator.parts
    r, c = operator.right(torch.ones_like(v)), operator.left(torch.ones_like(u))
    return float((r - a).abs().sum() + (c - b).abs().sum()), float(r.sum())


def _own(x: Tensor, y: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """What each side adds to −2 x·y in ‖x − y‖²; nothing to ‖x − y‖ itself."""
    return ((x * x).sum(-1), (y * y).sum(-1)) if not rule.root else (torch.zeros_like(x[:, 0]), torch.zeros_like(y[:, 0]))


def _linear(problem: Problem, operator: Operator, parts: Parts, p: Tensor, q: Tensor) -> Any:
    """Σ P C = Σ_i (p_i + ‖x_i‖²) r_i + (P(q + ‖y‖²))_i − 2 x_i·(Py)_i, one pass; Σ P c, another, for plain distances."""
    if operator.stream.rule.root:
        return _number(problem, Distances.apply(operator, *parts))
    x, y, x_sq, y_sq = parts[:4]
    sums = Product.apply(operator, torch.cat([torch.ones_like(q)[:, None], (y_sq + q)[:, None], y], 1), *parts)
    return _number(problem, ((x_sq + p) * sums[:, 0] + sums[:, 1] - 2 * (x * sums[:, 2:]).sum(1)).sum())


def _number(problem: Problem, t: Tensor) -> Any:
    return float(t) if problem.form.device is None else t.to(problem.form.dtype)
