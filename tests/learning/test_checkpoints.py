"""Checkpoints and weights that are damaged, or of another run, are refused before any work."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from learning.test_train import TINY, metadata_of
from otformer.lab.training.initialisation import GaussianStart
from otformer.lab.training.train import train
from otformer.learning.model import Architecture
from otformer.learning.trained import load_ensemble, load_trained


def test_checkpoints_of_other_runs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(TINY, steps=2)
    train(short, tmp_path)
    with pytest.raises(ValueError, match="out already holds a run"):
        train(short, tmp_path)
    with pytest.raises(ValueError, match="is of another run: its seed is 0, this run's 1"):
        train(short, tmp_path, seed=1, resume=True)
    monkeypatch.setattr(GaussianStart, "fill", None)  # all is refused before any work
    with pytest.raises(ValueError, match=r"is of another run: rate is 0.01, this run's 0.1; steps is 2, this run's 3$"):
        train(replace(short, rate=0.1, steps=3), tmp_path, resume=True)
    with pytest.raises(ValueError, match=r"is of another run: architecture.depth is 2, this run's 1$"):
        train(replace(short, architecture=Architecture(depth=1)), tmp_path, resume=True)
    with pytest.raises(ValueError, match="is of another run: its ensemble is 1, this run's 3"):
        train(short, tmp_path, ensemble=3, resume=True)
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="is not a readable safetensors file"):
        train(short, tmp_path, resume=True)
    save_file({"net.P": torch.zeros(1)}, str(path), {"version": "0"})
    with pytest.raises(ValueError, match="must be of version 1, got version 0"):
        train(short, tmp_path, resume=True)


def test_a_run_may_be_renamed(tmp_path: Path) -> None:
    short = replace(TINY, steps=2)
    train(short, tmp_path)
    train(replace(short, name="other", about="Renamed."), tmp_path, resume=True)
    assert load_trained(tmp_path / "model.safetensors").name == "other"


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    short = replace(TINY, steps=2)
    train(short, tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    whole, metadata = load_file(path), metadata_of(path)
    assert "adam.V_out.step" not in whole  # cross-entropy does not read it
    moment = "adam.P.exp_avg"
    unstepped = {name: text for name, text in metadata.items() if name != "step"}
    for tensors, texts, message in (
        ({name: t for name, t in whole.items() if name != moment}, metadata, "does not fit: adam.P.exp_avg is missing"),
        ({name: t for name, t in whole.items() if "adam" not in name}, metadata, "does not fit: adam.P.exp_avg is missing"),
        (whole | {moment: torch.zeros(3)}, metadata, r"adam.P.exp_avg of .* must have shape \(1, 2, 2, 11, 11\)"),
        (whole | {"adam.V_out.exp_avg": torch.zeros(3)}, metadata, "adam.V_out.exp_avg is not of this model"),
        (whole, unstepped, "is damaged: it must name recipe, seed, ensemble and step"),
        (whole, metadata | {"recipe": "[]"}, "is damaged: it must name recipe, seed, ensemble and step"),
        (whole, metadata | {"step": "3"}, "is damaged: step must be from 1 to 2, got 3"),
    ):
        save_file(tensors, str(path), texts)
        with pytest.raises(ValueError, match=message):
            train(short, tmp_path, resume=True)
    save_file(whole, str(path), metadata)
    log = tmp_path / "log.csv"
    header = "step,seed,loss,rows,stopped\n"
    for text, line in (("garbage\n", 1), (f"{header}2,0,low,0.5,0\n", 2), (f"{header}\n", 2)):
        log.write_text(text)
        with pytest.raises(ValueError, match=rf"log\.csv is damaged: line {line} must be"):
            train(short, tmp_path, resume=True)
        assert log.read_text() == text
    log.write_bytes(b"step,seed,loss,rows,stopped\n2,0,0.7,0.5,0\n\xff\x00")  # killed in mid line
    train(short, tmp_path, resume=True)
    assert log.read_text() == "step,seed,loss,rows,stopped\n2,0,0.7,0.5,0\n"


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    train(replace(TINY, steps=2), tmp_path)
    path = tmp_path / "model.safetensors"
    tensors, metadata = load_file(path), metadata_of(path)
    tensors["P"] = tensors["P"][:, :1].contiguous()
    save_file(tensors, str(path), metadata)
    with pytest.raises(ValueError, match=r"^P of [^\n]* must have shape \(1, 2, 2, 11, 11\), got \(1, 1, 2, 11, 11\)"):
        load_ensemble(path)
