"""Word alignment out of the box: `align` links the words of sentence pairs by a method of words/align/methods.py.

`AlignWork` does the same for a corpus, in chunks (jobs/jobs.py), and `Aligned` writes it down.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from otformer import __version__
from otformer.jobs.jobs import Work
from otformer.words.align.aligners import Array, Links
from otformer.words.align.methods import AUTO, Method, Vectors, method
from otformer.words.text.text import Pair, parse_pairs, words

__all__ = ["AlignWork", "Aligned", "Vectors", "align", "method", "read_aligned"]
_named = method  # `align` has an argument of that name


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
    """`align` as work for an engine (jobs/jobs.py): a JSON line for every pair, which `read_aligned` reads."""

    languages: str = "en-fr"
    method: str = "auto"
    by: str = "words"
    matrix: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the lines, for `Job`."""
        return {**asdict(self), "method": AUTO if self.method == "auto" else self.method, "version": __version__}

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
