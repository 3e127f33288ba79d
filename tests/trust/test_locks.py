"""Locks of folders and files on file systems that have them, have them as NFS does, or have none."""

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
from otformer.files import written, written_folder
from otformer.locks import LOCK, held

OURS = "1-0123abcd"  # as a writer is named


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_locks_are_asked_for_by_files_opened_for_writing_as_nfs_wants_it(tmp_path, monkeypatch):
    """NFS makes a lock of this kind into one of its own, which a handle for reading cannot have."""
    real = fcntl.flock

    def flock(handle, how):
        if not fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_RDWR:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with held(tmp_path), pytest.raises(ValueError, match="is being written by another process"), held(tmp_path):
        pass
    (tmp_path / f".report.{OURS}.part").touch()
    (tmp_path / f".report.{OURS}.new").mkdir()
    with written_folder(tmp_path / "report"):
        pass
    assert names(tmp_path) == ["report"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_one_line_says_so_and_nothing_is_taken_for_left_behind(tmp_path, monkeypatch, number):
    def flock(handle, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / f".report.{OURS}.part").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with written_folder(tmp_path / "report") as folder, written(folder / "text"):
            pass
    with pytest.warns(UserWarning, match="not told apart") as told, held(tmp_path, "out"):
        pass
    assert [str(each.message).count("\n") for each in told] == [0]
    assert str(told[0].message) == (
        "out is on a file system without locks: let no other process write there meanwhile, as two are not told apart"
    )
    assert {each.filename for each in told} == {__file__}
    assert names(tmp_path) == [f".report.{OURS}.part", "report"]


def test_a_command_says_it_in_one_line(tmp_path, monkeypatch, capsys):
    def flock(handle, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(sys, "argv", ["otformer", "align", "the cat ||| le chat", "--out", str(tmp_path / "links")])
    main()
    err = capsys.readouterr().err
    assert err.startswith(f"otformer: {tmp_path}/links is on a file system without locks: ")
    assert err.count("\n") == 1
    assert names(tmp_path) == ["links"]


def test_a_folder_in_which_nothing_can_be_made_is_refused_in_one_line(tmp_path, monkeypatch):
    """Neither made nor opened: not taken for a lock that has just gone, which would be tried again without end."""
    tries, opened = iter(range(9)), os.open

    def refused(path, flags, *more, **others):
        if flags & os.O_CREAT and next(tries) < 8:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, flags, *more, **others)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(ValueError, match=r"lock cannot be opened, .*: Permission denied$"), held(tmp_path):
        pass


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / LOCK).symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match=r"\.otformer\.lock cannot be opened"), held(tmp_path):
        pass
    assert not (tmp_path / "outside").exists()


def test_many_wait_in_turn_for_one_folder(tmp_path):
    """The file that locks it is removed and made anew each time; never do two have it."""
    inside, most, times = [], [], []

    def work():
        while len(times) < 300:
            with suppress(ValueError), held(tmp_path):
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
