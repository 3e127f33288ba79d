"""The trainings of the gallery run, small ones here; what they are made of is right."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import pytest
import torch

PLACE = Path(__file__).parents[1] / "docs" / "gallery" / "training"


@pytest.fixture
def program(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    return lambda name: runpy.run_path(str(PLACE / f"{name}.py"))


def test_the_autoencoder_learns_on_all_three_losses(program, tmp_path):
    of = program("cloud_autoencoder")
    data = of["clouds"](20, torch.Generator().manual_seed(0), 32)
    assert data.abs().max() < 1.8
    assert data.std((0, 1)).min() > 0.2
    before, after = (of["run"](steps=steps, known=20, new=5, points=32) for steps in (1, 40))
    for name in ("exact EMD", "auction of 50 steps", "Chamfer"):
        assert after[name][0] < 0.7 * before[name][0]
    assert (tmp_path / "cloud_autoencoder.png").exists()


def test_the_detector_s_boxes_overlap_as_they_should_and_it_runs(program, tmp_path):
    of = program("detector")
    p, q = (
        torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.5, 0.5, 0.4, 0.4]]),
        torch.tensor([[0.7, 0.5, 0.4, 0.4], [0.5, 0.5, 0.4, 0.4]]),
    )
    iou, giou = of["overlap"](p, q)
    torch.testing.assert_close(iou, torch.tensor([1 / 3, 1.0]))
    torch.testing.assert_close(giou, torch.tensor([1 / 3, 1.0]))
    found = of["run"](steps=3, known=40, new=6)
    assert set(found) == {"Matcher", "in order"}
    assert all(0 <= share <= 1 for numbers in found.values() for share in numbers)
    assert (tmp_path / "detector.png").exists()


def test_exact_couplings_straighten_the_paths_in_the_plane(program, tmp_path):
    of = program("flow_matching")
    shown = of["pictures"](50, torch.Generator().manual_seed(0)).unflatten(1, (8, 8))
    inside = (shown > 0).sum((1, 2))
    assert 5 <= int(inside.min()) <= int(inside.max()) <= 25
    found = of["run"](steps=150, coupled=(1, 256), count=100)
    assert found["moons", 256][0] < 0.7 * found["moons", 1][0]
    assert all(math.isfinite(number) for numbers in found.values() for number in numbers)
    assert (tmp_path / "flow_matching.png").exists()
