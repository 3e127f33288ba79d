"""What all aligners of the comparison read: one tokenisation of the training text, the examples and the gold sets.

Gold is made on given words, and each set has its own idea of them: Hansards writes "de les" and "two - thirds", RWTH
"cross-border" and "Mr.", the shipped examples "du" and "feriez-vous". So every word is cut into pieces by the rule that also
cuts the training text, all systems align pieces, and two words are linked where a piece of one is linked to a piece of the
other. `tokens` of words/bilingual.py (folded case and punctuation, French elisions in full) comes first, then:

    French contractions in two (du: de le, des: de les), English ones in full (don't: do not, we'll: we will),
    hyphens apart, a full stop off abbreviations of the gold sets (Mr.: mr).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from otformer.words.bilingual import TokenPair, tokens, training_text
from otformer.words.examples import examples
from otformer.words.gold import Gold, Link, Links, read_gold
from otformer.words.text import data_folder, read_pairs
from otformer.words.vectors import plain

LONGEST = 50  # pieces of a training sentence that is used
FRENCH = {"du": "de le", "des": "de les", "au": "à le", "aux": "à les"}
ENGLISH = {"cannot": "can not", "can't": "can not", "won't": "will not"}
ENGLISH |= {"'m": "am", "'re": "are", "'ve": "have", "'ll": "will"}
TESTS = {"en-fr": "Hansards", "de-en": "RWTH"}


class Sentence(NamedTuple):
    """Pieces of a sentence, and which word each comes from."""

    pieces: list[str]
    owner: list[int]


class Set(NamedTuple):
    """Sentence pairs with gold links between their words."""

    name: str
    source: list[Sentence]
    target: list[Sentence]
    gold: list[Gold]


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


def sentence(words: Sequence[str], language: str) -> Sentence:
    """Words of a gold set in pieces; of a word with letters or digits only the pieces that have some."""
    pieces: list[str] = []
    owner: list[int] = []
    for k, word in enumerate(words):
        whole = plain(word)  # l' and 's by themselves are words already
        all_of_it = [piece for t in ([whole] if whole[0] == "'" else tokens(whole)) for piece in cut(t, language)]
        spoken = [piece for piece in all_of_it if any(map(str.isalnum, piece))] or all_of_it
        pieces += spoken
        owner += [k] * len(spoken)
    return Sentence(pieces, owner)


def training(languages: str) -> list[TokenPair]:
    """The training text in pieces, pairs of 1 to 50 a side; no sentence of a test set is in it (`training_text`)."""
    source, target = languages.split("-")
    pairs = []
    for left, right in training_text(languages):
        pair = [piece for t in left for piece in cut(t, source)], [piece for t in right for piece in cut(t, target)]
        if all(len(side) <= LONGEST for side in pair):
            pairs.append(pair)
    return pairs


def example_set(languages: str) -> Set:
    """The pairs that ship with the package: everything is chosen on these."""
    source, target = languages.split("-")
    chosen = examples(languages)
    return Set(
        "examples",
        [sentence(e.source, source) for e in chosen],
        [sentence(e.target, target) for e in chosen],
        [Gold(e.links, e.links) for e in chosen],
    )


def gold_set(languages: str) -> Set:
    """Hansards for en-fr, RWTH for de-en: looked at once everything is chosen."""
    source, target = languages.split("-")
    folder = data_folder() / "gold_alignments" / {"en-fr": "hansards_en-fr", "de-en": "rwth_de-en"}[languages]
    if languages == "en-fr":
        pairs, links = read_pairs(folder / "test.en-fr.src-tgt"), "test.en-fr.talp"
    else:
        pairs, links = read_pairs(folder / "de", folder / "en"), "alignmentDeEn.talp"
    both = list(pairs)
    gold = read_gold(folder / links, one_based=True)[: len(both)]
    sides = [[sentence(pair[k].split(), (source, target)[k]) for pair in both] for k in (0, 1)]
    return Set(TESTS[languages], sides[0], sides[1], gold)


def word_links(links: Iterable[Link], source: Sentence, target: Sentence) -> Links:
    """Links of words from links of their pieces."""
    return frozenset((source.owner[i], target.owner[j]) for i, j in links)
