"""A matrix as a picture: squares of one colour, the more opaque the larger the number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from otformer.figures import SEQUENTIAL
from otformer.show.coarse import Array, block_size
from otformer.show.look import HEAT, MARK, PAGE_SIDE, SIDE, TEXT, svg

SHADES = " ░▒▓█"
LEVELS = 20  # of opacity
LETTERS = 14  # of a label; the rest is cut off
TIPS = 1024  # most cells of a page that say their number when pointed at
BAR, GAP = 0.1, 4  # of the longer side: the longest bar; px between the matrix and the bars
LABELLED = 24  # most rows (columns) with a label each
END = f'text-anchor="end" {TEXT}'
FRAME = 'fill="none" stroke="currentColor" stroke-opacity=".35"'


@dataclass(frozen=True, eq=False)
class Heat:
    """Numbers from 0 to ``top``, [rows, columns], of a matrix of ``shape`` whose blocks they may be (coarse.py).

    sides : names of the two sides.   labels : a text for every row and every column of the whole matrix.
    marked : the column that is outlined in each row, or None.   sums : bars on two edges, sums of rows and of columns.
    """

    matrix: Array
    title: str
    shape: tuple[int, int]
    top: float | None = None  # the largest number if None
    sides: tuple[str, str] = ("x", "y")
    labels: tuple[Sequence[str], Sequence[str]] | None = None
    marked: Sequence[int] | None = None
    sums: bool = False

    @property
    def caption(self) -> str:
        """What one cell is, and what full colour stands for."""
        sizes = [block_size(whole, cells) for whole, cells in zip(self.shape, self.matrix.shape, strict=True)]
        cell = "" if sizes == [1, 1] else f"a cell is {sizes[0]} × {sizes[1]} entries added up, "
        bars = f"; bars: sums of rows and of columns, the longest {self._longest:.3g}" if self.sums else ""
        return f"{cell}full colour {self._top:.3g}, by square roots{bars}"

    @property
    def _longest(self) -> float:
        return float(max(self.matrix.sum(0).max(), self.matrix.sum(1).max()))

    @property
    def _top(self) -> float:
        return float(self.matrix.max()) if self.top is None else self.top

    def shades(self) -> Array:
        """How strong each cell is, 0 to 1: the square root of its share of the top, so that small shares are seen."""
        return np.sqrt(np.clip(self.matrix / self._top, 0, 1)) if self._top > 0 else np.zeros_like(self.matrix)

    def _texts(self, side: int) -> list[str]:
        """The label of every row (side 0) or column, cut to length; none where there are none or too many."""
        if self.labels is None or self.matrix.shape[side] > LABELLED or self.shape[side] != self.matrix.shape[side]:
            return []
        return [text if len(text) <= LETTERS else text[: LETTERS - 1] + "…" for text in map(str, self.labels[side])]

    def svg(self, page: bool = False) -> str:
        """One path for each level of opacity, on a transparent ground; on a page one for each cell, with its number."""
        n, m = self.matrix.shape
        side = PAGE_SIDE if page else SIDE
        cell, bar = side / max(n, m, 11.5), side * BAR if self.sums else 0.0
        rows, columns = self._texts(0), self._texts(1)
        left, below = (max([16.0, *(6 + 6.6 * len(text) for text in texts)]) for texts in (rows, columns))
        top, wide, tall = 1 + bar, m * cell, n * cell
        parts = [f'<g transform="translate({left:g} {top:.4g}) scale({cell:.4g})" fill="{HEAT}">']
        parts += self._tips() if page and self.matrix.size <= TIPS else self._paths()
        parts += [_outline(i, j) for i, j in enumerate(self.marked or ())]
        parts += ["</g>", f'<rect x="{left:g}" y="{top:.4g}" width="{wide:.4g}" height="{tall:.4g}" {FRAME}/>']
        parts += self._bars(left, top, cell, bar) if self.sums else []
        for k, text in enumerate(rows):
            parts.append(f'<text x="{left - 4:g}" y="{top + (k + 0.5) * cell:.4g}" {END} dy=".35em">{escape(text)}</text>')
        for k, text in enumerate(columns):
            at = f"translate({left + (k + 0.5) * cell:.4g} {top + tall + 5:.4g}) rotate(-90)"
            parts.append(f'<text transform="{at}" {END} dy=".35em">{escape(text)}</text>')
        if not rows:
            parts.append(f'<text x="{left - 5:g}" y="{top + tall / 2:.4g}" {END} dy=".35em">{escape(self.sides[0])}</text>')
        if not columns:
            place = f'x="{left + wide / 2:.4g}" y="{top + tall + 12:.4g}" text-anchor="middle"'
            parts.append(f"<text {place} {TEXT}>{escape(self.sides[1])}</text>")
        name = f"{self.title}: {self.shape[0]} × {self.shape[1]}, {self.caption}"
        return svg(left + wide + bar + 2, top + tall + below + 2, name, "".join(parts), page)

    def _levels(self) -> Array:
        return np.round(self.shades() * LEVELS).astype(int)

    def _paths(self) -> list[str]:
        levels = self._levels()
        found = []
        for level in range(1, LEVELS + 1):
            cells = "".join(f"M{j} {i}h1v1h-1z" for i, j in np.argwhere(levels == level).tolist())
            found += [f'<path fill-opacity="{level / LEVELS:g}" d="{cells}"/>'] if cells else []
        return found

    def _tips(self) -> list[str]:
        """Every cell on its own, with its names and number as what a browser shows when it is pointed at."""
        levels, (rows, columns) = self._levels(), (self._names(0), self._names(1))
        return [
            f'<path fill-opacity="{levels[i, j] / LEVELS:g}" d="M{j} {i}h1v1h-1z">'
            f"<title>{escape(f'{rows[i]}, {columns[j]}: {self.matrix[i, j]:.4g}')}</title></path>"
            for i, j in np.ndindex(self.matrix.shape)
        ]

    def _names(self, side: int) -> list[str]:
        """What a row (column) is called: its label, or its number from 1, or the numbers of its block."""
        size, whole = block_size(self.shape[side], self.matrix.shape[side]), self.shape[side]
        if self.labels is not None and size == 1:
            return [str(text) for text in self.labels[side]]
        spans = [(k * size + 1, min((k + 1) * size, whole)) for k in range(self.matrix.shape[side])]
        return [f"{self.sides[side]} {a}" if a == b else f"{self.sides[side]} {a} to {b}" for a, b in spans]

    def _bars(self, left: float, top: float, cell: float, bar: float) -> list[str]:
        """Sums of the rows on the right, of the columns on top, on one scale."""
        scale = (bar - GAP) / (self._longest or 1)
        right, thick, inset = left + self.matrix.shape[1] * cell + GAP, 0.76 * cell, 0.12 * cell
        lines = [
            f"M{right:.5g} {top + i * cell + inset:.5g}h{scale * s:.4g}v{thick:.4g}h{-scale * s:.4g}z"
            for i, s in enumerate(self.matrix.sum(1).tolist())
        ]
        lines += [
            f"M{left + j * cell + inset:.5g} {top - GAP:.5g}v{-scale * s:.4g}h{thick:.4g}v{scale * s:.4g}z"
            for j, s in enumerate(self.matrix.sum(0).tolist())
        ]
        return [f'<path fill="currentColor" opacity=".4" d="{"".join(lines)}"/>']

    def text(self) -> list[str]:
        """Two characters a cell, with labels where there are any."""
        rows = self._texts(0)
        left = max([0, *(len(text) for text in rows)])
        shades = np.round(self.shades() * (len(SHADES) - 1)).astype(int).tolist()
        drawn = ["".join(2 * SHADES[k] for k in row) for row in shades]
        wide = 2 * self.matrix.shape[1]
        body = [f"{rows[k] if rows else '':>{left}}▕{line}▏" for k, line in enumerate(drawn)]
        edges = [" " * (left + 1) + "▁" * wide, " " * (left + 1) + "▔" * wide]
        return [edges[0], *body, edges[1]]

    def draw(self, axes: Any) -> None:
        """On axes of matplotlib, points counted from 1."""
        n, m = self.shape
        extent = (0.5, m + 0.5, n + 0.5, 0.5)
        axes.imshow(self.matrix, cmap=SEQUENTIAL, vmin=0, vmax=self._top or 1, extent=extent, interpolation="nearest")
        for side, axis in ((0, axes.yaxis), (1, axes.xaxis)):
            texts = self._texts(side)
            if texts:
                axis.set_ticks(range(1, len(texts) + 1), texts, rotation=90 if side else 0)
            else:
                axis.get_major_locator().set_params(integer=True)
        if self.marked is not None:
            axes.plot([j + 1 for j in self.marked], range(1, len(self.marked) + 1), "s", mfc="none", color=MARK)
        axes.grid(visible=False)
        axes.set(title=self.title, ylabel=self.sides[0], xlabel=self.sides[1])


def checked_labels(labels: Any, shape: tuple[int, int]) -> tuple[list[str], list[str]] | None:
    """Two lists of texts, one for each row and one for each column of a matrix of ``shape``; None stays None.

    >>> checked_labels((["the", "cat"], ["chat"]), (2, 1))
    (['the', 'cat'], ['chat'])
    """
    if labels is None:
        return None
    expected = f"labels must be two lists, of {shape[0]} and {shape[1]} texts"
    if isinstance(labels, str) or not isinstance(labels, Sequence) or len(labels) != 2:
        raise ValueError(f"{expected}, got {type(labels).__name__}")
    if any(isinstance(side, str) or not hasattr(side, "__len__") for side in labels):
        raise ValueError(f"{expected}, got {' and '.join(type(side).__name__ for side in labels)}")
    if [len(side) for side in labels] != [*shape]:
        raise ValueError(f"{expected}, got {len(labels[0])} and {len(labels[1])}")
    return [str(text) for text in labels[0]], [str(text) for text in labels[1]]


def _outline(i: int, j: int) -> str:
    place = f'x="{j + 0.06:g}" y="{i + 0.06:g}" width=".88" height=".88"'
    return f'<rect {place} fill="none" stroke="{MARK}" stroke-width=".12"/>'
