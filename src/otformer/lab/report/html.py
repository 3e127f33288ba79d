"""The report: one page from what experiments left in a folder, for a reader of the paper. It needs no network and no script.

First the paper's claims and what we found; then the sections in the paper's order, each with its finding as the
title, the figure, three sentences, the paper's number beside ours, and everything else to unfold; then our own questions,
and errata. Where the folder holds a few experiments, these come first, and of the claims those that they speak of.
"""

from __future__ import annotations

import os
import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

import otformer
from otformer.figures import SCRIPT
from otformer.files import written
from otformer.lab.experiments.registry import EXPERIMENTS
from otformer.lab.report import claims
from otformer.lab.report.claims import Claim, counted, errata, name_of, path_of
from otformer.lab.report.records import Record, read_records, read_table, size_of_png

PARTS = {  # of the page: table of experiments.toml -> heading, and what stands below it
    "paper": ("The paper, in its order", "What the paper shows or states, and what it gives here."),
    "ours": ("Our own questions", "What the paper does not ask. Claims of this part are ours, not the paper's."),
    "errata": ("Errata", "Where the paper as printed is not right, and what the correction gives."),
}
FEW = 0.5  # share of all experiments below which a folder holds a few of them: who ran these wants to see them
ORDER = {  # of the page, by whether it shows a few
    False: "Here is what we found for each claim, then every figure and statement in the paper's order.",
    True: "Here are the experiments that were run, then what we found for each claim.",
}
TITLE, BEGINNING = b"<title>How do transformers align tokens?", 2000  # of every report, and where it is, in bytes
ROWS_SHOWN = 60  # rows of a CSV that the page shows
ROOT = Path(otformer.__file__).parents[2]  # of the repository, where the package is used from its source
FIRST_SHOWN = ("abstract", "figure", "contribution", "theorem", "open", "final")  # how items begin that are not folded away
BREAKS = re.compile("/|::|_(?=[a-z])")  # in a command, where a line may break
CHIPS = dict(zip(claims.VERDICTS, ("yes", "partly", "no", "untried", "open"), strict=True))  # verdict -> class


def check_page(out: str | Path) -> None:
    """Say before the work that ``out/index.html`` is someone else's page, which is not replaced."""
    page = Path(out) / "index.html"
    if page.is_file():
        with page.open("rb") as file:
            if TITLE not in file.read(BEGINNING):
                raise ValueError(
                    f"{page} is no report of this program, and would be replaced: move it, or name another folder"
                )


class ClaimRows(NamedTuple):
    """The claims of a group: those shown at first, and those folded away."""

    first: list[Claim]
    rest: list[Claim]


class Part(NamedTuple):
    """A part of the page, with the experiments of it that the folder holds."""

    key: str
    heading: str
    about: str
    records: list[Record]
    claims: ClaimRows | None


def write_report(out: str | Path) -> Path:
    """Write ``out/index.html`` from every ``out/*/run.json``; returns its path. Written whole or not at all."""
    folder = Path(out)
    records, foreign = read_records(folder)
    order = {name: place for place, name in enumerate(EXPERIMENTS)}
    records.sort(key=lambda record: (order.get(record["name"], len(order)), record["position"], record["name"]))
    shown = {record["name"] for record in records}
    few = len(shown) < FEW * len(order)
    page = _template(folder).render(
        few=few,
        order=ORDER[few],
        records=records,
        shown=shown,
        foreign=foreign,
        versions=dict.fromkeys(", ".join(f"{k} {v}" for k, v in record["versions"].items()) for record in records),
        paper_claims=_claims("paper", shown, few),
        parts=[part for key in (*PARTS, "") if (part := _part(key, records, shown, few))],
    )
    with written(folder / "index.html", ours=True) as out_file:
        out_file.write(page.encode())
    return folder / "index.html"


def _template(folder: Path) -> Template:
    """Compile report.html for a page in ``folder``. Everything that it prints is escaped."""
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page.filters |= {
        "scripts": lambda text: Markup(scripts(text)),
        "short": _short,
        "counted": counted,
        "title_of": lambda record: record["finding"]["title"] if record["finding"] else record["title"],
        "breakable": lambda code: Markup(BREAKS.sub(r"\\g<0><wbr>", escape(code))),
        "claims_of": lambda name: [claim for claim in claims.read() if claim.experiment == name],
    }
    page.globals |= {
        "CHIPS": CHIPS,
        "EXPERIMENTS": EXPERIMENTS,
        "errata": errata(),
        "path_of": path_of,
        "name_of": name_of,
        "link": lambda path: _link(path, folder),
        "png_size": lambda name, file: size_of_png(folder / name / file),
        "table": lambda name: _table(folder / name / "numbers.csv"),
    }
    return page.from_string(files("otformer.lab.report").joinpath("report.html").read_text(encoding="utf-8"))


def scripts(text: str) -> str:
    """The text escaped for HTML, its scripts (`figures.SCRIPT`) as ``<sub>`` and ``<sup>``.

    >>> scripts("P*_λ < n^{3/2}, the state_dict")
    'P*<sub>λ</sub> &lt; n<sup>3/2</sup>, the state_dict'
    """
    tags = {"_": "sub", "^": "sup"}
    return SCRIPT.sub(lambda f: "<{0}>{1}</{0}>".format(tags[f["mark"]], f["braced"] or f["plain"]), escape(text))


def _claims(group: str, shown: set[str], few: bool) -> ClaimRows:
    """Divide the claims of a group.

    Those of the paper that are steps on the way are folded away; on a page of a few experiments all that these do not show.
    """
    rows = [claim for claim in claims.read() if claim.group == group]
    plain = [claim for claim in rows if group != "paper" or claim.item.startswith(FIRST_SHOWN)]
    first = [claim for claim in rows if claim.experiment in shown] if few else plain
    return ClaimRows(first, [claim for claim in rows if claim not in first])


def _part(key: str, records: list[Record], shown: set[str], few: bool) -> Part | None:
    """A part with the sections it has here, or nothing; experiments that the page does not know come last."""
    parts = {experiment.name: experiment.part for experiment in EXPERIMENTS.values()}
    mine = [record for record in records if parts.get(record["name"], "") == key]
    if not mine and (not key or (few and key == "paper")):
        return None
    heading, about = PARTS.get(key, ("Other experiments", "Found in the folder, and not known to this version."))
    return Part(key, heading, about, mine, _claims(key, shown, few) if key == "ours" else None)


def _link(path: str, folder: Path) -> str | None:
    """Where a file of the repository, or a place in it, is from ``folder``; None where there is no repository."""
    file, mark, place = path.partition("#")
    return quote(Path(os.path.relpath(ROOT / file, folder)).as_posix()) + mark + place if (ROOT / file).is_file() else None


def _table(path: Path) -> tuple[list[str], list[list[str]], int]:
    """The header and the first rows of a CSV, and how many more there are; no header if it cannot be read."""
    found, more = read_table(path, ROWS_SHOWN)
    return (found[0], found[1:], more) if found else ([], [], 0)


def _short(cell: str) -> str:
    """A number at four significant digits; anything else as it is."""
    try:
        return cell if cell.lstrip("-").isdigit() else f"{float(cell):.4g}"
    except ValueError:
        return cell or "–"
