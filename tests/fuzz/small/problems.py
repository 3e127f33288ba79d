"""Small problems of the benchmark's families and its grammar, with weights that are exact in float64 and of one sum."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fuzz.hard.draws import Case, one_of
from otformer.lab.benchmarks.exact_drawn import TEN, drawn
from otformer.lab.benchmarks.exact_families import FAMILIES as FIXED
from otformer.lab.benchmarks.exact_problem import Problem

FAMILIES = tuple(name for fixed in FIXED for name in (fixed, "drawn"))  # in turn: every second is of the grammar
BITS = (6, 6, 20, 40, 52)  # a weight is a whole multiple of 2 to the minus that; few bits make many partial sums equal


@dataclass
class Small:
    """A problem as the benchmark has it, and as the judge takes it: the costs as a matrix, and what was drawn."""

    problem: Problem
    words: str
    case: Case = field(init=False)

    def __post_init__(self) -> None:
        p = self.problem
        self.case = Case(p.rows(), p.a, p.b, np.zeros(p.shape, bool), [self.words])


def small(family: str, seed: int, most: int) -> Small:
    """The problem of a family and a seed, of 1 to ``most`` points a side."""
    rng = np.random.default_rng([sum(map(ord, family)), seed])
    n = int(rng.integers(2, most + 1))
    if family == "drawn":
        one = drawn(*divmod(seed, TEN))
        p, words = one.make(max(2, min(n, int(most / one.ratio))), rng), f"drawn-{seed // TEN}-{seed % TEN}: {one.words}"
    else:
        p, words = FIXED[family].make(n, rng), family
    p = fewer(p, rng, most)
    p, weighted = with_exact_weights(p, rng)
    return Small(p, f"{words} {p.shape[0]} × {p.shape[1]}, {weighted}")


def fewer(p: Problem, rng: np.random.Generator, most: int) -> Problem:
    """Some of the rows and columns: of every second problem any number, of the others what is above ``most``."""
    sizes = [min(k, most) if rng.random() < 0.5 else int(rng.integers(1, min(k, most) + 1)) for k in p.shape]
    i, j = (np.sort(rng.choice(k, size, replace=False)) for k, size in zip(p.shape, sizes, strict=True))
    a, b = (None if w is None else w[at] for w, at in ((p.a, i), (p.b, j)))
    if p.M is not None:
        return Problem(a=a, b=b, M=p.M[np.ix_(i, j)])
    x, y = p.points
    return Problem(x[i], y[j], a, b, metric=p.metric)


def with_exact_weights(p: Problem, rng: np.random.Generator) -> tuple[Problem, str]:
    """Weights rounded to whole multiples of a power of 2, so that both sums are equal without rounding; and words for it."""
    if p.a is None or p.b is None:
        return p, "equal weights"
    bits, scale = max(one_of(rng, BITS), max(p.shape).bit_length()), one_of(rng, (0, 0, 6, -40))
    a, b = (np.ldexp(whole(w, bits), scale - bits) for w in (p.a, p.b))
    return Problem(p.x, p.y, a, b, p.M, p.metric), f"weights of {bits} bits times 2^{scale}"


def whole(w: np.ndarray, bits: int) -> np.ndarray:
    """Whole numbers in proportion to w, of sum 2^bits; a weight that is positive gets 1 at least."""
    w = np.where(w.any(), w, 1.0)
    one = (w > 0).astype(float)
    units = one + np.floor(w / w.sum() * (2.0**bits - one.sum()))
    units[units.argmax()] += 2.0**bits - units.sum()
    return units
