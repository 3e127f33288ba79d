"""Sentence pairs written for the project, 60 English–French and 40 German–English, with word alignments made by hand.

They ship with the package, for commands and the report where no text is given; the paper's fox pair is the first. A file has
one pair per line, four columns with tabs between: source, target, links ``i-j`` from 0, and the words that have no partner
on purpose, ``s3`` in the source, ``t5`` in the target (``-`` for none). All links are sure. Verb forms of several words and
fixed phrases are linked as a whole (bought: a acheté; fährt … ab: leaves), negations with both their parts (not: ne … pas).
An article or preposition that only one of the languages has is alone.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from otformer.show.look import resource
from otformer.words.text.gold import Links, parse_links
from otformer.words.text.languages import LanguagePair


class Example(NamedTuple):
    """Words of a sentence and of its translation, their links (i, j), and the words without a partner on each side."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: Links
    alone: tuple[frozenset[int], frozenset[int]]

    @property
    def line(self) -> str:
        """``source ||| target``."""
        return f"{' '.join(self.source)} ||| {' '.join(self.target)}"


@cache
def examples(languages: str = "en-fr") -> tuple[Example, ...]:
    """The pairs of ``en-fr`` or ``de-en``, or of ``fr-en`` or ``en-de``, which are the same exchanged.

    >>> fox = examples("en-fr")[0]
    >>> fox.line
    'The quick brown fox jumps over the lazy dog ||| Le renard brun rapide saute par-dessus le chien paresseux'
    >>> [(fox.source[i], fox.target[j]) for i, j in sorted(fox.links)][1:4]
    [('quick', 'rapide'), ('brown', 'brun'), ('fox', 'renard')]
    """
    pair = LanguagePair.of(languages)
    lines = resource("words", "data", f"{pair.stored}.tsv").splitlines()
    return tuple(_parse(line, pair.exchanged) for line in lines)


def _parse(line: str, exchanged: bool) -> Example:
    source, target, given, alone = line.split("\t")
    places = [(word[0], int(word[1:])) for word in alone.split() if word != "-"]
    left, right = (frozenset(k for side, k in places if side == name) for name in "st")
    e, f, links = tuple(source.split()), tuple(target.split()), parse_links(given).sure
    if exchanged:
        return Example(f, e, frozenset((j, i) for i, j in links), (right, left))
    return Example(e, f, links, (left, right))
