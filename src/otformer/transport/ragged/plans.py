"""Plans of a stack of problems as a differentiable function: what the layers of otformer.nn compute."""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import callers, checks
from otformer.transport.choose import solve_problem
from otformer.transport.derivatives.implicit import Potentials, log_plan
from otformer.transport.problem.read import read_cost
from otformer.transport.solvers.stacked import (
    ALONE_ABOVE,
    STACK_ENTRIES,
    WIDEST_SPREAD,
    annealing_steps,
    solve_stacked,
)
from otformer.transport.types import ABSENT_WEIGHT, Goal

PLAN_ROUNDING = 1e-6  # of the mass: marginal error of a plan whose potentials converged, up to which it is as it should be


def plans(C: Tensor, a: Tensor, b: Tensor, reg: Tensor, tol: float, max_depth: int) -> Tensor:
    """Entropic plans [B, n, m] of costs C [B, n, m] and weights a [B, n], b [B, m], float64, checked.

    Differentiable in all four tensors, by implicit differentiation. b is scaled to the mass of a first. A point without
    mass is absent: its row or column of the plan is 0, and so is the gradient in its costs.
    """
    if not C.numel():
        return torch.zeros_like(C)
    mass = a.sum(1, keepdim=True)
    there = (a > 0)[:, :, None] & (b > 0)[:, None, :]
    least = ABSENT_WEIGHT * mass.detach()  # of an absent point: far below rounding, and its potential is finite
    a, b = torch.maximum(a, least), torch.maximum(b * (mass / b.sum(1, keepdim=True)), least)
    low = torch.where(there, C.detach(), torch.inf).amin((1, 2), keepdim=True)
    C = torch.where(there, C - low, 0.0)  # only differences of costs matter
    reg = reg.to(C)
    u, v = _potentials(C.detach(), a.detach(), b.detach(), float(reg.detach()), tol, max_depth)
    if checks.derivative_wanted(C, a, b, reg):
        u, v = Potentials.apply(C, a, b, reg, u, v)
    return torch.where(there, log_plan(C, u, v, reg).exp(), 0.0)


def _potentials(C: Tensor, a: Tensor, b: Tensor, reg: float, tol: float, max_depth: int) -> tuple[Tensor, Tensor]:
    """u [B, n], v [B, m]; in stacks, and one by one where a problem is large or a stack has left it."""
    u, v = torch.zeros_like(a), torch.zeros_like(b)
    left, kind = list(range(len(C))), C.device.type
    if C[0].numel() <= ALONE_ABOVE[kind] and float(C.max()) < WIDEST_SPREAD * reg:
        goal, room = tol * a.sum(1).clamp_max(1), STACK_ENTRIES[kind] // C[0].numel()
        left = []
        for start in range(0, len(C), room):
            part = slice(start, start + room)
            falls = int(annealing_steps(float(C[part].max()), reg))
            costs, *weights, enough = (t[part] if C.is_cuda else t[part].numpy() for t in (C, a, b, goal))
            found = solve_stacked(costs, weights[0], weights[1], reg, enough, max_depth, falls)
            u[part], v[part] = checks.local(found.u), checks.local(found.v)
            left += (checks.local(~found.done).nonzero()[:, 0] + start).tolist()
    errors = []
    for k in left:
        problem = read_cost(C[k], a[k], b[k], reg)
        result = solve_problem(problem, Goal.read(tol, max_depth, problem.mass), warn=False)
        u[k], v[k] = result.potentials
        P = log_plan(C[k], u[k], v[k], checks.local(reg)).exp()  # rounded otherwise than the result's, where C ≫ λ
        error = float((P.sum(1) - a[k]).abs().sum() + (P.sum(0) - b[k]).abs().sum())
        if not (result.converged and error <= max(tol, PLAN_ROUNDING) * float(a[k].sum())):
            errors.append(max(error, result.marginal_error))
    if errors:
        callers.warn(
            f"not converged: {len(errors)} of {len(C)} problems, marginal error up to {max(errors):.3g}, tol is {tol:g}; "
            "raise reg, tol or max_depth"
        )
    return u, v
