"""docs/errata.md is the list of errata: its tests exist, its counts are right, the experiment `errata` has its titles."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from otformer.lab.experiments.errata import LADDER, TITLES
from otformer.network.printed import MISPRINTS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "errata.md").read_text("utf-8")
ENTRY = re.compile(r"^\*\*(\d+)\. (.+?)\*\*(.*?)(?=^\*\*\d+\. |^Propositions S|^## |\Z)", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`((?:[\w/]+\.py)?::test_\w+)`")


def entries(section: str) -> dict[int, tuple[str, str]]:
    """Number → (title, text) of the entries under a heading, in their order."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    return {int(number): (title.rstrip("."), body) for number, title, body in ENTRY.findall(text)}


def named_in(text: str) -> list[tuple[str, str]]:
    """(file, function) of every test that a text names; ``::name`` is in the file named before."""
    found, file = [], ""
    for each in NAMED.findall(text):
        place, function = each.split("::")
        file = place or file
        found.append((file, function))
    return found


ERRATA, OTHERS = entries("Errata"), entries("Ambiguities, and what our copy lacks")


def test_every_number_is_there_once_and_in_order() -> None:
    for section in (ERRATA, OTHERS):
        assert list(section) == sorted(section)
    assert sorted([*ERRATA, *OTHERS]) == list(range(1, len(ERRATA) + len(OTHERS) + 1))
    assert len(re.findall(r"^\*\*\d+\. ", PAGE, re.MULTILINE)) == len(ERRATA) + len(OTHERS)  # none is under another heading


@pytest.mark.parametrize("number", [*ERRATA, *OTHERS])
def test_every_entry_names_a_test_of_its_own_that_exists(number: int) -> None:
    named = named_in((ERRATA | OTHERS)[number][1])
    assert named
    for file, function in named:
        assert function in functions(file), f"{file}::{function}"
    if number != 41:  # the causal mask is a test of the encoder
        assert any(function.startswith(f"test_{number:02d}_") for _, function in named)


def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_test_of_an_erratum_is_named() -> None:
    named = set(named_in(PAGE))
    for file in sorted((ROOT / "tests").rglob("test_errata_of_*.py")):
        place = str(file.relative_to(ROOT / "tests"))
        assert {(place, function) for function in functions(place) if function.startswith("test_")} <= named


def test_the_counts_are_right_wherever_they_are_printed() -> None:
    assert f"There are {len(ERRATA)} errata" in PAGE
    assert f"so do the {len(OTHERS)} entries that are not errors" in PAGE
    for page in ("README.md", "CHANGELOG.md"):
        counts = re.findall(r"(\d+) errata", (ROOT / page).read_text("utf-8"))
        assert counts
        assert {int(count) for count in counts} == {len(ERRATA)}


def test_the_table_by_subject_holds_every_number_once() -> None:
    table = PAGE.split("|---|---|\n")[1].split("\n\n")[0]
    numbers: list[int] = []
    for line in table.splitlines():
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", line.split("|")[2]):
            numbers += range(int(first), int(last or first) + 1)
    assert sorted(numbers) == sorted([*ERRATA, *OTHERS])


def test_the_experiment_has_the_titles_of_the_page() -> None:
    assert {number: ERRATA[number][0] for number in TITLES} == TITLES
    assert set(MISPRINTS) <= set(TITLES)
    assert (LADDER[0], LADDER[-1]) == ((), MISPRINTS)  # from the print to all of them mended
