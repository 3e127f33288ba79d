r"""Bilingual word vectors from parallel text alone: expected links between words, and their singular vectors.

**Links.** In a sentence pair, word i of the source and word j of the target are linked with the probability

    p_ij = s_ij / Σ_j' s_ij' · s_ij / Σ_i' s_i'j,      s_ij = S[e_i, f_j] · exp(−κ |(i + ½)/n − (j + ½)/m|),

that of i choosing j and j choosing i, so that a word with no partner is free to stay alone (agreement of Liang, Taskar and
Klein 2006). Summed over the corpus they are counts,

    Q[e, f] = Σ p_ij,      S ← Q / √(c_e c_f),      c: how often a word occurs,

and a few rounds, from counts of co-occurrence, explain frequent words away: le goes with the, not with every noun.

**Vectors.** With the last Q, M = Q / (c_e c_f)^α ≈ U diag(σ) Vᵀ by randomised subspace iteration (Halko, Martinsson and
Tropp 2011); the vectors are the unit rows of U diag(√σ) and V diag(√σ), so that x_e · y_f follows M[e, f].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otformer.errors import ArgumentError
from otformer.words.align.vectors import Array, WordVectors, as_unit
from otformer.words.text.training_text import TokenPair


@dataclass(frozen=True)
class VectorRecipe:
    """Everything that decides the vectors."""

    vocabulary: int = 20_000  # words per side, the most frequent
    least: int = 2  # occurrences a word must have
    longest: int = 30  # words of a sentence that is used
    rounds: int = 5
    diagonal: float = 3.0  # κ
    power: float = 0.45  # α
    dim: int = 300
    seed: int = 0


def train_vectors(pairs: Iterable[TokenPair], recipe: VectorRecipe | None = None) -> tuple[WordVectors, WordVectors]:
    """Vectors of the source's and of the target's words, unit rows in one space."""
    recipe = recipe or VectorRecipe()
    kept = [pair for pair in pairs if all(0 < len(side) <= recipe.longest for side in pair)]
    sides = [_Side.of([pair[k] for pair in kept], recipe) for k in (0, 1)]
    Q, rows, columns = expected_links(sides[0], sides[1], recipe.rounds, recipe.diagonal)
    c = sides[0].counts[rows] * sides[1].counts[columns]
    U, V = _singular_vectors(Q / c**recipe.power, rows, columns, sides, recipe)
    left, right = (WordVectors(tuple(side.vocabulary), as_unit(matrix)) for side, matrix in zip(sides, (U, V), strict=True))
    return left, right


@dataclass(frozen=True)
class _Side:
    """One language of the corpus: known words as numbers, sentence after sentence."""

    vocabulary: list[str]
    ids: Array  # [tokens]
    sentence: Array  # [tokens], which sentence a token is in
    place: Array  # [tokens], (i + ½)/n
    lengths: Array  # [sentences], known words
    counts: Array  # [vocabulary]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[str]], recipe: VectorRecipe) -> _Side:
        seen = Counter(word for sentence in sentences for word in sentence)
        order = sorted((-n, word) for word, n in seen.items() if n >= recipe.least)[: recipe.vocabulary]
        if not order:
            raise ArgumentError("pairs", f"hold words that occur at least {recipe.least} times", "none")
        vocabulary = [word for _, word in order]
        number = {word: k for k, word in enumerate(vocabulary)}
        total = np.array([len(sentence) for sentence in sentences])
        ids = np.array([number.get(word, -1) for sentence in sentences for word in sentence], dtype=np.int32)
        sentence = np.repeat(np.arange(len(sentences)), total)
        place = (np.arange(len(ids)) - np.repeat(total.cumsum() - total, total) + 0.5) / np.repeat(total, total)
        known = ids >= 0
        lengths = np.bincount(sentence[known], minlength=len(sentences))
        counts = np.bincount(ids[known], minlength=len(vocabulary)).astype(np.float64)
        return cls(vocabulary, ids[known], sentence[known], place[known], lengths, counts)


def expected_links(source: _Side, target: _Side, rounds: int, diagonal: float) -> tuple[Array, Array, Array]:
    """(Q, source words, target words): the expected number of links of every two words that occur together."""
    # Every source token meets every target token of its sentence: places [links] in the two lists of tokens.
    partners = target.lengths[source.sentence]
    left = np.repeat(np.arange(len(source.ids), dtype=np.int32), partners)
    first = (target.lengths.cumsum() - target.lengths)[source.sentence] - (partners.cumsum() - partners)
    right = (np.arange(len(left)) + np.repeat(first, partners)).astype(np.int32)
    keys = source.ids[left].astype(np.int64) * len(target.vocabulary) + target.ids[right]
    kinds, kind = np.unique(keys, return_inverse=True)
    rows, columns = np.divmod(kinds, len(target.vocabulary))
    near = np.exp(-diagonal * np.abs(source.place[left] - target.place[right])).astype(np.float32)
    expected = np.sqrt(source.counts[rows] * target.counts[columns])
    Q = np.bincount(kind, near / np.sqrt(partners[left] * source.lengths[source.sentence[left]]))
    for _ in range(rounds):
        s = (Q / expected)[kind] * near
        chosen = np.bincount(left, s, len(source.ids))[left] * np.bincount(right, s, len(target.ids))[right]
        Q = np.bincount(kind, s * s / np.maximum(chosen, 1e-300))
    return Q, rows, columns


def _singular_vectors(
    values: Array, rows: Array, columns: Array, sides: Sequence[_Side], recipe: VectorRecipe
) -> tuple[Array, Array]:
    """U √σ and V √σ of the sparse matrix with these values, the ``dim`` largest σ."""
    from scipy.sparse import csr_matrix

    shape = len(sides[0].vocabulary), len(sides[1].vocabulary)
    M: Any = csr_matrix((values.astype(np.float32), (rows, columns)), shape=shape)
    M.data[M.data < 1e-4] = 0
    M.eliminate_zeros()
    dim = min(recipe.dim, *shape)
    Y = np.random.default_rng(recipe.seed).standard_normal((shape[1], min(dim + 20, *shape))).astype(np.float32)
    for _ in range(3):
        X, _ = np.linalg.qr(M @ Y)
        Y = M.T @ X
    V, sigma, Ut = np.linalg.svd(Y, full_matrices=False)
    root = np.sqrt(sigma[:dim])
    return (X @ Ut.T)[:, :dim] * root, V[:, :dim] * root
