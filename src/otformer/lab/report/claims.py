"""What the paper claims, what we claim, and what we found: one table (claims.toml), from which the page
docs/paper.md and the summary of the report are made.

    python -m otformer.lab.report.claims docs/paper.md      # makes the page again
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from otformer.files import written

VERDICTS = ("holds", "holds with a condition", "does not hold", "not reproduced here", "open")
GROUPS = {"paper": "The paper's claims", "ours": "Our claims"}  # key in the file, heading
COMMAND = "python -m otformer.lab.report.claims docs/paper.md"


@dataclass(frozen=True)
class Row:
    """What a row of either kind names: ``command`` shows it, ``page`` explains it.

    A page is a file under docs/, or, with a folder of the repository in front, or README.md, from its root. It may end in a
    place, as in ``errata.md#erratum-14``.
    """

    item: str
    command: str
    page: str

    @property
    def experiment(self) -> str:
        """The experiment that its command runs, or nothing.

        >>> next(claim.experiment for claim in read() if claim.item == "figure 3")
        'convergence'
        """
        first, _, rest = self.command.partition("otformer reproduce ")
        return "" if first or rest.startswith("-") else rest.split()[0]

    @property
    def path(self) -> str:
        return path_of(self.page)


@dataclass(frozen=True)
class Claim(Row):
    """A claim with its verdict. ``line`` is that of the arXiv source (0: none)."""

    group: str
    claim: str
    verdict: str
    finding: str
    line: int = 0


@dataclass(frozen=True)
class Erratum(Row):
    """Errata of one subject: what is printed, what is correct, and what the difference does."""

    printed: str
    correct: str
    effect: str


def path_of(page: str) -> str:
    """A page from the root of the repository.

    >>> path_of("theory.md"), path_of("README.md")
    ('docs/theory.md', 'README.md')
    """
    return page if page.startswith(("src/", "proofs/", "README")) else f"docs/{page}"


def name_of(page: str) -> str:
    """What a link to a page is called: the file, or the place in it.

    >>> name_of("docs/theory.md"), name_of("docs/errata.md#erratum-14")
    ('theory.md', 'erratum 14')
    """
    path, _, place = page.partition("#")
    return place.replace("-", " ") or Path(path).name


@cache
def _tables() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(files("otformer.lab.report").joinpath("claims.toml").read_text(encoding="utf-8"))


@cache
def read() -> tuple[Claim, ...]:
    """Every claim, in the order of the file: by group, the paper's by line, then those of its final version."""
    return tuple(Claim(group=group, **row) for group in GROUPS for row in _tables()[group])


@cache
def errata() -> tuple[Erratum, ...]:
    """The errata, by subject."""
    return tuple(Erratum(**row) for row in _tables()["errata"])


def counted(claims: Iterable[Claim]) -> str:
    """How many claims have each verdict, in words.

    >>> counted([claim for claim in read() if claim.item.startswith("open: ")])
    '1 holds, 1 holds with a condition, 2 open'
    """
    found = Counter(claim.verdict for claim in claims)
    plural = {"holds": "hold", "holds with a condition": "hold with a condition", "does not hold": "do not hold"}
    words = (f"{found[v]} {v if found[v] == 1 else plural.get(v, v)}" for v in VERDICTS if found[v])
    return ", ".join(words)


def markdown() -> str:
    """The page docs/paper.md."""
    parts = [_HEAD.format(command=COMMAND)]
    for group, heading in GROUPS.items():
        rows = [claim for claim in read() if claim.group == group]
        parts.append(f"## {heading}\n\n{len(rows)} rows: {counted(rows)}.\n")
        place = "item (line)" if group == "paper" else "item"
        cells = ([_place(row), row.claim, f"**{row.verdict}**", row.finding] for row in rows)
        parts.append(_table([place, "claim", "verdict", "what we found"], rows, cells))
    cells = ([row.item, row.printed, row.correct, row.effect] for row in errata())
    parts += ["## Errata, by subject\n", _table(["subject", "printed", "correct", "effect"], errata(), cells)]
    return "\n".join(parts)


_HEAD = """# The paper, claim by claim

Every claim, equation, figure, table, remark and open question of Hadi Daneshmand's “How do transformers align tokens?
Provable optimal transport with transformers” ([arXiv 2410.19931](https://arxiv.org/abs/2410.19931)), and what we found
here. Lines are those of the arXiv source. The final version is “In-Context Learning for Discrete Optimal Transport: Can
Transformers Sort?” (AISTATS 2026, PMLR 300:847–855). Its source is not here: where the author's
[notebooks](https://github.com/hadidaneshmand/aistats26-incontextOT) compute something else than the arXiv text says, it has
rows of its own, the last ones of the first table. Verdicts on training are over all seeds that
were run, less those that diverged, which are counted.

- *Holds*: proved, or measured without exception where there is nothing to prove.
- *Holds with a condition*: the row says which.
- *Does not hold*: refuted, or not borne out when it was run as described.
- *Not reproduced here*: it is about models or vectors that were not run (pretrained Marian and BERT, `wiki.multi`). The row
  says what our small models give, which neither confirms nor refutes it. Who has the models can compare:
  `otformer reproduce figure-5 --model NAME --text FILE --dictionary en-fr.txt` (lemmas by stanza, or `--lemmas simplemma`).
- *Open*: the row says what is known.

This page is made by `{command}` from
[claims.toml](../src/otformer/lab/report/claims.toml), and so is the summary of the report (`make report`).
"""


def _place(claim: Claim) -> str:
    return f"{claim.item} ({claim.line})" if claim.line else claim.item


def _table(heads: list[str], rows: Iterable[Row], cells: Iterable[list[str]]) -> str:
    """A table with a numbered line for each row: its cells, what shows it, and its page."""
    lines = [f"| | {' | '.join(heads)} | shown by | page |", "|---" * (len(heads) + 3) + "|"]
    return "\n".join([*lines, *(_line(k, *each) for k, each in enumerate(zip(rows, cells, strict=True), 1))]) + "\n"


def _line(number: int, row: Row, cells: list[str]) -> str:
    link = f"[{name_of(row.page)}]({'../' + row.path if row.path == row.page else row.page})"
    plain = (cell.replace("|", "\\|") for cell in [str(number), *cells])  # a bar ends a cell, even inside of code
    return f"| {' | '.join(plain)} | `{row.command}` | {link} |"


def main(arguments: list[str]) -> None:
    """Write the page to the path given."""
    if len(arguments) != 1:
        raise SystemExit(f"one argument is expected, the file to write: {COMMAND}")
    with written(Path(arguments[0])) as file:
        file.write(markdown().encode())


if __name__ == "__main__":
    main(sys.argv[1:])
