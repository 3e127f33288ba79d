"""What is true of a streamed solution: its marginals, its value, and products with the plan, in O(n + m) memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from otformer.transport.executors.stream import Stream
from otformer.transport.problem.finish import Solved, tell
from otformer.transport.problem.problem import Goal, Problem, Sides, Wanted
from otformer.transport.problem.result import Result
from otformer.transport.streaming.distances import Distances
from otformer.transport.streaming.plan import Operator, Parts, Product, StreamedPlan, StreamedPotentials
from otformer.transport.streaming.value import StreamedValue, own_squares


def finish_streamed(problem: Problem, solved: Solved, goal: Goal, warn: bool) -> Result:
    """The result of potentials (u, v) of ‖x − y‖², or of ‖x − y‖. Its plan is known by them, and never formed."""
    sides, form = problem.cost, problem.form
    assert isinstance(sides, Sides)
    u, v, a, b = solved.u, solved.v, problem.a, problem.b
    rows, columns = (torch.arange(len(w), device=w.device) for w in (a, b)) if problem.kept is None else problem.kept[:2]
    if not len(u):
        nothing = {"plan": form.give(a.new_zeros(problem.shape)), "value_linear": form.number(0.0)}
        return Result((form.give(u), form.give(v)), form.number(0.0), 0.0, True, 0, solved.method, 0.0, 0.0, nothing)
    reg = torch.as_tensor(problem.reg, dtype=u.dtype, device=u.device)
    features = sides.features()
    still = (features.x, features.y, *own_squares(features.x, features.y, sides.rule))
    operator = Operator(solved.plan or Stream(features, a.log(), b.log(), rule=sides.rule), (*still, u, v, reg))
    wanted = problem.wanted or Wanted(tuple(sides[:4]), a, b, reg)
    x, y, p, q = wanted.cost
    alone = (x, y, *own_squares(x, y, sides.rule), wanted.reg)  # the problem without p and q
    with torch.no_grad():
        r, c = operator.right(torch.ones_like(v)), operator.left(torch.ones_like(u))
        error = float((r - a).abs().sum() + (c - problem.target).abs().sum())
        value, mass = r @ u + c @ v - reg * r.sum(), float(r.sum())
    value = StreamedValue.apply(operator, value, wanted.a, wanted.b, *alone)
    # Σ r (u + p) + Σ c (v + q) − λ Σ P: p and q do not change the plan and have no other part in the value.
    value = value + (wanted.a + (r - wanted.a).detach()) @ p + (wanted.b + (c - wanted.b).detach()) @ q
    moving = StreamedPotentials.apply(operator, wanted.a, wanted.b, *alone)
    parts: Parts = (*alone[:4], *moving, wanted.reg)
    plan = StreamedPlan(operator, parts, (rows, columns), problem.shape, numpy=form.device is None)
    whole = problem.whole(u + sides.p, 0), problem.whole(v + sides.q, 1)
    potentials = form.give(whole[0], double=True), form.give(whole[1], double=True)
    linear = partial(_linear, problem, operator, parts, p, q)
    found: dict[str, Any] = {"plan": plan, "value_linear": linear}
    if warn and not error < goal.tol:
        tell(error, solved.depth, goal, problem.reg)
    number, converged = _number(problem, value), error < goal.tol
    return Result(potentials, number, error, converged, solved.depth, solved.method, mass, error, found)


def _linear(problem: Problem, operator: Operator, parts: Parts, p: Tensor, q: Tensor) -> Any:
    """Σ P C = Σ_i (p_i + ‖x_i‖²) r_i + (P(q + ‖y‖²))_i − 2 x_i·(Py)_i, one pass; Σ P c, another, for plain distances."""
    if operator.stream.rule.root:
        return _number(problem, Distances.apply(operator, *parts))
    x, y, x_sq, y_sq = parts[:4]
    sums = Product.apply(operator, torch.cat([torch.ones_like(q)[:, None], (y_sq + q)[:, None], y], 1), *parts)
    return _number(problem, ((x_sq + p) * sums[:, 0] + sums[:, 1] - 2 * (x * sums[:, 2:]).sum(1)).sum())


def _number(problem: Problem, t: Tensor) -> Any:
    return float(t) if problem.form.device is None else t.to(problem.form.dtype)
