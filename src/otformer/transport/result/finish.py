"""Finishing: the one place that makes results, and warns where one has not converged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from otformer import callers
from otformer.transport.costs.penalised import answer_penalised
from otformer.transport.derivatives.envelope import NotDifferentiable
from otformer.transport.exact.find_optimum import find_optimum
from otformer.transport.result.result import Result
from otformer.transport.types import Answer, Goal, Inputs, Problem, Solved

R = TypeVar("R", bound=Result)
NO_PLAN = "no plan with these marginals uses allowed pairs only: what did not converge to one has no derivatives"


def finish(problem: Problem, solved: Solved, goal: Goal, warn: bool = True) -> Result:
    """The result of a solution: potentials, computed error, value and plan, differentiable in what was wanted."""
    if problem.penalty is not None:
        assert solved.error is not None
        return made(answer_penalised(problem, solved), solved, goal, problem, solved.error, warn, name="error")
    answer = problem.cost.answer(problem, solved)
    if problem.wanted is not None and not answer.marginal_error < goal.tol and not _allows_a_plan(problem):
        answer = problem.cost.answer(replace(problem, wanted=_without_derivatives(problem.wanted)), solved)
    return made(answer, solved, goal, problem, answer.marginal_error, warn, ", or use float64" * problem.form.single)


def made(
    answer: Answer, solved: Solved, goal: Goal, problem: Problem, error: float, warn: bool = True, hint: str = "",
    name: str = "marginal error",
) -> Result:  # fmt: skip
    """Build the result of an answer whose ``error`` is compared with tol; warn, at the caller's line, if it is above."""
    converged = error < goal.tol or not len(solved.u)
    if warn and not converged:
        callers.warn(
            f"not converged: {name} {error:.3g} after {solved.depth} layers, tol is {goal.tol:g} "
            f"(reg = {problem.entropy:g}); raise reg, tol or max_depth{hint}"
        )
    return one_result(
        Result,
        potentials=answer.potentials,
        value=answer.value,
        marginal_error=answer.marginal_error,
        converged=converged,
        depth=solved.depth,
        method=solved.method,
        mass=answer.mass,
        error=error,
        parts=answer.parts,
    )


def results(kind: type[R], **columns: Iterable[Any]) -> list[R]:
    """Build results from a column per field, with little work for each; a column may be endless."""
    return list(map(kind, *map(columns.__getitem__, kind.__dataclass_fields__)))


def one_result(kind: type[R], **facts: Any) -> R:
    """Build a result from its fields."""
    return kind(**facts)


def _allows_a_plan(problem: Problem) -> bool:
    """Whether a plan with these marginals exists on the pairs that are allowed: whether one of cost 0 there can be found."""
    free = problem.cost.without_costs()
    if free is None:
        return True
    try:
        find_optimum(replace(problem.as_tensors(), cost=free, wanted=None, start=None, reg=None), tol=0.0)
    except ValueError:
        return False
    return True


def _without_derivatives(wanted: Inputs) -> Inputs:
    """The same tensors, of which to ask for a derivative is an error: there is no plan near which one could be taken."""
    cost, *others = wanted
    given = *cost, *others
    *moved, a, b, reg = NotDifferentiable.apply(NO_PLAN, given, *given)
    return Inputs(tuple(moved), a, b, reg)
