"""Words of two sentences in two columns, and the links between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from otformer.show.look import HEAT, svg

WORDS = 60  # most of a side
LONGEST = 24  # letters of a word; the rest is cut off
STEP, GAP = 20, 90  # px between two words, and between the two columns


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

    def _shown(self) -> tuple[list[str], list[str], dict[tuple[int, int], float]]:
        left, right = ([_cut(word) for word in side[:WORDS]] for side in (self.left, self.right))
        return left, right, {(i, j): score for (i, j), score in self.scores.items() if max(i, j) < WORDS}

    def svg(self, page: bool = False) -> str:
        """Curves between the words; a word without a link is pale. Pointing at a curve names its words and score."""
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

    def text(self) -> list[str]:
        """A line per word on the left, with the words it is linked to."""
        left, right, links = self._shown()
        wide = max([1, *map(len, left)])
        found = [", ".join(f"{right[j]} {score:.2f}" for (k, j), score in links.items() if k == i) for i in range(len(left))]
        lines = [f"{word:>{wide}} {'━━ ' + to if to else ''}".rstrip() for word, to in zip(left, found, strict=True)]
        alone = [word for j, word in enumerate(right) if j not in {link[1] for link in links}]
        return lines + ([f"{'':>{wide}}    without a link: {', '.join(alone)}"] if alone else [])

    def draw(self, axes: Any) -> None:
        """On axes of matplotlib, the first word at the top."""
        left, right, links = self._shown()
        for (i, j), score in links.items():
            axes.plot([0, 1], [i, j], color=HEAT, alpha=max(0.15, min(1.0, score)), linewidth=2)
        for x, side, anchor in ((-0.03, left, "right"), (1.03, right, "left")):
            for k, word in enumerate(side):
                axes.text(x, k, word, ha=anchor, va="center", parse_math=False)
        axes.set(title=self.title, xlim=(-0.7, 1.7), ylim=(max(len(left), len(right), 1) - 0.5, -0.5))
        axes.set_axis_off()


def _cut(word: str) -> str:
    return word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"
