"""The ways to align that the package has, by name: `method`.

A method is made for a language pair, ``en-fr`` or ``fr-en`` say, source first. It gives scores [m, n] for the words of
sentence pairs, rows being the target's words, and links for scores.

    hmm         the two directions of the package's alignment models (words/align/hmm), joined by transport
    attention   those, averaged with what one head of the package's translator attends to (words/align/attention_head.py)
    vectors     transport on the package's bilingual vectors (words/align/bilingual.py)

docs/alignment.md says how their settings were chosen and what they reach. attention makes the fewest errors; it needs
the package transformers, and is slower. auto is hmm, so that a text is aligned alike wherever the package is
installed. In ``vectors``, the letters of two words of which one has no vector count too (`spelling_similarity`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from otformer import checks
from otformer.words.align.aligners import Aligner, Array, Links, join, links, similarity
from otformer.words.align.attention_head import AttentionHead, per_source_word
from otformer.words.align.hmm.file import read_models
from otformer.words.align.hmm.model import AlignmentModel
from otformer.words.align.hmm.word_parts import WordParts, dice, letter_pairs, parts_to_words, whole_words, word_parts
from otformer.words.align.vectors import WordVectors, read_vectors
from otformer.words.models.models import library
from otformer.words.models.shipped import shipped_folder
from otformer.words.text.languages import LanguagePair
from otformer.words.text.sizes import MOST_SCORES
from otformer.words.text.text import plain

Sentence = Sequence[str]  # its words
# The lowest mean AER on the examples, 10.1 % en-fr and 9.3 % de-en, of 315 settings of transport, unbalanced and null.
VECTORS_ALIGNER = Aligner("null", "grow-diag", threshold=0.2, diagonal=0.8, reg=0.3, null=1.5)
HMM_JOIN = {"en-fr": (5.0, 0.4), "de-en": (5.0, 0.5)}  # null and threshold of `Hmm`, chosen as docs/alignment.md says
ATTENTION_JOIN = (1.5, 0.2)  # null and threshold of `Attention`, chosen likewise
MOST_CELLS = 2 * MOST_SCORES  # parts of one sentence times those of the other, for which there is memory
HEADS = {"en-fr": (2, 6), "de-en": (2, 7)}  # layer and head of the translator that `Attention` reads, counted from 1


class Method(Protocol):
    """A way to align."""

    def scores(self, pairs: Sequence[tuple[Sentence, Sentence]]) -> list[Array]:
        """Scores [m, n] for the words of every pair, n of the source and m of the target."""
        ...

    def links(self, scores: Array) -> Links:
        """The links (i, j) of one matrix of scores."""
        ...


@dataclass(frozen=True)
class Hmm:
    """The mean of alignment models' posteriors, both directions joined by transport with a null word.

    languages : those of the models, source first; ``exchanged``: pairs have the other one first.
    null, threshold : the cost of no partner in `join`, and what a link's score must be above.
    """

    models: Sequence[AlignmentModel]
    languages: LanguagePair
    null: float = 2.0
    threshold: float = 0.3
    exchanged: bool = False

    @classmethod
    def shipped(cls, languages: LanguagePair) -> Hmm:
        """The method with the package's models of a language pair, which serve both its directions."""
        with _data(f"hmm.{languages.stored}.npz") as file:
            return cls(read_models(file), languages.stored, *HMM_JOIN[str(languages.stored)], languages.exchanged)

    def scores(self, pairs: Sequence[tuple[Sentence, Sentence]]) -> list[Array]:
        A, B = self.directions([pair[::-1] if self.exchanged else pair for pair in pairs])
        plans = join(A, [b.T for b in B], self.null)
        return [P.T if self.exchanged else P for P in plans]

    def directions(self, pairs: Sequence[tuple[Sentence, Sentence]]) -> list[list[Array]]:
        """What is joined: A and B, [m, n] for every pair, the mean over the models; languages are in the models' order."""
        parts = [_parts(e, f, self.languages) for e, f in pairs]
        found = [model.posteriors([(e.parts, f.parts) for e, f in parts]) for model in self.models]
        return [
            [parts_to_words(np.mean(same, axis=0), *both) for *same, both in zip(*models, parts, strict=True)]
            for models in zip(*found, strict=True)
        ]

    def links(self, scores: Array) -> Links:
        return links(scores, "threshold", self.threshold)


def _parts(source: Sentence, target: Sentence, languages: LanguagePair) -> tuple[WordParts, WordParts]:
    """The parts of both sentences; whole words where there would be no memory for parts (words of a thousand hyphens)."""
    e, f = word_parts(source, languages.source), word_parts(target, languages.target)
    if len(e.parts) * len(f.parts) <= MOST_CELLS:
        return e, f
    return whole_words(source), whole_words(target)


@dataclass(frozen=True)
class Attention(Hmm):
    """The mean of those posteriors and of a head's attention, joined likewise.

    The head attends from target to source only; for the other direction it is scaled to sum to one over target words. A word
    that the translator does not see has its posteriors alone. The translator is always the package's own.
    """

    head: AttentionHead = field(kw_only=True)

    @classmethod
    def shipped(cls, languages: LanguagePair) -> Attention:
        """The method with the package's models; the translator of a language pair serves both its directions."""
        stored = str(languages.stored)
        head = AttentionHead.of(shipped_folder() / stored, *HEADS[stored])
        return cls(Hmm.shipped(languages).models, languages.stored, *ATTENTION_JOIN, languages.exchanged, head=head)

    def directions(self, pairs: Sequence[tuple[Sentence, Sentence]]) -> list[list[Array]]:
        found = self.head.attention(pairs)
        both = zip(super().directions(pairs), (found, map(per_source_word, found)), (1, 0), strict=True)
        return [[_mean(p, a, axis) for p, a in zip(p_all, a_all, strict=True)] for p_all, a_all, axis in both]


def _mean(posterior: Array, attention: Array, axis: int) -> Array:
    """The mean of both, where attention over the words that are seen has the share that these have of the posterior."""
    unseen = np.isnan(attention)
    total = np.maximum(posterior.sum(axis, keepdims=True), 1e-12)
    share = 1 - np.where(unseen, posterior, 0).sum(axis, keepdims=True) / total
    return np.where(unseen, posterior, (posterior + np.nan_to_num(attention) * share) / 2)


@dataclass(frozen=True)
class Vectors:
    """Transport with a null word on static vectors of two languages in one space."""

    source: WordVectors
    target: WordVectors
    aligner: Aligner = VECTORS_ALIGNER

    @classmethod
    def shipped(cls, languages: str | LanguagePair) -> Vectors:
        """The method with the package's vectors of a language pair, which serve both its directions."""
        pair = LanguagePair.of(languages)
        with _data(f"vectors.{pair.stored}.npz") as file:
            return cls(read_vectors(file, pair.source), read_vectors(file, pair.target))

    def scores(self, pairs: Sequence[tuple[Sentence, Sentence]]) -> list[Array]:
        return self.aligner.scores(self._similarity(source, target) for source, target in pairs)

    def links(self, scores: Array) -> Links:
        return links(scores, self.aligner.rule, self.aligner.threshold)

    def _similarity(self, source: Sentence, target: Sentence) -> Array:
        S = similarity(self.source.embed(source), self.target.embed(target))
        known = np.logical_and.outer([word in self.target for word in target], [word in self.source for word in source])
        left, right = list(map(Spelling.of, source)), list(map(Spelling.of, target))
        for j, i in zip(*map(np.ndarray.tolist, np.nonzero(~known)), strict=True):
            S[j, i] = spelling_similarity(left[i], right[j], float(S[j, i]))
        return S


class Spelling(NamedTuple):
    """The spelling features of a word."""

    plain: str
    kind: str
    pairs: frozenset[str]

    @classmethod
    def of(cls, word: str) -> Spelling:
        """The folded word, whether it is a number, a word or a mark, and its pairs of letters."""
        folded = plain(word)
        kind = "number" if any(map(str.isdigit, folded)) else "word" if any(map(str.isalpha, folded)) else "mark"
        return cls(folded, kind, letter_pairs(folded))


def spelling_similarity(source: Spelling, target: Spelling, similarity: float) -> float:
    """Return the similarity of two words by their spelling, for use where one has no vector.

    Numbers are alike if their digits are; two different marks are half alike, a mark and another kind are not. Words are as
    similar as their letters (`dice`) or as given, whichever is more.

    >>> pairs = ("1,000", "1.000"), ("!", "?"), ("Strasbourg", "Straßburg")
    >>> [round(spelling_similarity(*map(Spelling.of, pair), 0.1), 2) for pair in pairs]
    [1.0, 0.5, 0.82]
    """
    kinds = source.kind, target.kind
    if source.plain == target.plain:
        return 1.0
    if kinds[0] != kinds[1]:
        return min(similarity, 0.0) if "word" not in kinds or "mark" in kinds else similarity
    if kinds[0] == "number":
        return float([*filter(str.isalnum, source.plain)] == [*filter(str.isalnum, target.plain)])
    return 0.5 if kinds[0] == "mark" else max(similarity, dice(source.pairs, target.pairs))


def _data(name: str) -> AbstractContextManager[Path]:
    return as_file(files("otformer.words").joinpath("data", name))


METHODS: dict[str, Callable[[LanguagePair], Method]] = {
    "hmm": Hmm.shipped,
    "attention": Attention.shipped,
    "vectors": Vectors.shipped,
}


def resolved(name: str) -> str:
    """The name of a method; "auto" is hmm."""
    return "hmm" if checks.choice("method", name, ("auto", *METHODS)) == "auto" else name


def method(name: str = "auto", languages: str | LanguagePair = "en-fr") -> Method:
    """The method of this name for a language pair, source first.

    >>> method("vectors", "en-fr").scores([(["the", "cat"], ["le", "chat"])])[0].round(1).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return METHODS[resolved(name)](LanguagePair.of(languages))


def check(name: str, languages: str) -> None:
    """Raise the ValueError that `method` would raise for these names, before anything is loaded."""
    if resolved(name) == "attention":
        library()
    LanguagePair.of(languages)
