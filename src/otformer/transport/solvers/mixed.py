"""The solver for many points: Sinkhorn blocks, Anderson-mixed, annealed where that is needed, finished by Newton steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from otformer import checks
from otformer.transport.solvers.anderson import Mixing
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.solvers.newton import Newton
from otformer.transport.solvers.precision import search
from otformer.transport.types import Goal, Problem, Solved

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
        Layers after which Newton steps take over for unconverged problems, ...
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
        problem, stubborn = problem.as_tensors(), False
        if problem.cost.dense is not None and min(problem.cost.shape) <= self.newton_up_to:
            stubborn = self.newton_after < goal.max_depth
        limit = self.newton_after if stubborn else goal.max_depth
        found = search(problem, Goal(goal.tol, limit), Mixing(self.memory, self.ridge))
        if not stubborn or found.depth + LAYERS <= self.newton_after:
            return found
        more = Newton().run(replace(problem, start=(found.u, found.v)), Goal(goal.tol, goal.max_depth - found.depth))
        return more._replace(depth=found.depth + more.depth, method=f"{found.method}, then with Newton steps")
