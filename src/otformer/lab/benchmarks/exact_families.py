"""The families of `otformer bench exact`: what is solved, and why it is hard.

All were written down before anything was tuned on them. Costs are squared Euclidean between points, or a matrix. Beside
those of `FAMILIES` there are as many as one likes: `drawn-17` stands for ten that seed 17 draws (exact_drawn.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from otformer import checks
from otformer.lab.benchmarks import exact_drawn
from otformer.lab.benchmarks.exact_problem import Problem
from otformer.lab.benchmarks.problems import Array, Points

Rng = np.random.Generator


class Family(NamedTuple):
    """``make``: n and a generator give a problem of about n points per side. ``hard``: a sentence says why it is."""

    make: Callable[[int, Rng], Problem]
    hard: str


def uniform(d: int) -> Callable[[int, Rng], Points]:
    """In the unit cube of d dimensions."""
    return lambda n, rng: (rng.random((n, d)), rng.random((n, d)))


def _clustered(n: int, rng: Rng) -> Points:
    """20 tight clusters → 15 others, in the unit cube."""
    sides = (rng.random((k, 3))[rng.integers(0, k, n)] + 0.02 * rng.standard_normal((n, 3)) for k in (20, 15))
    return next(sides), next(sides)


def _ring(n: int, rng: Rng) -> Points:
    """A Gaussian in the plane → a thin ring around it."""
    x, angle = 0.1 * rng.standard_normal((n, 2)), 2 * np.pi * rng.random(n)
    return x, np.column_stack([np.cos(angle), np.sin(angle)]) + 0.01 * rng.standard_normal((n, 2))


def _ties(n: int, rng: Rng) -> Points:
    """Points of a grid with about n places, several of them twice."""
    side = max(2, round(n ** (1 / 3)))
    return rng.integers(0, side, (n, 3)).astype(float), rng.integers(0, side, (n, 3)).astype(float)


def _halos(n: int, rng: Rng, count: int = 60) -> Points:
    """60 halos in space: their masses follow a power law, density falls with the square of the radius; y is later than x."""
    mass, centres = rng.pareto(1.0, count) + 0.05, rng.random((count, 3))
    radius, sides = 0.005 + 0.03 * rng.random(count), []
    for _ in range(2):
        which = rng.choice(count, n, p=mass / mass.sum())
        mass = mass * rng.lognormal(0, 0.7, count)
        centres = centres + 0.05 * rng.standard_normal((count, 3))
        far, turn = radius[which] / np.sqrt(rng.random(n) + 1e-3), rng.standard_normal((n, 3))
        sides.append(centres[which] + far[:, None] * turn / np.linalg.norm(turn, axis=1)[:, None])
    return sides[0], sides[1]


def _spiral(n: int, rng: Rng) -> Points:
    """An arm of three turns → the square around it."""
    t = 6 * np.pi * np.sqrt(rng.random(n))
    arm = np.column_stack([t * np.cos(t), t * np.sin(t)]) / 20 + 0.01 * rng.standard_normal((n, 2))
    return arm, 2 * rng.random((n, 2)) - 1


def _cauchy(n: int, rng: Rng) -> Points:
    return rng.standard_cauchy((n, 2)), rng.standard_cauchy((n, 2))


def _line(n: int, rng: Rng) -> Points:
    """A Gaussian in the plane → a straight line."""
    t = rng.random(n)
    return rng.standard_normal((n, 2)), np.column_stack([t, 2 * t + 1])


def _annulus(n: int, rng: Rng) -> Points:
    """A disk of radius 1 → an annulus of radius 9 to 10."""
    (t, s), r, q = 2 * np.pi * rng.random((2, n)), np.sqrt(rng.random(n)), 9 + rng.random(n)
    return np.column_stack([r * np.cos(t), r * np.sin(t)]), np.column_stack([q * np.cos(s), q * np.sin(s)])


def _images(n: int, rng: Rng) -> Problem:
    """Two images of s² ≈ n pixels, sums of eight Gaussian spots."""
    side = round(n**0.5)
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1).reshape(-1, 2) / side

    def density() -> Array:
        total = np.full(len(grid), 1e-3)
        for _ in range(8):
            height, centre, width = rng.random(), rng.random(2), 0.05 + 0.15 * rng.random()
            total += height * np.exp(-np.square(grid - centre).sum(1) / (2 * width**2))
        return total / total.sum()

    return Problem(grid, grid, density(), density())


def _random_weights(rng: Rng, n: int, least: float = 1e-3) -> Array:
    w = rng.random(n) + least
    return w / w.sum()


def _of_points(draw: Callable[[int, Rng], Points], hard: str) -> Family:
    return Family(lambda n, rng: Problem(*draw(n, rng)), hard)


def _of_costs(draw: Callable[[int, Rng], Array], hard: str) -> Family:
    return Family(lambda n, rng: Problem(M=draw(n, rng)), hard)


def _weighted(family: Family, hard: str, least: float = 1e-3) -> Family:
    """The family with random weights on both sides."""

    def make(n: int, rng: Rng) -> Problem:
        p = family.make(n, rng)
        a, b = (_random_weights(rng, k, least) for k in p.shape)
        return Problem(p.x, p.y, a, b, p.M, p.metric)

    return Family(make, hard)


_HALOS = _of_points(_halos, "Dense halos and thin tails; those that lost mass send it to others far away.")
_SPIRAL = _of_points(_spiral, "A curve fills an area, so mass leaves it on both sides and potentials are not smooth.")
_CAUCHY = _of_points(
    _cauchy, "A few points lie 1,000 times as far away as the rest, and their costs are a million times larger."
)
_INVERSE = _of_costs(lambda n, rng: 1 / (np.add.outer(np.arange(n), np.arange(n)) + 1.0), "")
_FIVE = _of_costs(lambda n, rng: rng.random((5, n))[rng.integers(0, 5, n)], "")
FAMILIES: dict[str, Family] = {
    "uniform-2d": _of_points(uniform(2), "The plain case; in the plane a pair has few candidates, but plans reach far."),
    "uniform-3d": _of_points(uniform(3), "The plain case."),
    "uniform-20d": _of_points(uniform(20), "All distances are alike, so no geometry says which pairs to leave out."),
    "clustered": _of_points(_clustered, "Most mass goes far, and near pairs alone allow no plan."),
    "ring": _of_points(_ring, "Prices change slowly, across all points."),
    "ties": _of_points(_ties, "Whole costs, and many optima."),
    "weights": _weighted(
        _of_points(uniform(3), ""), "Random weights on uniform points need a tree, not an assignment.", 0.0
    ),
    "halos": _HALOS,
    "halos-weights": _weighted(_HALOS, "Halos with random weights."),
    "spiral": _SPIRAL,
    "spiral-weights": _weighted(_SPIRAL, "The spiral with random weights."),
    "cauchy": _CAUCHY,
    "cauchy-weights": _weighted(_CAUCHY, "Heavy tails with random weights: far points are shared among many others."),
    "line": _of_points(_line, "The side across the line costs the same for all plans, so only one dimension matters."),
    "annulus": _of_points(_annulus, "All costs are large and nearly equal; only the angle matters."),
    "product": _of_costs(
        lambda n, rng: np.outer(np.arange(1.0, n + 1), np.arange(1.0, n + 1)),
        "The matrix i·j: the optimum is the other diagonal, far from where every row is cheapest.",
    ),
    "inverse-weights": _weighted(
        _INVERSE, "The matrix 1/(i+j+1), of low rank to rounding: most reduced costs are nearly 0."
    ),
    "zero-one": _of_costs(lambda n, rng: (rng.random((n, n)) < 0.5).astype(float), "Costs are 0 or 1: nothing but ties."),
    "five-rows-weights": _weighted(_FIVE, "Five distinct rows, given again and again: a tie in every pivot."),
    "images": Family(_images, "Densities on one grid: smooth weights over four orders of size, and whole costs."),
}


def family(name: str) -> Family:
    """The family of this name; drawn families have names like drawn-17-0."""
    if (place := exact_drawn.place(name)) is not None:
        drawn = exact_drawn.drawn(*place)
        return Family(drawn.make, drawn.words)
    checks.choice("families", name, FAMILIES)
    return FAMILIES[name]


def expanded(names: Sequence[str]) -> tuple[str, ...]:
    """Names of single families: drawn-17 gives drawn-17-0 to drawn-17-9.

    >>> expanded(["ring", "drawn-17"])[:3]
    ('ring', 'drawn-17-0', 'drawn-17-1')
    """
    found: list[str] = []
    for name in names:
        some = exact_drawn.expanded(name)
        if not some:
            checks.choice("families", name, (*FAMILIES, "drawn-17"))
        found += some or [name]
    return tuple(dict.fromkeys(found))


def order(name: str) -> tuple[int, ...]:
    """A sort key: families in the order of `FAMILIES`, then the drawn ones."""
    place = exact_drawn.place(name)
    return (list(FAMILIES).index(name),) if place is None else (len(FAMILIES), *place)


def make(name: str, n: int, seed: int = 0) -> Problem:
    """The problem of this family with about n points per side.

    >>> p = make("weights", 5)
    >>> p.x.shape, round(float(p.a.sum()), 6)
    ((5, 3), 1.0)
    """
    return family(name).make(n, np.random.default_rng([seed, *order(name), n]))
