"""The logs and scores of a comparison (lab/translators/compare.py) in one small file, with BLEU.

    {"steps", "together": {run: seconds of a step, all at once}, "columns": {table: names}, "runs": [run, …]}

Of a run: ``variant``, ``seed``, ``finished``, ``done`` steps; ``curve``, [step, loss, seconds] of the log; ``loss``, nats
per held-out token; ``bleu`` by text; ``news``, ``hansards`` and ``early``, lines of the probe's table under ``columns``.
"""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from otformer.lab.training_loop import LOG
from otformer.lab.translators.compare_scores import bleu_of, translated_sets

PROBED = ("method", "reading", "layer", "head", "Hits@1", "Hits@1_low", "Hits@1_high", "distance", "marginal_error")
MORE = {"news": ("row_entropy", "uniform", "sentences", "pairs"), "hansards": ("AER", "AER_low", "AER_high"), "early": ()}
DIGITS = 4


def digest(out: Path, text: Path) -> dict[str, Any]:
    """The file, as a dict, of the folder that `compare run` has filled."""
    for name in ("logs.tar", "summary.json"):
        if not (out / name).exists():
            raise ValueError(f"out must be a folder that `compare run` has filled, got no {out / name}")
    with tarfile.open(out / "logs.tar") as tar:
        files = {member.name: _text(tar, member) for member in tar.getmembers() if member.isfile()}
    names = sorted({name.partition("/")[0] for name in files if name.endswith("/scores.jsonl")})
    summary = json.loads((out / "summary.json").read_text())
    runs = [_run(files[f"{name}/scores.jsonl"], files[f"{name}/{LOG}"], text) for name in names]
    about = {name: summary.get(name) for name in ("steps", "together")}
    return about | {"columns": {name: [*PROBED, *more] for name, more in MORE.items()}, "runs": runs}


def _text(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    stream = tar.extractfile(member)
    assert stream is not None  # it is a file
    return stream.read().decode()


def _run(scores: str, log: str, text: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in scores.splitlines()]
    by_set = {line["set"]: line for line in lines if line["set"] != "translate"}
    made = {line["text"]: line["made"] for line in lines if line["set"] == "translate"}
    sets = translated_sets(text, max(map(len, made.values()), default=1))
    run = {name: by_set["run"][name] for name in ("variant", "seed", "finished", "done", "seconds")}
    run["curve"] = [[float(x) for x in line] for line in list(csv.reader(io.StringIO(log)))[1:]]
    run["loss"] = {name: round(by_set["loss"][name], DIGITS) for name in ("teacher", "prefix")}
    run["bleu"] = {name: round(bleu_of(each, sets[name]), 2) for name, each in made.items()}
    for name, more in MORE.items():
        table = by_set[name]["table"] if name in by_set else []
        run[name] = [_line(line, (*PROBED, *more)) for line in table if name != "early" or not line["head"]]
    return run | {"early_step": by_set["early"]["step"] if "early" in by_set else None}


def _line(line: dict[str, Any], columns: Sequence[str]) -> list[Any]:
    return [round(x, DIGITS) if isinstance(x, float) else x for x in (line[name] for name in columns)]
