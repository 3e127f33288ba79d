"""Every test that the pages of the theory name exists, and every section and theorem names one."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["theory.md", "theorems.md", "limits.md", "exactness.md"]
NAMED = re.compile(r"`(?:([\w/]+\.py))?::(\w+\*?)`")


def names_in(file: str) -> list[str]:
    return re.findall(r"^def (test_\w+)", (ROOT / "tests" / file).read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_named_tests_exist(page: str) -> None:
    text, file, found = (ROOT / "docs" / page).read_text("utf-8"), "", 0
    for place, name in NAMED.findall(text):
        file = place or file  # `::name` is in the file named last
        assert any(fnmatch(test, name) for test in names_in(file)), f"{file}::{name}"
        found += 1
    assert found > 15


@pytest.mark.parametrize("page", PAGES)
def test_every_section_names_a_test(page: str) -> None:
    sections = re.split(r"^## ", (ROOT / "docs" / page).read_text("utf-8"), flags=re.MULTILINE)[1:]
    silent = [section.splitlines()[0] for section in sections if not NAMED.search(section)]
    assert silent == ["References"]
