r"""Solving between points without the n × m matrix: memory O(n + m), time per layer O(nm) or less (executors/stream.py).

The layers are those of solvers/mixed.py. They see the costs ‖x' − y'‖² of `stream.centred` alone: a plan with given
marginals is the same for C_ij + p_i + q_j, whose potentials are u + p and v + q. So neither clouds far apart nor costs
that one side bears cost digits or layers, and the plan returned is made of the very numbers whose error is reported.

**Precision.** Everything a result says is computed in float64: its plan, its value and its marginal error. For float32
input, and for any on a GPU, layers run in float32 as far as that leads, and a float64 finish, two passes at least, goes
on from
there. Float32 leads to a true marginal error of about 2⁻²⁶ (max C − min C)/λ, measured over dimensions, costs and λ: 1.5e-5
for λ = 0.001 max C; its own passes may claim thirty times less. A ``tol`` beyond that costs float64 passes.

**Depth.** Layers are passes over the cost that lead to the potentials, ``max_depth`` at most, the one that gives a potential
to new points of a warm start included. The two products that measure the marginals of the end are not counted.

**Costs.** All with features, C_ij = ‖x_i − y_j‖² + p_i + q_j: one matrix product for each block. The distance ‖x − y‖ has no
finite features: it is taken by differences, with a root for each entry (`Rule`), and costs a few times as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from otformer.transport.executors.stream import Stream
from otformer.transport.problem.finish import Solved
from otformer.transport.problem.problem import Goal, Problem, Sides
from otformer.transport.solvers.annealing import State, direct_then_annealed, least_error
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.streaming.coarse_to_fine import coarse_to_fine

STREAMED = "Sinkhorn blocks, Anderson-mixed, streamed"
PATIENCE = 20  # float32 layers without a better error before float64 takes over
SINGLE_UP_TO = 1e-2  # error that float32 can reach, as a share of the mass, beyond which it is of no use
SINGLE_RANGE = 1e30  # costs, and 1/λ, up to where float32 has room for them
START_WITHIN = 10.0  # times what potentials of a plan can differ by: a warm start beyond that has lost its digits


@torch.no_grad()
def run_streamed(problem: Problem, goal: Goal, memory: int, ridge: float) -> Solved:
    """Potentials of ‖x' − y'‖², without p and q."""
    assert isinstance(problem.cost, Sides)
    stream = Stream(problem.cost.features(), problem.a.log(), problem.b.log(), rule=problem.cost.rule)
    single = problem.form.single or stream.log_a.is_cuda
    first, taken = None, 0
    if problem.start is not None:
        u, v = (t - own for t, own in zip(problem.start, problem.cost[2:4], strict=True))
        first, taken = _first_v(stream, u, v, problem.reg, goal.max_depth)
    search = _Search(problem.reg, goal.tol, single, memory, ridge)
    u, v, _, depth = search.run(stream, first, goal.max_depth - taken)
    method = f"{STREAMED}, in float32 with a float64 finish" if single else STREAMED
    return Solved(u, v, depth + taken, method, stream)


def _first_v(stream: Stream, u: Tensor, v: Tensor, reg: float, max_depth: int) -> tuple[Tensor | None, int]:
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
    """How to find the potentials of a stream: λ, the error to reach, in float32 first if ``single``, the mixing."""

    reg: float
    tol: float
    single: bool
    memory: int
    ridge: float

    def run(self, stream: Stream, start: Tensor | None, max_depth: int) -> State:
        """u, v, their error and the layers they took, from v = ``start`` or cold.

        What did not converge from ``start`` is tried again without it, on the layers left.
        """
        spread, mass, v, depth = stream.spread, float(stream.log_b.exp().sum()), start, 0
        floor = mass * (2**-26 * spread / self.reg + 2**-23)
        fits = floor < SINGLE_UP_TO * mass and max(spread, 1 / self.reg) < SINGLE_RANGE
        if self.single and fits and max_depth >= 2 * LAYERS:
            rough = stream.in_float32()
            states = self._states(rough, v, spread, max(self.tol, floor), max_depth - LAYERS)
            _, v, _, depth = least_error(states, PATIENCE)
            v = v.double()
        u, v, error, more = least_error(self._states(stream, v, spread, self.tol, max_depth - depth))
        depth += more
        if start is None or error < self.tol or depth + LAYERS > max_depth:
            return u, v, error, depth
        cold = self.run(stream, None, max_depth - depth)
        u, v, error = min((u, v, error), cold[:3], key=lambda found: found[2])
        return u, v, error, depth + cold[3]

    def _states(self, stream: Stream, v: Tensor | None, spread: float, tol: float, max_depth: int) -> Iterator[State]:
        mixing = self.memory, self.ridge
        if v is None:
            return coarse_to_fine(stream, self.reg, tol, max_depth, *mixing)
        return direct_then_annealed(stream, v.to(stream.log_b), spread, self.reg, tol, max_depth, *mixing)
