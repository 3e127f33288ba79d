"""Sentences with labels in columns, as of CoNLL: a word per line, columns between tabs or spaces, an empty line after each.

CoNLL-U is known by ten columns between tabs, of which the first is a number. Comments stand where columns are between tabs;
they go with the sentence, but ``# text`` becomes the target's. Lines of words written as one (1-2) and of words that are not
written (1.1) carry no labels of words and are passed over, and so are -DOCSTART- lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from otformer.errors import ArgumentError
from otformer.words.projection.labels import NOTHING

WIDE = 10  # columns of CoNLL-U
_ROW = re.compile(r"\d+([-.]\d+)?", re.ASCII)
_WRITTEN = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True)
class Block:
    """A sentence: its words, one label for each, comments, and the column (from 0) of CoNLL-U, or -1 for plain columns."""

    words: tuple[str, ...]
    labels: tuple[str, ...]
    comments: tuple[str, ...] = ()
    column: int = -1

    def lines(self, text: str, words: Sequence[str], labels: Sequence[str]) -> str:
        """Another sentence with labels, in the same columns: all lines, ended by an empty one.

        >>> Block((), ()).lines("The dog", ["The", "dog"], ["DET", "NOUN"])
        'The\\tDET\\ndog\\tNOUN\\n'
        """
        if self.column < 0:
            made = [f"{word}\t{label}" for word, label in zip(words, labels, strict=True)]
        else:
            made = [f"# text = {text}" if re.match(r"# ?text ?=", line) else line for line in self.comments]
            for number, (word, label) in enumerate(zip(words, labels, strict=True), 1):
                row = [str(number), word, *[NOTHING] * (WIDE - 2)]
                row[self.column] = label
                made.append("\t".join(row))
        return "".join(line + "\n" for line in made)


def blocks(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The sentences of a file as text, each with the number of its first line."""
    kept: list[str] = []
    began = 1
    for number, line in enumerate(lines, 1):
        if line.strip():
            began = began if kept else number
            kept.append(line)
        elif kept:
            yield from _whole(began, kept)
            kept = []
    if kept:
        yield from _whole(began, kept)


def _whole(began: int, kept: list[str]) -> Iterator[tuple[int, str]]:
    if not (len(kept) == 1 and kept[0].startswith("-DOCSTART-")):
        yield began, "\n".join(kept)


def parse_block(text: str, column: int, name: str = "source", began: int = 1) -> Block:
    """Read a sentence; ``column`` counts from 1, or from the end if it is negative. ``name`` is what errors call the
    file, in which the sentence begins at line ``began``.

    >>> parse_block("1\\tdu\\t_\\tADP" + "\\t_" * 6, 4, "the text")
    Block(words=('du',), labels=('ADP',), comments=(), column=3)
    """
    words: list[str] = []
    labels: list[str] = []
    comments: list[str] = []
    wide, tabs = -1, "\t" in text
    for number, line in enumerate(text.split("\n"), began):
        fields = line.split("\t") if "\t" in line else line.split()
        is_wide = len(fields) == WIDE and "\t" in line and _ROW.fullmatch(fields[0]) is not None
        if tabs and line.startswith("#") and "\t" not in line:
            comments.append(line)
            continue
        if is_wide and not _WRITTEN.fullmatch(fields[0]):
            continue
        at = column - 1 if column > 0 else len(fields) + column
        word = fields[1 if is_wide else 0]
        if not 0 <= at < len(fields) or not fields[at].strip():
            raise ArgumentError(f"{name} line {number}", f"have a label in column {column}", repr(line[:60]))
        if not word.strip():
            raise ArgumentError(f"{name} line {number}", "have a word", repr(line[:60]))
        words.append(word)
        labels.append(fields[at])
        wide = at if is_wide else -1
    return Block(tuple(words), tuple(labels), tuple(comments), wide)
