"""The notebooks run from the first cell to the last, and print what is stored in them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import nbformat
import pytest

PLACE = Path(__file__).parents[1] / "docs" / "notebooks"
MAKE = runpy.run_path(str(PLACE / "make.py"))
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paper", "pot", "matching", "translator"])
def test_a_notebook_prints_what_it_says(name):
    path = PLACE / f"{name}.ipynb"
    stored, new = (MAKE["printed"](notebook) for notebook in (nbformat.read(path, as_version=4), MAKE["run"](path)))
    assert sum(map(bool, stored)) >= 4
    assert [NUMBER.sub("#", text) for text in new] == [NUMBER.sub("#", text) for text in stored]
    for new_text, stored_text in zip(new, stored, strict=True):  # other processors round otherwise
        numbers = [[float(found) for found in NUMBER.findall(text)] for text in (new_text, stored_text)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.05, abs=0.01), new_text


def test_every_notebook_is_in_the_test():
    assert sorted(path.stem for path in PLACE.glob("*.ipynb")) == ["matching", "paper", "pot", "translator"]
