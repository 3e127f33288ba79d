"""ATTACK F13, F14, F10 and the missing matplotlib: killed runs, two runs at once, and what can be said before the work."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from otformer.benchmarks import harness
from otformer.files import written_folder
from otformer.jobs.jobs import ChunkFolder, Job, run
from otformer.learning.train import train
from otformer.locks import held

KILLED = """
import os, signal, sys
from pathlib import Path
from otformer.files import written_folder
with written_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    if sys.argv[2] == "between":
        Path(sys.argv[1]).rename(folder.with_name(folder.name.replace("-new", "-old")))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("moment", ["before", "between"])
def test_f13_what_a_killed_process_leaves_is_tidied_by_the_next(tmp_path, moment):
    target = tmp_path / "errata"
    target.mkdir()
    (target / "figure").write_text("first")
    subprocess.run([sys.executable, "-c", KILLED, str(target), moment], check=False)
    assert len(list(tmp_path.glob(".errata-*"))) == (1 if moment == "before" else 2)
    with pytest.raises(RuntimeError), written_folder(target):
        raise RuntimeError  # the next run fails, but has tidied
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["errata", "errata/figure"]


def test_f13_what_a_living_process_makes_is_left_alone(tmp_path):
    theirs = tmp_path / ".errata-1-new"
    theirs.mkdir()
    alike = tmp_path / ".errata-old-new"
    alike.mkdir()
    with held(theirs):
        with written_folder(tmp_path / "errata") as folder:
            (folder / "figure").write_text("ours")
        assert theirs.exists()
    with written_folder(tmp_path / "errata"):
        pass
    assert not theirs.exists()
    assert alike.exists()


def test_f14_a_second_run_for_one_file_is_refused_and_the_first_is_whole(tmp_path):
    out = tmp_path / "links.txt"

    def twice(chunk):
        with pytest.raises(ValueError, match=r"links\.txt is being written by another process"):
            run(job, [("c", "d")], out)
        return repr(chunk).encode()

    job = Job(lambda: twice, chunk=1)
    run(job, [("a", "b"), ("c", "d")], out)
    assert out.read_bytes() == b"[('a', 'b')][('c', 'd')]"
    assert [path.name for path in tmp_path.iterdir()] == ["links.txt"]


def test_f14_an_interrupted_run_keeps_its_chunks_and_one_without_any_leaves_nothing(tmp_path):
    def fails(chunk):
        if chunk == [("c", "d")]:
            raise RuntimeError
        return b"made"

    for given, left in (([("c", "d")], 0), ([("a", "b"), ("c", "d")], 1)):
        with pytest.raises(RuntimeError):
            run(Job(lambda: fails, chunk=1), given, tmp_path / "out")
        assert len(ChunkFolder(tmp_path / "out")) == left
        assert (tmp_path / "out.parts").exists() == bool(left)


def test_f14_a_second_training_in_one_folder_is_refused_and_the_log_has_each_line_once(tmp_path):
    refused = []

    def again(done, steps, loss):
        if not refused:
            with pytest.raises(ValueError, match="is being written by another process") as caught:
                train("sort-beyond-3", tmp_path, resume=True)
            refused.append(str(caught.value))

    from dataclasses import replace

    from otformer.learning.recipes import recipe

    train(replace(recipe("sort-beyond-3"), steps=3, samples=100), tmp_path, progress=again)
    assert len(refused) == 1
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 2


def test_f10_bench_looks_at_its_folder_before_the_work(monkeypatch):
    def work(*_):
        pytest.fail("the work began")

    monkeypatch.setitem(harness.SCENARIOS, "small", work)
    with pytest.raises(ValueError, match="out must be a folder that can be written to, got '/dev/null'"):
        harness.bench("small", os.devnull)


@pytest.mark.parametrize("command", [["train", "--recipe", "sort-beyond"], ["reproduce", "errata"], ["bench", "small"]])
def test_without_matplotlib_long_commands_say_so_before_the_work(command, tmp_path, monkeypatch, capsys):
    from otformer.cli.main import main

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else real(name, *rest))
    monkeypatch.setattr(sys, "argv", ["otformer", *command, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "otformer: figures need matplotlib, which is not installed: pip install matplotlib\n"
    assert not (tmp_path / "out").exists()
