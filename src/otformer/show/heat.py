"""A matrix as a picture: squares of one colour, the more opaque the larger the number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from otformer.errors import ArgumentError
from otformer.figures import SEQUENTIAL
from otformer.show.coarse import Array, block_size
from otformer.show.look import HEAT, MARK, PAGE_SIDE, SIDE, TEXT, printable, svg

if TYPE_CHECKING:
    from rich.text import Text

SHADES = " ░▒▓█"
LEVELS = 20  # of opacity
FAINT, DARK = np.array([222, 235, 247]), np.array([8, 48, 107])  # grounds of 0 and 1 in a terminal
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
    by_partner : rows that share a cell were sorted by their partner.
    """

    matrix: Array
    title: str
    shape: tuple[int, int]
    top: float | None = None  # the largest number if None
    sides: tuple[str, str] = ("x", "y")
    labels: tuple[Sequence[str], Sequence[str]] | None = None
    marked: Sequence[int] | None = None
    sums: bool = False
    by_partner: bool = False

    @property
    def caption(self) -> str:
        """Say what one cell is, and how large the largest."""
        sizes = [block_size(whole, cells) for whole, cells in zip(self.shape, self.matrix.shape, strict=True)]
        order = "; rows sorted by their partner" if self._sorted else ""
        cell = "" if sizes == [1, 1] else f"a cell is {sizes[0]} × {sizes[1]} entries added up{order}; "
        bars = f"; bars: sums of rows and of columns, the longest {self._longest:.3g}" if self.sums else ""
        return f"{cell}largest cell: {self._largest:.2g}{bars}"

    @property
    def _largest(self) -> float:
        return float(self.matrix.max(initial=0))

    @property
    def _sorted(self) -> bool:
        """Whether rows were sorted by their partner, as they are where several share a cell (coarse.py)."""
        return self.by_partner and block_size(self.shape[0], self.matrix.shape[0]) > 1

    @property
    def _longest(self) -> float:
        return float(max(self.matrix.sum(0).max(), self.matrix.sum(1).max()))

    @property
    def _top(self) -> float:
        return float(self.matrix.max()) if self.top is None else self.top

    def shades(self) -> Array:
        """Return the opacity of each cell, 0 to 1: the square root of its share of the top, to show small shares."""
        return np.sqrt(np.clip(self.matrix / self._top, 0, 1)) if self._top > 0 else np.zeros_like(self.matrix)

    def _texts(self, side: int) -> list[str]:
        """Return the label of every row (side 0) or column, cut to length; empty if there are none or too many."""
        if self.labels is None or self.matrix.shape[side] > LABELLED or self.shape[side] != self.matrix.shape[side]:
            return []
        return [printable(str(text), LETTERS) for text in self.labels[side]]

    def svg(self, page: bool = False) -> str:
        """Draw one path per level of opacity, on a transparent ground; on a page one per cell, with its number."""
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
        for k, text in enumerate(rows or self.sides[:1]):
            y = top + (k + 0.5) * tall / max(len(rows), 1)
            parts.append(f'<text x="{left - 4:g}" y="{y:.4g}" {END} dy=".35em">{escape(text)}</text>')
        for k, text in enumerate(columns):
            at = f"translate({left + (k + 0.5) * cell:.4g} {top + tall + 5:.4g}) rotate(-90)"
            parts.append(f'<text transform="{at}" {END} dy=".35em">{escape(text)}</text>')
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
        """Draw every cell on its own; its names and number are the tooltip."""
        levels, (rows, columns) = self._levels(), (self._names(0), self._names(1))
        return [
            f'<path fill-opacity="{levels[i, j] / LEVELS:g}" d="M{j} {i}h1v1h-1z">'
            f"<title>{escape(f'{rows[i]}, {columns[j]}: {self.matrix[i, j]:.4g}')}</title></path>"
            for i, j in np.ndindex(self.matrix.shape)
        ]

    def _names(self, side: int) -> list[str]:
        """Name a row (column): by its label, its number from 1, or the numbers of its block."""
        size, whole = block_size(self.shape[side], self.matrix.shape[side]), self.shape[side]
        if self.labels is not None and size == 1:
            return [str(text) for text in self.labels[side]]
        if side == 0 and self._sorted:
            return [f"{size} rows {self.sides[0]}"] * self.matrix.shape[0]
        spans = [(k * size + 1, min((k + 1) * size, whole)) for k in range(self.matrix.shape[side])]
        return [f"{self.sides[side]} {a}" if a == b else f"{self.sides[side]} {a} to {b}" for a, b in spans]

    def _bars(self, left: float, top: float, cell: float, bar: float) -> list[str]:
        """Draw sums of the rows on the right, of the columns on top, on one scale."""
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

    def text(self, width: int = 80) -> Text:
        """Print per cent below the labels of columns, if there are labels and the top is 1; else two characters per cell."""
        from rich.text import Text

        if self.labels is not None and self._top == 1 and self.shape == self.matrix.shape:
            return self._per_cent(*self.labels, width)
        rows = self._texts(0)
        left, wide = max([0, *(len(text) for text in rows)]), 2 * self.matrix.shape[1]
        shades = np.round(self.shades() * (len(SHADES) - 1)).astype(int).tolist()
        drawn = ["".join(2 * SHADES[k] for k in row) for row in shades]
        body = [f"{rows[k] if rows else '':>{left}}▕{line}▏" for k, line in enumerate(drawn)]
        edges = [" " * (left + 1) + "▁" * wide, " " * (left + 1) + "▔" * wide]
        return Text("\n".join([edges[0], *body, edges[1]]), style="blue", no_wrap=True)

    def _per_cent(self, beside: Sequence[str], above: Sequence[str], width: int) -> Text:
        """Print numbers on a ground that is darker for larger ones.

        Column labels stand upright where they would make it wider than ``width``; columns that do not fit then go into
        blocks below each other.

        >>> print(Heat(np.array([[0.02, 0.98]]), "", (1, 2), 1.0, labels=(["chat"], ["the", "cat"])).text())
              the cat
        chat    2  98
        """
        from rich.cells import cell_len
        from rich.text import Text

        above, beside = list(map(printable, above)), list(map(printable, beside))
        left = max(map(cell_len, beside), default=0) + 1
        wide = [max(4, cell_len(word) + 1) for word in above]
        upright = left + sum(wide) > width
        step = max(1, (width - left) // 4) if upright else max(1, len(above))
        text = Text(no_wrap=True, end="")
        for first in range(0, len(above), step):
            block = slice(first, first + step)
            room = [4] * len(above[block]) if upright else wide
            head = list(zip_longest(*(word[::-1] for word in above[block]), fillvalue=" "))[::-1] if upright else [above]
            text.append("\n\n" if first else "").append("\n".join(_cells(" " * left, line, room) for line in head))
            for word, row, shades in zip(beside, self.matrix[:, block], self.shades()[:, block], strict=True):
                text.append("\n" + word + " " * (left - cell_len(word)))
                for x, shade, space in zip(row.tolist(), shades.tolist(), room, strict=True):
                    text.append(f"{100 * x:>{space}.0f}", _ground(shade) if x >= 0.005 else "dim")
        return text

    def draw(self, axes: Any) -> None:
        """Draw on axes of matplotlib, points counted from 1."""
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
        order = ", sorted by partner" if self._sorted else ""
        axes.set(title=self.title, ylabel=self.sides[0] + order, xlabel=self.sides[1])


def checked_labels(labels: Any, shape: tuple[int, int]) -> tuple[list[str], list[str]] | None:
    """Check two lists of texts, one for the rows and one for the columns of a matrix of ``shape``; None stays None.

    >>> checked_labels((["the", "cat"], ["chat"]), (2, 1))
    (['the', 'cat'], ['chat'])
    """
    if labels is None:
        return None
    expected = f"be two lists, of {shape[0]} and {shape[1]} texts"
    if isinstance(labels, str) or not isinstance(labels, Sequence) or len(labels) != 2:
        raise ArgumentError("labels", expected, type(labels).__name__)
    if any(isinstance(side, str) or not hasattr(side, "__len__") for side in labels):
        raise ArgumentError("labels", expected, " and ".join(type(side).__name__ for side in labels))
    if [len(side) for side in labels] != [*shape]:
        raise ArgumentError("labels", expected, f"{len(labels[0])} and {len(labels[1])}")
    return [str(text) for text in labels[0]], [str(text) for text in labels[1]]


def _outline(i: int, j: int) -> str:
    place = f'x="{j + 0.06:g}" y="{i + 0.06:g}" width=".88" height=".88"'
    return f'<rect {place} fill="none" stroke="{MARK}" stroke-width=".12"/>'


def _cells(start: str, parts: Sequence[str], wide: Sequence[int]) -> str:
    """Align parts, each at the right end of its column."""
    from rich.cells import cell_len

    return start + "".join(" " * (room - cell_len(part)) + part for part, room in zip(parts, wide, strict=True))


def _ground(shade: float) -> str:
    """Choose a ground from light to dark blue, and the ink that is legible on it."""
    red, green, blue = (FAINT + shade * (DARK - FAINT)).astype(int)
    return f"{'white' if shade > 0.5 else 'black'} on rgb({red},{green},{blue})"
