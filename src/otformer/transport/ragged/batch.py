r"""Many problems of different sizes in one call: buckets of similar size, padded, each problem finishing for itself.

A point added by padding gets a weight of 1e-30 of the mass. Its share of every marginal is far below rounding, so the
arithmetic needs no masks; its row or column is cut off at the end. Buckets go through transport/solvers/stacked.py in
pieces that stay in the processor's cache, or on a GPU in large ones. Whatever that does not finish, large problems, and
those that are not plain arrays go through `solve`, one by one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import callers, checks
from otformer.callers import own_keywords
from otformer.memory import lacking, needs, shape
from otformer.transport.choose import solve_problem
from otformer.transport.needs import of_batch
from otformer.transport.problem.forbidden import unmasked
from otformer.transport.problem.read import read_cost, read_reg
from otformer.transport.problem.read_points import read_points
from otformer.transport.problem.weights import scaled_to
from otformer.transport.ragged.padding import InputKind, PaddedProblems, RaggedProblem, compact, pack, read, to_device
from otformer.transport.result.finish import results
from otformer.transport.result.result import Result
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.solvers.stacked import (
    ALONE_ABOVE,
    METHOD,
    STACK_ENTRIES,
    WIDEST_SPREAD,
    annealing_steps,
    solve_stacked,
)
from otformer.transport.types import ABSENT_WEIGHT, Array, Form, Goal, Problem

CPU = torch.device("cpu")


class BrokenProblems(ValueError):
    """Some problems of a batch were not valid.

    ``errors`` maps an index to its error; ``results`` holds the other results, and None for the invalid problems.
    """

    def __init__(self, errors: dict[int, str], results: list[Result | None]) -> None:
        first, message = next(iter(errors.items()))
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"problem {first}: {message}{more}; the others are in .results")
        self.errors, self.results = errors, results

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errors, self.results)


@own_keywords
@needs(lambda problems, **_: of_batch(problems))
def solve_batch(
    problems: Any,
    reg: float = 0.1,
    tol: float = 1e-6,
    max_depth: int = 10_000,
    device: str | torch.device | None = None,
) -> list[Result]:
    """`solve` for a list of problems of any sizes.

    Parameters
    ----------
    problems : list, or stacked arrays
        Each problem is a cost matrix M, (M, a), (M, a, b), points (X_a, X_b) or (X_a, X_b, a, b), as in `solve` and
        `solve_sample`; or all of them stacked: M (B, n, m), or a tuple of X_a (B, n, d) and X_b (B, m, d).
    reg, tol, max_depth
        As in `solve`, for all problems. With ``reg=0`` every result is an `ExactResult`.
    device : str or torch.device, optional
        The device to compute on, ``"cpu"`` or ``"cuda"``; by default that of each problem. Results have the type of the
        problem: numpy arrays, or tensors on its device.

    Returns
    -------
    list of Result
        Each has its own ``converged``, ``marginal_error`` and ``depth``. An invalid problem raises `BrokenProblems`, which
        names its index and holds the results of all other problems.

    Examples
    --------
    >>> results = solve_batch([[[0.0, 1.0], [1.0, 0.0]], ([[0.0], [1.0], [2.0]], [[2.0], [0.0]])], reg=0.05)
    >>> [r.plan.shape for r in results], all(r.converged for r in results)
    ([(2, 2), (3, 2)], True)
    """
    goal = Goal.read(tol, max_depth)
    place = None if device is None else checks.device(device)
    if reg is None or (isinstance(reg, checks.NUMBERS) and reg == 0 and reg is not False):
        from otformer.transport.ragged.exact_stacks import solve_exactly

        return solve_exactly(problems, goal.tol, place)
    reg = checks.positive("reg", reg)
    read_reg(reg)
    problems = unstacked(problems)
    results: list[Result | None] = [None] * len(problems)
    for part, where in _parts(read(problems), place):
        for item, result in zip(part, _solve_part(part, reg, goal, where), strict=True):
            results[item.place] = result
    try:
        done = completed(results, problems, lambda given: _solve_alone(read_alone(given, reg, place), goal))
    except BrokenProblems as broken:
        _warn_unconverged(broken.results, tol)
        raise
    _warn_unconverged(done, tol)
    return done


def _warn_unconverged(results: Sequence[Result | None], tol: float) -> None:
    errors = [r.marginal_error for r in results if r is not None and not r.converged]
    if errors:
        count = f"{len(errors)} of {len(results)} problems"
        callers.warn(f"not converged: {count}, marginal error up to {max(errors):.3g}, tol is {tol:g}")


def completed(results: Sequence[Result | None], problems: Any, solve_one: Callable[[Any], Result]) -> list[Result]:
    """All results, those that are missing one by one; invalid problems raise `BrokenProblems`."""
    if None not in results:
        return [*results]  # type: ignore[list-item]
    problems, out = unstacked(problems), [*results]
    errors: dict[int, str] = {}
    for k, result in enumerate(out):
        if result is None:
            try:
                out[k] = solve_one(problems[k])
            except (ValueError, TypeError, RuntimeError) as error:
                if lacking(error):  # which is no fault of the problem
                    raise
                errors[k] = str(error).partition("\n")[0]
    if errors:
        raise BrokenProblems(errors, out)
    return [r for r in out if r is not None]


def unstacked(problems: Any) -> list[Any]:
    """A list of problems, also from arrays with a batch axis."""
    if isinstance(problems, tuple) and len(problems) in (2, 3, 4) and getattr(problems[0], "ndim", 0) == 3:
        if len({len(t) for t in problems if t is not None}) > 1:
            shapes = [tuple(t.shape) for t in problems if t is not None]
            raise checks.ArgumentError("problems", "be stacked over one batch axis", f"arrays of shapes {shapes}")
        return list(zip(*(repeat(None) if t is None else t for t in problems), strict=False))
    if not isinstance(problems, Iterable) or isinstance(problems, str | dict):
        raise checks.ArgumentError("problems", "be a list of problems, or stacked arrays", type(problems).__name__)
    if getattr(problems, "ndim", 3) == 2:
        came = f"one array of shape {shape(problems)}"
        raise checks.ArgumentError("problems", "be a list of problems, or stacked arrays", came, "[M] is a list of one")
    return list(problems)


def _parts(items: Sequence[RaggedProblem], place: torch.device | None) -> Iterator[tuple[list[RaggedProblem], torch.device]]:
    """Problems of similar size and one kind, and where to solve them. Few problems are better padded than left alone."""
    steps = {"cpu": 8 if len(items) >= 1000 else 16 if len(items) >= 100 else 64, "cuda": 32}
    buckets: dict[tuple[int, int, InputKind], list[RaggedProblem]] = defaultdict(list)
    for item in items:
        step = steps[_where(item.kind, place).type]
        buckets[-(-item.n // step) * step, -(-item.m // step) * step, item.kind].append(item)
    for (n, m, kind), members in buckets.items():
        where = _where(kind, place)
        members = [item for item in members if item.n * item.m <= ALONE_ABOVE[where.type]]
        room = max(1, STACK_ENTRIES[where.type] // (n * m))
        for start in range(0, len(members), room):
            yield members[start : start + room], where


def _where(kind: InputKind, place: torch.device | None) -> torch.device:
    return place or kind.form.device or CPU


def _solve_part(items: list[RaggedProblem], reg: float, goal: Goal, where: torch.device) -> list[Result | None]:
    """Results; None where a problem is not valid."""
    bucket, spread = pack(items, where)
    good = spread < WIDEST_SPREAD * reg
    stages = np.where(good, annealing_steps(np.where(good, spread, 0), reg), -1)
    if good.all() and (stages == stages[0]).all():
        return [*_solve_alike(items, bucket, reg, goal, int(stages[0]))]
    out: list[Result | None] = [None] * len(items)
    for count in set(stages[good].tolist()):
        chosen = np.flatnonzero(stages == count)
        results = _solve_alike([items[k] for k in chosen], bucket.take(to_device(chosen, where)), reg, goal, count)
        for k, result in zip(chosen, results, strict=True):
            out[k] = result
    return out


def _solve_alike(items: list[RaggedProblem], bucket: PaddedProblems, reg: float, goal: Goal, stages: int) -> list[Result]:
    C, a, b, low, mask = bucket
    form, mass = items[0].kind.form, a.sum(1)[:, None]
    tol = goal.tol * mass[:, 0].clip(None, 1)  # as `Goal.read`
    weights = a.clip(ABSENT_WEIGHT * mass, None), scaled_to(a, b).clip(ABSENT_WEIGHT * mass, None)
    u, v, done, depth = solve_stacked(C, *weights, reg, tol, goal.max_depth, stages)
    P, error, total, value, linear = _plans(bucket, u, v, reg, form.single)
    u[a == 0], v[b == 0] = -math.inf, -math.inf
    n, m = [item.n for item in items], [item.m for item in items]
    flat = _cut(P, mask, [item.n * item.m for item in items], form)
    plans = (plan.reshape(i, j) for plan, i, j in zip(flat, n, m, strict=True))
    us, vs = _cut(u + low[:, None], mask[:, :, 0], n, form, True), _cut(v, mask[:, 0, :], m, form, True)
    errors, layers = error.tolist(), [int(d) for d in depth.tolist()]
    out = results(
        Result,
        potentials=zip(us, vs, strict=True),
        value=form.numbers(value),
        marginal_error=errors,
        converged=(error < tol).tolist(),
        depth=layers,
        method=repeat(METHOD),
        mass=total.tolist(),
        error=errors,
        parts=({"plan": P, "value_linear": number} for P, number in zip(plans, form.numbers(linear), strict=True)),
    )
    for k in [k for k, finished in enumerate(done.tolist()) if not finished]:
        if layers[k] + LAYERS <= goal.max_depth or not math.isfinite(errors[k]):
            given = tuple(part.cpu() if isinstance(part, Tensor) else part for part in items[k].parts)
            problem = replace(read_alone(given, reg, None), form=form)  # small, so on the CPU
            out[k] = _solve_alone(problem, goal)
    return out


@np.errstate(over="ignore", under="ignore")
def _plans(bucket: PaddedProblems, u: Array, v: Array, reg: float, single: bool) -> tuple[Array, ...]:
    """Plans [B, n, m], and what is true of them: error once rounded to the input's dtype, mass, value, value_linear: [B]."""
    C, a, b, low, _ = bucket
    xp: Any = torch if isinstance(C, Tensor) else np
    P = xp.where(a > 0, u / reg - 1, -math.inf)[:, :, None] + xp.where(b > 0, v / reg, -math.inf)[:, None, :]
    P -= C / reg
    xp.exp(P, out=P)
    rows, columns = P.sum(2), P.sum(1)
    total = rows.sum(1)
    linear = (P * C).sum((1, 2)) + low * total
    value = (u * rows).sum(1) + (v * columns).sum(1) + (low - reg) * total  # log P is linear in u, v and C
    if single:
        rounded = P.float().double() if isinstance(P, Tensor) else P.astype(np.float32).astype(np.float64)
        rows, columns = rounded.sum(2), rounded.sum(1)
    return P, xp.abs(rows - a).sum(1) + xp.abs(columns - b).sum(1), total, value, linear


def _cut(array: Array, mask: Array, lengths: list[int], form: Form, double: bool = False) -> Sequence[Any]:
    """The entries of an array [B, …] that are not padding, as one vector per problem, in the form of the input."""
    flat = form.give(compact(array, mask), double)
    if isinstance(flat, Tensor):
        return flat.split(lengths)
    return [flat[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]


def _solve_alone(problem: Problem, goal: Goal) -> Result:
    return solve_problem(problem, Goal.read(*goal, problem.mass), warn=False)


def _axes(given: Any) -> int:
    try:
        return np.ndim(given)
    except ValueError:  # lists of several lengths, which are refused by name when they are read
        return 2


def read_alone(given: Any, reg: float | None, place: torch.device | None) -> Problem:
    """A problem as it was given, large or out of the ordinary or wrong, to be solved on ``place``."""
    parts: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    if isinstance(given, tuple) and len(given) not in (2, 3, 4):
        raise ValueError(f"a problem is M, (M, a, b), (X_a, X_b) or (X_a, X_b, a, b), got a tuple of {len(given)}")
    is_cost = len(parts) in (1, 3) or (len(parts) == 2 and _axes(parts[1]) == 1)
    parts = (unmasked(parts[0]), *parts[1:]) if is_cost else parts
    run: Callable[..., Problem] = read_cost if is_cost else partial(read_points, executor="auto" if reg is None else "dense")
    if place is None or place.type == "cpu" or checks.derivative_wanted(*parts):
        return run(*parts, reg=reg)
    moved = [checks.unseen("a problem", t).to(place) if isinstance(t, (Tensor, np.ndarray)) else t for t in parts]
    problem = run(*moved, reg=reg)
    home = parts[0].device if isinstance(parts[0], Tensor) else None
    return replace(problem, form=Form(home, problem.form.single))
