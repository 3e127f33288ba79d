"""Words in parts, the same for training text and for any other: what alignment models (words/align/hmm/model.py) know.

Texts have their own ideas of words ("de les" and "du"), so a word is cut into parts by one rule, parts are aligned, and two
words are linked as their best parts are. `tokens` of words/text/training_text.py comes first, then:

    French contractions in two (du: de le, des: de les), English ones in full (don't: do not, we'll: we will),
    hyphens apart, a full stop off abbreviations (Mr.: mr).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from otformer.words.align.vectors import MOST_LETTERS, Array
from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import plain
from otformer.words.text.training_text import TokenPair, tokens, training_text

MOST_PARTS = 50  # parts per side of a training sentence; longer ones are left out
FRENCH = {"du": "de le", "des": "de les", "au": "à le", "aux": "à les"}
ENGLISH = {"cannot": "can not", "can't": "can not", "won't": "will not"}
ENGLISH |= {"'m": "am", "'re": "are", "'ve": "have", "'ll": "will"}


class WordParts(NamedTuple):
    """Parts of the words of a sentence, and which word each comes from."""

    parts: list[str]
    owner: list[int]


def split_contractions(token: str, language: str) -> list[str]:
    """A token of `tokens` in parts.

    >>> [split_contractions(*given) for given in (("feriez-vous", "fr"), ("des", "fr"), ("des", "de"), ("don't", "en"))]
    [['feriez', '-', 'vous'], ['de', 'les'], ['des'], ['do', 'not']]
    """
    if language == "fr" and token in FRENCH:
        return FRENCH[token].split()
    if language == "en" and token in ENGLISH:
        return ENGLISH[token].split()
    if language == "en" and token.endswith("n't") and len(token) > 3:
        return [token[:-3], "not"]
    return re.findall(r"[^-]+|-+", token)


def word_parts(words: Sequence[str], language: str) -> WordParts:
    """The parts of words that are split already. Every word has one at least.

    >>> word_parts(["Feriez-vous", "du", "l'", "…"], "fr")
    WordParts(parts=['feriez', 'vous', 'de', 'le', 'le', '...'], owner=[0, 0, 1, 1, 2, 3])
    """
    found = [_parts(word, language) for word in words]
    return WordParts([part for parts in found for part in parts], [k for k, parts in enumerate(found) for _ in parts])


def whole_words(words: Sequence[str]) -> WordParts:
    """Every word as one part."""
    return WordParts(list(map(plain, words)), list(range(len(words))))


def _parts(word: str, language: str) -> tuple[str, ...]:
    """The parts of one word, remembered if it is of ordinary length."""
    return (_remembered if len(word) <= MOST_LETTERS else _cut)(word, language)


def _cut(word: str, language: str) -> tuple[str, ...]:
    """The parts of one word; of a word with letters or digits only the parts that have some."""
    whole = plain(word)
    alone = whole.isalnum() or whole[:1] == "'"  # l' and 's by themselves are words already
    every = [part for token in ([whole] if alone else tokens(whole)) for part in split_contractions(token, language)]
    return tuple([part for part in every if any(map(str.isalnum, part))] or every or [whole])


_remembered = lru_cache(maxsize=2**16)(_cut)


def letter_pairs(word: str) -> frozenset[str]:
    """The pairs of neighbouring letters of a word's first MOST_LETTERS, its ends among them."""
    marked = f"<{word[:MOST_LETTERS]}>"
    return frozenset(marked[k : k + 2] for k in range(len(marked) - 1))


def dice(a: frozenset[str], b: frozenset[str]) -> float:
    """2 |a ∩ b| / (|a| + |b|): how alike two words are spelled, of their letter pairs.

    >>> round(dice(letter_pairs("house"), letter_pairs("haus")), 2)
    0.36
    """
    return 2 * len(a & b) / (len(a) + len(b))


def parts_to_words(matrix: Array, source: WordParts, target: WordParts) -> Array:
    """[m, n] of words from a matrix of parts: the largest over the parts of both words.

    >>> do, ne = WordParts(["do", "not"], [0, 0]), WordParts(["ne", "pas"], [0, 1])
    >>> parts_to_words(np.array([[0.1, 0.5], [0.0, 0.4]]), do, ne).tolist()
    [[0.5], [0.4]]
    """
    out = np.full((max(target.owner, default=-1) + 1, max(source.owner, default=-1) + 1), -np.inf)
    np.maximum.at(out, (np.array(target.owner, int)[:, None], np.array(source.owner, int)[None, :]), matrix)
    return out


def training_parts(languages: str | LanguagePair) -> Iterator[TokenPair]:
    """`training_text` in parts, sentences of 1 to 50 parts; words/text/training_text.py says what is never in it."""
    pair = LanguagePair.of(languages)
    for e, f in training_text(pair):
        source = [part for token in e for part in split_contractions(token, pair.source)]
        target = [part for token in f for part in split_contractions(token, pair.target)]
        if max(len(source), len(target)) <= MOST_PARTS:
            yield source, target
