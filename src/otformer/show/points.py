"""Points of one or two dimensions, and lines between them that are as opaque as the plan is heavy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from otformer import checks
from otformer.show.coarse import ENTRIES, Array
from otformer.show.look import HEAT, MARK, PAGE_SIDE, SIDE, svg

if TYPE_CHECKING:
    from rich.text import Text

LINES = 400  # most lines, the heaviest
MOST = 1000  # points of a side in a picture; of more, this many are drawn, evenly spaced in their order
JOINED, PARTNERS = 200, 2  # of more: how many x have lines, and to how many y each


@dataclass(frozen=True, eq=False)
class Points:
    """x (n, d) and y (m, d), d = 1 or 2, with a plan (n, m): each line's weight is its share of the heaviest of its row."""

    x: Array
    y: Array
    plan: Array
    title: str
    caption: str = "x filled, y open; the stronger a line, the more of what its x sends"

    def placed(self) -> tuple[Array, Array]:
        """Scale both sides to the unit square, first coordinate to the right, second upwards."""
        x, y = self._plane()
        both = np.concatenate([x, y])
        low, span = both.min(0), np.ptp(both, 0)
        if self.x.shape[1] == 2:  # one scale for both axes
            low, span = low - (span.max() - span) / 2, np.full(2, span.max())
        span = np.where(span > 0, span, 1)
        return (x - low) / span, (y - low) / span

    def _plane(self) -> tuple[Array, Array]:
        """Place both sides in two dimensions; numbers (d = 1) lie on two lines, x above y."""
        if self.x.shape[1] == 2:
            return self.x, self.y
        return np.column_stack([self.x, np.ones(len(self.x))]), np.column_stack([self.y, np.zeros(len(self.y))])

    def lines(self) -> list[tuple[int, int, float]]:
        """Return (i, j, share) of the heaviest pairs, the lightest first, so that heavy lines lie on top."""
        shares = self.plan / np.maximum(self.plan.max(1, keepdims=True), 1e-300)
        order = np.argsort(shares, axis=None, kind="stable")[-LINES:]
        i, j = np.unravel_index(order, shares.shape)
        found = zip(i.tolist(), j.tolist(), shares[i, j].tolist(), strict=True)
        return [each for each in found if each[2] > 0.02]

    def svg(self, page: bool = False) -> str:
        """Draw lines, then the points, x filled and y open; the more points, the smaller."""
        room = PAGE_SIDE if page else SIDE
        size = max(1.2, min(3.0, 45 / max(len(self.x), len(self.y)) ** 0.5)) * (room / SIDE) ** 0.5
        x, y = ([(8 + a * room, 8 + (1 - b) * room) for a, b in side.tolist()] for side in self.placed())
        found = self.lines()
        strength = min(0.8, 80 / max(len(found), 1))  # many lines are each paler, so that the points under them are seen
        parts = [
            f'<path d="M{x[i][0]:.4g} {x[i][1]:.4g}L{y[j][0]:.4g} {y[j][1]:.4g}" stroke-opacity="{strength * share:.2g}"/>'
            for i, j, share in found
        ]
        filled = "".join(f'<circle cx="{a:.4g}" cy="{b:.4g}" r="{size:.2g}"/>' for a, b in x)
        hollow = "".join(f'<circle cx="{a:.4g}" cy="{b:.4g}" r="{1.15 * size:.2g}"/>' for a, b in y)
        name = f"{len(x)} points x and {len(y)} points y, joined where the plan is heavy"
        inside = (
            f'<g stroke="currentColor" stroke-width="1.2">{"".join(parts)}</g><g fill="{HEAT}">{filled}</g>'
            f'<g fill="none" stroke="{MARK}" stroke-width="{size / 2:.2g}">{hollow}</g>'
        )
        return svg(room + 16, room + 16, name, inside, page)

    def text(self) -> Text:
        """Draw nothing: a terminal has too few characters for a plane."""
        from rich.text import Text

        return Text()

    def draw(self, axes: Any) -> None:
        """Draw on axes of matplotlib, in the points' own coordinates."""
        from matplotlib.collections import LineCollection

        x, y = self._plane()
        if self.x.shape[1] == 1:
            axes.set_yticks([1, 0], ["x", "y"])
        found = self.lines()
        ends, strengths = [(x[i], y[j]) for i, j, _ in found], [0.8 * share for *_, share in found]
        axes.add_collection(LineCollection(ends, colors="black", alpha=strengths, linewidths=1, zorder=1))
        axes.plot(*x.T, "o", color=HEAT, label="x")
        axes.plot(*y.T, "o", color=MARK, mfc="white", label="y")
        if self.x.shape[1] == 2:
            axes.set_aspect("equal", "datalim")
            axes.legend()
        axes.set(title=self.title)


def checked_points(name: str, value: Any, size: int) -> Array:
    """Check ``size`` points of one or two dimensions that are to be drawn; a plain list is of dimension 1.

    >>> checked_points("x", [0.5, 1.0], size=2).shape
    (2, 1)
    """
    t = checks.tensor(name, value).detach().double().cpu()
    t = t[:, None] if t.ndim == 1 else checks.points(name, t)
    if len(t) != size or t.shape[1] not in (1, 2):
        expected = f"hold {size} points of 1 or 2 coordinates to be drawn"
        raise checks.ArgumentError(name, expected, f"shape {tuple(t.shape)}")
    return t.numpy()


def sampled(x: Array, y: Array, row: Callable[[int], Array], title: str) -> Points:
    """Subsample large clouds, with lines from some x to their heaviest y.

    row : the masses (m,) that x_i sends, for a given i. At most 4 million numbers are read by it.

    >>> x = np.arange(3000.0)[:, None]
    >>> drawn = sampled(x, x, lambda i: np.eye(1, 3000, i)[0], "the identity")
    >>> drawn.caption
    'x filled, y open; 1,000 of 3,000 and 1,000 of 3,000 points, lines of 200 x to the y that get most of each'
    >>> all(drawn.x[i] == drawn.y[j] for i, j, _ in drawn.lines())
    True
    """
    rows = _spaced(len(x), MOST)
    joined = _spaced(len(rows), max(1, min(JOINED, ENTRIES // len(y))))
    masses = [row(i) for i in rows[joined].tolist()]
    best = [heaviest[each[heaviest] > 0] for each in masses for heaviest in (np.argsort(each)[-PARTNERS:],)]
    columns = np.union1d(_spaced(len(y), MOST), np.concatenate(best))
    plan = np.zeros((len(rows), len(columns)))
    for i, to, each in zip(joined, best, masses, strict=True):
        plan[i, np.searchsorted(columns, to)] = each[to]
    counts = f"{len(rows):,} of {len(x):,} and {len(columns):,} of {len(y):,} points"
    said = f"x filled, y open; {counts}, lines of {len(joined)} x to the y that get most of each"
    return Points(x[rows], y[columns], plan, title, said)


def _spaced(size: int, most: int) -> Array:
    """Pick at most ``most`` of 0, …, size − 1, evenly spaced.

    >>> _spaced(10, 4).tolist(), _spaced(3, 4).tolist()
    ([0, 2, 5, 7], [0, 1, 2])
    """
    return np.arange(min(size, most)) * size // min(size, most)
