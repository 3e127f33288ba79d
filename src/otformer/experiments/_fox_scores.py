"""Attention of an encoder beside transport on sentence pairs, for the experiment ``fox``.

An encoder reads both sentences in one row. A layer's attention is averaged over its heads, and of it the block of target
rows and source columns is taken (the paper's French → English), or the other one, transposed. Rows are scaled to sum to one
over the source words. Beside it stands the transport of the words' states after the first layer, as in the figure: for the
fox, of nine words each, also the exact permutation of equation (1), of squared distances as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from otformer.experiments._sentences import Corpus
from otformer.experiments.experiment import Context, Row
from otformer.statistics import ratio
from otformer.words.models.attention import Reading, read
from otformer.words.models.models import Model
from otformer.words.probe.scores import embedding_plan, likeness, ranks
from otformer.words.text.gold import Link

Array = np.ndarray[Any, np.dtype[Any]]
REG = 0.05
FIRST = 1  # the states that transport takes: after the first layer
ORIENTATIONS = {"target-source": "French words attend to English", "source-target": "English words attend to French"}
OT, UNIFORM = "transport", "uniform"
RIGHT, PLAN_DISTANCE = "right", "distance to the plan"


@dataclass(frozen=True)
class Seen:
    """What a model does with N sentence pairs, as sums over a sentence's gold pairs and as means over its words.

    pairs [N].   right [N, readings, layers], transport [N] : gold pairs at rank 1, in attention and in the plan.
    distance [N, readings, layers], uniform [N] : total variation to the plan, of attention and of a uniform matrix.
    share [N, readings, layers] : of a word's attention, what goes to words of the other sentence.
    """

    pairs: Array
    right: Array
    transport: Array
    distance: Array
    uniform: Array
    share: Array


def attention(reading: Reading, name: str) -> Array:
    """[layers, m, n], mean over heads, rows scaled to sum to one."""
    A = reading.matrices[name].astype(float).mean(1) + 1e-30
    return np.asarray(A / A.sum(-1, keepdims=True))


def plan(reading: Reading) -> Array:
    """The entropic plan [m, n] of the states after the first layer, unit vectors; mass 1."""
    return embedding_plan(reading.states["target"][FIRST], reading.states["source"][FIRST], REG)


def exact(reading: Reading) -> list[Link]:
    """The permutation of equation (1): pairs (source, target) of least total squared distance."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    cost = cdist(reading.states["target"][FIRST], reading.states["source"][FIRST], "sqeuclidean")
    return sorted((int(i), int(j)) for j, i in zip(*linear_sum_assignment(cost), strict=True))


def see(model: Model, given: Corpus, context: Context) -> Seen:
    """All layers and both readings on a corpus; sentences longer than the model allows, or without gold, are left out."""
    kept = []
    for number, reading in enumerate(read(model, given.pairs, by=given.by, states=True), 1):
        gold = given.gold[number - 1]
        if reading.whole and gold:
            kept.append(_see_one(reading, gold))
        if number % 20 == 0:
            context.progress(0.95 * number / len(given.pairs))
    if not kept:
        raise ValueError(f"no sentence pair of {given.label} has gold pairs and is short enough for {model.name}")
    return Seen(*(np.stack(values) for values in zip(*kept, strict=True)))


def _see_one(reading: Reading, gold: list[Link]) -> tuple[Any, ...]:
    P = plan(reading)
    A = np.stack([attention(reading, name) for name in ORIENTATIONS])  # [readings, layers, m, n]
    near = likeness(A, P)
    given = [reading.matrices[name].mean(1).sum(_attended(name)).mean(-1) for name in ORIENTATIONS]
    right = (ranks(A, gold) == 1).sum(-1)
    return len(gold), right, int((ranks(P, gold) == 1).sum()), near.distance, near.uniform, np.stack(given)


def _attended(name: str) -> int:
    """The axis of a matrix [.., m, n] along which a word's attention adds up."""
    return -1 if name == "target-source" else -2


def table(label: str, seen: Seen, seed: int) -> list[Row]:
    """A line for every reading and layer, one for transport and one for a uniform matrix: right over all gold pairs, the
    other means over sentences."""
    each = np.ones(len(seen.pairs))
    count = {"pairs of sentences": len(each), "gold pairs": int(seen.pairs.sum())}

    def line(what: str, layer: int | None, right: Array | None, distance: Array, share: Array | None) -> Row:
        row: Row = {"sentences": label, "what": what, "layer": layer, **count}
        row |= _columns(RIGHT, None if right is None else _ratio(right, seen.pairs, seed))
        row |= _columns(PLAN_DISTANCE, _ratio(distance, each, seed))
        return row | {"share to the other sentence": None if share is None else float(share.mean())}

    rows = [
        line(reading, k + 1, seen.right[:, r, k], seen.distance[:, r, k], seen.share[:, r, k])
        for r, reading in enumerate(ORIENTATIONS)
        for k in range(seen.right.shape[-1])
    ]
    return [*rows, line(OT, None, seen.transport, 0 * each, None), line(UNIFORM, None, None, seen.uniform, None)]


Interval = tuple[float, float | None, float | None]


def _ratio(parts: Array, wholes: Array, seed: int) -> Interval:
    """`ratio`; one sentence has no interval."""
    found = ratio(parts, wholes, seed=seed)
    return found if len(parts) > 1 else (found[0], None, None)


def _columns(name: str, found: Interval | None) -> Row:
    return dict(zip((name, f"{name}, low", f"{name}, high"), found or (None, None, None), strict=True))
