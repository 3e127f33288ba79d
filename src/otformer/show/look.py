"""The look of pages and terminals: colours from the palette of the figures, the frame of an HTML page, words that are safe.

A card in a notebook lies on a page of someone else's, light or dark, whose styles it may not touch and which may strip style
sheets. So its text has the colour of the text around it, and all else one of the colours below that are legible on both: at
least 3 : 1 against white and against a dark page (tests/show/test_look.py).
"""

from __future__ import annotations

import json
import re
import sys
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otformer import checks
from otformer.figures import BLUE, GREEN, INK, ORANGE, SKY, YELLOW
from otformer.files import written

if TYPE_CHECKING:
    from rich.text import Text

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
    """Return the colours as CSS variables, by the reader's preference; --heat are four stops of a matrix's colours."""
    light, dark = ("; ".join(f"--{name}: {colour}" for name, colour in look.items()) for look in (LIGHT, DARK))
    return f":root {{ color-scheme: light dark; {light}; }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark}; }} }}"


def page(title: str, body: str) -> str:
    """Return a whole HTML page around a body that is HTML; the title is text."""
    return filled(resource("show", "page.html"), LOOK=variables(), HEAT=HEAT, MARK=MARK, TITLE=escape(title), BODY=body)


def resource(room: str, *path: str) -> str:
    """Read a text file that ships with a room of the package."""
    return files(f"otformer.{room}").joinpath(*path).read_text(encoding="utf-8")


def filled(template: str, **parts: str) -> str:
    """Replace each ``/*NAME*/`` of a template by its part, in one pass: no part is searched for names of others.

    >>> filled("<p>/*A*/</p>/*B*/", A="/*B*/", B="!")
    '<p>/*B*/</p>!'
    """
    return re.sub(rf"/\*({'|'.join(parts)})\*/", lambda place: parts[place[1]], template)


def script_json(value: Any) -> str:
    """Encode JSON in ASCII that is nothing but text inside ``<script>``, whatever strings it holds.

    >>> script_json("</script>&")
    '"\\\\u003c/script\\\\u003e\\\\u0026"'
    """
    plain = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", plain)


def checked_page(name: str, file: Any) -> Path:
    """Return the path of a page; raise ArgumentError unless it ends in .html or .htm."""
    return checks.path(name, file, ".html", ".htm")


def write_page(name: str, file: Any, html: str) -> Path:
    """Write a page, whole or not at all; returns its path. ``name`` is what errors call the file."""
    path = checked_page(name, file)
    with written(path) as out:
        out.write(html.encode())
    return path


def svg(wide: float, tall: float, label: str, inside: str, page: bool) -> str:
    """Return an ``<svg>`` element of this size in px; on a page it shrinks with the page, and grows by a third at most."""
    box = f'viewBox="0 0 {wide:.4g} {tall:.4g}" role="img" aria-label="{escape(label, quote=True)}"'
    size = f'style="width:min(100%,{wide * 4 / 3:.0f}px)"' if page else f'width="{wide:.4g}" height="{tall:.4g}"'
    return f"<svg {size} {box}>{inside}</svg>"


def visible(text: str) -> str:
    """Replace every character that is not printable, and that a terminal may obey, by U+FFFD.

    >>> visible("ca" + chr(27) + "[2Jt")
    'ca�[2Jt'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def printable(word: str, most: int = 24) -> str:
    """Make a word printable and cut it to ``most`` characters.

    >>> printable("Donaudampfschifffahrtsgesellschaft")
    'Donaudampfschifffahrtsg…'
    """
    plain = visible(word[: most + 1])
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def rendered(*texts: Text | str) -> str:
    """Render the texts one below the other for standard output, with colours if it is a terminal."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    with console.capture() as made:
        for text in texts:
            console.print(text, soft_wrap=True)
    return made.get()
