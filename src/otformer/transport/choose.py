r"""Which solver runs for which problem, on one page.

    read      what the caller has ─▶ Problem                                                 problem/read.py
    choose    Problem ─▶ solver, unless one was given:
                  marginals that are penalised                   Damped                      solvers/damped.py
                  a matrix with n·m·min(n, m) ≤ 200³             Newton                      solvers/newton.py
                  all others                                     Mixed                       solvers/mixed.py, precision.py
                  (`solve_batch` and the layers of otformer.nn stack small problems:         solvers/stacked.py)
    run       solver ─▶ potentials (u, v)
    finish    (u, v) ─▶ Result: the computed marginal error, value, derivatives, a warning   result/finish.py

All solvers climb the dual of min Σ P C + λ Σ P log P over plans with marginals a and b, in the potentials of
P_ij = exp((u_i + v_j − C_ij)/λ − 1). **Sinkhorn** [1] makes rows and columns exact in turn,

    u ← u − λ log(P1/a),      v ← v − λ log(Pᵀ1/b),

each of them one layer of the network with its feed-forward part (network/sinkhorn_block.py). In memory a layer is a product
with an **absorbed** (stabilised) kernel [2], remade when potentials have moved far from those that are absorbed in it.

    Newton:   repeat  make rows exact;  r ← log(b/Pᵀ1)
                      v ← v + λ (1 + μ)[diag((1 + μ) Pᵀ1) − Pᵀ diag(1/a) P]⁻¹ (Pᵀ1 ∘ r)
                      μ ← μ/10 if the dual rose, else take the step back and μ ← 10 μ
              **Levenberg–Marquardt on the semi-dual** [3]: μ = ∞ is Sinkhorn, μ = 0 Newton's method.

    Mixed:    repeat  make rows exact;  f ← −λ log(Pᵀ1/b)
                      v ← v + f − Σ_k θ_k (ΔV_k + ΔF_k),   θ = argmin ‖f − Σ_k θ_k ΔF_k‖_b
                      if the error has doubled: forget, and go on from the best plain step
              **safeguarded Anderson mixing** [4]; after 1,000 layers Newton steps, where their matrix is not too large.

Where the spread of the costs is far above λ, λ falls to its value by factors of 3 (**ε-scaling** [5], solvers/blocks.py).

[1] M. Cuturi: Sinkhorn distances. NeurIPS 2013.
[2] B. Schmitzer: Stabilized sparse scaling algorithms for entropy regularized transport problems. SIAM J. Sci. Comput. 2019.
[3] C. Brauer, C. Clason, D. Lorenz, B. Wirth: A Sinkhorn–Newton method for entropic optimal transport. arXiv:1710.06635.
[4] H. F. Walker, P. Ni: Anderson acceleration for fixed-point iterations. SIAM J. Numer. Anal., 2011.
[5] J. J. Kosowsky, A. L. Yuille: The invisible hand algorithm. Neural Networks, 1994.
"""

from __future__ import annotations

from typing import Any, Protocol

from otformer.errors import ArgumentError, ConflictError
from otformer.network.schedule import SCHEDULES
from otformer.transport.problem.read import is_small
from otformer.transport.result.finish import finish
from otformer.transport.result.result import Result
from otformer.transport.solvers.damped import Damped
from otformer.transport.solvers.mixed import Mixed
from otformer.transport.solvers.network import Network
from otformer.transport.solvers.newton import Newton
from otformer.transport.types import Goal, Problem, Solved


class Solver(Protocol):
    """A frozen value that decides which passes over the cost to run."""

    def run(self, problem: Problem, goal: Goal) -> Solved:
        """Potentials of a problem, with a marginal error below ``goal.tol`` if ``goal.max_depth`` layers allow."""
        ...


def solve_problem(problem: Problem, goal: Goal, solver: Solver | None = None, warn: bool = True) -> Result:
    """Problem → solver → result."""
    if not len(problem.a):
        return finish(problem, Solved(problem.a, problem.b, 0, "no layers: no points", error=0.0), goal, warn)
    solved = choose(problem).run(problem, goal) if solver is None else solved_by(solver, problem, goal)
    return finish(problem, solved, goal, warn)


def solved_by(solver: Solver, problem: Problem, goal: Goal) -> Solved:
    """What a solver of the caller's returns: a `Solved` with a number for every point."""
    solved, own = solver.run(problem, goal), f"{type(solver).__name__}.run"
    if not isinstance(solved, Solved):
        raise ArgumentError("solver", f"return a Solved (transport/types.py) from {own}", f"a {type(solved).__name__}")
    for name, t, size in (("u", solved.u, len(problem.a)), ("v", solved.v, len(problem.b))):
        if tuple(t.shape) != (size,):
            raise ArgumentError("solver", f"return {name} of shape ({size},) from {own}", tuple(t.shape))
        if bool((t != t).any()):  # nan alone is not itself
            raise ArgumentError("solver", f"return potentials that are numbers from {own}", f"nan in {name}")
    return solved


def choose(problem: Problem) -> Solver:
    """The solver for a problem where the caller has none in mind."""
    if problem.penalty is not None:
        return Damped()
    return Newton() if problem.cost.dense is not None and is_small(*problem.cost.shape) else Mixed()


def given_solver(solver: Any, schedule: Any) -> Solver | None:
    """The solver that was asked for, by itself or as the schedule of a network; None for ours to choose."""
    if solver is not None:
        if not hasattr(solver, "run") or isinstance(solver, type):
            came = f"the class {solver.__name__}" if isinstance(solver, type) else repr(solver)
            raise ArgumentError("solver", "be a value such as Newton(), Mixed() or Network('relaxed')", came)
        if schedule != "auto":
            raise ConflictError("solver", "schedule", advice="Network(schedule) is a solver")
        return solver
    if isinstance(schedule, str):
        if schedule == "auto":
            return None
        if schedule not in SCHEDULES:
            raise ArgumentError("schedule", f"be one of auto, {', '.join(SCHEDULES)}", repr(schedule))
    return Network(schedule)
