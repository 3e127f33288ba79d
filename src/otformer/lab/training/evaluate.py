"""Scores of trained models on fresh problems of any size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from otformer.lab.training.data import TEST, Problems, generator
from otformer.lab.training.objectives import distance, rows_right, sorted_error
from otformer.learning.model import LearningTransformer


@dataclass(frozen=True)
class Score:
    """Scores of all members at one size n, each [K]: share of rows right, ‖A − P*‖_F/√n, squared error of the list."""

    n: int
    rows: Tensor
    distance: Tensor
    sorted_error: Tensor


@torch.no_grad()
def evaluate(
    net: LearningTransformer, sizes: Iterable[int], *, kind: str = "permutations", problems: int = 200, seed: int = 0
) -> list[Score]:
    """Scores on ``problems`` fresh problems of each size, the same for every member.

    >>> from otformer.learning.model import Architecture
    >>> from otformer.lab.training.initialisation import ConstructionStart
    >>> net = LearningTransformer(Architecture(sink="frozen"))
    >>> ConstructionStart(reg=0.01).fill(net, seed=0)
    >>> [float(score.rows) for score in evaluate(net, [5, 9], problems=20)]
    [1.0, 1.0]
    """
    scores = []
    for n in sizes:
        drawn = Problems((kind,), (n,), net.architecture.dim).draw(problems, generator(seed, TEST, n))
        batch = drawn._replace(x=drawn.x.to(net.P), y=drawn.y.to(net.P)).map(lambda t: t.to(net.P.device))
        output = net(batch.x, batch.y)
        scores.append(Score(n, rows_right(output, batch), distance(output, batch), sorted_error(output, batch)))
    return scores
