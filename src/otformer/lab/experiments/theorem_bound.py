"""Theorem 3.2: the distance to the plan in Hilbert's metric, layer by layer, below the corrected bound and the paper's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import iterates, unit_cube
from otformer.lab.experiments.experiment import Context, Outcome, Row
from otformer.network.schedule import Gradient
from otformer.theory import bounds, depth_bounds, hilbert
from otformer.transport.reference import sinkhorn

REGS, SIZES, DIM = (0.3, 1.0, 4.0), (2, 4, 8, 32), 2  # values of λ, points per side, dimension
RUN = 4_000  # layers run, γ = λ: Theorem A is compared with the measurement at each of them
DECADES = 9  # of layers: up to 10⁹ we look for the first layer at which a bound says something
CORRECTED = "Theorem A (corrected)"
INFORMAL = "paper, informal, constant 1 (arbitrary)"  # its O hides the constant
FORMAL = ("paper, formal, r of the theorem", "paper, formal, r of the lemma")
BOUNDS = (CORRECTED, INFORMAL, *FORMAL)
BOUND_LOOKS = ((figures.BLUE, "-"), (figures.GREY, "--"), (figures.ORANGE, "--"), (figures.PURPLE, "-."))  # colour, dash
SHOWN_PROBLEM = (4, 1.0)  # n and λ of the problem whose curves are drawn
SPEAKS = "below the start from layer"  # a bound says something where it is below the distance at layer 0


@dataclass(frozen=True)
class SolvedProblem:
    """A solved problem: its distances at layers 0 … RUN, and what the bounds are made of."""

    n: int
    reg: float
    log_phi: float
    distance: float  # from (0, 0) to a solution, by a bound that needs none
    radii: tuple[float, float]  # r of the paper's theorem and of its lemma
    measured: Tensor  # [RUN + 1] max(μ(p), μ(q)) at each layer, γ = λ

    def bound(self, name: str, depth: int) -> float:
        """The value of a bound at a depth; inf where it says nothing (too few layers)."""
        if name == CORRECTED:
            return depth_bounds.hilbert_bound(self.reg, self.distance, depth, self.log_phi)
        if name == INFORMAL:
            return bounds.informal_bound(self.n, self.reg, depth)
        r = self.radii[FORMAL.index(name)]
        if depth < bounds.formal_depth(self.n, self.reg, r):
            return math.inf
        return bounds.formal_bound(self.n, self.reg, r, depth, self.log_phi)

    def speaks(self, name: str) -> int | None:
        """The first layer up to 10⁹ at which a bound is below the distance at layer 0, by bisection: bounds fall."""
        low, high = 1, 10**DECADES
        if self.bound(name, high) >= self.measured[0]:
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.bound(name, middle) >= self.measured[0] else (low, middle)
        return high


def run(context: Context) -> Outcome:
    generator = context.generator()
    cases = [(n, reg) for reg in REGS for n in SIZES]
    problems = [_solve(n, reg, generator) for n, reg in context.each(cases)]
    rows = [compared(problem, name) for problem in problems for name in BOUNDS]
    ours = [row for row in rows if row["bound"] == CORRECTED]
    told = [row for row in ours if row["layers compared"]]
    ratio = max((row["largest measured / bound"] for row in told), default=math.inf)
    checks = {
        "below": all(row["largest measured / bound"] <= 1 for row in ours),
        "speaks": len(told) >= 8,
    }
    settings = {"regs": list(REGS), "sizes": list(SIZES), "dim": DIM, "layers run": RUN}
    first = {name: [row[SPEAKS] for row in rows if row["bound"] == name] for name in BOUNDS}
    formal = [layer for name in FORMAL for layer in first[name]]
    numbers = {
        "ratio": ratio,
        "holds": ratio <= 1,
        "speaking": len(told),
        "count": len(ours),
        "limit": f"10^{DECADES}",
        "first": [_least(layers) for layers in first.values()],
        "paper": _least(formal),
        "formal": len(formal),
        "silent": formal.count(None),
        "layers": sum(row["layers compared"] for row in rows),
        "late": sum(layer is None or layer > RUN for layer in first[CORRECTED]),
    }
    return Outcome(rows, _draw(problems, rows), numbers, checks, settings)


def compared(problem: SolvedProblem, name: str) -> Row:
    """One bound on one problem. Theorem A holds for γ = λ at each layer, so it is compared where it says something; the
    paper's bounds are for another step and for the best layer so far: we only ask from which layer on they say something."""
    first, values = problem.speaks(name), []
    if name == CORRECTED:
        values = [problem.bound(name, depth) for depth in range(1, RUN + 1)]
    shares = [float(mu) / value for mu, value in zip(problem.measured[1:], values, strict=False) if math.isfinite(value)]
    return {
        "λ": problem.reg,
        "n": problem.n,
        "bound": name,
        "μ at layer 0": float(problem.measured[0]),
        f"μ at layer {RUN}": float(problem.measured[-1]),
        "R, at most": problem.distance,
        "r of the theorem": problem.radii[0],
        "r of the lemma": problem.radii[1],
        SPEAKS: first,
        "layers compared": max(0, len(values) + 1 - first) if first else 0,
        "largest measured / bound": max(shares, default=0.0),
    }


def _least(layers: list[int | None]) -> str:
    found = [layer for layer in layers if layer is not None]
    return f"{min(found):,}" if found else f"above 10^{DECADES}"


def _solve(n: int, reg: float, generator: torch.Generator) -> SolvedProblem:
    C = unit_cube(n, DIM, generator=generator)[2]
    zero, solution = (torch.zeros_like(C[0]), torch.zeros_like(C[0])), sinkhorn(C, reg, tol=1e-14)
    measured = bounds.distances(iterates(C, Gradient().layers(reg, RUN)), solution, reg)
    radii = bounds.theorem_radius(zero, solution, reg), bounds.lemma_radius(zero, solution)
    return SolvedProblem(n, reg, hilbert.log_phi(C, reg), depth_bounds.start_distance(C, reg), radii, measured)


def _draw(problems: list[SolvedProblem], rows: list[Row]) -> figures.Figure:
    fig, (one, all_of_them) = figures.figure(11, 5.2, 1, 2, width_ratios=(1, 1.15))
    _draw_one(one, next(each for each in problems if (each.n, each.reg) == SHOWN_PROBLEM))
    names = [f"λ = {problem.reg:g}, n = {problem.n}" for problem in problems]
    for name, (colour, _), marker in zip(BOUNDS, BOUND_LOOKS, "os^v", strict=True):
        first = [row[SPEAKS] for row in rows if row["bound"] == name]
        known = [(layer, k) for k, layer in enumerate(first) if layer is not None]
        all_of_them.plot(*zip(*known, strict=True), marker, color=colour) if known else None
        for k in (k for k, layer in enumerate(first) if layer is None):
            all_of_them.plot(10**DECADES, k, ">", color=colour, markerfacecolor="white")
    figures.named_rows(all_of_them, names)
    all_of_them.axvline(RUN, color=figures.GREY, linewidth=0.8)
    all_of_them.set(xlim=(1, 3 * 10**DECADES), xlabel="first layer at which the bound says something; ▷: not up to 10⁹")
    all_of_them.set_title("From which layer on a bound says something")
    fig.legend(*one.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig


def _draw_one(axes: Any, problem: SolvedProblem) -> None:
    """The measured distance and the bounds of one problem."""
    depths = sorted({round(10 ** (k / 12)) for k in range(12 * DECADES + 1)})
    layers = [depth for depth in depths if depth <= RUN]
    axes.loglog(layers, problem.measured[layers].clamp(min=1e-15), color=figures.INK, linewidth=2.4, label="measured, γ = λ")
    for name, (colour, dash), marker in zip(BOUNDS, BOUND_LOOKS, "os^v", strict=True):
        values = [problem.bound(name, depth) for depth in depths]
        axes.loglog(depths, values, dash, color=colour, label=name, marker=marker, markevery=0.2)
    axes.axhline(float(problem.measured[0]), color=figures.INK, linewidth=0.8, linestyle=":", label="distance at layer 0")
    axes.axvline(RUN, color=figures.GREY, linewidth=0.8, label=f"last layer run, {RUN:,}")
    axes.set(title=f"One problem: λ = {problem.reg:g}, n = {problem.n}", ylim=(1e-6, 1e5), xlim=(1, 10**DECADES))
    axes.set(xlabel="layer ℓ", ylabel="distance μ to the plan")
