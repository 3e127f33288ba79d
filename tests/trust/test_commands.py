"""ATTACK F1, F3, F6, F17: code in model folders, and what is too large, on the command line."""

from __future__ import annotations

import gzip
import json
import sys

import numpy as np
import pytest

import otformer as of
from helpers import tiny_models
from helpers.shell import shell
from otformer.cli.main import main
from otformer.transport.problem import read_points as read

REFUSED = [
    (["align", "/dev/zero"], "/dev/zero is a device, not a text"),
    (["align", "bomb.gz"], "bomb.gz line 1 must have at most 16,777,216 bytes, got more"),
    (["align", "long.txt"], "got 100,000 × 100,000 words"),
    (["train", "--recipe", "sort-beyond-99999999999"], "largest must be a whole number of at most 256"),
    (["train", "--recipe", "sort-beyond", "--ensemble", "1000000000"], "ensemble must be a whole number of at most 256"),
    (["train", "--recipe", "sort-beyond", "--steps", "9" * 20], "steps must be a whole number of at most 1000000000"),
    (
        ["solve", "x.npy", "x.npy", "--schedule", "relaxed", "--max-depth", "100000000"],
        "--max-depth must be at most 1,000,000",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_f6_f17_what_is_too_large_is_refused_in_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(2**25), 1))
    (tmp_path / "long.txt").write_text("a " * 100_000 + "|||" + " b" * 100_000)
    np.save("x.npy", np.eye(2))
    monkeypatch.setattr(sys, "argv", ["otformer", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err


def test_f18_an_archive_can_be_written_to_a_device(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.eye(2))
    (tmp_path / "null.npz").symlink_to("/dev/null")
    monkeypatch.setattr(sys, "argv", ["otformer", "solve", "x.npy", "x.npy", "--out", "null.npz"])
    main()
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_f6_missing_memory_is_one_line(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((9_000, 2)))
    done = shell("otformer solve x.npy x.npy", tmp_path, memory=3 * 2**20 // 2)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "otformer: not enough memory" in done.stderr


@pytest.mark.slow
def test_f1_the_code_of_a_model_folder_never_runs_whatever_standard_input_says(tmp_path):
    model, marker = tmp_path / "evil", tmp_path / "ran"
    tiny_models.bert(model)
    for file in ("config.json", "tokenizer_config.json"):
        settings = json.loads((model / file).read_text())
        classes = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Model", "AutoTokenizer": ["evil.Words", "evil.Words"]}
        settings |= {"model_type": "evil", "auto_map": classes, "tokenizer_class": "Words"}
        (model / file).write_text(json.dumps(settings))
    (model / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    done = shell("yes | otformer probe ./evil 'the cat ||| le chat' --languages en-fr", tmp_path)
    assert (done.returncode, len(done.stderr.splitlines()), done.stdout) == (2, 1, ""), done.stderr
    assert "model ./evil cannot be loaded (configuration)" in done.stderr
    assert not marker.exists()


@pytest.mark.slow
def test_f3_a_plan_of_more_than_1e8_entries_is_not_written_and_lists_are_counted(tmp_path):
    n = 10_001
    np.save(tmp_path / "x.npy", np.arange(n)[:, None] / n)
    done = shell("otformer solve x.npy x.npy --reg 10 --tol 0.1 --out p.npz", tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"p.npz gets u and v without the plan, which has {n} × {n} entries" in done.stderr
    with np.load(tmp_path / "p.npz") as written:
        assert set(written) == {"u", "v"}
    assert (tmp_path / "p.npz").stat().st_size < 10**6


def test_f3_lists_stream_where_arrays_do(monkeypatch):
    monkeypatch.setattr(read, "STREAM_ABOVE", 100)
    x = [[k / 11] for k in range(11)]
    assert type(of.solve_sample(x, x, reg=10.0).plan).__name__ == "StreamedPlan"
    assert type(of.solve_sample(x[:9], x, reg=10.0).plan).__name__ == "ndarray"


@pytest.mark.slow
def test_f17_sorting_takes_memory_in_proportion(tmp_path):
    """30,000 numbers: their plan alone would take 7.2 GB."""
    numbers = np.random.default_rng(0).permutation(30_000)
    (tmp_path / "numbers").write_text(" ".join(map(str, numbers)))
    done = shell("otformer sort < numbers", tmp_path, memory=3 * 2**20)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(k) for k in range(30_000)]
