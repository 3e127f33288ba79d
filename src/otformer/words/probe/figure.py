"""The figure of a probe: Hits@1 by layer and how near attention is to transport."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from otformer import checks, figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = Sequence[dict[str, Any]]
LABELS = {
    "cross-input": "target word at decoder input",
    "cross-output": "target word at decoder output",
    "target-source": "target words attend to source",
    "source-target": "source words attend to target",
    "input": "target word at input",
    "output": "target word at output",
}
COLOURS = (figures.BLUE, figures.ORANGE)
VECTORS = {"transport": ("OT", figures.GREEN, "s"), "nearest": ("nearest", figures.PURPLE, "^")}
DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": None}  # the same table gives the same file


def figure(table: Table, file: str | Path, title: str = "", metric: str = "Hits@1") -> None:
    """The picture in the format the file's name ends in (png, svg or pdf), whole or not at all."""
    kind = checks.choice("the ending of file", Path(file).suffix.removeprefix("."), DATE)
    figures.save(lambda: draw(table, title, metric), Path(file), metadata=DATE[kind])


def draw(table: Table, title: str = "", metric: str = "Hits@1") -> Figure:
    """Left: the metric of each layer's attention, mean over heads with its interval, and heads as points; beside it that of
    word vectors. Right: the distance of that attention to the plan of the embeddings."""
    made, (left, right) = figures.figure(9.2, 3.9, columns=2, width_ratios=(1.35, 1))
    attention = [line for line in table if line["method"] == "attention"]
    readings = list(dict.fromkeys(line["reading"] for line in attention))
    for k, (name, colour) in enumerate(zip(readings, COLOURS, strict=False)):
        own = [line for line in attention if line["reading"] == name]
        _curve(left, own, metric, LABELS.get(name, name), colour, shift=0.16 * (2 * k - 1))
        mean = [line for line in own if not line["head"]]
        right.plot(_of(mean, "layer"), _of(mean, "distance"), "o-", color=colour, label=LABELS.get(name, name))
    for method, look in VECTORS.items():
        _vectors(left, [line for line in table if line["method"] == method], metric, *look)
    level, nothing = attention[0]["uniform"], "uniform attention"
    right.axhline(level, color=figures.GREY, linestyle="--", linewidth=1)
    right.annotate(nothing, (1, level), (0, 4), textcoords="offset points", color=figures.GREY, size=8)
    layers = sorted({line["layer"] for line in table})
    left.plot([], [], "o", color=figures.GREY, alpha=0.5, ms=2.8, mew=0, label="single heads")
    corpus = f"layer ({attention[0]['sentences']:,} sentences, {attention[0]['pairs']:,} gold pairs)"
    left.set_title(title or "Finding translated words", parse_math=False)  # the name of a folder may hold $…$
    left.set(xlabel=corpus, ylabel=f"{metric} (%)", ylim=(0, 101), xticks=layers)
    right.set(title="From attention to the plan of embeddings", xlabel="layer", ylabel="total variation")
    right.set(ylim=(0, 1.02), xticks=[layer for layer in layers if layer])
    made.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return made


def _of(lines: Table, name: str, scale: float = 1.0) -> list[float]:
    return [scale * line[name] for line in lines]


def _curve(axes: Any, lines: Table, metric: str, label: str, colour: str, shift: float) -> None:
    """The mean over heads as a line in its interval, single heads as faint points beside it."""
    mean, heads = ([line for line in lines if (line["head"] > 0) == single] for single in (False, True))
    layers = _of(mean, "layer")
    axes.fill_between(layers, *(_of(mean, f"{metric}_{end}", 100) for end in ("low", "high")), color=colour, alpha=0.2, lw=0)
    axes.plot(np.array(_of(heads, "layer")) + shift, _of(heads, metric, 100), "o", color=colour, alpha=0.3, ms=2.8, mew=0)
    axes.plot(layers, _of(mean, metric, 100), "o-", color=colour, label=label)


def _vectors(axes: Any, lines: Table, metric: str, name: str, colour: str, marker: str) -> None:
    """Hidden states as a thin line; embeddings as a level across."""
    states, level = [line for line in lines if line["reading"] == "states"], 100 * lines[0][metric]
    label = f"{name}, hidden states"
    axes.plot(_of(states, "layer"), _of(states, metric, 100), marker + "-", color=colour, lw=0.9, ms=3, label=label)
    axes.axhline(level, color=colour, linestyle=":", linewidth=1.3, label=f"{name}, embeddings")
