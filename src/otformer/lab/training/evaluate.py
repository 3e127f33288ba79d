"""Scores of trained models on fresh problems of any size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from otformer.lab.training.data import TEST, Problems, generator
from otformer.lab.training.objectives import distance, lists_right, rows_right, sorted_error, values_right
from otformer.learning.model import LearningTransformer
from otformer.statistics import student

DRAWS_SIZES = (5, 7, 9, 12, 15, 20, 30)  # points in a list on which networks of the author's data are scored


@dataclass(frozen=True)
class Score:
    """Scores of all members at one size n, each [K]: share of rows right, ‖A − P*‖_F/√n, squared error of the list, share of
    whole lists right; and the shares of rows and lists whose returned number is nearest to the right one (d = 1)."""

    n: int
    rows: Tensor
    distance: Tensor
    sorted_error: Tensor
    lists: Tensor
    value_rows: Tensor
    value_lists: Tensor


@torch.no_grad()
def evaluate(
    net: LearningTransformer, sizes: Iterable[int], *, kind: str = "permutations", problems: int = 200, seed: int = 0
) -> list[Score]:
    """Scores on ``problems`` fresh problems of each size, the same for every member.

    >>> from otformer.learning.model import Architecture
    >>> from otformer.lab.training.initialisation import ConstructionStart
    >>> net = LearningTransformer(Architecture(sink="frozen"))
    >>> ConstructionStart(reg=0.01).fill(net, seed=0)
    >>> [(float(score.rows), float(score.lists)) for score in evaluate(net, [5, 9], problems=20)]
    [(1.0, 1.0), (1.0, 1.0)]
    """
    scores, a = [], net.architecture
    for n in sizes:
        drawn = Problems((kind,), (n,), a.dim).draw(problems, generator(seed, TEST, n), a.memory == "random")
        drawn = drawn._replace(x=drawn.x.to(net.P), y=drawn.y.to(net.P), memory=drawn.memory.to(net.P))
        batch = drawn.map(lambda t: t.to(net.P.device))
        output = net(batch.x, batch.y, memory=batch.memory)
        values = values_right(output, batch) if a.dim == 1 else (output.logits.new_full((net.ensemble,), torch.nan),) * 2
        found = (measure(output, batch) for measure in (rows_right, distance, sorted_error, lists_right))
        scores.append(Score(n, *found, *values))
    return scores


def interval(values: Tensor, learned: Tensor | None = None) -> dict[str, float]:
    """Mean, Student's 95 % interval over members, median, least and most of one score [K], of those members that learned to
    the end (``learned`` [K], all if None); an interval needs two.

    >>> interval(torch.tensor([0.5, 1.0, 0.0]), torch.tensor([True, True, False]))["mean"]
    0.75
    """
    kept = (values if learned is None else values[learned.to(values.device)]).double().cpu()
    if not len(kept):
        return {"members": 0}
    low, high = student(kept.numpy()) if len(kept) > 1 and float(kept.std()) > 0 else (float(kept.mean()),) * 2
    ends = {"median": float(kept.median()), "least": float(kept.min()), "most": float(kept.max())}
    return {"members": len(kept), "mean": float(kept.mean()), "low": low, "high": high, **ends}
