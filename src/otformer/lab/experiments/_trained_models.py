"""What the experiments on trained networks share: shipped weights, fresh problems, scores of all seeds, pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments.experiment import Context, Row
from otformer.lab.training import data, objectives
from otformer.lab.training.data import Batch
from otformer.lab.training.evaluate import TEST
from otformer.lab.training.recipes import recipe
from otformer.learning import trained
from otformer.learning.model import LearningTransformer

SIZES = tuple(range(5, 31))
ROWS, DISTANCE, LOSS, POINTS = "rows right, %", "‖A − P*‖/√n", "loss", "points a row attends to"
LAYERS_SHOWN = (5, 15, 20)


def problems(context: Context) -> int:
    """How many fresh problems of each size: 100, or 500 with ``full``."""
    return 500 if context.full else 100


@cache
def load(name: str) -> LearningTransformer:
    """All seeds of a shipped model; one line that names the recipe where its weights are missing."""
    if name not in trained.trained_models():
        raise ValueError(f"weights of recipe {name!r} are missing: `otformer train --recipe {name}` makes them")
    return trained.load_ensemble(name)


def draw(n: int, count: int, seed: int, kind: str = "permutations", purpose: int = TEST) -> Batch:
    """Fresh problems of size n, the same for every network, never those of training."""
    return data.Problems((kind,), (n,)).draw(count, data.generator(seed, purpose, n))


def scores(name: str, count: int, seed: int, kind: str = "permutations") -> dict[str, Tensor]:
    """Every measure of a shipped model on ``count`` problems of each of `SIZES`: measure → [sizes, K]."""
    each = [score(name, n, count, seed, kind) for n in SIZES]
    return {measure: torch.stack([found[measure] for found in each]) for measure in each[0]}


@cache
def score(name: str, n: int, count: int, seed: int, kind: str = "permutations") -> dict[str, Tensor]:
    """Score a shipped model at one size: measure → [K]."""
    return measure(load(name), n, count, seed, kind, recipe(name).objective)


@torch.no_grad()
def measure(
    net: LearningTransformer, n: int, count: int, seed: int, kind: str = "permutations", objective: str = "attention"
) -> dict[str, Tensor]:
    """Rows right in percent, ‖A − P*‖_F/√n, the loss, and exp of the mean entropy of a row: measure → [K]."""
    batch = draw(n, count, seed, kind)
    output = net(batch.x, batch.y)
    entropy = -(output.attention * output.logits.log_softmax(-1)).sum(-1).mean((1, 2))
    return {
        ROWS: 100 * objectives.rows_right(output, batch),
        DISTANCE: objectives.distance(output, batch),
        LOSS: objectives.OBJECTIVES[objective](output, batch),
        POINTS: entropy.exp(),
    }


def at(values: Tensor, n: int) -> Tensor:
    """The scores of one size, [K], of [sizes, K]."""
    return values[SIZES.index(n)]


class Spread(NamedTuple):
    """Median, least and most of the seeds."""

    median: float
    least: float
    most: float

    def __format__(self, form: str) -> str:
        return f"{self.median:{form}}" + (f" ({self.least:{form}} to {self.most:{form}})" if self.least < self.most else "")


def spread(values: Tensor) -> Spread:
    """Median, minimum and maximum over the seeds.

    >>> f"{spread(torch.tensor([3.0, 1.0, 2.0, 10.0])):.1f}"
    '2.5 (1.0 to 10.0)'
    """
    return Spread(float(values.double().quantile(0.5)), float(values.min()), float(values.max()))


def by_size(values: Mapping[int, Spread | float], form: str) -> str:
    """``98 % at n = 9, 90 % at n = 15``."""
    return ", ".join(f"{value:{form}} % at n = {n}" for n, value in values.items())


def uniform(n: int) -> float:
    """‖A − P*‖/√n of uniform rows."""
    return math.sqrt(1 - 1 / n)


def columns(measure: str, values: Tensor | None) -> Row:
    """Median, least and most of the seeds as columns of the CSV; empty ones without values."""
    found = None if values is None else spread(values)
    return {f"{measure}: {word}": None if found is None else getattr(found, word) for word in Spread._fields}


def table(label: str, names: dict[str, str], count: int, seed: int) -> list[Row]:
    """A line for every network (label → recipe) and size: all measures over the seeds, and the rows right of each seed."""
    rows: list[Row] = []
    for shown, name in names.items():
        found = scores(name, count, seed)
        for n in SIZES:
            row: Row = {label: shown, "n": n}
            for measure, values in found.items():
                row |= columns(measure, at(values, n))
            right = at(found[ROWS], n).tolist()
            rows.append(row | {f"{ROWS}: seed {k}": round(value, 3) for k, value in enumerate(right)})
    return rows


def middle(name: str, n: int, count: int, seed: int) -> int:
    """The seed of middle accuracy at size n: the one to draw, neither the best nor the worst."""
    order = score(name, n, count, seed)[ROWS].argsort()
    return int(order[len(order) // 2])


@torch.no_grad()
def attention(name: str, member: int, batch: Batch) -> Tensor:
    """Output attention of one seed on the first problem, [n, n]."""
    return load(name)(batch.x[:1], batch.y[:1]).attention[member, 0]


def picture(axes: Any, matrix: Tensor, title: str) -> Any:
    """An attention matrix, rows y and columns x."""
    image = figures.heatmap(axes, matrix, title, sides="yx")
    axes.title.set_fontsize(9)
    return image


def band(axes: Any, x: Iterable[float], values: Tensor, label: str, colour: str, dash: Any = "-") -> None:
    """The median of the seeds as a line, their range as a band; values [len(x), K]."""
    x, values = list(x), values.double()
    axes.plot(x, values.quantile(0.5, dim=1), linestyle=dash, color=colour, label=label)
    if values.shape[1] > 1:
        axes.fill_between(x, values.amin(1), values.amax(1), color=colour, alpha=0.15, linewidth=0)
