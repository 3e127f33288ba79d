"""Sections with cost matrices, float64: `of.solve` and `of.solve_batch` beside mdot_tnt and curegot; ragged sentences.

mdot_tnt's error falls with the temperature, H/γᵖ: p is chosen so that it is ``tol`` at the last one, γ = 1/λ, and raised
until the error, computed here in float64, is below tol. Its batched function has no such setting: it is run as it is, and
ours has its error as ``tol``. curegot's wheels link cuDSS, a library of 160 MB that has to be on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from gpu_common import Bench
from torch import Tensor

import otformer as of

REG, TOL = 0.001, 1e-6
SIZE, BATCH, SMALL = 10_000, 64, 500


def costs(bench: Bench, n: int) -> dict[str, Callable[[int], Tensor]]:
    """Cost matrices [n, n] of largest entry 1, by a seed."""

    def points(d: int, normal: bool) -> Callable[[int], Tensor]:
        def cost(seed: int) -> Tensor:
            g = torch.Generator(bench.device).manual_seed(seed)
            make: Any = torch.randn if normal else torch.rand
            x, y = (make(n, d, generator=g, device=bench.device, dtype=torch.float64) for _ in range(2))
            C = torch.cdist(x, y).square()
            return C / C.max()

        return cost

    def entries(seed: int) -> Tensor:
        g = torch.Generator(bench.device).manual_seed(seed)
        return torch.rand(n, n, generator=g, device=bench.device, dtype=torch.float64)

    return {"uniform points 3-D": points(3, False), "Gaussian points 10-D": points(10, True), "random costs": entries}


def plan_error(P: Tensor) -> float:
    """L1 error of both marginals against uniform ones."""
    P, (n, m) = P.double(), P.shape
    return float((P.sum(1) - 1 / n).abs().sum() + (P.sum(0) - 1 / m).abs().sum())


def dense(bench: Bench) -> None:
    n = bench.size(SIZE)
    for name, cost in costs(bench, n).items():
        case, C = f"{name}, {n:,}", cost(0)
        with bench.attempt("otformer", case):
            (seconds, r, gib), _ = bench.second(lambda C=C: of.solve(C, reg=REG, tol=TOL))
            u, v = r.potentials
            error = plan_error(((u[:, None] + v - C) / REG - 1).exp_())
            bench.add(case=case, seconds=seconds, layers=r.depth, error=error, converged=r.converged, gib=gib)
            _single_mdot(bench, case, C, seconds)
            _curegot(bench, case, C, seconds)
        del C
    for name, cost in costs(bench, bench.size(SMALL)).items():
        _batched(bench, f"{BATCH} × {name}, {bench.size(SMALL)}", torch.stack([cost(seed) for seed in range(BATCH)]))


def _single_mdot(bench: Bench, case: str, C: Tensor, ours: float) -> None:
    with bench.attempt("mdot_tnt", case):
        from mdot_tnt.mdot import mdot

        n, gamma = len(C), 1 / REG
        w = C.new_full((n,), 1 / n)
        for effort in (1, 4, 16):
            power = max(1.5, math.log(math.log(n) * effort / TOL) / math.log(gamma))
            mdot(w, w, C, gamma, p=power)
            seconds, (u, v, reached, _, _), _ = bench.timed(lambda power=power: mdot(w, w, C, gamma, p=power))
            error = plan_error((u[:, None] + v - reached * C).exp_())
            if error < TOL or reached != gamma:
                break
        bench.add(case=case, mdot_seconds=seconds, mdot_error=error, mdot_lambda=1 / reached, ratio=seconds / ours)


def _curegot(bench: Bench, case: str, C: Tensor, ours: float) -> None:
    """Its quasi-Newton method; its tol bounds the Euclidean norm of the dual gradient."""
    with bench.attempt("curegot", case):
        import curegot

        module = getattr(curegot, "torch", None)
        if module is None:
            raise ImportError("its torch interface is not there")
        w = C.new_full((len(C),), 1 / len(C))
        options: dict[str, Any] = dict(tol=TOL / math.sqrt(len(C)), max_iter=1000, verbose=0)
        module.sinkhorn_splr(C, w, w, REG, **options)
        seconds, result, _ = bench.timed(lambda: module.sinkhorn_splr(C, w, w, REG, **options))
        bench.add(case=case, curegot_seconds=seconds, curegot_error=plan_error(result["plan"]), curegot_ratio=seconds / ours)


def _batched(bench: Bench, case: str, C: Tensor) -> None:
    """A batch at tol, then at the error that mdot_tnt's has."""
    with bench.attempt("otformer", case):
        _our_batch(bench, case, C, TOL)
    with bench.attempt("mdot_tnt", case):
        from mdot_tnt import solve_OT_batched

        w = C.new_full((len(C), C.shape[1]), 1 / C.shape[1])
        call: dict[str, Any] = dict(gamma_f=1 / REG, return_plan=True, round=False)
        solve_OT_batched(w, w, C, **call)
        seconds, plans, _ = bench.timed(lambda: solve_OT_batched(w, w, C, **call))
        error = max(plan_error(P) for P in plans)
        bench.add(case=case, mdot_seconds=seconds, mdot_error=error)
        at = f"{case}, at the error of mdot_tnt"
        bench.add(case=at, mdot_seconds=seconds, mdot_error=error, ratio=seconds / _our_batch(bench, at, C, error))


def _our_batch(bench: Bench, case: str, C: Tensor, tol: float) -> float:
    (seconds, results, gib), _ = bench.second(lambda: of.solve_batch(C, reg=REG, tol=tol))
    bench.add(case=case, seconds=seconds, tol=tol, error=max(plan_error(r.plan) for r in results),
              converged=sum(r.converged for r in results), gib=gib)  # fmt: skip
    return seconds


def sentences(bench: Bench) -> None:
    """10,000 ragged problems in one call, costs on the device, λ = 0.05, tol 1e-6."""
    from otformer.lab.benchmarks.problems import sentences as generate

    problems = [torch.as_tensor(p.C, device=bench.device) for p in generate(bench.size(10_000))]
    with bench.attempt("otformer", "sentences"):
        (seconds, results, gib), _ = bench.second(lambda: of.solve_batch(problems, reg=0.05, tol=1e-6))
        bench.add(case="sentences", problems=len(results), seconds=seconds, converged=sum(r.converged for r in results),
                  error=max(plan_error(r.plan) for r in results), gib=gib)  # fmt: skip
