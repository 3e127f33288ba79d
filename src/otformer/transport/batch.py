r"""Many problems of different sizes in one call: buckets of similar size, padded, each problem finishing for itself.

A point that is not there gets a weight of 1e-30 of the mass and costs nothing. Its share of every marginal is far below
rounding, so the arithmetic needs no masks; its row or column is cut off at the end. A problem leaves its bucket when its own
error is below ``tol``: from then on it costs nothing. The few that are not done after ``TOGETHER`` layers go on alone, in
`solve`, whose mixing remembers more.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.transport.absorbed import Absorbed
from otformer.transport.blocks import LAYERS, Blocks
from otformer.transport.problem import Problem, like_input
from otformer.transport.result import Result
from otformer.transport.solve import falling, solve

NETWORK = "batched Sinkhorn blocks, Anderson-mixed"
LEAST = 1e-30  # weight, as a share of the mass, of a point that is not there
MEMORY = 10  # of the mixing: more would cost more than the passes over such small problems
STEP = 16  # sizes are padded to multiples of this
TOGETHER = 600  # layers
BUCKET = 4_000_000  # numbers in the cost array of one bucket, at most


class BrokenProblems(ValueError):
    """Some problems of a batch were not valid.

    ``errors``: index → what was wrong; ``results``: those of the others, None where broken.
    """

    def __init__(self, errors: dict[int, str], results: list[Result | None]) -> None:
        first, message = next(iter(errors.items()))
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"problem {first}: {message}{more}; the others are in .results")
        self.errors, self.results = errors, results


def solve_batch(problems: Sequence[Any], reg: float = 0.1, tol: float = 1e-6, max_depth: int = 10_000) -> list[Result]:
    """`solve` for a list of problems of any sizes: a cost matrix M, (M, a, b), points (X_a, X_b) or (X_a, X_b, a, b).

    Every result has its own ``converged``, ``marginal_error`` and ``depth``. An invalid problem raises `BrokenProblems`,
    which names its index and holds the results of all others.

    >>> results = solve_batch([[[0.0, 1.0], [1.0, 0.0]], ([[0.0], [1.0], [2.0]], [[2.0], [0.0]])], reg=0.05)
    >>> [r.plan.shape for r in results], all(r.converged for r in results)
    ([(2, 2), (3, 2)], True)
    """
    reg, tol = checks.positive("reg", reg), checks.not_negative("tol", tol)
    checks.count("max_depth", max_depth, least=2)
    errors: dict[int, str] = {}
    results: list[Result | None] = [None] * len(problems)
    buckets: dict[tuple[Any, ...], list[tuple[int, Problem]]] = defaultdict(list)
    for k, given in enumerate(problems):
        try:
            problem = _read(given)
        except ValueError as error:
            errors[k] = str(error)
            continue
        buckets[_bucket(problem, reg)].append((k, problem))
    for key, members in buckets.items():
        room = max(1, BUCKET // (key[0] * key[1]))
        for start in range(0, len(members), room):
            part = members[start : start + room]
            solved = _solve_bucket([p for _, p in part], [problems[k] for k, _ in part], reg, tol, min(max_depth, TOGETHER))
            for (k, problem), result in zip(part, solved, strict=True):
                late = not result.converged and max_depth > TOGETHER
                results[k] = _alone(problem, problems[k], reg, tol, max_depth) if late else result
    if errors:
        raise BrokenProblems(errors, results)
    done = [r for r in results if r is not None]
    left = [r.marginal_error for r in done if not r.converged]
    if left:
        warnings.warn(
            f"not converged: {len(left)} of {len(done)} problems, marginal error up to {max(left):.3g}, tol is {tol:g}",
            RuntimeWarning,
            stacklevel=2,
        )
    return done


def _alone(problem: Problem, given: Any, reg: float, tol: float, max_depth: int) -> Result:
    kind = given[0] if isinstance(given, tuple) else given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # said once, for the whole batch
        C, a, b = (like_input(kind, t) for t in (problem.C, problem.a, problem.b))
        return solve(C, a, b, reg=reg, tol=tol, max_depth=max_depth)


def _read(given: Any) -> Problem:
    if not isinstance(given, tuple):
        return Problem.from_cost(given)
    if len(given) == 3:
        return Problem.from_cost(*given)
    if len(given) in (2, 4):
        return Problem.from_points(*given)
    raise ValueError(f"a problem is M, (M, a, b), (X_a, X_b) or (X_a, X_b, a, b), got a tuple of {len(given)}")


def _bucket(problem: Problem, reg: float) -> tuple[Any, ...]:
    """Problems solved together agree in this: padded size, annealing stages, dtype, device."""
    n, m = (STEP * -(-max(1, size) // STEP) for size in problem.C.shape)
    spread = float(problem.C.max() - problem.C.min()) if problem.C.numel() else 0.0
    return n, m, len(list(falling(spread, reg))), problem.C.dtype, problem.C.device


def _solve_bucket(problems: list[Problem], given: list[Any], reg: float, tol: float, max_depth: int) -> list[Result]:
    n, m = max(1, *(len(p.a) for p in problems)), max(1, *(len(p.b) for p in problems))
    kind = given[0][0] if isinstance(given[0], tuple) else given[0]
    dtype, problems = problems[0].C.dtype, [p.double() for p in problems]  # as `solve` does
    low = [float(p.C.min()) if p.C.numel() else 0.0 for p in problems]
    C = torch.stack([_pad(p.C - least, n, m) for p, least in zip(problems, low, strict=True)])  # [B, n, m]
    a = torch.stack([_pad(p.a, n) for p in problems])
    b = torch.stack([_pad(p.b, m) for p in problems])
    target = torch.stack([_pad(p.target, m) for p in problems])
    mass = a.sum(-1, keepdim=True).clamp_min(torch.finfo(a.dtype).tiny)
    goal = tol * mass[:, 0].clamp_max(1)  # little mass is no excuse
    executor = Absorbed(C, a.clamp_min(LEAST * mass).log(), b.clamp_min(LEAST * mass).log())
    u, v, depth = _iterate(executor, reg, goal, max_depth)
    u, v = u.masked_fill(a == 0, -torch.inf), v.masked_fill(b == 0, -torch.inf)
    log_P = (u[:, :, None] + v[:, None, :] - C) / reg - 1
    P = log_P.exp()
    rounded = P.to(dtype).double()
    error = (rounded.sum(2) - a).abs().sum(1) + (rounded.sum(1) - target).abs().sum(1)
    offset = torch.tensor(low, dtype=P.dtype, device=P.device)
    linear = (P * C).sum((1, 2)) + offset * P.sum((1, 2))
    value = linear + reg * torch.where(P > 0, P * log_P, 0.0).sum((1, 2))
    plans, us, vs = (like_input(kind, t.to(dtype)) for t in (P, u + offset[:, None], v))
    values, linears = ((t.to(dtype) if isinstance(kind, Tensor) else t.tolist()) for t in (value, linear))
    converged = (error < goal).tolist()
    return [
        Result(
            plan=plans[k, : len(p.a), : len(p.b)],
            potentials=(us[k, : len(p.a)], vs[k, : len(p.b)]),
            value=values[k],
            value_linear=linears[k],
            marginal_error=float(error[k]),
            converged=converged[k] or not p.C.numel(),
            depth=depth[k],
            network=NETWORK,
        )
        for k, p in enumerate(problems)
    ]


def _pad(t: Tensor, *shape: int) -> Tensor:
    out = t.new_zeros(shape)
    out[tuple(slice(size) for size in t.shape)] = t
    return out


def _iterate(executor: Absorbed, reg: float, tol: Tensor, max_depth: int) -> tuple[Tensor, Tensor, list[int]]:
    """Potentials [B, n], [B, m] with the least error of each problem, and its depth. Problems that are done drop out."""
    count = len(executor.log_b)
    u_out, v_out = torch.zeros_like(executor.log_a), torch.zeros_like(executor.log_b)
    least = torch.full_like(tol, torch.inf)
    depth_out = torch.zeros(count, dtype=torch.long)
    active = torch.arange(count, device=tol.device)
    spread = float(executor.C.max())
    v, depth = reg * executor.log_b, 0
    for lam in falling(spread, reg):
        steps = Blocks(executor, lam, v, spread, MEMORY)
        limit = max_depth if lam == reg else min(depth + 40, max_depth // 2)
        while depth + LAYERS <= limit and len(active):
            u, v, errors = next(steps)
            depth += LAYERS
            if lam != reg:
                continue
            error = errors.sum(-1)
            better = error < least[active]
            where = active[better]
            u_out[where], v_out[where], least[where] = u[better], v[better], error[better]
            depth_out[active.cpu()] = depth
            alive = (error >= tol[active]).nonzero()[:, 0]
            if len(alive) <= 0.8 * len(active):
                executor.select(alive)
                steps.select(alive)
                active = active[alive]
    return u_out, v_out, depth_out.tolist()
