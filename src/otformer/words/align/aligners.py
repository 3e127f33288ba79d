r"""Word aligners: from similarities of a sentence pair to a matrix of scores, and from scores to links.

Matrices have the target words as rows and the source words as columns; links are Pharaoh's (i, j), source word i with target
word j. Functions take a list of sentence pairs, each as cosines S [m, n] of word vectors (`similarity`), or as attention.

`match` turns similarities into scores, for a cost C = 2 − 2 S, the squared distance of unit vectors, and λ = ``reg``:

    similarity   S itself: nearest neighbours
    agreement    softmax over rows · softmax over columns of −C/λ: both sides choose
    transport    the entropic plan: every word gives and takes its whole weight
    exact        the assignment of most similarity, min(m, n) links, by scipy
    unbalanced   a plan whose marginals are only asked for, with strength ρ = ``strength``: words may stay alone
    null         a plan with a null word on each side that takes or gives any number of words at cost ``null`` each

Plans are for weights of 1 per word on the longer side (and max/min on the shorter), so that a score is the share of a word
that goes to another, 0 to 1. `links` turns scores into pairs, by choice in one or both directions or by a threshold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from otformer import checks
from otformer.transport.ragged.batch import solve_batch
from otformer.transport.variants.unbalanced import solve_unbalanced
from otformer.words.align.vectors import Array, as_unit
from otformer.words.text.gold import Link, Links

MATCHES = ("similarity", "agreement", "transport", "exact", "unbalanced", "null")
LONG = 50  # words per sentence from which on the null word becomes no dearer, see `_with_null`
RULES = ("source", "target", "intersection", "union", "grow-diag", "grow-diag-final", "threshold")


def similarity(source: Any, target: Any) -> Array:
    """Cosines [m, n] of target [m, d] and source vectors [n, d].

    >>> similarity([[1.0, 0.0]], [[2.0, 0.0], [0.0, 1.0]]).tolist()
    [[1.0], [0.0]]
    """
    x, y = (_matrix(name, t) for name, t in (("source", source), ("target", target)))
    if x.shape[1] != y.shape[1]:
        raise checks.ArgumentError("source and target", "have vectors of one length", f"{x.shape[1]} and {y.shape[1]}")
    return np.asarray(as_unit(y) @ as_unit(x).T)


def off_diagonal(m: int, n: int) -> Array:
    """The distance of target word j and source word i from the diagonal, |(i + ½)/n − (j + ½)/m|: [m, n]."""
    return np.asarray(np.abs((np.arange(n) + 0.5) / max(n, 1) - (np.arange(m)[:, None] + 0.5) / max(m, 1)))


def match(
    similarities: Iterable[Any], how: str = "transport", reg: float = 0.1, strength: float = 0.5, null: float = 1.0
) -> list[Array]:
    """Scores [m, n] of every sentence pair, see the head of this file; λ = reg, ρ = strength, null the cost of no partner.

    >>> S = [[0.9, 0.1, 0.0], [0.8, 0.7, 0.0]]
    >>> match([S], "transport")[0].round(2).tolist()     # the third source word must go somewhere
    [[0.91, 0.0, 0.59], [0.09, 1.0, 0.41]]
    >>> match([S], "null")[0].round(2).tolist()
    [[0.99, 0.0, 0.0], [0.01, 0.99, 0.0]]
    """
    checks.choice("how", how, MATCHES)
    reg, strength, null = checks.positive("reg", reg), checks.positive("strength", strength), checks.positive("null", null)
    given = [_matrix("similarities", S) for S in similarities]
    if how == "similarity":
        return given
    costs = [2 - 2 * S for S in given]
    if how in ("transport", "null"):
        return _plans(costs, reg, null if how == "null" else None)
    return [_match(C, how, reg, strength) if C.size else np.zeros(C.shape) for C in costs]


def _match(C: Array, how: str, reg: float, strength: float) -> Array:
    from scipy.optimize import linear_sum_assignment
    from scipy.special import softmax

    if how == "agreement":
        return np.asarray(softmax(-C / reg, axis=1) * softmax(-C / reg, axis=0))
    if how == "unbalanced":
        return np.asarray(solve_unbalanced(C, *_weights(*C.shape), reg=reg, reg_m=strength, tol=1e-3).plan)
    assigned = np.zeros(C.shape)
    assigned[linear_sum_assignment(C)] = 1
    return assigned


def _weights(m: int, n: int) -> tuple[Array, Array]:
    """Weights of 1 per word on the longer side, and of the same sum on the shorter."""
    return np.full(m, max(m, n) / m), np.full(n, max(m, n) / n)


def _plans(costs: list[Array], reg: float, null: float | None) -> list[Array]:
    """The entropic plan of every cost, with a null word on each side where ``null`` is its cost; zeros of empty costs."""
    full = [C for C in costs if C.size]
    problems = [(C, *_weights(*C.shape)) if null is None else _with_null(C, reg, null) for C in full]
    plans = (r.plan[: len(C), : len(C.T)] for C, r in zip(full, solve_batch(problems, reg=reg), strict=True))
    return [next(plans) if C.size else np.zeros(C.shape) for C in costs]


def _with_null(C: Array, reg: float, null: float) -> tuple[Array, Array, Array]:
    """The problem with a null word on each side, whose mass is enough for all words of the other; words have mass 1.

    What the null words do not need they give each other, with weight K₀₀ in the kernel. For n words of which each has one
    partner that fits perfectly, and k = exp(−null/λ), the scalings x of words and X of null words are those of

        x² + k x X = 1,      k n x X + K₀₀ X² = n,      so that a link has the score x² = 1/(1 + k √(n/K₀₀)).

    With K₀₀ = 1, null to null being free, links ask for more the longer the sentences are. Settings are chosen on sentences
    of up to LONG words; from there on K₀₀ = √(n m)/LONG, and the null word stays as dear as it is there.
    """
    m, n = C.shape
    wide = np.full((m + 1, n + 1), null)
    wide[:m, :n], wide[m, n] = C, -reg * max(np.log(m * n) / 2 - np.log(LONG), 0.0)
    return wide, np.append(np.ones(m), n), np.append(np.ones(n), m)


def join(forward: Iterable[Any], backward: Iterable[Any], null: float | None = None) -> list[Array]:
    """Attention of two directions joined by transport: scores [m, n].

    forward A [m, n]: rows are target words, from a source → target model; backward B [n, m], from a target → source one.
    The joined matrix is K = √(A ∘ Bᵀ), scaled to the marginals of `match`: the plan for the cost −log K and λ = 1. With
    ``null`` a word may stay alone at that cost.

    >>> A, B = np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([[0.8, 0.2], [0.1, 0.9]])
    >>> join([A], [B])[0].round(2).tolist()
    [[0.79, 0.21], [0.21, 0.79]]
    """
    costs = []
    for one, other in zip(forward, backward, strict=True):
        A, B = _matrix("forward", one), _matrix("backward", other)
        if A.shape != B.T.shape:
            raise checks.ArgumentError("forward and backward", "be (m, n) and (n, m)", f"{A.shape} and {B.shape}")
        costs.append(-0.5 * np.log(np.maximum(A, 1e-12) * np.maximum(B.T, 1e-12)))
    return _plans(costs, 1.0, None if null is None else checks.positive("null", null))


def links(scores: Any, rule: str = "intersection", threshold: float = 0.0) -> Links:
    """Links of one matrix of scores [m, n], using only entries above ``threshold``.

    source: every source word's best target word; target: every target word's best source word; intersection and union of
    the two; grow-diag: the intersection, and neighbours (diagonal ones too) in the union of which a word is still alone;
    grow-diag-final: then links of the union with a word still alone; threshold: all entries above it.

    >>> scores = [[0.9, 0.1, 0.0], [0.2, 0.3, 0.4]]
    >>> sorted(links(scores)), sorted(links(scores, "source"))
    ([(0, 0), (2, 1)], [(0, 0), (1, 1), (2, 1)])
    """
    checks.choice("rule", rule, RULES)
    P = _matrix("scores", scores)
    if not P.size:
        return frozenset()
    above = {(int(i), int(j)) for j, i in np.argwhere(threshold < P)}
    if rule == "threshold":
        return frozenset(above)
    by_source = {(i, int(j)) for i, j in enumerate(P.argmax(0))} & above
    by_target = {(int(i), j) for j, i in enumerate(P.argmax(1))} & above
    if rule in ("source", "target"):
        return frozenset(by_source if rule == "source" else by_target)
    return symmetrise(by_source, by_target, rule)


def symmetrise(first: Iterable[Link], second: Iterable[Link], rule: str = "grow-diag") -> Links:
    """Two alignments of a sentence pair made one: intersection, union, grow-diag or grow-diag-final (Koehn et al. 2003).

    >>> sorted(symmetrise({(0, 0), (1, 1)}, {(0, 0), (2, 1), (5, 5)}))
    [(0, 0), (1, 1), (2, 1)]
    """
    checks.choice("rule", rule, RULES[2:6])
    one, other = set(first), set(second)
    union, kept = one | other, one & other
    if rule in ("union", "intersection"):
        return frozenset(union if rule == "union" else kept)
    around = [(0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    grown = sorted(kept)
    for i, j in grown:  # grows while it is read
        grown += _add_alone(kept, [(i + di, j + dj) for di, dj in around if (i + di, j + dj) in union])
    if rule == "grow-diag-final":
        _add_alone(kept, [*sorted(one), *sorted(other)])
    return frozenset(kept)


def _add_alone(kept: set[Link], given: list[Link]) -> list[Link]:
    """Adds those links, one after the other, of which a word has no link yet, and says which."""
    added = []
    for link in given:
        if all(i != link[0] for i, _ in kept) or all(j != link[1] for _, j in kept):
            kept.add(link)
            added.append(link)
    return added


@dataclass(frozen=True)
class Aligner:
    """A way to align, as a value: similarities, less what is far from the diagonal, matched and made links.

    The defaults are the best of this method on the shipped examples (words/text/examples.py), in both language pairs.

    >>> Aligner("exact", diagonal=0.0)([[[0.9, 0.8], [0.8, 0.1]]])
    [frozenset({(1, 0), (0, 1)})]
    """

    how: str = "transport"
    rule: str = "threshold"
    threshold: float = 0.5
    diagonal: float = 0.5
    reg: float = 0.2
    strength: float = 0.5
    null: float = 1.0

    def scores(self, similarities: Iterable[Any]) -> list[Array]:
        """Scores [m, n] of every sentence pair."""
        given = [_matrix("similarities", S) for S in similarities]
        near = [S - self.diagonal * off_diagonal(*S.shape) for S in given]  # translations keep some order
        return match(near, self.how, self.reg, self.strength, self.null)

    def __call__(self, similarities: Iterable[Any]) -> list[Links]:
        """Links of every sentence pair, in order; empty for an empty sentence."""
        return [links(P, self.rule, self.threshold) for P in self.scores(similarities)]


def _matrix(name: str, value: Any) -> Array:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim != 2:
        raise checks.ArgumentError(name, "have rows and columns", f"shape {array.shape}")
    if not np.isfinite(array).all():
        raise checks.ArgumentError(name, "be finite", "nan or inf")
    return array
