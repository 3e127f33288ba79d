"""A picture of a training log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def log_figure(log: Path) -> Figure:
    """Loss and share of right rows against the step, one line per seed, from the ``log.csv`` of a run."""
    from matplotlib.figure import Figure

    lines = log.read_text().splitlines()[1:]  # step, seed, loss, rows
    if not lines:
        raise ValueError(f"{log} holds no lines yet")
    numbers = np.loadtxt(lines, delimiter=",", ndmin=2)
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    loss, rows = figure.subplots(1, 2)
    for seed in np.unique(numbers[:, 1]):
        own = numbers[numbers[:, 1] == seed]
        loss.plot(own[:, 0], own[:, 2], label=f"seed {seed:.0f}", linewidth=1)
        rows.plot(own[:, 0], 100 * own[:, 3], linewidth=1)
    loss.set(xlabel="step", ylabel="loss", yscale="log")
    rows.set(xlabel="step", ylabel="rows right in training (%)", ylim=(0, 101))
    loss.legend(frameon=False, fontsize=7, ncols=2)
    return figure
