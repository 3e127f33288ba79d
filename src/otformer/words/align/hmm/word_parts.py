"""Words in pieces, the same for training text and for any other: what alignment models (words/align/hmm/model.py) know.

Texts have their own ideas of words: Hansards has "de les" and "two - thirds", RWTH "cross-border" and "Mr.", plain text "du"
and "feriez-vous". So a word is cut into pieces by one rule, pieces are aligned, and two words are linked as their best
pieces are. `tokens` of words/align/bilingual.py (folded case and punctuation, French elisions in full) comes first, then:

    French contractions in two (du: de le, des: de les), English ones in full (don't: do not, we'll: we will),
    hyphens apart, a full stop off abbreviations (Mr.: mr).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from otformer.words.align.bilingual import TokenPair, tokens, training_text
from otformer.words.align.vectors import Array, plain

LONGEST = 50  # pieces of a training sentence that is used
FRENCH = {"du": "de le", "des": "de les", "au": "à le", "aux": "à les"}
ENGLISH = {"cannot": "can not", "can't": "can not", "won't": "will not"}
ENGLISH |= {"'m": "am", "'re": "are", "'ve": "have", "'ll": "will"}


class Pieces(NamedTuple):
    """Pieces of a sentence, and which word each comes from."""

    pieces: list[str]
    owner: list[int]


def cut(token: str, language: str) -> list[str]:
    """A token of `tokens` in pieces.

    >>> cut("feriez-vous", "fr"), cut("des", "fr"), cut("des", "de"), cut("don't", "en")
    (['feriez', '-', 'vous'], ['de', 'les'], ['des'], ['do', 'not'])
    """
    if language == "fr" and token in FRENCH:
        return FRENCH[token].split()
    if language == "en" and token in ENGLISH:
        return ENGLISH[token].split()
    if language == "en" and token.endswith("n't") and len(token) > 3:
        return [token[:-3], "not"]
    return re.findall(r"[^-]+|-+", token)


def pieces(words: Sequence[str], language: str) -> Pieces:
    """Words in pieces; of a word with letters or digits only the pieces that have some. Every word has a piece.

    >>> pieces(["Feriez-vous", "du", "l'", "…"], "fr")
    Pieces(pieces=['feriez', 'vous', 'de', 'le', 'le', '...'], owner=[0, 0, 1, 1, 2, 3])
    """
    found: list[str] = []
    owner: list[int] = []
    for k, word in enumerate(words):
        whole = plain(word)  # l' and 's by themselves are words already
        all_of_it = [piece for t in ([whole] if whole[:1] == "'" else tokens(whole)) for piece in cut(t, language)]
        spoken = [piece for piece in all_of_it if any(map(str.isalnum, piece))] or all_of_it or [whole]
        found += spoken
        owner += [k] * len(spoken)
    return Pieces(found, owner)


def spelling(source: str, target: str) -> float:
    """2 |common| / (|a| + |b|) of the letter pairs of two words, the ends of the words among the letters (Dice).

    >>> round(spelling("house", "haus"), 2), spelling("dog", "chien")
    (0.36, 0.0)
    """
    a, b = ({word[k : k + 2] for k in range(len(word) - 1)} for word in (f"<{source}>", f"<{target}>"))
    return 2 * len(a & b) / (len(a) + len(b))


def of_words(matrix: Array, source: Pieces, target: Pieces) -> Array:
    """[m, n] of words from a matrix of pieces: the largest over the pieces of both words.

    >>> do, ne = Pieces(["do", "not"], [0, 0]), Pieces(["ne", "pas"], [0, 1])
    >>> of_words(np.array([[0.1, 0.5], [0.0, 0.4]]), do, ne).tolist()
    [[0.5], [0.4]]
    """
    out = np.full((max(target.owner, default=-1) + 1, max(source.owner, default=-1) + 1), -np.inf)
    np.maximum.at(out, (np.array(target.owner, int)[:, None], np.array(source.owner, int)[None, :]), matrix)
    return out


def training_pieces(languages: str) -> Iterator[TokenPair]:
    """`training_text` in pieces, pairs of 1 to 50 a side; no sentence of a test set and no shipped example is in it."""
    source, target = languages.split("-")
    for left, right in training_text(languages):
        pair = [piece for t in left for piece in cut(t, source)], [piece for t in right for piece in cut(t, target)]
        if all(len(side) <= LONGEST for side in pair):
            yield pair
