"""The probe of single sentence pairs, with or without gold: attention, layer by layer, beside the plan of the embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from otformer import checks
from otformer.errors import ArgumentError
from otformer.show.card import Card, Shown
from otformer.words.models.attention import READINGS, Reading, read, readings_of
from otformer.words.models.models import Model, load
from otformer.words.probe.probe import LIKENESS, Array, ProbeSettings, likeness_of, read_with_plans, scaled
from otformer.words.text.gold import Gold, Links, grid
from otformer.words.text.text import Given, Pair, as_pair

IS_TRANSPORT = 0.1  # most total variation to the plan of an attention that is called transport
IS_FLAT = 0.1  # most total variation from uniform of a plan that is too flat to compare with
SAYS = {  # what `PairProbe.kind` means
    "transport": "The mean attention of one layer is a transport plan",
    "towards": "No layer's mean attention is a transport plan, but one goes towards it",
    "not": "No layer's mean attention is a transport plan",
    "flat": "The plan is too close to uniform to say whether this attention is transport",
}
READ_AS = {  # what a reading is, after "layer 5 of 6, "
    "cross-input": "read at the input",
    "cross-output": "read at the output",
    "target-source": "target words attending to source words",
    "source-target": "source words attending to target words",
    "input": "read at the input",
    "output": "read at the output",
}


class ByReading(dict[str, Array]):
    """Arrays by the name of a reading; another name is refused with those there are.

    >>> ByReading({"cross-input": np.zeros(1), "cross-output": np.zeros(1)})["cross"]
    Traceback (most recent call last):
    otformer.errors.ArgumentError: reading must be one of cross-input, cross-output, got 'cross'
    """

    def __missing__(self, name: str) -> Array:
        checks.choice("reading", name, list(self))
        raise KeyError(name)  # a name of the list is never missing


@dataclass(frozen=True, repr=False)
class PairProbe(Shown):
    """A model's readings of a sentence pair of n source and m target words; words without subwords are left out.

    A notebook shows it, ``plot`` draws a layer or a head, and ``save`` writes a page or a picture.

    attention : for each reading, [layers, heads + 1, m, n], the mean over heads last.
    plans : [1 + layers, m, n], each of mass 1: of the words' embeddings, then of the states that each layer gives.
    likeness : for each reading, [layers, heads + 1, 6], how near it is to the plans (`LIKENESS`).
    share : for each reading, [layers, heads + 1]: how much of what the words attend with falls on words of the other
        sentence, and not on marks (or, in a decoder, on words before them).
    gold : links made by hand, (source word, target word), where there are any.
    """

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    attention: Mapping[str, Array]
    plans: Array
    likeness: Mapping[str, Array]
    share: Mapping[str, Array]
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
        """Whether the mean over heads is transport at the nearest layer, and so at any; a word of `SAYS`.

        With d its total variation to the plan P of the embeddings, and d₀ that of uniform attention: "flat" if d₀ ≤ 0.1,
        since then P itself says nothing; else "transport" if d ≤ 0.1, "towards" if d ≤ d₀/2, and "not".
        """
        d, d0 = self.nearest["distance"], self.nearest["uniform"]
        return "flat" if d0 <= IS_FLAT else "transport" if d <= IS_TRANSPORT else "towards" if d <= d0 / 2 else "not"

    def __repr__(self) -> str:
        n, m, (layers, heads) = len(self.source_words), len(self.target_words), self.size
        sides = f"{n} source word{'s' * (n > 1)}, {m} target word{'s' * (m > 1)}"
        return "\n".join(
            [f"PairProbe({sides}, {layers} layers of {heads} heads, {' and '.join(self.attention)})", *self._told()]
        )

    @property
    def size(self) -> tuple[int, int]:
        """Layers, and heads of each."""
        layers, heads = next(iter(self.attention.values())).shape[:2]
        return layers, heads - 1

    def verdict(self) -> str:
        """Whether this attention is transport, and the numbers that say so, in sentences."""
        return " ".join(self._told())

    def _told(self) -> list[str]:
        """The verdict in two parts: of the mean over heads, and of the nearest single head."""
        near = self.nearest
        if self.kind == "flat":
            return [f"{SAYS['flat']}.", f"It differs from uniform attention by {100 * near['uniform']:.1f} %."]
        layers, (reading, layer, head, alone) = self.likeness[near["reading"]], self.nearest_head
        last = layers[-1, -1, LIKENESS.index("distance")]
        also = ", and it is a transport plan" if self.kind != "transport" and alone <= IS_TRANSPORT else ""
        return [
            f"{SAYS[self.kind]}. Nearest is layer {near['layer']} of {len(layers)}, {READ_AS[near['reading']]}: "
            f"{100 * near['distance']:.1f} % of its mass lies elsewhere than in the plan of the embeddings "
            f"(last layer: {100 * last:.1f} %; uniform attention: {100 * near['uniform']:.1f} %).",
            f"Nearest single head: layer {layer}, head {head}, {READ_AS[reading]}: {100 * alone:.1f} %{also}.",
        ]

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

    def plot(self, reading: str = "", layer: int | None = None, head: int | None = None, ax: Any = None) -> Any:
        """Draw attention on axes of matplotlib, which are returned: of the nearest reading and layer if none are named.

        layer, head : from 1, as in the verdict; ``head=None`` is the mean over heads.
        """
        return self._plot(ax, reading=reading, layer=layer, head=head)

    def save(self, path: str | Path) -> None:
        """Write a page (.html), or a picture of the nearest layer (.svg, .pdf, .png), whole or not at all."""
        self._save(path)

    def _card(self, **options: Any) -> Card:
        from otformer.words.probe.pair_card import card

        return card(self, **options)

    def scaled(self, reading: str) -> Array:
        """The attention of a reading with rows that sum to one; a row that gives nothing to any word is uniform."""
        return scaled(self.attention[reading])


def look_at(model: Model | str | Path, pair: Given, settings: ProbeSettings | None = None, device: str = "cpu") -> PairProbe:
    """Read a model (given by name or loaded by `models.load`) on a Pair or ``source ||| target``; settings.reg is λ.

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
            ByReading(zip(names, part.attention, strict=True)),
            np.delete(plans, 1, axis=0),  # of what enters the first layer
            ByReading(zip(names, alike, strict=True)),
            ByReading((name, _share(mass, name, READINGS[model.kind][name].rows == "source")) for name in names),
            frozenset(part.placed(part.gold.sure if part.gold else ())),
        )


def _share(mass: Reading, name: str, source_attends: bool) -> Array:
    """[layers, heads + 1]: the mean over words that attend of what they give to all words of the other sentence."""
    A = mass.matrices[name][..., mass.kept[1], :][..., mass.kept[0]]  # [layers, heads, m, n]
    heads = A.sum(-2 if source_attends else -1).mean(-1)
    return np.concatenate([heads, heads.mean(1, keepdims=True)], 1)
