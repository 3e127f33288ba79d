"""The explorer's page: one HTML file in which the aligning transformer runs live, put together from small files.

The programs under ``js/`` are ES modules, so that Node can run them in the tests. A page that is opened from disk may not
import files, so here each becomes a function that returns what it exports, and an import takes it from there.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from otformer import checks
from otformer.files import written

LARGEST = 400_000  # bytes
MODULES = (
    *("math", "schedules", "matching", "learned", "state", "points", "draw", "links", "app", "tables", "player"),
    *("play", "number", "same", "broken", "trained", "words", "tour", "main"),
)
_IMPORT = re.compile(r"^import (\{.*\}) from \"\./(\w+)\.js\";$", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:function|class|const) ([\w$]+))", re.MULTILINE)


def page() -> str:
    """The page as text; it needs nothing else, no network and no other file.

    >>> text = page()
    >>> text.startswith("<!doctype html>"), "https://" in text, len(text.encode()) < LARGEST
    (True, False, True)
    """
    folder = files("otformer.explorer")
    program = "\n".join(_bundled(name, folder.joinpath("js", f"{name}.js").read_text(encoding="utf-8")) for name in MODULES)
    data = folder.joinpath("data.json").read_text(encoding="utf-8").strip()
    text = folder.joinpath("page.html").read_text(encoding="utf-8")
    style = folder.joinpath("style.css").read_text(encoding="utf-8")
    for place, filling in (("/*STYLE*/", style), ("/*DATA*/", data.replace("</", "<\\/")), ("/*PROGRAM*/", program)):
        text = text.replace(place, filling)
    return text


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
    path = checks.path("path", path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"path must end in .html or .htm, got {str(path)!r}")
    with written(path) as out:
        out.write(page().encode())
    return path
