"""Costs beyond ‖x−y‖²: a frozen ReLU layer before the attention layers, error against its width."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import ot
import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import unit_cube
from otformer.lab.experiments._texts import ends
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.network.cost_layer import CostLayer, EuclideanDistance, SmoothCost
from otformer.network.features import pair
from otformer.network.transformer import AligningTransformer

N, REG = 24, 0.1  # points per side, λ
WIDTHS = (8, 16, 32, 64, 128, 256)  # ReLU units
Make = Callable[[int], CostLayer]
COSTS: dict[str, tuple[int, float, Make]] = {  # dimension, predicted order, layer of a width
    "|x − y|, d = 1": (1, -1, lambda width: EuclideanDistance(1, width, 0.0, 1.0)),
    "‖x − y‖, d = 2": (2, -2 / 3, lambda width: EuclideanDistance(2, width, 0.0, 1.0)),
    "‖x − y‖, d = 3": (3, -5 / 9, lambda width: EuclideanDistance(3, width, 0.0, 1.0)),
    "|x − y|^2.5, d = 1": (1, -2, lambda width: SmoothCost(lambda x, y: (x - y).abs() ** 2.5, width, 0.0, 1.0)),
}


class CostError(NamedTuple):
    """One line of `error_table`, for mass 1."""

    width: int  # ReLU units
    features: int  # dim of the network
    max_error: float  # max |C̃ − C| over all pairs
    value_error: float  # of the entropic value; at most max_error
    plan_error: float  # Σ |P̃ − P| / 2


ERROR_COLUMNS = ("width", "features", "cost error", "value error", "plan error")  # of the CSV, in the order of `CostError`


def error_table(layers: Iterable[CostLayer], x: Any, y: Any, reg: float, depth: int = 400) -> list[CostError]:
    """Layer and network on one problem (uniform weights of mass 1), against POT's Sinkhorn on the true cost."""
    x, y = pair(x, y)
    a, b = (each.new_full((len(each),), 1 / len(each)) for each in (x, y))

    def value(C: Tensor, P: Tensor) -> float:
        return float((C * P).sum() - reg * torch.special.entr(P).sum())

    rows = []
    for layer in layers:
        C, features = layer.exact(x, y), layer(x, y)
        P = ot.bregman.sinkhorn_log(a, b, C, reg, numItermax=10_000, stopThr=1e-13)
        mine = AligningTransformer(layer.features, reg, depth, "relaxed")(features, a=a, b=b, keep="last").plan()
        gap, error = abs(value(features.cost(), mine) - value(C, P)), float((features.cost() - C).abs().max())
        rows.append(CostError(layer.width, layer.features, error, gap, float((mine - P).abs().sum() / 2)))
    return rows


def run(context: Context) -> Outcome:
    generator = context.generator()
    rows: list[Row] = []
    for name, (dim, _, make) in context.each(COSTS.items()):
        x, y, _ = unit_cube(N, dim, generator=generator)
        table = error_table([make(width) for width in WIDTHS], x, y, REG)
        rows += [{"cost": name, **dict(zip(ERROR_COLUMNS, found, strict=True))} for found in table]
    checks = {
        "value": all(row["value error"] <= row["cost error"] + 1e-9 for row in rows),
        "width": rows[0]["cost error"] > 10 * rows[len(WIDTHS) - 1]["cost error"],
    }
    settings = {"n": N, "reg": REG, "widths": list(WIDTHS)}
    return Outcome(rows, _draw(rows), _numbers(rows), checks, settings)


def _numbers(rows: list[Row]) -> Numbers:
    errors = {name: _column(rows, name, "cost error") for name in COSTS}
    logs = {name: [np.log(_column(rows, name, column)) for column in ("width", "cost error")] for name in COSTS}
    slopes = {name: np.polyfit(width, error, 1)[0] for name, (width, error) in logs.items()}  # by least squares
    return {
        "factor": WIDTHS[-1] // WIDTHS[0],
        "widest": WIDTHS[-1],
        "gain": ends(each[0] / each[-1] for each in errors.values()),
        "plans": [{"cost": name, "error": _column(rows, name, "plan error")[-1]} for name in COSTS],
        "orders": [f"{name}: order {slope:.2f} (predicted {COSTS[name][1]:.2f})" for name, slope in slopes.items()],
    }


def _column(rows: list[Row], cost: str, name: str) -> list[float]:
    return [row[name] for row in rows if row["cost"] == cost]


def _draw(rows: list[Row]) -> figures.Figure:
    fig, axes = figures.figure(10, 3.6, 1, 2, sharex=True)
    titles = {"cost error": "Largest error of the cost", "plan error": "Error of the network's plan (half L1, mass 1)"}
    for ax, (column, title) in zip(axes, titles.items(), strict=True):
        for name, marker in zip(COSTS, "oD^v", strict=True):
            ax.loglog(_column(rows, name, "width"), _column(rows, name, column), marker=marker, label=figures.mathtext(name))
        ax.set(xlabel="ReLU units", ylabel=column, title=title)
        ax.legend()
    return fig
