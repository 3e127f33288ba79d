r"""ε-scaling: λ falls to its value in stages, because far from the solution potentials travel faster at a larger λ.

    for λ' in temperatures(spread, λ):            # spread/10, spread/30, …, λ
        run Sinkhorn blocks at λ' from the v of the stage before, to a rough error; at λ itself to ``tol``

Each generator yields (u, v, marginal error, layers so far) at the final λ; `least_error` keeps the best of them.

[1] J. J. Kosowsky, A. L. Yuille: The invisible hand algorithm. Neural Networks 7(3), 1994.
[2] B. Schmitzer: Stabilized sparse scaling algorithms for entropy regularized transport problems. SIAM J. Sci. Comput. 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from torch import Tensor

from otformer.transport.costs.kernel import Kernel, mass_of, nothing
from otformer.transport.solvers.anderson import Least
from otformer.transport.solvers.blocks import LAYERS, steps

State = tuple[Tensor, Tensor, float, int]  # u, v, marginal error, layers so far
ANNEAL_ABOVE = 200.0  # spread of the costs, in units of λ, up to which λ itself is the first temperature
COOLING = 3.0  # factor from one temperature to the next
STAGE_ERROR = 1e-3  # marginal error, as a share of the mass, at which a stage above the final λ ends
STAGE_LAYERS = 200  # the most layers of such a stage
GIVE_UP_AT = {2: 0.5, 60: 0.01, 300: 0.0}  # layers at the final λ → share of the mass misplaced from which stages are better


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


def least_error(states: Iterator[State], patience: float = math.inf) -> State:
    """The state of least error, with all the layers run: to the end, or until none was better for ``patience`` layers."""
    best, at = None, 0
    for u, v, error, depth in states:
        best = best or Least(u, v)
        if best.see(error, u, v):
            at = depth
        elif depth - at >= patience:
            break
    assert best is not None
    return *best.state, best.error, depth


def annealed(
    executor: Kernel, reg: float, tol: float, max_depth: int, memory: int = 32, ridge: float = 1e-12
) -> Iterator[State]:
    """Blocks at falling λ, then at the final one to ``tol``; the states of the final λ."""
    mass = mass_of(executor)
    v, depth = nothing(executor.log_b), 0
    for lam in temperatures(executor.spread, reg):
        final = lam == reg  # before it at most half of the layers: the next stage needs no more than a rough answer
        limit, enough = (max_depth, tol) if final else (min(depth + STAGE_LAYERS, max_depth // 2), STAGE_ERROR * mass)
        stage = steps(executor, lam, v, memory, ridge)
        while depth + LAYERS <= limit:
            u, v, error = next(stage)
            depth += LAYERS
            if final:
                yield u, v, error, depth
            if error < enough:
                break


def direct_then_annealed(
    executor: Kernel, v: Tensor | None, reg: float, tol: float, max_depth: int, memory: int = 32, ridge: float = 1e-12,
    give_up_at: Mapping[int, float] = GIVE_UP_AT,
) -> Iterator[State]:  # fmt: skip
    """Blocks at the final λ from v (None: from 0); `annealed` instead, once ``give_up_at`` says that this is too far."""
    mass, depth = mass_of(executor), 0
    first = nothing(executor.log_b) if v is None else v
    for u, v, error in steps(executor, reg, first, memory, ridge):
        depth += LAYERS
        yield u, v, error if math.isfinite(error) else math.inf, depth
        if error < tol or depth + LAYERS > max_depth:
            return
        if not error < give_up_at.get(depth, math.inf) * mass:
            break
    for u, v, error, more in annealed(executor, reg, tol, max_depth - depth, memory, ridge):
        yield u, v, error, depth + more
