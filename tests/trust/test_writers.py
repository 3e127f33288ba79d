"""Writers of one file or folder side by side, and what of the files around them is theirs: by names and locks."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from otformer import replacing
from otformer.files import written, written_folder
from otformer.jobs.jobs import ChunkFolder, Job, run
from otformer.locks import LOCK, part_of, tidy

OURS = "1-0123abcd"  # as a writer is named


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# Side by side


def test_writers_of_one_folder_with_one_process_number_do_not_meet(tmp_path, monkeypatch, exchange):
    """Threads, and containers that share a volume: all succeed, the last one stays, a reader always finds a whole one."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    target, times, failed, done = tmp_path / "report", 60, [], threading.Event()

    def write(text):
        try:
            for _ in range(times):
                with written_folder(target) as folder:
                    for name in ("first", "second"):
                        (folder / name).write_text(text)
        except BaseException as error:
            failed.append(error)

    def read():
        while not done.is_set():
            if not target.exists() and exchange:
                failed.append("missing")

    with written_folder(target):
        pass
    reader, writers = threading.Thread(target=read), [threading.Thread(target=write, args=(text,)) for text in "abc"]
    for each in (reader, *writers):
        each.start()
    for each in writers:
        each.join()
    done.set()
    reader.join()
    assert failed == []
    assert len({file.read_text() for file in target.iterdir()}) == 1
    assert names(tmp_path) == ["report"]


def test_two_that_make_a_folder_first_both_succeed(tmp_path, exchange):
    """None was there when either looked, and one has put its own there when the other does."""
    with written_folder(tmp_path / "report") as first:
        with written_folder(tmp_path / "report") as second:
            (second / "text").write_text("second")
        (first / "text").write_text("first")
    assert (tmp_path / "report" / "text").read_text() == "first"
    assert names(tmp_path) == ["report"]


def test_a_folder_that_another_puts_between_our_two_renames_is_replaced(tmp_path, monkeypatch):
    target, real, times = tmp_path / "report", os.rename, []
    target.mkdir()

    def rename(path, to):
        real(path, to)
        if str(to).endswith(".old") and not times:
            times.append(to)
            target.mkdir()
            (target / "theirs").write_text("theirs")

    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(replacing, "_exchanged", lambda one, other: False)
    with written_folder(target) as folder:
        (folder / "ours").write_text("ours")
    assert times
    assert names(target) == ["ours"]
    assert names(tmp_path) == ["report"]


def test_a_folder_that_cannot_be_renamed_is_copied(tmp_path, monkeypatch):
    """As overlayfs has it of a lower layer's folders."""
    target, rename = tmp_path / "report", os.rename
    (target / "old").mkdir(parents=True)

    def refused(one, other):
        if os.fspath(one) == str(target):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(one, other)

    monkeypatch.setattr(replacing, "_exchanged", lambda one, other: False)
    monkeypatch.setattr(os, "rename", refused)
    with written_folder(target) as folder:
        (folder / "new").touch()
    assert [each.name for each in target.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [target]


def test_an_exchange_that_is_refused_for_another_reason_is_told(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        replacing._exchanged(tmp_path, tmp_path / "none")


@pytest.mark.parametrize("stands", ["file", "link", "broken link"])
def test_a_folder_takes_the_place_of_a_file_or_a_link(tmp_path, stands, exchange):
    target, outside = tmp_path / "report", tmp_path / "outside"
    if stands == "file":
        target.write_text("a file")
    else:
        target.symlink_to(outside)
        if stands == "link":
            outside.mkdir()
    with written_folder(target) as folder:
        (folder / "text").write_text("new")
    assert (target / "text").read_text() == "new"
    assert not target.is_symlink()
    assert set(names(tmp_path)) - {"outside"} == {"report"}
    assert names(outside) == [] if stands == "link" else not outside.exists()


# What is tidied


def test_only_names_of_ours_that_nobody_locks_are_tidied(tmp_path):
    theirs = ".report-2023-old .report-1-new .report.notes.old .report.notes.part .report.1-0123abcg.part"
    theirs += f" .report.1-0123abcd4.part .report.x-0123abcd.part .other.{OURS}.part .report.{OURS}.part.bak"
    theirs += f" .report.{OURS}.notes .report.2-0123abcd.new"
    for name in theirs.split():
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").touch()
    (tmp_path / f".report.{OURS}.part").touch()
    for word in ("new", "old"):
        (tmp_path / f".report.{OURS}.{word}").mkdir()
        (tmp_path / f".report.{OURS}.{word}" / "text").touch()
    (tmp_path / "report").mkdir()
    with part_of(tmp_path / "report") as alive:
        tidy(tmp_path / "report")
        assert names(tmp_path) == sorted([*theirs.split(), alive.name, "report"])
    with written_folder(tmp_path / "report"):
        pass
    (tmp_path / "report").rmdir()
    with written(tmp_path / "report"):
        pass
    assert names(tmp_path) == sorted([*theirs.split(), "report"])


def test_a_missing_folder_comes_back_only_where_its_writer_was_killed_between_two_renames(tmp_path):
    for word in ("part", "new", "old"):
        (tmp_path / f".report.{OURS}.{word}").mkdir() if word != "part" else (tmp_path / f".report.{OURS}.part").touch()
    (tmp_path / f".report.{OURS}.old" / "text").write_text("older")
    tidy(tmp_path / "report")
    assert (tmp_path / "report" / "text").read_text() == "older"
    (tmp_path / f".report.{OURS}.part").touch()
    (tmp_path / "report").rename(tmp_path / f".report.{OURS}.old")  # both renames done: the next writer has moved it away
    tidy(tmp_path / "report")
    assert names(tmp_path) == []


# The folder of chunks


JOB = Job(lambda: lambda chunk: b"made", chunk=1)


def test_a_users_own_files_in_the_folder_of_chunks_stay(tmp_path):
    parts = tmp_path / "out.parts"
    parts.mkdir()
    notes = ["notes.txt", ".hidden", "0" * 31, "0" * 33, ".notes.part", "G" * 32]
    for name in notes:
        (parts / name).write_text("mine")
    (parts / "folder").mkdir()
    (parts / ("0" * 32)).write_bytes(b"of other settings")
    (parts / f".{'0' * 32}.{OURS}.part").touch()
    assert len(ChunkFolder(tmp_path / "out")) == 1
    run(JOB, [("a", "b"), ("c", "d")], tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"mademade"
    assert names(parts) == sorted([*notes, "folder"])
    assert {(parts / name).read_text() for name in notes} == {"mine"}


def test_a_file_in_place_of_the_folder_of_chunks_is_one_line(tmp_path):
    (tmp_path / "out.parts").write_text("mine")
    with pytest.raises(ValueError, match=r"out\.parts must be a folder, for finished chunks"):
        run(JOB, [("a", "b")], tmp_path / "out")
    assert (tmp_path / "out.parts").read_text() == "mine"


def test_a_refused_second_run_takes_nothing_from_the_first(tmp_path):
    folder = ChunkFolder(tmp_path / "out")
    with folder.held():
        folder.file("0" * 32).write_bytes(b"chunk")
        with pytest.raises(ValueError, match="out is being written by another process"), folder.held():
            pass
        assert names(folder.folder) == [LOCK, "0" * 32]
    assert names(folder.folder) == ["0" * 32]
