"""The figure of alignment against training time, from the rows of alignment_over_training.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from otformer import figures
from otformer.words.probe.figure import LABELS, VECTORS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[dict[str, Any]]
READING_COLOURS = {"cross-input": figures.BLUE, "cross-output": figures.ORANGE}


def draw(rows: Rows, title: str = "") -> Figure:
    """A panel for each reading: Hits@1 of every layer against the seconds of training, the deeper the layer the darker its
    line, and that of transport and nearest neighbours on the embeddings, with their intervals."""
    made, panels = figures.figure(9.2, 4.0, columns=2, sharey=True)
    for axes, (reading, colour) in zip(panels, READING_COLOURS.items(), strict=True):
        layers = sorted({row["layer"] for row in rows if row["reading"] == reading})
        for layer in layers:
            own = [row for row in rows if (row["reading"], row["layer"]) == (reading, layer)]
            _line(axes, own, colour, "o-", f"layer {layer}", shade=0.25 + 0.75 * layer / max(layers))
        _number(axes, [row for row in rows if row["reading"] == reading and row["step"] == rows[-1]["step"]], colour)
        for method, (name, tint, marker) in VECTORS.items():
            own = [row for row in rows if (row["method"], row["reading"]) == (method, "embeddings")]
            _line(axes, own, tint, marker + "--", f"{name}, embeddings")
        axes.set(title=f"Attention, {LABELS[reading]}", xscale="log", xlabel="seconds of training", ylim=(0, 101))
        axes.xaxis.set_major_formatter("{x:,.0f}")
    panels[0].set_ylabel("Hits@1 (%)")
    panels[0].legend(*_vectors_only(panels[0]), loc="lower right")
    panels[0].annotate("numbers: layers", (0.02, 0.95), xycoords="axes fraction", color=figures.GREY, size=8)
    if title:
        made.suptitle(title, size=9, color=figures.GREY)
    return made


def _line(axes: Any, rows: Rows, colour: str, look: str, label: str, shade: float = 1.0) -> None:
    """Hits@1 against time, in its interval."""
    seconds = [row["seconds"] for row in rows]
    value, low, high = ([100 * row[f"Hits@1{end}"] for row in rows] for end in ("", "_low", "_high"))
    axes.fill_between(seconds, low, high, color=colour, alpha=0.15 * shade, lw=0)
    axes.plot(seconds, value, look, color=colour, alpha=shade, label=label)


def _number(axes: Any, last: Rows, colour: str, apart: float = 3.5) -> None:
    """The layers' numbers beside the ends of their lines, moved up where they would lie on one another."""
    height = -apart
    for row in sorted(last, key=lambda row: row["Hits@1"]):
        height = max(100 * row["Hits@1"], height + apart)
        axes.annotate(str(row["layer"]), (row["seconds"], height), (6, -3), textcoords="offset points", color=colour, size=8)


def _vectors_only(axes: Any) -> tuple[list[Any], list[str]]:
    """What the legend names: the numbers beside them name the layers."""
    handles, labels = axes.get_legend_handles_labels()
    kept = [k for k, label in enumerate(labels) if "embeddings" in label]
    return [handles[k] for k in kept], [labels[k] for k in kept]
