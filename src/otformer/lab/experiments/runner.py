"""Run experiments and write what they found: one folder per experiment, whole or not at all."""

from __future__ import annotations

import csv
import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from otformer import checks, figures
from otformer._version import __version__
from otformer.array_files import LARGEST_RECORD, read_whole
from otformer.files import output_folder, write_csv, written_folder
from otformer.lab.experiments._sources import digest
from otformer.lab.experiments._texts import Sentences, constants
from otformer.lab.experiments.experiment import Context, Experiment
from otformer.lab.experiments.registry import EXPERIMENTS
from otformer.lab.experiments.settings import Value, applied, changed
from otformer.locks import LOCK, part_of

RECORD = "run.json"
FILES = ("figure.png", "figure.svg", "figure-narrow.png", "numbers.csv", RECORD)
PDF = "figure.pdf"  # where it was asked for
FINDING = {"title": "finding", "brief": "brief", "number": "number"}  # its parts in the record -> their sentences
Progress = Callable[[str, float], None]  # experiment name, fraction of it that is done


@dataclass(frozen=True)
class Record:
    """One experiment on disk: its folder, and the contents of its ``run.json``."""

    folder: Path
    about: dict[str, Any]

    @property
    def checks(self) -> dict[str, bool]:
        """Each claim in words, and whether it held."""
        return dict(self.about["checks"])

    @property
    def numbers(self) -> list[dict[str, str]]:
        """The rows of ``numbers.csv``."""
        with (self.folder / "numbers.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


def reproduce(
    experiments: Iterable[Experiment],
    out: str | Path,
    seed: int = 0,
    full: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
    values: Mapping[str, Value] | None = None,
    pdf: bool = False,
) -> list[Record]:
    """Run experiments (`registry.chosen`) and write the `FILES` of each to ``out/<name>/``.

    An experiment's folder appears when all its files are written, replacing an older one; if it fails, nothing of it
    appears and the older one stays. A folder with files of others is refused before anything is run. ``full`` runs at the
    size of the claims. ``resume`` skips what ``out`` already holds with the same seed, size, versions and sources
    (`_sources.digest`): after an interruption it goes on, after an edit only what it touches is run again. The page that
    shows them is `otformer.lab.report.html.write_report`. ``values`` are settings (settings.py) of all the experiments; a
    run in which one is not the standard value says so under ``changed``, and is never compared with recorded results.
    ``pdf`` writes the figures as PDF too.
    """
    seed = checks.count("seed", seed, least=0)
    tell: Progress = progress or (lambda name, fraction: None)
    same = {"seed": seed, "full": full, "versions": versions()}
    # Before any takes its time:
    digests = {each: digest(each.module, *each.texts.values(), *each.check.values()) for each in experiments}
    records = []
    with output_folder(out) as folder, _one_thread():
        keys = {
            experiment: {**same, "made from": made_from, "changed": changed(experiment, values or {})}
            for experiment, made_from in digests.items()
        }
        kept: dict[Experiment, Record | None] = {}
        for experiment, key in keys.items():
            target = folder / experiment.name
            with part_of(target):  # a run killed between two renames is undone
                there = not pdf or (target / PDF).is_file()
                kept[experiment] = _done(target, key) if resume and there else None
            if kept[experiment] is None:
                _check_ours(target)
        for experiment, key in keys.items():
            records.append(kept[experiment] or _run_one(experiment, folder / experiment.name, key, tell, pdf))
            tell(experiment.name, 1.0)
    return records


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
    modules = {"torch": "torch", "numpy": "numpy", "scipy": "scipy", "POT": "ot", "matplotlib": "matplotlib"}
    found = {name: str(import_module(module).__version__) for name, module in modules.items()}
    return {"otformer": __version__, "python": platform.python_version(), **found}


def _run_one(experiment: Experiment, target: Path, key: dict[str, Any], tell: Progress, pdf: bool) -> Record:
    name = experiment.name
    context = Context(key["seed"], key["full"], lambda fraction: tell(name, fraction))
    began = time.perf_counter()
    with figures.applied(), applied(experiment, key["changed"]):
        outcome = experiment.run(context)
        seconds = round(time.perf_counter() - began, 2)
        position = list(EXPERIMENTS).index(name) if name in EXPERIMENTS else len(EXPERIMENTS)
        said = Sentences(experiment.texts, constants(experiment.module) | outcome.numbers)
        about = {
            "name": name,
            "position": position,
            "title": experiment.title,
            "source": experiment.source,
            "claim": experiment.claim,
            "summary": said.filled("details"),
            "checks": {_stated(experiment, said, name): held for name, held in outcome.checks.items()},
            "settings": outcome.settings,
            **key,
            "seconds": seconds,
            "finding": {part: said.filled(text) for part, text in FINDING.items()},
        }
        with written_folder(target) as folder:
            outcome.figure.savefig(folder / "figure.png", metadata={"Software": None})
            outcome.figure.savefig(folder / "figure.svg", metadata={"Date": None})
            if pdf:
                outcome.figure.savefig(folder / PDF, metadata={"CreationDate": None})
            figures.narrowed(outcome.figure).savefig(folder / "figure-narrow.png", metadata={"Software": None})
            write_csv(folder / "numbers.csv", outcome.rows)
            text = json.dumps(about, ensure_ascii=False, indent=2)
            (folder / RECORD).write_text(text + "\n", encoding="utf-8")
            _check_ours(target)  # again: the run may have taken hours
    return Record(target, about)


def _stated(experiment: Experiment, said: Sentences, name: str) -> str:
    """A statement by its name, or the name itself where that is the statement."""
    return said.fill(experiment.check[name]) if name in experiment.check else name


def _check_ours(target: Path) -> None:
    """Raise ValueError if the folder holds files this program did not write."""
    found = sorted(target.iterdir()) if target.is_dir() and not target.is_symlink() else []
    ours = (*FILES, PDF) if any(each.name == RECORD for each in found) else ()  # without a record none of it is ours
    others = [each for each in found if each.name not in (*ours, LOCK)]
    if others:
        raise ValueError(f"{others[0]} would be removed, as {target} is replaced: move it, or name another folder")


def read_record(folder: Path) -> dict[str, Any] | None:
    """The contents of the ``run.json`` of an experiment's folder; None if it cannot be read or is of something else."""
    try:
        about = json.loads(read_whole(folder / RECORD, LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return None
    return about if isinstance(about, dict) and about.get("name") == folder.name else None


def _done(target: Path, key: dict[str, Any]) -> Record | None:
    """The record of a folder that is whole and was made with the same seed, size, settings, versions and sources."""
    key = json.loads(json.dumps(key))  # as a file has it: a tuple is a list
    about = read_record(target) if all((target / name).is_file() for name in FILES) else None
    whole = about is not None and isinstance(about.get("checks"), dict) and key.items() <= about.items()
    return Record(target, about) if about and whole else None
