"""Files are written whole or not at all, with the rights the user asked for."""

import contextlib
import csv
import os

import numpy as np
import pytest

from otformer.files import write_csv, write_npz, written, written_folder
from otformer.problem_files import read_weights


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_rights_follow_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_npz(tmp_path / "plan.npz", plan=np.eye(2))
    finally:
        os.umask(before)
    assert (tmp_path / "plan.npz").stat().st_mode & 0o777 == mode


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "text"
    file.write_text("old")
    with contextlib.suppress(RuntimeError), written(file) as out:
        out.write(b"new")
        raise RuntimeError
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
    with written(file) as out:
        out.write(b"new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


def test_a_folder_takes_the_place_of_the_old_one_whole_or_not_at_all(tmp_path):
    for name, content in (("a", "first"), ("b", "second")):
        with written_folder(tmp_path / "run") as folder:
            (folder / name).write_text(content)
    with contextlib.suppress(RuntimeError), written_folder(tmp_path / "run") as folder:
        (folder / "c").write_text("third")
        raise RuntimeError
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["run", "run/b"]
    with pytest.raises(ValueError, match="cannot be written"), written_folder(tmp_path / "none" / "run"):
        pass


def test_a_csv_is_read_back(tmp_path):
    rows = [{"name": 'a, "b"', "value": 1.5}, {"name": "ü\nv", "value": None}]
    write_csv(tmp_path / "table.csv", rows)
    with (tmp_path / "table.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == [{"name": 'a, "b"', "value": "1.5"}, {"name": "ü\nv", "value": ""}]


@pytest.mark.parametrize("text", ["0.5\n0.25\n0.25\n", "0.5 0.25 0.25\n"])
def test_weights_stand_in_lines_or_in_one(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    assert read_weights(tmp_path / "a.txt").tolist() == [0.5, 0.25, 0.25]
