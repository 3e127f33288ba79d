"""The probe of one sentence pair without gold: its attention, layer by layer, beside the plan of its embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otformer.words.models.attention import readings_of
from otformer.words.models.models import Model, load
from otformer.words.probe.probe import LIKENESS, Array, Settings, likeness_of, read_with_plans
from otformer.words.text.gold import grid
from otformer.words.text.text import Pair, parse_pairs


@dataclass(frozen=True)
class PairProbe:
    """What a model does with a sentence pair of n source and m target words; words without subwords are left out.

    attention : for each reading, [layers, heads + 1, m, n], the mean over heads last.   plan : [m, n], mass 1, of the words'
    embeddings.   rows : a dict per reading and layer, of the mean over heads: how near it is to the plan (`Likeness`).
    """

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    attention: dict[str, Array]
    plan: Array
    rows: list[dict[str, Any]]

    @property
    def nearest(self) -> dict[str, Any]:
        """The row whose attention is nearest to the plan."""
        return min(self.rows, key=lambda row: float(row["distance"]))

    def record(self) -> dict[str, Any]:
        """Words, plan and rows as plain values, for JSON."""
        words = {"source": self.source_words, "target": self.target_words}
        return words | {"plan": self.plan.round(6).tolist(), "rows": self.rows}

    def lines(self) -> list[str]:
        """The rows as a table in per cent, then the nearest layer's attention and the plan, a row per target word."""
        near = self.nearest
        table = [
            f"{row['reading']:<14} {row['layer']:>5}{100 * row['distance']:>9.1f}{100 * row['marginal_error']:>9.1f}"
            f"{100 * row['row_entropy']:>13.1f}"
            for row in self.rows
        ]
        A = self.attention[near["reading"]][near["layer"] - 1, -1]
        return [
            f"{'attention':<14} layer  from OT  columns  row entropy",
            *table,
            "from OT: total variation between attention and the plan of the embeddings, 0 to 100; attention that knows "
            f"nothing has {100 * near['uniform']:.1f}. columns: what source words get too much and too little, 0 to 200",
            f"\nnearest to the plan: {near['reading']}, layer {near['layer']}, mean over heads",
            *grid(self.source_words, self.target_words, A / A.sum(1, keepdims=True)),
            "\ntransport plan of the embeddings",
            *grid(self.source_words, self.target_words, len(self.plan) * self.plan),
        ]


def look_at(model: Model | str | Path, pair: Pair | str, settings: Settings | None = None, device: str = "cpu") -> PairProbe:
    """What a model, given or loaded (`models.load`), does with a Pair or ``source ||| target``; settings.reg is λ.

    >>> import pytest; _ = pytest.importorskip("transformers")
    >>> from otformer.words.models.shipped import folder
    >>> found = look_at(folder("en-fr"), "the black cat ||| le chat noir")
    >>> found.attention["cross-input"].shape, found.plan.shape
    ((6, 9, 3, 3), (3, 3))
    """
    s = Settings() if settings is None else settings
    loaded = model if isinstance(model, Model) else load(model, device)
    given = next(parse_pairs([pair], "pair")) if isinstance(pair, str) else pair
    ((part, plans),) = read_with_plans(loaded, [given], None, s)
    names = readings_of(loaded, s.readings)
    if not len(part.source) or not len(part.target):
        raise ValueError("pair must have words that the model sees on both sides")
    alike = likeness_of(part.attention, plans).reshape(*part.attention.shape[:3], len(LIKENESS))
    rows = [
        {"reading": name, "layer": layer + 1} | dict(zip(LIKENESS, alike[r, layer, -1].tolist(), strict=True))
        for r, name in enumerate(names)
        for layer in range(alike.shape[1])
    ]
    source = tuple(part.reading.source[k] for k in part.source)
    target = tuple(part.reading.target[k] for k in part.target)
    return PairProbe(source, target, dict(zip(names, part.attention, strict=True)), plans[0], rows)
