r"""Problems of `balance` that are not small, or not done: the stacks of the batch engine, then one by one.

With C = (max L − L)/τ and λ = 1 the plan is P = exp(u + v − C − 1), so f = u − 1 and g = v. Forbidden entries
have C = ∞.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otformer import checks
from otformer.network.alternating import iterate
from otformer.transport.choose import choose, solve_problem
from otformer.transport.derivatives.implicit import decompose_marginals
from otformer.transport.problem.read import read_cost
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.solvers.mixed import Mixed
from otformer.transport.solvers.stacked import ALONE_ABOVE, STACK_ENTRIES, WIDEST_SPREAD, annealing_steps, solve_stacked
from otformer.transport.types import ABSENT_WEIGHT, Goal

LAST_STEPS = 100  # Sinkhorn steps for what nothing else has solved
NEAR_LAYERS = 200  # of mixed blocks from where most of the mass is in place: then Newton steps, of which few are needed


def solve(
    logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, tol: float, max_depth: int, P: Tensor, f: Tensor, g: Tensor
) -> Tensor:
    """Leaves all of it to `finish`."""
    return torch.full((len(logits),), torch.inf, dtype=torch.float64, device=logits.device)


def finish(
    logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, tol: float, max_depth: int, P: Tensor, f: Tensor, g: Tensor,
    error: Tensor, left: Tensor,
) -> None:  # fmt: skip
    """Fills P, f, g and error of the problems ``left``, with the best that is found."""

    def take(k: Tensor, X: Tensor, w_a: Tensor, w_b: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Which of the problems k are not done."""
        plan = _plan(X, u, v)
        off = [(plan.sum(axis) - w).abs().amax(1) for axis, w in ((2, w_a), (1, w_b))]
        found = (torch.maximum(*off) / torch.maximum(w_a.amax(1), w_b.amax(1))).to(error)
        lost = [((plan.sum(axis) == 0) & (w > 0)).any(1) for axis, w in ((2, w_a), (1, w_b))]  # no plan: a row of zeros
        better = ~(found >= error[k]) & found.isfinite() & ~(lost[0] | lost[1])
        to = k[better]
        error[to], P[to], f[to], g[to] = found[better], plan[better].to(P), u[better].to(f), v[better].to(g)
        return ~(error[k] <= tol)

    for k in left.split(_room(logits)):
        X, _, w_a, w_b = _read(logits, temperature, a, b, k)
        u, v = _potentials(X, w_a, w_b, tol, max_depth)
        still = take(k, X, w_a, w_b, u, v)
        # Perhaps only a row of less weight than tol is missing: steps from v. Perhaps v is mere rounding: steps from 0.
        for _ in range(2):
            if bool(still.any()):
                k, X, w_a, w_b, v = (t[still] for t in (k, X, w_a, w_b, v))
                still = take(k, X, w_a, w_b, *_sinkhorn(X, w_a, w_b, v.nan_to_num(0.0, 0.0, 0.0), max_depth // LAYERS))
                v = torch.zeros_like(v)


def _potentials(X: Tensor, a: Tensor, b: Tensor, tol: float, max_depth: int) -> tuple[Tensor, Tensor]:
    """f, g of a stack that fits the engine; an absent point has as little weight as rounding forgets."""
    C, forbidden = -X, torch.zeros(len(X), dtype=torch.bool, device=X.device)
    if not math.isfinite(spread := float(C.max())):
        C = torch.where((a > 0)[:, :, None] & (b > 0)[:, None, :], C, 0.0)
        forbidden = C.isinf().any(2).any(1)
        spread = float(torch.where(C.isinf(), 0.0, C).max())
    least = ABSENT_WEIGHT * a.sum(1, keepdim=True)
    weights = [torch.maximum(w, least) for w in (a, b)]
    goal, kind = tol * torch.maximum(a.amax(1), b.amax(1)), X.device.type
    u, v, done = torch.zeros_like(a), torch.zeros_like(b), torch.zeros_like(goal, dtype=torch.bool)
    falls = int(annealing_steps(spread, 1.0))
    near = falls > 0 and _near(C, *weights)
    if X[0].numel() <= ALONE_ABOVE[kind] and spread < WIDEST_SPREAD:
        c, w_a, w_b, enough = (t if X.is_cuda else t.numpy() for t in (C, *weights, goal))
        for stages in (0, falls) if near else (falls,):
            found = solve_stacked(c, w_a, w_b, 1.0, enough, max_depth, stages)
            if bool(found.done.all()):
                break
        u, v, done = (checks.local(t) for t in (found.u, found.v, found.done))
    # With forbidden entries there may be no solution, and then there is no end to looking for it.
    for k in (~(done | forbidden)).nonzero()[:, 0].tolist():
        problem = read_cost(C[k], a[k], b[k], 1.0)
        solver = choose(problem)
        if near and solver == Mixed():
            solver = Mixed(newton_after=NEAR_LAYERS)
        result = solve_problem(problem, Goal.read(float(goal[k]), max_depth, problem.mass), solver, warn=False)
        u[k], v[k] = (checks.local(t).to(u) for t in result.potentials)
    return torch.where(a > 0, u - 1, 0.0), torch.where(b > 0, v, 0.0)


def _near(C: Tensor, a: Tensor, b: Tensor) -> bool:
    """Whether every plan with exact rows that v = 0 gives has three quarters of the mass in place, as `newton` asks."""
    columns = (a[:, None, :] @ (b.log()[:, None, :] - C).softmax(2))[:, 0]
    return bool(((columns - b).abs().sum(1) < b.sum(1) / 2).all())


def _sinkhorn(X: Tensor, a: Tensor, b: Tensor, g: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """f, g after some steps from g, with logarithms: never a row or column without mass, whatever X is."""

    def step(g: Tensor) -> tuple[Tensor, Tensor]:  # each side anew, not by its change: rounding must not add up
        f = torch.where(a > 0, a.log() - (X + g[:, None, :]).logsumexp(2), 0.0)
        return torch.where(b > 0, b.log() - (X + f[:, :, None]).logsumexp(1), 0.0), f

    for _, (g, f) in iterate(step, g, most=min(steps, LAST_STEPS)):  # noqa: B007, B020
        pass
    return f, g


def backward(
    G: Tensor, logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor,
    Y: Tensor, w_u: Tensor, w_v: Tensor, heat: Tensor,
) -> None:  # fmt: skip
    """Fills Y, the gradient in logits, w_u and w_v, those in a and b, and heat [B], that in the temperature."""
    for k in torch.arange(len(logits), device=logits.device).split(_room(logits)):
        X, tau, *_ = _read(logits, temperature, a, b, k)
        P = _plan(X, f[k].double(), g[k].double())
        M = torch.where(P > 0, P * G[k], 0.0)
        u, v = decompose_marginals(P, M.sum(2), M.sum(1))
        w_u[k], w_v[k] = u.to(w_u), v.to(w_v)
        M -= P.mul_(u[:, :, None] + v[:, None, :])
        M /= tau[:, None, None]
        heat[k] = -X.masked_fill_(M == 0, 0.0).mul_(M).sum((1, 2)).to(heat)
        Y[k] = M.to(Y)


def _room(logits: Tensor) -> int:
    return max(1, STACK_ENTRIES[logits.device.type] // math.prod(logits.shape[1:]))


def _read(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X = (logits − their greatest)/τ in float64, −∞ for absent points; τ; weights of the same sum, of the problems k."""
    tau, w_a, w_b = (t[k % len(t)].double() for t in (temperature, a, b))
    w_b = w_b * (w_a.sum(1, keepdim=True) / w_b.sum(1, keepdim=True))
    X = logits[k].double()  # a copy, with which to do as one likes
    if bool((w_a == 0).any() | (w_b == 0).any()):
        X.masked_fill_((w_a == 0)[:, :, None] | (w_b == 0)[:, None, :], -torch.inf)
    X -= X.amax((1, 2), keepdim=True)
    X /= tau[:, None, None]
    return X, tau, w_a, w_b


def _plan(X: Tensor, u: Tensor, v: Tensor) -> Tensor:
    return (X + u[:, :, None]).add_(v[:, None, :]).exp_()
