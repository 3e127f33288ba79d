"""The explorer's page: one HTML file in which the aligning transformer runs live, put together from small files.

The programs under ``js/`` are ES modules, so that Node can run them in the tests. A page that is opened from disk may not
import files, so here each becomes a function that returns what it exports, and an import takes it from there.
"""

from __future__ import annotations

import re
from pathlib import Path

from otformer.show import look

LARGEST = 400_000  # bytes
MODULES = (
    *("edits", "math", "schedules", "matching", "learned", "state", "points", "draw", "links", "app", "tables", "player"),
    *("play", "number", "same", "laboratory", "broken", "trained", "words", "tour", "main"),
)
_IMPORT = re.compile(r"^import (\{.*\}) from \"\./(\w+)\.js\";$", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:function|class|const) ([\w$]+))", re.MULTILINE)


def page() -> str:
    """The page as text; it needs nothing else, no network and no other file.

    >>> text = page()
    >>> text.startswith("<!doctype html>"), "https://" in text, len(text.encode()) < LARGEST
    (True, False, True)
    """
    program = "\n".join(_bundled(name, look.resource("explorer", "js", f"{name}.js")) for name in MODULES)
    template, style, data = (look.resource("explorer", name) for name in ("page.html", "style.css", "data.json"))
    return look.filled(template, STYLE=style, DATA=data.strip().replace("</", "<\\/"), PROGRAM=program)


def _bundled(name: str, text: str) -> str:
    """A module as a statement of one program.

    >>> print(_bundled("b", 'import { one } from "./a.js";\\nexport const two = 2 * one;'))
    const module_b = (() => {
    const { one } = module_a;
    const two = 2 * one;
    return { two };
    })();
    """
    body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = module_\2;", text))
    return f"const module_{name} = (() => {{\n{body}\nreturn {{ {', '.join(_EXPORT.findall(text))} }};\n}})();"


def write_page(path: str | Path) -> Path:
    """Write the page, whole or not at all; returns its path."""
    return look.write_page("path", path, page())
