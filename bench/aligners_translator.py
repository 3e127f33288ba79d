"""One head of a translation model for every direction (words/align/attention_head.py): chosen on the examples and news,
read on all sets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from aligners_systems import Directions, Matrices
from aligners_text import Set, chooser

from otformer.words.align.aligners import Array, links
from otformer.words.align.attention_head import all_heads, per_source_word
from otformer.words.models.models import load


class Chosen(NamedTuple):
    """Layer and head, and the attention of the words of every set, [m, n] whichever way the model translates."""

    name: str
    matrices: Matrices


def best_head(folder: Path, sets: Sequence[Set], exchanged: bool = False) -> Chosen:
    """The head whose best links, one for each word of the model's target, are best on the examples and news."""
    model, rule = load(folder), "source" if exchanged else "target"

    def read(which: Set) -> list[Array]:
        found = all_heads(model, [pair[::-1] if exchanged else pair for pair in which.words])
        return [np.nan_to_num(A.swapaxes(2, 3) if exchanged else A) for A in found]

    made = [read(which) for which in sets]

    def error(k: int, h: int) -> float:
        return sum(chooser(*([links(A[k, h], rule) for A in of_set] for of_set in made[:2]), sets))

    k, h = min(itertools.product(range(model.layers), range(model.heads)), key=lambda at: error(*at))
    return Chosen(f"head {h + 1} of layer {k + 1}", [[A[k, h] for A in of_set] for of_set in made])


def directions(forward: Chosen, backward: Chosen | None = None) -> Directions:
    """Of two translators, or of one."""
    if backward is None:
        return forward.matrices, [list(map(per_source_word, of_set)) for of_set in forward.matrices]
    return forward.matrices, backward.matrices
