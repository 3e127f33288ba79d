"""Recipes: everything that decides a training run but its seed. `otformer train --recipe NAME` runs one."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Literal

from otformer import checks
from otformer.learning.about import ABOUT
from otformer.learning.data import Problems
from otformer.learning.initialisation import ConstructionStart, GaussianStart, Start
from otformer.learning.model import Architecture
from otformer.learning.objectives import OBJECTIVES

_PAPER, _SEVEN, _GAUSSIAN = Architecture(), Problems(), GaussianStart()


@dataclass(frozen=True)
class Recipe:
    """One way of training.

    Parameters
    ----------
    samples : int, optional
        Size of a fixed training set; None draws new problems for every step.
    batch : int
        Problems per step; as many as ``samples``: the whole set in every step.
    decay : {"none", "cosine"}
        Whether the stepsize falls to 0 along half a cosine.
    clip : float, optional
        Largest Euclidean norm of a member's gradient.
    """

    name: str
    about: str
    architecture: Architecture = _PAPER
    problems: Problems = _SEVEN
    objective: Literal["sorted", "attention", "entropy"] = "attention"
    steps: int = 10_000
    rate: float = 1e-3
    decay: Literal["none", "cosine"] = "none"
    samples: int | None = 1_000
    batch: int = 100
    start: Start = _GAUSSIAN
    clip: float | None = None

    def __post_init__(self) -> None:
        checks.choice("objective", self.objective, OBJECTIVES)
        checks.choice("decay", self.decay, ("none", "cosine"))
        checks.count("steps", self.steps)
        checks.count("batch", self.batch)
        if self.samples is not None and self.samples < self.batch:
            raise ValueError(f"batch must not exceed the {self.samples} samples, got {self.batch}")
        if self.problems.dim != self.architecture.dim:
            raise ValueError(f"problems must have dim {self.architecture.dim}, got {self.problems.dim}")

    def rate_at(self, step: int) -> float:
        """Adam's stepsize at a step, counted from 0."""
        falling = self.decay == "cosine"
        return self.rate * (0.5 * (1 + math.cos(math.pi * step / self.steps)) if falling else 1.0)

    def to_json(self) -> str:
        """The recipe as text: what a checkpoint must agree with."""
        return json.dumps({**asdict(self), "start": repr(self.start)}, sort_keys=True)

    def up_to(self, largest: int) -> Recipe:
        """A short run of the same recipe (3,000 steps of 100 problems, of 20,000), never shown more than ``largest`` points.

        >>> recipe("sort-beyond").up_to(4).problems.sizes
        (2, 3, 4)
        """
        sizes = tuple(range(2, checks.count("largest", largest, least=2) + 1))
        return replace(
            self,
            name=f"{self.name}-{largest}",
            about=f"A short run of {self.name}: 3,000 steps on lists of at most {largest} points.",
            steps=3_000,
            batch=100,
            samples=20_000,
            problems=replace(self.problems, sizes=sizes),
        )


_UP_TO_7 = (2, 3, 4, 5, 6, 7)
_BEYOND = Recipe(
    "sort-beyond",
    ABOUT["sort-beyond"],
    Architecture(tied=True, written="memory", sink="frozen", temperature=True),
    Problems(("permutations", "values", "value-windows", "subsets"), _UP_TO_7),
    "entropy",
    rate=3e-2,
    decay="cosine",
    samples=100_000,
    batch=256,
    start=ConstructionStart(reg=0.05, noise=0.1),
    clip=1.0,
)
_ALL = (
    Recipe(
        "paper-sorted",
        ABOUT["paper-sorted"],
        objective="sorted",
    ),
    Recipe(
        "paper-attention",
        ABOUT["paper-attention"],
    ),
    Recipe(
        "paper-entropy",
        ABOUT["paper-entropy"],
        objective="entropy",
        steps=1_500,
        batch=1_000,
    ),
    Recipe(
        "paper-no-prompt",
        ABOUT["paper-no-prompt"],
        Architecture(prompt="plain"),
    ),
    Recipe(
        "paper-from-construction",
        ABOUT["paper-from-construction"],
        steps=1_500,
        batch=1_000,
        start=ConstructionStart(reg=0.05, noise=0.1),
    ),
    _BEYOND,
    replace(
        _BEYOND,
        name="sort-scratch",
        about=ABOUT["sort-scratch"],
        start=GaussianStart(silent=True, sharp=2.0),
    ),
    replace(
        _BEYOND,
        name="cloud-beyond",
        about=ABOUT["cloud-beyond"],
        architecture=replace(_BEYOND.architecture, dim=2),
        problems=Problems(("clouds",), _UP_TO_7, dim=2),
        steps=2_000,
        rate=2e-2,
        batch=64,
        samples=10_000,
        start=ConstructionStart(reg=0.5, noise=0.1),
    ),
    replace(
        _BEYOND,
        name="nearest",
        about=ABOUT["nearest"],
        architecture=replace(_BEYOND.architecture, depth=0),
        problems=Problems(("permutations", "subsets"), _UP_TO_7),
        steps=3_000,
        batch=100,
        samples=20_000,
        start=_GAUSSIAN,
    ),
)
RECIPES: dict[str, Recipe] = {each.name: each for each in _ALL}


def recipe(name: str) -> Recipe:
    """A recipe by name; ``NAME-N`` with a number N is `up_to(N)` of the recipe NAME.

    >>> recipe("paper-attention").steps
    10000
    """
    stem, _, largest = str(name).rpartition("-")
    if name not in RECIPES and stem in RECIPES and largest.isdigit():
        return RECIPES[stem].up_to(int(largest))
    return RECIPES[checks.choice("recipe", name, RECIPES)]
