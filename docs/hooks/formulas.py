"""Formulas of the theory pages, which are written in Unicode, become MathML: browsers typeset it without a library or fonts.

A block that is indented by four spaces is displayed, line by line. In the text only indices and exponents are set. The
notation is that of the pages: ``x_ij`` and ``x_{k+1}`` have an index, ``e^{−t}`` and ``x²`` an exponent, ``P*`` and ``e⁺`` a
mark above, ``√(…)`` a root, ``Σ_j`` a sum over j. Words of two letters or more are text, but for the names of functions.
"""

from __future__ import annotations

import re
from html import escape, unescape
from typing import NamedTuple

from mkdocs.structure.pages import Page

PAGES = {
    "theory.md",
    "theorems.md",
    "limits.md",
    "exactness.md",
    "errata.md",
    "paper.md",
    "general-costs.md",
    "theorem-tests.md",
    "proof-beside-code.md",
}
NOTEBOOKS = {"notebooks/paper.md"}  # made by hooks/notebooks.py
BLOCK = re.compile(r'<div class="highlight"><pre><span></span><code>(?P<text>[^<]*)</code></pre></div>')
TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<word>[A-Za-z]{2,})|(?P<number>\d+(?:[.,]\d+)*)|(?P<letter>[^\W\d_][\u0300-\u036f]*)|(?P<other>.)"
)
FUNCTIONS = {
    "exp",
    "log",
    "tanh",
    "artanh",
    "sinh",
    "cosh",
    "min",
    "max",
    "inf",
    "sup",
    "osc",
    "KL",
    "dist",
    "argmin",
    "diag",
    "det",
}
SHORT_WORDS = {"of", "if", "in", "is", "it", "or", "at", "by", "to", "on", "as", "no", "for", "be", "so", "we"}
LARGE = {"Σ", "Π", "∏", "∑", "∫"}
RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+−", strict=True))
MARKS = {"*": "*", "'": "′", "°": "°"}  # behind a letter, without a space: above it
SIGN = "[0-9A-Za-z\u0370-\u03ffℓ]"  # of an index
PLAIN = re.compile(rf"\d+(?:\.\d+)?|{SIGN}{{1,3}}(?!{SIGN})")  # an index without braces
WIDE = 3  # spaces that part a formula from what stands beside it
LONG = 76  # letters of a line that fits the page
OPENING, CLOSING = "([{⌈⌊", ")]}⌉⌋"
INLINE = re.compile(
    rf"(?<=[0-9A-Za-z\u0300-\u03ffℓ)])(?P<star>['*°]?)(?P<mark>[_^])"
    rf"(?:\{{(?P<braced>[^{{}}<>]+)\}}|(?P<plain>{SIGN}{{1,3}})(?!{SIGN}|_|\.{SIGN}|\())"
)
TAGS = re.compile(r"(<pre.*?</pre>|<code.*?</code>|<math.*?</math>|<a [^>]*>|<[^>]+>)", re.DOTALL)


class Atom(NamedTuple):
    """A piece of MathML, and whether limits stand below and above it."""

    markup: str
    large: bool = False


class _Line:
    """Read one line of a formula from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def row(self, closing: str = "") -> str:
        """MathML up to the end, or to this closing bracket, which is left to the caller."""
        parts: list[str] = []
        while self.at < len(self.text) and not (closing and self.text[self.at] == closing):
            parts.append(self.scripted())
        return "".join(parts)

    def scripted(self) -> str:
        """An atom with what stands below and above it."""
        spaced = not self.at or self.text[self.at - 1].isspace()
        found, below, above = self.atom(spaced), "", ""
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign in RAISED:
                above += f"<mn>{RAISED[sign]}</mn>" if RAISED[sign].isdigit() else f"<mo>{RAISED[sign]}</mo>"
                self.at += 1
            elif sign in MARKS and found.markup.startswith("<mi"):
                above += f"<mo>{MARKS[sign]}</mo>"
                self.at += 1
            elif sign in "_^" and (script := self.script()):
                below, above = (below + script, above) if sign == "_" else (below, above + script)
            else:
                break
        if not below + above:
            return found.markup
        name = (
            ("m" + "under" * bool(below) + "over" * bool(above))
            if found.large
            else "m" + "sub" * bool(below) + "sup" * bool(above)
        )
        return f"<{name}>{found.markup}{''.join(f'<mrow>{part}</mrow>' for part in (below, above) if part)}</{name}>"

    def script(self) -> str:
        """What follows a ``_`` or ``^``; nothing where that sign has another meaning."""
        if self.text[self.at + 1 : self.at + 2] == "{" and (end := self.text.find("}", self.at)) > 0:
            inner, self.at = self.text[self.at + 2 : end], end + 1
        elif found := PLAIN.match(self.text, self.at + 1):
            inner, self.at = found[0], found.end()
        else:
            return ""
        return _Line(inner).row() if not inner.isalpha() else "".join(f"<mi>{letter}</mi>" for letter in inner)

    def atom(self, spaced: bool) -> Atom:
        found = TOKEN.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        text = escape(found[0])
        if found["space"]:
            return Atom(f'<mspace width="{2 if len(text) >= WIDE else 0.2}em"></mspace>')
        if found["word"]:
            return Atom(f"<mi>{text}</mi>") if text in FUNCTIONS else self.word(text)
        if found["number"]:
            return Atom(f"<mn>{text}</mn>")
        if found["letter"] and text not in LARGE:
            return Atom(f"<mi>{text}</mi>")
        if text == "√":
            return Atom(f"<msqrt>{self.under_root()}</msqrt>")
        if text in OPENING and len(text) == 1:
            close = CLOSING[OPENING.index(text)]
            inner = self.row(close)
            if self.at >= len(self.text):  # it closes on another line
                return Atom(f'<mo stretchy="false">{text}</mo>{inner}')
            self.at += 1
            return Atom(f'<mrow><mo stretchy="false">{text}</mo>{inner}<mo stretchy="false">{close}</mo></mrow>')
        return Atom(f"<mo>{text}</mo>", large=text in LARGE)

    def word(self, text: str) -> Atom:
        """A word, or a product of two variables; a script belongs to the second, which is read again."""
        if len(text) > 2 or text in SHORT_WORDS:
            return Atom(f"<mtext>{text}</mtext>")
        self.at -= 1
        return Atom(f"<mi>{text[0]}</mi>")

    def under_root(self) -> str:
        if self.text[self.at : self.at + 1] != "(":
            return self.scripted() if self.at < len(self.text) else ""
        self.at += 1
        inner = self.row(")")
        self.at += 1
        return inner


def mathml(line: str) -> str:
    """One line of a formula.

    >>> mathml("x_ij²")
    '<math display="block"><msubsup><mi>x</mi><mrow><mi>i</mi><mi>j</mi></mrow><mrow><mn>2</mn></mrow></msubsup></math>'
    """
    indent = len(line) - len(line.lstrip())
    space = f'<mspace width="{indent / 2}em"></mspace>' if indent else ""
    return f'<math display="block">{space}{_Line(line.strip()).row()}</math>'


def displayed(block: re.Match[str]) -> str:
    lines = [line for line in unescape(block["text"]).splitlines() if line.strip()]
    return f'<div class="formula" tabindex="0">{"".join(mathml(part) for line in lines for part in broken(line))}</div>'


def broken(line: str) -> list[str]:
    """A line that is too long for the page, at its widest gaps."""
    return [line] if len(line) <= LONG else re.split(rf"(?<=\S)\s{{{WIDE},}}", line)


def inline(found: re.Match[str]) -> str:
    tag = "sub" if found["mark"] == "_" else "sup"
    return f"{found['star']}<{tag}>{INLINE.sub(inline, found['braced'] or found['plain'])}</{tag}>"


def on_page_content(html: str, page: Page, **_: object) -> str:
    if page.file.src_uri not in PAGES | NOTEBOOKS:
        return html
    parts = TAGS.split(BLOCK.sub(displayed, html))
    return "".join(part if part.startswith("<") else INLINE.sub(inline, part) for part in parts)
