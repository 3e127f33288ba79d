"""A numbered text in chunks, and the expectation step of a chunk: `Chunk`, `expect`.

Sentence pairs are sorted by shape, and up to LANES pairs of one shape are a batch, an array whose last axis is the pairs.
A chunk knows its own words and pairs of words by numbers of its own, so that what is looked up is near, and so that the
step is a function of a chunk and of a few rows of the tables: it runs in threads, in order, or on another machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from otformer.transport.compiled import by_row, compiled
from otformer.words.align.hmm.numbered import Text, WordPairs
from otformer.words.align.hmm.orders import FURTHEST, LINES, diagonal_posterior, jump_posterior, room_for
from otformer.words.align.vectors import Array

LANES = 32  # sentence pairs of a batch
CELLS = 2**20  # pairs of places of a chunk, all but that one sentence pair may have more


class Chunk(NamedTuple):
    """Batches [m, n, B] one after the other; ``words`` and ``pairs`` are the numbers in the text of those of the chunk."""

    shapes: Array  # [batches, 3]: m, n, B
    source: Array  # [n, B] of every batch, words
    target: Array  # [m, B]
    cells: Array  # [m, n, B], pairs of words
    words_0: Array
    words_1: Array
    pairs: Array


class Parameters(NamedTuple):
    """What the expectation step of a chunk needs to know: t of its pairs of words and of the null word, and the order."""

    t: Array  # [pairs, 2], of both directions
    null: tuple[Array, Array]  # [target words], [source words]
    kappa: Array  # [2]
    jumps: Array  # [2, 2 FURTHEST + 1]


class Expected(NamedTuple):
    """Expected counts: those of `Parameters`; and of order "diagonal" the distance from it [2] and the words [2, m, n]."""

    t: Array
    null: tuple[Array, Array]
    jumps: Array
    distance: Array
    mass: Array


def ranges(text: Text) -> tuple[Array, list[tuple[int, int]]]:
    """Sentence pairs in the order of chunks, sorted by shape, and where each chunk begins and ends in it."""
    n, m = (np.diff(starts) for starts in text.starts)
    order = np.lexsort((n, m))
    cells = (n * m)[order].cumsum()
    ends = [0]
    while ends[-1] < len(order):
        before = cells[ends[-1] - 1] if ends[-1] else 0
        ends.append(max(ends[-1] + 1, int(np.searchsorted(cells, before + CELLS, "right"))))
    return order, list(pairwise(ends))


def chunk(text: Text, met: WordPairs, sentences: Array) -> Chunk:
    """The chunk of these sentence pairs, which are sorted by shape."""
    n, m = (np.diff(starts)[sentences] for starts in text.starts)
    shapes = np.array([*_batches(m, n)], np.int32)
    places = [np.empty(int(sizes.sum()), np.int64) for sizes in (n, m)]
    for side, (place, starts) in enumerate(zip(places, text.starts, strict=True)):
        _places(shapes, 1 - side, starts[sentences], place)
    (words_0, source), (words_1, target) = (
        np.unique(tokens[place], return_inverse=True) for tokens, place in zip(text.tokens, places, strict=True)
    )
    source, target = source.astype(np.int32), target.astype(np.int32)
    first, order = np.empty(len(words_0) + 1, np.int64), np.empty(len(source), np.int32)
    by_row(source, first, order)
    cells = np.empty(int((m * n).sum()), np.int32)
    pairs = np.empty(len(cells), np.int32)
    seen = np.full((2, len(words_1)), -1, np.int32)
    many = _cells(shapes, target, first, order, seen, words_0, words_1, met.start, met.target, cells, pairs)
    return Chunk(shapes, source, target, cells, words_0, words_1, pairs[:many].copy())


def _batches(m: Array, n: Array) -> Iterator[tuple[int, int, int]]:
    change = np.flatnonzero(np.diff(m) | np.diff(n)) + 1
    ends = [0, *change.tolist(), len(m)]
    for first, last in pairwise(ends):
        for at in range(first, last, LANES):
            yield int(m[first]), int(n[first]), min(LANES, last - at)


@compiled
def _places(shapes: Any, axis: int, starts: Any, out: Any) -> None:
    """Write where the words of every batch [length, B] stand in the text."""
    sentence, at = 0, 0
    for batch in range(len(shapes)):
        B = shapes[batch, 2]
        for place in range(shapes[batch, axis]):
            for b in range(B):
                out[at] = starts[sentence + b] + place
                at += 1
        sentence += B


@compiled
def _cells(
    shapes: Any, target: Any, first: Any, order: Any, seen: Any, words_0: Any, words_1: Any, start: Any, met: Any,
    cells: Any, pairs: Any,
) -> int:  # fmt: skip
    """Number the pairs of words as they come, source word by source word; write the numbers, and which pairs they are."""
    batches = len(shapes)
    bases = np.zeros((batches + 1, 3), np.int64)  # of source, target and cells
    for k in range(batches):
        m, n, B = shapes[k]
        bases[k + 1, 0] = bases[k, 0] + n * B
        bases[k + 1, 1] = bases[k, 1] + m * B
        bases[k + 1, 2] = bases[k, 2] + m * n * B
    batch_of = np.empty(len(order), np.int32)
    for k in range(batches):
        batch_of[bases[k, 0] : bases[k + 1, 0]] = k
    many = 0
    for e in range(len(words_0)):
        row = met[start[words_0[e]] : start[words_0[e] + 1]]
        for at in range(first[e], first[e + 1]):
            k = batch_of[order[at]]
            m, n, B = shapes[k]
            i, b = divmod(order[at] - bases[k, 0], B)
            for j in range(m):
                f = target[bases[k, 1] + j * B + b]
                if seen[0, f] != e:
                    seen[0, f], seen[1, f] = e, many
                    pairs[many] = start[words_0[e]] + np.searchsorted(row, words_1[f])
                    many += 1
                cells[bases[k, 2] + (j * n + i) * B + b] = seen[1, f]
    return many


def expect(given: Chunk, now: Parameters, is_jumps: bool, p_null: float) -> Expected:
    """Expected counts of a chunk, under order "jumps" or "diagonal"."""
    long = int(given.shapes[:, :2].max())
    null = np.zeros(len(now.null[0])), np.zeros(len(now.null[1]))
    order = np.zeros((2, 2 * FURTHEST + 1)), np.zeros(2), np.zeros((2, long + 1, long + 1))
    made = Expected(np.zeros(now.t.shape, np.float32), null, *order)
    most = int(given.shapes.prod(1).max())
    rooms = np.empty((2, most), np.float32), np.empty(np.prod(room_for(long, long, LANES)), np.float32)
    s = now.jumps.astype(np.float32)
    _expect(*given[:4], *now.null, now.t, now.kappa, s, is_jumps, p_null, *null, made.t, *order, *rooms)
    return made


@compiled
def _expect(
    shapes: Any, source: Any, target: Any, cells: Any, null_0: Any, null_1: Any, t: Any, kappa: Any, jumps: Any,
    is_jumps: bool, p_null: float, nulls_0: Any, nulls_1: Any, counts: Any, moves: Any, distance: Any, mass: Any, work: Any,
    room: Any,
) -> None:  # fmt: skip
    at, left, right = 0, 0, 0
    for k in range(len(shapes)):
        m, n, B = shapes[k]
        pairs = cells[at : at + m * n * B].reshape(m, n, B)
        e, f = source[left : left + n * B].reshape(n, B), target[right : right + m * B].reshape(m, B)
        at, left, right = at + m * n * B, left + n * B, right + m * B
        lines = room[: (LINES + max(m, n)) * (max(m, n) + 1) * B].reshape(LINES + max(m, n), max(m, n) + 1, B)
        for side in range(2):
            order = is_jumps, p_null, kappa[side], jumps[side]
            sums = moves[side], distance[side : side + 1], mass[side]
            if side == 0:
                _direction(pairs, f, t[:, 0], null_0, order, counts[:, 0], nulls_0, sums, work, lines)
            else:
                _direction(pairs.transpose(1, 0, 2), e, t[:, 1], null_1, order, counts[:, 1], nulls_1, sums, work, lines)


@compiled
def _direction(
    pairs: Any, words: Any, t: Any, null: Any, order: Any, counts: Any, nulls: Any, sums: Any, work: Any, room: Any
) -> None:
    """A batch in one direction: look t up, find the posterior, and add it to the counts."""
    m, n, B = pairs.shape
    is_jumps, p_null, kappa, jumps = order
    moves, distance, mass = sums
    given, post = work[0, : m * n * B].reshape(m, n, B), work[1, : m * n * B].reshape(m, n, B)
    alone = np.empty((m, B), np.float32)
    for j in range(m):
        for b in range(B):
            alone[j, b] = null[words[j, b]]
        for i in range(n):
            for b in range(B):
                given[j, i, b] = t[pairs[j, i, b]]
    if is_jumps:
        jump_posterior(given, alone, jumps, p_null, post, moves, room)
    else:
        seen = np.zeros(2)
        diagonal_posterior(given, alone, kappa, p_null, post, seen, np.empty(n, np.float32))
        distance[0] += seen[0]
        mass[m, n] += seen[1]
    alone[:] = 1
    for j in range(m):
        for i in range(n):
            for b in range(B):
                counts[pairs[j, i, b]] += post[j, i, b]
                alone[j, b] -= post[j, i, b]
        for b in range(B):
            nulls[words[j, b]] += max(alone[j, b], 0)
