"""Costs beyond ‖x−y‖²: a frozen ReLU layer before the attention layers, error against its width."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from otformer import figures
from otformer.experiments._problems import unit_cube
from otformer.experiments.experiment import Context, Experiment, Outcome, Row
from otformer.network.cost_layer import CostLayer, EuclideanDistance, SmoothCost, error_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N, REG = 24, 0.1
WIDTHS = (8, 16, 32, 64, 128, 256)
Make = Callable[[int], CostLayer]
COSTS: dict[str, tuple[int, float, Make]] = {  # dimension, predicted order, layer of a width
    "|x − y|, d = 1": (1, -1, lambda width: EuclideanDistance(1, width, 0.0, 1.0)),
    "‖x − y‖, d = 2": (2, -2 / 3, lambda width: EuclideanDistance(2, width, 0.0, 1.0)),
    "‖x − y‖, d = 3": (3, -5 / 9, lambda width: EuclideanDistance(3, width, 0.0, 1.0)),
    "|x − y|^2.5, d = 1": (1, -2, lambda width: SmoothCost(lambda x, y: (x - y).abs() ** 2.5, width, 0.0, 1.0)),
}


def run(context: Context) -> Outcome:
    generator = context.generator()
    rows: list[Row] = []
    for k, (name, (dim, _, make)) in enumerate(COSTS.items()):
        x, y = unit_cube(N, dim, generator)
        for found in error_table([make(width) for width in WIDTHS], x, y, REG):
            rows.append(
                {
                    "cost": name,
                    "width": found.width,
                    "features": found.features,
                    "cost error": found.max_error,
                    "value error": found.value_error,
                    "plan error": found.plan_error,
                }
            )
        context.progress((k + 1) / len(COSTS))
    orders = {name: _order([row for row in rows if row["cost"] == name]) for name in COSTS}
    listed = "; ".join(f"{name}: order {order:.2f} (predicted {COSTS[name][1]:.2f})" for name, order in orders.items())
    widest = {name: [row for row in rows if row["cost"] == name][-1] for name in COSTS}
    plans = ", ".join(f"{row['plan error']:.1e}" for row in widest.values())
    summary = (
        f"{N} random points a side, λ = {REG}. The largest error of the cost falls with the number of ReLU units: {listed}. "
        f"At the largest width, the plan found by the network differs from POT's on the true cost by {plans} (half the sum "
        "of absolute differences, mass 1), in the same order. The slope is fitted on one problem each, over six widths, so "
        "it is rough. In d dimensions width must grow like a power of 1/ε that gets worse with d; a general cost "
        "for d > 1 is not built."
    )
    checks = {
        "the entropic value is off by at most the cost's largest error, every time": all(
            row["value error"] <= row["cost error"] + 1e-9 for row in rows
        ),
        "more width is more accurate: the widest layer beats the narrowest tenfold on |x − y|": (
            rows[0]["cost error"] > 10 * rows[len(WIDTHS) - 1]["cost error"]
        ),
    }
    settings = {"n": N, "reg": REG, "widths": list(WIDTHS)}
    return Outcome(rows, _draw(rows), summary, checks, settings)


def _order(rows: list[Row]) -> float:
    """Least-squares slope of log(cost error) over log(width)."""
    x = torch.tensor([row["width"] for row in rows], dtype=torch.float64).log()
    y = torch.tensor([row["cost error"] for row in rows], dtype=torch.float64).log()
    centred = x - x.mean()
    return float((centred * y).sum() / (centred**2).sum())


def _draw(rows: list[Row]) -> Figure:
    fig, axes = figures.figure(10, 3.6, 1, 2, sharex=True)
    for ax, column, title in (
        (axes[0], "cost error", "Largest error of the cost"),
        (axes[1], "plan error", "Error of the network's plan (half L1, mass 1)"),
    ):
        for name, marker in zip(COSTS, "oD^v", strict=True):
            chosen = [row for row in rows if row["cost"] == name]
            ax.loglog([r["width"] for r in chosen], [r[column] for r in chosen], marker=marker, label=name)
        ax.set(xlabel="ReLU units", ylabel=column, title=title)
    axes[0].legend()
    return fig


EXPERIMENT = Experiment(
    name="general-costs",
    title="Other costs through a feed-forward layer",
    source="paper, section 5, “Generalized Cost Functions”",
    claim="The paper conjectures that attention with feed-forward layers solves the problem for general costs. A frozen "
    "ReLU layer that computes features does so for plain Euclidean distance and for smooth costs on the line.",
    run=run,
)
