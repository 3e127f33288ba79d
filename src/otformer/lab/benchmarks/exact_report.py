"""What `otformer bench exact` says: a line per peer and problem, a line per problem beside POT, and counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from otformer.lab.benchmarks.exact_families import family
from otformer.lab.benchmarks.harness import OURS, Row, by_problem
from otformer.lab.benchmarks.report import markdown, number, shown

EMD, COLUMNS = "POT emd", (OURS, "otformer matrix", "POT emd", "scipy")  # peers that have a column of seconds
PROVED = 1e-9  # relative gap, and difference to POT, above which an answer of ours counts as none
NEAR, FAR = 1.5, 3.0  # times POT's time, times POT's speed


@dataclass(frozen=True)
class ExactRow(Row):
    """A `Row` of the harness, with the value, its difference from the least one found, and the gap, both relative."""

    value: float = math.nan
    difference: float = math.nan
    gap: float | None = None
    floor: float = 0.0  # a value below it counts as 0: both are relative to it then


def table(rows: Iterable[ExactRow]) -> list[str]:
    """A Markdown table, one line per row; what did not arrive is a lower bound and says why."""
    lines = [["family", "n", "peer", "time, s", "value", "above the least", "gap", "ratio to best peer", ""]]
    for r in rows:
        value, above = (f"{r.value:.9g}", f"{r.difference:.1e}") if r.arrived else ("", "")
        name, time, ratio = shown(r)
        lines.append([r.family, str(r.n), name, time, value, above, number(r.gap, ".1e"), ratio, r.note])
    return markdown(lines)


class Beside(NamedTuple):
    """One problem: the rows of `COLUMNS` that there are. Ours is the first, from points where there are some."""

    family: str
    n: int
    rows: dict[str, ExactRow]

    @property
    def proved(self) -> bool:
        """Whether ours arrived with a gap of nothing, and no value is below it."""
        ours = self.rows.get(OURS)
        return ours is not None and ours.arrived and ours.gap is not None and ours.gap <= PROVED >= ours.difference

    @property
    def ratio(self) -> float:
        """Our time divided by POT's; nan if either is missing; an upper or lower bound if one of them ran out of time."""
        ours, pot = self.rows.get(OURS), self.rows.get(EMD)
        return ours.time / pot.time if ours and pot and ours.timed and pot.timed and ours.arrived | pot.arrived else math.nan

    @property
    def sign(self) -> str:
        """Of the ratio, where it is a bound."""
        ours, pot = self.rows.get(OURS), self.rows.get(EMD)
        return ("> " if ours and not ours.arrived else "") + ("< " if pot and not pot.arrived else "")

    @property
    def place(self) -> str:
        return f"{self.family}, n = {self.n}"


def besides(rows: Iterable[ExactRow]) -> list[Beside]:
    """All problems, in the order of the rows."""
    groups = by_problem(rows).items()
    return [Beside(name, n, {row.peer: row for row in group if row.peer in COLUMNS}) for (_, n, name), group in groups]


def beside_pot(problems: Iterable[Beside]) -> list[str]:
    """A Markdown table, one line per problem."""
    lines = [["family", "n", *(f"{peer}, s" for peer in COLUMNS), "ours / POT", "value above POT's", "gap"]]
    for p in problems:
        ours, pot = p.rows.get(OURS), p.rows.get(EMD)
        seconds = [shown(p.rows[peer])[1] if peer in p.rows else "" for peer in COLUMNS]
        above = ours.difference - pot.difference if ours and pot else math.nan
        found = [number(p.ratio, ".2g", p.sign), number(above, ".1e"), number(ours.gap if ours else None, ".1e")]
        lines.append([p.family, str(p.n), *seconds, *found])
    return markdown(lines)


def counts(problems: Sequence[Beside]) -> list[str]:
    """On how many problems ours is how fast beside POT, and on which it loses."""
    fair = [p for p in problems if p.proved and not math.isnan(p.ratio)]
    near, far = sum(p.ratio <= NEAR for p in fair), sum(p.ratio * FAR <= 1 for p in fair)
    lost = sorted((p for p in problems if p.ratio > 1), key=lambda p: -p.ratio)
    lists = {
        "slower than POT": [f"{p.place} ({p.sign}{p.ratio:.2g} times its time)" for p in lost],
        "without a proved optimum of ours": [p.place for p in problems if not p.proved],
        "without a time of POT's": [p.place for p in problems if EMD not in p.rows or not p.rows[EMD].timed],
    }
    head = f"of {len(problems)} problems ours has the proved optimum in at most {NEAR:g} times POT's time on {near}"
    return [
        f"- {head}, and at least {FAR:g} times faster on {far}",
        *(f"- {what}: {'; '.join(some) or 'none'}" for what, some in lists.items()),
    ]


def claims(rows: Sequence[ExactRow]) -> list[str]:
    """Problem by problem beside POT, counts, and what makes every family hard."""
    problems = besides(rows)
    hard = [f"- {name}: {family(name).hard}" for name in dict.fromkeys(p.family for p in problems)]
    return [*beside_pot(problems), "", *counts(problems), "", *hard]
