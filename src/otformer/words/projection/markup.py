"""Read a sentence with tags of HTML or XML: its text without them, and the tree of its elements with their places there.

A tag is kept as it is written. What has no end is a leaf: comments, processing instructions, declarations, ``<x/>``, and the
void elements of HTML (``<br>``) unless their closing tag occurs. The content of ``<script>`` and ``<style>`` and of CDATA is
text. A ``<`` that begins no tag is text as well. Entities are decoded.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from otformer.errors import ArgumentError

DEEPEST = 256  # levels of elements, as libxml2 allows
_NAME = r"(?:[^\W\d]|:)[\w:.\-]*"
_QUOTED = r""""[^"]*+"|'[^']*+'"""
_BEGIN = re.compile(rf"<(?=/?{_NAME}|!--|!\[CDATA\[|![A-Za-z]|\?[^\W\d])")
_TAG = re.compile(
    rf"""(?P<leaf><!--.*?-->|<\?.*?\?>|<![A-Za-z](?:[^<>"'\[]|{_QUOTED}|\[[^\]]*+\])*+>)
    |<!\[CDATA\[(?P<data>.*?)\]\]>
    |</(?P<end>{_NAME})\s*>
    |<(?P<start>{_NAME})(?=[\s/>])(?:[^<>"']|{_QUOTED})*+>""",
    re.DOTALL | re.VERBOSE,
)
VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
})  # fmt: skip
RAW = frozenset({"script", "style"})
# Elements between which a reader sees a space or a new line; <b> may stand inside a word.
APART = frozenset({
    "address", "article", "aside", "blockquote", "br", "caption", "center", "dd", "details", "dialog", "div", "dl",
    "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr",
    "li", "main", "nav", "ol", "option", "p", "pre", "script", "section", "style", "summary", "table", "tbody", "td",
    "tfoot", "th", "thead", "tr", "ul",
})  # fmt: skip


@dataclass(eq=False)
class Node:
    """An element or a leaf, from character ``start`` to ``stop`` of the text; number: its place among the opening tags."""

    number: int
    head: str = ""
    name: str = ""
    start: int = 0
    stop: int = 0
    tail: str = ""
    children: list[Node] = field(default_factory=list)
    last: int = 0  # number of the last node inside it

    def holds(self, other: Node) -> bool:
        """Whether ``other`` is inside of this node, or is it."""
        return self.number <= other.number <= self.last


@dataclass
class Marked:
    """A sentence without its tags, and its tree. ``turns``: where the innermost element changes, and to which."""

    text: str
    root: Node
    turns: list[tuple[int, Node]]


def parse(markup: str, name: str = "source") -> Marked:
    """Read a sentence; raise ArgumentError, with this ``name``, if its tags are not in pairs, or do not nest.

    >>> found = parse("A<i>T&amp;T</i> &lt; <br/>3")
    >>> found.text, [(node.head, node.start, node.stop, node.tail) for node in found.root.children]
    ('AT&T < 3', [('<i>', 1, 4, '</i>'), ('<br/>', 7, 7, '')])
    """
    pieces = list(_pieces(markup, name))
    reader = _Reader(name, {match["end"].lower() for match, _ in pieces if match is not None and match["end"]})
    for match, text in pieces:
        reader.add(text)
        if match is not None:
            reader.take(match)
    return reader.finished()


def _pieces(markup: str, name: str) -> Iterator[tuple[re.Match[str] | None, str]]:
    """The tags, each with the text before it, and the text after the last. Raw content belongs to no tag."""
    at = 0
    while begin := _BEGIN.search(markup, at):
        match = _TAG.match(markup, begin.start())
        if match is None:
            raise ArgumentError(name, "end every tag, as <b> does", _cut(markup[begin.start() :]), "a < of the text is &lt;")
        yield match, html.unescape(markup[at : begin.start()])
        at = match.end()
        tag = (match["start"] or "").lower()
        if tag in RAW and not match[0].endswith("/>"):
            close = re.compile(rf"</{tag}\s*>", re.IGNORECASE).search(markup, at)
            end = close.start() if close else len(markup)
            yield None, markup[at:end]
            at = end
    yield None, html.unescape(markup[at:])


def _cut(tag: str) -> str:
    return repr(tag if len(tag) <= 40 else tag[:40] + "…")


class _Reader:
    """The text, the open elements and the tree so far."""

    def __init__(self, name: str, closing: set[str]) -> None:
        self.name, self.parts, self.length, self.count = name, [""], 0, 0
        self.open = [Node(0)]
        self.turns = [(0, self.open[0])]
        self.closing = closing  # names in closing tags

    def add(self, text: str) -> None:
        if text:
            self.parts.append(text)
            self.length += len(text)

    def apart(self, tag: str) -> None:
        """Put a space where an element like <p> begins or ends, if there is none."""
        if tag in APART and self.length and not self.parts[-1][-1].isspace():
            self.add(" ")

    def take(self, match: re.Match[str]) -> None:
        if match["data"] is not None:
            self.add(match["data"])
        elif match["end"]:
            self.close(match["end"].lower(), match[0])
        else:
            self.begin((match["start"] or "").lower(), match[0])

    def begin(self, tag: str, head: str) -> None:
        void = tag in VOID and tag not in self.closing
        leaf = not tag or void or head.endswith("/>")
        if not leaf:
            self.apart(tag)
        self.count += 1
        node = Node(self.count, head, tag, self.length, self.length, last=self.count)
        self.open[-1].children.append(node)
        if leaf:
            return self.apart(tag)
        if len(self.open) > DEEPEST:
            raise ArgumentError(self.name, f"have at most {DEEPEST} nested tags", f"more at {_cut(head)}")
        self.open.append(node)
        self.turns.append((self.length, node))

    def close(self, tag: str, tail: str) -> None:
        names = [node.name for node in self.open[1:]]
        if tag not in names:
            raise ArgumentError(self.name, "open every tag that it closes", f"{_cut(tail)} alone")
        if names[-1] != tag:
            raise ArgumentError(self.name, "nest its tags", f"{_cut(tail)} before the end of {_cut(self.open[-1].head)}")
        self._end(self.open.pop(), tail)
        self.turns.append((self.length, self.open[-1]))
        self.apart(tag)

    def _end(self, node: Node, tail: str) -> None:
        node.stop, node.tail, node.last = self.length, tail, self.count

    def finished(self) -> Marked:
        *_, node = self.open
        if node.number:
            raise ArgumentError(self.name, "close every tag that it opens", f"{_cut(node.head)} alone")
        self._end(node, "")
        return Marked("".join(self.parts), node, self.turns)
