"""CONTRIBUTING, "How to add": an experiment, with exactly the keys that the text names."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from otformer import figures
from otformer.lab.experiments import registry
from otformer.lab.experiments.experiment import SENTENCES, Context, Outcome
from otformer.lab.experiments.runner import FILES, reproduce

ENTRY = """
[[ours]]
name = "my-claim"
title = "A claim of ours"
claim = "One is half of two."
finding = "The ratio is {ratio:.1f}"
number = "{ratio:.2f}"
brief = "It is {ratio} of {TWO}."
details = "One is {ratio:%.0f} % of {TWO}."
check.half = "one is half of {TWO}"
"""


def run(context: Context) -> Outcome:
    fig, ax = figures.figure(3, 2)
    ax.plot([0, 1], [0, 0.5])
    ratio = 0.5 + 0 * float(torch.rand((), generator=context.generator()))
    return Outcome([{"ratio": ratio}], fig, {"ratio": ratio}, {"half": ratio == 0.5}, {"two": 2})


@pytest.fixture
def entries(monkeypatch):
    """A package in place of lab/experiments: the module my_claim, and the entries of a text."""
    module = types.ModuleType(f"{registry.__package__}.my_claim")
    module.run, module.TWO = run, 2
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def read(text: str) -> list[Any]:
        monkeypatch.setattr(Path, "read_text", lambda self, encoding: text)
        try:
            return list(registry._read())
        finally:
            monkeypatch.undo()
            monkeypatch.setitem(sys.modules, module.__name__, module)

    return read


def test_an_experiment(entries, tmp_path):
    (mine,) = entries(ENTRY)
    assert (mine.part, mine.module) == ("ours", "otformer.lab.experiments.my_claim")
    (record,) = reproduce([mine], tmp_path)
    assert {path.name for path in (tmp_path / "my-claim").iterdir()} >= set(FILES)
    assert record.about["summary"] == "One is 50 % of 2."
    assert record.about["finding"] == {"title": "The ratio is 0.5", "brief": "It is 0.5 of 2.", "number": "0.50"}
    assert record.checks == {"one is half of 2": True}
    assert record.numbers == [{"ratio": "0.5"}]


@pytest.mark.parametrize("key", [*registry.REQUIRED, *SENTENCES])
def test_an_experiment_without_a_key_is_refused_in_one_line_that_names_it(key, entries):
    with pytest.raises(ValueError, match=f"experiment.* must have .*{key}.*, got none for {key}$"):
        entries(re.sub(rf"^{key} = .*\n", "", ENTRY, flags=re.MULTILINE))


def test_a_sentence_that_names_no_number_is_refused_in_one_line(entries, tmp_path):
    (mine,) = entries(ENTRY.replace("{ratio:.1f}", "{ration:.1f}"))
    with pytest.raises(ValueError, match=r"'ration', which a sentence of .* names, must be in Outcome"):
        reproduce([mine], tmp_path)
