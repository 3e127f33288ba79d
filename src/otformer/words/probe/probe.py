"""The probe: how well each layer and head of a model finds translated words, and how near its attention is to transport.

For every sentence pair there are gold pairs of words, from a dictionary (`gold_pairs`) or made by hand, and matrices [m, n]:

    attention   every reading (words/models/attention.py), layer and head, and the mean over the heads of a layer
    nearest     cosines of word vectors: the model's embeddings, and its hidden states at every layer
    transport   the entropic plan of the same vectors for the cost 2 − 2 cos (`embedding_plan`)

Each gets the same scores: MRR and Hits@k; where links are made by hand, AER and its kin of every target word's best source
word; and, for attention with rows scaled to sum to one, its `likeness` to the plan of the embeddings. Beside them stand the
scores of the author's notebooks (words/probe/identity.py), with the gold pairs as matches: the cosine with the identity of
every matrix, and, in the rows of transport, the share that exact transport of the same costs matches.

`probe_chunk` (map) gives a `Tally`, scores of each sentence; words/probe/table.py (reduce) makes the table of all tallies.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice, zip_longest
from typing import Any, NamedTuple

import numpy as np

from otformer import checks
from otformer.array_files import unpacked
from otformer.transport.ragged.batch import solve_batch
from otformer.words.align.vectors import Array, as_unit
from otformer.words.models.attention import TEMPLATE, Reading, read, readings_of
from otformer.words.models.models import Model
from otformer.words.probe.identity import identity_cosine, matched_share
from otformer.words.probe.scores import Likeness, likeness, ranks
from otformer.words.text.dictionary import Dictionary, gold_pairs
from otformer.words.text.gold import Gold, Link, check_links
from otformer.words.text.text import Pair, fold

AT = (1, 3)
LIKENESS = (*Likeness._fields, "distance_states")
IDENTITY = ("identity_cosine", "matched")
GROUP = 128  # sentences per call of `solve_batch`


class TableRow(NamedTuple):
    """A line of the table: one way to compute a matrix of words. Attention layers count from 1, heads from 1; head 0 is the
    mean.

    States of layer k are the outputs of layer k; states of layer 0 are the input of the first layer.
    """

    method: str
    reading: str
    layer: int
    head: int = 0


@dataclass(frozen=True)
class ProbeSettings:
    """How to probe.

    by, readings, how, template, batch : as `attention.read` has them.   repeated, several : as `gold_pairs`.
    ties : as `ranks`.   reg, tol : of the plans, λ and the marginal error.
    """

    by: str = "words"
    readings: tuple[str, ...] | None = None
    how: str = "mean"
    template: str = TEMPLATE
    batch: int = 32
    repeated: str = "once"
    several: str = "single"
    ties: str = "best"
    reg: float = 0.05
    tol: float = 1e-6


@dataclass(frozen=True)
class Tally:
    """Scores of N sentences for R rows; a table needs nothing else, and tallies of chunks make that of their corpus.

    pairs [N] : gold pairs of each sentence.
    scores [N, R, 4] : sums over them of 1/rank, rank ≤ 1, rank ≤ 3, and of those whose rank ties decide.
    likeness [N, R, 6] : of `LIKENESS`; nan for rows without.
    links [N, R, 4] : |A∩S|, |A∩P|, |A|, |S|; zeros where there are no hand-made links.
    identity [N, R, 2] : of `IDENTITY`; nan for rows without, and for sentences without gold pairs.
    lost [N] : words without subwords, beyond the model's limit for instance; they and their gold pairs are left out.
    """

    rows: tuple[TableRow, ...]
    pairs: Array
    scores: Array
    likeness: Array
    links: Array
    identity: Array
    lost: Array

    def pack(self) -> bytes:
        """The tally as the bytes of an npz file."""
        stream = io.BytesIO()
        np.savez(stream, rows=np.array(json.dumps(self.rows)), **self.arrays())  # type: ignore[arg-type]
        return stream.getvalue()

    @classmethod
    def unpack(cls, packed: bytes) -> Tally:
        """The tally that `pack` was given."""
        arrays = unpacked("the tally", io.BytesIO(packed))
        rows = tuple(TableRow(*row) for row in json.loads(str(arrays.pop("rows"))))
        return cls(rows, **arrays)

    def arrays(self) -> dict[str, Array]:
        """All arrays by name, without the rows."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rows"}

    @classmethod
    def empty(cls, rows: tuple[TableRow, ...]) -> Tally:
        """The tally of no sentences."""
        R = len(rows)
        shapes = {"pairs": (), "scores": (R, 2 + len(AT)), "likeness": (R, len(LIKENESS)), "links": (R, 4)}
        shapes |= {"identity": (R, len(IDENTITY)), "lost": ()}
        return cls(rows, **{name: np.zeros((0, *shape), dtype=np.float32) for name, shape in shapes.items()})

    @classmethod
    def joined(cls, tallies: Iterable[Tally]) -> Tally:
        """Join the tallies of all sentences, in order."""
        every = list(tallies)
        if not every:
            raise checks.ArgumentError("tallies", "not be empty")
        if any(tally.rows != every[0].rows for tally in every):
            raise checks.ArgumentError("tallies", "be of one model and the same readings", "different rows")
        parts = [tally.arrays() for tally in every]
        return cls(every[0].rows, **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def rows_of(model: Model, readings: Sequence[str] | None = None) -> tuple[TableRow, ...]:
    """The rows of a model's table, in the order of the matrices."""
    heads = (*range(1, model.heads + 1), 0)
    names = readings_of(model, readings)
    attention = [
        TableRow("attention", name, layer, k) for name in names for layer in range(1, model.layers + 1) for k in heads
    ]
    vectors = [("embeddings", 0), *(("states", layer) for layer in range(model.layers + 1))]
    return (*attention, *(TableRow(method, *vector) for method in ("nearest", "transport") for vector in vectors))


def probe_chunk(
    model: Model,
    pairs: Iterable[Pair],
    dictionary: Dictionary | None = None,
    gold: Iterable[Gold] | None = None,
    settings: ProbeSettings | None = None,
) -> Tally:
    """The scores of every pair, in order.

    Gold pairs of words come from the dictionary, or, without one, are the sure links of ``gold``, one per sentence pair;
    where there is ``gold``, links are scored against it. Words are folded for the dictionary, not for the model.
    """
    if dictionary is None and gold is None:
        raise checks.ArgumentError("dictionary or gold", "be given", advice="there are no links to score against")
    s = ProbeSettings() if settings is None else settings
    rows = rows_of(model, s.readings)
    scored = (_scored(rows, *found, dictionary, s) for found in read_with_plans(model, pairs, gold, s))
    return Tally.joined([Tally.empty(rows), *scored])


class ReadPair(NamedTuple):
    """A sentence pair without the words that have no subwords; ``source`` and ``target`` say where the others stood."""

    reading: Reading
    gold: Gold | None
    source: Array
    target: Array
    attention: Array  # [readings, layers, heads + 1, m, n], the mean over heads last
    cosines: Array  # [1 + layers + 1, m, n]: of the embeddings and of the states of every layer

    def placed(self, links: Iterable[Link]) -> list[Link]:
        """The links of words that are there, by their places among them."""
        i_at, j_at = ({int(old): new for new, old in enumerate(side)} for side in (self.source, self.target))
        return [(i_at[i], j_at[j]) for i, j in links if i in i_at and j in j_at]


def read_with_plans(
    model: Model, pairs: Iterable[Pair], gold: Iterable[Gold] | None, s: ProbeSettings
) -> Iterator[tuple[ReadPair, Array]]:
    """Every sentence pair as the model reads it, and its plans [vectors, m, n], of mass 1, for the costs 2 − 2 cosine."""
    if any("self" in name for name in readings_of(model, s.readings)):
        raise checks.ArgumentError("readings", "be between source and target words", s.readings)
    checks.positive("reg", s.reg)
    how: dict[str, Any] = {"by": s.by, "readings": s.readings, "how": s.how, "template": s.template, "batch": s.batch}
    parts = _with_gold(read(model, pairs, states=True, **how), gold)
    while group := list(islice(parts, GROUP)):
        yield from zip(group, _plans([part.cosines for part in group], s), strict=True)


def _with_gold(readings: Iterator[Reading], gold: Iterable[Gold] | None) -> Iterator[ReadPair]:
    """Readings with their links: as many of one as of the other, and links of words that are there."""
    if gold is None:
        yield from (_part(reading, None) for reading in readings)
        return
    for number, (reading, links) in enumerate(zip_longest(readings, gold), 1):
        if reading is None or links is None:
            short = "pairs" if reading is None else "gold"
            raise checks.ArgumentError("gold", "have links for every pair, and no more", f"{short} up to {number - 1}")
        check_links(number, links, len(reading.source), len(reading.target))
        yield _part(reading, links)


def _part(reading: Reading, gold: Gold | None) -> ReadPair:
    source, target = (np.flatnonzero(side) for side in reading.kept)
    heads = np.stack([A[..., target[:, None], source] for A in reading.matrices.values()]).astype(float)
    attention = np.concatenate([heads, heads.mean(2, keepdims=True)], axis=2)
    kept = {name: x[..., source if "source" in name else target, :] for name, x in reading.states.items()}
    vectors = {name: as_unit(x.astype(float)) for name, x in kept.items()}
    x, y = vectors["source"], vectors["target"]
    x = x[np.minimum(np.arange(len(y)), len(x) - 1)]  # an encoder of fewer layers than the decoder gives its last
    of_tokens = vectors["target-embeddings"] @ vectors["source-embeddings"].T
    return ReadPair(reading, gold, source, target, attention, np.concatenate([of_tokens[None], y @ x.swapaxes(1, 2)]))


def _plans(cosines: Sequence[Array], s: ProbeSettings) -> list[Array]:
    """The plans [vectors, m, n] of every sentence, all solved in one call."""
    problems = [2 - 2 * S for sentence in cosines if sentence.size for S in sentence]
    solved = iter(solve_batch(problems, reg=s.reg, tol=s.tol))
    return [np.stack([next(solved).plan for _ in S]) if S.size else S for S in cosines]


def _scored(
    rows: tuple[TableRow, ...], part: ReadPair, plan: Array, dictionary: Dictionary | None, s: ProbeSettings
) -> Tally:
    """The tally of one sentence."""
    m, n = len(part.target), len(part.source)
    first = len(rows) - 2 * len(plan)  # those of attention
    matrices = np.concatenate([part.attention.reshape(first, m, n), part.cosines, plan])  # [rows, m, n]
    pairs = _gold(part, dictionary, s)
    found = ranks(matrices, pairs, s.ties)
    tied = ranks(matrices, pairs, "best") < ranks(matrices, pairs, "worst")
    sums = np.stack([(1 / found).sum(-1), *((found <= k).sum(-1) for k in AT), tied.sum(-1)], -1)
    alike = np.full((len(rows), len(LIKENESS)), np.nan)
    if m and n:
        alike[:first] = likeness_of(part.attention, plan)
    lost = len(part.reading.source) + len(part.reading.target) - m - n
    values = (len(pairs), sums, alike, _links(matrices, part), _identity(matrices, part, pairs), lost)
    return Tally(rows, *(np.array(value, dtype=np.float32)[None] for value in values))


def _gold(part: ReadPair, dictionary: Dictionary | None, s: ProbeSettings) -> list[Link]:
    """Gold pairs of the words that are there, by their places among them."""
    if dictionary is None:
        return part.placed(sorted(part.gold.sure) if part.gold else ())
    source, target = ([fold(word) for word in side] for side in (part.reading.source, part.reading.target))
    return part.placed(gold_pairs(source, target, dictionary, s.repeated, s.several))


def _identity(matrices: Array, part: ReadPair, pairs: list[Link]) -> Array:
    """The author's scores [rows, 2], with the gold pairs as matches; shares are in the rows of transport, the last ones."""
    found = np.full((len(matrices), len(IDENTITY)), np.nan)
    if pairs:
        source, target = ([pair[side] for pair in pairs] for side in (0, 1))
        found[:, 0] = identity_cosine(matrices.swapaxes(1, 2), source, target)
        found[-len(part.cosines) :, 1] = [matched_share((2 - 2 * S).T, source, target) for S in part.cosines]
    return found


def _links(matrices: Array, part: ReadPair) -> Array:
    """|A∩S|, |A∩P|, |A|, |S| [rows, 4] of every target word's best source word."""
    counts = np.zeros((len(matrices), 4))
    if part.gold is None:
        return counts
    counts[:, 3] = len(part.gold.sure)
    if matrices.size:
        best, rows = matrices.argmax(-1), np.arange(len(part.target))  # [rows, m]
        for k, links in enumerate((part.gold.sure, part.gold.sure | part.gold.possible)):
            right = np.zeros((len(part.reading.target), len(part.reading.source)), dtype=bool)
            right[[j for _, j in links], [i for i, _ in links]] = True
            counts[:, k] = right[np.ix_(part.target, part.source)][rows, best].sum(-1)
        counts[:, 2] = len(rows)
    return counts


def scaled(attention: Array) -> Array:
    """Attention [..., m, n] with rows that sum to one; a row that gives nothing to any word is uniform."""
    A = attention + 1e-30
    return np.asarray(A / A.sum(-1, keepdims=True))


def likeness_of(attention: Array, plans: Array) -> Array:
    """[readings · layers · (heads + 1), LIKENESS] for attention, and the plans of embeddings and of states 0, 1, …."""
    A = scaled(attention)
    to_states = 0.5 * np.abs(A / A.shape[-2] - plans[2:][:, None]).sum((-1, -2))  # layer k with its own states
    return np.stack([np.broadcast_to(v, A.shape[:3]).reshape(-1) for v in (*likeness(A, plans[0]), to_states)], -1)
