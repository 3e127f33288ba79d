"""A picture of a training log."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def log_figure(log: Path) -> Figure:
    """Loss and share of right rows against the step, a line a seed, from the ``log.csv`` of a run."""
    from matplotlib.figure import Figure

    with log.open(newline="") as file:
        lines = list(csv.DictReader(file))
    if not lines:
        raise ValueError(f"{log} holds no lines yet")
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    loss, rows = figure.subplots(1, 2)
    for seed in sorted({int(line["seed"]) for line in lines}):
        own = [line for line in lines if int(line["seed"]) == seed]
        steps = [int(line["step"]) for line in own]
        loss.plot(steps, [float(line["loss"]) for line in own], label=f"seed {seed}", linewidth=1)
        rows.plot(steps, [100 * float(line["rows"]) for line in own], linewidth=1)
    loss.set(xlabel="step", ylabel="loss", yscale="log")
    rows.set(xlabel="step", ylabel="rows right in training (%)", ylim=(0, 101))
    loss.legend(frameon=False, fontsize=7, ncols=2)
    return figure
