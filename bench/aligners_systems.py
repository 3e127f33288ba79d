"""The systems of the comparison: what each answers for the three sets, under every setting it may choose.

A system is trained once, with what it takes to be trained; `Choices` maps a setting, in words, to a function from the number
of a set (0 the examples, 1 news, 2 the gold) to the links of its words. The caller tries all settings on the first two.
"""

from __future__ import annotations

import itertools
import pickle
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from aligners_text import Set, word_links

from otformer.files import written
from otformer.words.align.aligners import Aligner, join, links, similarity, symmetrise
from otformer.words.align.bilingual import VectorRecipe, train_vectors
from otformer.words.align.hmm import model as ibm
from otformer.words.align.hmm.word_parts import parts_to_words
from otformer.words.align.methods import method
from otformer.words.text.gold import Link, Links
from otformer.words.text.training_text import TokenPair

Choices = dict[str, Callable[[int], list[Links]]]
Matrices = list[list[Any]]  # for every set, a matrix [m, n] of words for every sentence pair
Directions = tuple[Matrices, Matrices]  # source → target and target → source, all [m, n]
NULLS = [1.5, 2.0, 3.0, 4.0, 5.0]  # of `joined_choices`
RULES = ("intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and")


def checksum(folder: Path) -> int:
    """Of the weights of a model: another one in the same place is another."""
    return zlib.crc32((folder / "model.safetensors").read_bytes())


class Trained:
    """What a system learned, made when it is first asked for, and the seconds that took; several systems may share it.

    With a folder it is kept there, under a name and a checksum of what it was made from, for a run that goes on.
    """

    def __init__(self, make: Callable[..., Any], *given: Any, keep: tuple[Path, str] | None = None) -> None:
        self.make, self.given, self.keep, self.seconds = make, given, keep, 0.0

    @cached_property
    def value(self) -> Any:
        if self.keep is None:
            return self._made()
        folder, name = self.keep
        key = repr(tuple(checksum(each) if isinstance(each, Path) else each for each in self.given))
        file = folder / f"{name}-{zlib.crc32(key.encode()):08x}.pkl"
        if file.exists():
            made, self.seconds = pickle.loads(file.read_bytes())
            return made
        print(f"making {name}", flush=True)
        made = self._made()
        folder.mkdir(parents=True, exist_ok=True)
        with written(file) as stream:
            pickle.dump((made, self.seconds), stream)
        return made

    def _made(self) -> Any:
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
    return [(s.parts, t.parts) for s, t in zip(which.source, which.target, strict=True)]


def all_to_words(matrices: Sequence[Any], which: Set) -> list[Any]:
    return [parts_to_words(*given) for given in zip(matrices, which.source, which.target, strict=True)]


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


def posteriors(training: Sequence[TokenPair], sets: Sequence[Set], settings: ibm.AlignmentSettings) -> Posteriors:
    model = ibm.train_model(training, settings)
    return [model.posteriors(pairs_of(which)) for which in sets]


def best_link_choices(sets: Sequence[Set], found: Posteriors) -> Choices:
    """Best links of each direction, made one by a rule: what fast_align and its atools do."""
    runs = [[(links(a, "target"), links(b, "source")) for a, b in zip(A, B, strict=True)] for A, B in found]
    return symmetrised(sets, runs)


# Ours


def vector_similarities(training: Sequence[TokenPair], sets: Sequence[Set]) -> Matrices:
    """Cosines of the static vectors of words/align/bilingual.py, trained on the same text."""
    source, target = train_vectors(training, VectorRecipe())
    out = []
    for which in sets:
        made = [similarity(source.embed(e), target.embed(f)) for e, f in pairs_of(which)]
        out.append(all_to_words(made, which))
    return out


def grid(how: str) -> Iterator[Aligner]:
    """The settings that a method of words/align/aligners.py may choose from."""
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
    """A method of words/align/aligners.py on similarities of words."""

    @cache
    def scores(without_rule: Aligner, number: int) -> list[Any]:
        return without_rule.scores(matrices[number])

    def answer(aligner: Aligner) -> Callable[[int], list[Links]]:
        bare = replace(aligner, rule="threshold", threshold=0.0)  # plans are the same for all rules
        return lambda number: [links(P, aligner.rule, aligner.threshold) for P in scores(bare, number)]

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

    @cache
    def plans(null: float, number: int) -> list[Any]:
        return join(forward[number], [np.asarray(B).T for B in backward[number]], null)

    def answer(null: float, threshold: float) -> Callable[[int], list[Links]]:
        return lambda number: [links(P, "threshold", threshold) for P in plans(null, number)]

    values = itertools.product(NULLS, (0.1, 0.2, 0.3, 0.4, 0.5))
    return {f"> {t:g}, null {null:g}": answer(null, t) for null, t in values}


def shipped_choices(languages: str, sets: Sequence[Set], name: str) -> Choices:
    """A method of words/align/methods.py, as it ships."""
    way = method(name, languages)
    return {"as shipped": lambda number: [way.links(P) for P in way.scores(sets[number].words)]}


def shipped_directions(languages: str, sets: Sequence[Set], name: str) -> Directions:
    """What a method of words/align/methods.py joins, before it does."""
    way = method(name, languages)
    forward, backward = zip(*(way.directions(which.words) for which in sets), strict=True)
    return list(forward), list(backward)


def word_directions(sets: Sequence[Set], found: Posteriors) -> Directions:
    """Posteriors of pieces as matrices of words."""
    forward, backward = ([all_to_words(both[k], which) for both, which in zip(found, sets, strict=True)] for k in (0, 1))
    return forward, backward


def mean(*directions: Directions) -> Directions:
    """The mean of several such matrices."""

    def side(matrices: Sequence[Matrices]) -> Matrices:
        return [[np.mean(same, axis=0) for same in zip(*of_set, strict=True)] for of_set in zip(*matrices, strict=True)]

    return side([d[0] for d in directions]), side([d[1] for d in directions])


def mean_choices(*directions: Directions) -> Choices:
    """Their mean, joined by transport."""
    return joined_choices(mean(*directions))
