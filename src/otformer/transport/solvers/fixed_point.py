"""Fixed points of blocks that are not Sinkhorn's own (damped, capped), by safeguarded Anderson mixing, at falling λ."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from otformer import checks
from otformer.network.alternating import iterate
from otformer.transport.costs.kernel import reach
from otformer.transport.solvers.anderson import Least, Safeguarded, Step, every, number
from otformer.transport.solvers.annealing import STAGE_ERROR, STAGE_LAYERS, temperatures
from otformer.transport.solvers.blocks import LAYERS


def descend(
    blocks: Callable[[float], Step], z: Tensor, weight: Tensor, mass: Tensor, spread: float, reg: float, tol: float,
    max_depth: int, near: bool = False, patience: float = math.inf,
) -> tuple[Tensor, Tensor, Tensor, int]:  # fmt: skip
    """The fixed point of ``blocks(reg)`` to an error of ``tol``, reached through those of larger λ, unless z is ``near`` it.

    Given up where no error was below nine tenths of the least before it for ``patience`` layers.
    Returns the iterate z of least error (of each problem), the other side's potential, that error, and the layers run.
    """
    depth, last, least = 0, 0, math.inf
    for lam in [reg] if near else temperatures(spread, reg):
        final = lam == reg
        limit, enough = (max_depth, tol) if final else (min(depth + STAGE_LAYERS, max_depth // 2), STAGE_ERROR * mass)
        best, steps = None, iterate(blocks(lam), z, Safeguarded(weight, reach(spread, lam)))
        while depth + LAYERS <= limit:
            z, (_, size, error, other) = next(steps)
            depth += LAYERS
            best = best or Least(z, other)
            best.see(number(error), z, other)
            if every((best.error if final else size) < enough):
                break
            if final and patience < math.inf:
                if (worst := float(checks.local(best.error).max())) < 0.9 * least:
                    least, last = worst, depth
                elif depth - last >= patience:
                    break
    assert best is not None
    return *best.state, checks.local(best.error), depth
