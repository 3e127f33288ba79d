"""Alignment against training time: the probe (words/probe/probe.py) on the snapshots of a run.

A row for every snapshot and way to align: attention of each layer in both readings, averaged over heads, and transport and
nearest neighbours on the embeddings; Hits@1 on WMT news with MUSE gold. The command `curve` writes and draws them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from otformer import figures
from otformer.lab.translators import networks
from otformer.lab.translators.export import ship
from otformer.words.models.models import load
from otformer.words.probe.figure import LABELS, VECTORS
from otformer.words.probe.table import probe
from otformer.words.text.dictionary import muse
from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import news_pairs, prepare, sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[dict[str, Any]]
COLUMNS = ("step", "seconds", "loss", "method", "reading", "layer", "Hits@1", "Hits@1_low", "Hits@1_high")
READING_COLOURS = {"cross-input": figures.BLUE, "cross-output": figures.ORANGE}


def curve(
    name: str, run: Path, text: Path, pairs: int = 500, seed: int = 0, tell: Callable[[str], None] = lambda line: None
) -> list[dict[str, Any]]:
    """Rows of COLUMNS for the snapshots of a run, and for its last weights."""
    log = _log(run / "log.csv")
    snapshots = {int(file.stem): file for file in sorted((run / "snapshots").glob("*.safetensors"))}
    if (run / "model.safetensors").exists():
        snapshots[max(log)] = run / "model.safetensors"
    if not snapshots:
        raise ValueError(f"run must hold snapshots, got none in {run}")
    drawn, gold = sample(prepare(news_pairs(name)), pairs, seed), muse(name)
    rows: list[dict[str, Any]] = []
    for step, file in snapshots.items():
        with TemporaryDirectory() as folder:
            ship(networks.build_translator(), file, text / str(LanguagePair.of(name).stored), Path(folder))
            table = probe(load(Path(folder)), drawn, dictionary=gold)
        when = log[min((k for k in log if k >= step), default=max(log))]
        kept = [line for line in table if not line["head"] and line["reading"] != "states"]
        rows += [{"step": step, **when, **{key: line[key] for key in COLUMNS[3:]}} for line in kept]
        tell(f"{name}: step {step}, best Hits@1 {max(line['Hits@1'] for line in kept):.3f}")
    return rows


def _log(file: Path) -> dict[int, dict[str, float]]:
    """Seconds and loss by step."""
    if not file.exists():
        raise ValueError(f"run must hold log.csv, got none in {file.parent}")
    lines = csv.DictReader(file.read_text().splitlines())
    return {int(line["step"]): {"seconds": float(line["seconds"]), "loss": float(line["loss"])} for line in lines}


def draw(rows: Rows, title: str = "") -> Figure:
    """A panel for each reading: Hits@1 of every layer against the seconds of training, the deeper the layer the darker its
    line, and that of transport and nearest neighbours on the embeddings, with their intervals; these alone in the legend."""
    made, panels = figures.figure(9.2, 4.0, columns=2, sharey=True)
    for axes, (reading, colour) in zip(panels, READING_COLOURS.items(), strict=True):
        layers = sorted({row["layer"] for row in rows if row["reading"] == reading})
        for layer in layers:
            own = [row for row in rows if (row["reading"], row["layer"]) == (reading, layer)]
            _line(axes, own, colour, "o-", f"_layer {layer}", shade=0.25 + 0.75 * layer / max(layers))
        _number(axes, [row for row in rows if row["reading"] == reading and row["step"] == rows[-1]["step"]], colour)
        for method, (name, tint, marker) in VECTORS.items():
            own = [row for row in rows if (row["method"], row["reading"]) == (method, "embeddings")]
            _line(axes, own, tint, marker + "--", f"{name}, embeddings")
        axes.set(title=f"Attention, {LABELS[reading]}", xscale="log", xlabel="seconds of training", ylim=(0, 101))
        axes.xaxis.set_major_formatter("{x:,.0f}")
    panels[0].set_ylabel("Hits@1 (%)")
    panels[0].legend(loc="lower right")
    panels[0].annotate("numbers: layers", (0.02, 0.95), xycoords="axes fraction", color=figures.GREY, size=8)
    if title:
        made.suptitle(title, size=9, color=figures.GREY, parse_math=False)
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
