"""Sections about derivatives and variants: the loss of GeomLoss with its gradient, unbalanced transport, Hessian products.

**loss.** `SamplesLoss("sinkhorn", p=2, blur)`, debiased, forward and backward in x, beside GeomLoss on KeOps and
flash-sinkhorn. They have no tolerance. GeomLoss's ``scaling``, the ratio of successive blurs, is brought closer to 1, and
flash-sinkhorn has more iterations at the last of them, until the error is 1e-3 or a call takes too long. Errors are those of
OT(α, β): L1, in float64, from the potentials each returns when not debiased. Ours has that error as its ``tol``. ``off`` is
Σ|g − g*|/Σ|g*| for the gradients of the first 10,000 points, g* ours in float64 with tol 1e-8.

**unbalanced.** The error is max_j |g_j − g'_j|/(λ (1 − δ²)) with g' one exact step, in float64, from the returned g.

**hvp.** H d of the value in x; ``off`` as above, H d from central differences of float64 gradients with matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gpu_common import TOL, Bench, Problem, log_blocks, marginal_error, solve
from gpu_families import Family, alike, cube
from gpu_flash import as_ours, count, few_shapes
from torch import Tensor

import otformer as of

POINTS, PART = 100_000, 10_000
BLUR, GOAL = 0.05, 1e-3
SCALINGS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
MORE = (0, 10, 30, 100, 300)  # iterations at the last ε
PATIENCE = 4.0  # seconds: after a call that takes longer, no more effort is made
Make = Callable[..., Any]  # a SamplesLoss, from debias and potentials


def geomloss(bench: Bench, p: Problem, backend: str) -> dict[str, Make]:
    from geomloss import SamplesLoss

    make = partial(SamplesLoss, "sinkhorn", p=2, blur=BLUR, backend=backend)
    return {f"scaling {scaling}": partial(make, scaling=scaling) for scaling in SCALINGS}


def flash(bench: Bench, p: Problem) -> dict[str, Make]:
    from flash_sinkhorn import SamplesLoss
    from flash_sinkhorn.kernels._common import epsilon_schedule, max_diameter

    few_shapes(bench)
    down = list(epsilon_schedule(max_diameter(p.x, p.y), BLUR, 0.5))
    make = partial(SamplesLoss, "sinkhorn", blur=BLUR, half_cost=True, allow_tf32=False)
    return {f"{more} iterations more": partial(make, eps_list=down + [BLUR**2] * more) for more in MORE}


PEERS: dict[str, Callable[[Bench, Problem], dict[str, Make]]] = {  # each with more and more effort
    "GeomLoss multiscale": partial(geomloss, backend="multiscale"),
    "GeomLoss online": partial(geomloss, backend="online"),
    "flash-sinkhorn symmetric": flash,
}


def loss(bench: Bench) -> None:
    p = alike("cube", POINTS, 3, 2 * BLUR**2, partial(cube, unscaled=True)).draw(bench)
    part = p.x[:PART], p.y[:PART]
    best = gradient(of.SamplesLoss("sinkhorn", p=2, blur=BLUR, tol=1e-8), *(t.double() for t in part))
    for name, efforts in PEERS.items():
        with bench.attempt(name, name):
            for effort, make in efforts(bench, p).items():
                case, one = f"{name}, {effort}", make(debias=True)
                error = loss_error(p, make(debias=False, potentials=True))
                gradient(one, p.x, p.y)
                seconds, _, gib = bench.timed(lambda one=one: gradient(one, p.x, p.y))
                bench.add(case=case, peer_seconds=seconds, peer_error=error, peer_off=apart(gradient(one, *part), best),
                          peer_gib=gib)  # fmt: skip
                our_loss(bench, case, p, part, best, error, seconds)
                if error < GOAL or seconds > PATIENCE:
                    break


def our_loss(
    bench: Bench, case: str, p: Problem, part: tuple[Tensor, Tensor], best: Tensor, tol: float, theirs: float
) -> None:
    """Our loss at another's error."""
    with bench.attempt("otformer", case):
        make = partial(of.SamplesLoss, "sinkhorn", p=2, blur=BLUR, tol=tol)
        (seconds, _, gib), _ = bench.second(lambda: gradient(make(), p.x, p.y))
        error = loss_error(p, make(debias=False, potentials=True))
        bench.add(case=case, seconds=seconds, tol=tol, error=error, off=apart(gradient(make(), *part), best), gib=gib,
                  ratio=theirs / seconds)  # fmt: skip


def gradient(one: Any, x: Tensor, y: Tensor) -> Tensor:
    """Forward and backward."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad(one(x, y), x)[0]


def loss_error(p: Problem, one: Any) -> float:
    """The marginal error of f and g for the cost ½‖x − y‖² and ε: that of 2f and 2g for ‖x − y‖² and λ = 2ε."""
    with torch.no_grad():
        f, g = one(p.x, p.y)
    return marginal_error(p, *as_ours(p, 2 * f.double(), 2 * g.double()))


def apart(g: Tensor, best: Tensor) -> float:
    return float((g.double() - best).abs().sum() / best.abs().sum())


# ── unbalanced ────────────────────────────────────────────────────────────────────────────────────────────────────────


def unbalanced(bench: Bench) -> None:
    for n, reg, rho in ((20_000, 0.01, 0.1), (20_000, 0.001, 0.05), (50_000, 0.01, 1.0)):
        family = alike("cube", n, 3, reg, cube, weights=True)
        p, case = family.draw(bench), f"{family.case}, ρ = {rho:g}"
        with bench.attempt("otformer", case):
            (seconds, r, gib), _ = bench.second(lambda p=p, rho=rho: solve(p, unbalanced=rho))
            bench.add(case=case, seconds=seconds, layers=r.depth, read=r.error, error=damped_error(p, r.potentials[1], rho),
                      converged=r.converged, gib=gib)  # fmt: skip
            flash_unbalanced(bench, case, p, rho, seconds)


def flash_unbalanced(bench: Bench, case: str, p: Problem, rho: float, ours: float) -> None:
    with bench.attempt("flash", case):
        from flash_sinkhorn import SamplesLoss

        few_shapes(bench)
        counted, (a, b) = count(p, rho=rho), p.weights()
        fixed: dict[str, Any] = dict(use_epsilon_scaling=False, eps=p.reg, n_iters=counted.iterations, allow_tf32=False)
        one = SamplesLoss("sinkhorn", backend="alternating", reach=math.sqrt(rho), potentials=True, **fixed)
        one(a, p.x, b, p.y)
        seconds, (_, g), _ = bench.timed(lambda: one(a, p.x, b, p.y))
        bench.add(case=case, flash_seconds=seconds, flash_passes=2 * counted.iterations, flash_reached=counted.reached,
                  flash_error=damped_error(p, g, rho), ratio=seconds / ours)  # fmt: skip


def damped_error(p: Problem, g: Tensor, rho: float) -> float:
    """max |g − g'|/(λ (1 − δ²)) where f = −δ λ log Σ_j b_j exp((g_j − C_ij)/λ), g' the same of f, and δ = ρ/(ρ + λ)."""
    damping = rho / (rho + p.reg)
    f = damped_step(p.x, p.y, g, p.weights()[1], p.reg, damping)
    moved = damped_step(p.y, p.x, f, p.weights()[0], p.reg, damping) - g.double()
    return float(moved.abs().max()) / (p.reg * (1 - damping**2))


def damped_step(x: Tensor, y: Tensor, g: Tensor, b: Tensor, reg: float, damping: float) -> Tensor:
    v, zeros = g.double() + reg * b.double().log(), torch.zeros_like(x[:, 0])
    return -damping * reg * torch.cat([logs.logsumexp(1) for logs in log_blocks(x, y, zeros, v, reg)])


# ── Hessian-vector products ───────────────────────────────────────────────────────────────────────────────────────────


def hvp(bench: Bench) -> None:
    for n, reg in ((5_000, 0.05), (5_000, 0.01), (20_000, 0.01)):
        family = alike("cube", n, 3, reg, cube)
        p, case = family.draw(bench), family.case
        d = torch.randn_like(p.x)
        best = differences(p, d) if n <= PART else None
        with bench.attempt("otformer", case):
            (seconds, h, gib), _ = bench.second(lambda p=p, d=d: product(lambda x, p=p: value(p, x), p.x, d))
            bench.add(case=case, seconds=seconds, gib=gib, **_off("off", h, best))
            flash_hvp(bench, family, p, d, best, seconds)


def flash_hvp(bench: Bench, family: Family, p: Problem, d: Tensor, best: Tensor | None, ours: float) -> None:
    with bench.attempt("flash", family.case):
        from flash_sinkhorn import SamplesLoss

        fixed: dict[str, Any] = dict(use_epsilon_scaling=False, eps=p.reg, n_iters=count(p).iterations, allow_tf32=False)
        one = SamplesLoss("sinkhorn", backend="alternating", **fixed)
        product(lambda x: one(x, p.y), p.x, d)
        seconds, h, gib = bench.timed(lambda: product(lambda x: one(x, p.y), p.x, d))
        bench.add(case=family.case, flash_seconds=seconds, flash_gib=gib, **_off("flash_off", h, best), ratio=seconds / ours)


def product(function: Callable[[Tensor], Tensor], x: Tensor, d: Tensor) -> Tensor:
    """H d of a function at x, by differentiating twice."""
    x = x.detach().requires_grad_()
    g = torch.autograd.grad(function(x), x, create_graph=True)[0]
    return torch.autograd.grad((g * d).sum(), x)[0]


def value(p: Problem, x: Tensor) -> Tensor:
    """What is differentiated. (W differs from flash-sinkhorn's value by λ H(a) and the like, which do not depend on x.)"""
    return of.solve_sample(x, p.y, p.a, p.b, reg=p.reg, tol=TOL, executor="stream").value


def differences(p: Problem, d: Tensor, step: float = 1e-4) -> Tensor:
    """H d ≈ (∇W(x + s d) − ∇W(x − s d))/2s in float64, with matrices and tol 1e-11."""

    def slope(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        r = of.solve_sample(x, p.y.double(), reg=p.reg, tol=1e-11, executor="dense")
        return torch.autograd.grad(r.value, x)[0]

    x, d = p.x.double(), d.double()
    return (slope(x + step * d) - slope(x - step * d)) / (2 * step)


def _off(name: str, h: Tensor, best: Tensor | None) -> dict[str, float]:
    return {} if best is None else {name: apart(h, best)}
