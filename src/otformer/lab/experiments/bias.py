"""What λ costs: P*_λ beside the optimum P*, and the error with which it sorts.

Theorem U of docs/exactness.md has the rate e^{−ρ/λ}, with Δ and ρ, and the estimates behind the other predictions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise, product
from statistics import fmean, linear_regression, median
from typing import NamedTuple

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._optimum import optimum
from otformer.lab.experiments._problems import entropic_plan, unit_cube
from otformer.lab.experiments._texts import ends
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.network.schedule import Alternating
from otformer.network.transformer import AligningTransformer

SIZES, DIMS, PROBLEMS = (16, 64), (1, 2, 3, 16), 2  # points per side, dimensions, problems of each
REGS = [10 ** (-k / 2) for k in range(13)]  # λ from 1 to 1e-6
TAIL = (8, 10, 12, 14)  # values of ρ/λ at which the exponent is measured; at 14 a swap has a weight of 1e-6
EXPONENTS = 0.99, 1.1  # claimed, over ρ; what is solved to SOLVED moves one by 0.005
SOLVED = 1e-9  # marginal error of P*_λ, as a share of the mass: at λ = 1e-6 rounding of C/λ leaves a tenth of that
LISTS = {16: 150, 64: 30, 256: 4}  # n -> lists of random numbers, ten times as many with `full`
LIST_REGS = [10 ** (-k / 2) for k in range(1, 14)]
FIXED_REGS, FIXED_N, FIXED_DEPTH = (0.1, 0.01, 0.001), 32, 4096  # networks whose λ stays, on one list
EXCESS, OFF, MAP_ERROR = "⟨C, P*_λ − P*⟩/n", "‖P*_λ − P*‖₁/n", "error of the barycentric map"
LIST_ERROR, PREDICTED_ERROR = "sorting error", "π²/6 (n−1)n²λ²"
COLUMN_NAMES = ("task", "n", "d", "problem", "λ", "Δ", "ρ", EXCESS, OFF, MAP_ERROR, LIST_ERROR, PREDICTED_ERROR)


class Path(NamedTuple):
    """A list sorted by a network whose λ stays: errors after 1, 2, 4, … layers, that of P*_λ, and σ."""

    errors: list[float]
    bias: float
    sigma: float

    @property
    def left(self) -> float:
        """How far the last error is from that of P*_λ, as a share of it."""
        return abs(self.errors[-1] / self.bias - 1)

    def claimed(self, reg: float, n: int) -> float:
        """What is claimed of `left`: n σ^{L − 1/λ}, and a per cent."""
        return 0.01 + n * self.sigma ** max(0.0, 2 ** (len(self.errors) - 1) - 1 / reg)


def run(context: Context) -> Outcome:
    generator = context.generator()
    cases = list(product(SIZES, DIMS, range(5 * PROBLEMS if context.full else PROBLEMS)))
    plans = [_biases(n, d, number, generator) for n, d, number in context.each(cases, 0.2)]
    lists = {n: count * (10 if context.full else 1) for n, count in LISTS.items()}
    sorts = []
    for k, (n, count) in enumerate(lists.items(), 1):
        sorts.append([sorting_error(n, count, reg, context.seed) for reg in LIST_REGS])
        context.progress(0.2 + 0.7 * k / len(lists))
    x = torch.rand(FIXED_N, generator=generator, dtype=torch.float64)
    fixed = {reg: _by_depth(x, reg) for reg in FIXED_REGS}
    exponents = [_exponent(rows) for rows in plans]
    below = [
        [row for row in rows if 10 / lists[row["n"]] / row["n"] ** 3 < row["λ"] < 0.1 / row["n"] ** 2] for rows in sorts
    ]
    slopes = [_slope(rows) for rows in below]
    middle = _slope([row for row in sorts[-1] if 0.9e-4 < row["λ"] < 1.1e-3])
    checks = {
        "excess": _within((row[EXCESS] / row["λ"] / math.log(row["n"]) for rows in plans for row in rows), 0, 1),
        "exponent": _within(exponents, *EXPONENTS),
        "vanishes": all(
            rows[-1][LIST_ERROR] < 1e-5 and all(b[LIST_ERROR] < a[LIST_ERROR] for a, b in pairwise(rows)) for rows in sorts
        ),
        "small_reg": _within((row[LIST_ERROR] / row[PREDICTED_ERROR] for rows in below for row in rows), 0.5, 2),
        "slopes": _within(slopes, 1.6, 2.4),
        "slow": 0 < middle < 0.5,
        "fixed": all(path.left <= path.claimed(reg, FIXED_N) < 1 for reg, path in fixed.items()),
    }
    settings = {"sizes": SIZES, "dims": DIMS, "lists": lists, "marginal error": SOLVED, "fixed λ": list(FIXED_REGS)}
    rows = [{name: row.get(name) for name in COLUMN_NAMES} for rows in (*plans, *sorts) for row in rows]
    numbers = _numbers(plans, sorts, below, fixed)
    numbers |= {"exponents": ends(exponents), "slopes": ends(slopes), "middle": middle}
    return Outcome(rows, _draw(plans, sorts, fixed), numbers, checks, settings)


def _numbers(plans: list[list[Row]], sorts: list[list[Row]], below: list[list[Row]], fixed: dict[float, Path]) -> Numbers:
    ratios = [rows[0]["Δ"] / rows[0]["ρ"] for rows in plans]
    slopes = [(_slope(rows), rows[0]["n"]) for rows in below]
    first, path = next(iter(fixed.items()))
    return {
        "plans": len(plans),
        "ratios": ends(ratios),
        "ratio": median(ratios),
        "largest": sorts[-1][0]["n"],
        "least_reg": LIST_REGS[-1],
        "arrived": path.errors[-1],
        "arrived_at": first,
        "bound": max(row[EXCESS] / row["λ"] / math.log(row["n"]) for rows in plans for row in rows),
        "near": ends(row[LIST_ERROR] / row[PREDICTED_ERROR] for rows in below for row in rows),
        "last": [f"{rows[-1][LIST_ERROR]:.1e} for n = {rows[0]['n']}" for rows in sorts],
        "steep": [f"{slope:.2f} for n = {n}" for slope, n in slopes],
        "left": [f"{path.errors[-1]:.2g} at λ = {reg:g}" for reg, path in fixed.items()],
        "away": [f"{path.left:.1e} ≤ {path.claimed(reg, FIXED_N):.1e}" for reg, path in fixed.items()],
    }


def _within(values: Iterable[float], low: float, high: float) -> bool:
    """Whether there are values, all between the two."""
    found = list(values)
    return bool(found) and all(low <= value <= high for value in found)


def _biases(n: int, d: int, number: int, generator: torch.Generator) -> list[Row]:
    """One problem: the three biases over λ down to the last of the tail."""
    _, y, C = unit_cube(n, d, generator=generator)
    y, C = y / math.sqrt(d), C / d  # a cube of diagonal 1
    found = optimum(C)
    rho, same = found.gap_per_row, torch.eye(n, dtype=torch.bool)
    rows = []
    for reg in sorted({*(reg for reg in REGS if reg > rho / TAIL[0]), *(rho / ratio for ratio in TAIL)}, reverse=True):
        P = entropic_plan(C, reg, SOLVED * n)
        ordered = P[:, found.best]
        row: Row = {"task": "plan", "n": n, "d": d, "problem": number, "λ": reg, "Δ": found.gap, "ρ": rho}
        row[EXCESS] = float((ordered * found.reduced).sum()) / n  # ⟨C, P − P*⟩ without cancellation
        row[OFF] = 2 * float(ordered.masked_fill(same, 0).sum()) / n  # what leaves the diagonal is missing on it
        row[MAP_ERROR] = float((P @ y - y[found.best]).norm(dim=1).mean())
        rows.append(row)
    return rows


def _exponent(rows: list[Row]) -> float:
    """−d log‖P*_λ − P*‖₁ / d(ρ/λ) over the tail: 1 if the distance falls as e^{−ρ/λ}."""
    tail = rows[-len(TAIL) :]
    return -linear_regression([row["ρ"] / row["λ"] for row in tail], [math.log(row[OFF]) for row in tail]).slope


def sorting_error(n: int, lists: int, reg: float, seed: int) -> Row:
    """Mean of |Σ_i P_ij x_i − j-th smallest x| over places and uniform lists: the same lists for every λ."""
    x = torch.rand(lists, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    error = fmean(_list_error(each, entropic_plan(_to_places(each), reg, SOLVED * n)) for each in x)
    row: Row = {"task": "sort", "n": n, "d": 1, "problem": f"mean of {lists}", "λ": reg, LIST_ERROR: error}
    return row | {PREDICTED_ERROR: math.pi**2 / 6 * (n - 1) * n**2 * reg**2}


def _to_places(x: Tensor) -> Tensor:
    """Costs (x_i − j/n)², [n, n]."""
    return (x[:, None] - _places(x)) ** 2


def _places(x: Tensor) -> Tensor:
    return (torch.arange(len(x), dtype=x.dtype) + 1) / len(x)


def _list_error(x: Tensor, P: Tensor) -> float:
    return float(((x @ P) / P.sum(0) - x.sort().values).abs().mean())


def _slope(rows: list[Row]) -> float:
    """d log(error)/d log λ, by least squares."""
    return linear_regression([math.log(row["λ"]) for row in rows], [math.log(row[LIST_ERROR]) for row in rows]).slope


def _by_depth(x: Tensor, reg: float) -> Path:
    """How the network with a fixed λ sorts a list, after 1, 2, 4, … layers, and how P*_λ would."""
    depths = [2**k for k in range(FIXED_DEPTH.bit_length())]
    network = AligningTransformer(1, reg, FIXED_DEPTH, Alternating())
    trace = network(x[:, None], _places(x)[:, None], keep=depths, warn=False)
    P = entropic_plan(_to_places(x), reg, SOLVED * len(x))
    errors = [_list_error(x, trace.plan(depth)) for depth in depths]
    return Path(errors, _list_error(x, P), float(torch.linalg.svdvals(P)[1]))


def _draw(plans: list[list[Row]], sorts: list[list[Row]], fixed: dict[float, Path]) -> figures.Figure:
    """Above: the three biases of the largest problems over λ. Below: sorting, over λ and over depth."""
    fig, axes = figures.figure(11, 7, "abc;dde")
    largest = [rows for rows in plans if rows[0]["n"] == max(SIZES)]
    for rows in largest:
        colour = figures.CYCLE[DIMS.index(rows[0]["d"])]
        label = f"d = {rows[0]['d']}" if rows[0]["problem"] == 0 else None
        regs = [row["λ"] for row in rows]
        axes["a"].loglog(regs, [row[EXCESS] for row in rows], color=colour, label=label)
        axes["b"].semilogy([row["ρ"] / row["λ"] for row in rows], [row[OFF] for row in rows], ".-", color=colour)
        axes["c"].loglog(regs, [row[MAP_ERROR] for row in rows], color=colour)
    axes["a"].loglog(REGS, [reg * math.log(max(SIZES)) for reg in REGS], "--", color=figures.INK, label="λ log n")
    ratios = [0, TAIL[-1]]
    axes["b"].semilogy(ratios, [math.exp(-r) for r in ratios], "--", color=figures.INK, label=figures.mathtext("e^{−ρ/λ}"))
    axes["b"].semilogy(
        ratios,
        [math.exp(-2 * r) for r in ratios],
        ":",
        color=figures.INK,
        label=figures.mathtext("e^{−Δ/λ} at most (Δ ≥ 2ρ)"),
    )
    axes["a"].set(
        title=f"The excess cost is below λ log n (n = {max(SIZES)})",
        xlabel="λ",
        ylabel=figures.mathtext("⟨C, P*_{λ} − P*⟩ / n"),
        ylim=(1e-12, 1),
    )
    axes["b"].set(
        title=figures.mathtext("It falls as e^{−ρ/λ}"),
        xlabel="ρ/λ",
        ylabel=figures.mathtext("‖P*_{λ} − P*‖₁ / n"),
        ylim=(1e-9, 3),
    )
    axes["c"].set(title="Barycentric map", xlabel="λ", ylabel="mean distance to the optimal place", ylim=(1e-9, 1))
    for rows, colour in zip(sorts, figures.CYCLE, strict=False):
        n, regs = rows[0]["n"], [row["λ"] for row in rows]
        axes["d"].loglog(regs, [row[LIST_ERROR] for row in rows], ".-", color=colour, label=f"n = {n}")
        small = [row for row in rows if row["λ"] < 0.3 / n**2]
        axes["d"].loglog([r["λ"] for r in small], [r[PREDICTED_ERROR] for r in small], "--", color=colour)
    axes["d"].plot([], [], "--", color=figures.INK, label="(π²/6)(n−1)n²λ²")
    axes["d"].set(title=figures.mathtext("Sorting random lists with P*_{λ}"), xlabel="λ", ylabel="mean error of a number")
    for (reg, (errors, bias, _)), colour in zip(fixed.items(), figures.CYCLE, strict=False):
        axes["e"].loglog([2**k for k in range(len(errors))], errors, color=colour, label=f"λ = {reg:g}")
        axes["e"].axhline(bias, color=colour, linestyle=":")
    axes["e"].plot([], [], ":", color=figures.INK, label=figures.mathtext("error of P*_{λ}"))
    axes["e"].set(
        title="With λ fixed depth ends at an error", xlabel="layers", ylabel="mean error of a number", ylim=(5e-4, 0.2)
    )
    for name in "abde":
        axes[name].legend()
    return fig
