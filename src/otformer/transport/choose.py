r"""Which layers a problem gets, and their running.

- A fixed-weight network, if one is asked for: transport/solvers/annealing.py, `fixed`.
- Few points: Sinkhorn blocks with Newton steps, each the sum of all blocks to come (transport/solvers/newton.py).
- Otherwise Anderson-mixed Sinkhorn blocks (transport/solvers/blocks.py) on the absorbed executor
(transport/executors/absorbed.py), at the
  final λ if the first plan is not too far from right. Where it is, λ falls to its value by factors of 3: potentials travel
  while steps are long (transport/solvers/annealing.py). What has not converged after STUBBORN layers is finished by
  Newton steps, if their matrix is not too large.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from otformer.network.schedule import Layer
from otformer.transport.executors.absorbed import Absorbed
from otformer.transport.executors.dense import Dense
from otformer.transport.fast_path import NETWORK as NEWTON
from otformer.transport.fast_path import is_small
from otformer.transport.problem.problem import Problem
from otformer.transport.solvers.annealing import Pair, best, fixed, warm
from otformer.transport.solvers.newton import newton

MIXED = "Sinkhorn blocks, Anderson-mixed"
STUBBORN = 1000  # layers of mixed blocks before Newton steps, and the most points of the smaller side for those


@dataclass(frozen=True, eq=False)
class Solved:
    """Potentials u [n], v [m], −inf for points without mass; layers run, which they were; the plan if it is at hand."""

    u: Tensor
    v: Tensor
    depth: int
    network: str
    plan: Tensor | None = None


class Goal(NamedTuple):
    """The range of the costs, λ, the marginal error to reach and the most layers to use."""

    spread: float
    reg: float
    tol: float
    max_depth: int


def run_layers(problem: Problem, goal: Goal, layers: tuple[Layer, ...] | None, start: Pair | None) -> Solved:
    """Layers until the goal is reached: those given, or of our choice."""
    u, v = torch.full_like(problem.a, -torch.inf), torch.full_like(problem.b, -torch.inf)
    if not problem.C.numel():
        return Solved(u, v, 0, MIXED)
    rows, columns = problem.a > 0, problem.b > 0
    if bool(rows.all()) and bool(columns.all()):
        return _run(problem.C, problem.a, problem.b, goal, layers, start)
    start = None if start is None else (start[0][rows], start[1][columns])
    part = problem.C[rows][:, columns], problem.a[rows], problem.b[columns]
    solved = _run(*part, goal, layers, start)
    u[rows], v[columns] = solved.u, solved.v
    return replace(solved, u=u, v=v, plan=None)


def _run(C: Tensor, a: Tensor, b: Tensor, goal: Goal, layers: tuple[Layer, ...] | None, start: Pair | None) -> Solved:
    _, reg, tol, max_depth = goal
    if layers is not None:
        return Solved(*best(fixed(Dense(C, a.log(), b.log()), layers, tol, start)), "")
    if is_small(*C.shape):
        return _newton(C, a, b, reg, tol, max_depth, start)
    executor = Absorbed(C, a.log(), b.log())
    stubborn = min(C.shape) <= STUBBORN < max_depth
    limited = goal._replace(max_depth=STUBBORN) if stubborn else goal
    u, v, depth = best(warm(executor, None if start is None else start[1], *limited))
    if not stubborn or depth < STUBBORN:
        return Solved(u, v, depth, MIXED, executor.plan(u, v, reg))
    more = _newton(C, a, b, reg, tol, max_depth - depth, (u, v))
    return replace(more, depth=depth + more.depth, network=f"{MIXED}, then with Newton steps")


def _newton(C: Tensor, a: Tensor, b: Tensor, reg: float, tol: float, max_depth: int, start: Pair | None) -> Solved:
    warm_start = None if start is None else (start[0].cpu().numpy(), start[1].cpu().numpy())
    found = newton(C.cpu().numpy(), a.cpu().numpy(), b.cpu().numpy(), reg, tol, max_depth, warm_start)
    u, v, plan = (torch.from_numpy(t).to(C) for t in (found.u, found.v, found.plan))
    return Solved(u, v, found.depth, NEWTON, plan)
