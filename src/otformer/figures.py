"""How figures look: one font, one colour-blind-safe palette (Okabe and Ito, 2008), no global state."""

from __future__ import annotations

import importlib.util
import io
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otformer.extras import install
from otformer.files import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, YELLOW, GREY, INK = "#56B4E9", "#E69F00", "#8A8F98", "#1B1F24"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, GREY)
DPI = 160  # of saved pictures
SEQUENTIAL = "Blues"  # for matrices with entries in [0, 1]

# Sub- and superscripts are written in text as in TeX, ``x_{i}`` and ``e^{1/λ}``. A script is braced, or a number, or one or
# two letters that end the word: C_ij and k^2.5, but not state_dict.
SCRIPT = re.compile(r"(?P<mark>[_^])(?:\{(?P<braced>[^{}]+)\}|(?P<plain>\d+(?:\.\d+)?|\w{1,2})\b)")

NARROW = 4.4  # inches, for a page of 390 pixels: letters of 9 points are then 11 pixels high
LETTERS_PER_INCH, MARGIN = 11, 0.6  # of a bold title in a narrow panel, and inches that ticks and labels take
LONG_TICK, LONG_LABEL = 26, 26  # letters: longer names of rows are broken, a legend with longer ones has one column


def needed() -> None:
    """Say that nothing can be drawn: before a long run, and whenever something is drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(f"figures need matplotlib, which is not installed: {install('plots')}")


@contextmanager
def applied() -> Iterator[None]:
    """Draw and save in the house style inside this block; settings are put back after it."""
    needed()
    import matplotlib
    from cycler import cycler

    with as_file(files("otformer").joinpath("otformer.mplstyle")) as file:
        style: Any = matplotlib.rc_params_from_file(file, use_default_template=False)
    own: Any = {"axes.edgecolor": INK, "axes.prop_cycle": cycler(color=CYCLE), "savefig.dpi": DPI}
    with matplotlib.rc_context({**style, **own}):
        yield


def figure(width: float, height: float, rows: int | str = 1, columns: int = 1, **subplots: Any) -> tuple[Figure, Any]:
    """A figure of that size in inches and its axes, as ``plt.subplots`` gives them, but without pyplot's registry.

    ``rows`` may have a letter for each panel, by which its axes are found: in ``abc;ddd`` the second row is one panel, d.
    """
    needed()
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplot_mosaic(rows, **subplots) if isinstance(rows, str) else made.subplots(rows, columns, **subplots)


def narrowed(figure: Figure, width: float = NARROW) -> Figure:
    """The same figure, laid out anew for a phone: panels one below the other, matrices in pairs, legends below.

    A panel keeps its height; in a pair it keeps its proportions.
    """
    from matplotlib.gridspec import GridSpec

    for axes in [axes for axes in figure.axes if not axes.axison]:
        axes.remove()  # an empty cell of the wide layout
    panels = [_Panel.of(axes) for axes in figure.axes if axes.get_subplotspec()]
    lines: list[list[_Panel]] = []
    for panel in sorted(panels, key=lambda panel: panel.place):
        beside = lines and len(lines[-1]) == 1 and all(each.matrix for each in (panel, *lines[-1]))
        if beside and lines[-1][0].place[0] == panel.place[0]:
            lines[-1].append(panel)
        else:
            lines.append([panel])
    heights = [max(panel.height_at(width / len(line)) for panel in line) for line in lines]
    grid = GridSpec(len(lines), 1, figure, height_ratios=heights)
    for row, (line, height) in enumerate(zip(lines, heights, strict=True)):
        cells = grid[row].subgridspec(1, len(line))  # rows have margins of their own
        for column, panel in enumerate(line):
            panel.axes.set_subplotspec(cells[column])
            _wrap(panel.axes, width / len(line), height, first=column == 0)
    figure.set_size_inches(width, sum(heights) + _legends_below(figure))
    engine = figure.get_layout_engine()
    for _ in range(2):  # the layout settles when it has seen its own result; drawing makes one more
        if engine:
            engine.execute(figure)
    return figure


class _Panel(NamedTuple):
    """Axes, where they stood (row, column), and their size in inches."""

    axes: Any
    place: tuple[int, int]
    size: tuple[float, float]

    @classmethod
    def of(cls, axes: Any) -> _Panel:
        spec = axes.get_subplotspec()
        grid, (wide, high) = spec.get_gridspec(), axes.figure.get_size_inches()
        across, down = grid.get_width_ratios(), grid.get_height_ratios()
        share = sum(across[k] for k in spec.colspan) / sum(across), sum(down[k] for k in spec.rowspan) / sum(down)
        return cls(axes, (spec.rowspan.start, spec.colspan.start), (wide * share[0], high * share[1]))

    @property
    def matrix(self) -> bool:
        return bool(self.axes.images)

    def height_at(self, width: float) -> float:
        return self.size[1] * (min(1, width / self.size[0]) if self.matrix else 1)


def _wrap(axes: Any, width: float, height: float, first: bool) -> None:
    """Break what is longer than a narrow panel is wide or high; show the ticks that a neighbour had for it."""
    axes.tick_params(labelbottom=True, **({"labelleft": True} if first else {}))
    names = [text.get_text() for text in axes.get_yticklabels()]
    longest = max(map(len, names), default=0)
    if longest > LONG_TICK:
        axes.set_yticks(axes.get_yticks(), [_broken(name, LONG_TICK) for name in names], fontsize=6.5)
    across = round(LETTERS_PER_INCH * (width - MARGIN) - min(longest, LONG_TICK) / 2)
    axes.set_title(_broken(axes.get_title(loc="left"), across))
    axes.set_xlabel(_broken(axes.get_xlabel(), across))
    axes.set_ylabel(_broken(axes.get_ylabel(), round(LETTERS_PER_INCH * (height - 2 * MARGIN))))


def _broken(text: str, letters: int) -> str:
    """The text in lines of about so many letters; its own ends of lines stay."""
    return "\n".join(line for part in text.split("\n") for line in textwrap.wrap(part, letters) or [""])


def _legends_below(figure: Figure) -> float:
    """Put the figure's legends below it, one label a line if they are long; returns the height they take, in inches."""
    height = 0.0
    for legend in list(figure.legends):
        labels = [text.get_text() for text in legend.get_texts()]
        columns = 1 if max(map(len, labels)) > LONG_LABEL else 2
        handles = [handle for handle in legend.legend_handles if handle is not None]
        title = legend.get_title().get_text() or None
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=title)
        legend.remove()
        height += 0.2 + 0.17 * math.ceil(len(labels) / columns)
    return height


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


def colours(figure: Figure, image: Any, axes: Any, label: str = "attention") -> None:
    """The scale of a heat map, beside its axes and thin, so that a narrow figure has room for it too."""
    figure.colorbar(image, ax=axes, label=label, shrink=0.8, fraction=0.05, aspect=15)


def mathtext(text: str) -> str:
    """The text for matplotlib, its scripts as mathtext.

    >>> mathtext("P^{(1)}: e_{2d+5}")
    'P$^{(1)}$: e$_{2d+5}$'
    """
    return SCRIPT.sub(lambda found: f"${found['mark']}{{{found['braced'] or found['plain']}}}$", text)


def save(draw: Callable[[], Figure], file: Path, **options: Any) -> None:
    """Save a picture drawn in this style, in the format of the file's name (png, svg, pdf), whole or not at all; the name is
    ours (`files.written`)."""
    stream = io.BytesIO()
    with applied():
        draw().savefig(stream, format=file.suffix.removeprefix("."), **options)
    with written(file, ours=True) as out:
        out.write(stream.getvalue())
