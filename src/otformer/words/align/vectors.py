"""Word vectors: files of them, and the vectors of any words, known or made of what is known of them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice
from pathlib import Path

import numpy as np

from otformer import checks
from otformer.array_files import Array, read_npz
from otformer.files import write_npz
from otformer.words.text.text import plain, read_lines

MOST_LETTERS = 100  # of a word that are compared with those of another


def as_unit(matrix: Array) -> Array:
    """Rows divided by their lengths; rows of zeros stay."""
    length = np.linalg.norm(matrix, axis=-1, keepdims=True)
    return matrix / np.where(length > 0, length, 1)


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words, the most frequent first, and their vectors, rows of ``matrix`` [words, d].

    >>> v = WordVectors(("chat", "noir"), np.eye(2))
    >>> "Chat" in v, v.rows(["NOIR", "chien"])
    (True, [1, None])
    """

    words: tuple[str, ...]
    matrix: Array

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or len(self.matrix) != len(self.words):
            raise checks.ArgumentError("matrix", f"have a row for each of {len(self.words)} words", self.matrix.shape)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def dim(self) -> int:
        return int(self.matrix.shape[1])

    @cached_property
    def _index(self) -> tuple[dict[str, int], dict[str, int]]:
        """Rows of words as they are, and of folded words: the first, most frequent one where several fold alike."""
        last_first = list(enumerate(self.words))[::-1]
        return {word: k for k, word in last_first}, {plain(word): k for k, word in last_first}

    def row(self, word: str) -> int | None:
        """The row of a word: as it is written, else with folded case and punctuation; None where there is none."""
        exact, folded = self._index
        return exact.get(word, folded.get(plain(word)))

    def rows(self, words: Iterable[str]) -> list[int | None]:
        return [self.row(word) for word in words]

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.row(word) is not None

    def embed(self, words: Sequence[str]) -> Array:
        """Unit vectors [len(words), d], float64, of any words; an unknown word is made of what is known of it (`_pieces`).

        Without known pieces it is the sum of random vectors of the 3- and 4-grams of its first MOST_LETTERS letters, each
        drawn from its checksum: words that are spelled alike, as names in two languages are, have similar vectors.
        """
        return np.array([self._embed_one(word) for word in words]).reshape(-1, self.dim)

    def _embed_one(self, word: str) -> Array:
        row = self.row(word)
        vector = self.matrix[self._pieces(plain(word)) if row is None else [row]].astype(np.float64).sum(0)
        return as_unit(vector if vector.any() else _letters(plain(word), self.dim))

    def _pieces(self, word: str) -> list[int]:
        """Rows of an unknown word's parts (par-dessus, don't), else of the two words of a compound (Asyl-antrag, each of
        four letters or more, perhaps an s between), else of the first word alike but for three letters at its end."""
        known = self._index[1]
        parts = [row for part in re.findall(r"\w+'?", word) if (row := known.get(part)) is not None]
        if parts:
            return parts
        ends = range(max(4, len(word) - self._longest), min(len(word) - 3, self._longest + 2))  # both parts are known words
        firsts = [word[:k] if k == 4 or word[:k] in known else word[:k].removesuffix("s") for k in ends]
        both = [(first, word[k:]) for k, first in zip(ends, firsts, strict=True)]
        compounds = [[known[first], known[second]] for first, second in both if first in known and second in known]
        if compounds:
            return min(compounds, key=max)
        stem = word[: max(5, len(word) - 3)]
        near = (other for other in self._stems.get(stem[:5], []) if other.startswith(stem) and len(other) <= len(word) + 3)
        alike = [known[other] for other in near] if len(word) > 5 else []
        return [min(alike)] if alike else []

    @cached_property
    def _longest(self) -> int:
        """Letters of the longest known word."""
        return max(map(len, self._index[1]), default=0)

    @cached_property
    def _stems(self) -> dict[str, list[str]]:
        """Words of at least five letters, by their first five."""
        long = sorted(word for word in self._index[1] if len(word) >= 5)
        return {stem: list(words) for stem, words in groupby(long, key=lambda word: word[:5])}


def _letters(word: str, dim: int) -> Array:
    marked = f"<{word[:MOST_LETTERS]}>"
    grams = [marked[i : i + n] for n in (3, 4) for i in range(max(1, len(marked) - n + 1))]
    return np.sum([np.random.default_rng(zlib.crc32(gram.encode())).standard_normal(dim) for gram in grams], axis=0)


def read_vectors(file: str | Path, language: str | None = None, limit: int | None = None) -> WordVectors:
    """Word vectors of a ``.vec`` text file, plain or gz (``word number number …`` per line, a first line of two numbers is
    passed over), or of an npz: ``words`` with ``vecs``, or with ``table`` and ``row``; an npz of two languages has
    ``en_words`` and ``en_vecs``, and ``language`` says which. limit: read so many words, the most frequent, and no more.
    """
    limit = None if limit is None else checks.count("limit", limit)
    if Path(file).suffix == ".npz":
        return _read_npz(Path(file), language, limit)
    words: list[str] = []
    rows: list[Array] = []
    for number, line in enumerate(islice(read_lines(file), None if limit is None else limit + 1), 1):
        fields = line.rstrip().split(" ")
        if number == 1 and len(fields) == 2:
            continue
        try:
            row = np.array(fields[1:], dtype=np.float32)
        except ValueError:
            row = np.empty(0, dtype=np.float32)
        if not len(row) or (rows and len(row) != len(rows[0])):
            expected = f"{len(rows[0])} numbers" if rows else "numbers"
            raise checks.ArgumentError(f"{file} line {number}", f"hold a word and {expected}", repr(line[:60]))
        words.append(fields[0])
        rows.append(row)
    if not rows:
        raise ValueError(f"{file} holds no vectors")
    return WordVectors(tuple(words[:limit]), np.stack(rows[:limit]))


def _read_npz(file: Path, language: str | None, limit: int | None) -> WordVectors:
    arrays = read_npz(file)
    first = f"{language}_" if f"{language}_words" in arrays else ""
    words, matrix = arrays.get(f"{first}words"), arrays.get(f"{first}vecs")
    if matrix is None and words is not None and "table" in arrays and "row" in arrays:
        matrix = arrays["table"][arrays["row"]]
    if words is None or matrix is None:
        wanted = f"{language}_words and {language}_vecs" if language else "words and vecs (or name a language)"
        raise checks.ArgumentError(file, f"hold {wanted}", ", ".join(arrays) or "nothing")
    names = words.tobytes().decode().split("\n") if words.dtype == np.uint8 else words.tolist()
    return WordVectors(tuple(names[:limit]), matrix[:limit].astype(np.float32))


def write_npz_vectors(file: str | Path, languages: Mapping[str, WordVectors], dtype: str = "float16") -> None:
    """One npz of several languages that `read_vectors` reads; dtype "float32", "float16", or "int8", which keeps directions
    only: every row is scaled to its largest entry, 127."""
    checks.choice("dtype", dtype, ("float32", "float16", "int8"))
    arrays: dict[str, Array] = {}
    for language, vectors in languages.items():
        matrix = vectors.matrix
        if dtype == "int8":
            top = np.abs(matrix).max(1, keepdims=True)
            matrix = np.rint(127 * matrix / np.where(top > 0, top, 1))
        # Text as bytes: numpy's own strings would take four bytes per letter, and the longest word's length for all.
        arrays[f"{language}_words"] = np.frombuffer("\n".join(vectors.words).encode(), dtype=np.uint8)
        arrays[f"{language}_vecs"] = matrix.astype(dtype)
    write_npz(Path(file), **arrays)
