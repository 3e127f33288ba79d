"""Parallel text as numbers, and the pairs of words that meet in it: `Text`, `WordPairs`.

A text has 4 bytes a word; the pairs of words that meet in a sentence pair are 4 bytes each, in rows by source word.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from otformer import checks
from otformer.transport.compiled import by_row, compiled, in_threads
from otformer.words.align.vectors import Array
from otformer.words.text.training_text import TokenPair

MOST_PAIRS = 2**31 - 1  # of words that meet: their numbers have 4 bytes


@dataclass(frozen=True)
class Text:
    """Sentence pairs as numbers of words, source first.

    words : the words of both sides.   tokens : both sides' sentences, one after the other, as numbers of words.
    starts : [sentence pairs + 1], where they begin.
    """

    words: tuple[list[str], list[str]]
    tokens: tuple[Array, Array]
    starts: tuple[Array, Array]

    @classmethod
    def of(cls, pairs: Iterable[TokenPair]) -> Text:
        """The sentence pairs with words on both sides."""
        index: tuple[dict[str, int], dict[str, int]] = ({}, {})
        tokens, lengths = (array("i"), array("i")), (array("i"), array("i"))
        for pair in pairs:
            if all(pair):
                for side, number, sizes, known in zip(pair, tokens, lengths, index, strict=True):
                    number.extend([known.setdefault(word, len(known)) for word in side])
                    sizes.append(len(side))
        return cls.made(index, tokens, lengths)

    @classmethod
    def made(cls, index: Any, tokens: Any, lengths: Any) -> Text:
        """From words with their numbers, the numbers of all words of the text, and the lengths of sentences, of both sides."""
        if not len(lengths[0]):
            raise checks.ArgumentError("pairs", "hold sentences with words on both sides", "none")
        source, target = (np.array([0, *accumulate(sizes)], np.int64) for sizes in lengths)
        first, second = (np.frombuffer(number, np.int32) for number in tokens)
        return cls((list(index[0]), list(index[1])), (first, second), (source, target))

    def __len__(self) -> int:
        return len(self.starts[0]) - 1

    def stemmed(self, letters: int | None) -> Text:
        """The text with the first letters of its words in place of them."""
        if letters is None:
            return self
        words, tokens = [], []
        for side, numbers in zip(self.words, self.tokens, strict=True):
            known: dict[str, int] = {}
            stem = np.array([known.setdefault(word[:letters], len(known)) for word in side], np.int32)
            words.append(list(known))
            tokens.append(stem[numbers])
        return Text((words[0], words[1]), (tokens[0], tokens[1]), self.starts)


@dataclass(frozen=True)
class WordPairs:
    """All pairs of a source and a target word that meet, by number: those of source word e stand at start[e] … start[e + 1].

    >>> met = WordPairs.of(Text.of([(["a", "b"], ["x"]), (["a"], ["y", "x"])]))
    >>> met.start.tolist(), met.target.tolist()
    ([0, 2, 3], [0, 1, 0])
    """

    start: Array  # [source words + 1]
    target: Array  # [pairs], the target words of each source word, in order

    @classmethod
    def of(cls, text: Text) -> WordPairs:
        (source, target), (starts, others) = text.tokens, text.starts
        sizes = [len(side) for side in text.words]
        sentence = np.repeat(np.arange(len(text), dtype=np.int32), np.diff(starts))
        first, order = np.empty(sizes[0] + 1, np.int64), np.empty(len(source), np.int32)
        by_row(source, first, order)
        sentence = sentence[order]
        count, cells = np.zeros(sizes[0], np.int64), int((np.diff(starts) * np.diff(others)).sum())

        def pairs(start: Array, found: Array) -> None:
            def rows(begin: int, end: int) -> None:
                _rows(begin, end, first, sentence, others, target, np.full(sizes[1], -1, np.int32), start, found, count)

            in_threads(rows, sizes[0], cells)

        pairs(np.zeros(0, np.int64), np.empty(0, np.int32))
        start = np.concatenate([[0], count.cumsum()])
        if start[-1] > MOST_PAIRS:
            most = f"have at most {MOST_PAIRS:,} pairs of words that meet"
            raise checks.ArgumentError("pairs", most, f"{start[-1]:,}", "give less text")
        found = np.empty(start[-1], np.int32)
        pairs(start, found)
        return cls(start, found)

    def __len__(self) -> int:
        return len(self.target)


@compiled
def _rows(
    begin: int, end: int, first: Any, sentence: Any, others: Any, target: Any, seen: Any, start: Any, found: Any, count: Any
) -> None:
    """Count the distinct target words that meet source words begin … end − 1; write them, in order, if there is room."""
    for e in range(begin, end):
        many = 0
        for at in range(first[e], first[e + 1]):
            k = sentence[at]
            for place in range(others[k], others[k + 1]):
                f = target[place]
                if seen[f] != e:
                    seen[f] = e
                    if len(found):
                        found[start[e] + many] = f
                    many += 1
        count[e] = many
        if len(found):
            found[start[e] : start[e + 1]].sort()
