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


class Earlier(NamedTuple):
    """What is known of an earlier text: counts by number of the pair in this one, and what is beyond these pairs.

    at : [kept], numbers of pairs of words.   counts : [kept, 2].   null : as in `Counts`.   jumps : as there.
    rest : Σ (c + α) of the pairs that were not kept, of the source and of the target words.   null_rest : [2], likewise.
    """

    at: Array
    counts: Array
    null: tuple[Array, Array]
    jumps: Array
    rest: tuple[Array, Array]
    null_rest: Array


Kept = Callable[[Chunk], Callable[[], Chunk]]  # puts a chunk away, and gives the function that fetches it
Task = tuple[Callable[[], Chunk], Parameters, bool, float]


@dataclass
class Training:
    """A text, its chunks and the pairs of words in it, with which rounds of expectation and maximisation are made.

    keep : puts chunks away, in memory if nothing is said.   engine, workers : "local" threads, as many as torch has where
    ``workers`` is None, or those of "ray".   progress : is called with the sentence pairs done since.
    """

    text: Text
    alpha: float = 0.01
    p_null: float = 0.1
    keep: Kept = lambda made: lambda: made
    engine: str = "local"
    workers: int | None = None
    earlier: Callable[[WordPairs], Earlier] | None = None
    progress: Callable[[int], Any] = lambda done: None
    met: WordPairs = field(init=False)
    chunks: list[Callable[[], Chunk]] = field(init=False)
    sizes: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.met = WordPairs.of(self.text)
        order, places = ranges(self.text)
        self.sizes = [end - begin for begin, end in places]
        make = ((lambda a=a, b=b: self.keep(chunk(self.text, self.met, order[a:b]))) for a, b in places)
        self.chunks = list(in_order(make, self.threads))
        self.before = None if self.earlier is None else self.earlier(self.met)

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
            _gather(pairs, which.pairs, found.t)
            null[0][which.words_1] += found.null[0]
            null[1][which.words_0] += found.null[1]
            jumps += found.jumps
            distance += found.distance
            long = found.mass.shape[1]
            mass[:, :long, :long] += found.mass
            self.progress(size)
        kappa = np.array([fit_kappa(*side) for side in zip(distance.tolist(), mass, now.kappa.tolist(), strict=True)])
        return Counts(pairs, null, kappa, jumps if is_jumps else now.jumps - 1)

    def _made(self, now: Parameters, is_jumps: bool) -> Iterator[tuple[Chunk, Expected]]:
        def task(fetch: Callable[[], Chunk]) -> Callable[[], tuple[Chunk, Expected]]:
            return lambda: _step(fetch(), now, is_jumps, self.p_null)

        if self.engine == "local":
            return in_order(map(task, self.chunks), self.threads)
        job = Job(_Step, chunk=1, engine=self.engine, workers=self.workers or 1)
        given = ((each := fetch(), _rows(each, now), is_jumps, self.p_null) for fetch in self.chunks)
        return stream(job, given)  # type: ignore[arg-type]  # items of numbers, not of texts

    def maximised(self, counts: Counts) -> Parameters:
        """The parameters of counts; those of an earlier text are added to them first, in place."""
        rest: tuple[Array, Array] = np.zeros(len(self.text.words[0])), np.zeros(len(self.text.words[1]))
        null_rest = np.zeros(2)
        if self.before is not None:
            counts.pairs[self.before.at] += self.before.counts
            counts.jumps[:] += self.before.jumps
            for mine, theirs in zip((*counts.null, *rest), (*self.before.null, *self.before.rest), strict=True):
                mine += theirs
            null_rest = self.before.null_rest
        totals(self.met.start, self.met.target, counts.pairs, self.alpha, *rest)
        t, bases = np.empty_like(counts.pairs), [digamma(np.maximum(total, self.alpha)) for total in rest]
        in_threads(
            lambda a, b: _tables(a, b, self.met.start, self.met.target, counts.pairs, self.alpha, *bases, t),
            len(self.met.start) - 1,
            len(t),
        )
        null = [one_table(c, self.alpha, more) for c, more in zip(counts.null, null_rest.tolist(), strict=True)]
        return Parameters(t, (null[0], null[1]), counts.kappa, counts.jumps + 1)


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
    null = now.null[0][given.words_1], now.null[1][given.words_0]
    return now._replace(t=now.t[given.pairs], null=null)


def _step(given: Chunk, now: Parameters, is_jumps: bool, p_null: float) -> tuple[Chunk, Expected]:
    return given, expect(given, _rows(given, now), is_jumps, p_null)


class _Step:
    """The expectation step as work on a corpus (words/jobs/jobs.py), whose items are chunks with their parameters."""

    def __call__(self, items: Sequence[Any]) -> tuple[Chunk, Expected]:
        ((given, *rest),) = items
        return given, expect(given, *rest)


@compiled
def _gather(pairs: Any, at: Any, found: Any) -> None:
    for k in range(len(at)):
        pairs[at[k], 0] += found[k, 0]
        pairs[at[k], 1] += found[k, 1]


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

    >>> one_table(np.array([1.0, 0.0]), alpha=0.01).round(3).tolist()
    [0.994, 0.0]
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
