"""ATTACK F13, F14, F10 and the missing matplotlib: killed runs, two runs at once, and what can be said before the work."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from otformer.files import writable_folder, written, written_folder
from otformer.lab.benchmarks import harness
from otformer.lab.training.train import train
from otformer.tensor_files import read_tensors, write_tensors
from otformer.words.jobs.jobs import ChunkFolder, Job, run

KILLED = """
import os, signal, sys
from pathlib import Path
from otformer.files import written_folder
with written_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    if sys.argv[2] == "between":
        Path(sys.argv[1]).rename(folder.with_suffix(".otformer-old"))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("moment", ["before", "between"])
def test_f13_what_a_killed_process_leaves_is_tidied_by_the_next(tmp_path, moment):
    target = tmp_path / "errata"
    target.mkdir()
    (target / "figure").write_text("first")
    subprocess.run([sys.executable, "-c", KILLED, str(target), moment], check=False)
    assert len(list(tmp_path.glob(".errata.*"))) == (2 if moment == "before" else 3)  # its lock, the new one, the older one
    with pytest.raises(RuntimeError), written_folder(target):
        raise RuntimeError  # the next run fails, but has tidied
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["errata", "errata/figure"]


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

    from otformer.lab.training.recipes import recipe

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
    said = capsys.readouterr().err
    assert said.startswith("otformer: figures need matplotlib, which is not installed: pip install 'otformer[plots]'")
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


HALF = """
import os, signal, sys
from pathlib import Path
from otformer.files import written
with written(Path(sys.argv[1])) as out:
    out.write(b"half")
    out.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_half_written_file_is_removed_by_the_next_that_writes_it_and_no_other(tmp_path):
    target, other = tmp_path / "plan[1].npz", tmp_path / "plan.npz"
    for file in (target, other):
        subprocess.run([sys.executable, "-c", HALF, str(file)], check=False)
    assert len(list(tmp_path.iterdir())) == 4  # a half file and a lock of each
    with written(target) as out:
        out.write(b"whole")
    assert sorted(path.name[:9] for path in tmp_path.iterdir()) == [".plan.npz", ".plan.npz", "plan[1].n"]
    assert target.read_bytes() == b"whole"


def test_looking_whether_a_folder_can_be_written_shows_nothing(tmp_path):
    """A process killed there leaves nothing, as nothing has a name: looked at whenever a file is opened or removed."""
    code = (
        "import os, sys; from pathlib import Path; from otformer.files import writable_folder\n"
        "sys.addaudithook(lambda event, given: event in ('open', 'os.remove') and print(*os.listdir(sys.argv[1])))\n"
        "writable_folder(sys.argv[1]); print(*os.listdir(sys.argv[1]))"
    )
    seen = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True).stdout
    assert set(seen.split()) == set()
    assert writable_folder(tmp_path) == tmp_path


def test_an_older_result_left_beside_the_new_one_is_tidied_although_all_is_done(tmp_path, monkeypatch):
    """Killed after the second rename of `written_folder`, and resumed: the experiment itself is not run again."""
    from otformer.lab.experiments import runner
    from otformer.lab.experiments.registry import chosen

    for name in ("errata", ".errata.0123abcd.otformer-old"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(runner, "_done", lambda target, key: runner.Record(target, {}))
    runner.reproduce(chosen(["errata"]), tmp_path, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["errata"]


def test_the_same_tensors_are_the_same_bytes(tmp_path):
    """safetensors writes the texts of a file in another order every time."""
    tensors, about = {"w": torch.arange(3.0), "ä": torch.ones(2, 2)}, {f"name {k} ä": k for k in range(8)}
    made = set()
    for _ in range(5):
        write_tensors(tmp_path / "file", tensors, about)
        made.add((tmp_path / "file").read_bytes())
    assert len(made) == 1
    found, texts = read_tensors(tmp_path / "file")
    assert texts == {name: str(value) for name, value in about.items()}
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_nothing_is_measured_by_a_clock_that_can_be_set():
    """`time.time` and today's date jump with the clock; `monotonic` and `perf_counter` do not. A table names its day."""
    import otformer

    src = Path(otformer.__file__).parent
    used = {file.relative_to(src).as_posix() for file in src.rglob("*.py") if _set_clock(file.read_text("utf-8"))}
    assert used == {"lab/benchmarks/report.py"}


def _set_clock(text):
    import ast

    calls = {ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    named = {alias.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) for alias in node.names}
    clocks = {"time.time", "time.time_ns", "datetime.date.today", "datetime.datetime.now", "datetime.now", "date.today"}
    return bool(calls & clocks) or bool(named & {"time", "time_ns", "datetime", "date"})


def test_a_copy_of_standard_input_has_no_name_that_a_killed_process_could_leave(tmp_path, monkeypatch):
    from otformer.words.commands import corpora

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "pipe").write_text("the cat ||| le chat\n")
    with ExitStack() as stack, (tmp_path / "pipe").open() as source:
        monkeypatch.setattr(sys, "stdin", source)
        copy = corpora.regular("-", stack)
        assert [copy.read_text() for _ in range(2)] == 2 * ["the cat ||| le chat\n"]
        assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_ctrl_c_between_the_two_renames_keeps_the_older_folder(tmp_path, monkeypatch):
    report = tmp_path / "report"
    report.mkdir()
    (report / "index.html").write_text("old")
    rename = os.rename

    def interrupted(path, to):
        if Path(path).suffix == ".otformer-new":
            raise KeyboardInterrupt
        return rename(path, to)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), written_folder(report) as fresh:
        (fresh / "index.html").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    assert (report / "index.html").read_text() == "old"
