"""The title of a probe's figure is the name of a folder: whatever it holds, it is text and no formula."""

from __future__ import annotations

from pathlib import Path

import pytest

from otformer.words.probe.figure import draw, figure

LINE = {"sentences": 2, "pairs": 3, "uniform": 0.7, "distance": 0.5, "Hits@1": 0.5, "Hits@1_low": 0.4, "Hits@1_high": 0.6}
TABLE = [
    {**LINE, "method": "attention", "reading": "input", "layer": 1, "head": 0},
    {**LINE, "method": "transport", "reading": "embeddings", "layer": 0, "head": 0},
    {**LINE, "method": "nearest", "reading": "embeddings", "layer": 0, "head": 0},
]


@pytest.mark.parametrize("title", [r"a$\bad{$b", "$", "$$", r"$x_{$", "a_b^c"])
def test_a_title_with_dollars_is_drawn_as_it_is(tmp_path: Path, title: str) -> None:
    figure(TABLE, tmp_path / "f.png", title)
    assert (tmp_path / "f.png").stat().st_size > 1000
    drawn = draw(TABLE, title).axes[0]
    assert title in (drawn.get_title(), drawn.get_title(loc="left"))
