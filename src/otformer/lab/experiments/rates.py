"""Measured linear rates beside the predicted ones, for the schedules that have a rate."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import iterates, unit_cube
from otformer.lab.experiments.experiment import Context, Outcome, Row
from otformer.network.schedule import Alternating, Gradient, Relaxed, best_omega
from otformer.theory import rates
from otformer.transport.reference import plan, sinkhorn

N, DIM, REGS, PROBLEMS = 12, 2, (0.05, 0.1, 0.2), 20  # points per side, dimension, values of λ, problems
DEPTH = 4_000  # layers at most
FLOOR = 1e-12  # share of the first error below which the rest is rounding
DIFFERENCE = "relative difference"
SCHEDULES = ("gradient", "alternating", "relaxed, ω < ω*", "relaxed, ω > ω*")


def run(context: Context) -> Outcome:
    generator = context.generator()
    rows: list[Row] = []
    for k in context.each(range(PROBLEMS)):
        reg, (_, _, C) = REGS[k % len(REGS)], unit_cube(N, DIM, generator=generator)
        u, v = sinkhorn(C, reg)
        sigma = rates.second_singular_value(plan(C, u, v, reg))
        for name, schedule, predicted, stride in _cases(sigma):
            path = iterates(C, schedule.layers(reg, DEPTH))
            measured = rates.measured_rate(errors(islice(path, 0, None, stride), u[:, None] + v, reg))
            row: Row = {"problem": k, "λ": reg, "σ": sigma, "schedule": name, "layers per step": stride}
            rows.append(row | {"predicted": predicted, "measured": measured, DIFFERENCE: abs(measured / predicted - 1)})
    worst = {name: max(row[DIFFERENCE] for row in rows if row["schedule"] == name) for name in SCHEDULES}
    checks = {f"{name}: measured and predicted rates within 2 %": value < 0.02 for name, value in worst.items()}
    settings = {"n": N, "dim": DIM, "regs": list(REGS), "problems": PROBLEMS}
    listed = [f"{name}: {100 * value:.2f} %" for name, value in worst.items()]
    return Outcome(rows, _draw(rows), {"worst": listed, "most": max(worst.values())}, checks, settings)


def _cases(sigma: float) -> list[tuple[str, Gradient | Alternating | Relaxed, float, int]]:
    """Name, schedule, predicted rate, and how many layers that rate is for. ω stands halfway from ω* to 1 and to 2."""
    best = best_omega(sigma)
    below, above = (1 + best) / 2, (best + 2) / 2
    schedules = (Gradient(), Alternating(), Relaxed(below), Relaxed(above))
    relaxed = (rates.relaxed_rate(omega, sigma) for omega in (below, above))
    predicted = (rates.gradient_rate(1.0, sigma), rates.alternating_rate(sigma), *relaxed)
    return list(zip(SCHEDULES, schedules, predicted, (1, 2, 2, 2), strict=True))


def errors(path: Iterable[tuple[Tensor, Tensor]], target: Tensor, reg: float) -> Tensor:
    """Largest |log P − log P*| of every iterate until it is rounding: blind to the gauge (u + c, v − c)."""
    found: list[Tensor] = []
    for u, v in path:
        found.append((u[:, None] + v - target).abs().max() / reg)
        if found[-1] < FLOOR * found[0]:
            break
    return torch.stack(found)


def _draw(rows: list[Row]) -> figures.Figure:
    fig, (scatter, spread) = figures.figure(10, 3.8, 1, 2)
    labels: list[str] = []
    scatter.plot([0, 1], [0, 1], color=figures.INK, linewidth=0.8)
    for k, (name, marker) in enumerate(zip(SCHEDULES, "oD^v", strict=True)):
        chosen = [row for row in rows if row["schedule"] == name]
        label = f"{name}, {'per layer' if chosen[0]['layers per step'] == 1 else 'per pair'}"
        labels.append(label.replace(", ", "\n"))
        scatter.plot([r["predicted"] for r in chosen], [r["measured"] for r in chosen], marker, alpha=0.7, label=label)
        spread.plot([k] * len(chosen), [100 * r[DIFFERENCE] for r in chosen], marker, alpha=0.6)
    scatter.set(xlabel="predicted rate", ylabel="measured rate", title="Measured rates are the predicted ones")
    scatter.legend(loc="upper left")
    spread.axhline(2, color=figures.INK, linewidth=0.8, linestyle="--")
    spread.set_xticks(range(len(SCHEDULES)), labels)
    spread.set_yscale("log")
    spread.set(ylabel="relative difference, %", title="Difference, one mark per problem (dashed: 2 %)", xlim=(-0.5, 3.5))
    return fig
