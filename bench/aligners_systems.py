"""The systems of the comparison: what each answers for the examples and for a gold set, under every setting it may choose.

A system is trained once, with what it takes to be trained; `Choices` maps a setting, in words, to a function from the number
of a set (0 the examples, 1 the gold) to the links of its words. The caller tries all settings on the examples alone.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from aligners_text import Set, word_links

from otformer.words import ibm
from otformer.words.aligners import Aligner, join, links, similarity, symmetrise
from otformer.words.bilingual import Recipe, TokenPair, train_vectors
from otformer.words.gold import Link, Links

Choices = dict[str, Callable[[int], list[Links]]]
Matrices = list[list[Any]]  # for every set, a matrix [m, n] of words for every sentence pair
Directions = tuple[Matrices, Matrices]  # source → target and target → source, all [m, n]
RULES = ("intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and")


class Trained:
    """What a system learned, made when it is first asked for, and the seconds that took; several systems may share it."""

    def __init__(self, make: Callable[..., Any], *given: Any) -> None:
        self.make, self.given, self.seconds = make, given, 0.0

    @cached_property
    def value(self) -> Any:
        start = time.perf_counter()
        made = self.make(*self.given)
        self.seconds = time.perf_counter() - start
        return made


class Together:
    """Several things learned, as one."""

    def __init__(self, *parts: Trained | Together) -> None:
        self.parts = parts

    @property
    def value(self) -> list[Any]:
        return [part.value for part in self.parts]

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)


class System(NamedTuple):
    """A name, whether the gold set's own sentences were part of its training text, what it learned, the choices it has with
    that, and why it is missing, if it is."""

    name: str
    sees_text: bool
    trained: Trained | Together
    choices: Callable[[Any], Choices]
    missing: Callable[[], str | None] = lambda: None


def pairs_of(which: Set) -> list[TokenPair]:
    return [(s.pieces, t.pieces) for s, t in zip(which.source, which.target, strict=True)]


def to_words(matrix: Any, k: int, which: Set) -> Any:
    """[m, n] of words from one of pieces: the largest of a word's pieces."""
    source, target = which.source[k].owner, which.target[k].owner
    out = np.full((max(target, default=-1) + 1, max(source, default=-1) + 1), -np.inf)
    np.maximum.at(out, (np.array(target, int)[:, None], np.array(source, int)[None, :]), matrix)
    return out


def all_to_words(matrices: Sequence[Any], which: Set) -> list[Any]:
    return [to_words(matrix, k, which) for k, matrix in enumerate(matrices)]


# Peers


def symmetrised(sets: Sequence[Set], runs: Sequence[Sequence[tuple[Links, Links]]]) -> Choices:
    """Links of pieces in both directions, for every sentence pair of every set, made one by a rule."""

    def answer(rule: str) -> Callable[[int], list[Links]]:
        def of(number: int) -> list[Links]:
            which = sets[number]
            joined = [merge(forward, reverse, rule) for forward, reverse in runs[number]]
            return [word_links(found, s, t) for found, s, t in zip(joined, which.source, which.target, strict=True)]

        return of

    return {rule: answer(rule) for rule in RULES}


def merge(first: Links, second: Links, rule: str) -> Links:
    """`symmetrise`, and grow-diag-final-and: last come links of which *both* words are still alone."""
    if rule != "grow-diag-final-and":
        return symmetrise(first, second, rule)
    kept = set(symmetrise(first, second, "grow-diag"))
    for i, j in (*sorted(first), *sorted(second)):
        if all(i != a and j != b for a, b in kept):
            kept.add((i, j))
    return frozenset(kept)


def simalign_missing() -> str | None:
    try:
        from simalign import SentenceAligner  # noqa: F401
    except Exception as error:  # its own imports may fail in many ways
        return f"not installed ({error})"
    return None


def simalign_choices(method: str, matrices: Matrices) -> Choices:
    """SimAlign's argmax, itermax or match, by its own functions, on (S + 1)/2, with its distortion."""
    from simalign import SentenceAligner as Peer

    def one(S: Any, distortion: float) -> frozenset[Link]:
        if not S.size:
            return frozenset()
        sim = Peer.apply_distortion((S.T + 1) / 2, distortion)  # its rows are source words
        forward, backward = Peer.get_alignment_matrix(sim)
        made = {"argmax": lambda: forward * backward, "itermax": lambda: Peer.iter_max(sim)}
        found = made.get(method, lambda: Peer.get_max_weight_match(sim))()
        return frozenset((int(i), int(j)) for i, j in np.argwhere(found > 0))

    def answer(distortion: float) -> Callable[[int], list[Links]]:
        return lambda number: [one(np.asarray(S), distortion) for S in matrices[number]]

    return {f"distortion {d:g}": answer(d) for d in (0.0, 0.25, 0.5, 1.0)}


Posteriors = list[tuple[list[Any], list[Any]]]  # of the pieces of every set, both directions


def posteriors(training: Sequence[TokenPair], sets: Sequence[Set], settings: ibm.Settings) -> Posteriors:
    model = ibm.train(training, settings)
    return [model.posteriors(pairs_of(which)) for which in sets]


def best_link_choices(sets: Sequence[Set], found: Posteriors) -> Choices:
    """Best links of each direction, made one by a rule: what fast_align and its atools do."""
    runs = [[(links(a, "target"), links(b, "source")) for a, b in zip(A, B, strict=True)] for A, B in found]
    return symmetrised(sets, runs)


# Ours


def vector_similarities(training: Sequence[TokenPair], sets: Sequence[Set]) -> Matrices:
    """Cosines of the static vectors of words/bilingual.py, trained on the same text."""
    source, target = train_vectors(training, Recipe())
    out = []
    for which in sets:
        made = [similarity(source.embed(e), target.embed(f)) for e, f in pairs_of(which)]
        out.append(all_to_words(made, which))
    return out


def grid(how: str) -> Iterator[Aligner]:
    """The settings that a method of words/aligners.py may choose from."""
    diagonals = (0.0, 0.25, 0.5, 1.0)
    if how == "exact":
        yield from (Aligner(how, diagonal=d) for d in diagonals)
    elif how == "similarity":
        rules = [(rule, 0.0) for rule in ("intersection", "grow-diag")] + [("threshold", t) for t in (0.2, 0.3, 0.4, 0.5)]
        yield from (Aligner(how, rule, t, d) for (rule, t), d in itertools.product(rules, diagonals))
    elif how == "agreement":
        values = itertools.product((0.05, 0.1, 0.2, 0.3), (0.05, 0.1, 0.2, 0.3), diagonals[1:])
        yield from (Aligner(how, "threshold", t, d, reg=reg) for reg, t, d in values)
    else:
        extra: dict[str, list[dict[str, float]]] = {
            "transport": [{}],
            "unbalanced": [{"strength": s} for s in (0.2, 0.5, 1.0)],
            "null": [{"null": v} for v in (0.6, 1.0, 1.4)],
        }
        values = itertools.product((0.1, 0.2), (0.2, 0.3, 0.4, 0.5), (0.25, 0.5, 1.0), extra[how])
        yield from (Aligner(how, "threshold", t, d, reg=reg, **more) for reg, t, d, more in values)


def our_choices(how: str, matrices: Matrices) -> Choices:
    """A method of words/aligners.py on similarities of words."""

    def answer(aligner: Aligner) -> Callable[[int], list[Links]]:
        return lambda number: aligner(matrices[number])

    used = {"transport": "", "unbalanced": "strength", "null": "null"}.get(how, "")
    out = {}
    for aligner in grid(how):
        parts = [aligner.rule if aligner.rule != "threshold" else f"> {aligner.threshold:g}"] if how != "exact" else []
        parts.append(f"diagonal {aligner.diagonal:g}")
        parts += [f"λ {aligner.reg:g}"] if how not in ("exact", "similarity") else []
        parts += [f"{used} {getattr(aligner, used):g}"] if used else []
        out[", ".join(parts)] = answer(aligner)
    return out


def joined_choices(directions: Directions) -> Choices:
    """Two directions, matrices [m, n] both, joined by transport with a null word, links above a threshold."""
    forward, backward = directions

    def answer(null: float, threshold: float) -> Callable[[int], list[Links]]:
        def of(number: int) -> list[Links]:
            plans = join(forward[number], [np.asarray(B).T for B in backward[number]], null)
            return [links(P, "threshold", threshold) for P in plans]

        return of

    values = itertools.product((1.5, 2.0, 3.0, 4.0, 5.0), (0.1, 0.2, 0.3, 0.4, 0.5))
    return {f"> {t:g}, null {null:g}": answer(null, t) for null, t in values}


def word_directions(sets: Sequence[Set], found: Posteriors) -> Directions:
    """Posteriors of pieces as matrices of words."""
    forward, backward = ([all_to_words(both[k], which) for both, which in zip(found, sets, strict=True)] for k in (0, 1))
    return forward, backward


def mean_choices(*directions: Directions) -> Choices:
    """The mean of several such matrices, joined by transport."""

    def mean(side: Sequence[Matrices]) -> Matrices:
        return [[np.mean(same, axis=0) for same in zip(*of_set, strict=True)] for of_set in zip(*side, strict=True)]

    return joined_choices((mean([d[0] for d in directions]), mean([d[1] for d in directions])))


# Matrices made elsewhere: hidden states, attention


def read_matrices(file: Path, sets: Sequence[Set]) -> list[Matrices]:
    """Matrices of words from an npz with entries ``examples/0``, ``gold/0``, … [m, n] (similarities; one list is returned),
    or ``examples/forward/0``, ``examples/backward/0``, … (two directions, both [m, n]; two lists are)."""
    arrays = np.load(file, allow_pickle=False)
    parts = ("/forward", "/backward") if "examples/forward/0" in arrays else ("",)
    out = []
    for part in parts:
        both: Matrices = []
        for name, which in zip(("examples", "gold"), sets, strict=True):
            both.append([arrays[f"{name}{part}/{k}"] for k in range(len(which.gold))])
            for k, (S, e, f) in enumerate(zip(both[-1], which.source, which.target, strict=True)):
                shape = (max(f.owner, default=-1) + 1, max(e.owner, default=-1) + 1)
                if S.shape != shape:
                    raise ValueError(f"{file} {name}{part}/{k} must have shape {shape}, got {S.shape}")
        out.append(both)
    return out
