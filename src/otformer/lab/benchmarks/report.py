"""What a benchmark writes beside its CSV: a Markdown table with machine and versions, and a figure."""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from otformer import figures
from otformer.files import written
from otformer.lab.benchmarks.harness import OURS, Kind, Row, by_problem, fastest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGES = ("torch", "numpy", "POT", "ott-jax", "jax", "geomloss", "pykeops", "regot", "mdot-tnt")
RIVALS, NEWTON = ("POT", "OTT", "GeomLoss"), ("regot", "mdot_tnt")  # the libraries people use, and methods of second order


def machine() -> str:
    """Processor, cores, Python and the versions of what is installed, on one line, with the date."""
    cpuinfo = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*:\s*(.*)", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else None
    model = named[1] if named else platform.processor() or platform.machine()
    today, python = datetime.date.today().isoformat(), platform.python_version()
    return f"{model}, {os.cpu_count()} cores; Python {python}, {', '.join(versions(PACKAGES))}; {today}"


def versions(packages: Iterable[str]) -> Iterator[str]:
    """Name and version of those packages that are installed."""
    for package in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            yield f"{package} {importlib.metadata.version(package)}"


def write_report(folder: Path, scenario: str, rows: Sequence[Row]) -> None:
    """Write the Markdown table and the figure of a scenario."""
    parts = [machine(), ""]
    parts += exponents(rows) if scenario == "scaling" else [*table(rows), "", *claims(rows)]
    with written(folder / f"{scenario}.md", ours=True) as out:
        out.write(("\n".join(parts) + "\n").encode())
    figures.save(lambda: draw(rows), folder / f"{scenario}.png")


def table(rows: Iterable[Row]) -> list[str]:
    """A Markdown table, one line per row; what did not arrive is a lower bound and says why."""
    lines = [["family", "n", "λ", "peer", "time, s", "passes", "memory, MiB", "error", "ratio to best peer", ""]]
    for r in rows:
        name, time, ratio = shown(r)
        counted = number(r.passes, ".0f"), number(r.memory, ".0f"), number(r.error, ".1e")
        lines.append([r.family, str(r.n), f"{r.reg:g}", name, time, *counted, ratio, r.note])
    return markdown(lines)


def markdown(rows: list[list[str]]) -> list[str]:
    head, *lines = (f"| {' | '.join(cells)} |" for cells in rows)
    return [head, f"|{'---|' * len(rows[0])}", *lines]


def shown(row: Row) -> tuple[str, str, str]:
    """The peer, its time and its ratio as cells of a table."""
    cells = [
        number(value, form, _sign(row)) if row.timed else "—" for value, form in ((row.time, ".3g"), (row.ratio, ".2g"))
    ]
    return f"**{row.peer}**" if row.library == OURS else row.peer, cells[0], cells[1]


def _sign(row: Row) -> str:
    return "" if row.arrived else "> "


def number(value: float | None, form: str, sign: str = "") -> str:
    return "" if value is None or math.isnan(value) else sign + format(value, form)


def claims(rows: Sequence[Row]) -> list[str]:
    """Our speed-ups over the best of the others, problem by problem, as sentences that can be false."""
    return speeds(rows, lambda group: [fastest(r for r in group if r.library in names) for names in (RIVALS, NEWTON)])


def speeds(rows: Sequence[Kind], others: Callable[[list[Kind]], Sequence[Row | None]]) -> list[str]:
    """A line for every problem: our speed over that of each of the others, which are chosen from its rows."""
    lines = []
    for (reg, n, family), group in by_problem(rows).items():
        place = f"- {family}, n = {n}, λ = {reg:g}" if reg else f"- {family}, n = {n}"
        ours = next((r for r in group if r.peer == OURS), None)
        if ours is None or not ours.arrived:
            lines.append(f"{place}: otformer did not arrive")
            continue
        ratios = [(r, float(f"{r.time / ours.time:.2g}")) for r in others(group) if r is not None]
        said = [f"{'' if r.arrived else 'more than '}{ratio:g} times the speed of {r.peer}" for r, ratio in ratios]
        lines.append(f"{place}: {', '.join(said)}")
    return lines


def exponents(rows: Sequence[Row]) -> list[str]:
    """Least-squares slopes of log time and log memory against log n, one line per peer."""
    lines = [["family", "λ", "peer", "time ∝ n^", "memory ∝ n^", "n"]]
    for key in dict.fromkeys((r.family, r.reg, r.peer) for r in rows):
        group = [r for r in rows if (r.family, r.reg, r.peer) == key and r.arrived]
        if len(group) >= 3:
            slopes = [f"{slope(group, value):.2f}" for value in ("time", "memory")]
            lines.append([key[0], f"{key[1]:g}", key[2], *slopes, f"{group[0].n}–{group[-1].n}"])
    return markdown(lines)


def slope(rows: Sequence[Row], value: str) -> float:
    """The exponent k of value ∝ n^k.

    >>> slope([Row("scaling", "words", n, 0.1, "otformer", 1e-6 * n**2) for n in (10, 20, 40)], "time").__round__(6)
    2.0
    """
    pairs = [(r.n, getattr(r, value)) for r in rows if getattr(r, value) > 0]
    if len(pairs) < 3:
        return math.nan
    n, y = np.log(np.array(pairs)).T
    return float(np.polyfit(n, y, 1)[0])


def draw(rows: Sequence[Row]) -> Figure:
    """Plot time and memory against n, where there are several; else the times of every problem, a line of text each."""
    groups = {key: [r for r in group if r.arrived] for key, group in by_problem(rows).items()}
    first = sum(bool(group) and min(group, key=lambda r: r.time).library == OURS for group in groups.values())
    title = f"otformer is the fastest in {first} of {len(groups)} problems"
    peers = dict.fromkeys((r.library, r.peer) for r in sorted(rows, key=lambda r: r.library != OURS))
    libraries = list(dict.fromkeys(library for library, _ in peers))
    marks = {
        (library, peer): {
            "color": figures.CYCLE[libraries.index(library) % len(figures.CYCLE)],
            "marker": "oDs^vPX"[[other for own, other in peers if own == library].index(peer) % 7],
            "markersize": 8 if library == OURS else 5,
            "label": peer,
        }
        for library, peer in peers
    }
    return _against_n(rows, marks, title) if len({r.n for r in rows}) > 1 else _times(groups, marks, title)


Marks = dict[tuple[str, str], dict[str, Any]]  # library and peer -> how it is drawn


def _times(groups: Mapping[Any, Sequence[Row]], marks: Marks, title: str) -> Figure:
    """Times to the same error, a line of text for each problem."""
    fig, axes = figures.figure(9, 1.6 + 0.4 * len(groups))
    for (library, peer), look in marks.items():
        found = [
            (r.time, k) for k, group in enumerate(groups.values()) for r in group if (r.library, r.peer) == (library, peer)
        ]
        axes.plot(*(zip(*found, strict=True) if found else ([], [])), linestyle="none", **look)
    figures.named_rows(axes, [f"{family}, n = {n}, λ = {reg:g}" for reg, n, family in groups])
    axes.set(xlabel="seconds to the same error", title=title, ylim=(len(groups) - 0.5, -0.5))
    fig.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    return fig


def _against_n(rows: Sequence[Row], marks: Marks, title: str) -> Figure:
    """Time and memory against n, a curve for each library, family and λ."""
    fig, panels = figures.figure(11, 4.2, 1, 2)
    for axes, (value, label) in zip(panels, (("time", "seconds to the same error"), ("memory", "MiB")), strict=True):
        for (library, peer), look in marks.items():
            curves = dict.fromkeys((r.family, r.reg) for r in rows)
            for k, curve in enumerate(curves):
                mine = [r for r in rows if (r.library, r.peer, r.family, r.reg) == (library, peer, *curve) and r.arrived]
                named = look if not k else {**look, "label": ""}
                axes.plot([r.n for r in mine], [getattr(r, value) for r in mine], linewidth=1.2, **named)
        axes.set(xscale="log", yscale="log", xlabel="n", ylabel=label)
    panels[0].set_title(title)
    panels[1].set_title("Memory")
    fig.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    return fig
