r"""Problems that are not small, or not done: the stacks of the batch engine, then one by one.

`find_potentials` serves `balance` and `Transport`. With C = (max L − L)/τ and λ = 1 the plan is P = exp(u + v − C − 1), so
f = u − 1 and g = v. Forbidden entries have C = ∞.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otformer import checks
from otformer.network.alternating import iterate
from otformer.nn.balance_problems import Gradients, LogitStack, Plans
from otformer.transport.choose import choose, solve_problem
from otformer.transport.derivatives.implicit import decompose_marginals
from otformer.transport.problem.read import read_cost
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.solvers.mixed import Mixed
from otformer.transport.solvers.stacked import ALONE_ABOVE, STACK_ENTRIES, WIDEST_SPREAD, annealing_steps, solve_stacked
from otformer.transport.types import ABSENT_WEIGHT, Goal

LAST_STEPS = 100  # Sinkhorn steps for what nothing else has solved
CLOSE_LAYERS = 200  # of mixed blocks from where most of the mass is in place: then Newton steps, of which few are needed


def finish(stack: LogitStack, goal: Goal, out: Plans, unsolved: Tensor) -> None:
    """Fill in the best plans found for the problems ``unsolved``, their potentials and errors."""
    P, f, g, error = out

    def take(k: Tensor, X: Tensor, w_a: Tensor, w_b: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Keep what is better than before, and return which of the problems k are not done."""
        plan = _plan(X, u, v)
        sides = [(plan.sum(axis), w) for axis, w in ((2, w_a), (1, w_b))]
        off = [(sums - w).abs().amax(1) for sums, w in sides]
        found = (torch.maximum(*off) / torch.maximum(w_a.amax(1), w_b.amax(1))).to(error)
        empty = [((sums == 0) & (w > 0)).any(1) for sums, w in sides]  # no plan: a row of zeros
        better = ~(found >= error[k]) & found.isfinite() & ~(empty[0] | empty[1])
        to = k[better]
        error[to], P[to], f[to], g[to] = found[better], plan[better].to(P), u[better].to(f), v[better].to(g)
        return ~(error[k] <= goal.tol)

    for k in unsolved.split(stack_size(stack.logits)):
        X, _, w_a, w_b = _read(stack, k)
        tol = goal.tol * torch.maximum(w_a.amax(1), w_b.amax(1))
        u, v, _ = find_potentials(-X, w_a, w_b, 1.0, tol, goal.max_depth)
        u, v = torch.where(w_a > 0, u - 1, 0.0), torch.where(w_b > 0, v, 0.0)
        still = take(k, X, w_a, w_b, u, v)
        # Perhaps only a row of less weight than tol is missing: steps from v. Perhaps v is mere rounding: steps from 0.
        for _ in range(2):
            if bool(still.any()):
                k, X, w_a, w_b, v = (t[still] for t in (k, X, w_a, w_b, v))
                steps = goal.max_depth // LAYERS
                still = take(k, X, w_a, w_b, *_sinkhorn(X, w_a, w_b, v.nan_to_num(0.0, 0.0, 0.0), steps))
                v = torch.zeros_like(v)


def stack_size(C: Tensor) -> int:
    """Return how many of the problems C [B, n, m] to solve in one call of `find_potentials`."""
    return max(1, STACK_ENTRIES[C.device.type] // math.prod(C.shape[1:]))


def find_potentials(
    C: Tensor, a: Tensor, b: Tensor, reg: float, tol: Tensor, max_depth: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Find u [B, n], v [B, m] with P = exp((u + v − C)/λ − 1), and which have an L1 error below tol [B].

    C [B, n, m] ≥ 0, ∞ where an entry is forbidden, in float64; a point of weight 0 gets as little as rounding forgets.
    """
    spread, forbidden = float(C.max()), torch.zeros_like(tol, dtype=torch.bool)
    if not math.isfinite(spread):
        C = torch.where((a > 0)[:, :, None] & (b > 0)[:, None, :], C, 0.0)
        forbidden = C.isinf().any(2).any(1)
        spread = float(torch.where(C.isinf(), 0.0, C).max())
    least = ABSENT_WEIGHT * a.sum(1, keepdim=True)
    weights = [torch.maximum(w, least) for w in (a, b)]
    u, v, done = torch.zeros_like(a), torch.zeros_like(b), torch.zeros_like(forbidden)
    stages = int(annealing_steps(spread, reg))
    close = stages > 0 and _close(C / reg, *weights)
    if C[0].numel() <= ALONE_ABOVE[C.device.type] and spread < WIDEST_SPREAD * reg:
        c, w_a, w_b, enough = (t if C.is_cuda else t.numpy() for t in (C, *weights, tol))
        for count in (0, stages) if close else (stages,):
            found = solve_stacked(c, w_a, w_b, reg, enough, max_depth, count)
            if bool(found.done.all()):
                break
        u, v, done = (checks.local(t) for t in (found.u, found.v, found.done))
    # With forbidden entries there may be no solution, and then there is no end to looking for it.
    for k in (~(done | forbidden)).nonzero()[:, 0].tolist():
        problem = read_cost(C[k], a[k], b[k], reg)
        solver = choose(problem)
        if close and solver == Mixed():
            solver = Mixed(newton_after=CLOSE_LAYERS)
        result = solve_problem(problem, Goal(float(tol[k]), max_depth), solver, warn=False)
        u[k], v[k] = (checks.local(t).to(u) for t in result.potentials)
        done[k] = result.converged
    return u, v, done


def _close(C: Tensor, a: Tensor, b: Tensor) -> bool:
    """Return whether v = 0 gives plans with exact rows and three quarters of the mass in place, as `newton` asks."""
    columns = (a[:, None, :] @ (b.log()[:, None, :] - C).softmax(2))[:, 0]
    return bool(((columns - b).abs().sum(1) < b.sum(1) / 2).all())


def _sinkhorn(X: Tensor, a: Tensor, b: Tensor, g: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Make some steps from g, in logarithms, which leave no row or column without mass, whatever X is."""

    def step(g: Tensor) -> tuple[Tensor, Tensor]:  # each side anew, not by its change: rounding must not add up
        f = torch.where(a > 0, a.log() - (X + g[:, None, :]).logsumexp(2), 0.0)
        return torch.where(b > 0, b.log() - (X + f[:, :, None]).logsumexp(1), 0.0), f

    for _, (g, f) in iterate(step, g, most=min(steps, LAST_STEPS)):  # noqa: B007, B020
        pass
    return f, g


def backward(stack: LogitStack, G: Tensor, f: Tensor, g: Tensor, out: Gradients, problems: Tensor | None = None) -> None:
    """Fill in the gradients of a loss with the gradient G in the plans, of some problems or of all."""
    for k in (torch.arange(len(G), device=G.device) if problems is None else problems).split(stack_size(G)):
        X, tau, *_ = _read(stack, k)
        P = _plan(X, f[k].double(), g[k].double())
        M = torch.where(P > 0, P * G[k], 0.0)
        u, v = decompose_marginals(P, M.sum(2), M.sum(1))
        M -= P.mul_(u[:, :, None] + v[:, None, :])
        M /= tau[:, None, None]
        heat = -X.masked_fill_(M == 0, 0.0).mul_(M).sum((1, 2))
        for filled, part in zip(out, (M, u, v, heat), strict=True):
            filled[k] = part.to(filled)


def _read(stack: LogitStack, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return X = (logits − greatest)/τ in float64, −∞ for absent points, τ, and weights of equal sums, of the problems k."""
    tau, w_a, w_b = stack.numbers(k)
    X = stack.logits[k].double()  # a copy, with which to do as one likes
    if bool((w_a == 0).any() | (w_b == 0).any()):
        X.masked_fill_((w_a == 0)[:, :, None] | (w_b == 0)[:, None, :], -torch.inf)
    X -= X.amax((1, 2), keepdim=True)
    X /= tau[:, None, None]
    return X, tau, w_a, w_b


def _plan(X: Tensor, u: Tensor, v: Tensor) -> Tensor:
    return (X + u[:, :, None]).add_(v[:, None, :]).exp_()
