"""The sections of the report: each experiment has one, and what it says of sizes and pages is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otformer.experiments.registry import EXPERIMENTS
from otformer.report.sections import PARTS, Section, read

ROOT = Path(__file__).parents[2]
FULL = re.compile(r"context\.full|learned\.problems\(|sentences\.corpus\(")  # how an experiment asks for its size


def test_every_experiment_has_a_section_and_every_section_an_experiment() -> None:
    assert set(read()) == set(EXPERIMENTS)
    parts = [section.part for section in read().values()]
    assert list(dict.fromkeys(parts)) == list(PARTS)  # parts are not mixed


def test_the_papers_figures_stand_in_its_order() -> None:
    numbers = [re.search(r"^figure (\d)", EXPERIMENTS[name].shows) for name in read()]
    figures = [int(found[1]) for found in numbers if found]
    assert sorted(set(figures)) == list(range(1, 10))
    assert figures == sorted(figures)


@pytest.mark.parametrize("section", read().values(), ids=lambda section: section.experiment)
def test_what_a_section_says_is_so(section: Section) -> None:
    page = section.page if section.page.startswith("src/") else f"docs/{section.page}"
    assert (ROOT / page).is_file()
    assert section.caption.endswith(".")
    source = (ROOT / "src" / EXPERIMENTS[section.experiment].module.replace(".", "/")).with_suffix(".py")
    assert section.one_size is not bool(FULL.search(source.read_text(encoding="utf-8")))
    if section.full:
        assert not section.one_size
        assert section.experiment in (ROOT / page).read_text(encoding="utf-8")
