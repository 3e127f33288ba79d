"""Alignment against training time: the probe (words/probe/probe.py) on the snapshots of a run.

A row for every snapshot and way to align: attention of each layer in both readings, averaged over heads, and transport and
nearest neighbours on the embeddings; Hits@1 on WMT news with MUSE gold. `otformer.words.training curve` writes them as CSV.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from otformer.words.models.models import load
from otformer.words.probe.table import probe
from otformer.words.text.dictionary import muse
from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import news_pairs, prepare, sample
from otformer.words.training import translator
from otformer.words.training.export import ship

COLUMNS = ("step", "seconds", "loss", "method", "reading", "layer", "Hits@1", "Hits@1_low", "Hits@1_high")


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
            ship(translator.build(), file, text / str(LanguagePair.of(name).stored), Path(folder))
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
