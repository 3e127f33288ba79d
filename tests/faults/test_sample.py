"""A kill of every command, and that what must not be is found; the rest is `make faults`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from faults.commands import COMMANDS, contents, without_times
from faults.process import SRC, TESTS, Place
from faults.stage import Undisturbed
from faults.watch import Watch


@pytest.mark.slow
def test_a_kill_of_every_command():
    """In a process of its own, as it forks."""
    call = [sys.executable, "-m", "faults", "--only", *COMMANDS, "--kills", "1", "--terms", "0", "--operations", "0"]
    environment = {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    table = [line.split() for line in done.stdout.splitlines()[-len(COMMANDS) - 1 : -1]]
    assert [(line[0], line[1], *line[-3:]) for line in table] == [(name, "1", "1/1", "0", "0") for name in COMMANDS]


def test_writers_of_one_file_and_one_folder_are_killed_and_a_reader_sees_nothing_half():
    """In a process of its own, as it forks."""
    environment = {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"}
    call = [sys.executable, "-m", "faults.writers", "25"]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(": as it should be\n")


def test_what_is_written_in_place_is_seen_and_what_is_moved_there_is_not(tmp_path):
    with Watch(tmp_path) as watch:
        (tmp_path / ".hidden").write_text("half")
        (tmp_path / ".hidden").rename(tmp_path / "moved")
        (tmp_path / "grows").write_text("line")
        while watch.wait(0.1, growing=("grows",)):
            pass
        assert watch.broken == []
        (tmp_path / ".new").mkdir()
        (tmp_path / ".new" / "file").write_text("whole")
        (tmp_path / ".new").rename(tmp_path / "new")
        assert watch.wait(1)
        assert watch.broken == []
        (tmp_path / "new" / "file").write_text("half")
        assert watch.wait(1)
        assert set(watch.broken) == {"new/file was written in place"}


def test_half_files_other_bytes_and_leftovers_are_found(tmp_path):
    place = Place(tmp_path / "place", tmp_path)
    whole = {"run/log.csv": b"1,2\n3,4\n", "run/model": b"new"}
    known = Undisturbed("train", whole, b"", 1.0, 1, {"run/model": {b"new", b"old"}})
    (place.out / "run").mkdir()
    for log, model, half in ((b"1,2\n", b"old", []), (b"1,3\n", b"ne", ["run/log.csv is half", "run/model is half"])):
        (place.out / "run" / "log.csv").write_bytes(log)
        (place.out / "run" / "model").write_bytes(model)
        assert [each.split(":")[0] for each in known.wrong(place.out)] == half
    (place.tmp / "x").touch()
    (place.out / ".part").touch()
    wrong = {"run/log.csv differs", "run/model differs", ".part is left", "TMPDIR/x is left"}
    assert set(known.differences(place)) == wrong
    (place.out / ".part").unlink()
    for name, data in whole.items():
        (place.out / name).write_bytes(data)
    (place.tmp / "x").unlink()
    assert known.differences(place) == []
    assert contents(place.out) == whole


def test_times_alone_are_left_out():
    assert without_times(b'"seconds": 1.25,\n<p>2.5 s</p> 3 points') == b'"seconds": ,\n<p> s</p> 3 points'
    assert without_times(b"value 0.5\nseconds        0.18118182\n") == b"value 0.5\nseconds        \n"
