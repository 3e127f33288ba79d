r"""Sinkhorn blocks with safeguarded Anderson mixing, at one λ or at one that falls to its value in stages.

**Blocks.** A row block (attention + feed-forward, network/sinkhorn_block.py) sets u_i ← u_i − λ log(S_i/a_i): the rows of
the plan are then exact, so the column block that follows sees the *true* marginal error of that plan, |Σ_i P_ij − b_j|, at
no extra cost. Its residual f = −λ log(S_j/b_j) is mixed (transport/solvers/anderson.py), less the constant that is free.

**ε-scaling.** Far from the solution potentials travel faster at a larger λ:

    for λ' in temperatures(spread, λ):            # spread/10, spread/30, …, λ
        take steps at λ' from the v of the stage before, to a rough error; at λ itself for ever

`coarse_to_fine` takes means of neighbours in place of all points in the early stages, where a kernel has such.
Generators of states yield those of the final λ; `least_error` decides when to stop, and keeps the best of them.

[1] M. Cuturi: Sinkhorn distances. NeurIPS 2013.
[2] A. Thibault, L. Chizat, C. Dossal, N. Papadakis: Overrelaxed Sinkhorn–Knopp algorithm. Algorithms 14(5), 2021.
[3] J. J. Kosowsky, A. L. Yuille: The invisible hand algorithm. Neural Networks 7(3), 1994.
[4] B. Schmitzer: Stabilized sparse scaling algorithms for entropy regularized transport problems. SIAM J. Sci. Comput. 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from otformer.network.alternating import iterate
from otformer.transport.costs.kernel import Kernel, mass_of, nothing, reach
from otformer.transport.solvers.anderson import MIXING, Least, Mixing, Number, Safeguarded, Step, every, number

LAYERS = 2  # layers, passes over the cost, in one step
ANNEAL_ABOVE = 200.0  # spread of the costs, in units of λ, up to which λ itself is the first temperature
COOLING = 3.0  # factor from one temperature to the next
STAGE_ERROR = 1e-3  # marginal error, as a share of the mass, at which a stage above the final λ ends
STAGE_LAYERS = 200  # the most layers of such a stage
GIVE_UP_AT = {2: 0.5, 60: 0.01, 300: 0.0}  # layers at the final λ → share of the mass misplaced from which stages are better
FEWEST_POINTS = {"cuda": 16384, "cpu": 2048}  # of a coarse stage: a pass over fewer is no faster
STAGES_AFTER = {300: 0.0}  # layers at the final λ on all points, after which stages on all of them are tried
ROUGHLY = 0.25  # times tol: where a stage on the way to a rough end may stop; layers on fewer points cost less than on all
FULL_STAGE_ERROR = {"cuda": 3e-3, "cpu": 1e-3}  # marginal error, as a share of the mass, at which a stage on all points ends

State = tuple[Tensor, Tensor, Number, int]  # u, v, error, layers so far
Steps = Iterator[tuple[Tensor, Tensor, Number, Number]]  # u, v, mass still to move, error: without end
Measure = Callable[[Tensor], Number]  # |Σ_i P_ij − b_j| [..., m] → error


class Blocks:
    """Steps from v [..., m] at one λ, without end: (u, v, gaps) with exact rows and gaps_j = |Σ_i P_ij − b_j|."""

    def __init__(self, kernel: Kernel, reg: float, v: Tensor, mixing: Mixing = MIXING) -> None:
        self.kernel, self.reg, self.v = kernel, reg, v
        self.b, self._nothing = kernel.log_b.exp(), torch.zeros_like(kernel.log_a)
        self.share = self.b / self.b.sum(-1, keepdim=True)
        self.follow = Safeguarded(self.b, reach(kernel.spread, reg), mixing) if mixing.memory else None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        return ((u, v, gaps) for v, (_, _, gaps, u) in iterate(self.step, self.v, self.follow))

    def step(self, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        u = -self.reg * self.kernel.log_ratio(self._nothing, v, self.reg, rows=True)
        log_ratio = self.kernel.log_ratio(u, v, self.reg, rows=False)
        gaps = self.b * torch.expm1(log_ratio).abs()
        centred = log_ratio - (log_ratio * self.share).sum(-1, keepdim=True)
        return v - self.reg * centred, gaps.sum(-1), gaps, u


def block_steps(kernel: Kernel, reg: float, v: Tensor, mixing: Mixing, measure: Measure | None = None) -> Steps:
    """Yield the steps of `Blocks`, or a kernel's own; the error is ``measure`` of the gaps, by default their sum."""
    own = kernel.steps(reg, v, *mixing)
    if own is not None:
        yield from ((u, v, error, error) for u, v, error in own)
    for u, v, gaps in Blocks(kernel, reg, v, mixing):  # noqa: B020
        size = float(gaps.sum())
        yield u, v, size, size if measure is None else measure(gaps)


def temperatures(spread: float, reg: float) -> Iterator[float]:
    """λ of the stages: ``reg`` alone if costs are within ANNEAL_ABOVE of it; else a tenth of their range, a third of that, …

    >>> [round(t, 3) for t in temperatures(1.0, 0.01)], [round(t, 4) for t in temperatures(1.0, 0.001)]
    ([0.01], [0.1, 0.0333, 0.0111, 0.0037, 0.001])
    """
    lam = spread / 10
    while ANNEAL_ABOVE * reg < spread < math.inf and lam > 1.5 * reg:
        yield lam
        lam /= COOLING
    yield reg


def stage(steps: Steps, depth: int, limit: int, enough: Number = 0.0) -> Iterator[State]:
    """Yield the states of steps after ``depth`` layers, up to ``limit`` of them, or until ``enough`` mass is in place."""
    while depth + LAYERS <= limit:
        u, v, size, error = next(steps)
        depth += LAYERS
        yield u, v, error, depth
        if every(size < enough):
            return


def stages(
    steps_at: Callable[[float, Tensor], Steps], v: Tensor, spread: float, reg: float, mass: Number, max_depth: int
) -> Iterator[State]:
    """Take steps at falling λ, from v on, and yield the states of the final one."""
    depth = 0
    for lam in temperatures(spread, reg):
        final = lam == reg  # before it at most half of the layers: the next stage needs no more than a rough answer
        limit, enough = (max_depth, 0.0) if final else (min(depth + STAGE_LAYERS, max_depth // 2), STAGE_ERROR * mass)
        for u, v, error, depth in stage(steps_at(lam, v), depth, limit, enough):  # noqa: B020
            if final:
                yield u, v, error, depth


def least_error(states: Iterator[State], tol: float, patience: float = math.inf, drop: float = 1.0) -> State:
    """The state of least error, of each problem of a batch, with all the layers run: until that is below ``tol``.

    Abandoned if for ``patience`` layers no error fell below ``drop`` times the least earlier error.
    """
    best, least, last = None, math.inf, 0
    for u, v, error, depth in states:
        best = best or Least(u, v)
        best.see(error, u, v)
        if every(best.error < tol):
            break
        if patience < math.inf and error < drop * least:
            least, last = error, depth
        elif depth - last >= patience:
            break
    assert best is not None
    return *best.state, best.error, depth


def annealed(
    kernel: Kernel, reg: float, max_depth: int, mixing: Mixing = MIXING, measure: Measure | None = None
) -> Iterator[State]:
    """Blocks at falling λ, from v = 0; the states of the final one."""
    return stages(
        lambda lam, v: block_steps(kernel, lam, v, mixing, measure), nothing(kernel.log_b), kernel.spread, reg,
        mass_of(kernel), max_depth,
    )  # fmt: skip


def direct_then_annealed(
    kernel: Kernel, v: Tensor | None, reg: float, max_depth: int, mixing: Mixing = MIXING,
    give_up_at: Mapping[int, float] = GIVE_UP_AT, measure: Measure | None = None,
) -> Iterator[State]:  # fmt: skip
    """Blocks at the final λ from v (None: from 0); `annealed` instead, once ``give_up_at`` says that this is too far."""
    mass, depth = mass_of(kernel), 0
    first = nothing(kernel.log_b) if v is None else v
    for u, v, size, error in block_steps(kernel, reg, first, mixing, measure):
        depth += LAYERS
        yield u, v, error if math.isfinite(size) else math.inf, depth
        if depth + LAYERS > max_depth:
            return
        if not size < give_up_at.get(depth, math.inf) * mass:
            break
    for u, v, error, more in annealed(kernel, reg, max_depth - depth, mixing, measure):
        yield u, v, error, depth + more


def coarse_to_fine(kernel: Kernel, reg: float, tol: float, max_depth: int, mixing: Mixing = MIXING) -> Iterator[State]:
    """Yield what `annealed` does, with stages on fewer points where that is enough; the last one is on all points.

    The kernel decides how many points a stage needs (``strides``), at least ``FEWEST_POINTS``. The u of a stage gives
    the next one its first v, by a column block from the points of the one to those of the other. No stage on the way to
    an error of ``tol`` is much more precise than that.
    """
    mass, device = mass_of(kernel), kernel.log_b.device.type
    u, v, here, depth = nothing(kernel.log_a), nothing(kernel.log_b), kernel, 0
    before, last = (1, 1), reg  # strides along both curves, and λ, of the stage before
    for lam, coarse in [*((lam, True) for lam in temperatures(kernel.spread, reg)), (reg, False)]:
        strides = kernel.strides(lam, FEWEST_POINTS[device]) if coarse else (1, 1)
        whole = strides == (1, 1)
        final = lam == reg and whole
        if not final and max_depth // 2 - depth < 3:
            continue  # no layers remain for a stage on the way
        if strides != before:
            across, here = kernel.thinned(before[0], strides[1]), kernel.thinned(*strides)
            v = -last * across.log_ratio(u, nothing(here.log_b), last, rows=False)
            # Small numbers: a constant is free, and it would cost float32 its digits.
            v -= (v * here.log_b.exp()).sum() / mass
            v, depth = v + nothing(here.log_b), depth + 1
        before, last = strides, lam
        if final:
            states = direct_then_annealed(here, v, lam, max_depth - depth, mixing, STAGES_AFTER)
            yield from ((u, v, error, depth + layers) for u, v, error, layers in states)
            return
        enough = max((FULL_STAGE_ERROR[device] if whole else STAGE_ERROR) * mass, ROUGHLY * tol)
        limit = min(depth + STAGE_LAYERS, max_depth // 2)
        for u, v, _, depth in stage(block_steps(here, lam, v, mixing), depth, limit, enough):  # noqa: B007, B020
            pass
        if here is not kernel:
            here.release()


def fixed_point(
    step_at: Callable[[float], Step], z: Tensor, weight: Tensor, mass: Number, spread: float, reg: float, tol: float,
    max_depth: int, warm: bool = False, patience: float = math.inf,
) -> State:  # fmt: skip
    """Find the fixed point of blocks other than Sinkhorn's (damped, capped), through those of larger λ unless z is ``warm``.

    Returns the other side's potential, the iterate z of least error (of each problem), that error, and the layers run.
    """

    def steps_at(lam: float, z: Tensor) -> Steps:
        for z, (_, size, error, other) in iterate(step_at(lam), z, Safeguarded(weight, reach(spread, lam))):  # noqa: B020
            yield other, z, size, number(error)

    states = stages(steps_at, z, 0.0 if warm else spread, reg, mass, max_depth)
    return least_error(states, tol, patience, drop=0.9)
