"""Target words with the element of the source that each belongs to.

A source word is in every element that it stands in with some letter, and with the share of its letters. A target word goes
down from the root: among the elements of a level that hold a source word linked with it, to the one with the largest sum of
score times share. So it is in an element if any word of the element is linked with it, and of two it takes the heavier.

A target word that is spelled like the source word it is linked with (H<sub>2</sub>O) is several units, cut like that word.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from otformer.words.projection.markup import Marked, Node
from otformer.words.text.gold import Link
from otformer.words.text.text import Span


class Unit(NamedTuple):
    """A target word, or a part of one: its characters, and the innermost element that it belongs to."""

    start: int
    stop: int
    home: Node


class Sentence(NamedTuple):
    """A text and where its words stand."""

    text: str
    spans: Sequence[Span]

    @property
    def words(self) -> list[str]:
        return [self.text[start:stop] for start, stop in self.spans]

    def word(self, number: int) -> str:
        start, stop = self.spans[number]
        return self.text[start:stop]


def child(node: Node, other: Node) -> Node:
    """The child of a node that holds another node below it."""
    return node.children[bisect_right(node.children, other.number, key=lambda each: each.number) - 1]


def pieces(marked: Marked, span: Span) -> Iterator[Unit]:
    """The parts of a source word that stand in different elements, with the innermost of each."""
    start, stop = span
    at = bisect_right(marked.turns, start, key=lambda turn: turn[0]) - 1
    while start < stop:
        home = marked.turns[at][1]
        at += 1
        end = min(marked.turns[at][0], stop) if at < len(marked.turns) else stop
        if end > start:
            yield Unit(start, end, home)
        start = end


def heaviest(root: Node, weights: Mapping[Node, float]) -> Node:
    """Go down from the root, each time to the child below which the weights of elements have the largest sum.

    >>> inner = Node(2, last=2); outer = Node(1, children=[inner], last=2); other = Node(3, last=3)
    >>> heaviest(Node(0, children=[outer, other], last=3), {outer: 0.3, inner: 0.3, other: 0.5}).number
    2
    """
    node = root
    while True:
        sums: dict[Node, float] = defaultdict(float)
        for home in sorted(weights, key=lambda each: each.number):
            if node.holds(home) and home is not node:
                sums[child(node, home)] += weights[home]
        if not sums:
            return node
        if len(sums) == len(weights) == 1:
            return next(iter(weights))
        node = max(sums, key=lambda each: sums[each])


def units(marked: Marked, source: Sentence, target: Sentence, links: Mapping[Link, float]) -> list[Unit]:
    """The target's words, in order, as units; a word without links belongs to the root."""
    parts = [list(pieces(marked, span)) for span in source.spans]
    linked: dict[int, list[int]] = defaultdict(list)
    for i, j in sorted(links):
        linked[j].append(i)
    made = []
    for j, (start, stop) in enumerate(target.spans):
        same = next((i for i in linked[j] if len(parts[i]) > 1 and source.word(i) == target.word(j)), None)
        if same is not None:
            shift = start - source.spans[same][0]
            made += [Unit(part.start + shift, part.stop + shift, part.home) for part in parts[same]]
            continue
        weights: dict[Node, float] = defaultdict(float)
        for i in linked[j]:
            first, last = source.spans[i]
            for part in parts[i]:
                weights[part.home] += links[i, j] * (part.stop - part.start) / (last - first)
        made.append(Unit(start, stop, heaviest(marked.root, weights)))
    return made


class Neighbours:
    """The target position of a place between source words: beside the best partner of the nearest linked word."""

    def __init__(self, source: Sentence, target: Sentence, links: Mapping[Link, float]) -> None:
        self.source, self.target = source, target
        self.starts, self.stops = [start for start, _ in source.spans], [stop for _, stop in source.spans]
        self.best: dict[int, int] = {}
        for i, j in sorted(links, key=lambda link: (links[link], -link[1])):
            self.best[i] = j  # the last that is written has the highest score, and is the first such word
        self.linked = sorted(self.best)

    def within(self, node: Node) -> Span:
        """The source words of an element, the first and the one after the last."""
        first, after = bisect_right(self.stops, node.start), bisect_left(self.starts, node.stop)
        return (first, after) if node.start < node.stop else (first, first)

    def place(self, node: Node) -> int:
        """The character of the target at which a node without words of its own there stands.

        If others have taken the targets of its words, it lies before the target of the first. Else it is after the target
        of the nearest linked word on the left, or before that of the nearest on the right. If they are equally near, the
        word that the tag touches counts, or else the left one.
        """
        before, after = bisect_left(self.starts, node.start) - 1, bisect_left(self.starts, node.stop)
        if before >= 0 and self.stops[before] > node.start:  # the tag stands inside a word
            return self._inside(before, node.start)
        left, right = bisect_right(self.linked, before) - 1, bisect_left(self.linked, after)
        if right > left + 1:  # some of its own words are linked
            return self._right(left + 1)
        if left < 0 or right == len(self.linked):
            return self._left(left) if left >= 0 else self._right(right) if self.linked else 0
        near, far = before - self.linked[left], self.linked[right] - after
        touches = self.stops[before] < node.start and after < len(self.starts) and self.starts[after] == node.stop
        return self._right(right) if far < near or (far == near and touches) else self._left(left)

    def _left(self, k: int) -> int:
        return self.target.spans[self.best[self.linked[k]]][1]

    def _right(self, k: int) -> int:
        return self.target.spans[self.best[self.linked[k]]][0]

    def _inside(self, i: int, at: int) -> int:
        if i not in self.best:
            k = bisect_left(self.linked, i)
            return self._left(k - 1) if k else self._right(0) if self.linked else 0
        start, stop = self.target.spans[self.best[i]]
        return start + at - self.starts[i] if self.source.word(i) == self.target.word(self.best[i]) else stop
