"""Sentence pairs read for a transfer: with tags, or with labels; both know what to write for given links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from otformer import checks
from otformer.errors import ArgumentError
from otformer.words.aligning import Alignment
from otformer.words.projection.conll import Block
from otformer.words.projection.labels import projected
from otformer.words.projection.markup import parse
from otformer.words.projection.placing import transferred
from otformer.words.projection.units import Sentence
from otformer.words.text.gold import Link, parse_links
from otformer.words.text.text import Pair, word_spans, words

Tokens = tuple[Sequence[str], Sequence[str]]  # the words of both sides of a pair
Weights = Mapping[Link, float]  # links with scores
Links = Alignment | Mapping[Link, float] | Iterable[Link] | str  # of one pair, as a caller gives them


class MarkedPair:
    """A source with tags and a plain target, read and split into words; ``name`` is what errors call it."""

    def __init__(self, pair: Pair, by: str, name: str) -> None:
        self.pair, self.marked = pair, parse(pair.source, name)
        self.source, self.target = (Sentence(text, word_spans(text, by)) for text in (self.marked.text, pair.target))
        self.tokens: Tokens = self.source.words, self.target.words

    def line(self, links: Weights) -> str:
        """The target with the source's tags."""
        return transferred(self.marked, self.source, self.target, links)

    def record(self, links: Weights) -> dict[str, Any]:
        """What JSON has of it."""
        return {"source": self.pair.source, "target": self.pair.target, "result": self.line(links)}


class LabelledPair:
    """A sentence in columns and a plain target; ``as_spans`` says whether the labels are spans."""

    def __init__(self, block: Block, target: str, by: str, as_spans: bool) -> None:
        self.block, self.target, self.as_spans = block, target, as_spans
        self.tokens: Tokens = block.words, words(target, by)

    def labels(self, links: Weights) -> list[str]:
        """The labels of the target's words."""
        return projected(self.block.labels, links, len(self.tokens[1]), self.as_spans)

    def line(self, links: Weights) -> str:
        """The target's words in columns, a line each."""
        return self.block.lines(self.target, self.tokens[1], self.labels(links))

    def record(self, links: Weights) -> dict[str, Any]:
        """What JSON has of it."""
        return {"words": [*self.tokens[1]], "labels": self.labels(links)}


def weights(links: Links, tokens: Tokens, name: str) -> Weights:
    """The links of a pair with scores, 1 where there are none; raise ArgumentError for one beyond the words."""
    if isinstance(links, str):
        links = parse_links(links, name=name).possible
    made = links.scores if isinstance(links, Alignment) else links
    try:
        scored = {(int(i), int(j)): made[i, j] if isinstance(made, Mapping) else 1.0 for i, j in made}
    except (TypeError, ValueError):
        raise ArgumentError(name, "be links (i, j), with scores or without, or a line of Pharaoh", repr(made)[:60]) from None
    n, m = map(len, tokens)
    for i, j in scored:
        if not (0 <= i < n and 0 <= j < m):
            raise ArgumentError(name, f"have source word < {n} and target word < {m}", f"{i}-{j}")
    return {link: checks.not_negative(name, score) for link, score in scored.items()}


def as_spaced(tokens: Tokens) -> Pair:
    """Words as text that `align` splits into them again; a space inside of a word becomes ``_``.

    >>> as_spaced((["20 000", "cats"], ["chats"]))
    Pair(source='20_000 cats', target='chats')
    """
    source, target = (" ".join("_".join(word.split()) or "_" for word in side) for side in tokens)
    return Pair(source, target)
