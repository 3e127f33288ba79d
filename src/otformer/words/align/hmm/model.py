r"""Word alignment models of the IBM family, both directions, by EM on parallel text alone.

**Model.** Each target word f_j is said by one source word, of place a_j, or by none (probability p₀):

    p(f, a | e) = Π_j  p(a_j | a_{j−1}) t(f_j | e_{a_j})

and with the languages exchanged for the other direction. words/align/hmm/orders.py has the orders p(a_j | a_{j−1}),
"diagonal" and
"jumps", and the posteriors; their parameters are learned. t has a sparse Dirichlet prior α, so that its update is
exp ψ(c + α) of the expected counts c, not c (variational Bayes), which keeps rare words from collecting all.

**Stems.** A model of the first letters of every word knows less of frequent words and more of rare forms; the mean of its
posteriors and those of whole words is better than either. `aligners.join` makes links of the two directions.

Sentence pairs of one shape (m, n) are one array, so that a round over 240,000 pairs takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from otformer import checks
from otformer.words.align.bilingual import TokenPair
from otformer.words.align.hmm.orders import FURTHEST, ORDERS, Direction, Seen, fit_kappa, posterior
from otformer.words.align.hmm.word_parts import spelling
from otformer.words.align.vectors import Array

FLOOR = 1e-7  # t of words never seen together


@dataclass(frozen=True)
class Settings:
    """Everything that decides a model."""

    order: str = "jumps"  # of the last rounds; the first are always diagonal
    letters: int | None = None  # of a word that are looked at, the first; None for all
    rounds: tuple[int, int] = (5, 5)
    none: float = 0.1  # p₀
    alpha: float = 0.01

    def __post_init__(self) -> None:
        checks.choice("order", self.order, ORDERS)
        if self.letters is not None:
            checks.count("letters", self.letters)
        checks.count("rounds", sum(checks.count("rounds", r, least=0) for r in self.rounds))
        if checks.not_negative("none", self.none) >= 1:
            raise ValueError(f"none must be a probability below 1, got {self.none!r}")
        checks.positive("alpha", self.alpha)


class _Block(NamedTuple):
    """All sentence pairs of one shape."""

    number: Array  # [B], which sentences
    source: Array  # [B, n], words
    target: Array  # [B, m]
    cells: slice  # where its B·m·n pairs of words stand in a flat array


@dataclass(frozen=True)
class Model:
    """Both directions, source → target first; see `train`."""

    words: tuple[dict[str, int], dict[str, int]]
    kinds: Array  # pairs of words met, source · |target words| + target, in order
    directions: tuple[Direction, Direction]
    settings: Settings

    def small(self, least: float = 0.03) -> Model:
        """Without pairs of words for which √(t t') of the two directions is below ``least``: few are left."""
        kept = np.sqrt(np.multiply(*(d.table for d in self.directions))) >= least
        if not kept.any():
            raise ValueError(f"least must leave some pairs of words, got {least!r}")
        first, second = (replace(d, table=d.table[kept]) for d in self.directions)
        return replace(self, kinds=self.kinds[kept], directions=(first, second))

    def posteriors(self, pairs: Iterable[TokenPair]) -> tuple[list[Array], list[Array]]:
        """A and B, each [m, n] for every pair: the share of target word j said by source word i, and of i said by j.

        Rows of A and columns of B add up to 1 less the share of no word. Words never met are placed by the order alone, or
        by their spelling: two that are the same, or much the same, as names are, belong together.
        """
        whole = list(pairs)
        given = [_stems(pair, self.settings.letters) for pair in whole]
        sides = [[[index.get(w, -1) for w in pair[k]] for pair in given] for k, index in enumerate(self.words)]
        how = self.settings.order, self.settings.none
        out: tuple[list[Any], list[Any]] = ([None] * len(given), [None] * len(given))
        for block in _blocks(*sides):
            keys = _keys(block, len(self.words[1]))
            kind = np.minimum(np.searchsorted(self.kinds, keys), len(self.kinds) - 1)
            met = (self.kinds[kind] == keys) & (block.source >= 0)[:, None, :] & (block.target >= 0)[:, :, None]
            new = (block.source < 0)[:, None, :] | (block.target < 0)[:, :, None]
            alike = np.stack([_alike(whole[k], given[k], one) for k, one in zip(block.number, new, strict=True)])
            t = [np.maximum(np.where(met, d.table[kind], alike), FLOOR) for d in self.directions]
            null = [np.where(w >= 0, d.null[w], FLOOR) for d, w in zip(self.directions, block[2:0:-1], strict=True)]
            A, _ = posterior(t[0], null[0], self.directions[0], *how)
            B, _ = posterior(t[1].transpose(0, 2, 1), null[1], self.directions[1], *how)
            for k, a, b in zip(block.number, A, B.transpose(0, 2, 1), strict=True):
                out[0][k], out[1][k] = a, b
        shapes = [(len(f), len(e)) for e, f in given]
        return tuple([np.zeros(s) if P is None else P for P, s in zip(Ps, shapes, strict=True)] for Ps in out)  # type: ignore


def train(pairs: Iterable[TokenPair], settings: Settings | None = None) -> Model:
    """A model of parallel text.

    >>> text = [("the cat".split(), "le chat".split()), ("the dog".split(), "le chien".split())] * 5
    >>> model = train(text, Settings(rounds=(5, 0)))
    >>> A, B = model.posteriors([("the dog".split(), "le chien".split())])
    >>> (A[0] * B[0] > 0.5).tolist()
    [[True, False], [False, True]]
    """
    settings = settings or Settings()
    given = [_stems(pair, settings.letters) for pair in pairs if all(pair)]
    if not given:
        raise ValueError("pairs must hold sentences with words on both sides, got none")
    words = tuple({w: k for k, w in enumerate(sorted({w for pair in given for w in pair[side]}))} for side in (0, 1))
    blocks = list(_blocks(*([[index[w] for w in pair[side]] for pair in given] for side, index in enumerate(words))))
    keys = np.concatenate([_keys(block, len(words[1])).ravel() for block in blocks])
    kinds, kind = np.unique(keys, return_inverse=True)
    del keys
    kind = kind.astype(np.int32)
    owners = np.divmod(kinds, len(words[1]))  # source and target word of a kind
    start = np.zeros(2 * FURTHEST + 1) + 1.0
    directions = [Direction(np.ones(len(kinds), np.float32), np.ones(len(words[k]), np.float32), 4.0, start) for k in (1, 0)]
    for number in range(sum(settings.rounds)):
        order = "diagonal" if number < settings.rounds[0] else settings.order
        directions = _round(blocks, kind, owners, directions, replace(settings, order=order))
    return Model((words[0], words[1]), kinds, (directions[0], directions[1]), replace(settings, order=order))


def _stems(pair: TokenPair, letters: int | None) -> TokenPair:
    return [w[:letters] for w in pair[0]], [w[:letters] for w in pair[1]]


def _alike(words: TokenPair, stems: TokenPair, new: Array) -> Array:
    """t [m, n] of words not met together: 0.1 for the same word; of one that is unknown 0.01 s⁴ for a spelling s ≥ 0.3."""
    out = np.array([[0.1 * (e == f) for e in stems[0]] for f in stems[1]])
    for j, i in np.argwhere(new & (out == 0)):
        e, f = words[0][i], words[1][j]
        if min(len(e), len(f)) > 3 and e[0].isalpha() and f[0].isalpha() and (s := spelling(e, f)) >= 0.3:
            out[j, i] = 0.01 * s**4
    return out


def _blocks(source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> Iterator[_Block]:
    """Sentences with words, by shape."""
    shapes: dict[tuple[int, int], list[int]] = {}
    for k, (e, f) in enumerate(zip(source, target, strict=True)):
        if len(e) and len(f):
            shapes.setdefault((len(f), len(e)), []).append(k)
    first = 0
    for (m, n), numbers in sorted(shapes.items()):
        last = first + len(numbers) * m * n
        yield _Block(
            np.array(numbers),
            np.array([source[k] for k in numbers]),
            np.array([target[k] for k in numbers]),
            slice(first, last),
        )
        first = last


def _keys(block: _Block, targets: int) -> Array:
    """[B, m, n], a number for every pair of words."""
    return np.asarray(block.source[:, None, :].astype(np.int64) * targets + block.target[:, :, None])


def _round(
    blocks: list[_Block], kind: Array, owners: Any, directions: list[Direction], settings: Settings
) -> list[Direction]:
    """Expectation and maximisation, once."""
    posts = [np.empty(len(kind), np.float32) for _ in (0, 1)]
    nulls = [np.zeros(len(d.null)) for d in directions]
    orders: list[list[Seen]] = [[], []]
    how = settings.order, settings.none
    for block in blocks:
        shape = block.target.shape[1], block.source.shape[1]
        t = [d.table[kind[block.cells]].reshape(-1, *shape) for d in directions]
        A, forward = posterior(t[0], directions[0].null[block.target], directions[0], *how)
        B, backward = posterior(t[1].transpose(0, 2, 1), directions[1].null[block.source], directions[1], *how)
        B = B.transpose(0, 2, 1)
        for side, (P, axis, w) in enumerate(((A, 2, block.target), (B, 1, block.source))):
            posts[side][block.cells] = P.ravel()
            nulls[side] += np.bincount(w.ravel(), np.maximum(1 - P.sum(axis), 0).ravel(), len(nulls[side]))
        orders[0].append(forward)
        orders[1].append(backward)
    shapes = [(block.target.shape[1], block.source.shape[1]) for block in blocks]
    return [
        Direction(
            _table(np.bincount(kind, posts[side], len(owners[0])), owners[side], settings.alpha),
            _table(nulls[side], np.zeros(len(nulls[side]), int), settings.alpha),
            fit_kappa(orders[side], [s[:: 1 - 2 * side] for s in shapes], d.kappa),
            np.sum([o.jumps for o in orders[side]], axis=0) + 1.0 if settings.order == "jumps" else d.jumps,
        )
        for side, d in enumerate(directions)
    ]


def _table(counts: Array, owner: Array, alpha: float) -> Array:
    """t of expected counts: exp ψ(c + α) / exp ψ(Σ (c + α)), the sum over what has the same owner."""
    from scipy.special import digamma

    total = np.bincount(owner, counts + alpha)
    return np.maximum(np.exp(digamma(counts + alpha) - digamma(total)[owner]), FLOOR).astype(np.float32)
