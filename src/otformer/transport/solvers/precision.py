r"""The search for potentials: a warm start, float32 as far as that leads, and a verdict that counts.

**Gauge.** The layers see the cost less what belongs to one side: a plan with given marginals is the same for
C_ij + p_i + q_j, whose potentials are u + p and v + q (`Cost.gauge`). So neither clouds far apart nor costs that one side
bears cost digits or layers, and the plan returned is made of the very numbers whose error is reported.

**Precision.** Potentials are float64, and whether they have converged is decided by passes whose own rounding is bounded far
below ``tol``: float64 on a CPU, and on a GPU those of costs/gpu/layout.py, whose bound is added to the error that a result
reports. The way there is in float32 where the kernel has such passes (`Kernel.rough`), as far as that leads: to a true
marginal error of about 2⁻²⁶ (max C − min C)/λ, measured over dimensions, costs and λ: 1.5e-5 for λ = 0.001 max C. A ``tol``
beyond that costs slower passes.

**Depth.** Layers are passes over the cost that lead to the potentials, ``max_depth`` at most, the one that gives a potential
to new points of a warm start included. Products that measure the marginals of the end, where needed, are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from otformer.transport.costs.kernel import Kernel, mass_of
from otformer.transport.solvers.anderson import Least, Mixing
from otformer.transport.solvers.blocks import LAYERS, State, coarse_to_fine, direct_then_annealed, least_error
from otformer.transport.types import Goal, Problem, Solved

PATIENCE = 20  # float32 layers without a better error before more exact passes take over
SINGLE_UP_TO = 1e-2  # error that float32 can reach, as a share of the mass, beyond which it is of no use
SINGLE_RANGE = 1e30  # costs, and 1/λ, up to where float32 has room for them
SAFE = 0.85  # of the tolerance: where float32 passes stop by their own reading, if the verdict has a rounding of its own
START_WITHIN = 10.0  # times what potentials of a plan can differ by: a warm start beyond that has lost its digits


@torch.no_grad()
def search(problem: Problem, goal: Goal, mixing: Mixing) -> Solved:
    """Find potentials of the problem, less its gauge, by Sinkhorn blocks on the kernel of its cost."""
    reg, share = problem.entropy, goal.tol / problem.mass
    kernel = problem.cost.kernel(problem.a.log(), problem.b.log(), reg, problem.mass)
    first, taken = None, 0
    if problem.start is not None:
        first, taken = _first_v(kernel, *problem.start, reg, goal.max_depth)
        first = None if first is None else kernel.lay(torch.zeros_like(kernel.log_a), first)[1]
    exact, tol, lacks = kernel.deciding(share, reg), goal.tol, 0.0
    slack = 2 * problem.mass * exact.rounding(reg)  # of rows and of columns
    if slack:
        # b is scaled to the mass of a; the error is that of b as it was given.
        lacks = 0.0 if problem.b is problem.target else float((problem.b - problem.target).abs().sum())
        tol = max(goal.tol - slack - lacks, slack / 4)  # what cannot be decided is not tried for ever
    rough = kernel.rough(problem.form.single, share) if _fits_single(exact.laid, reg) else None
    kernels, tols = (exact.laid, None if rough is None else rough.laid), (tol, SAFE * tol if slack else tol)
    with torch.cuda.device_of(kernel.log_a):
        u, v, error, depth = _descend(kernels, first, reg, tols, goal.max_depth - taken, mixing)
    exact.laid.release()
    u, v = exact.take(u, v)
    method = f"Sinkhorn blocks{', Anderson-mixed' if mixing.memory else ''}{kernel.suffix}"
    if rough is not None:
        method += f", in float32 with a finish in {exact.laid.finish}"
    return Solved(u, v, depth + taken, method, exact.plan(u, v, reg), error + slack + lacks if slack else None)


def _fits_single(kernel: Kernel, reg: float) -> bool:
    """Return whether float32 can reach a useful error."""
    return _floor(kernel, reg) < SINGLE_UP_TO and max(kernel.squares, 1 / reg) < SINGLE_RANGE


def _floor(kernel: Kernel, reg: float) -> float:
    """Estimate the error that float32 can reach, as a share of the mass."""
    return 2**-26 * kernel.spread / reg + 2**-23


def _first_v(kernel: Kernel, u: Tensor, v: Tensor, reg: float, max_depth: int) -> tuple[Tensor | None, int]:
    """Return the v of a warm start, None where it can be of no use, and the layers this took.

    (u + t, v − t) is the same plan: t makes the mean of v 0. Potentials of plans differ by no more than costs and λ log b.
    """
    known = v.isfinite()
    if not bool(known.any()):
        return None, 0
    middle, layers = v[known].mean(), 0
    u, v = u + middle, v - middle
    if not bool(known.all()):  # points that had no mass then: a column block gives them their potentials
        layers = min(1, max_depth - LAYERS)
        block = -reg * kernel.log_ratio(u, torch.zeros_like(v), reg, rows=False) if layers else torch.zeros_like(v)
        v = torch.where(known, v, block)
    reach = kernel.spread + reg * (1 + float(kernel.log_b.max() - kernel.log_b.min()))
    return v if float(v.max() - v.min()) <= START_WITHIN * reach else None, layers


def _descend(
    kernels: tuple[Kernel, Kernel | None], start: Tensor | None, reg: float, tols: tuple[float, float], max_depth: int,
    mixing: Mixing,
) -> State:  # fmt: skip
    """Find u, v, their error and the layers they took, from v = ``start`` or cold.

    ``kernels`` and ``tols`` are of the passes that decide, and of those in float32 which come first, if there are such.
    What did not converge from ``start`` is tried again without it, on the remaining layers.
    """
    (exact, rough), (tol, rough_tol), best, depth = kernels, tols, None, 0
    for v in (None,) if start is None else (start, None):
        if rough is not None and max_depth - depth >= 2 * LAYERS:
            enough = max(rough_tol, mass_of(exact) * _floor(exact, reg))
            states = _states(rough, v, reg, enough, max_depth - depth - LAYERS, mixing)
            u, v, _, layers = least_error(states, enough, PATIENCE)
            v, depth = v.double(), depth + layers
            rough.release()
            exact.expect(u)
        u, v, error, layers = least_error(_states(exact, v, reg, tol, max_depth - depth, mixing), tol)
        depth += layers
        best = best or Least(u, v)
        best.see(error, u, v)
        if error < tol or depth + LAYERS > max_depth:
            break
    assert best is not None
    return *best.state, best.error, depth


def _states(kernel: Kernel, v: Tensor | None, reg: float, tol: float, max_depth: int, mixing: Mixing) -> Iterator[State]:
    if v is None and kernel.coarsens:
        return coarse_to_fine(kernel, reg, tol, max_depth, mixing)
    return direct_then_annealed(kernel, None if v is None else v.to(kernel.log_b), reg, max_depth, mixing)
