"""Writers of one file or folder side by side, and which of the files around them are theirs."""

from __future__ import annotations

import threading

import pytest

from otformer import locks
from otformer.files import written, written_folder
from otformer.words.jobs.jobs import ChunkFolder, Job, run

LEFT = "0123abcd"  # as an unfinished file is named


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# Side by side


def test_writers_of_one_file_and_one_folder_take_turns(tmp_path):
    """All succeed, the last one stays, and nothing is mixed or left."""
    file, folder, failed = tmp_path / "plan", tmp_path / "report", []

    def write(text):
        try:
            for _ in range(20):
                with written(file) as out:
                    out.write(text.encode())
                with written_folder(folder) as new:
                    for name in ("first", "second"):
                        (new / name).write_text(text)
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(text,)) for text in "abc"]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert failed == []
    assert file.read_text() in {"a", "b", "c"}
    assert len({each.read_text() for each in folder.iterdir()}) == 1
    assert names(tmp_path) == ["plan", "report"]


@pytest.mark.parametrize("write", [written, written_folder])
def test_a_writer_that_waits_too_long_is_refused_and_the_first_is_whole(tmp_path, monkeypatch, write):
    monkeypatch.setattr(locks, "WAIT", 0.05)
    target = tmp_path / "report"
    with write(target):
        with pytest.raises(ValueError, match=r"report is being written by another process"), write(target):
            pass
        assert not target.exists()
    assert names(tmp_path) == ["report"]


@pytest.mark.parametrize("stands", ["file", "link", "broken link"])
def test_a_folder_takes_the_place_of_a_file_or_a_link(tmp_path, stands):
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


# What is left behind


def test_only_unfinished_files_of_ours_are_removed(tmp_path):
    theirs = f".report-2023-old .report.notes.otformer-old .report.0123abcg.otformer-new .report.{LEFT}4.otformer-new"
    theirs += f" .other.{LEFT}.otformer-new .report.{LEFT}.otformer-new.bak .report.{LEFT}.notes .report.{LEFT}.new"
    for name in theirs.split():
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").touch()
    (tmp_path / "report").mkdir()
    for word in ("new", "old"):
        (tmp_path / f".report.{LEFT}.otformer-{word}").mkdir()
        (tmp_path / f".report.{LEFT}.otformer-{word}" / "text").touch()
    with written_folder(tmp_path / "report"):
        pass
    assert names(tmp_path) == sorted([*theirs.split(), "report"])


@pytest.mark.parametrize("killed", ["before", "between", "after"])
def test_a_folder_whose_replacement_was_cut_short_is_the_old_one_or_the_new_one(tmp_path, killed):
    """Before its two renames, between them, and after them."""
    places = {"old": f".report.{LEFT}.otformer-old", "new": f".report.{LEFT}.otformer-new"}
    places |= {"before": {"old": "report"}, "between": {}, "after": {"new": "report"}}[killed]
    for text, name in places.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text(text)
    with locks.part_of(tmp_path / "report"):
        assert (tmp_path / "report" / "text").read_text() == ("new" if killed == "after" else "old")
    assert names(tmp_path) == ["report"]


def test_what_cannot_be_removed_does_not_stop_a_writer_and_an_older_folder_is_never_lost(tmp_path, monkeypatch):
    old = tmp_path / f".report.{LEFT}.otformer-old"
    old.mkdir()
    (old / "text").write_text("old")

    def refused(*_):
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr("os.rename", refused)
        with written(tmp_path / "report"):
            pass
    assert (old / "text").read_text() == "old"
    (tmp_path / "report").unlink()
    with locks.part_of(tmp_path / "report"):
        assert (tmp_path / "report" / "text").read_text() == "old"


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
    (parts / f".{'0' * 32}.{LEFT}.otformer-new").touch()
    (parts / f".{'0' * 32}.otformer-lock").touch()
    assert len(ChunkFolder(tmp_path / "out")) == 1
    run(JOB, [("a", "b"), ("c", "d")], tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"mademade"
    assert names(parts) == sorted([*notes, "folder"])
    assert {(parts / name).read_text() for name in notes} == {"mine"}


def test_a_file_in_place_of_the_folder_of_chunks_is_one_line(tmp_path):
    (tmp_path / "out.parts").write_text("mine")
    with pytest.raises(ValueError, match=r"out\.parts must be a folder for finished chunks, got a file"):
        run(JOB, [("a", "b")], tmp_path / "out")
    assert (tmp_path / "out.parts").read_text() == "mine"


def test_a_refused_second_run_takes_nothing_from_the_first(tmp_path):
    folder = ChunkFolder(tmp_path / "out")
    with folder.held():
        folder.folder.mkdir()
        folder.file("0" * 32).write_bytes(b"chunk")
        with pytest.raises(ValueError, match="out is being written by another process"), folder.held():
            pass
    assert names(folder.folder) == ["0" * 32]
    assert names(tmp_path) == ["out.parts"]
