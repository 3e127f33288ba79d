"""Sub- and superscripts: written in text as in TeX, ``x_{i}`` and ``e^{1/λ}``, shown as such on a page and in a figure."""

from __future__ import annotations

import re
from html import escape

# A script is braced, or a number, or one or two letters that end the word: C_ij and k^2.5, but not state_dict.
_SCRIPT = re.compile(r"([_^])(?:\{([^{}]+)\}|(\d+(?:\.\d+)?|\w{1,2})\b)")


def html(text: str) -> str:
    """The text escaped for HTML, its scripts as ``<sub>`` and ``<sup>``.

    >>> html("P*_λ < n^{3/2}, the state_dict")
    'P*<sub>λ</sub> &lt; n<sup>3/2</sup>, the state_dict'
    """
    return _SCRIPT.sub(_tag, escape(text))


def mathtext(text: str) -> str:
    """The text for matplotlib, its scripts as mathtext.

    >>> mathtext("P^{(1)}: e_{2d+5}")
    'P$^{(1)}$: e$_{2d+5}$'
    """
    return _SCRIPT.sub(lambda found: f"${found[1]}{{{_inner(found)}}}$", text)


def _tag(found: re.Match[str]) -> str:
    name = "sub" if found[1] == "_" else "sup"
    return f"<{name}>{_inner(found)}</{name}>"


def _inner(found: re.Match[str]) -> str:
    return found[2] or found[3]
