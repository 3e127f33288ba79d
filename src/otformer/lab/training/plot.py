"""A picture of a training log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from otformer import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW = 20  # logged steps up to which each has a mark


def log_figure(log: Path) -> Figure:
    """Loss and share of right rows against the step, one line per seed, from the ``log.csv`` of a run."""
    lines = log.read_text().splitlines()[1:]  # step, seed, loss, rows
    if not lines:
        raise ValueError(f"{log} holds no lines yet")
    numbers = np.loadtxt(lines, delimiter=",", ndmin=2)
    made, (loss, rows) = figures.figure(9, 3.4, 1, 2)
    seeds = [numbers[numbers[:, 1] == seed] for seed in np.unique(numbers[:, 1])]
    steps = seeds[0][:, 0]
    whole = [own for own in seeds if len(own) == len(steps)]  # a seed may be behind in a log that is still written
    marker = "o" if len(steps) <= FEW else ""  # a line through one point is not seen
    for axes, column, scale in ((loss, 2, 1), (rows, 3, 100)):
        for own in seeds:
            axes.plot(own[:, 0], scale * own[:, column], marker=marker, color="#B9D4E6", linewidth=0.9)
        median = scale * np.nanmedian([own[:, column] for own in whole], axis=0)
        axes.plot(steps, median, marker=marker, color=figures.BLUE, label="median")
        axes.plot([], [], color="#B9D4E6", linewidth=0.9, label=f"each of {len(seeds)} seeds")
        axes.set(xlabel="step")
        axes.legend()
    end = seeds[0][-1, 0]
    last = [own[-1] for own in whole]
    loss.set(ylabel="loss", yscale="log", title=f"Loss at step {end:,.0f}: {np.nanmedian([row[2] for row in last]):.1e}")
    right = 100 * np.nanmedian([row[3] for row in last])
    rows.set(ylabel="rows right in training (%)", ylim=(0, 101), title=f"Rows right at step {end:,.0f}: {right:.0f} %")
    return made
