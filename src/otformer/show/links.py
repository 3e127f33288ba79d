"""Words of two sentences in two columns, and the links between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from otformer.figures import CYCLE
from otformer.show.look import HEAT, printable, svg

if TYPE_CHECKING:
    from rich.text import Text

WORDS = 60  # most of a side
STEP, GAP = 20, 90  # px between two words, and between the two columns
LINES_WIDE = 24  # characters between the two columns in a terminal
WEAK = 0.5  # links of a lower score are dim there
BRAILLE = 0x2800  # the character without a dot; DOTS[y][x] are those of its 4 × 2
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


@dataclass(frozen=True)
class Links:
    """scores : the score of every link (i, j), 0 to 1, between word i of ``left`` and word j of ``right``."""

    left: Sequence[str]
    right: Sequence[str]
    scores: Mapping[tuple[int, int], float]
    title: str

    @property
    def caption(self) -> str:
        most = max(len(self.left), len(self.right))
        return f"the first {WORDS} words of {most}" if most > WORDS else "the stronger, the higher the score"

    def _shown(self, most: int = WORDS) -> tuple[list[str], list[str], dict[tuple[int, int], float]]:
        left, right = ([printable(word) for word in side[:most]] for side in (self.left, self.right))
        return left, right, {(i, j): score for (i, j), score in self.scores.items() if max(i, j) < most}

    def svg(self, page: bool = False) -> str:
        """Draw curves between the words; a word without a link is pale. Pointing at a curve names its words and score."""
        left, right, links = self._shown()
        wide = [max([2.0, *(7.4 * sum(1 + (ord(c) > 0x2E7F) for c in word) for word in side)]) for side in (left, right)]
        a, b = wide[0] + 6, wide[0] + 6 + GAP
        parts = []
        for (i, j), score in links.items():
            y, z, middle = STEP * i + 14, STEP * j + 14, (a + b) / 2
            curve = f"M{a:.4g} {y}C{middle:.4g} {y} {middle:.4g} {z} {b:.4g} {z}"
            name = escape(f"{left[i]} – {right[j]}: {score:.2f}")
            opacity = f'stroke-opacity="{max(0.15, min(1.0, score)):.2g}"'
            parts.append(f'<path d="{curve}" {opacity}><title>{name}</title></path>')
        words = []
        for side, texts, x, anchor in ((0, left, a - 5, "end"), (1, right, b + 5, "start")):
            linked = {link[side] for link in links}
            for k, word in enumerate(texts):
                pale = "" if k in linked else ' fill-opacity=".6"'
                place = f'x="{x:.4g}" y="{STEP * k + 14}" dy=".35em" text-anchor="{anchor}"'
                words.append(f"<text {place}{pale}>{escape(word)}</text>")
        name = "; ".join(f"{left[i]} – {right[j]}" for i, j in links) or "no links"
        curves = f'<g fill="none" stroke="{HEAT}" stroke-width="2">{"".join(parts)}</g>'
        inside = f'{curves}<g font-size="13" fill="currentColor">{"".join(words)}</g>'
        return svg(b + wide[1] + 8, STEP * max(len(left), len(right), 1) + 8, name, inside, page)

    def text(self, most: int = WORDS) -> Text:
        """Print two columns of at most so many words, and lines of Braille dots between them, dim for a low score.

        >>> print(Links(["black", "cat"], ["chat", "noir"], {(0, 1): 0.9, (1, 0): 0.8}, "links").text())
        black ⠤⠤⠤⣀⣀⣀⣀⣀⣀⠀⠀⠀⠀⠀⠀⣀⣀⣀⣀⣀⣀⠤⠤⠤ chat
          cat ⠤⠤⠤⠒⠒⠒⠒⠒⠒⠉⠉⠉⠉⠉⠉⠒⠒⠒⠒⠒⠒⠤⠤⠤ noir
        """
        from rich.cells import cell_len
        from rich.text import Text

        *sides, links = self._shown(most)
        lines = max(map(len, sides))
        at = [[int((k + 0.5) * lines / len(side)) for k in range(len(side))] for side in sides]  # the line of every word
        dots, looks = np.zeros((lines, LINES_WIDE), dtype=int), dict[tuple[int, int], str]()
        for (i, j), score in links.items():
            for cell, dot in _line(4 * at[0][i] + 2, 4 * at[1][j] + 2):
                dots[cell] |= dot
                looks[cell] = CYCLE[i % len(CYCLE)] + (" dim" if score < WEAK else "")
        words = []
        for side, texts in enumerate(sides):
            linked = {link[side] for link in links}
            words.append({at[side][k]: (word, "" if k in linked else "dim") for k, word in enumerate(texts)})
        wide, text = max(map(cell_len, sides[0]), default=0), Text(no_wrap=True, end="")
        for line in range(lines):
            word, look = words[0].get(line, ("", ""))
            text.append(" " * (wide - cell_len(word)) + word + " ", look)
            for k, dot in enumerate(dots[line].tolist()):
                text.append(chr(BRAILLE + dot), looks.get((line, k), ""))
            text.append(" ").append(*words[1].get(line, ("", ""))).append("" if line == lines - 1 else "\n")
        return text

    def draw(self, axes: Any) -> None:
        """Draw on axes of matplotlib, the first word at the top."""
        left, right, links = self._shown()
        for (i, j), score in links.items():
            axes.plot([0, 1], [i, j], color=HEAT, alpha=max(0.15, min(1.0, score)), linewidth=2)
        for x, side, anchor in ((-0.03, left, "right"), (1.03, right, "left")):
            for k, word in enumerate(side):
                axes.text(x, k, word, ha=anchor, va="center", parse_math=False)
        axes.set(title=self.title, xlim=(-0.7, 1.7), ylim=(max(len(left), len(right), 1) - 0.5, -0.5))
        axes.set_axis_off()


def _line(start: int, end: int) -> list[tuple[tuple[int, int], int]]:
    """Return the characters, as (line, column), and dots of a straight line from height ``start`` to ``end``, in dots."""
    steps = max(2 * LINES_WIDE - 1, abs(end - start))
    x = np.rint(np.linspace(0, 2 * LINES_WIDE - 1, steps + 1)).astype(int)
    y = np.rint(np.linspace(start, end, steps + 1)).astype(int)
    return [((v // 4, u // 2), DOTS[v % 4][u % 2]) for u, v in zip(x.tolist(), y.tolist(), strict=True)]
