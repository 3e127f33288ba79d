"""The logs and scores of a comparison (lab/translators/compare.py) in one small file, with BLEU.

    {"steps", "together": {run: seconds per step, from its log}, "columns": {table: names}, "runs": [run, …]}

Of a run: ``variant``, ``seed``, ``finished``, ``done`` steps; ``curve``, [step, loss, seconds] of the log; ``loss``, nats
per held-out token; ``bleu`` by text; ``news``, ``hansards`` and ``early``, lines of the probe's table under ``columns``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from otformer.lab.training_loop import LOG
from otformer.lab.translators.compare_scores import SCORES, bleu_of, translated_sets

PROBED = ("method", "reading", "layer", "head", "Hits@1", "Hits@1_low", "Hits@1_high", "distance", "marginal_error")
MORE = {"news": ("row_entropy", "uniform", "sentences", "pairs"), "hansards": ("AER", "AER_low", "AER_high"), "early": ()}
DIGITS = 4


def digest(out: Path, text: Path) -> dict[str, Any]:
    """Collect the folder that `compare run` has filled."""
    folders = sorted(file.parent for file in out.glob(f"*/{SCORES}"))
    if not folders:
        raise ValueError(f"out must be a folder that `compare run` has filled, got no {SCORES} in a folder of {out}")
    runs = {folder.name: _run(folder, text) for folder in folders}
    return {
        "steps": max(run.pop("steps") for run in runs.values()),
        "together": {name: _step_seconds(run["curve"]) for name, run in runs.items() if len(run["curve"]) > 1},
        "columns": {name: [*PROBED, *more] for name, more in MORE.items()},
        "runs": [*runs.values()],
    }


def _step_seconds(curve: list[list[float]]) -> float:
    """Seconds per step between the first and the last line of the log."""
    (first, _, began), (last, _, ended) = curve[0], curve[-1]
    return (ended - began) / (last - first)


def _run(folder: Path, text: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in (folder / SCORES).read_text(encoding="utf-8").splitlines()]
    by_set = {line["set"]: line for line in lines if line["set"] != "translate"}
    made = {line["text"]: line["made"] for line in lines if line["set"] == "translate"}
    sets = translated_sets(text, max(map(len, made.values()), default=1))
    run = {name: by_set["run"][name] for name in ("variant", "seed", "finished", "steps", "done", "seconds")}
    run["curve"] = [[float(x) for x in line] for line in list(csv.reader((folder / LOG).read_text().splitlines()))[1:]]
    run["loss"] = {name: round(by_set["loss"][name], DIGITS) for name in ("teacher", "prefix")}
    run["bleu"] = {name: round(bleu_of(each, sets[name]), 2) for name, each in made.items()}
    for name, more in MORE.items():
        table = by_set[name]["table"] if name in by_set else []
        run[name] = [_line(line, (*PROBED, *more)) for line in table if name != "early" or not line["head"]]
    return run | {"early_step": by_set["early"]["step"] if "early" in by_set else None}


def _line(line: dict[str, Any], columns: Sequence[str]) -> list[Any]:
    return [round(x, DIGITS) if isinstance(x, float) else x for x in (line[name] for name in columns)]
