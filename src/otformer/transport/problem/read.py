r"""Reading once: whatever a caller can hand over becomes a checked `Problem`.

Costs as a matrix, or points with the name of a cost (read_points.py); lists, numpy arrays or tensors, in either precision,
on a CPU or a GPU; weights that may be missing, or 0 for some points; pairs that may be forbidden; potentials of an earlier
problem. The cost is scanned once for its minimum and maximum; NaN shows up there.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import checks, memory
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
from otformer.transport.problem.weights import Weights, read_weights, scaled_to
from otformer.transport.types import Array, Form, Inputs, Penalty, Problem, Support

SMALL = 200**3  # n·m·min(n, m), the multiplications in one Newton matrix: up to here a problem is solved in numpy
WIDEST_RANGE = 1e300  # of finite costs: sums and multiples of them stay finite
FEW_BITS_LEFT = 2.0**-26  # of the largest cost: what is smaller keeps 26 bits beside it
MOST_RATIO = 2.0**50  # of the range of costs and λ: beyond, a logit has no digit after the point
UNNOTICED = 1e-6  # of λ: an error of a cost that changes no plan by more than that
REVERSE_ONLY = "use torch.autograd.grad, or a balanced solve with reg > 0 on a matrix (executor='dense')"
CPU = torch.device("cpu")
A_BATCH = ": for a batch there are solve_batch and nn.Transport"


def is_small(n: int, m: int) -> bool:
    """Whether Newton steps cost no more than the calls of other layers."""
    return n * m * min(n, m) <= SMALL


class Given(NamedTuple):
    """What a caller gives beside the cost; only λ and labels are read yet."""

    a: Any
    b: Any
    reg: Any
    lam: float | None
    potentials: Any
    mask: Any
    labels: Labels | None
    penalty: Penalty | None
    balanced: bool  # whether both sides must have the same mass

    def wants_derivatives(self) -> bool:
        """Whether a derivative is wanted in a weight or λ; most often there is no tensor to ask."""
        others = self.a is not None or self.b is not None or not (self.reg is None or type(self.reg) is float)
        return others and checks.derivative_wanted(self.a, self.b, self.reg)


def read_cost(
    M: Any, a: Any = None, b: Any = None, reg: Any = 0.1, *, potentials: Any = None, mask: Any = None,
    labels: Labels | None = None, balanced: bool = True, penalty: Penalty | None = None,
) -> Problem:  # fmt: skip
    """The problem of a cost matrix M (n, m), or of `Features`; +inf, or False in ``mask`` (n, m), forbids a pair.

    ``reg`` None asks for the optimum of Σ P M itself; ``balanced`` is whether both sides must have the same mass, which a
    ``penalty`` does not ask for.
    """
    given = Given(a, b, reg, read_reg(reg), potentials, mask, labels, penalty, balanced and penalty is None)
    cost = given_cost(M)
    if cost is not None:
        return _cost_problem(cost, given)
    if isinstance(M, Features):
        M = not_low(M).cost()
    M = unmasked(M)
    if not given.balanced:
        checks.no_tangents(REVERSE_ONLY, M=M, a=a, b=b, reg=reg)
    C = checks.array("M", M, differentiable=True)
    single = C.dtype == torch.float32 if isinstance(C, Tensor) else C.dtype.char == "f"
    form = Form(M.device if isinstance(M, Tensor) else None, single)
    return matrix_problem(C, form, M if form.device is not None and checks.derivative_wanted(M) else None, given)


def _cost_problem(cost: Cost, given: Given) -> Problem:
    """The problem of a cost that is an object."""
    a, b, reg = given[:3]
    if given.mask is not None or given.labels is not None:
        name, instead = "labels" if given.mask is None else "mask", "its verb `allowed` says which pairs are allowed"
        raise checks.ArgumentError(name, f"be None where M is a Cost, here {type(cost).__name__}", advice=instead)
    checks.no_tangents(REVERSE_ONLY, a=a, b=b, reg=reg)
    check_digits(given.lam, cost.spread)
    device, tensors = cost.device, cost.tensors or any(isinstance(t, Tensor) for t in (a, b, reg))
    weights = read_weights(a, b, cost.shape, device, given.balanced)
    support, blocks = weights.support, None
    cost = cost if support is None else cost.take(support.rows, support.columns)
    pairs = cost.allowed()
    if pairs is not None:
        rows, columns = (np.bincount(at, minlength=n) > 0 for at, n in zip(pairs, cost.shape, strict=True))
        check_served(checks.local(rows), checks.local(columns), support)
        blocks = connected(*pairs, cost.shape, support) if given.balanced else None
    if blocks is not None:
        blocks, weights = blocks.fitted(weights, device, given.balanced)
    form = Form(device if tensors or device.type != "cpu" else None, single=False)
    return problem_of(cost, given, weights, form, () if given.wants_derivatives() else None, blocks)


def not_low(features: Features) -> Features:
    """Features that are not computed with in low precision."""
    if features.x.dtype in checks.LOW:
        raise checks.ArgumentError("cost", "be Features in float32 or float64", features.x.dtype, "of_points(x.float(), …)")
    return features


def matrix_problem(C: Array, form: Form, moving: Tensor | None, given: Given) -> Problem:
    """The problem of a cost matrix; ``moving`` is the same as a tensor with a graph, where a gradient is wanted in it."""
    if C.ndim != 2:
        order = "the order is M, a, b" if C.ndim == 1 and len(memory.shape(given.b, 1)) == 2 else ""
        raise checks.ArgumentError("M", "have shape (n, m)", f"{tuple(C.shape)}{(A_BATCH if C.ndim == 3 else '')}", order)
    n, m = C.shape
    if (n == 0) != (m == 0):
        raise checks.ArgumentError("M", "have rows and columns, or neither", f"shape {(n, m)}", "mass has nowhere to go")
    device = C.device if isinstance(C, Tensor) else None
    weights = read_weights(given.a, given.b, (n, m), device, given.balanced)
    support, labels = weights.support, given.labels
    if given.mask is not None:
        C = masked(C, given.mask)
    if labels is not None:
        C = masked(C, labels.allowed())
        labels, weights = labels.fitted(weights, device, given.balanced)
    if support is not None:
        C = C[support.rows][:, support.columns]
    if support is not None and moving is not None:
        moving = moving[checks.local(support.rows)][:, checks.local(support.columns)]
    low, high = 0.0, 0.0
    if n:  # the one look at all costs
        low, high = torch.stack(torch.aminmax(C)).tolist() if isinstance(C, Tensor) else (float(C.min()), float(C.max()))
    forbids = not (math.isfinite(low) and math.isfinite(high))
    if forbids:
        high = greatest_allowed(C, low)
        check_reachable(C, support)
        blocks = parts(C, support) if given.balanced else None
        if blocks is not None:
            labels, weights = blocks.fitted(weights, device, given.balanced)
    check_ratio(given.lam, high - low)
    low = low if low >= 0 else _shift(C, low, given.lam)
    C = C.double() - low if isinstance(C, Tensor) else np.subtract(C, low, dtype=np.float64, order="C")
    inputs = None
    if moving is not None or given.wants_derivatives():
        own = checks.local(C) if moving is None else moving.double() - low
        inputs = (torch.where(checks.local(C).isinf(), math.inf, own) if forbids else own,)
    problem = problem_of(MatrixCost(C, low, high - low), given, weights, form, inputs, labels)
    return problem.as_tensors() if device is None and n * m * min(n, m) > SMALL else problem


def problem_of(
    cost: Cost, given: Given, weights: Weights, form: Form, inputs: tuple[Tensor, ...] | None, labels: Labels | None
) -> Problem:
    """The problem of a cost between the points that have mass.

    ``inputs`` are the tensors that the cost is a function of, None where no derivative is wanted of the problem; ``labels``
    are those by which b was scaled to the mass of a.
    """
    wanted, start, a = None, None, weights.a
    device = a.device if isinstance(a, Tensor) else CPU
    if inputs is not None:
        form, wanted = Form(device, form.single), _inputs(inputs, given, weights, labels, device)
    if given.potentials is not None:
        u, v = _read_potentials(given.potentials, (len(a), len(weights.b)), weights.support, device)
        start = cost.started(u, v, math.inf if given.lam is None else given.lam)
    return Problem(
        cost, a, weights.b, weights.target, given.lam, weights.mass, form, weights.support, wanted, start, given.penalty
    )


def _inputs(cost: tuple[Tensor, ...], given: Given, weights: Weights, labels: Labels | None, device: torch.device) -> Inputs:
    """Tensors with their graphs; weights that want no gradient are those read."""
    sides = []
    for k, (own, read) in enumerate(((given.a, weights.a), (given.b, weights.target))):
        if checks.derivative_wanted(own):
            w = own.double()
            sides.append(w if weights.support is None else w[torch.as_tensor(weights.support[k], device=device)])
        else:
            sides.append(torch.as_tensor(read, device=device))
    a, b = sides
    if given.balanced:
        b = scaled_to(a, b) if labels is None else labels.scaled(a, b)
    reg = torch.as_tensor(0.0 if given.reg is None else given.reg, dtype=torch.float64, device=device).reshape(())
    return Inputs(cost, a, b, reg)


def _read_potentials(
    potentials: Any, shape: tuple[int, int], support: Support | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """(u, v) of an earlier, similar problem, checked, of the points that have mass; −inf is what an absent point has."""
    try:
        u, v = (checks.unseen("potentials", t).detach().to(device, torch.float64) for t in potentials)
    except (TypeError, ValueError, RuntimeError):
        raise checks.ArgumentError("potentials", "be a pair of arrays (u, v)", type(potentials).__name__) from None
    n, m = shape if support is None else support.shape
    if u.shape != (n,) or v.shape != (m,):
        raise checks.ArgumentError("potentials", f"have shapes {(n,)} and {(m,)}, got {tuple(u.shape)} and {tuple(v.shape)}")
    if not all(bool((t < torch.inf).all()) for t in (u, v)):
        raise checks.ArgumentError("potentials", "be numbers or −inf", "nan or +inf among them")
    return (u, v) if support is None else (u[checks.local(support.rows)], v[checks.local(support.columns)])


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
