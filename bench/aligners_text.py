"""What all aligners of the comparison read: one tokenisation (words/align/hmm/word_parts.py) of the training text and of
three sets.

    examples   the pairs that ship with the package, all links sure
    news       pairs of WMT news test sets; the gold is the pairs of the MUSE dictionaries that occur in both sentences
    gold       Hansards for en-fr, RWTH for de-en

Settings are chosen on the first two, for every system by `chooser`; the third is for the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from otformer.words.align.hmm.word_parts import WordParts, word_parts
from otformer.words.text.dictionary import gold_pairs, muse
from otformer.words.text.examples import examples
from otformer.words.text.gold import Gold, Link, Links, read_gold, score_links
from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import data_folder, fold, news_pairs, plain, read_pairs, sample, words

TESTS = {"en-fr": "Hansards", "de-en": "RWTH"}
DRAWN, SEED = 400, 3  # news pairs, of which those of 3 to 50 pieces a side are kept


class Set(NamedTuple):
    """Sentence pairs with gold links between their words; their words, and those in pieces."""

    name: str
    words: list[tuple[list[str], list[str]]]
    source: list[WordParts]
    target: list[WordParts]
    gold: list[Gold]

    @classmethod
    def of(cls, name: str, languages: str, given: Sequence[tuple[Sequence[str], Sequence[str]]], gold: list[Gold]) -> Set:
        pair, both = LanguagePair.of(languages), [(list(e), list(f)) for e, f in given]
        source, target = [word_parts(e, pair.source) for e, _ in both], [word_parts(f, pair.target) for _, f in both]
        return cls(name, both, source, target, gold)


def example_set(languages: str) -> Set:
    chosen = examples(languages)
    return Set.of("examples", languages, [e[:2] for e in chosen], [Gold(e.links, e.links) for e in chosen])


def news_set(languages: str) -> Set:
    """News; the gold is that of `gold_pairs`: words that stand there once, with one translation present."""
    pair = LanguagePair.of(languages)
    dictionary = muse(pair).joined(muse(pair.reversed).inverse())
    drawn = [(words(fold(e)), words(fold(f))) for e, f in sample(news_pairs(languages), DRAWN, SEED)]
    sides = pair.source, pair.target
    parts = ([len(word_parts(*side).parts) for side in zip(both, sides, strict=True)] for both in drawn)
    kept = [both for both, sizes in zip(drawn, parts, strict=True) if all(3 <= size <= 50 for size in sizes)]
    found = [frozenset(gold_pairs([plain(w) for w in e], [plain(w) for w in f], dictionary)) for e, f in kept]
    return Set.of("news", languages, kept, [Gold(links, links) for links in found])


def gold_set(languages: str) -> Set:
    folder = data_folder() / "gold_alignments" / {"en-fr": "hansards_en-fr", "de-en": "rwth_de-en"}[languages]
    if languages == "en-fr":
        pairs, links = read_pairs(folder / "test.en-fr.src-tgt"), "test.en-fr.talp"
    else:
        pairs, links = read_pairs(folder / "de", folder / "en"), "alignmentDeEn.talp"
    both = [(pair.source.split(), pair.target.split()) for pair in pairs]
    return Set.of(TESTS[languages], languages, both, read_gold(folder / links, one_based=True)[: len(both)])


def news_aer(found: Sequence[Links], gold: Sequence[Gold]) -> float:
    """AER where the gold has some of the links only: of an answer, links count of which a word is in a gold link.

    With G the gold and A' those links, it is 1 − 2 |A' ∩ G| / (|A'| + |G|): a gold word linked to another word is a mistake,
    a link between two words the dictionary says nothing of is none.
    """
    touching = []
    for answer, (sure, _) in zip(found, gold, strict=True):
        left, right = {i for i, _ in sure}, {j for _, j in sure}
        touching.append(frozenset((i, j) for i, j in answer if i in left or j in right))
    return score_links(touching, gold).aer


def chooser(examples_found: Sequence[Links], news_found: Sequence[Links], sets: Sequence[Set]) -> tuple[float, float]:
    """The AER on the examples and that on news; the lower their sum, the better."""
    return score_links(examples_found, sets[0].gold).aer, news_aer(news_found, sets[1].gold)


def word_links(links: Iterable[Link], source: WordParts, target: WordParts) -> Links:
    """Links of words from links of their pieces."""
    return frozenset((source.owner[i], target.owner[j]) for i, j in links)
