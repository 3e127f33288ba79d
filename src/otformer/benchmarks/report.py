"""What a benchmark writes beside its CSV: a Markdown table with machine and versions, and a figure."""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from otformer import figures
from otformer.benchmarks.harness import OURS, Row, arrived, late, library
from otformer.files import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGES = ("torch", "numpy", "POT", "ott-jax", "jax", "geomloss", "pykeops", "regot", "mdot-tnt")
RIVALS = ("POT", "OTT", "GeomLoss")  # the libraries people use


def machine() -> str:
    """Processor, cores, Python and the versions of what is installed, on one line, with the date."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0] if names else model
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    today = datetime.date.today().isoformat()
    return f"{model}, {os.cpu_count()} cores; Python {platform.python_version()}, {', '.join(versions)}; {today}"


def write_report(folder: Path, scenario: str, rows: Sequence[Row]) -> None:
    """Write the Markdown table and the figure of a scenario."""
    parts = [machine(), ""]
    parts += exponents(rows) if scenario == "scaling" else [*table(rows), "", *claims(rows)]
    with written(folder / f"{scenario}.md") as out:
        out.write(("\n".join(parts) + "\n").encode())
    figures.save(lambda: draw(rows), folder / f"{scenario}.png")


def table(rows: Iterable[Row]) -> list[str]:
    """A Markdown table, one line per row; what did not arrive is a lower bound and says why."""
    lines = [
        "| family | n | λ | peer | time, s | passes | memory, MiB | error | ratio to best peer | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        sign = "" if arrived(r) else "> "
        time, ratio = f"{sign}{r.time:.3g}", "" if math.isnan(r.ratio) else f"{sign}{r.ratio:.2g}"
        if not arrived(r) and not late(r):
            time = ratio = "—"
        passes = "" if r.passes is None else f"{r.passes:.0f}"
        memory = "" if math.isnan(r.memory) else f"{r.memory:.0f}"
        error = f"{r.error:.1e}" if arrived(r) else ""
        name = f"**{r.peer}**" if library(r) == OURS else r.peer
        lines.append(
            f"| {r.family} | {r.n} | {r.reg:g} | {name} | {time} | {passes} | {memory} | {error} | {ratio} | {r.note} |"
        )
    return lines


def summary(rows: Iterable[Row]) -> list[str]:
    """One line per problem: our time, and the best setting of every library."""
    groups: dict[tuple[float, int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.reg, row.n, row.family), []).append(row)
    libraries = list(dict.fromkeys(library(r) for group in groups.values() for r in group if library(r) != OURS))
    lines = [
        f"| λ | n | family | otformer, s | {' | '.join(libraries)} |",
        f"|---|---|---|---|{'---|' * len(libraries)}",
    ]
    for (reg, n, family), group in groups.items():
        ours = next((r.time for r in group if r.peer == OURS and arrived(r)), math.nan)
        cells = []
        for name in libraries:
            best = fastest(r for r in group if library(r) == name)
            cells.append(
                "—" if best is None else f"{'' if arrived(best) else '> '}{best.time:.3g} (×{best.time / ours:.1f})"
            )
        lines.append(f"| {reg:g} | {n} | {family} | {ours:.3g} | {' | '.join(cells)} |")
    return lines


def fastest(rows: Iterable[Row]) -> Row | None:
    """The fastest that arrived; else one that ran out of time (its time is a lower bound for all of them); else None."""
    rows = [r for r in rows if arrived(r) or late(r)]
    return min(rows, key=lambda r: (not arrived(r), r.time), default=None)


def claims(rows: Sequence[Row]) -> list[str]:
    """Our speed-ups over the best of the others, problem by problem, as sentences that can be false."""
    lines = []
    for key in dict.fromkeys((r.reg, r.n, r.family) for r in rows):
        group = [r for r in rows if (r.reg, r.n, r.family) == key]
        ours = next((r for r in group if r.peer == OURS), None)
        rivals = fastest(r for r in group if library(r) in RIVALS)
        newton = fastest(r for r in group if library(r) in ("regot", "mdot_tnt"))
        if ours is None or not arrived(ours):
            lines.append(f"- {key[2]}, λ = {key[0]:g}: otformer did not arrive")
            continue
        said = [
            f"{'' if arrived(r) else 'more than '}{float(f'{r.time / ours.time:.2g}'):g} times the speed of {r.peer}"
            for r in (rivals, newton)
            if r is not None
        ]
        lines.append(f"- {key[2]}, n = {key[1]}, λ = {key[0]:g}: {', '.join(said)}")
    return lines


def exponents(rows: Sequence[Row]) -> list[str]:
    """Least-squares slopes of log time and log memory against log n, one line per peer."""
    lines = ["| family | λ | peer | time ∝ n^ | memory ∝ n^ | n |", "|---|---|---|---|---|---|"]
    for key in dict.fromkeys((r.family, r.reg, r.peer) for r in rows):
        group = [r for r in rows if (r.family, r.reg, r.peer) == key and arrived(r)]
        if len(group) >= 3:
            sizes = f"{group[0].n}–{group[-1].n}"
            time, memory = (slope(group, value) for value in ("time", "memory"))
            lines.append(f"| {key[0]} | {key[1]:g} | {key[2]} | {time:.2f} | {memory:.2f} | {sizes} |")
    return lines


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
    """Plot time and memory against n, where there are several; else time, one dot per peer and problem. Ours are large."""
    from matplotlib import colormaps

    peers = list(dict.fromkeys(r.peer for r in rows))
    colours = colormaps["tab20"](np.linspace(0, 1, len(peers)))
    against_n = len({r.n for r in rows}) > 1
    size_told = "" if against_n else f", n = {rows[0].n}"
    panels = {"time": "time, s", "memory": "memory, MiB"} if against_n else {"time": "time, s"}
    fig, axes = figures.figure(5 * len(panels) + 3, 4.5, 1, len(panels), squeeze=False)
    for axis, (value, label) in zip(axes[0], panels.items(), strict=True):
        for peer, colour in zip(peers, colours, strict=True):
            mine = [r for r in rows if r.peer == peer and arrived(r)]
            place = [r.n if against_n else f"{r.family}\nλ = {r.reg:g}" for r in mine]
            size, width = 9 if peer.startswith(OURS) else 5, 1.5 if against_n else 0
            values = [getattr(r, value) for r in mine]
            axis.plot(place, values, label=peer, marker="o", markersize=size, linewidth=width, color=colour)
        axis.set(yscale="log", ylabel=label, title=f"{value.title()} to the same error{size_told}")
        if against_n:
            axis.set(xscale="log", xlabel="n")
        else:
            axis.tick_params(axis="x", rotation=40)
    axes[0][-1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    return fig
