"""The look of pages: colours for light and dark from the palette of the figures, and the frame of an HTML page.

A card in a notebook lies on a page of someone else's, light or dark, whose styles it may not touch and which may strip style
sheets. So its text has the colour of the text around it, and all else one of the colours below that are legible on both: at
least 3 : 1 against white and against a dark page (tests/show/test_look.py).
"""

from __future__ import annotations

from html import escape
from importlib.resources import files

from otformer.figures import BLUE, GREEN, INK, ORANGE, SKY, YELLOW

SIDE, PAGE_SIDE = 208, 400  # px of the longer side of a picture: in a notebook, and on a page of its own
TEXT = 'font-size="11" fill="currentColor"'  # of every word in an SVG
HEAT, MARK, GOOD = BLUE, ORANGE, GREEN  # on light and on dark: cells and lines; what is marked; a tick
LIGHT = {
    "ink": INK, "soft": "#59636E", "line": "#DFE3E8", "page": "#FFFFFF", "card": "#F6F8FA", "u": BLUE, "v": "#B34E00",
    "heat": "#FFFFFF #9ECAE1 #2171B5 #081D58",
}  # fmt: skip
DARK = {
    "ink": "#E6E9ED", "soft": "#9AA4AF", "line": "#343B44", "page": "#14171B", "card": "#1D2228", "u": SKY, "v": YELLOW,
    "heat": "#14171B #17456B #3C93CC #EAF5FD",
}  # fmt: skip


def variables() -> str:
    """The colours as CSS variables, by the reader's preference; --heat are four stops of a matrix's colours."""
    light, dark = ("; ".join(f"--{name}: {colour}" for name, colour in look.items()) for look in (LIGHT, DARK))
    return f":root {{ color-scheme: light dark; {light}; }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark}; }} }}"


def page(title: str, body: str) -> str:
    """A whole HTML page around a body that is HTML; the title is text."""
    template = files("otformer.show").joinpath("page.html").read_text(encoding="utf-8")
    texts = {"LOOK": variables(), "HEAT": HEAT, "MARK": MARK, "TITLE": escape(title), "BODY": body}  # the body last
    for name, text in texts.items():
        template = template.replace(f"/*{name}*/", text)
    return template


def svg(wide: float, tall: float, label: str, inside: str, page: bool) -> str:
    """An ``<svg>`` element of this size in px; on a page it shrinks with the page, and grows by a third at most."""
    box = f'viewBox="0 0 {wide:.4g} {tall:.4g}" role="img" aria-label="{escape(label, quote=True)}"'
    size = f'style="width:min(100%,{wide * 4 / 3:.0f}px)"' if page else f'width="{wide:.4g}" height="{tall:.4g}"'
    return f"<svg {size} {box}>{inside}</svg>"
