"""How figures look: one font, one colour-blind-safe palette (Okabe and Ito, 2008), no global state."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from otformer.files import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, YELLOW, GREY, INK = "#56B4E9", "#E69F00", "#8A8F98", "#1B1F24"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, GREY)
SEQUENTIAL = "Blues"  # for matrices with entries in [0, 1]

# Sub- and superscripts are written in text as in TeX, ``x_{i}`` and ``e^{1/λ}``. A script is braced, or a number, or one or
# two letters that end the word: C_ij and k^2.5, but not state_dict.
SCRIPT = re.compile(r"(?P<mark>[_^])(?:\{(?P<braced>[^{}]+)\}|(?P<plain>\d+(?:\.\d+)?|\w{1,2})\b)")

_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E6EA",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "figure.facecolor": "white",
    "savefig.dpi": 160,
    "svg.hashsalt": "otformer",  # the same figure gives the same file
    "svg.fonttype": "path",
}


def needed() -> None:
    """Say before a long run, not after it, that nothing can be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("figures need matplotlib, which is not installed: pip install matplotlib")


@contextmanager
def applied() -> Iterator[None]:
    """Draw and save in the house style inside this block; settings are put back after it."""
    import matplotlib
    from cycler import cycler

    settings: Any = {**_SETTINGS, "axes.prop_cycle": cycler(color=CYCLE)}
    with matplotlib.rc_context(settings):
        yield


def figure(width: float, height: float, rows: int | str = 1, columns: int = 1, **subplots: Any) -> tuple[Figure, Any]:
    """A figure of that size in inches and its axes, as ``plt.subplots`` gives them, but without pyplot's registry.

    ``rows`` may have a letter for each panel, by which its axes are found: in ``abc;ddd`` the second row is one panel, d.
    """
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplot_mosaic(rows, **subplots) if isinstance(rows, str) else made.subplots(rows, columns, **subplots)


def named_rows(axes: Any, names: Sequence[str]) -> None:
    """A logarithmic axis, and a line of text for each row, from the top."""
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def not_reached(axes: Any, x: float, cap: float, colour: str, marker: str) -> None:
    """An open mark with an arrow upwards: the value is above ``cap``, or there is none."""
    axes.plot([x], [cap], marker=marker, color=colour, markerfacecolor="white")
    axes.annotate(
        "", (x, cap), (0, 16), textcoords="offset points", arrowprops={"arrowstyle": "<-", "color": colour, "shrinkB": 4}
    )


def heatmap(axes: Any, matrix: Any, title: str, top: float = 1.0, sides: str = "xy") -> Any:
    """A matrix with rows x and columns y (or ``sides``), colours from 0 to ``top``; ticks count points from 1."""
    image = axes.imshow(np.asarray(matrix), cmap=SEQUENTIAL, vmin=0, vmax=top, interpolation="nearest")
    n, m = matrix.shape
    for axis, size in ((axes.xaxis, m), (axes.yaxis, n)):  # all points up to twelve, otherwise about eight, both ends
        ticks = range(size) if size <= 12 else np.unique(np.linspace(0, size - 1, 8).round().astype(int))
        axis.set_ticks(ticks, [str(k + 1) for k in ticks])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    first = axes.get_subplotspec().is_first_col()
    axes.set(title=title, xlabel=f"{sides[1]}, point number", ylabel=f"{sides[0]}, point number" if first else "")
    return image


def mathtext(text: str) -> str:
    """The text for matplotlib, its scripts as mathtext.

    >>> mathtext("P^{(1)}: e_{2d+5}")
    'P$^{(1)}$: e$_{2d+5}$'
    """
    return SCRIPT.sub(lambda found: f"${found['mark']}{{{found['braced'] or found['plain']}}}$", text)


def save(draw: Callable[[], Figure], file: Path, **options: Any) -> None:
    """Save a picture drawn in this style, in the format of the file's name (png, svg, pdf), whole or not at all."""
    stream = io.BytesIO()
    with applied():
        draw().savefig(stream, format=file.suffix.removeprefix("."), **options)
    with written(file) as out:
        out.write(stream.getvalue())
