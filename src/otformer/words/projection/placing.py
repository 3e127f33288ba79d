"""Place the tags of the source on the target: every tag once, in the source's tree, around or beside words of the target.

The tree of the result is the source's: an element stays in its parent, and siblings do not overlap, but may change their
order, as words do. From the root down, an element among its siblings gets an interval of its parent's (`intervals`):

    all words of its parent         everything that its parent has
    words that the target has       from the first to the last of them, as far as siblings leave it
    none that the target has        no words: the place that `Neighbours` find for it in its parent
                                    (at the start or end of its parent if it is there in the source)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from otformer.words.projection.intervals import intervals
from otformer.words.projection.markup import Marked, Node
from otformer.words.projection.units import Neighbours, Sentence, Unit, child, units
from otformer.words.text.gold import Link


class Placed(NamedTuple):
    """A node and the characters of the target that it covers."""

    start: int
    stop: int
    node: Node


def transferred(marked: Marked, source: Sentence, target: Sentence, links: Mapping[Link, float]) -> str:
    """The target with the tags of the source; its own ``&``, ``<`` and ``>`` become entities.

    >>> from otformer.words.projection.markup import parse
    >>> source, target = Sentence("Der Hund", [(0, 3), (4, 8)]), Sentence("The dog", [(0, 3), (4, 7)])
    >>> transferred(parse("Der <b>Hund</b>"), source, target, {(0, 0): 1.0, (1, 1): 1.0})
    'The <b>dog</b>'
    """
    return "".join(_Placer(marked, source, target, links).written(Placed(0, len(target.text), marked.root)))


class _Placer:
    def __init__(self, marked: Marked, source: Sentence, target: Sentence, links: Mapping[Link, float]) -> None:
        self.text, self.source = target.text, source
        self.units = units(marked, source, target, links)
        self.near = Neighbours(source, target, links)

    def written(self, placed: Placed) -> Iterator[str]:
        """The element and its contents, in pieces."""
        yield placed.node.head
        at = placed.start
        for inner in self.children(placed):
            yield escape(self.text[at : inner.start], quote=False)
            yield from self.written(inner)
            at = inner.stop
        yield escape(self.text[at : placed.stop], quote=False)
        yield placed.node.tail

    def children(self, parent: Placed) -> list[Placed]:
        """The children of an element in the order of the target."""
        if not parent.node.children:
            return []
        whole = next((each for each in parent.node.children if self.is_whole(each, parent.node)), None)
        if whole is not None:
            covering = [Placed(parent.start, parent.stop, whole)]
        else:
            own = self.own(parent)
            found = intervals(defaultdict(list, self.wanted(parent.node, own)))
            covering = [Placed(own[s].start, own[t - 1].stop, node) for node, (s, t) in found.items()]
        covering.sort()
        there = {placed.node for placed in covering}
        points = [self.point(each, parent, covering) for each in parent.node.children if each not in there]
        return sorted(covering + points, key=lambda placed: (placed.start, placed.stop, placed.node.number))

    def own(self, placed: Placed) -> Sequence[Unit]:
        """The units inside of an element's characters."""
        first = bisect_left(self.units, placed.start, key=lambda unit: unit.start)
        return self.units[first : bisect_right(self.units, placed.stop, key=lambda unit: unit.stop)]

    def wanted(self, node: Node, own: Sequence[Unit]) -> Mapping[Node, list[int]]:
        """For every child of a node the units that belong to it."""
        found: dict[Node, list[int]] = defaultdict(list)
        for number, unit in enumerate(own):
            if node.holds(unit.home) and unit.home is not node:
                found[child(node, unit.home)].append(number)
        return found

    def is_whole(self, node: Node, parent: Node) -> bool:
        """Whether an element holds all letters of all words of its parent, and there are any."""
        first, after = self.near.within(parent)
        if first == after:
            return False
        begin, end = self.source.spans[first][0], self.source.spans[after - 1][1]
        return node.start <= max(begin, parent.start) and min(end, parent.stop) <= node.stop

    def point(self, node: Node, parent: Placed, covering: Sequence[Placed]) -> Placed:
        """The place of a node without words: in its parent, and not within a sibling that covers words."""
        first, after = self.near.within(parent.node)
        mine, behind = self.near.within(node)
        if first == after or (mine <= first and node.start <= self.source.spans[first][0]):
            at = parent.start
        elif behind >= after and node.stop >= self.source.spans[after - 1][1]:
            at = parent.stop
        else:
            at = min(max(self.near.place(node), parent.start), parent.stop)
        k = bisect_left(covering, at, key=lambda sibling: sibling.start) - 1
        if k >= 0 and at < covering[k].stop:
            sibling = covering[k]
            at = sibling.start if node.number < sibling.node.number else sibling.stop
        return Placed(at, at, node)
