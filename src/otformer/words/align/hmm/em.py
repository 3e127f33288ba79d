r"""Expectation and maximisation over the chunks of a text: `Training`.

**Expectation** adds up the counts of chunks (words/align/hmm/chunks.py) in their order, whoever made them: any number of
threads, or a cluster, gives the same bytes.

**Maximisation.** t has a sparse Dirichlet prior α, so that its update is that of variational Bayes,

    t(f | e) = exp ψ(c(e, f) + α) / exp ψ(Σ_f' (c(e, f') + α)),

the sum over the words f' that e has met. Counts of an earlier text, if there are any, are added to those of this one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import digamma

from otformer.transport.compiled import compiled, in_threads
from otformer.words.align.hmm.chunks import Chunk, Expected, Parameters, chunk, expect, ranges
from otformer.words.align.hmm.numbered import Text, WordPairs
from otformer.words.align.hmm.orders import FURTHEST, fit_kappa
from otformer.words.align.vectors import Array
from otformer.words.jobs.jobs import Job, stream

FLOOR = 1e-7  # t of words never seen together


class Counts(NamedTuple):
    """Expected counts of a text: what a round hands to the next, and what is kept between two runs of the same command.

    pairs : [pairs, 2], of both directions.   null : of the words of each direction that come from the null word.
    kappa : [2].   jumps : [2, 2 FURTHEST + 1].
    """

    pairs: Array
    null: tuple[Array, Array]
    kappa: Array
    jumps: Array


class Evidence(NamedTuple):
    """The counts of a text for the word pairs that are kept: a model is made of them, and more text adds to them.

    words : those of both sides.   met : the pairs of words.   counts : as expected in the last round.
    rest : Σ (c + α) of the pairs that are not kept, of every source and of every target word.
    null_rest : [2], the same of the words that are not kept, for the null words of both directions.
    """

    words: tuple[list[str], list[str]]
    met: WordPairs
    counts: Counts
    rest: tuple[Array, Array]
    null_rest: Array

    def parameters(self, alpha: float) -> Parameters:
        """The maximisation step."""
        by_word = self.rest[0].copy(), self.rest[1].copy()
        totals(self.met.start, self.met.target, self.counts.pairs, alpha, *by_word)
        t, bases = np.empty_like(self.counts.pairs), [digamma(np.maximum(total, alpha)) for total in by_word]
        known = self.met.start, self.met.target, self.counts.pairs

        def rows(first: int, last: int) -> None:
            _tables(first, last, *known, alpha, bases[0], bases[1], t)

        in_threads(rows, len(self.met.start) - 1, len(t))
        null = [one_table(c, alpha, more) for c, more in zip(self.counts.null, self.null_rest.tolist(), strict=True)]
        return Parameters(t, (null[0], null[1]), self.counts.kappa, self.counts.jumps + 1)

    def pruned(self, least: float, alpha: float) -> Evidence:
        """Without pairs of words for which √(t t') is below ``least``, and without words that are in no pair."""
        t = self.parameters(alpha).t
        kept = t[:, 0] * t[:, 1] >= least**2
        del t
        lost, none = self.counts.pairs.copy(), (np.zeros(len(self.rest[0])), np.zeros(len(self.rest[1])))
        lost[kept] = -alpha  # so that c + α is 0
        totals(self.met.start, self.met.target, lost, alpha, *none)
        at = np.flatnonzero(kept)
        source, target = np.searchsorted(self.met.start, at, "right") - 1, self.met.target[at]
        used, places = zip(*(np.unique(side, return_inverse=True) for side in (source, target)), strict=True)
        words, rest, null, null_rest = [], [], [], self.null_rest.copy()
        for side in (0, 1):
            words.append([self.words[side][k] for k in used[side].tolist()])
            rest.append((self.rest[side] + none[side])[used[side]])
            alone = self.counts.null[side]
            null.append(alone[used[1 - side]])
            null_rest[side] += (alone + alpha).sum() - (null[side] + alpha).sum()
        start = np.searchsorted(places[0], np.arange(len(used[0]) + 1))
        counts = self.counts._replace(pairs=self.counts.pairs[at], null=(null[0], null[1]))
        met = WordPairs(start, places[1].astype(np.int32))
        return Evidence((words[0], words[1]), met, counts, (rest[0], rest[1]), null_rest)


Kept = Callable[[int, Chunk], Callable[[], Chunk]]  # puts a chunk, with its number, away; gives the function that fetches it


@dataclass
class Training:
    """A text, its chunks and the pairs of words in it, with which rounds of expectation and maximisation are made.

    keep : puts chunks away, in memory if nothing is said.   engine, workers : "local" threads, as many as torch has where
    ``workers`` is None, or those of "ray".   progress : is called with the sentence pairs done since.
    """

    text: Text
    alpha: float = 0.01
    p_null: float = 0.1
    keep: Kept = lambda number, made: lambda: made
    engine: str = "local"
    workers: int | None = None
    earlier: Evidence | None = None
    progress: Callable[[int], Any] = lambda done: None
    met: WordPairs = field(init=False)
    chunks: list[Callable[[], Chunk]] = field(init=False)
    sizes: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.met = WordPairs.of(self.text, self.earlier and self.earlier.met)
        order, places = ranges(self.text)
        self.sizes = [end - begin for begin, end in places]
        make = (partial(self._chunk, number, order[a:b]) for number, (a, b) in enumerate(places))
        self.chunks = list(in_order(make, self.threads))

    def _chunk(self, number: int, sentences: Array) -> Callable[[], Chunk]:
        return self.keep(number, chunk(self.text, self.met, sentences))

    @property
    def threads(self) -> int:
        return torch.get_num_threads() if self.workers is None or self.engine != "local" else self.workers

    def start(self) -> Parameters:
        """Every translation equally likely."""
        null = np.ones(len(self.text.words[1]), np.float32), np.ones(len(self.text.words[0]), np.float32)
        return Parameters(np.ones((len(self.met), 2), np.float32), null, np.full(2, 4.0), np.ones((2, 2 * FURTHEST + 1)))

    def expected(self, now: Parameters, is_jumps: bool) -> Counts:
        """The counts of all chunks."""
        pairs = np.zeros((len(self.met), 2), np.float32)
        null = np.zeros(len(now.null[0])), np.zeros(len(now.null[1]))
        longest = 1 + max(int(np.diff(starts).max()) for starts in self.text.starts)
        jumps, distance, mass = np.zeros_like(now.jumps), np.zeros(2), np.zeros((2, longest, longest))
        for size, (which, found) in zip(self.sizes, self._made(now, is_jumps), strict=True):
            _add(pairs, which.pairs, found.t)
            null[0][which.words_1] += found.null[0]
            null[1][which.words_0] += found.null[1]
            jumps += found.jumps
            distance += found.distance
            long = found.mass.shape[1]
            mass[:, :long, :long] += found.mass
            self.progress(size)
        kappa = np.array([fit_kappa(*side) for side in zip(distance.tolist(), mass, now.kappa.tolist(), strict=True)])
        return Counts(pairs, null, kappa, jumps)

    def _made(self, now: Parameters, is_jumps: bool) -> Iterator[tuple[Chunk, Expected]]:
        def task(fetch: Callable[[], Chunk]) -> Callable[[], tuple[Chunk, Expected]]:
            return lambda: _step(fetch(), now, is_jumps, self.p_null)

        if self.engine == "local":
            return in_order(map(task, self.chunks), self.threads)
        job = Job(_Step, chunk=1, engine=self.engine, workers=self.workers or 1)
        given = ((each := fetch(), _rows(each, now), is_jumps, self.p_null) for fetch in self.chunks)
        return stream(job, given)  # type: ignore[arg-type]  # items of numbers, not of texts

    def evidence(self, counts: Counts) -> Evidence:
        """The counts of this text, to which those of an earlier one are added, in place."""
        rest = np.zeros(len(self.text.words[0])), np.zeros(len(self.text.words[1]))
        null_rest = np.zeros(2)
        if self.earlier is not None:
            known = self.earlier.met
            at = self.met.number(np.repeat(np.arange(len(known.start) - 1), np.diff(known.start)), known.target)
            counts.pairs[at] += self.earlier.counts.pairs
            counts.jumps[:] += self.earlier.counts.jumps
            null_rest += self.earlier.null_rest
            added = (*self.earlier.counts.null, *self.earlier.rest)
            for mine, theirs in zip((*counts.null, *rest), added, strict=True):
                mine[: len(theirs)] += theirs
        return Evidence(self.text.words, self.met, counts, rest, null_rest)


def in_order(tasks: Iterable[Callable[[], Any]], threads: int) -> Iterator[Any]:
    """What the tasks give, in their order; a few are at work at a time.

    >>> list(in_order([lambda: 1, lambda: 2, lambda: 3], threads=2))
    [1, 2, 3]
    """
    if threads == 1:
        yield from (task() for task in tasks)
        return
    pool, waiting = ThreadPoolExecutor(threads), deque[Any]()
    try:
        for task in tasks:
            waiting.append(pool.submit(task))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _rows(given: Chunk, now: Parameters) -> Parameters:
    """The parameters that a chunk needs, by its own numbers."""
    t = np.empty((len(given.pairs), 2), np.float32)
    _take(now.t, given.pairs, t)
    return now._replace(t=t, null=(now.null[0][given.words_1], now.null[1][given.words_0]))


def _step(given: Chunk, now: Parameters, is_jumps: bool, p_null: float) -> tuple[Chunk, Expected]:
    return given, expect(given, _rows(given, now), is_jumps, p_null)


class _Step:
    """The expectation step as work on a corpus (words/jobs/jobs.py), whose items are chunks with their parameters."""

    def __call__(self, items: Sequence[Any]) -> tuple[Chunk, Expected]:
        ((given, *rest),) = items
        return given, expect(given, *rest)


@compiled
def _take(t: Any, at: Any, out: Any) -> None:
    for k in range(len(at)):
        out[k, 0] = t[at[k], 0]
        out[k, 1] = t[at[k], 1]


@compiled
def _add(out: Any, at: Any, found: Any) -> None:
    for k in range(len(at)):
        out[at[k], 0] += found[k, 0]
        out[at[k], 1] += found[k, 1]


@compiled
def totals(start: Any, target: Any, counts: Any, alpha: float, by_source: Any, by_target: Any) -> None:
    """Add Σ (c + α) of every source word, and of every target word."""
    for e in range(len(start) - 1):
        for at in range(start[e], start[e + 1]):
            by_source[e] += counts[at, 0] + alpha
            by_target[target[at]] += counts[at, 1] + alpha


@compiled
def _tables(
    first: int, last: int, start: Any, target: Any, counts: Any, alpha: float, by_source: Any, by_target: Any, t: Any
) -> None:
    """Write t of the pairs of source words first … last − 1, for given ψ of the sums."""
    for e in range(first, last):
        for at in range(start[e], start[e + 1]):
            t[at, 0] = max(np.exp(psi(counts[at, 0] + alpha) - by_source[e]), FLOOR)
            t[at, 1] = max(np.exp(psi(counts[at, 1] + alpha) - by_target[target[at]]), FLOOR)


def one_table(counts: Array, alpha: float, rest: float = 0.0) -> Array:
    """t of the counts of one owner, of whose Σ (c + α) ``rest`` is elsewhere.

    >>> one_table(np.array([1.0, 0.0]), alpha=0.01).round(2).tolist() == [np.float32(0.98), 0.0]
    True
    """
    total = (counts + alpha).sum() + rest
    return np.maximum(np.exp(digamma(counts + alpha) - digamma(total)), FLOOR).astype(np.float32)


@compiled
def psi(x: float) -> float:
    """ψ(x) for x > 0: ψ(x) = ψ(x + 1) − 1/x up to x ≥ 6, then the asymptotic series, to 1e-10."""
    shift = 0.0
    while x < 6:
        shift -= 1 / x
        x += 1
    y = 1 / (x * x)
    return shift + np.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))
