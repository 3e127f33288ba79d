"""Sentence pairs in a terminal: links as lines between two columns of words, matrices as heat maps with their numbers.

Both are `rich.text.Text`: colours where the terminal has them, and the same characters without. Words come from outside, and
are shown by `printable`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from otformer import figures
from otformer.words.align.align import Alignment
from otformer.words.text.outside import printable

if TYPE_CHECKING:
    from rich.text import Text

LINES_WIDE = 24  # characters between the two columns of words
WEAK = 0.5  # links of a lower score are dim
BRAILLE = 0x2800  # the character without a dot; dots[y][x] are those of its 4 × 2
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
FAINT, DARK = np.array([222, 235, 247]), np.array([8, 48, 107])  # backgrounds of 0 and 1


def draw_links(found: Alignment) -> Text:
    """The source words on the left, the target words on the right, a line for every link; words without one are dim.

    >>> print(draw_links(Alignment({(0, 1): 0.9, (1, 0): 0.8}, ["black", "cat"], ["chat", "noir"])))
    black ⠤⠤⠤⣀⣀⣀⣀⣀⣀⠀⠀⠀⠀⠀⠀⣀⣀⣀⣀⣀⣀⠤⠤⠤ chat
      cat ⠤⠤⠤⠒⠒⠒⠒⠒⠒⠉⠉⠉⠉⠉⠉⠒⠒⠒⠒⠒⠒⠤⠤⠤ noir
    """
    from rich.cells import cell_len
    from rich.text import Text

    sides = [list(map(printable, side)) for side in (found.source_words, found.target_words)]
    lines = max(map(len, sides))
    at = [[int((k + 0.5) * lines / len(side)) for k in range(len(side))] for side in sides]  # the line of every word
    dots = np.zeros((lines, LINES_WIDE), dtype=int)
    looks: dict[tuple[int, int], str] = {}
    for (i, j), score in found.scores.items():
        look = figures.CYCLE[i % len(figures.CYCLE)] + (" dim" if score < WEAK else "")
        for cell, dot in _line(4 * at[0][i] + 2, 4 * at[1][j] + 2):
            dots[cell] |= dot
            looks[cell] = look
    wide = max(map(cell_len, sides[0]), default=0)
    linked = [{i for i, _ in found}, {j for _, j in found}]
    words = [
        {line: (word, "" if k in there else "dim") for k, (line, word) in enumerate(zip(own, side, strict=True))}
        for own, side, there in zip(at, sides, linked, strict=True)
    ]
    text = Text(no_wrap=True, end="")
    for line in range(lines):
        word, look = words[0].get(line, ("", ""))
        text.append(" " * (wide - cell_len(word)) + word + " ", look)
        for k, dot in enumerate(dots[line].tolist()):
            text.append(chr(BRAILLE + dot), looks.get((line, k), ""))
        text.append(" ").append(*words[1].get(line, ("", "")))
        text.append("" if line == lines - 1 else "\n")
    return text


def _line(start: int, end: int) -> list[tuple[tuple[int, int], int]]:
    """The characters, as (line, column), and dots of a straight line from height ``start`` to ``end``, in dots."""
    steps = max(2 * LINES_WIDE - 1, abs(end - start))
    x = np.rint(np.linspace(0, 2 * LINES_WIDE - 1, steps + 1)).astype(int)
    y = np.rint(np.linspace(start, end, steps + 1)).astype(int)
    return [((v // 4, u // 2), DOTS[v % 4][u % 2]) for u, v in zip(x.tolist(), y.tolist(), strict=True)]


def heat_map(source: Sequence[str], target: Sequence[str], matrix: Any, width: int = 80) -> Text:
    """A matrix [m, n] with entries in [0, 1], in per cent: a row per target word, a column per source word.

    Source words stand upright where they would make it wider than ``width``; columns that do not fit then go into blocks.

    >>> print(heat_map(["the", "cat"], ["chat"], [[0.02, 0.98]]))
          the cat
    chat    2  98
    """
    from rich.cells import cell_len
    from rich.text import Text

    A, above, beside = np.asarray(matrix, dtype=float), list(map(printable, source)), list(map(printable, target))
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
        for word, row in zip(beside, A[:, block].tolist(), strict=True):
            text.append("\n" + word + " " * (left - cell_len(word)))
            for x, space in zip(row, room, strict=True):
                text.append(f"{100 * x:>{space}.0f}", _shade(x))
    return text


def _cells(start: str, parts: Sequence[str], wide: Sequence[int]) -> str:
    """Parts, each at the right end of its column."""
    from rich.cells import cell_len

    return start + "".join(" " * (room - cell_len(part)) + part for part, room in zip(parts, wide, strict=True))


def _shade(x: float) -> str:
    """A background from light to dark blue; none for what rounds to 0."""
    if x < 0.005:
        return "dim"
    red, green, blue = (FAINT + min(x, 1.0) * (DARK - FAINT)).astype(int)
    return f"{'white' if x > 0.5 else 'black'} on rgb({red},{green},{blue})"


def width() -> int:
    """Columns of the terminal, 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def rendered(*texts: Text | str) -> str:
    """The texts one below the other as standard output can have them: with colours if it is a terminal."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    with console.capture() as made:
        for text in texts:
            console.print(text, soft_wrap=True)
    return made.get()
