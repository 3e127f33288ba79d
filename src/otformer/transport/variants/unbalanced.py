"""Unbalanced transport: the marginals are penalised instead of fixed, as in POT's ``sinkhorn_unbalanced``.

solvers/damped.py has the problem, the blocks that solve it and the proof that they do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from otformer import checks
from otformer.callers import own_keywords
from otformer.memory import needs
from otformer.transport.choose import solve_problem
from otformer.transport.needs import VARIANT, of_cost
from otformer.transport.problem.read import read_cost
from otformer.transport.result.result import Result
from otformer.transport.types import Goal, Penalty, to_numpy


@own_keywords
@needs(lambda M, **_: of_cost(M, VARIANT))
def solve_unbalanced(
    M: Any,
    a: Any = None,
    b: Any = None,
    reg: float | Tensor = 0.1,
    reg_m: float | tuple[float, float] = 1.0,
    tol: float = 1e-6,
    max_depth: int = 10_000,
    reg_type: str = "kl",
    mask: Any = None,
) -> Result:
    """Entropic transport with penalised marginals: min Σ P M + λ KL(P|R) + ρ_a KL(P1|a) + ρ_b KL(Pᵀ1|b).

    Parameters
    ----------
    M, a, b, reg, max_depth, mask
        As in `solve`, but a and b may have any masses; by default uniform with mass 1.
    reg_m : float or pair
        ρ or (ρ_a, ρ_b). One of the two may be infinite: that marginal is then exact.
    tol : float
        For ``error``, which bounds max|g − g*|/λ and max|f − f*|/λ: every entry of the plan is within a factor
        exp(2·error) of the exact one.
    reg_type : str
        As in POT, ``"kl"`` (R = a bᵀ, POT's default) or ``"entropy"`` (R = 1).

    Returns
    -------
    Result
        ``potentials`` are (f, g) with P_ij = R_ij exp((f_i + g_j − M_ij)/λ); ``value`` is the minimum, KL with its masses.
        The value is differentiable once in tensors M, a, b and reg; differentiating any other part of the result is an
        error.

    Examples
    --------
    >>> r = solve_unbalanced([[0.0, 4.0], [4.0, 0.0]], [1.0, 1.0], [1.0, 2.0], reg=0.1, reg_m=1.0)
    >>> r.converged, [round(s, 3) for s in r.plan.sum(0).tolist()]
    (True, [1.0, 1.438])
    """
    checks.choice("reg_type", reg_type, ("kl", "entropy"))
    penalty = read_penalty(reg_m, reg_type == "kl")
    problem = read_cost(M, a, b, reg, mask=mask, penalty=penalty)
    return solve_problem(problem, Goal.read(tol, max_depth))


def read_penalty(reg_m: Any, relative: bool = True) -> Penalty:
    """ρ or (ρ_a, ρ_b), checked."""
    if isinstance(reg_m, Tensor):
        checks.no_transforms("reg_m", reg_m)
    try:
        given = np.empty(0) if checks.derivative_wanted(reg_m) else to_numpy(checks.array("reg_m", reg_m))
    except ValueError:
        given = np.empty(0)
    good = given.dtype.kind in "iuf" and given.ndim <= 1 and given.size in (1, 2)
    if not good or not bool((given > 0).all()) or float(given.min()) == math.inf:
        expected = "one or two positive numbers (no gradient), at most one of them infinite"
        raise checks.ArgumentError("reg_m, or unbalanced,", f"be {expected}", " ".join(repr(reg_m).split()))
    return Penalty(float(given.flat[0]), float(given.flat[-1]), relative)
