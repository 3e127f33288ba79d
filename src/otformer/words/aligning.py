"""Word alignment out of the box: `align` links the words of sentence pairs, and `AlignWork` those of a corpus, in chunks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from otformer._version import __version__
from otformer.errors import ArgumentError
from otformer.show.card import Card, Shown
from otformer.show.coarse import blocks
from otformer.show.heat import Heat
from otformer.show.links import Links
from otformer.show.look import printable
from otformer.words.align import methods
from otformer.words.align.aligners import Array
from otformer.words.align.confidence import Linker, check, curve, trained_curve
from otformer.words.align.filtering import coverage
from otformer.words.align.own_folder import OwnAligner, digest, load_aligner
from otformer.words.jobs.jobs import Job, Work
from otformer.words.text.gold import Link, grid, naacl, pharaoh
from otformer.words.text.languages import LANGUAGES, LanguagePair, two_codes
from otformer.words.text.sizes import MOST_SCORES, MOST_WORDS, check_size, grouped
from otformer.words.text.text import Given, Pair, as_pair, words

Model = OwnAligner | str | Path
MOST_AT_ONCE = 4 * MOST_SCORES  # scores of the pairs that are aligned together: a chunk of ordinary sentences fits


class Alignment(frozenset[Link], Shown):
    """The links (i, j) of a sentence pair, source word i with target word j: a frozenset that knows its words and scores.

    scores : the probability of every link that it is right (words/align/confidence.py), in the order of the links.
    source_words, target_words : the words that i and j count, from 0.
    matrix : the shares of words that go to others, [m, n] in float32, target words in rows; None where they were not kept.
    coverage : how far the sentences are translations, 0 to 1 (words/align/filtering.py).

    >>> found = Alignment({(0, 1): 0.9, (1, 0): 0.8}, ["black", "cat"], ["chat", "noir"])
    >>> found == {(0, 1), (1, 0)}, str(found), found.words
    (True, '0-1 1-0', [('black', 'noir'), ('cat', 'chat')])
    """

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    scores: dict[Link, float]
    matrix: Array | None
    coverage: float | None

    def __new__(
        cls,
        scores: Mapping[Link, float],
        source_words: Iterable[str],
        target_words: Iterable[str],
        matrix: Any = None,
        coverage: float | None = None,
    ) -> Alignment:
        made = super().__new__(cls, scores)
        made.scores = {link: scores[link] for link in sorted(scores)}
        made.source_words, made.target_words = tuple(source_words), tuple(target_words)
        made.matrix, made.coverage = matrix, coverage
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Alignment, (self.scores, self.source_words, self.target_words, self.matrix, self.coverage)

    @property
    def words(self) -> list[tuple[str, str]]:
        """The linked words, in the order of the source."""
        return [(self.source_words[i], self.target_words[j]) for i, j in self.scores]

    def __repr__(self) -> str:
        return f"Alignment({', '.join(f'{e}–{f}' for e, f in self.words)})"

    def __str__(self) -> str:
        return pharaoh(self)

    def line(self, form: str = "pharaoh", scores: bool = False, number: int = 1) -> str:
        """``i-j …`` or ``i-j:0.87 …``, with the words before it (form "tokens"), or a JSON object (form "json").

        With form "naacl" a line for each link of this pair ``number``, from 1 (`text.gold.naacl`).
        """
        if form == "naacl":
            return naacl(number, self.scores, scores)
        if form == "json":
            links = {"links": [*self.scores], "scores": [*self.scores.values()], "coverage": self.coverage}
            made = json.dumps({"source": self.source_words, "target": self.target_words} | links, ensure_ascii=False)
            return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in made)  # a terminal obeys U+009B
        sides = f"{' '.join(self.source_words)} ||| {' '.join(self.target_words)} ||| " if form == "tokens" else ""
        return sides + (" ".join(f"{i}-{j}:{x:.2f}" for (i, j), x in self.scores.items()) if scores else str(self))

    def table(self) -> list[str]:
        """A line per source word: the target words it is linked to, with scores; then target words without a link.

        Words are as a terminal may show them.

        >>> Alignment({(1, 0): 0.99}, ["the", "cat"], ["chat"]).table()
        ['the  –', 'cat  chat 0.99']
        """
        source, target = list(map(printable, self.source_words)), list(map(printable, self.target_words))
        wide = max(map(len, source), default=1)
        lines = []
        for i, word in enumerate(source):
            partners = [f"{target[j]} {score:.2f}" for (k, j), score in self.scores.items() if k == i]
            lines.append(f"{word:<{wide}}  {', '.join(partners) or '–'}")
        alone = sorted(set(range(len(target))) - {j for _, j in self})
        return lines + [f"{'–':<{wide}}  {target[j]}" for j in alone]

    def grid(self) -> list[str]:
        """All scores as text: a row per target word, a column per source word."""
        if self.matrix is None:
            raise ValueError("the matrix was not kept: only the links have scores")
        return grid(self.source_words, self.target_words, self.matrix)

    def plot(self, ax: Any = None) -> Any:
        """Draw the words in two columns and the links between them on axes of matplotlib, which are returned."""
        return self._plot(ax)

    def save(self, path: str | Path) -> None:
        """Write what a notebook shows as a page (.html), or what `plot` draws as a picture (.png, .svg, .pdf)."""
        self._save(path)

    def _card(self) -> Card:
        sides, n, m = (self.source_words, self.target_words), len(self.source_words), len(self.target_words)
        facts = {"words": f"{n} and {m}", "links": str(len(self))}
        links = Links(*sides, self.scores, "links")
        drawn = None if self.matrix is None else blocks(self.matrix.T)
        scores = [] if drawn is None else [Heat(drawn, "scores", (n, m), 1.0, ("source", "target"), sides)]
        return Card("Alignment", facts, [links, *scores])


@overload
def align(  # type: ignore[overload-overlap]
    pairs: str,
    languages: str = ...,
    method: str = ...,
    by: str | None = ...,
    *,
    model: Model | None = ...,
    threshold: float | None = ...,
    symmetrize: str | None = ...,
) -> Alignment: ...
@overload
def align(
    pairs: Iterable[Given],
    languages: str = ...,
    method: str = ...,
    by: str | None = ...,
    *,
    model: Model | None = ...,
    threshold: float | None = ...,
    symmetrize: str | None = ...,
) -> list[Alignment]: ...
def align(
    pairs: Iterable[Given] | str,
    languages: str = "en-fr",
    method: str = "auto",
    by: str | None = None,
    *,
    model: Model | None = None,
    threshold: float | None = None,
    symmetrize: str | None = None,
) -> Alignment | list[Alignment]:
    """Link the words of sentences to the words of their translations.

    Hidden Markov models of both directions give the probabilities A_ji that target word j translates source word i, and
    B_ij in the other direction. The scores are the entropic transport plan of the cost −½ log(A_ji B_ij), in which a null
    word on each side takes the words without a partner; links are the entries above a threshold (docs/alignment.md).

    Parameters
    ----------
    pairs : list of str or of (str, str), or one str
        ``source ||| target`` or (source, target); an empty sentence has no links.
    languages : str
        "en-fr", "fr-en", "de-en" or "en-de", source first.
    method : str
        "hmm" (also "auto"), "attention" (fewer errors; needs transformers) or "vectors".
    by : str, optional
        "words" splits plain text into words, "spaces" splits it at spaces (`word_spans`). None: as the model was trained,
        or "words".
    model : folder, or what `otformer.words.train` or `otformer.words.load_aligner` returned, optional
        An aligner trained on your own text, instead of ``languages`` and ``method``.
    threshold : float
        The least probability of a link; each method has its own default.
    symmetrize : str
        "source", "target", "intersection", "union", "grow-diag" or "grow-diag-final" of each word's best partner.

    Returns
    -------
    list of Alignment, or one Alignment for one str
        Sets of links (i, j), source word i and target word j counted from 0, with their words and probabilities.

    Examples
    --------
    >>> found = align("The black cat sleeps ||| Le chat noir dort")
    >>> found
    Alignment(The–Le, black–noir, cat–chat, sleeps–dort)
    >>> sorted(found), str(found)
    ([(0, 0), (1, 2), (2, 1), (3, 3)], '0-0 1-2 2-1 3-3')
    >>> [len(links) for links in align([("The cat", "Le chat"), ""])]
    [2, 0]
    >>> round(found.scores[1, 2], 2), str(align("He did not come ||| Il n'est pas venu", symmetrize="union"))
    (0.99, '0-0 1-1 1-2 2-3 3-4')

    References
    ----------
    Vogel, Ney and Tillmann, HMM-based word alignment in statistical translation, COLING 1996.
    Liang, Taskar and Klein, Alignment by agreement, NAACL 2006.
    """
    if not isinstance(languages, LanguagePair) and not two_codes(languages):
        advice = "it is the second argument; pairs are the first alone: [(source, target), …] or 'source ||| target'"
        raise ArgumentError("languages", f"be one of {', '.join(LANGUAGES)}", repr(languages), advice)
    LanguagePair.of(languages)
    listed = [pairs] if isinstance(pairs, str) else pairs
    if not isinstance(listed, Iterable):
        raise ArgumentError("pairs", "be a list of sentence pairs or one text", type(pairs).__name__)
    given = [as_pair(pair) for pair in listed]
    chosen = _linker(languages, method, model, threshold, symmetrize)
    by = by or (chosen.method.about.by if isinstance(chosen.method, OwnAligner) else "words")
    for number, pair in enumerate(given):
        check_length(pair, by, "pairs" if isinstance(pairs, str) else f"pairs[{number}]")
    found = _aligned(chosen, given, by)
    return found[0] if isinstance(pairs, str) else found


def own(model: Model) -> OwnAligner:
    """The aligner itself, or that of a folder."""
    if isinstance(model, OwnAligner):
        return model
    if not isinstance(model, str | Path):
        raise ArgumentError("model", "be a folder, or an aligner of otformer.words.train", type(model).__name__)
    return load_aligner(model)


def check_length(pair: Pair, by: str, name: str) -> None:
    """`check_size` of a pair; words are counted only where the letters are enough for too many."""
    letters = len(pair.source), len(pair.target)
    if letters[0] * letters[1] > MOST_SCORES or max(letters) > MOST_WORDS:
        check_size(len(words(pair.source, by)), len(words(pair.target, by)), name)


def _linker(languages: str, method: str, model: Model | None, threshold: float | None, symmetrize: str | None) -> Linker:
    check(threshold, symmetrize)
    if model is not None:
        aligner = own(model)
        return Linker(aligner, trained_curve(aligner.null), threshold, symmetrize)
    name = methods.resolved(method)
    return Linker(methods.method(name, languages), curve(name, languages), threshold, symmetrize)


def _aligned(chosen: Linker, pairs: Sequence[Pair], by: str, matrix: bool = True) -> list[Alignment]:
    found = []
    split = ((words(source, by), words(target, by)) for source, target in pairs)
    for some in grouped(split, lambda both: len(both[0]) * len(both[1]), MOST_AT_ONCE):
        for both, P in zip(some, chosen.method.scores(some), strict=True):
            p = chosen.curve.probability(P)
            scores = {(i, j): round(float(p[j, i]), 4) for i, j in chosen.links(P)}
            found.append(Alignment(scores, *both, P.astype("f4") if matrix else None, round(coverage(p, *both), 4)))
    return found


@dataclass(frozen=True)
class AlignWork:
    """`align` as work on a corpus (words/jobs/jobs.py): an `Alignment` per pair.

    matrix : whether they keep all scores.   model : the folder of an aligner.
    """

    languages: str = "en-fr"
    method: str = "auto"
    by: str = "words"
    matrix: bool = False
    threshold: float | None = None
    symmetrize: str | None = None
    model: str | None = None

    def job(self, **options: Any) -> Job:
        """The job of this work; options are those of `Job`: chunk, engine, workers."""
        settings = {**asdict(self), "method": methods.resolved(self.method), "version": __version__}
        settings["model"] = "" if self.model is None else digest(self.model)
        return Job(self, settings, pack=pack, unpack=unpack, **options)

    def __call__(self) -> Work:
        chosen = _linker(self.languages, self.method, self.model, self.threshold, self.symmetrize)
        return lambda pairs: _aligned(chosen, pairs, self.by, self.matrix)


def pack(found: Sequence[Alignment]) -> bytes:
    """A chunk as JSON: words, coverage, the matrix' bytes, where it is kept, in hexadecimal, and links with scores."""
    matrices = [None if a.matrix is None else a.matrix.tobytes().hex() for a in found]
    return json.dumps(
        [(a.source_words, a.target_words, a.coverage, P, [*a.scores.items()]) for a, P in zip(found, matrices, strict=True)]
    ).encode()


def unpack(data: bytes) -> list[Alignment]:
    """The value that `pack` was given."""

    def matrix(packed: str | None, *shape: int) -> Array | None:
        return None if packed is None else np.frombuffer(bytes.fromhex(packed), "f4").reshape(shape)

    return [
        Alignment({(i, j): score for (i, j), score in links}, e, f, matrix(packed, len(f), len(e)), covered)
        for e, f, covered, packed, links in json.loads(data)
    ]
