"""Recorded results: what the experiments gave at the default size and seed, and whether a run still gives that.

``results/<name>.csv`` has every number of an experiment to `DIGITS` digits, ``results/checks.json`` the verdict of every
check. ``otformer reproduce --check`` compares a run with them; `COMMAND` writes them anew from a report of all experiments.

Bits differ between processors and builds of torch, so a number x agrees with the recorded r if |x − r| ≤ a + ρ|r|, where
ρ and a are the `Tolerance` of its kind. That alone would let an r below a become anything below it, 0 for one, so such a
number must also keep its magnitude: |x| and |r|, each raised to the level of rounding if it is below, within a `FACTOR` of
each other. Below that level only its being there can be asked: a column does not turn into zeros. The sign of a number
below a is not compared; `asked` counts these.
Text, verdicts and whole numbers (sizes, layers, lists sorted) agree only if they are equal: 20 of 20 is not 19 of 20.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otformer.errors import ArgumentError
from otformer.files import write_csv, written
from otformer.lab.experiments.registry import EXPERIMENTS
from otformer.lab.experiments.runner import Record

FOLDER = Path(__file__).parent / "results"
COMMAND = "python -m otformer.lab.experiments.recorded report"  # after `make report`
DIGITS = 6  # significant digits of a recorded number: finer than every tolerance
SPEED = {"ms"}  # columns that hold the speed of the machine, which is no result
MOST_LINES = 20  # drifts of one experiment that are told one by one
FACTOR = 30.0  # by which a number below the absolute tolerance may grow or shrink
SEVERAL = 4  # numbers at the level of rounding that do not all turn out 0 by chance
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")  # a cell may hold several: [26.9, 37.3]
INTEGER = re.compile(r"-?\d+")
Verdicts = dict[str, dict[str, bool]]  # experiment -> claim -> whether it held


@dataclass(frozen=True)
class Tolerance:
    """How far a number may lie from the recorded one: ``absolute + relative · |recorded|``, and `FACTOR` below ``absolute``.

    rounding : a number below it is rounding, and its magnitude says nothing.
    """

    relative: float
    absolute: float
    rounding: float

    def allows(self, new: str, recorded: str) -> bool:
        """Whether two cells agree: the text between the numbers, the whole numbers, and the others within the tolerance.

        >>> near = Tolerance(0.01, 0.0, 0.0)
        >>> near.allows("[2.0, 101.0]", "[2.0, 100.0]"), near.allows("[2.0, 102.0]", "[2.0, 100.0]"), near.allows("20", "19")
        (True, False, False)
        """
        if NUMBER.split(new) != NUMBER.split(recorded):
            return False
        pairs = zip(NUMBER.findall(new), NUMBER.findall(recorded), strict=True)
        return all(x == r or self._near(x, r) for x, r in pairs)

    def _near(self, new: str, recorded: str) -> bool:
        if INTEGER.fullmatch(recorded):
            return False
        x, r = float(new), float(recorded)
        low, high = sorted(max(abs(t), self.rounding) for t in (x, r))
        alike = abs(r) > self.absolute or high <= FACTOR * low
        return alike and abs(x - r) <= self.absolute + self.relative * abs(r)

    def asks(self, recorded: str) -> str:
        """What is asked of a number: "equal" of a whole one, "near", below ``absolute`` "magnitude", then "small" alone.

        >>> [FLOAT64.asks(recorded) for recorded in ("20", "0.5", "-1e-09", "1e-15", "0.0")]
        ['equal', 'near', 'magnitude', 'small', 'small']
        """
        r = abs(float(recorded))
        if INTEGER.fullmatch(recorded):
            return "equal"
        return "near" if r > self.absolute else "magnitude" if r >= self.rounding else "small"

    def __str__(self) -> str:
        return f"± ({self.absolute:g} + {100 * self.relative:g} %)"


# How far a number may move. What another processor does to it was measured by a run on kernels without vector instructions
# (tests/experiments/test_recorded.py has the command); each tolerance is at least twice the largest move there.
FLOAT64 = Tolerance(relative=1e-5, absolute=1e-8, rounding=1e-12)  # without a fit: 1e-7, or below 1e-9 near rounding
A_FIT = Tolerance(relative=1e-3, absolute=1e-5, rounding=1e-7)  # slopes and least squares amplify rounding: 1e-4, or 2e-6
FLOAT32 = Tolerance(relative=0.02, absolute=0.02, rounding=1e-4)  # networks; near ties change a row: 0.8 %, or 0.004
FRESH = Tolerance(relative=0.1, absolute=6.0, rounding=6.0)  # per cent of rows, of networks trained in the run: 3 points
OF_A_FIT = {"rates", "general-costs"}
OF_SHIPPED_NETWORKS = {
    *("generalization", "prompting", "iterative", "generalization-15", "trained", "beyond", "learned-algorithm"),
    *("fox", "translation-attention", "translation-attention-de"),
}
OF_TRAINED_NETWORKS = {"rows right in %, each seed"}  # columns


def tolerance(experiment: str, column: str) -> Tolerance:
    """The tolerance of the numbers of a column.

    >>> print(tolerance("sizes", "σ"), tolerance("trained", "seeds: median"), sep=", ")
    ± (1e-08 + 0.001 %), ± (0.02 + 2 %)
    """
    if column in OF_TRAINED_NETWORKS:
        return FRESH
    return FLOAT32 if experiment in OF_SHIPPED_NETWORKS else A_FIT if experiment in OF_A_FIT else FLOAT64


def drifts(record: Record, folder: Path = FOLDER) -> list[str]:
    """What is not as recorded in the run of an experiment, a line for each; none if all agrees."""
    name = record.about["name"]
    file, verdicts = folder / f"{name}.csv", _verdicts(folder)
    if name not in verdicts or not file.is_file():
        return [f"{name}: no results are recorded: {COMMAND}"]
    found = [*_moved_checks(record.checks, verdicts[name]), *_moved_numbers(name, _numbers(record), _read(file))]
    more = [f"and {len(found) - MOST_LINES} more"] if len(found) > MOST_LINES else []
    return [f"{name}: {line}" for line in (*found[:MOST_LINES], *more)]


def asked(names: Iterable[str], folder: Path = FOLDER) -> Counter[str]:
    """How many recorded numbers of these experiments are compared, by what is asked of them (`Tolerance.asks`)."""
    kept = [name for name in names if (folder / f"{name}.csv").is_file()]
    cells = ((name, *cell) for name in kept for row in _read(folder / f"{name}.csv") for cell in row.items())
    return Counter(tolerance(name, column).asks(x) for name, column, cell in cells for x in NUMBER.findall(cell))


def _moved_checks(new: dict[str, bool], recorded: dict[str, bool]) -> Iterator[str]:
    for claim in dict.fromkeys((*recorded, *new)):
        if new.get(claim) != recorded.get(claim):
            said = {True: "holds", False: "does not hold", None: "is not asked"}
            yield f"“{claim}” {said[new.get(claim)]}, recorded: {said[recorded.get(claim)]}"


def _moved_numbers(name: str, new: list[dict[str, str]], recorded: list[dict[str, str]]) -> Iterator[str]:
    shapes = [(len(rows), list(rows[0]) if rows else []) for rows in (new, recorded)]
    if shapes[0] != shapes[1]:
        yield "numbers.csv has {} rows of {}, recorded: {} of {}".format(*shapes[0], *shapes[1])
        return
    for line, (row, was) in enumerate(zip(new, recorded, strict=True), 2):  # line 1 of the file is the header
        for column, cell in row.items():
            allowed = tolerance(name, column)
            if not allowed.allows(cell, was[column]):
                yield f"numbers.csv, line {line}, {column}: {cell}, recorded: {was[column]} {allowed}"
    for column in shapes[0][1]:
        cells = [(row[column], was[column]) for row, was in zip(new, recorded, strict=True)]
        if _vanished(cells, tolerance(name, column).rounding):
            yield f"numbers.csv, {column}: 0 wherever the recorded number is at the level of rounding"


def _vanished(cells: list[tuple[str, str]], rounding: float) -> bool:
    """Whether several recorded numbers are below ``rounding``, and all of them 0 in the run: it compares nothing."""
    pairs = (pair for cell in cells for pair in zip(*map(NUMBER.findall, cell), strict=False))
    small = [float(x) for x, r in pairs if not INTEGER.fullmatch(r) and 0 < abs(float(r)) < rounding]
    return len(small) >= SEVERAL and not any(small)


def record(report: Path, folder: Path = FOLDER) -> None:
    """Write the results of a report as the recorded ones; those of other experiments stay."""
    verdicts = _verdicts(folder)
    for name in EXPERIMENTS:
        if (report / name / "run.json").is_file():
            run = Record(report / name, json.loads((report / name / "run.json").read_text(encoding="utf-8")))
            if run.about["seed"] or run.about["full"] or run.about.get("changed"):
                expected = "have seed 0, the default size and the standard settings"
                raise ArgumentError("report", expected, f"another run in {report / name}")
            write_csv(folder / f"{name}.csv", [{key: _short(x) for key, x in row.items()} for row in _numbers(run)])
            verdicts[name] = run.checks
    ordered = {name: verdicts[name] for name in EXPERIMENTS if name in verdicts}
    with written(folder / "checks.json") as file:
        file.write((json.dumps(ordered, ensure_ascii=False, indent=1) + "\n").encode())


def _short(cell: str) -> str:
    """A cell with `DIGITS` digits; whole numbers stay whole, and others do not become so."""
    return NUMBER.sub(lambda x: x[0] if INTEGER.fullmatch(x[0]) else repr(float(f"{float(x[0]):.{DIGITS}g}")), cell)


def _numbers(run: Record) -> list[dict[str, str]]:
    return [{column: cell for column, cell in row.items() if column not in SPEED} for row in run.numbers]


def _read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def _verdicts(folder: Path) -> Verdicts:
    file = folder / "checks.json"
    found: Any = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return dict(found)


def main(arguments: list[str]) -> None:
    """Write the recorded results from the report in the folder given."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        raise SystemExit(f"one argument is expected, the folder of a report: {COMMAND}")
    record(Path(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
