"""One head of a translation model as an aligner: what a target word's subwords attend to when the decoder reads them.

    A[j, i] = the share of target word j's cross-attention that goes to source word i,   Σ_i A[j, i] = 1

In each of our translators one head of the decoder's second layer does little else than point from a word to its translation:
`AttentionHead` reads that head, and runs nothing after its attention: no later layer, not the rest of its own feed-forward
block, no logits. Words that do not fit the model (128 subwords) have nan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from otformer import checks
from otformer.words.align.aligners import Array
from otformer.words.align.vectors import MOST_LETTERS
from otformer.words.models.attention import read
from otformer.words.models.models import Model, load
from otformer.words.text.text import Pair, fold

BATCH = 8  # sentence pairs at a time: on a core of a CPU 20 % faster than 32, whose activations leave its cache


@dataclass(frozen=True)
class AttentionHead:
    """A head of a translation model; layer and head are counted from 1, as in the tables of `otformer probe`."""

    model: Model
    layer: int
    head: int

    @classmethod
    def of(cls, folder: Path | str, layer: int, head: int) -> AttentionHead:
        """A head of the model in a folder, whose decoder is cut after that layer's attention."""
        model = load(folder)
        if model.kind != "translation":
            raise checks.ArgumentError("model", "be a translation model", f"an {model.kind} model", str(folder))
        checks.count("layer", layer, most=model.layers)
        checks.count("head", head, most=model.heads)
        decoder = model.network.get_decoder()
        decoder.layers = decoder.layers[:layer]
        decoder.layers[-1].fc1 = decoder.layers[-1].fc2 = torch.nn.Identity()  # what comes after the attention is not read
        return cls(replace(model, layers=layer), layer, head)

    def attention(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[Array]:
        """A [m, n] for the words of every pair, n of the source and m of the target."""
        return [A[self.layer - 1, self.head - 1] for A in all_heads(self.model, pairs)]


def all_heads(model: Model, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Iterator[Array]:
    """A of every layer and head, [layers, heads, m, n], for every pair of sentences in words."""
    given = [Pair(*(" ".join(map(_one, side)) for side in pair)) for pair in pairs]
    for reading in read(model, given, by="spaces", readings=["cross-input"], how="mass", normalise=True, batch=BATCH):
        yield reading.matrices["cross-input"].astype(float)


def per_source_word(attention: Array) -> Array:
    """Attention [m, n] scaled to sum to one over the target words: the direction in which a translator does not attend."""
    return np.asarray(attention / np.maximum(np.nansum(attention, 0, keepdims=True), 1e-12))


def _one(word: str) -> str:
    """The word as the models know it: folded, one word still, no longer than the model, without what is no text (lone
    surrogates)."""
    return re.sub(r"\s+", "", fold(word[:MOST_LETTERS])).encode(errors="replace").decode() or "?"
