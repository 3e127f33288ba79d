"""Recipes: everything that decides a training run but its seed. `otformer train --recipe NAME` runs one."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from otformer import checks
from otformer.lab.training.about import ABOUT
from otformer.lab.training.data import Problems
from otformer.lab.training.initialisation import AuthorStart, ConstructionStart, GaussianStart, Start
from otformer.lab.training.objectives import OBJECTIVES
from otformer.learning.model import Architecture

MOST_STEPS = 10**9
LARGEST_LIST = 256  # points: a step keeps a matrix of their square for every problem of a batch and every layer


@dataclass(frozen=True)
class Recipe:
    """One way of training.

    Parameters
    ----------
    samples : int, optional
        Size of a fixed training set; None draws new problems for every step, or every ``redraw`` steps.
    batch : int
        Problems per step; as many as ``samples``: the whole set in every step.
    decay : {"none", "cosine"}
        Whether the stepsize falls to 0 along half a cosine.
    clip : float, optional
        Largest Euclidean norm of a member's gradient.
    redraw : int, optional
        Steps for which a batch serves; the first batch serves one step only, as in the author's notebook.
    doubled : {"no", "counted", "stepped"}
        What becomes of a list that gives every parameter to Adam twice, as the author's does (doubled_adam.py): on a GPU
        one step, whose counter goes on by two; on a CPU two steps with the same gradient and one pair of moments.
    learned : {"all", "temperature"}
        The parameters that Adam moves: all, or the learned temperatures alone (tau, step, tau_out).
    limit : float
        The loss above which a member has diverged, and is stopped.
    """

    name: str
    about: str
    architecture: Architecture = field(default_factory=Architecture)
    problems: Problems = field(default_factory=Problems)
    objective: Literal["sorted", "attention", "entropy"] = "attention"
    steps: int = 10_000
    rate: float = 1e-3
    decay: Literal["none", "cosine"] = "none"
    samples: int | None = 1_000
    batch: int = 100
    start: Start = field(default_factory=GaussianStart)
    clip: float | None = None
    redraw: int | None = None
    doubled: Literal["no", "counted", "stepped"] = "no"
    learned: Literal["all", "temperature"] = "all"
    limit: float = 1e6

    def __post_init__(self) -> None:
        checks.choice("objective", self.objective, OBJECTIVES)
        checks.choice("decay", self.decay, ("none", "cosine"))
        checks.choice("doubled", self.doubled, ("no", "counted", "stepped"))
        checks.choice("learned", self.learned, ("all", "temperature") if self.architecture.temperature else ("all",))
        checks.count("steps", self.steps, most=MOST_STEPS)
        checks.count("batch", self.batch)
        if self.samples is not None and self.samples < self.batch:
            raise ValueError(f"batch must not exceed the {self.samples} samples, got {self.batch}")
        if self.redraw is not None and checks.count("redraw", self.redraw) and self.samples is not None:
            raise ValueError(f"samples must be None where problems are redrawn, got {self.samples}")
        if self.problems.dim != self.architecture.dim:
            raise ValueError(f"problems must have dim {self.architecture.dim}, got {self.problems.dim}")

    def rate_at(self, step: int) -> float:
        """Adam's stepsize at a step, counted from 0."""
        return self.rate * (0.5 * (1 + math.cos(math.pi * step / self.steps)) if self.decay == "cosine" else 1.0)

    def batch_at(self, step: int) -> int:
        """The number of the batch at a step, both counted from 0."""
        return step if self.redraw is None else (step + self.redraw - 1) // self.redraw

    def to_json(self) -> str:
        """The recipe as text: what a checkpoint must agree with."""
        return json.dumps({**asdict(self), "start": repr(self.start)}, sort_keys=True)

    def up_to(self, largest: int) -> Recipe:
        """A short run of the same recipe (3,000 steps of 100 problems, of 20,000), never shown more than ``largest`` points.

        >>> recipe("sort-beyond").up_to(4).problems.sizes
        (2, 3, 4)
        """
        sizes = tuple(range(2, checks.count("largest", largest, least=2, most=LARGEST_LIST) + 1))
        about = f"A short run of {self.name}: 3,000 steps on lists of at most {largest} points."
        problems = replace(self.problems, sizes=sizes)
        return replace(self, name=f"{self.name}-{largest}", about=about, problems=problems, **_SHORT)


def _named(name: str, base: Recipe, **changes: Any) -> Recipe:
    return replace(base, name=name, about=ABOUT[name], **changes)


_UP_TO_7 = (2, 3, 4, 5, 6, 7)
_WHOLE_SET: dict[str, Any] = dict(steps=1_500, batch=1_000)
_SHORT: dict[str, Any] = dict(steps=3_000, batch=100, samples=20_000, redraw=None)
_PAPER = Recipe("paper-attention", ABOUT["paper-attention"])
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
_AUTHOR = Recipe(
    "author",
    ABOUT["author"],
    Architecture(depth=19, mix=-0.1, memory="random", weight="share", value="x", hidden="last", softmax="bare"),
    Problems(("draws",), (7,)),
    "sorted",
    steps=5_001,
    rate=5e-4,
    samples=None,
    batch=1_000,
    start=AuthorStart(),
    redraw=50,
    doubled="counted",
)
_AUTHOR_PLAIN = replace(_AUTHOR.architecture, prompt="plain", memory="zero", weight="one", value="y")
_ALL = (
    _named("paper-sorted", _PAPER, objective="sorted"),
    _PAPER,
    _named("paper-entropy", _PAPER, objective="entropy", **_WHOLE_SET),
    _named("paper-no-prompt", _PAPER, architecture=Architecture(prompt="plain")),
    _named("paper-from-construction", _PAPER, start=ConstructionStart(reg=0.05, noise=0.1), **_WHOLE_SET),
    _BEYOND,
    _named("sort-scratch", _BEYOND, start=GaussianStart(silent=True, sharp=2.0)),
    _named(
        "cloud-beyond",
        _BEYOND,
        architecture=replace(_BEYOND.architecture, dim=2),
        problems=Problems(("clouds",), _UP_TO_7, dim=2),
        steps=2_000,
        rate=2e-2,
        batch=64,
        samples=10_000,
        start=ConstructionStart(reg=0.5, noise=0.1),
    ),
    _named(
        "nearest",
        _BEYOND,
        architecture=replace(_BEYOND.architecture, depth=0),
        problems=Problems(("permutations", "subsets"), _UP_TO_7),
        start=GaussianStart(),
        **_SHORT,
    ),
    _AUTHOR,
    _named("author-no-prompt", _AUTHOR, architecture=_AUTHOR_PLAIN),
    _named("author-no-prompt-corrected", _AUTHOR, architecture=replace(_AUTHOR_PLAIN, value="x", hidden="sink")),
    _named("author-clipped", _AUTHOR, clip=1.0),
    _named("author-single-adam", _AUTHOR, doubled="no"),
    _named("author-two-steps", _AUTHOR, doubled="stepped"),
    _named("author-stable", _AUTHOR, architecture=replace(_AUTHOR.architecture, softmax="stable")),
    _named("arxiv-literal", _PAPER, objective="sorted", batch=1_000),
    _named("arxiv-literal-attention", _PAPER, batch=1_000),
    _named(
        "sort-draws",
        _AUTHOR,
        architecture=replace(_BEYOND.architecture, depth=80, value="x"),
        steps=600,
        rate=1e-2,
        decay="cosine",
        start=ConstructionStart(reg=0.18, anneal=180.0),
        doubled="no",
        learned="temperature",
    ),
    _named(
        "sort-draws-sizes",
        _AUTHOR,
        architecture=replace(_BEYOND.architecture, depth=60, value="x"),
        problems=Problems(("draws",), (3, 5, 7, 9, 12, 15)),
        steps=4_000,
        rate=1e-2,
        decay="cosine",
        batch=256,
        start=ConstructionStart(reg=0.18, noise=0.02, anneal=90.0),
        clip=1.0,
        redraw=None,
        doubled="no",
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
