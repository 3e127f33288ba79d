"""Locks of folders and files on file systems that have them or have none."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import threading
import time
import warnings
from contextlib import suppress

import pytest

from otformer.cli.main import main
from otformer.files import written
from otformer.locks import LOCK, held

LEFT = ".report.0123abcd.otformer-new"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_one_line_says_so_and_nothing_is_taken_for_left_behind(tmp_path, monkeypatch, number):
    def flock(handle, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / LEFT).touch()
    with warnings.catch_warnings(), written(tmp_path / "report") as out:
        warnings.simplefilter("error")
        out.write(b"whole")
    with pytest.warns(UserWarning, match="without locks") as told, held(tmp_path / LOCK, "out"):
        pass
    assert str(told[0].message) == "out is on a file system without locks: let no other process write there"
    assert {each.filename for each in told} == {__file__}
    assert (tmp_path / "report").read_bytes() == b"whole"
    assert names(tmp_path) == [LEFT, "report"]


def test_a_command_says_it_in_one_line(tmp_path, monkeypatch, capsys):
    def flock(handle, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(sys, "argv", ["otformer", "align", "the cat ||| le chat", "--out", str(tmp_path / "links")])
    main()
    assert capsys.readouterr().err == (
        f"otformer: {tmp_path}/links is on a file system without locks: let no other process write there\n"
    )
    assert names(tmp_path) == ["links"]


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / LOCK).symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match=r"out cannot be written: .*\.otformer\.lock"), held(tmp_path / LOCK, "out"):
        pass
    assert not (tmp_path / "outside").exists()


def test_many_wait_in_turn_for_one_folder(tmp_path):
    """The file that locks it is removed and made anew each time; never do two have it."""
    inside, most, times = [], [], []

    def work():
        while len(times) < 300:
            with suppress(ValueError), held(tmp_path / LOCK, "out"):
                inside.append(1)
                time.sleep(0.0005)
                most.append(len(inside))
                inside.pop()
                times.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert max(most) == 1
    assert names(tmp_path) == []
