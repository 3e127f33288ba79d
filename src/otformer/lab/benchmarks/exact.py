"""`otformer bench exact`: the optimum itself, λ = 0, beside the libraries that find it too.

Every peer is a process of its own per problem. It is warmed up on a small problem, called once, and then timed: the least
of a few calls, of many if they are short, of the first alone if that took over ten seconds and nothing was compiled in it.
Peers that take a matrix get it for nothing: making it is not timed. Ours is ``of.solve_sample(x, y, reg=0)``, from points,
and ``of.solve(M, reg=0)``, from the matrix; where a problem has no points, the matrix is all there is.

Nothing a peer says of itself is used. Value, marginals and the gap to the bound are computed here in float64, from the plan
and the potentials g of the columns: with f_i = min_j (C_ij − g_j) over all columns that have mass no plan costs less than
Σ a f + Σ b g, and this one costs Σ P (C − f − g) more, and what its marginals are off times their prices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from otformer.files import output_folder, write_csv, written
from otformer.lab.benchmarks.exact_families import FAMILIES, expanded, make, order
from otformer.lab.benchmarks.exact_peers import PEERS, Plan
from otformer.lab.benchmarks.exact_problem import Problem
from otformer.lab.benchmarks.exact_report import ExactRow, claims, table
from otformer.lab.benchmarks.harness import SLOW, TurnSettings, by_problem, earlier, with_ratios
from otformer.lab.benchmarks.measure import WARM, timed
from otformer.lab.benchmarks.problems import Array
from otformer.lab.benchmarks.process import outside
from otformer.lab.benchmarks.report import machine, versions

SHORT = 0.1  # seconds; a call that takes less is repeated ten times as often
OFF = 1e-9  # L1 error of the marginals, of mass 1, above which a plan is none
NOTHING = 1e-9  # of what the plan a bᵀ costs; a value below it counts as 0
LIBRARIES = ("scipy", "numba", "lapx", "torch-linear-assignment")  # versions that the report adds


def single(spec: dict[str, Any]) -> dict[str, Any]:
    """Seconds, value, error and gap; ``spec`` names peer, family, n, seed, rounds, and the processor seconds of a call."""
    peer = PEERS[spec["peer"]]
    peer.prepare(make(spec["family"], WARM))()
    problem = make(spec["family"], spec["n"], spec["seed"])
    call = peer.prepare(problem)
    *first, found = timed(call, spec["limit"])
    again = 0 if first[1] > SLOW else spec["rounds"] * (10 if first[1] < SHORT else 1)
    calls = [timed(call, spec["limit"])[:2] for _ in range(max(again, peer.compiles))]
    wall, cpu = map(min, zip(*calls, strict=True)) if calls else first
    return {"wall": wall, "cpu": cpu, "rounds": max(1, len(calls)), **judged(problem, peer.read(found))}


def judged(p: Problem, plan: Plan, rows: int = 512) -> dict[str, Any]:
    """Value, L1 error of the marginals, value minus bound (None without potentials), and the cost that counts as nothing.

    The gap is relative to the value; where the value is nothing beside what the plan a bᵀ costs, relative to ``floor``.
    """
    i, j, masses = (np.asarray(t) for t in plan[:3])
    if not (masses >= 0).all():
        raise RuntimeError(f"a mass is {masses.min():.2g}")
    i, j, masses = (t[masses > 0] for t in (i, j, masses))
    cost, (a, b) = p.costs(i, j), p.weights()
    value = float(masses @ cost)
    off = [np.bincount(at, masses, len(w)) - w for at, w in ((i, a), (j, b))]
    error = float(sum(abs(each).sum() for each in off))
    if not error < OFF:
        raise RuntimeError(f"marginals are off by {error:.2g}")
    floor = NOTHING * sum(float(w @ abs(p.rows(part)) @ b) for part, w in _parts(a, rows))
    found = {"value": value, "error": error, "floor": floor}
    if plan.g is None:
        return found | {"gap": None}
    carried, g = b > 0, np.where(b > 0, np.asarray(plan.g), 0.0)
    f = np.concatenate([(p.rows(part) - g)[:, carried].min(1) for part, _ in _parts(a, rows)])
    gap = float(masses @ (cost - f[i] - g[j]) + abs(off[0] @ f + off[1] @ g))
    return found | {"gap": gap / _size(value, floor)}


def _parts(a: Array, rows: int) -> Iterator[tuple[slice, Array]]:
    """Some rows at a time, and their weights."""
    return ((slice(k, k + rows), a[k : k + rows]) for k in range(0, len(a), rows))


def _size(value: float, floor: float) -> float:
    """What differences are relative to."""
    return max(abs(value), floor, 1e-300)


@dataclass(frozen=True)
class ExactSettings(TurnSettings):
    """What is run."""

    n: Sequence[int] = (100, 500, 2000, 5000, 10_000)
    families: Sequence[str] = tuple(FAMILIES)
    peers: Sequence[str] = tuple(PEERS)
    known: ClassVar[Mapping[str, Mapping[str, Any]]] = {"peers": PEERS}

    def __post_init__(self) -> None:
        object.__setattr__(self, "families", expanded(self.families))
        super().__post_init__()


def bench(out: str | Path, settings: ExactSettings | None = None, append: bool = False) -> list[ExactRow]:
    """Run all; write ``out/exact.csv`` and ``.md``; return the rows. ``append`` keeps earlier rows not run again."""
    s = settings or ExactSettings()
    peers = s.installed_peers()
    problems, rows = list(product(s.n, s.families)), []
    if not any(_takes(name, family) for name, family in product(peers, s.families)):
        raise ValueError(f"peers must have one that is installed and takes these families, got {', '.join(s.peers)}")
    with output_folder(out) as folder:
        path = folder / "exact.csv"
        kept = earlier(path, ExactRow, _place) if append else {}
        for k, (n, family) in enumerate(problems, 1):
            rows += [_row(family, n, name, s) for name in peers if _takes(name, family)]
            s.progress(k / len(problems))
        rows = compared((kept | {_place(row): row for row in rows}).values())
        write_csv(path, [asdict(row) for row in rows])
        with written(folder / "exact.md", ours=True) as file:
            file.write(
                ("\n".join([machine(), ", ".join(versions(LIBRARIES)), "", *table(rows), "", *claims(rows)]) + "\n").encode()
            )
    return rows


def _takes(name: str, family: str) -> bool:
    return PEERS[name].takes(make(family, WARM))


def _row(family: str, n: int, name: str, s: ExactSettings) -> ExactRow:
    spec = {"peer": name, "family": family, "n": n, "seed": s.seed, "rounds": s.rounds, "limit": s.limit * s.threads}
    run = outside(single, spec, s.threads)
    if "failed" in run:
        note = f"over {s.limit:g} s" if run["failed"].startswith("over ") else run["failed"]
        s.tell(f"{family} n={n} {name}: {note}")
        return ExactRow("exact", family, n, 0.0, name, s.limit, note=note)
    done = run["done"]
    seconds = done.pop("cpu") if s.threads == 1 else done["wall"]
    done.pop("cpu", None)
    s.tell(f"{family} n={n} {name}: {seconds:.3g} s, value {done['value']:.9g}")
    return ExactRow("exact", family, n, 0.0, name, seconds, **done)


def compared(rows: Iterable[ExactRow]) -> list[ExactRow]:
    """In order, with ``ratio``, and ``difference`` from the least value found of the same problem."""
    rows = with_ratios(sorted(rows, key=_place))
    groups = by_problem(rows).items()
    least = {key: min((row.value for row in group if row.arrived), default=math.nan) for key, group in groups}
    differences = ((row.value - least[row.problem]) / _size(least[row.problem], row.floor) for row in rows)
    return [replace(row, difference=difference) for row, difference in zip(rows, differences, strict=True)]


def _place(row: ExactRow) -> tuple[int, tuple[int, ...], int]:
    """Where a row stands in the table; no two rows share it."""
    return row.n, order(row.family), list(PEERS).index(row.peer)
