"""Hidden states and attention of an encoder of both sentences (words/models/attention.py), by layer, as matrices of
words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from aligners_systems import Directions, Matrices
from aligners_text import Set, chooser

from otformer.words.align.aligners import links, similarity
from otformer.words.models.attention import read
from otformer.words.models.models import load
from otformer.words.text.text import Pair


class Layers(NamedTuple):
    """For every layer: cosines of hidden states, and attention of both directions, the mean of the heads."""

    hidden: list[Matrices]
    attention: list[Directions]


def missing() -> str | None:
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        return f"not installed ({error})"
    return None


def layers(folder: Path, sets: Sequence[Set]) -> Layers:
    """Of the words of every set; a word beyond the model's limit is like no other."""
    model = load(folder)
    hidden: list[Matrices] = [[] for _ in range(model.layers + 1)]
    attention: list[Directions] = [([], []) for _ in range(model.layers)]
    for which in sets:
        for part in (*hidden, *(side for both in attention for side in both)):
            part.append([])
        pairs = [Pair(" ".join(e), " ".join(f)) for e, f in which.words]
        for reading in read(model, pairs, by="spaces", states=True, how="mass", normalise=True):
            source, target = (np.nan_to_num(reading.states[side]) for side in ("source", "target"))
            for k, made in enumerate(hidden):
                made[-1].append(similarity(source[k], target[k]).astype(np.float32))
            for k, both in enumerate(attention):
                for side, name in zip(both, ("target-source", "source-target"), strict=True):
                    side[-1].append(np.nan_to_num(reading.matrices[name][k]).mean(0))
    return Layers(hidden, attention)


def best_layer(found: Layers, sets: Sequence[Set]) -> int:
    """The layer whose mutual nearest neighbours are best on the examples and news; 0 is what enters the first."""

    def error(matrices: Matrices) -> float:
        return sum(chooser(*([links(S) for S in matrices[k]] for k in (0, 1)), sets))

    return min(range(len(found.hidden)), key=lambda k: error(found.hidden[k]))


def attention_choices(found: Layers, choices: Any) -> Any:
    """Those of every layer."""
    return {
        f"layer {k + 1}, {setting}": answer
        for k, both in enumerate(found.attention)
        for setting, answer in choices(both).items()
    }
