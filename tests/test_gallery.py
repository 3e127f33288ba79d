"""Every script of the gallery draws its picture, and what it asserts holds; the page shows the scripts as they are."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from needs import missing

PLACE = Path(__file__).parents[1] / "docs" / "gallery"
MAKE = runpy.run_path(str(PLACE / "make.py"))
SCRIPTS = MAKE["SCRIPTS"]


def test_the_page_is_made_of_the_scripts():
    assert len(SCRIPTS) >= 15
    assert (PLACE / "index.md").read_text("utf-8") == MAKE["page"]()
    shown = [name for names in MAKE["SUBJECTS"].values() for name in names.split()]
    assert sorted(shown) == [script.stem for script in SCRIPTS]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_draws_its_picture_and_asserts_something(script, tmp_path, monkeypatch):
    from matplotlib.image import imread

    if "sklearn" in script.read_text("utf-8"):
        pytest.importorskip("sklearn", reason=missing("sklearn"))
    monkeypatch.chdir(tmp_path)
    MAKE["draw"](script)
    drawn, kept = tmp_path / f"{script.stem}.png", PLACE / f"{script.stem}.png"
    assert imread(drawn).shape == imread(kept).shape  # the picture of the page is one of this script
    assert imread(drawn)[..., :3].std() > 0.02  # and not blank
    assert kept.stat().st_size <= (240 if script.stem == "colours" else 60) * 1024  # it has four photographs
    code = script.read_text("utf-8")
    assert "\nassert " in code or "\n    assert " in code
    assert len(code.splitlines()) <= 30
