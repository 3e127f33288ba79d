"""The sections of the report: what an experiment's entry says of sizes and pages is so, and its sentences are whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otformer.lab.experiments.experiment import Experiment
from otformer.lab.experiments.registry import EXPERIMENTS
from otformer.lab.report.html import PARTS

ROOT = Path(__file__).parents[2]
FULL = re.compile(r"context\.full|learned\.problems\(|sentences\.corpus\(")  # how an experiment asks for its size


def test_the_parts_of_the_report_are_not_mixed() -> None:
    parts = [experiment.part for experiment in EXPERIMENTS.values()]
    assert list(dict.fromkeys(parts)) == list(PARTS)


def test_the_papers_figures_stand_in_its_order() -> None:
    numbers = [re.search(r"^figure (\d)", experiment.shows) for experiment in EXPERIMENTS.values()]
    figures = [int(found[1]) for found in numbers if found]
    assert sorted(set(figures)) == list(range(1, 10))
    assert figures == sorted(figures)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda experiment: experiment.name)
def test_what_a_section_says_is_so(experiment: Experiment) -> None:
    page = experiment.page if experiment.page.startswith("src/") else f"docs/{experiment.page}"
    assert (ROOT / page).is_file()
    assert experiment.paper
    assert experiment.caption.endswith(".")
    source = (ROOT / "src" / experiment.module.replace(".", "/")).with_suffix(".py")
    assert experiment.one_size is not bool(FULL.search(source.read_text(encoding="utf-8")))
    if experiment.full:
        assert not experiment.one_size
        assert experiment.name in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda experiment: experiment.name)
def test_every_sentence_is_used(experiment: Experiment) -> None:
    texts = experiment.texts
    named = {name for text in texts.values() for name in re.findall(r":each (\w+)", text)}
    assert set(texts) == {"finding", "number", "brief", "details"} | named
    assert not texts["finding"].endswith(".")
    assert texts["brief"].endswith(".")
    source = (ROOT / "src" / experiment.module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    assert all(f'"{name}": ' in source for name in experiment.check)
