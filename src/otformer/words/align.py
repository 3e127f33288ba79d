"""Word alignment out of the box: `align` links the words of sentence pairs, by a method of `METHODS`.

A method is made for a language pair, ``en-fr`` or ``fr-en`` say, source first. It gives scores [m, n] for the words of
sentence pairs, rows the target's words, and links for scores. ``vectors`` is transport on the package's bilingual vectors
(words/bilingual.py); its settings are the best on the shipped examples.

A word may have no vector, or one made of its parts (`WordVectors.embed`). What it looks like then counts too: for every two
words of which one is unknown the similarity is at least that of their spelling; numbers and punctuation keep to their like.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import as_file, files
from typing import Any, Protocol

import numpy as np

from otformer import __version__, checks
from otformer.words.aligners import Aligner, Array, Links, links, similarity
from otformer.words.engine import Work
from otformer.words.text import Pair, parse_pairs, words
from otformer.words.vectors import WordVectors, plain, read_vectors

LANGUAGES = ("en-fr", "fr-en", "de-en", "en-de")
Sentence = Sequence[str]  # its words
# The lowest mean AER on the examples, 10.1 % en-fr and 9.3 % de-en, of 315 settings of transport, unbalanced and null.
SETTINGS = Aligner("null", "grow-diag", threshold=0.2, diagonal=0.8, reg=0.3, null=1.5)


class Method(Protocol):
    """A way to align."""

    def scores(self, pairs: Sequence[tuple[Sentence, Sentence]]) -> list[Array]:
        """Scores [m, n] for the words of every pair, n of the source and m of the target."""
        ...

    def links(self, scores: Array) -> Links:
        """The links (i, j) of one matrix of scores."""
        ...


@dataclass(frozen=True)
class Vectors:
    """Transport with a null word on static vectors of two languages in one space."""

    source: WordVectors
    target: WordVectors
    aligner: Aligner = field(default_factory=lambda: SETTINGS)

    @classmethod
    def shipped(cls, languages: str) -> Vectors:
        """With the package's vectors of a language pair, which serve both its directions."""
        source, target = checks.choice("languages", languages, LANGUAGES).split("-")
        stored = languages if languages in ("en-fr", "de-en") else f"{target}-{source}"
        with as_file(files("otformer.words").joinpath("data", f"vectors.{stored}.npz")) as file:
            return cls(read_vectors(file, source), read_vectors(file, target))

    def scores(self, pairs: Sequence[tuple[Sentence, Sentence]]) -> list[Array]:
        return self.aligner.scores(self._similarity(source, target) for source, target in pairs)

    def links(self, scores: Array) -> Links:
        return links(scores, self.aligner.rule, self.aligner.threshold)

    def _similarity(self, source: Sentence, target: Sentence) -> Array:
        S = similarity(self.source.embed(source), self.target.embed(target))
        known = [word in self.source for word in source]
        for j, other in enumerate(target):
            sure = other in self.target
            for i, word in enumerate(source):
                if not (sure and known[i]):
                    S[j, i] = look(word, other, float(S[j, i]))
        return S


def look(source: str, target: str, similarity: float) -> float:
    """The similarity of two words, at least one without a vector, after a look at their letters.

    Numbers are alike if their digits are; two different marks are half alike, a mark and a word or number are not. Words are
    as similar as their letters (`spelling`) or as was said before, whichever is more.

    >>> look("1,000", "1.000", 0.0), look("1998", "1999", 0.5), look("!", "?", 0.2), look("!", "Paris", 0.2)
    (1.0, 0.0, 0.5, 0.0)
    >>> look("Strasbourg", "Straßburg", 0.1) > 0.6
    True
    """
    source, target = plain(source), plain(target)
    kinds = _kind(source), _kind(target)
    if source == target:
        return 1.0
    if kinds[0] != kinds[1]:
        return min(similarity, 0.0) if "word" not in kinds or "mark" in kinds else similarity
    if kinds[0] == "number":
        return float(_digits(source) == _digits(target))
    return 0.5 if kinds[0] == "mark" else max(similarity, spelling(source, target))


def _kind(word: str) -> str:
    return "number" if any(c.isdigit() for c in word) else "word" if any(c.isalpha() for c in word) else "mark"


def _digits(word: str) -> str:
    return "".join(c for c in word if c.isalnum())


def spelling(source: str, target: str) -> float:
    """2 |common| / (|a| + |b|) of the letter pairs of two words, the ends of the words among the letters (Dice).

    >>> round(spelling("house", "haus"), 2), spelling("dog", "chien")
    (0.36, 0.0)
    """
    a, b = ({word[k : k + 2] for k in range(len(word) - 1)} for word in (f"<{source}>", f"<{target}>"))
    return 2 * len(a & b) / (len(a) + len(b))


METHODS: dict[str, Callable[[str], Method]] = {"vectors": Vectors.shipped}
BEST = "vectors"  # what "auto" is


def method(name: str = "auto", languages: str = "en-fr") -> Method:
    """The method of this name for a language pair, source first; "auto" is the best that is there.

    >>> method("vectors", "en-fr").scores([(["the", "cat"], ["le", "chat"])])[0].round(1).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    checks.choice("method", name, ("auto", *METHODS))
    checks.choice("languages", languages, LANGUAGES)
    return METHODS[BEST if name == "auto" else name](languages)


def align(
    pairs: Iterable[Pair | tuple[str, str] | str], languages: str = "en-fr", method: str = "auto", by: str = "words"
) -> list[Links]:
    """Links (i, j) of every sentence pair, source word i with target word j; empty sentences have none.

    pairs : (source, target), or ``source ||| target``.   by : what a word is, see `word_spans`.

    >>> [sorted(links) for links in align(["The black cat sleeps ||| Le chat noir dort", ""])]
    [[(0, 0), (1, 2), (2, 1), (3, 3)], []]
    """
    given = [next(parse_pairs([pair], "pairs")) if isinstance(pair, str) else Pair(*pair) for pair in pairs]
    chosen = _named(method, languages)
    return [chosen.links(scores) for scores in chosen.scores([(words(e, by), words(f, by)) for e, f in given])]


_named = method


@dataclass(frozen=True)
class Aligned:
    """What an aligner says of a sentence pair: words, links with their scores, and all scores [m, n] where asked for."""

    source: list[str]
    target: list[str]
    links: list[tuple[int, int, float]]
    matrix: list[list[float]] | None = None

    def pharaoh(self, scores: bool = False) -> str:
        """``i-j`` or ``i-j:0.87`` for every link.

        >>> Aligned(["a"], ["b"], [(0, 0, 0.871)]).pharaoh(scores=True)
        '0-0:0.87'
        """
        return " ".join(f"{i}-{j}:{score:.2f}" if scores else f"{i}-{j}" for i, j, score in self.links)

    def line(self, form: str = "pharaoh", scores: bool = False) -> str:
        """``i-j …``, with the words before it (form "tokens"), or a JSON object (form "json")."""
        if form == "json":
            links, weights = [[i, j] for i, j, _ in self.links], [score for *_, score in self.links]
            given = {"source": self.source, "target": self.target, "links": links, "scores": weights}
            return json.dumps(given, ensure_ascii=False)
        words = f"{' '.join(self.source)} ||| {' '.join(self.target)} ||| " if form == "tokens" else ""
        return words + self.pharaoh(scores)

    def table(self) -> list[str]:
        """A line for every source word: the target words it is linked to, with scores; then those without a link.

        >>> Aligned(["the", "cat"], ["chat"], [(1, 0, 0.99)]).table()
        ['the  –', 'cat  chat 0.99']
        """
        wide = max(map(len, self.source), default=1)
        lines = []
        for i, word in enumerate(self.source):
            partners = [f"{self.target[j]} {score:.2f}" for k, j, score in self.links if k == i]
            lines.append(f"{word:<{wide}}  {', '.join(partners) or '–'}")
        alone = sorted(set(range(len(self.target))) - {j for _, j, _ in self.links})
        return lines + [f"{'–':<{wide}}  {self.target[j]}" for j in alone]

    def scores(self) -> Array:
        """All scores [m, n]."""
        return np.array(self.matrix, dtype=np.float64).reshape(len(self.target), len(self.source))

    def grid(self) -> list[str]:
        """All scores as text: a row for every target word, a column for every source word."""
        left, wide = max(map(len, self.target), default=0), [max(4, len(word)) for word in self.source]
        head = " " * left + "".join(f"  {word:>{width}}" for word, width in zip(self.source, wide, strict=True))
        rows = zip(self.target, self.scores().tolist(), strict=True)
        return [head] + [
            f"{word:<{left}}" + "".join(f"  {score:>{width}.2f}" for score, width in zip(row, wide, strict=True))
            for word, row in rows
        ]


@dataclass(frozen=True)
class AlignWork:
    """`align` as work for an engine (words/engine.py): a JSON line for every pair, which `read_aligned` reads."""

    languages: str = "en-fr"
    method: str = "auto"
    by: str = "words"
    matrix: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the lines, for `Job`."""
        return {**asdict(self), "method": BEST if self.method == "auto" else self.method, "version": __version__}

    def __call__(self) -> Work:
        chosen = method(self.method, self.languages)
        return lambda pairs: "".join(line + "\n" for line in self._lines(chosen, pairs)).encode()

    def _lines(self, chosen: Method, pairs: Sequence[Pair]) -> Iterable[str]:
        split = [(words(source, self.by), words(target, self.by)) for source, target in pairs]
        for (source, target), P in zip(split, chosen.scores(split), strict=True):
            found = [(i, j, round(float(P[j, i]), 4)) for i, j in sorted(chosen.links(P))]
            record: dict[str, Any] = {"source": source, "target": target, "links": found}
            if self.matrix:
                record["matrix"] = np.round(P, 6).tolist()
            yield json.dumps(record)


def read_aligned(data: bytes) -> list[Aligned]:
    """The pairs of a chunk that `AlignWork` made."""
    records = map(json.loads, data.splitlines())
    return [Aligned(r["source"], r["target"], [tuple(link) for link in r["links"]], r.get("matrix")) for r in records]
