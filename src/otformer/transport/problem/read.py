r"""Reading once: whatever a caller can hand over becomes a checked `Problem`.

Costs as a matrix, or points with the name of a cost (read_points.py); lists, numpy arrays or tensors, in either precision,
on a CPU or a GPU; weights that may be missing, or 0 for some points; pairs that may be forbidden; potentials of an earlier
problem. The cost is scanned once for its minimum and maximum; NaN shows up there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.network.features import Features
from otformer.transport.costs.cost import Cost, given_cost
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.problem.forbidden import (
    check_reachable,
    check_served,
    connected,
    greatest_allowed,
    masked,
    parts,
    unmasked,
)
from otformer.transport.problem.labels import Labels
from otformer.transport.problem.potentials import read_potentials
from otformer.transport.problem.weights import Weights, read_weights
from otformer.transport.types import Array, Form, Inputs, Penalty, Problem, Support

SMALL = 200**3  # n·m·min(n, m), the multiplications in one Newton matrix: up to here a problem is solved in numpy
WIDEST_RANGE = 1e300  # of finite costs: sums and multiples of them stay finite
FEW_BITS_LEFT = 2.0**-26  # of the largest cost: what is smaller keeps 26 bits beside it
MOST_RATIO = 2.0**50  # of the range of costs and λ: beyond, a logit has no digit after the point
UNNOTICED = 1e-6  # of λ: an error of a cost that changes no plan by more than that
REVERSE_ONLY = "use torch.autograd.grad, or a balanced solve with reg > 0 on a matrix (executor='dense')"
A_BATCH = ": for a batch there are solve_batch and nn.Transport"


def is_small(n: int, m: int) -> bool:
    """Whether Newton steps cost no more than the calls of other layers."""
    return n * m * min(n, m) <= SMALL


def read_cost(
    M: Any, a: Any = None, b: Any = None, reg: Any = 0.1, *, potentials: Any = None, mask: Any = None,
    labels: Labels | None = None, balanced: bool = True, penalty: Penalty | None = None,
) -> Problem:  # fmt: skip
    """The problem of a cost matrix M (n, m), or of `Features`; +inf, or False in ``mask`` (n, m), forbids a pair.

    ``reg`` None asks for the optimum of Σ P M itself; ``balanced`` is whether both sides must have the same mass, which a
    ``penalty`` does not ask for.
    """
    balanced = balanced and penalty is None
    cost = given_cost(M)
    if cost is not None:
        return _cost_problem(cost, a, b, reg, potentials, mask, labels, balanced, penalty)
    if isinstance(M, Features):
        M = not_low(M).cost()
    M = unmasked(M)
    if not balanced:
        checks.no_tangents(REVERSE_ONLY, M=M, a=a, b=b, reg=reg)
    C = checks.array("M", M, differentiable=True)
    single = C.dtype == torch.float32 if isinstance(C, Tensor) else C.dtype.char == "f"
    form = Form(M.device if isinstance(M, Tensor) else None, single)
    moving = M if form.device is not None and checks.derivative_wanted(M) else None
    return matrix_problem(
        C, form, moving, a, b, reg, potentials=potentials, mask=mask, labels=labels, balanced=balanced, penalty=penalty
    )


def _cost_problem(
    cost: Cost, a: Any, b: Any, reg: Any, potentials: Any, mask: Any, labels: Labels | None, balanced: bool,
    penalty: Penalty | None,
) -> Problem:  # fmt: skip
    """The problem of a cost that is an object."""
    if mask is not None or labels is not None:
        raise checks.ArgumentError("mask and labels", f"be None where M, a {type(cost).__name__}, forbids pairs itself")
    checks.no_tangents(REVERSE_ONLY, a=a, b=b, reg=reg)
    lam, device, tensors = read_reg(reg), cost.device, cost.tensors or any(isinstance(t, Tensor) for t in (a, b, reg))
    check_digits(lam, cost.spread)
    weights = read_weights(a, b, cost.shape, device, balanced)
    start = None if potentials is None else read_potentials(potentials, *(weights.a.new_empty(n) for n in cost.shape))
    support, together = weights.support, None
    if support is not None:
        cost = cost.take(support.rows, support.columns)
        start = None if start is None else (start[0][support.rows], start[1][support.columns])
    pairs = cost.allowed()
    if pairs is not None:
        rows, columns = (np.bincount(at, minlength=n) > 0 for at, n in zip(pairs, cost.shape, strict=True))
        check_served(checks.local(rows), checks.local(columns), support)
        together = connected(*pairs, cost.shape, support) if balanced else None
    if together is not None:
        together, weights = together.fitted(weights._replace(support=None), device, balanced)
        weights = weights._replace(support=support)
    form, wanted = Form(device if tensors or device.type != "cpu" else None, single=False), None
    if checks.derivative_wanted(a, b, reg):
        wanted = inputs_of((), a, b, reg, weights, device, balanced, together)
    start = None if start is None else cost.started(*start, math.inf if lam is None else lam)
    return Problem(cost, weights.a, weights.b, weights.target, lam, weights.mass, form, support, wanted, start, penalty)


def not_low(features: Features) -> Features:
    """Features that are not computed with in low precision."""
    if features.x.dtype in checks.LOW:
        raise checks.ArgumentError("cost", "be Features in float32 or float64", features.x.dtype, "of_points(x.float(), …)")
    return features


def matrix_problem(
    C: Array, form: Form, moving: Tensor | None, a: Any, b: Any, reg: Any, *, potentials: Any, mask: Any,
    labels: Labels | None, balanced: bool, penalty: Penalty | None,
) -> Problem:  # fmt: skip
    """The problem of a cost matrix; ``moving`` is the same as a tensor with a graph, where a gradient is wanted in it."""
    if C.ndim != 2:
        raise checks.ArgumentError("M", "have shape (n, m)", f"{tuple(C.shape)}{(A_BATCH if C.ndim == 3 else '')}")
    n, m = C.shape
    if (n == 0) != (m == 0):
        raise checks.ArgumentError("M", "have rows and columns, or neither", f"shape {(n, m)}", "mass has nowhere to go")
    lam = reg if type(reg) is float and 1e-300 < reg <= 1e300 else read_reg(reg)
    device = C.device if isinstance(C, Tensor) else None
    weights = read_weights(a, b, (n, m), device, balanced)
    support = weights.support
    if mask is not None:
        C = masked(C, mask)
    if labels is not None:
        C = masked(C, labels.allowed())
        labels, weights = labels.fitted(weights, device, balanced)
    if support is not None:
        C = C[support.rows][:, support.columns]
    low, high, forbids = 0.0, 0.0, False
    if n:  # the one look at all costs
        low, high = torch.stack(torch.aminmax(C)).tolist() if isinstance(C, Tensor) else (float(C.min()), float(C.max()))
    if not (math.isfinite(low) and math.isfinite(high)):
        high, forbids = greatest_allowed(C, low), True
    if forbids:
        check_reachable(C, support)
        together = parts(C, support) if balanced else None
        if together is not None:
            labels, weights = together.fitted(weights._replace(support=None), device, balanced)
            weights = weights._replace(support=support)
    if not (high - low <= WIDEST_RANGE and (lam is None or (high - low) / lam < math.inf)):
        check_ratio(lam, high - low)
    low = low if low >= 0 else _shift(C, low, lam)
    C = C.double() - low if isinstance(C, Tensor) else np.subtract(C, low, dtype=np.float64, order="C")
    wanted = None
    others = a is not None or b is not None or not (reg is None or type(reg) is float)
    if moving is not None or (others and checks.derivative_wanted(a, b, reg)):
        cost = checks.local(C) if moving is None else moving.double() - low
        cost = (
            cost if support is None or moving is None else cost[checks.local(support.rows)][:, checks.local(support.columns)]
        )
        cost = torch.where(checks.local(C).isinf(), math.inf, cost) if forbids else cost
        wanted = inputs_of((cost,), a, b, reg, weights, cost.device, balanced, labels)
        form = Form(cost.device, form.single)
    found = MatrixCost(C, low, high - low)
    start = None if potentials is None else _started(found, potentials, (n, m), support, lam)
    problem = Problem(found, weights.a, weights.b, weights.target, lam, weights.mass, form, support, wanted, start, penalty)
    return problem.as_tensors() if device is None and n * m * min(n, m) > SMALL else problem


def _started(
    cost: MatrixCost, potentials: Any, shape: tuple[int, int], support: Support | None, reg: float | None
) -> tuple[Array, Array] | None:
    """Potentials of an earlier, similar problem, as a start for this one."""
    like = checks.local(cost.dense)
    u, v = read_potentials(potentials, *(like.new_empty(size) for size in shape))
    if support is not None:
        u, v = u[checks.local(support.rows)], v[checks.local(support.columns)]
    return cost.started(u, v, math.inf if reg is None else reg)


def _shift(C: Array, low: float, reg: float | None) -> float:
    """What to subtract from all costs: the least, unless the digits of many others would go with it."""
    if reg is None:
        return 0.0  # exact solves take costs as they are
    small = int(((abs(C) <= FEW_BITS_LEFT * -low) & (C != 0)).sum())
    if 2 * small >= min(C.shape) and math.ulp(low) > UNNOTICED * reg:
        lost = f"float64 resolves {math.ulp(low):.2g} beside it, and reg is {reg:g}; an exact solve keeps all digits"
        raise checks.ArgumentError("M", "have no entry so low that others lose their digits", f"{low:g}", lost)
    return low


def read_reg(reg: Any) -> float | None:
    """λ as a number; None stays None."""
    if reg is None or (type(reg) is float and 1e-300 < reg <= 1e300):
        return reg
    lam = checks.positive("reg", reg.detach() if isinstance(reg, Tensor) else reg)
    if lam > 1e300:
        raise checks.ArgumentError("reg", "be at most 1e300", f"{lam:g}")
    return lam


def check_ratio(reg: float | None, spread: float) -> None:
    """Nothing may overflow: neither costs over λ, nor what stands for a forbidden pair, which is larger than all costs."""
    if spread > WIDEST_RANGE:
        raise checks.ArgumentError("costs", "lie less than 1e300 apart", f"a range of {spread:g}")
    if reg is not None and not spread / reg < math.inf:
        raise checks.ArgumentError("reg", "be so large that cost/reg is finite", f"{reg:g}", f"costs are {spread:g} apart")


def check_digits(reg: float | None, spread: float) -> None:
    """Potentials of the size of costs must have digits left for the plan, where only they are kept of it."""
    check_ratio(reg, spread)
    if reg is not None and not spread <= MOST_RATIO * reg:
        apart = f"costs may be {spread / reg:.2g} times reg apart"
        raise checks.ArgumentError("reg", "be at least 2⁻⁵⁰ of the range of the costs", f"{reg:g}", apart)


def inputs_of(
    cost: tuple[Tensor, ...], a: Any, b: Any, reg: Any, weights: Weights, device: torch.device, balanced: bool = True,
    labels: Labels | None = None,
) -> Inputs:  # fmt: skip
    """Tensors with their graphs; weights that want no gradient are those read."""
    support = weights.support
    sides = []
    for k, (given, read) in enumerate(((a, weights.a), (b, weights.target))):
        if checks.derivative_wanted(given):
            w = given.double()
            sides.append(w if support is None else w[torch.as_tensor(support[k], device=device)])
        else:
            sides.append(torch.as_tensor(read, device=device))
    w_a, target = sides
    w_b = target * (w_a.sum() / target.sum()) if len(target) and balanced else target
    if labels is not None and balanced:
        w_b = labels.scaled(w_a, target)
    return Inputs(
        cost, w_a, w_b, torch.as_tensor(0.0 if reg is None else reg, dtype=torch.float64, device=device).reshape(())
    )
