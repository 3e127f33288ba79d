"""A number over the layers, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from otformer.show.look import HEAT, TEXT, svg

if TYPE_CHECKING:
    from rich.text import Text

WIDE, TALL = 232, 150  # px
BARS = "▁▂▃▄▅▆▇█"
SMALLEST = 1e-16  # what is below is drawn here


@dataclass(frozen=True)
class Curve:
    """Numbers ≥ 0 after certain layers, or other steps; what is not finite is left out."""

    layers: Sequence[int]
    values: Sequence[float]
    title: str
    caption: str = "logarithmic"
    unit: str = "layer"  # what is counted

    def _logs(self) -> list[tuple[int, float]]:
        both = zip(self.layers, self.values, strict=True)
        return [(k, math.log10(max(value, SMALLEST))) for k, value in both if math.isfinite(value)]

    def svg(self, page: bool = False) -> str:
        """Draw the line, with powers of ten on the left and the layers below."""
        logs = self._logs()
        if not logs:
            return ""
        low, high = math.floor(min(t for _, t in logs)), math.ceil(max(t for _, t in logs))
        high, last = max(high, low + 1), max(max(self.layers), 1)
        left, room, height = 40, WIDE - 48, TALL - 26
        place = {t: 6 + height * (high - t) / (high - low) for t in range(low, high + 1, max(1, (high - low + 3) // 4))}
        grid = "".join(
            f'<path d="M{left} {y:.4g}h{room}" stroke="currentColor" stroke-opacity=".2"/>'
            f'<text x="{left - 5}" y="{y:.4g}" dy=".35em" text-anchor="end" {TEXT}>1e{t}</text>'
            for t, y in place.items()
        )
        path = "L".join(f"{left + room * k / last:.4g} {6 + height * (high - t) / (high - low):.4g}" for k, t in logs)
        first = f'<text x="{left}" y="{TALL - 4}" {TEXT}>{self.unit} 0</text>'
        end = f'<text x="{left + room}" y="{TALL - 4}" text-anchor="end" {TEXT}>{last}</text>'
        line = f'<path d="M{path}" fill="none" stroke="{HEAT}" stroke-width="2"/>'
        both = ((self.layers[k], self.values[k]) for k in (0, -1))
        ends = ", ".join(f"{value:.2g} at {self.unit} {layer}" for layer, value in both)
        return svg(WIDE, TALL, f"{self.title}: {ends}", f"{grid}{line}{first}{end}", page)

    def text(self) -> Text:
        """Draw one line of bars, the tallest for the largest number."""
        from rich.text import Text

        logs = [t for _, t in self._logs()]
        if not logs:
            return Text()
        low, span = min(logs), max(max(logs) - min(logs), 1e-9)
        bars = "".join(BARS[round((t - low) / span * (len(BARS) - 1))] for t in logs)
        return Text(f"{bars}  {10 ** logs[0]:.1e} → {10 ** logs[-1]:.1e}", style="blue", no_wrap=True)

    def draw(self, axes: Any) -> None:
        """Draw on axes of matplotlib."""
        axes.semilogy([k for k, _ in self._logs()], [10**t for _, t in self._logs()], color=HEAT)
        axes.set(title=self.title, xlabel=self.unit)
