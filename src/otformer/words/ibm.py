r"""Word alignment models of the IBM family, both directions, by EM on parallel text alone.

**Model.** Each target word f_j is said by one source word, of place a_j, or by none (probability p₀):

    p(f, a | e) = Π_j  p(a_j | a_{j−1}) t(f_j | e_{a_j})

    order "diagonal"   p(a_j = i) ∝ exp(−κ |(i + ½)/n − (j + ½)/m|)        (fast_align: Dyer, Chahuneau and Smith 2013)
    order "jumps"      p(a_j = i' | a_{j−1} = i) ∝ s(i' − i)                (Vogel, Ney and Tillmann 1996)

and with the languages exchanged for the other direction. κ and s are learned; t has a sparse Dirichlet prior α, so that its
update is exp ψ(c + α) of the expected counts c, not c (variational Bayes), which keeps rare words from collecting all.

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
from otformer.words.bilingual import TokenPair
from otformer.words.pieces import spelling
from otformer.words.vectors import Array

FURTHEST = 15  # jumps beyond count as this one
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
        checks.choice("order", self.order, ("diagonal", "jumps"))


class _Block(NamedTuple):
    """All sentence pairs of one shape."""

    number: Array  # [B], which sentences
    source: Array  # [B, n], words
    target: Array  # [B, m]
    cells: slice  # where its B·m·n pairs of words stand in a flat array


@dataclass(frozen=True)
class Direction:
    """One direction's parameters: t of every pair of words met, t of the null word, and the order."""

    table: Array  # [kinds]
    null: Array  # [words said]
    kappa: float
    jumps: Array  # [2 FURTHEST + 1]


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
        out: tuple[list[Any], list[Any]] = ([None] * len(given), [None] * len(given))
        for block in _blocks(*sides):
            keys = _keys(block, len(self.words[1]))
            kind = np.minimum(np.searchsorted(self.kinds, keys), len(self.kinds) - 1)
            met = (self.kinds[kind] == keys) & (block.source >= 0)[:, None, :] & (block.target >= 0)[:, :, None]
            new = (block.source < 0)[:, None, :] | (block.target < 0)[:, :, None]
            alike = np.stack([_alike(whole[k], given[k], one) for k, one in zip(block.number, new, strict=True)])
            t = [np.maximum(np.where(met, d.table[kind], alike), FLOOR) for d in self.directions]
            null = [np.where(w >= 0, d.null[w], FLOOR) for d, w in zip(self.directions, block[2:0:-1], strict=True)]
            A, _ = _posterior(t[0], null[0], self.directions[0], self.settings)
            B, _ = _posterior(t[1].transpose(0, 2, 1), null[1], self.directions[1], self.settings)
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
        if min(len(e), len(f)) > 3 and e[0].isalpha() and f[0].isalpha():
            out[j, i] = 0.01 * spelling(e, f) ** 4 * (spelling(e, f) >= 0.3)
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


class _Order(NamedTuple):
    """What a block says of the order: Σ posterior · distance and Σ posterior of a shape, or counts of jumps."""

    distance: float = 0.0
    mass: float = 0.0
    jumps: Any = 0.0


def _round(
    blocks: list[_Block], kind: Array, owners: Any, directions: list[Direction], settings: Settings
) -> list[Direction]:
    """Expectation and maximisation, once."""
    posts = [np.empty(len(kind), np.float32) for _ in (0, 1)]
    nulls = [np.zeros(len(d.null)) for d in directions]
    orders: list[list[_Order]] = [[], []]
    for block in blocks:
        shape = block.target.shape[1], block.source.shape[1]
        t = [d.table[kind[block.cells]].reshape(-1, *shape) for d in directions]
        A, forward = _posterior(t[0], directions[0].null[block.target], directions[0], settings)
        B, backward = _posterior(t[1].transpose(0, 2, 1), directions[1].null[block.source], directions[1], settings)
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
            _kappa(orders[side], [s[:: 1 - 2 * side] for s in shapes], d.kappa),
            np.sum([o.jumps for o in orders[side]], axis=0) + 1.0 if settings.order == "jumps" else d.jumps,
        )
        for side, d in enumerate(directions)
    ]


def _table(counts: Array, owner: Array, alpha: float) -> Array:
    """t of expected counts: exp ψ(c + α) / exp ψ(Σ (c + α)), the sum over what has the same owner."""
    from scipy.special import digamma

    total = np.bincount(owner, counts + alpha)
    return np.maximum(np.exp(digamma(counts + alpha) - digamma(total)[owner]), FLOOR).astype(np.float32)


def _kappa(orders: list[_Order], shapes: Sequence[tuple[int, int]], kappa: float) -> float:
    """The κ under which the expected distance from the diagonal is the one found, by bisection; as it was without any."""
    found, mass = sum(o.distance for o in orders), np.array([o.mass for o in orders])
    if not mass.sum():
        return kappa
    distances = [_distance(*shape) for shape in shapes]

    def expected(k: float) -> float:
        means = [float((d * _near(d, k)).sum(1).mean()) for d in distances]
        return float(mass @ means)

    low, high = 0.1, 30.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) > found else (low, middle)
    return (low + high) / 2


def _distance(m: int, n: int) -> Array:
    return np.abs((np.arange(n) + 0.5) / n - (np.arange(m)[:, None] + 0.5) / m)


def _near(distance: Array, kappa: float) -> Array:
    """p(a_j = i), rows add up to 1."""
    weights = np.exp(-kappa * distance)
    return np.asarray(weights / weights.sum(1, keepdims=True))


def _posterior(t: Array, null: Array, direction: Direction, settings: Settings) -> tuple[Array, _Order]:
    """p(a_j = i | e, f) [B, m, n] for t [B, m, n] and null [B, m]."""
    m, n = t.shape[1:]
    if settings.order == "jumps":
        post, jumps = _forward_backward(t, null, direction.jumps, settings.none)
        return post, _Order(jumps=jumps)
    distance = _distance(m, n)
    weights = t * ((1 - settings.none) * _near(distance, direction.kappa)).astype(np.float32)
    post = weights / (weights.sum(2) + settings.none * null)[:, :, None]
    by_place = post.sum(0)
    return post, _Order(float((by_place * distance).sum()), float(by_place.sum()))


def _forward_backward(t: Array, null: Array, jumps: Array, none: float) -> tuple[Array, Array]:
    """Posteriors [B, m, n] and expected jumps.

    The state after word j is the place last used, 0 … n with 0 before the first word; a word said by none keeps it:

        v_j(k) = (1 − p₀) t_j(k) Σ_l u_{j−1}(l) S(l, k) + p₀ t_j(∅) u_{j−1}(k),      u_j = v_j / z_j,  z_j = Σ v_j.
    """
    B, m, n = t.shape
    t = np.ascontiguousarray(t.transpose(1, 0, 2))
    step = np.clip(np.arange(1, n + 1) - np.arange(n + 1)[:, None], -FURTHEST, FURTHEST) + FURTHEST  # [n + 1, n]
    S = jumps[step]
    S = ((1 - none) * S / S.sum(1, keepdims=True)).astype(np.float32)
    u = np.zeros((m + 1, B, n + 1), np.float32)
    u[0, :, 0] = 1
    z = np.empty((m, B, 1), np.float32)
    said = np.empty((m, B, n), np.float32)
    for j in range(m):
        said[j] = (u[j] @ S) * t[j]
        u[j + 1] = none * null[:, j, None] * u[j]
        u[j + 1, :, 1:] += said[j]
        z[j] = u[j + 1].sum(1, keepdims=True)
        u[j + 1] /= z[j]
    post = np.empty((B, m, n), np.float32)
    after = np.ones((B, n + 1), np.float32)
    moves = np.zeros((n + 1, n))
    for j in reversed(range(m)):
        post[:, j] = said[j] / z[j] * after[:, 1:]
        weight = np.minimum(t[j] / z[j] * after[:, 1:], 1e30)
        moves += u[j].T @ weight
        after = np.minimum(weight @ S.T + none * null[:, j, None] / z[j] * after, 1e30)  # of states that u rules out
    return post, np.bincount(step.ravel(), (moves * S).ravel(), 2 * FURTHEST + 1)


if __name__ == "__main__":
    from otformer.words.hmm_file import main

    main()
