"""A card: a title, a verdict, facts and pictures. `Shown` gives a class the ways to show its card."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from otformer import checks, figures
from otformer.show import look

if TYPE_CHECKING:
    from rich.text import Text

PICTURES = (".png", ".svg", ".pdf")


class Picture(Protocol):
    """A picture that renders as SVG, terminal text and matplotlib."""

    @property
    def title(self) -> str: ...
    @property
    def caption(self) -> str: ...
    def svg(self, page: bool = False) -> str:
        """Draw an ``<svg>`` element that is legible on light and dark, larger for a page; outside text in it is escaped."""
        ...

    def text(self) -> Text:
        """Render as terminal text; empty if unsupported."""
        ...

    def draw(self, axes: Any) -> None:
        """Draw on axes of matplotlib."""
        ...


@dataclass(frozen=True)
class Card:
    """The facts and pictures to show of an object. Any text may come from outside, so it is escaped here.

    title : its kind.   facts : names and values.   pictures : the first is what `Shown.plot` draws.
    verdict : one line, and ``good``, whether it is good news (None: neither).   note : why something is not shown.
    heading, about : of a page, the title if empty; and what was asked.
    """

    title: str
    facts: Mapping[str, str]
    pictures: Sequence[Picture] = field(default_factory=tuple)
    verdict: str = ""
    good: bool | None = None
    note: str = ""
    heading: str = ""
    about: str = ""

    def html(self) -> str:
        """Render a ``<div>`` without style sheets or scripts, in the colours of the text around it."""
        head = f"<div><b>{escape(self.title)}</b> &nbsp;{self._mark()}{escape(self.verdict)}</div>"
        names = {name: f'<dt style="opacity:.75;font-weight:normal;margin:0">{escape(name)}</dt>' for name in self.facts}
        rows = "".join(f'{names[name]}<dd style="margin:0">{escape(value)}</dd>' for name, value in self.facts.items())
        facts = f'<dl style="display:grid;grid-template-columns:max-content 1fr;gap:0 1em;margin:.3em 0 .6em">{rows}</dl>'
        shown = "".join(
            f'<figure style="margin:0"><div style="margin-bottom:.3em">{escape(picture.title)}</div>{svg}'
            f'<figcaption style="opacity:.75;font-size:11px">{escape(picture.caption)}</figcaption></figure>'
            for picture, svg in self._drawn(page=False)
        )
        row = f'<div style="display:flex;flex-wrap:wrap;gap:1em 1.6em;overflow-x:auto">{shown}</div>' if shown else ""
        note = f'<div style="opacity:.75">{escape(self.note)}</div>' if self.note else ""
        return f'<div style="font:13px/1.5 system-ui,sans-serif;max-width:100%">{head}{facts}{row}{note}</div>'

    def page(self) -> str:
        """Render a whole HTML page without scripts, in the look of the other pages (show/page.html)."""
        title = self.heading or self.title
        verdict = f'<p class="verdict">{self._mark()}{escape(self.verdict)}</p>' if self.verdict else ""
        facts = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in self.facts.items())
        cards = "".join(
            f'<figure class="card"><h2>{escape(picture.title)}</h2>{svg}<figcaption>{escape(picture.caption)}'
            f"{'; point at one for its number' if '<title>' in svg else ''}</figcaption></figure>"
            for picture, svg in self._drawn(page=True)
        )
        about, note = (f"<p>{escape(text)}</p>" if text else "" for text in (self.about, self.note))
        body = f'<h1>{escape(title)}</h1>{about}{verdict}<dl>{facts}</dl><div class="grid">{cards}</div>{note}'
        return look.page(f"otformer: {title}", body)

    def _drawn(self, page: bool) -> list[tuple[Picture, str]]:
        """Return pictures with their SVG; leave out empty ones."""
        return [(picture, svg) for picture in self.pictures if (svg := picture.svg(page))]

    def _mark(self) -> str:
        """Return a tick, a cross, or nothing."""
        signs = {True: (look.GOOD, "✓"), False: (look.MARK, "✗")}
        return "" if self.good is None else '<b style="color:{}">{}</b> '.format(*signs[self.good])

    def rich(self) -> Any:
        """Render the card for `rich.print`."""
        from rich.columns import Columns
        from rich.console import Group
        from rich.text import Text

        mark = {True: ("✓ ", "green"), False: ("✗ ", "red"), None: ("", "")}[self.good]
        lines = [Text.assemble((self.title, "bold"), "  ", mark, self.verdict)]
        wide = max((len(name) for name in self.facts), default=0)
        lines += [Text.assemble((f"{name:<{wide}}  ", "dim"), value) for name, value in self.facts.items()]
        pictures = []
        for picture in self.pictures:
            head = [Text(""), Text(picture.title, style="bold"), Text(picture.caption, style="dim")]
            pictures += [Group(*head, drawn)] if (drawn := picture.text()) else []
        note = [Text(self.note, style="dim")] if self.note else []
        return Group(*lines, *([Columns(pictures, padding=(0, 3))] if pictures else []), *note)


class Shown:
    """Ways to show what `_card` describes: in a notebook, by ``rich.print``, on axes of matplotlib, and in a file."""

    _card: Callable[..., Card]

    def _repr_html_(self) -> str:
        return self._card().html()

    def __rich__(self) -> Any:
        return self._card().rich()

    def show(self) -> None:
        """Print the card, in a terminal or below the cell of a notebook."""
        import rich

        rich.print(self)

    def _plot(self, ax: Any, **options: Any) -> Any:
        """Draw the first picture, on new axes if ``ax`` is None; raise ValueError if there is nothing to draw."""
        card = self._card(**options)
        if not card.pictures:
            raise ValueError(f"{card.title} cannot be drawn: {card.note}")
        with figures.applied():
            if ax is None:
                import matplotlib.pyplot as plt

                ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")[1]
            card.pictures[0].draw(ax)
        return ax

    def _save(self, path: str | Path, **options: Any) -> None:
        """Write a page (.html), or the first picture (.png, .svg, .pdf), whole or not at all."""
        file = checks.path("path", path, ".html", ".htm", *PICTURES)
        if file.suffix.lower() in (".html", ".htm"):
            look.write_page("path", file, self._card(**options).page())
        else:
            figures.save(lambda: self._plot(figures.figure(4.6, 4.2)[1], **options).figure, file)
