"""`transfer` as work on a corpus (words/jobs/jobs.py)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from otformer._version import __version__
from otformer.words.aligning import AlignWork
from otformer.words.jobs.jobs import Item, Job, Work
from otformer.words.projection.conll import parse_block
from otformer.words.projection.pairs import LabelledPair, MarkedPair, Weights, as_spaced, weights
from otformer.words.text.gold import parse_links
from otformer.words.text.text import Pair


@dataclass(frozen=True)
class TransferWork:
    """What to write for every pair: a line of text with tags, lines in columns, or an object of JSON.

    An item is (source, target), or (source, target, line of links) if there is no aligner. The source is a text with tags;
    or, with ``column``, a sentence in columns.

    aligner : makes the links.   by : how text becomes words.   column : of the labels (`parse_block`), 0 for tags.
    as_spans : whether labels are spans.   one_based : given links count from 1.   as_json : objects instead of text.
    """

    aligner: AlignWork | None
    by: str = "words"
    column: int = 0
    as_spans: bool = False
    one_based: bool = False
    as_json: bool = False

    def job(self, **options: Any) -> Job:
        """The job of this work; options are those of `Job`: chunk, engine, workers."""
        settings = {**asdict(self), "work": "transfer", "version": __version__}
        if self.aligner is not None:
            settings["aligner"] = sorted(self.aligner.job().settings.items())
        return Job(self, settings, pack=lambda made: json.dumps(made).encode(), unpack=json.loads, **options)

    def pair(self, item: Item, name: str) -> MarkedPair | LabelledPair:
        """Read an item; errors call it ``name``."""
        if not self.column:
            return MarkedPair(Pair(*item[:2]), self.by, name)
        return LabelledPair(parse_block(item[0], self.column, name), item[1], self.by, self.as_spans)

    def links(self, line: str, pair: MarkedPair | LabelledPair, name: str) -> Weights:
        """Read a line of links that are given."""
        return weights(parse_links(line, self.one_based, name).possible, pair.tokens, name)

    def __call__(self) -> Work:
        linked = self.aligner() if self.aligner is not None else None

        def work(items: Sequence[Item]) -> list[str]:
            pairs = [self.pair(item, "source") for item in items]
            if linked is None:
                found = [self.links(item[2], pair, "links") for item, pair in zip(items, pairs, strict=True)]
            else:
                found = [each.scores for each in linked([as_spaced(pair.tokens) for pair in pairs])]
            both = zip(pairs, found, strict=True)
            if self.as_json:
                return [json.dumps(pair.record(links)) for pair, links in both]  # in ASCII: nothing that a terminal obeys
            return [pair.line(links) for pair, links in both]

        return work
