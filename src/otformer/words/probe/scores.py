"""How well a matrix finds translated words, and how near it is to a transport plan.

Matrices have the target words as rows and the source words as columns, as in the paper (French rows, English columns); pairs
are (i, j) with i the source word and j the target word, as in Pharaoh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from otformer import checks
from otformer.statistics import Array, ratio
from otformer.transport.solve import solve_sample

TIE = 1e-9  # entries this near, relative to the gold pair's, are tied


def ranks(matrix: Any, pairs: Sequence[tuple[int, int]], ties: str = "best") -> Array:
    """Ranks of the gold pairs in matrices A [..., m, n], whole numbers [..., pairs] (the paper, section 4.1):

        rank(e_i, f_j) = 1 + |{e' : A[f_j, e'] > A[f_j, e_i]}|

    As the paper's ">" is strict, a tie goes to the gold word, and a constant matrix has rank 1 everywhere. ties = "worst"
    counts "≥" over the other words instead: where the two differ, ties decide the score. Entries within 1e-9 of each other
    (relative) are tied: a word that stands there twice has one vector, and rounding must not choose between its places.
    Source words with nan compete with nobody.

    >>> ranks([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]], [(0, 0), (2, 0), (1, 1)]).tolist()
    [1, 3, 1]
    >>> ranks([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]], [(1, 1)], ties="worst").tolist()
    [2]
    """
    checks.choice("ties", ties, ("best", "worst"))
    A = _array("matrix", matrix)
    m, n = A.shape[-2:]
    for i, j in pairs:
        if not (0 <= i < n and 0 <= j < m):
            raise checks.ArgumentError("pairs", f"have source word < {n} and target word < {m}", (i, j))
    source, target = (np.array([pair[side] for pair in pairs], dtype=int) for side in (0, 1))
    rows = A[..., target, :]  # [..., pairs, n]
    right = np.take_along_axis(rows, np.broadcast_to(source[:, None], (*rows.shape[:-1], 1)), -1)
    if not np.isfinite(right).all():
        pair = pairs[np.argwhere(~np.isfinite(right))[0][-2]]
        raise checks.ArgumentError("matrix", "be finite at gold pairs", f"nan or inf at {tuple(pair)}", "a lost word?")
    margin = TIE * np.abs(right)
    return (rows > right + margin).sum(-1) + 1 if ties == "best" else (rows >= right - margin).sum(-1)


def sentence_scores(ranks: Any, at: Sequence[int] = (1, 3)) -> Array:
    """MRR and Hits@k for each k of ``at``, of one sentence's ranks [..., pairs]: [..., 1 + len(at)]; nan without pairs.

        MRR = 1/|G| Σ_G 1/rank,      Hits@k = 1/|G| Σ_G 1{rank ≤ k}

    >>> sentence_scores([1, 2, 4, 4]).tolist()
    [0.5, 0.25, 0.5]
    """
    r = np.asarray(ranks, dtype=float)
    if r.size and not r.min() >= 1:
        raise checks.ArgumentError("ranks", "be at least 1", f"{r.min():g}")
    if not r.shape[-1]:
        return np.full((*r.shape[:-1], 1 + len(at)), np.nan)
    return np.stack([(1 / r).mean(-1), *((r <= checks.count("at", k)).mean(-1) for k in at)], axis=-1)


@dataclass(frozen=True)
class Estimate:
    """A score over a corpus; numbers, or arrays [...] for values [N, ...].

    mean : mean over sentences, with ``interval``, its bootstrap interval.   std : standard deviation across sentences (that
    of the sample, divided by N), the paper's error bars.   pooled : mean over all pairs of all sentences, with
    ``pooled_interval``; sentences, not pairs, are drawn for it, since pairs of one sentence go together.
    """

    mean: Any
    std: Any
    interval: tuple[Any, Any]
    pooled: Any
    pooled_interval: tuple[Any, Any]
    sentences: int
    pairs: int


def estimate(values: Any, pairs: Any, level: float = 0.95, draws: int = 1000, seed: int = 0) -> Estimate:
    """The `Estimate` of scores, from their values for each sentence [N, ...] and its number of gold pairs [N]; sentences
    without pairs are left out.

    >>> e = estimate([1.0, 0.0, float("nan")], [1, 3, 0])
    >>> e.mean, e.std, e.pooled, e.sentences, e.pairs
    (0.5, 0.5, 0.25, 2, 4)
    """
    value, weight = np.asarray(values, dtype=float), np.asarray(pairs, dtype=np.int64)
    if value.shape[:1] != weight.shape:
        raise checks.ArgumentError("values and pairs", "have shapes (N, ...) and (N,)", f"{value.shape} and {weight.shape}")
    value, weight = value[weight > 0], weight[weight > 0]
    if not len(value):
        raise checks.ArgumentError("pairs", "not be 0 in every sentence", f"{len(pairs)} sentences without gold pairs")
    if not np.isfinite(value).all():
        raise checks.ArgumentError("values", "be finite where a sentence has pairs", "nan or inf")
    drawing = level, draws, seed
    mean, *interval = ratio(value, np.ones(len(value)), *drawing)
    pooled, *pooled_interval = ratio((value.T * weight).T, weight, *drawing)
    std = value.std(0) if value.ndim > 1 else float(value.std())
    return Estimate(mean, std, tuple(interval), pooled, tuple(pooled_interval), len(value), int(weight.sum()))


class Likeness(NamedTuple):
    """A matrix A [m, n] beside a plan P [m, n], both scaled to mass 1; numbers, or arrays [...] for matrices [..., m, n].

    distance : ½ Σ |A_ij − P_ij|, total variation: 0 (A is the plan) to 1 (nothing in common).
    uniform : the same for A_ij = 1/(mn); uniform attention has this distance.
    marginal_error : Σ_i |A_i· − P_i·| + Σ_j |A_·j − P_·j|; a softmax has its row sums right, so this is what columns lack.
    row_entropy : −Σ A_ij log(A_ij / A_i·) / log n, how much a row spreads: 0 (one word each) to 1 (uniform rows).
    column_entropy : the same for columns, with log m.
    """

    distance: Any
    uniform: Any
    marginal_error: Any
    row_entropy: Any
    column_entropy: Any


def embedding_plan(target: Any, source: Any, reg: float = 0.05, tol: float = 1e-6, unit: bool = True) -> Array:
    """The entropic plan [m, n] between word vectors target [m, d] and source [n, d], of uniform weights and mass 1.

    Cost ‖x − y‖² (not half of it) of vectors scaled to length 1 (unless ``unit`` is off), which is 2 − 2 cos; the plan for
    cost 1 − cos and reg is ours for 2 reg. The paper (section 4.2): unit vectors, λ = 0.05.

    >>> embedding_plan([[2.0, 0.0], [0.0, 1.0]], [[0.0, 3.0], [1.0, 0.0]]).round(3).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    y, x = _vectors("target", target, unit), _vectors("source", source, unit)
    return np.asarray(solve_sample(y, x, reg=reg, tol=tol).plan)


def _vectors(name: str, value: Any, unit: bool) -> Array:
    x = _array(name, value).astype(float)
    if not np.isfinite(x).all():
        raise checks.ArgumentError(name, "be finite", "nan or inf", "a word without subwords?")
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    if unit and not length.all():
        raise checks.ArgumentError(name, "not have vectors of length 0", f"one in row {int(length.argmin())}")
    return x / length if unit else x


def likeness(matrix: Any, plan: Any) -> Likeness:
    """How near an attention matrix [..., m, n] is to a plan [..., m, n], of its own embeddings for instance.

    >>> P = embedding_plan([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    >>> l = likeness([[1.0, 0.0], [1.0, 0.0]], P)        # both rows at the first word
    >>> round(l.distance, 3), round(l.uniform, 3), round(l.marginal_error, 3), l.row_entropy, l.column_entropy
    (0.5, 0.5, 1.0, 0.0, 1.0)
    """
    A, P = _mass_one("matrix", matrix), _mass_one("plan", plan)
    if A.shape[-2:] != P.shape[-2:]:
        raise checks.ArgumentError("matrix and plan", "have the same rows and columns", f"{A.shape} and {P.shape}")
    m, n = A.shape[-2:]
    sides = [np.abs(A.sum(axis) - P.sum(axis)).sum(-1) for axis in (-1, -2)]
    parts = (
        0.5 * np.abs(A - P).sum((-1, -2)),
        0.5 * np.abs(1 / (m * n) - P).sum((-1, -2)),
        sides[0] + sides[1],
        _spread(A, -1),
        _spread(A, -2),
    )
    return Likeness(*(part if part.ndim else float(part) for part in map(np.asarray, parts)))


def _spread(A: Array, axis: int) -> Array:
    """Entropy of the other index given the one that stays, over its largest value; 0 where there is nothing to choose."""
    if A.shape[axis] == 1:
        return np.zeros(A.shape[:-2])
    sums = np.broadcast_to(A.sum(axis, keepdims=True), A.shape)
    logs = np.log(np.divide(A, sums, out=np.ones_like(A), where=A > 0))
    return np.asarray(-(A * logs).sum((-1, -2)) / np.log(A.shape[axis]) + 0.0)  # + 0.0: no −0


def _mass_one(name: str, value: Any) -> Array:
    A = _array(name, value).astype(float)
    if not A.size or not np.isfinite(A).all() or (A < 0).any():
        raise checks.ArgumentError(name, "have words and entries that are finite and not negative", f"shape {A.shape}")
    mass = A.sum((-1, -2), keepdims=True)
    if not mass.all():
        raise checks.ArgumentError(name, "have mass", "only zeros")
    return np.asarray(A / mass)


def _array(name: str, value: Any) -> Array:
    """A numpy array with rows and columns; tensors of any kind and device will do."""
    array = value.detach().double().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.ndim < 2 or array.dtype.kind not in "fiub":
        raise checks.ArgumentError(name, "be numbers in rows and columns", f"shape {array.shape} of {array.dtype}")
    return array
