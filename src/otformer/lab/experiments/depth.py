"""How many layers to an error: every schedule beside Sinkhorn, over λ and n. The paper's open question on depth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import islice, product
from statistics import median

from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import final, iterates, mean_marginal_error, unit_cube
from otformer.lab.experiments._texts import ends
from otformer.lab.experiments.experiment import Context, Outcome, Row
from otformer.network.schedule import Alternating, Annealed, Gradient, Paper, Relaxed, Schedule, best_omega
from otformer.theory.rates import second_singular_value
from otformer.transport.reference import plan, sinkhorn_half_steps

TOLERANCE, DIM = 1e-6, 3  # mean of |marginal − 1|, dimension
REGS = (0.1, 0.05, 0.02, 0.01, 0.005)
LIMIT = 12_000  # layers after which an error counts as not reached
PAPER_ERROR = "error with the paper's γ after 500 layers"
PAPER_LIMIT = 500  # its step is so small that the error at this layer tells all
LADDER = (32, 64, 128, 256, 512, 1024)  # depths tried of annealed networks
SINKHORN, BEST, CLIMBING, FIXED = "Sinkhorn half-steps", "relaxed, ω*", "relaxed, climbing ω", "relaxed, ω = 1.8"
ANNEALED = "annealed"
DRAWN_SCHEDULES = (SINKHORN, "gradient", "alternating", CLIMBING, BEST, FIXED, ANNEALED)


def run(context: Context) -> Outcome:
    generator = context.generator()
    asked = product((32, 128, 512) if context.full else (32, 128), range(5 if context.full else 3))
    problems = [(n, number, unit_cube(n, DIM, generator=generator)[2]) for n, number in asked]
    rows = [
        {"n": n, "problem": number, "λ": reg, **_measure(C, reg)}
        for (n, number, C), reg in context.each(product(problems, REGS))
    ]
    hard = [row for row in rows if row["λ"] == 0.005 and row["n"] == 128]
    soft = [row for row in rows if row["λ"] == 0.1]
    gain = {name: max(_ratio(row, name) for row in hard) for name in (BEST, CLIMBING)}
    typical = median(_ratio(row, CLIMBING) for row in hard)
    price = {name: max(_ratio(row, name) for row in soft) for name in (BEST, CLIMBING, FIXED)}
    checks = {
        "best_gain": gain[BEST] <= 1 / 6,
        "climbing_gain": typical <= 1 / 6,
        "best_price": price[BEST] <= 1.3,
        "climbing_price": price[CLIMBING] <= 1.3,
    }
    settings = {"tolerance": TOLERANCE, "dim": DIM, "regs": list(REGS), "limit": LIMIT, "ladder": list(LADDER)}
    slow = [row["gradient"] / row[SINKHORN] for row in rows if row["gradient"] and row[SINKHORN]]
    numbers = {
        "count": len(hard),
        "best": 1 / gain[BEST],
        "climbing": 1 / gain[CLIMBING],
        "typical": 1 / typical,
        "price": list(price.values()),
        "slow": ends(slow),
        "deepest": LADDER[-1],
        "medians": _medians(hard, (SINKHORN, "gradient", CLIMBING, BEST), " ", f"not within {LIMIT:,}"),
        "all_medians": _medians(hard, DRAWN_SCHEDULES, ": ", "not reached"),
        "slowest": max(hard, key=lambda row: row["σ"]),
        "stuck": min(row[PAPER_ERROR] for row in rows),
    }
    return Outcome(rows, _draw(rows), numbers, checks, settings)


def _medians(rows: list[Row], names: Iterable[str], mark: str, missed: str) -> list[str]:
    """The median layers of each schedule, in words."""
    return [f"{name}{mark}{_median(rows, name):g}".replace("inf", missed) for name in names]


def _measure(C: Tensor, reg: float) -> Row:
    """Layers to the tolerance for every schedule on one problem (None: not reached), ω* and σ."""
    solved = final(C, Relaxed(1.9).layers(reg, 2_000))
    sigma = min(second_singular_value(plan(C, *solved, reg)), 1 - 1e-9)
    omega = best_omega(sigma)
    schedules: dict[str, Schedule] = {"gradient": Gradient(), "alternating": Alternating(), CLIMBING: Relaxed()}
    schedules |= {BEST: Relaxed(omega), FIXED: Relaxed(1.8)}
    found: Row = {"σ": sigma, "ω*": omega, SINKHORN: _first(C, reg, sinkhorn_half_steps(C, reg))}
    found[PAPER_ERROR] = mean_marginal_error(C, *final(C, Paper(n=len(C)).layers(reg, PAPER_LIMIT)), reg)
    found |= {name: _first(C, reg, iterates(C, each.layers(reg, LIMIT))) for name, each in schedules.items()}
    ends = (final(C, Annealed(omega=omega, stages=4).layers(reg, depth)) for depth in LADDER)  # each made for one depth
    shortest = _first(C, reg, ends)
    return found | {ANNEALED: None if shortest is None else LADDER[shortest]}


def _first(C: Tensor, reg: float, run: Iterable[tuple[Tensor, Tensor]]) -> int | None:
    """The first iterate below the tolerance, counted from 0; None if there is none up to the limit."""
    errors = (mean_marginal_error(C, u, v, reg) for u, v in islice(run, LIMIT + 1))
    return next((k for k, error in enumerate(errors) if error < TOLERANCE), None)


def _ratio(row: Row, name: str) -> float:
    """Layers of a schedule over Sinkhorn's half-steps (or the limit, if more); infinite where the schedule never arrived."""
    return math.inf if row[name] is None else row[name] / (row[SINKHORN] or LIMIT)


def _median(rows: list[Row], name: str) -> float:
    """The median over problems, their number being odd; infinite where most did not reach the tolerance."""
    return median(math.inf if row[name] is None else row[name] for row in rows)


def _draw(rows: list[Row]) -> figures.Figure:
    sizes, count = sorted({row["n"] for row in rows}), len({row["problem"] for row in rows})
    fig, axes = figures.figure(3.6 * len(sizes) + 2.4, 3.9, 1, len(sizes), sharey=True, squeeze=False)
    for ax, n in zip(axes[0], sizes, strict=True):
        beside: Counter[tuple[float, int]] = Counter()  # marks already at this λ and cap: the next one stands beside them
        for name, marker, colour in zip(DRAWN_SCHEDULES, "soD^vPX", (figures.INK, *figures.CYCLE), strict=False):
            layers = [_median([row for row in rows if (row["n"], row["λ"]) == (n, reg)], name) for reg in REGS]
            ax.loglog(REGS, layers, "--" if name == SINKHORN else "-", marker=marker, color=colour, label=name)
            missed = [reg for reg, found in zip(REGS, layers, strict=True) if math.isinf(found)]
            cap = LADDER[-1] if name == ANNEALED else LIMIT
            for reg in missed:
                figures.not_reached(ax, reg * 1.07 ** beside[reg, cap], cap, colour, marker)
                beside[reg, cap] += 1
        ax.set_xticks(REGS, [f"{reg:g}" for reg in REGS])
        ax.minorticks_off()
        ax.invert_xaxis()
        ax.set(title=f"n = {n}, median of {count} problems", xlabel="λ (smaller is harder)")
    axes[0, 0].set_ylabel("layers to a mean marginal error of 10⁻⁶")
    note = "open, arrow: not reached\nat the largest depth tried"
    axes[0, 0].plot([], [], " ", marker=r"$\uparrow$", markersize=9, color=figures.INK, label=note)
    axes[0, 0].plot([], [], " ", label="paper's γ: never reached")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center")
    return fig
