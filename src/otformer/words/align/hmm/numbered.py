"""Parallel text as numbers, and the pairs of words that meet in it: `Text`, `WordPairs`.

A text has 4 bytes a word; the pairs of words that meet in a sentence pair are 4 bytes each, in rows by source word.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otformer import checks
from otformer.transport.compiled import by_row, compiled, in_threads
from otformer.words.align.vectors import Array
from otformer.words.text.training_text import TokenPair

Words = tuple[Sequence[str], Sequence[str]]
MOST_MEETINGS = 2**31 - 1  # of words that meet: their numbers have 4 bytes


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
    def of(cls, pairs: Iterable[TokenPair], known: Words = ((), ())) -> Text:
        """The sentence pairs with words on both sides; words that are ``known`` have the first numbers."""
        index = [{word: k for k, word in enumerate(side)} for side in known]
        tokens, lengths = (array("i"), array("i")), (array("q", [0]), array("q", [0]))
        for pair in pairs:
            if all(pair):
                for side, number, starts, numbers in zip(pair, tokens, lengths, index, strict=True):
                    number.extend([numbers.setdefault(word, len(numbers)) for word in side])
                    starts.append(len(number))
        if len(lengths[0]) == 1:
            raise checks.ArgumentError("pairs", "hold sentences with words on both sides", "none")
        first, second = (np.frombuffer(number, np.int32) for number in tokens)
        source, target = (np.frombuffer(starts, np.int64) for starts in lengths)
        return cls((list(index[0]), list(index[1])), (first, second), (source, target))

    def __len__(self) -> int:
        return len(self.starts[0]) - 1

    def stemmed(self, letters: int | None, before: Words = ((), ())) -> Text:
        """The text with the first letters of its words in place of them; known ones have the first numbers."""
        if letters is None:
            return self
        words, tokens = [], []
        for side, numbers, first in zip(self.words, self.tokens, before, strict=True):
            known = {word: k for k, word in enumerate(first)}
            stem = np.array([known.setdefault(word[:letters], len(known)) for word in side], np.int32)
            words.append(list(known))
            tokens.append(stem[numbers])
        return Text((words[0], words[1]), (tokens[0], tokens[1]), self.starts)


@dataclass(frozen=True)
class WordPairs:
    """All pairs of a source and a target word that occur together, by number: those of source word e are at start[e] …
    start[e + 1].

    >>> met = WordPairs.of(Text.of([(["a", "b"], ["x"]), (["a"], ["y", "x"])]))
    >>> met.start.tolist(), met.target.tolist()
    ([0, 2, 3], [0, 1, 0])
    """

    start: Array  # [source words + 1]
    target: Array  # [pairs], the target words of each source word, in order

    @classmethod
    def of(cls, text: Text, known: WordPairs | None = None) -> WordPairs:
        """The pairs that occur together in a text, and those already known, for the words with the first numbers."""
        (source, target), (starts, others) = text.tokens, text.starts
        sizes = [len(side) for side in text.words]
        more = WordPairs(np.zeros(1, np.int64), np.empty(0, np.int32)) if known is None else known
        more_start = np.pad(more.start, (0, sizes[0] + 1 - len(more.start)), "edge")
        sentence = np.repeat(np.arange(len(text), dtype=np.int32), np.diff(starts))
        first, order = np.empty(sizes[0] + 1, np.int64), np.empty(len(source), np.int32)
        by_row(source, first, order)
        sentence = sentence[order]
        count, cells = np.zeros(sizes[0], np.int64), int((np.diff(starts) * np.diff(others)).sum())

        def pairs(start: Array, found: Array) -> None:
            def rows(begin: int, end: int) -> None:
                seen = np.full(sizes[1], -1, np.int32)
                _rows(begin, end, first, sentence, others, target, more_start, more.target, seen, start, found, count)

            in_threads(rows, sizes[0], cells)

        pairs(np.zeros(0, np.int64), np.empty(0, np.int32))
        start = np.concatenate([[0], count.cumsum()])
        if start[-1] > MOST_MEETINGS:
            most = f"have at most {MOST_MEETINGS:,} pairs of words that meet"
            raise checks.ArgumentError("pairs", most, f"{start[-1]:,}", "give less text")
        found = np.empty(start[-1], np.int32)
        pairs(start, found)
        return cls(start, found)

    def __len__(self) -> int:
        return len(self.target)

    def number(self, source: Array, target: Array) -> Array:
        """The numbers of pairs of words that meet; sources rise."""
        out = np.empty(len(source), np.int64)
        _find(self.start, self.target, source, target, out)
        return out


@compiled
def _find(start: Any, met: Any, source: Any, target: Any, out: Any) -> None:
    for k in range(len(source)):
        row = met[start[source[k]] : start[source[k] + 1]]
        out[k] = start[source[k]] + np.searchsorted(row, target[k])


@compiled
def _rows(
    begin: int, end: int, first: Any, sentence: Any, others: Any, target: Any, more_start: Any, more: Any, seen: Any,
    start: Any, found: Any, count: Any,
) -> None:  # fmt: skip
    """Count the distinct target words that meet source words begin … end − 1; write them, in order, if there is room."""
    for e in range(begin, end):
        many = 0
        for at in range(first[e] - 1, first[e + 1]):
            listed = more[more_start[e] : more_start[e + 1]]
            if at >= first[e]:
                listed = target[others[sentence[at]] : others[sentence[at] + 1]]
            for f in listed:
                if seen[f] != e:
                    seen[f] = e
                    if len(found):
                        found[start[e] + many] = f
                    many += 1
        count[e] = many
        if len(found):
            found[start[e] : start[e + 1]].sort()
