"""The sections of the report, one table (sections.toml): their order, the paper's number, the caption, the full size."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

PARTS = {  # key in the file -> heading, and what stands below it
    "paper": ("The paper, in its order", "What the paper shows or states, and what it gives here."),
    "ours": ("Our own questions", "What the paper does not ask. Claims of this part are ours, not the paper's."),
    "errata": ("Errata", "Where the paper as printed is not right, and what the correction gives."),
}


@dataclass(frozen=True)
class Section:
    """One experiment on the page.

    ``paper`` is the number of the paper that ours stands beside, ``full`` what the full size gave, or nothing; with
    ``one_size`` there is none. ``page`` explains it (a file under docs/, or from the root of the repository).
    """

    part: str
    experiment: str
    paper: str
    caption: str
    page: str
    full: str = ""
    one_size: bool = False


@cache
def read() -> dict[str, Section]:
    """Every section by the name of its experiment, in the order of the page.

    >>> list(read())[:3]
    ['fox', 'generalization', 'prompting']
    """
    table = tomllib.loads(files("otformer.report").joinpath("sections.toml").read_text(encoding="utf-8"))
    return {row["experiment"]: Section(part, **row) for part, rows in table.items() for row in rows}
