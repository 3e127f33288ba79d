"""Run experiments and write what they found: a folder each, whole or not at all, then the report page.

Experiments stand on `otformer.report`: they draw in its style, and the runner ends by writing its page. The report knows
nothing of experiments; it reads the files they leave.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from otformer import checks, figures
from otformer.experiments.experiment import Context, Experiment, Outcome
from otformer.experiments.registry import EXPERIMENTS, chosen
from otformer.files import output_folder
from otformer.report.html import write_report

FILES = ("figure.png", "figure.svg", "numbers.csv", "run.json")
Progress = Callable[[str, float], None]  # experiment name, fraction of it that is done


def reproduce(
    names: Iterable[str] | None,
    out: str | Path,
    seed: int = 0,
    full: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Run experiments (None: all) and write ``out/<name>/{figure.png,figure.svg,numbers.csv,run.json}`` and the report.

    An experiment's folder appears when all its files are written, replacing an older one; if it fails, nothing of it
    appears and the older one stays. ``full`` runs at the size of the claims. ``resume`` skips what ``out`` already
    holds with the same seed, size and versions. Returns the path of ``out/index.html``.
    """
    experiments = chosen(names)
    seed = checks.count("seed", seed, least=0)
    tell: Progress = progress or (lambda name, fraction: None)
    key = {"seed": seed, "full": full, "versions": versions()}
    with output_folder(out) as folder, _one_thread():
        for experiment in experiments:
            if not (resume and _is_done(folder / experiment.name, key)):
                _run_one(experiment, folder, key, tell)
            tell(experiment.name, 1.0)
        return write_report(folder)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for torch inside this block: its tensors are small and its layers thousands, so that handing an operation
    to several threads costs more than the operation, most of all where other processes want the cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def versions() -> dict[str, str]:
    """Versions of everything that can change a number."""
    import matplotlib
    import numpy
    import ot
    import scipy
    import torch

    import otformer

    libraries = {"torch": torch, "numpy": numpy, "scipy": scipy, "POT": ot, "matplotlib": matplotlib}
    found = {name: str(library.__version__) for name, library in libraries.items()}
    return {"otformer": otformer.__version__, "python": platform.python_version(), **found}


def _run_one(experiment: Experiment, folder: Path, key: dict[str, Any], tell: Progress) -> None:
    name = experiment.name
    context = Context(key["seed"], key["full"], lambda fraction: tell(name, fraction))
    began = time.perf_counter()
    with figures.applied():
        outcome = experiment.run(context)
        record = {
            "name": name,
            "position": list(EXPERIMENTS).index(name) if name in EXPERIMENTS else len(EXPERIMENTS),
            "title": experiment.title,
            "source": experiment.source,
            "claim": experiment.claim,
            "summary": outcome.summary,
            "checks": outcome.checks,
            "settings": outcome.settings,
            **key,
            "seconds": round(time.perf_counter() - began, 2),
        }
        _write(folder / name, outcome, record)


def _write(target: Path, outcome: Outcome, record: dict[str, Any]) -> None:
    """All files into a new folder beside the target, which then takes the target's place."""
    fresh, old = (target.parent / f".{target.name}-{os.getpid()}-{word}" for word in ("new", "old"))
    try:
        fresh.mkdir()
        outcome.figure.savefig(fresh / "figure.png", metadata={"Software": None})
        outcome.figure.savefig(fresh / "figure.svg", metadata={"Date": None})
        with (fresh / "numbers.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(outcome.rows[0]))
            writer.writeheader()
            writer.writerows(outcome.rows)
        text = json.dumps(record, ensure_ascii=False, indent=2)
        (fresh / "run.json").write_text(text + "\n", encoding="utf-8")
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except OSError as error:
        if old.exists() and not target.exists():
            old.rename(target)
        raise ValueError(f"cannot write {str(target)!r}: {error.strerror}") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _is_done(target: Path, key: dict[str, Any]) -> bool:
    """Whether the folder is whole and was made with the same seed, size and versions."""
    if not all((target / name).is_file() for name in FILES):
        return False
    try:
        record = json.loads((target / "run.json").read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(record, dict) and all(record.get(name) == value for name, value in key.items())
