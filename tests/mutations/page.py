"""docs/theorem-tests.md: the table of what was seen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mutations.claims import PAGE, Claim, Seen, digest
from otformer.files import written

MARK = "<!-- made by `make mutations`; claims.toml is {} -->"
ATTAINED = 0.99
HEAD = """\
# How each theorem is tested

`make mutations` makes this page, in about {minutes} minutes on two cores. For each claim of [theory](theory.md),
[theorems](theorems.md), [limits](limits.md), [exactness](exactness.md) and [errata](errata.md) it does two things in a copy
of the repository. It runs the tests of the claim. Then it makes the claim stronger and runs them again. Now one of them has
to fail by an assertion. If none does, the command fails.

The columns mean:

- *problems*: the most problems that one test of the claim draws. The symbol – means that no test counts problems: they
  compute an example that attains the bound.
- *nearest*: the largest ratio of what is measured to an upper bound, or of a lower bound to what is measured. It is 1 if
  some problem attains the bound. *Equality* means that every problem attains the claim. The symbol – means that the claim
  has no bound to compare with.
- *made stronger*: what the command changes. Most changes are of 20 %. If no test fails at 20 %, the row says **not sharp**
  and why, and the change is the larger one that is named.
- *noticed by*: the test that then fails. Tests are under `tests/`.

The claims, their tests and the changes are in `tests/mutations/claims.toml`.

"""
COLUMNS = ["theorem", "claim", "problems", "nearest", "made stronger", "noticed by"]


def nearest(claim: Claim, seen: Seen) -> str:
    if claim.ratio == "equality":
        return "equality"
    if seen.ratio is None:
        return "–"
    return "1" if seen.ratio >= ATTAINED else f"{seen.ratio:.2g}"


def row(claim: Claim, seen: Seen) -> list[str]:
    change = f"**not sharp**: {claim.unsharp}. {claim.mutation}" if claim.unsharp else claim.mutation
    problems = f"{seen.problems:,}" if seen.problems else "–"
    return [claim.theorem, claim.claim, problems, nearest(claim, seen), change, f"`{seen.noticed.partition('[')[0]}`"]


def text(rows: Iterable[tuple[Claim, Seen]], minutes: float) -> str:
    table = [COLUMNS, ["---"] * len(COLUMNS), *(row(*each) for each in rows)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in table]
    return HEAD.format(minutes=max(1, round(minutes))) + "\n".join([*lines, "", MARK.format(digest()), ""])


def write(rows: Iterable[tuple[Claim, Seen]], minutes: float, page: Path = PAGE) -> None:
    with written(page) as out:
        out.write(text(rows, minutes).encode())
