r"""Solving between points without the n × m matrix: memory O(n + m), time per layer O(nm) or less (executors/stream.py).

The layers are those of solvers/mixed.py. They see the costs ‖x' − y'‖² of `clouds.moved` alone: a plan with given
marginals is the same for C_ij + p_i + q_j, whose potentials are u + p and v + q. So neither clouds far apart nor costs
that one side bears cost digits or layers, and the plan returned is made of the very numbers whose error is reported.

**Precision.** Potentials are float64, and whether they have converged is decided by passes whose own rounding is bounded far
below ``tol``: float64 in blocks of torch operations, and on a GPU those of executors/gpu/layout.py, whose bound is added to
the error that a result reports. The way there is in float32, for float32 input and for any on a GPU, as far as that leads:
to a true marginal error of about 2⁻²⁶ (max C − min C)/λ, measured over dimensions, costs and λ: 1.5e-5 for λ = 0.001 max C.
A ``tol`` beyond that costs slower passes.

**Depth.** Layers are passes over the cost that lead to the potentials, ``max_depth`` at most, the one that gives a potential
to new points of a warm start included. Products that measure the marginals of the end, where needed, are not counted.

**Costs.** All with features, C_ij = ‖x_i − y_j‖² + p_i + q_j: one matrix product for each block. The distance ‖x − y‖ has no
finite features: it is taken by differences, with a root for each entry (`Rule`), and costs a few times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from otformer.transport.executors.open import open_stream
from otformer.transport.executors.stream import Stream
from otformer.transport.problem.finish import Solved
from otformer.transport.problem.problem import Goal, Problem, Sides
from otformer.transport.solvers.annealing import State, direct_then_annealed, least_error
from otformer.transport.solvers.blocks import LAYERS, mass_of
from otformer.transport.streaming.coarse_to_fine import coarse_to_fine

if TYPE_CHECKING:
    from otformer.transport.executors.gpu.executor import OnGpu

STREAMED = "Sinkhorn blocks, Anderson-mixed, streamed"
PATIENCE = 20  # float32 layers without a better error before more exact passes take over
SINGLE_UP_TO = 1e-2  # error that float32 can reach, as a share of the mass, beyond which it is of no use
SINGLE_RANGE = 1e30  # costs, and 1/λ, up to where float32 has room for them
SAFE = 0.85  # of the tolerance: where float32 passes on a GPU stop by their own reading
START_WITHIN = 10.0  # times what potentials of a plan can differ by: a warm start beyond that has lost its digits


@torch.no_grad()
def run_streamed(problem: Problem, goal: Goal, memory: int, ridge: float) -> Solved:
    """Potentials of the costs c, without p and q."""
    assert isinstance(problem.cost, Sides)
    stream = open_stream(problem.cost, problem.a.log(), problem.b.log(), problem.spread, problem.reg, problem.mass)
    first, taken = None, 0
    if problem.start is not None:
        u, v = (t - own for t, own in zip(problem.start, problem.cost[2:4], strict=True))
        first, taken = _first_v(stream, u, v, problem.reg, goal.max_depth)
    if isinstance(stream, Stream):
        rough = stream.in_float32 if problem.form.single else None
        search = _Search(problem.reg, goal.tol, goal.tol, stream, rough, memory, ridge)
        u, v, _, depth = search.run(first, goal.max_depth - taken)
        method = f"{STREAMED}, in float32 with a float64 finish" if problem.form.single else STREAMED
        return Solved(u, v, depth + taken, method, stream)
    return _run_on_gpu(stream, problem, goal, first, taken, (memory, ridge))


def _run_on_gpu(
    stream: OnGpu, problem: Problem, goal: Goal, first: Tensor | None, taken: int, mixing: tuple[int, float]
) -> Solved:
    """The same in kernels, whose potentials are in the order of their layout."""
    from otformer.transport.executors.gpu.layout import MIXED, SINGLE

    share, reg = goal.tol / problem.mass, problem.reg
    exact = stream.precise(share, reg)
    slack = 2 * problem.mass * exact.stream.rounding(reg)  # of rows and of columns
    # b is scaled to the mass of a; the error is that of b as it was given.
    lacks = 0.0 if problem.b is problem.target else float((problem.b - problem.target).abs().sum())
    enough = max(goal.tol - slack - lacks, slack / 4)  # what cannot be decided is not tried for ever
    search = _Search(reg, enough, SAFE * enough, exact.stream, lambda: stream.stream.at(SINGLE, share), *mixing)
    start = None if first is None else stream.sides[1].lay(first)
    with torch.cuda.device_of(stream.log_a):
        u, v, error, depth = search.run(start, goal.max_depth - taken)
    exact.stream.release()
    finish = "float32 and float64" if exact.stream.precision is MIXED else "float64"
    method = f"{STREAMED}, in float32 with a finish in {finish}"
    return Solved(*exact.take(u, v), depth + taken, method, exact, error + slack + lacks)


def _first_v(stream: Stream | OnGpu, u: Tensor, v: Tensor, reg: float, max_depth: int) -> tuple[Tensor | None, int]:
    """The v of a warm start, None where it can be of no use, and the layers this took.

    (u + t, v − t) is the same plan: t makes the mean of v 0. Potentials of plans differ by no more than costs and λ log b.
    """
    known = v.isfinite()
    if not bool(known.any()):
        return None, 0
    middle, layers = v[known].mean(), 0
    u, v = u + middle, v - middle
    if not bool(known.all()):  # points that had no mass then: a column block gives them their potentials
        layers = min(1, max_depth - LAYERS)
        block = -reg * stream.log_ratio(u, torch.zeros_like(v), reg, rows=False) if layers else torch.zeros_like(v)
        v = torch.where(known, v, block)
    reach = stream.spread + reg * (1 + float(stream.log_b.max() - stream.log_b.min()))
    return v if float(v.max() - v.min()) <= START_WITHIN * reach else None, layers


@dataclass(frozen=True)
class _Search:
    """How to find potentials at λ = ``reg`` to an error ``tol``: by steps of ``exact``, from where those in float32 lead.

    ``rough``, if there is one, makes the executor of these; ``rough_tol`` is the error where they stop.
    """

    reg: float
    tol: float
    rough_tol: float
    exact: Any
    rough: Callable[[], Any] | None
    memory: int
    ridge: float

    def run(self, start: Tensor | None, max_depth: int) -> State:
        """u, v, their error and the layers they took, from v = ``start`` or cold.

        What did not converge from ``start`` is tried again without it, on the layers left.
        """
        spread, mass, v, depth = self.exact.spread, mass_of(self.exact), start, 0
        floor = mass * (2**-26 * spread / self.reg + 2**-23)
        squares = spread * spread if self.exact.rule.root else spread
        fits = floor < SINGLE_UP_TO * mass and max(squares, 1 / self.reg) < SINGLE_RANGE
        if self.rough is not None and fits and max_depth >= 2 * LAYERS:
            rough = self.rough()
            states = self._states(rough, v, spread, max(self.rough_tol, floor), max_depth - LAYERS)
            u, v, _, depth = least_error(states, PATIENCE)
            v = v.double()
            rough.release()
            self.exact.expect(u)
        u, v, error, more = least_error(self._states(self.exact, v, spread, self.tol, max_depth - depth))
        depth += more
        if start is None or error < self.tol or depth + LAYERS > max_depth:
            return u, v, error, depth
        cold = self.run(None, max_depth - depth)
        u, v, error = min((u, v, error), cold[:3], key=lambda found: found[2])
        return u, v, error, depth + cold[3]

    def _states(self, stream: Any, v: Tensor | None, spread: float, tol: float, max_depth: int) -> Iterator[State]:
        mixing = self.memory, self.ridge
        if v is None:
            return coarse_to_fine(stream, self.reg, tol, max_depth, *mixing)
        return direct_then_annealed(stream, v.to(stream.log_b), spread, self.reg, tol, max_depth, *mixing)
