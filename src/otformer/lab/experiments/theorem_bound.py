"""Theorem 3.2: Hilbert's distance to the plan, layer by layer, beside theorems L and A and the paper's bounds."""

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
from otformer.theory import bounds, depth_bounds, hilbert, linear_rate
from otformer.transport.reference import sinkhorn

REGS, SIZES, DIM = (0.3, 1.0, 4.0), (2, 4, 8, 32), 2  # values of λ, points per side, dimension
RUN = 4_000  # layers run, γ = λ: theorems L and A are compared with the measurement at each of them
DECADES = 9  # of layers: up to 10⁹ we look for the first layer at which a bound is small enough
GOAL = 1e-6  # a distance, and how many layers it takes
ROUNDING = 1e-10  # distances below it are not compared: they are 1e-14 or so, and stay there
THEOREM_L = "Theorem L (linear rate)"
CORRECTED = "Theorem A (corrected)"
INFORMAL = "paper, informal, constant 1 (arbitrary)"  # its O hides the constant
FORMAL = ("paper, formal, r of the theorem", "paper, formal, r of the lemma")
CHECKED_BOUNDS = (THEOREM_L, CORRECTED)  # for γ = λ at the layer itself, as the network runs
BOUNDS = (*CHECKED_BOUNDS, INFORMAL, *FORMAL)
BOUND_LOOKS = (  # colour, dash, marker
    (figures.GREEN, "-", "D"),
    (figures.BLUE, "-", "o"),
    (figures.GREY, "--", "s"),
    (figures.ORANGE, "--", "^"),
    (figures.PURPLE, "-.", "v"),
)
SHOWN_PROBLEM = (4, 1.0)  # n and λ of the problem whose curves are drawn
INFORMATIVE = "below the start from layer"  # a bound is informative where it is below the distance at layer 0
REACHED = f"layers to {GOAL:g}, by the bound"
TAKEN = f"layers to {GOAL:g}, measured"


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
        """The value of a bound at a depth; inf where it claims nothing (too few layers)."""
        if name == THEOREM_L:
            return linear_rate.linear_bound(self.reg, self.distance, depth, self.log_phi)
        if name == CORRECTED:
            return depth_bounds.hilbert_bound(self.reg, self.distance, depth, self.log_phi)
        if name == INFORMAL:
            return bounds.informal_bound(self.n, self.reg, depth)
        r = self.radii[FORMAL.index(name)]
        if depth < bounds.formal_depth(self.n, self.reg, r):
            return math.inf
        return bounds.formal_bound(self.n, self.reg, r, depth, self.log_phi)

    def falls_below(self, name: str, level: float) -> int | None:
        """The first layer up to 10⁹ at which a bound is below a distance, by bisection: bounds fall."""
        low, high = 1, 10**DECADES
        if self.bound(name, high) >= level:
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.bound(name, middle) >= level else (low, middle)
        return high

    def reached(self, level: float) -> int:
        """The first layer that is at least this near to the plan."""
        near = (self.measured < level).nonzero()
        return int(near[0]) if len(near) else RUN + 1


def run(context: Context) -> Outcome:
    generator = context.generator()
    cases = [(n, reg) for reg in REGS for n in SIZES]
    problems = [_solve(n, reg, generator) for n, reg in context.each(cases)]
    rows = [compared(problem, name) for problem in problems for name in BOUNDS]
    told = [row for row in rows if row["bound"] == CORRECTED and row["layers compared"]]
    ratios = {name: _largest(rows, name) for name in CHECKED_BOUNDS}
    depths = {name: [row[REACHED] for row in rows if row["bound"] == name] for name in CHECKED_BOUNDS}
    taken = [row[TAKEN] for row in rows if row["bound"] == THEOREM_L]
    bends = [deep / short for deep, short in zip(depths[THEOREM_L], taken, strict=True) if deep]
    first = {name: [row[INFORMATIVE] for row in rows if row["bound"] == name] for name in BOUNDS}
    late = {name: sum(layer is None or layer > RUN for layer in first[name]) for name in CHECKED_BOUNDS}
    checks = {
        "linear": ratios[THEOREM_L] <= 1,
        "below": ratios[CORRECTED] <= 1,
        "bends": not late[THEOREM_L] and all(deep and deep <= RUN for deep in depths[THEOREM_L]),
        "informative": len(told) >= 8,
    }
    settings = {"regs": list(REGS), "sizes": list(SIZES), "dim": DIM, "layers run": RUN}
    formal = [layer for name in FORMAL for layer in first[name]]
    numbers = {
        "ratios": list(ratios.values()),
        "holds": max(ratios.values()) <= 1,
        "informative": len(told),
        "count": len(problems),
        "limit": f"10^{DECADES}",
        "first": [_least(layers) for layers in first.values()],
        "paper": _least(formal),
        "formal": len(formal),
        "silent": formal.count(None),
        "layers": sum(row["layers compared"] for row in rows),
        "late": late[CORRECTED],
        "taken": [min(taken), max(taken)],
        "deep": _ends(depths[THEOREM_L]),
        "bends": _ends(bends),
        "square": sum(deep is not None for deep in depths[CORRECTED]),
    }
    return Outcome(rows, _draw(problems, rows), numbers, checks, settings)


def compared(problem: SolvedProblem, name: str) -> Row:
    """One bound on one problem.

    Theorems L and A hold for γ = λ at each layer, so they are compared with the measurement. The paper's bounds are for
    another step and for the best layer so far, so we only ask from which layer on they are informative.
    """
    first, values = problem.falls_below(name, float(problem.measured[0])), []
    if name in CHECKED_BOUNDS:
        values = [problem.bound(name, depth) for depth in range(1, RUN + 1)]
    pairs = zip(problem.measured[1:], values, strict=False)
    shares = [float(mu) / value for mu, value in pairs if ROUNDING < value < math.inf]
    return {
        "λ": problem.reg,
        "n": problem.n,
        "bound": name,
        "μ at layer 0": float(problem.measured[0]),
        f"μ at layer {RUN}": float(problem.measured[-1]),
        "R, at most": problem.distance,
        "log φ": problem.log_phi,
        "r of the theorem": problem.radii[0],
        "r of the lemma": problem.radii[1],
        INFORMATIVE: first,
        "layers compared": sum(value < problem.measured[0] for value in values if value > ROUNDING),
        "largest measured / bound": max(shares, default=0.0),
        TAKEN: problem.reached(GOAL),
        REACHED: problem.falls_below(name, GOAL),
    }


def _largest(rows: list[Row], name: str) -> float:
    """The largest measured/bound of a theorem; inf where it was never compared."""
    shares = [row["largest measured / bound"] for row in rows if row["bound"] == name and row["layers compared"]]
    every = [row["largest measured / bound"] for row in rows if row["bound"] == name]
    return max(every) if shares else math.inf


def _ends(values: list[Any]) -> list[Any]:
    known = [value for value in values if value is not None]
    return [min(known), max(known)] if known else [math.inf, math.inf]


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
    fig, (one, starts, goals) = figures.figure(14, 5.4, 1, 3, width_ratios=(1.25, 1.2, 0.7))
    _draw_one(one, next(each for each in problems if (each.n, each.reg) == SHOWN_PROBLEM))
    for name, look in zip(BOUNDS, BOUND_LOOKS, strict=True):
        _draw_layers(starts, [row[INFORMATIVE] for row in rows if row["bound"] == name], look)
    starts.axvline(RUN, color=figures.GREY, linewidth=0.8)
    starts.set(xlim=(1, 3 * 10**DECADES), xlabel="first layer; ▷: not up to 10⁹")
    starts.set_title("Bound below the start")
    linear = [row for row in rows if row["bound"] == THEOREM_L]
    _draw_layers(goals, [row[TAKEN] for row in linear], (figures.INK, "-", "o"))
    _draw_layers(goals, [row[REACHED] for row in linear], BOUND_LOOKS[0])
    for axes in (starts, goals):
        figures.named_rows(axes, [f"λ = {problem.reg:g}, n = {problem.n}" for problem in problems])
    goals.set(xlim=(10, RUN), xlabel="first layer")
    goals.set_title(f"Distance below {GOAL:g}")
    fig.legend(*one.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig


def _draw_layers(axes: Any, layers: list[int | None], look: tuple[str, str, str]) -> None:
    """A mark in the row of each problem, an open arrow where there is no such layer."""
    colour, _, marker = look
    known = [(layer, k) for k, layer in enumerate(layers) if layer is not None]
    axes.plot(*zip(*known, strict=True), marker, color=colour) if known else None
    for k in (k for k, layer in enumerate(layers) if layer is None):
        axes.plot(10**DECADES, k, ">", color=colour, markerfacecolor="white")


def _draw_one(axes: Any, problem: SolvedProblem) -> None:
    """The measured distance and the bounds of one problem."""
    depths = sorted({round(10 ** (k / 24)) for k in range(24 * DECADES + 1)})
    layers = [depth for depth in depths if depth <= RUN]
    axes.loglog(layers, problem.measured[layers].clamp(min=1e-15), color=figures.INK, linewidth=2.4, label="measured, γ = λ")
    for name, (colour, dash, marker) in zip(BOUNDS, BOUND_LOOKS, strict=True):
        values = [problem.bound(name, depth) for depth in depths]
        shown = [(depth, value) for depth, value in zip(depths, values, strict=True) if 1e-15 < value < math.inf]
        axes.loglog(*zip(*shown, strict=True), dash, color=colour, label=name, marker=marker, markevery=0.2)
    axes.axhline(float(problem.measured[0]), color=figures.INK, linewidth=0.8, linestyle=":", label="distance at layer 0")
    axes.axvline(RUN, color=figures.GREY, linewidth=0.8, label=f"last layer run, {RUN:,}")
    axes.set(title=f"One problem: λ = {problem.reg:g}, n = {problem.n}", ylim=(1e-10, 1e5), xlim=(1, 10**DECADES))
    axes.set(xlabel="layer ℓ", ylabel="distance μ to the plan")
