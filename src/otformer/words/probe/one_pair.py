"""The probe of single sentence pairs, with or without gold: attention, layer by layer, beside the plan of the embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from otformer.errors import ArgumentError
from otformer.words.models.attention import READINGS, Reading, read, readings_of
from otformer.words.models.models import Model, load
from otformer.words.probe.probe import LIKENESS, Array, ProbeSettings, likeness_of, read_with_plans, scaled
from otformer.words.text.gold import Gold, Links, grid
from otformer.words.text.text import Given, Pair, as_pair

IS_TRANSPORT = 0.1  # most total variation to the plan of an attention that is called transport
IS_FLAT = 0.1  # most total variation from uniform of a plan with which nothing can be told apart
SAYS = {  # what `PairProbe.kind` means
    "transport": "The mean over heads is transport in one layer",
    "towards": "The mean over heads is transport in no layer, but goes the plan's way in one",
    "not": "The mean over heads is transport in no layer",
    "flat": "Whether this attention is transport cannot be told here",
}


@dataclass(frozen=True)
class PairProbe:
    """What a model does with a sentence pair of n source and m target words; words without subwords are left out.

    attention : for each reading, [layers, heads + 1, m, n], the mean over heads last.
    plans : [1 + layers, m, n], each of mass 1: of the words' embeddings, then of the states that each layer gives.
    likeness : for each reading, [layers, heads + 1, 6], how near it is to the plans (`LIKENESS`).
    share : for each reading, [layers, heads + 1]: how much of what the words attend with falls on words of the other
        sentence, and not on marks (or, in a decoder, on words before them).
    gold : links made by hand, (source word, target word), where there are any.
    """

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    attention: dict[str, Array]
    plans: Array
    likeness: dict[str, Array]
    share: dict[str, Array]
    gold: Links = frozenset()

    @property
    def plan(self) -> Array:
        """The plan of the embeddings [m, n]."""
        return np.asarray(self.plans[0])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dict per reading and layer, of the mean over heads: how near it is to the plan."""
        return [
            {"reading": name, "layer": layer} | dict(zip(LIKENESS, alike[-1].tolist(), strict=True))
            for name, layers in self.likeness.items()
            for layer, alike in enumerate(layers, 1)
        ]

    @property
    def nearest(self) -> dict[str, Any]:
        """The row whose attention is nearest to the plan."""
        return min(self.rows, key=lambda row: float(row["distance"]))

    @property
    def nearest_head(self) -> tuple[str, int, int, float]:
        """Reading, layer and head, both from 1, of the single head nearest to the plan, and its distance."""
        found = []
        for name, alike in self.likeness.items():
            far = alike[:, :-1, LIKENESS.index("distance")]  # [layers, heads]
            layer, head = np.unravel_index(far.argmin(), far.shape)
            found.append((name, int(layer) + 1, int(head) + 1, float(far.min())))
        return min(found, key=lambda each: each[3])

    @property
    def kind(self) -> str:
        """Whether the mean over heads is transport at any layer, that is at the nearest one; a word of `SAYS`.

        With d its total variation to the plan P of the embeddings, and d₀ that of uniform attention: "flat" if d₀ ≤ 0.1,
        since then P itself says nothing; else "transport" if d ≤ 0.1, "towards" if d ≤ d₀/2, and "not".
        """
        d, d0 = self.nearest["distance"], self.nearest["uniform"]
        return "flat" if d0 <= IS_FLAT else "transport" if d <= IS_TRANSPORT else "towards" if d <= d0 / 2 else "not"

    def verdict(self) -> str:
        """One sentence: whether this attention is transport, and the numbers that say so."""
        near = self.nearest
        if self.kind == "flat":
            return f"{SAYS['flat']}: the plan of the embeddings is within {100 * near['uniform']:.1f} % of uniform."
        layers, (reading, layer, head, alone) = self.likeness[near["reading"]], self.nearest_head
        last = layers[-1, -1, LIKENESS.index("distance")]
        but = "; a single head is" if self.kind != "transport" and alone <= IS_TRANSPORT else ""
        return (
            f"{SAYS[self.kind]}{but}: {100 * near['distance']:.1f} % of the mass lies elsewhere than in the plan of the "
            f"embeddings where the mean is nearest ({near['reading']}, layer {near['layer']} of {len(layers)}; last layer "
            f"{100 * last:.1f} %); {100 * alone:.1f} % of the nearest single head ({reading}, layer {layer}, head {head}); "
            f"uniform attention has {100 * near['uniform']:.1f} %."
        )

    def record(self) -> dict[str, Any]:
        """Words, plan, rows and verdict as plain values, for JSON."""
        words = {"source": self.source_words, "target": self.target_words}
        return words | {"plan": self.plan.round(6).tolist(), "rows": self.rows, "kind": self.kind, "verdict": self.verdict()}

    def lines(self) -> list[str]:
        """The verdict; the rows as a table in per cent; the nearest layer's attention and the plan, a row a target word."""
        near = self.nearest
        table = [
            f"{row['reading']:<14} {row['layer']:>5}{100 * row['distance']:>9.1f}{100 * row['marginal_error']:>9.1f}"
            f"{100 * row['row_entropy']:>13.1f}"
            for row in self.rows
        ]
        return [
            self.verdict() + "\n",
            f"{'attention':<14} layer  from OT  columns  row entropy",
            *table,
            "from OT: total variation between attention and the plan of the embeddings, 0 to 100; uniform "
            f"attention has {100 * near['uniform']:.1f}. columns: what source words get too much and too little, 0 to 200",
            f"\nnearest to the plan: {near['reading']}, layer {near['layer']}, mean over heads",
            *grid(self.source_words, self.target_words, self.scaled(near["reading"])[near["layer"] - 1, -1]),
            "\ntransport plan of the embeddings",
            *grid(self.source_words, self.target_words, len(self.plan) * self.plan),
        ]

    def scaled(self, reading: str) -> Array:
        """The attention of a reading with rows that sum to one; a row that gives nothing to any word is uniform."""
        return scaled(self.attention[reading])


def look_at(model: Model | str | Path, pair: Given, settings: ProbeSettings | None = None, device: str = "cpu") -> PairProbe:
    """What a model, given or loaded (`models.load`), does with a Pair or ``source ||| target``; settings.reg is λ.

    >>> import pytest; _ = pytest.importorskip("transformers")
    >>> from otformer.words.models.shipped import folder
    >>> found = look_at(folder("en-fr"), "the black cat ||| le chat noir")
    >>> found.attention["cross-input"].shape, found.plan.shape
    ((6, 9, 3, 3), (3, 3))
    """
    (found,) = look_at_each(opened(model, device), [as_pair(pair, "pair")], None, settings)
    return found


def opened(model: Model | str | Path, device: str) -> Model:
    """A model as it is; or the one of a folder, a hub name or a shipped model's name."""
    return model if isinstance(model, Model) else load(model, device)


def look_at_each(
    model: Model, pairs: Sequence[Pair], gold: Sequence[Gold] | None = None, settings: ProbeSettings | None = None
) -> Iterator[PairProbe]:
    """A `PairProbe` of every pair, in order; ``gold`` has the links of each, where there are any."""
    s = ProbeSettings() if settings is None else settings
    names = readings_of(model, s.readings)
    masses = read(model, pairs, by=s.by, readings=names, how="mass", template=s.template, batch=s.batch)
    for (part, plans), mass in zip(read_with_plans(model, pairs, gold, s), masses, strict=True):
        if not len(part.source) or not len(part.target):
            raise ArgumentError("pair", "have words that the model sees on both sides")
        alike = likeness_of(part.attention, plans).reshape(*part.attention.shape[:3], len(LIKENESS))
        yield PairProbe(
            tuple(part.reading.source[k] for k in part.source),
            tuple(part.reading.target[k] for k in part.target),
            dict(zip(names, part.attention, strict=True)),
            np.delete(plans, 1, axis=0),  # of what enters the first layer
            dict(zip(names, alike, strict=True)),
            {name: _share(mass, name, READINGS[model.kind][name].rows == "source") for name in names},
            frozenset(part.placed(part.gold.sure if part.gold else ())),
        )


def _share(mass: Reading, name: str, source_attends: bool) -> Array:
    """[layers, heads + 1]: the mean over words that attend of what they give to all words of the other sentence."""
    A = mass.matrices[name][..., mass.kept[1], :][..., mass.kept[0]]  # [layers, heads, m, n]
    heads = A.sum(-2 if source_attends else -1).mean(-1)
    return np.concatenate([heads, heads.mean(1, keepdims=True)], 1)
