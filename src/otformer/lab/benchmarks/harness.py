"""The benchmark: scenarios, each a set of rows, written as CSV, Markdown and a figure.

Every run is a process of its own with the same number of threads. Peers take turns, round after round, so that a busy
machine is busy for all of them; a row has the medians of its rounds. The first round finds the effort a peer needs, later
ones repeat it. Times are processor seconds where there is one thread (on a machine that does other work too, the clock on
the wall measures the other work), seconds by the clock otherwise.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, TypeVar

from otformer import checks
from otformer.array_files import LARGEST_TABLE, read_whole
from otformer.files import output_folder, write_csv
from otformer.lab.benchmarks import many
from otformer.lab.benchmarks.measure import single
from otformer.lab.benchmarks.peers import PEERS
from otformer.lab.benchmarks.problems import FAMILIES
from otformer.lab.benchmarks.process import outside

OURS = "otformer"
SLOW = 10.0  # seconds; a peer this slow is not asked to repeat it


@dataclass(frozen=True)
class Row:
    """One line of the table. Where ``error`` is nan the peer did not arrive, and ``note`` says why.

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

    @property
    def library(self) -> str:
        """The first word of a peer's name; ours has more than one executor."""
        return self.peer.split()[0]

    @property
    def problem(self) -> tuple[float, int, str]:
        return self.reg, self.n, self.family

    @property
    def arrived(self) -> bool:
        return math.isfinite(self.error)

    @property
    def timed(self) -> bool:
        """Arrived, or ran out of time, which is then a lower bound. Any other row has no time at all."""
        return self.arrived or "over " in self.note


Kind = TypeVar("Kind", bound=Row)  # of rows


@dataclass(frozen=True)
class TurnSettings:
    """Settings of every benchmark: problems, peers, rounds, time limit, callbacks."""

    n: Sequence[int]
    families: Sequence[str]
    peers: Sequence[str]
    rounds: int = 3
    limit: float = 30.0
    threads: int = 1
    seed: int = 0
    tell: Callable[[str], None] = lambda line: None
    progress: Callable[[float], None] = lambda share: None
    known: ClassVar[Mapping[str, Mapping[str, Any]]]  # families and peers, by their names

    def __post_init__(self) -> None:
        for n in self.n:
            checks.count("n", n, least=2)
        for argument, known in self.known.items():
            for name in getattr(self, argument):
                checks.choice(argument, name, known)
        checks.positive("limit", self.limit)
        for argument in ("rounds", "threads"):
            checks.count(argument, getattr(self, argument))

    def installed_peers(self) -> list[str]:
        """Those of the peers that can run; why the others cannot is told."""
        reasons = {name: self.known["peers"][name].missing() for name in self.peers}
        for name, reason in reasons.items():
            if reason is not None:
                self.tell(f"{name}: {reason}")
        return [name for name, reason in reasons.items() if reason is None]


@dataclass(frozen=True)
class BenchSettings(TurnSettings):
    """What a scenario runs."""

    n: Sequence[int] = (2000,)
    families: Sequence[str] = tuple(FAMILIES)
    peers: Sequence[str] = tuple(PEERS)
    regs: Sequence[float] = (0.001, 0.05)
    tol: float = 1e-6
    count: int = 10_000  # sentence pairs of the scenario ``ragged``
    known: ClassVar[Mapping[str, Mapping[str, Any]]] = {"families": FAMILIES, "peers": PEERS}

    def __post_init__(self) -> None:
        for reg in self.regs:
            checks.positive("regs", reg)
        super().__post_init__()
        checks.positive("tol", self.tol)
        checks.count("count", self.count)


def compare(scenario: str, family: str, n: int, reg: float, s: BenchSettings) -> list[Row]:
    """Run all peers on one problem, in turns."""
    names = [name for name in s.installed_peers() if family != "random" or not PEERS[name].points]
    outcomes: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    problem = {"family": family, "n": n, "seed": s.seed, "reg": reg, "tol": s.tol, "limit": s.limit * s.threads}
    for _, name in product(range(s.rounds), names):
        first: dict[str, Any] = outcomes[name][0] if outcomes[name] else {"effort": None, "cpu": 0.0}
        if "failed" in first or first["cpu"] > SLOW:
            continue
        run = outside(single, problem | {"peer": name, "effort": first["effort"]}, s.threads)
        run = run.get("done", run)
        outcomes[name].append(run)
        said = run.get("failed") or f"{run['cpu']:.3f} s, error {run['error']:.1e}"
        s.tell(f"{family} n={n} λ={reg:g} {name}: {said}")
    return with_ratios(Row(scenario, family, n, reg, name, **_medians(runs, s)) for name, runs in outcomes.items())


def _medians(runs: list[dict[str, Any]], s: BenchSettings) -> dict[str, Any]:
    """What a row says of the runs of one peer on one problem."""
    good = [run for run in runs if "failed" not in run]
    note = "; ".join(dict.fromkeys(run["failed"] for run in runs if "failed" in run))
    if not good:
        return {"time": s.limit, "note": note}
    wall, cpu, memory, error = (median(run[key] for run in good) for key in ("seconds", "cpu", "memory", "error"))
    found = {"wall": wall, "passes": good[0]["passes"], "memory": memory, "error": error, "rounds": len(good), "note": note}
    return found | {"time": cpu if s.threads == 1 else wall}


def by_problem(rows: Iterable[Kind]) -> dict[tuple[float, int, str], list[Kind]]:
    """Rows of the same λ, n and family together, in the order of their first."""
    groups: dict[tuple[float, int, str], list[Kind]] = {}
    for row in rows:
        groups.setdefault(row.problem, []).append(row)
    return groups


def fastest(rows: Iterable[Row]) -> Row | None:
    """The fastest that arrived; else one that ran out of time (its time is a lower bound for all of them); else None."""
    return min((r for r in rows if r.timed), key=lambda r: (not r.arrived, r.time), default=None)


def with_ratios(rows: Iterable[Kind]) -> list[Kind]:
    """``ratio``, within each problem, to the fastest peer that arrived (to the time limit if none did)."""
    rows = list(rows)
    best = {key: fastest(r for r in group if r.library != OURS) for key, group in by_problem(rows).items()}
    times = {key: math.nan if row is None else row.time for key, row in best.items()}
    return [replace(row, ratio=row.time / times[row.problem] if row.timed else math.nan) for row in rows]


def _grid(scenario: str, s: BenchSettings) -> list[Row]:
    """Every problem at every size; ``scaling``, time and memory against n, has sizes of its own if there is one only."""
    sizes = (250, 500, 1000, 2000, 4000) if scenario == "scaling" and len(s.n) == 1 else s.n
    rows, problems = [], list(product(sizes, s.regs, s.families))
    for k, (n, reg, family) in enumerate(problems, 1):
        rows += compare(scenario, family, n, reg, s)
        s.progress(k / len(problems))
    return rows


def _many(scenario: str, s: BenchSettings) -> list[Row]:
    """A task of one process, which takes turns inside."""
    spec = {"tol": s.tol, "seed": s.seed, "count": s.count, "rounds": s.rounds, "limit": s.limit}
    outcome = outside(getattr(many, scenario), spec, s.threads)
    if "failed" in outcome:
        raise RuntimeError(f"scenario {scenario} failed: {outcome['failed']}")
    return with_ratios(Row(scenario=scenario, **row) for row in outcome["done"])


SCENARIOS = {"cpu": _grid, "small": _many, "ragged": _many, "scaling": _grid}


def bench(scenario: str, out: str | Path, settings: BenchSettings | None = None, append: bool = False) -> list[Row]:
    """Run a scenario; write ``out/<scenario>.csv``, ``.md`` and ``.png``; return its rows.

    ``append`` keeps the rows of an earlier CSV that are not run again, so that long tables can be made in parts.
    """
    checks.choice("scenario", scenario, SCENARIOS)
    settings = settings or BenchSettings()
    for name in ("n", "regs", "families", "peers") if scenario in ("small", "ragged") else ():
        if tuple(getattr(settings, name)) != getattr(BenchSettings, name):
            raise checks.ConflictError(name, f"the scenario {scenario}", advice="its problems are fixed")
    from otformer.lab.benchmarks.report import write_report

    with output_folder(out) as folder:
        path = folder / f"{scenario}.csv"
        kept = earlier(path, Row, _place) if append else {}
        rows = SCENARIOS[scenario](scenario, settings)
        if kept:
            rows = with_ratios(sorted((kept | {_place(row): row for row in rows}).values(), key=_place))
        write_csv(path, [asdict(row) for row in rows])
        write_report(folder, scenario, rows)
    return rows


def _place(row: Row) -> tuple[float, int, int, int]:
    """Where a row stands in a table; no two rows share it."""
    return row.reg, row.n, [*FAMILIES, row.family].index(row.family), list(PEERS).index(row.peer)


def earlier(path: Path, kind: type[Kind], place: Callable[[Kind], Any]) -> dict[Any, Kind]:
    """Read the rows of an earlier table, by their places; raise ValueError if it is not ours."""
    if not path.exists():
        return {}
    try:
        rows = {place(row): row for row in read_csv(path, kind)}
    except (ValueError, TypeError, csv.Error):
        rows = {}
    if not rows:
        raise ValueError(f"{path} is not a table of this program: name another folder, or leave out --append")
    return rows


def read_csv(path: Path, kind: type[Kind]) -> list[Kind]:
    """The rows that `bench` wrote."""
    kinds: dict[str, Any] = {"n": int, "rounds": int} | dict.fromkeys(("scenario", "family", "peer", "note"), str)
    lines = csv.DictReader(io.StringIO(read_whole(path, LARGEST_TABLE).decode(), newline=""))
    return [kind(**{k: kinds.get(k, float)(v) for k, v in line.items() if v or k == "note"}) for line in lines]
