"""The benchmark: scenarios, each a set of rows, written as CSV, Markdown and a figure.

Every run is a process of its own (benchmarks/measure.py) with the same number of threads. Peers take turns, round after
round, so that a busy machine is busy for all of them; a row has the medians of its rounds. The first round finds the
effort a peer needs, later ones repeat it. Times are processor seconds where there is one thread (on a machine that does
other work too, the clock on the wall measures the other work), seconds by the clock otherwise.
"""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from otformer import checks
from otformer.benchmarks.peers import PEERS
from otformer.benchmarks.problems import FAMILIES
from otformer.files import output_folder, write_csv

OURS = "otformer"
SLOW = 10.0  # seconds; a peer this slow is not asked to repeat it
Tell = Callable[[str], None]
Progress = Callable[[float], None]  # called with the share of the scenario that is done


@dataclass(frozen=True)
class Row:
    """One line of the table. Where ``error`` is nan the peer did not arrive, and ``note`` says why (`late`).

    ``ratio``: time over the best peer's, the best of all that is not ours; below 1 is faster than all of them.
    """

    scenario: str
    family: str
    n: int
    reg: float
    peer: str
    time: float
    wall: float = math.nan
    passes: float | None = None
    memory: float = math.nan
    error: float = math.nan
    ratio: float = math.nan
    rounds: int = 0
    note: str = ""


COLUMNS = [f.name for f in fields(Row)]


@dataclass(frozen=True)
class Settings:
    """What a scenario runs. Empty families or peers: all of them."""

    n: Sequence[int] = (2000,)
    regs: Sequence[float] = (0.001, 0.05)
    families: Sequence[str] = ()
    peers: Sequence[str] = ()
    tol: float = 1e-6
    rounds: int = 3
    limit: float = 30.0
    threads: int = 1
    seed: int = 0
    count: int = 10_000  # sentence pairs of the scenario ``ragged``
    tell: Tell = field(default=lambda line: None)
    progress: Progress = field(default=lambda share: None)

    def __post_init__(self) -> None:
        for reg in self.regs:
            checks.positive("regs", reg)
        for n in self.n:
            checks.count("n", n, least=2)
        for name in self.families:
            checks.choice("families", name, FAMILIES)
        for name in self.peers:
            checks.choice("peers", name, PEERS)
        checks.positive("tol", self.tol)
        checks.positive("limit", self.limit)
        for argument in ("rounds", "threads", "count"):
            checks.count(argument, getattr(self, argument))

    def chosen_families(self) -> Sequence[str]:
        return self.families or tuple(FAMILIES)

    def chosen_peers(self) -> list[str]:
        """The installed ones of those asked for; why the others are not here is told."""
        names = []
        for name in self.peers or tuple(PEERS):
            reason = PEERS[name].missing()
            if reason is None:
                names.append(name)
            else:
                self.tell(f"{name}: {reason}")
        return names


def worker(module: str, spec: dict[str, Any], threads: int) -> dict[str, Any]:
    """The outcome of a process that runs ``module`` on ``spec``; {"failed": why} if it did not come back."""
    one = str(threads)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    env = os.environ | {name: one for name in names} | {"JAX_PLATFORMS": "cpu", "KEOPS_VERBOSE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(spec)], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode == -signal.SIGPROF:
        return {"failed": f"over {spec['limit']:g} s"}
    if done.returncode != 0:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        return {"failed": last[:200]}
    outcome: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return outcome


def compare(scenario: str, family: str, n: int, reg: float, s: Settings) -> list[Row]:
    """Run all peers on one problem, in turns."""
    outcomes: dict[str, list[dict[str, Any]]] = {name: [] for name in s.chosen_peers()}
    with_points = family != "random"
    for _, name in product(range(s.rounds), outcomes):
        before = outcomes[name]
        if (before and ("failed" in before[0] or before[0]["cpu"] > SLOW)) or (PEERS[name].points and not with_points):
            continue
        spec = {"peer": name, "family": family, "n": n, "seed": s.seed, "reg": reg, "tol": s.tol, "threads": s.threads}
        spec |= {"limit": s.limit * s.threads, "effort": before[0]["effort"] if before else None}
        before.append(worker("otformer.benchmarks.measure", spec, s.threads))
        s.tell(f"{family} n={n} λ={reg:g} {name}: {_short(before[-1])}")
    rows = [_row(scenario, family, n, reg, name, runs, s) for name, runs in outcomes.items() if runs]
    return with_ratios(rows)


def _short(outcome: dict[str, Any]) -> str:
    return outcome.get("failed") or f"{outcome['cpu']:.3f} s, error {outcome['error']:.1e}"


def _row(scenario: str, family: str, n: int, reg: float, name: str, runs: list[dict[str, Any]], s: Settings) -> Row:
    good = [run for run in runs if "failed" not in run]
    if not good:
        return Row(scenario, family, n, reg, name, s.limit, note=runs[0]["failed"])
    middle = {key: statistics.median(run[key] for run in good) for key in ("seconds", "cpu", "memory", "error")}
    time = middle["cpu"] if s.threads == 1 else middle["seconds"]
    note = "; ".join({run["failed"] for run in runs if "failed" in run})
    return Row(
        scenario, family, n, reg, name, time, middle["seconds"], good[0]["passes"], middle["memory"], middle["error"],
        rounds=len(good), note=note,
    )  # fmt: skip


def library(row: Row) -> str:
    """The first word of a peer's name; ours has more than one executor."""
    return row.peer.split()[0]


def arrived(row: Row) -> bool:
    return math.isfinite(row.error)


def late(row: Row) -> bool:
    """Ran out of time: its time is a lower bound. Any other row that did not arrive has no time at all."""
    return not arrived(row) and "over " in row.note


def with_ratios(rows: Iterable[Row]) -> list[Row]:
    """``ratio``, within each problem, to the fastest peer that arrived (to the time limit if none did)."""
    rows = list(rows)
    best: dict[tuple[str, int, float], float] = {}
    for row in rows:
        if library(row) != OURS and (arrived(row) or late(row)):
            key = (row.family, row.n, row.reg)
            best[key] = min(best.get(key, math.inf), row.time)
    return [
        replace(
            row, ratio=row.time / best.get((row.family, row.n, row.reg), math.nan) if arrived(row) or late(row) else math.nan
        )
        for row in rows
    ]


def _cpu(s: Settings) -> list[Row]:
    """Every problem, at every size."""
    return _all("cpu", s.n, s)


def _scaling(s: Settings) -> list[Row]:
    """Time and memory against n."""
    return _all("scaling", s.n if len(s.n) > 1 else (250, 500, 1000, 2000, 4000), s)


def _all(scenario: str, sizes: Sequence[int], s: Settings) -> list[Row]:
    rows, problems = [], list(product(sizes, s.regs, s.chosen_families()))
    for k, (n, reg, family) in enumerate(problems, 1):
        rows += compare(scenario, family, n, reg, s)
        s.progress(k / len(problems))
    return rows


def _many(kind: str) -> Callable[[Settings], list[Row]]:
    """Scenarios that run in one worker (benchmarks/many.py), which takes turns inside."""

    def run(s: Settings) -> list[Row]:
        spec = {"kind": kind, "tol": s.tol, "seed": s.seed, "count": s.count, "threads": s.threads, "rounds": s.rounds}
        outcome = worker("otformer.benchmarks.many", spec | {"limit": s.limit}, s.threads)
        if "failed" in outcome:
            raise RuntimeError(f"scenario {kind} failed: {outcome['failed']}")
        return with_ratios(Row(**row) for row in outcome["rows"])

    return run


SCENARIOS: dict[str, Callable[[Settings], list[Row]]] = {
    "cpu": _cpu,
    "small": _many("small"),
    "ragged": _many("ragged"),
    "scaling": _scaling,
}


def bench(scenario: str, out: str | Path, settings: Settings | None = None, append: bool = False) -> list[Row]:
    """Run a scenario; write ``out/<scenario>.csv``, ``.md`` and ``.png``; return its rows.

    ``append`` keeps the rows of an earlier CSV that are not run again, so that long tables can be made in parts.
    """
    checks.choice("scenario", scenario, SCENARIOS)
    from otformer.benchmarks.report import write_report

    with output_folder(out) as folder:
        rows, path = SCENARIOS[scenario](settings or Settings()), folder / f"{scenario}.csv"
        if append and path.exists():
            new = {_place(row) for row in rows}
            rows = with_ratios(sorted([row for row in read_csv(path) if _place(row) not in new] + rows, key=_place))
        write_csv(path, [asdict(row) for row in rows])
        write_report(folder, scenario, rows)
    return rows


def _place(row: Row) -> tuple[float, int, int, int]:
    """Where a row stands in a table; no two rows share it."""
    family = list(FAMILIES).index(row.family) if row.family in FAMILIES else len(FAMILIES)
    return row.reg, row.n, family, list(PEERS).index(row.peer)


def read_csv(path: Path) -> list[Row]:
    kinds = {"n": int, "rounds": int, "scenario": str, "family": str, "peer": str, "note": str}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(**{k: None if k == "passes" and not v else kinds.get(k, float)(v) for k, v in line.items()})  # type: ignore[arg-type]
            for line in csv.DictReader(file)
        ]
