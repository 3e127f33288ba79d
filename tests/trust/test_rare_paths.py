"""Error paths that ordinary use does not reach: each is forced here, and says what is so."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import otformer as of
from helpers.shell import shell
from otformer.cli.main import main
from otformer.lab.benchmarks import harness, process
from otformer.lab.experiments import runner
from otformer.learning.trained import load_ensemble
from otformer.nn import attention_bias, attention_heads
from otformer.problem_files import read_problem
from otformer.tensor_files import read_tensors, write_tensors
from otformer.transport.costs.gpu.steps import GpuSteps
from otformer.transport.derivatives import implicit
from otformer.words.align.vectors import read_vectors
from otformer.words.models import models


def test_a_number_beyond_float64() -> None:
    with pytest.raises(ValueError, match=r"reg must be .*, got a whole number beyond float64"):
        of.solve(np.eye(2), reg=10**400)


def test_a_table_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"1,2\n\xff\xfe,3\n")
    with pytest.raises(ValueError, match=r"x\.csv is not a text file"):
        read_problem(tmp_path / "x.csv", tmp_path / "x.csv")


def test_vectors_that_are_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.vec").write_text("cat 0.1 0.2\ndog 0.1 many\n")
    with pytest.raises(ValueError, match=r"x\.vec line 2 must hold a word and 2 numbers, got 'dog 0\.1 many'"):
        read_vectors(tmp_path / "x.vec")


@pytest.mark.parametrize("settings", ["{", "[" * 100_000, '{"dim": 2}', '{"dim": "two"}', "3"])
def test_a_network_whose_settings_cannot_be_read(settings: str, tmp_path: Path) -> None:
    file = tmp_path / "net.safetensors"
    of.AligningTransformer(2, 0.1, 3).save(file)
    tensors, about = read_tensors(file)
    write_tensors(file, tensors, about | {"settings": settings})
    with pytest.raises(ValueError, match=r"net\.safetensors is damaged: no network has the settings") as caught:
        of.AligningTransformer.from_file(file)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("architecture", ["{", "[" * 100_000, "[1]", '{"width": 3}', "null"])
def test_a_trained_model_whose_architecture_cannot_be_read(architecture: str, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    about = {"version": "1", "name": "m", "about": "m", "architecture": architecture, "ensemble": "1"}
    write_tensors(file, {"P": torch.zeros(1)}, about)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged: its architecture or ensemble cannot be read"):
        load_ensemble(file)


def test_a_tokenizer_that_fails() -> None:
    def tokenizer(text: str) -> Any:
        raise KeyError("vocab")

    with pytest.raises(ValueError, match="model m has a tokenizer that does not work: 'vocab'"):
        models._looked_at("m", None, tokenizer, None)


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "3", "{}", "\xff"])
def test_an_experiment_whose_record_is_damaged_is_made_again(text: str, tmp_path: Path) -> None:
    for name in runner.FILES:
        (tmp_path / name).write_text("")
    (tmp_path / "run.json").write_text(text, "latin-1")
    assert runner._done(tmp_path, {}) is None
    (tmp_path / "run.json").write_text(json.dumps({"name": tmp_path.name, "checks": {}}))
    assert runner._done(tmp_path, {}) is not None


@pytest.mark.parametrize("text", ["n\nmany\n", "n,reg\n1,2\n", "a\n1,2,3\n", 'a\n"\0\n', ""])
def test_a_table_of_someone_else_is_not_appended_to(text: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(ValueError, match=r"table\.csv is not a table of this program"):
        harness.earlier(tmp_path / "table.csv", harness.Row, harness._place)


@pytest.mark.parametrize(("error", "said"), [(MemoryError(), "MemoryError"), (ValueError("no\nplan"), "no")])
def test_a_peer_that_fails_is_a_line_of_the_table(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def task(spec: dict[str, Any]) -> None:
        raise error

    monkeypatch.setattr(process, "import_module", lambda name: SimpleNamespace(task=task))
    monkeypatch.setattr(process, "_pin", lambda threads: None)
    monkeypatch.setattr(sys, "argv", ["process", "module", "task", "{}", "1"])
    process.main()
    assert json.loads(capsys.readouterr().out) == {"failed": said}


def test_attention_that_does_not_converge_says_how_far_its_columns_are_off() -> None:
    torch.manual_seed(0)
    q, k = 30 * torch.randn(1, 9, 4, dtype=torch.float64), 30 * torch.randn(1, 9, 4, dtype=torch.float64)
    layer = of.nn.SinkhornAttention(4, 1, batch_first=True, dtype=torch.float64, unbalanced=50.0, tol=1e-12, max_depth=2)
    with pytest.warns(RuntimeWarning, match=r"not converged: 1 of 1 heads, column sums off by a factor of up to \S+,"):
        layer(q, k, k)


def test_a_gradient_of_attention_that_is_not_accurate_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(implicit, "CG_STEPS", 1)
    q = (3 * torch.randn(1, 9, 4, dtype=torch.float64)).requires_grad_()
    layer = of.nn.SinkhornAttention(4, 1, batch_first=True, dtype=torch.float64, unbalanced=50.0)
    out, _ = layer(q, q.detach() + 1, q.detach())
    with pytest.warns(RuntimeWarning, match="gradient not accurate: conjugate gradients left .* of the residual"):
        out.square().sum().backward()


def test_on_a_gpu_float32_that_misses_tol_says_so() -> None:
    single = SimpleNamespace(parts=lambda: [0], at=lambda part: SimpleNamespace(residual=lambda g, t: torch.tensor([0.01])))

    class OnGpu(list[None]):
        is_cuda = True

    wanted = attention_bias.BiasGoal(math.inf, 1e-6, 100)
    with pytest.warns(RuntimeWarning, match=r"float32 rounds the logits: column sums off by a factor of up to 1\.01005"):
        assert attention_heads._single_will_do(SimpleNamespace(to=lambda dtype: single), OnGpu([None]), wanted)


def test_equations_of_mixing_without_a_solution_are_left_alone() -> None:
    steps = object.__new__(GpuSteps)
    steps.memory, steps.mass, steps.ridge, steps._changes, steps._slot = 4, 1.0, 0.0, 1, 1
    steps._gram, steps._means = np.zeros((4, 4)), np.zeros(4)
    steps._gram[0, 0] = 1.0
    report = np.zeros(12)
    report[4:8:2] = 1.0  # two changes that are the same: the matrix of ones is singular
    assert steps._theta(report) is None
    steps._changes, report[6] = 1, 2.0
    assert steps._theta(report) is not None


@pytest.mark.slow
def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    done = shell("mkdir gone; cd gone; rmdir ../gone; otformer sort 2 1", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "otformer: the working folder no longer exists" in done.stderr


@pytest.mark.slow
def test_a_probe_of_pairs_without_gold_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.txt").write_text("xyzzy ||| plugh\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["otformer", "probe", "en-fr", "pairs.txt", "--out", "found"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "there is nothing to score" in capsys.readouterr().err
    assert not (tmp_path / "found").exists()
