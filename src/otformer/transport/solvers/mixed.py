"""The solver for many points: Sinkhorn blocks, Anderson-mixed, annealed where that is needed, finished by Newton steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from otformer import checks
from otformer.transport.executors.absorbed import Absorbed
from otformer.transport.problem.finish import Solved
from otformer.transport.problem.problem import Goal, Problem, Sides
from otformer.transport.solvers.annealing import direct_then_annealed, least_error
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.solvers.newton import Newton

MOST_MEMORY = 1000  # residuals, each as long as the columns: more are not more help


@dataclass(frozen=True)
class Mixed:
    """Sinkhorn in the log domain, accelerated by safeguarded Anderson mixing of the column potentials.

    Parameters
    ----------
    memory : int
        Residuals that are mixed; 0 is plain Sinkhorn.
    ridge : float
        Tikhonov term of the least-squares problem, relative to its largest diagonal entry.
    newton_after : int
        Layers after which Newton steps take over what has not converged, ...
    newton_up_to : int
        ... if its smaller side has no more points than this.

    >>> import otformer as of
    >>> of.solve([[0.0, 1.0], [1.0, 0.0]], reg=0.5, solver=of.Mixed(memory=8)).converged
    True
    """

    memory: int = 32
    ridge: float = 1e-12
    newton_after: int = 1000
    newton_up_to: int = 1000

    def __post_init__(self) -> None:
        for name, least, most in (("memory", 0, MOST_MEMORY), ("newton_after", 2, None), ("newton_up_to", 0, None)):
            checks.count(name, getattr(self, name), least, most)
        checks.not_negative("ridge", self.ridge)

    def run(self, problem: Problem, goal: Goal) -> Solved:
        if isinstance(problem.cost, Sides):
            from otformer.transport.streaming.solve import run_streamed

            return run_streamed(problem, goal, self.memory, self.ridge)
        problem = problem.as_tensors()
        executor = Absorbed(problem.cost, problem.a.log(), problem.b.log())
        stubborn = min(problem.cost.shape) <= self.newton_up_to and self.newton_after < goal.max_depth
        limit = self.newton_after if stubborn else goal.max_depth
        first = None if problem.start is None else problem.start[1]
        mixing = self.memory, self.ridge
        states = direct_then_annealed(executor, first, problem.spread, problem.reg, goal.tol, limit, *mixing)
        u, v, _, depth = least_error(states)
        name = "Sinkhorn blocks, Anderson-mixed" if self.memory else "Sinkhorn blocks"
        if not stubborn or depth + LAYERS <= self.newton_after:
            return Solved(u, v, depth, name, executor.plan(u, v, problem.reg))
        more = Newton().run(replace(problem, start=(u, v)), Goal(goal.tol, goal.max_depth - depth))
        return more._replace(depth=depth + more.depth, method=f"{name}, then with Newton steps")
