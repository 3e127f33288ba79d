"""Who may read and write what replaces a file or a folder: nobody who might not before, at no moment."""

from __future__ import annotations

import os
import stat
import struct

import pytest

from needs import missing
from otformer.files import written, written_folder


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize("kept", [0o600, 0o640, 0o664, 0o444])
def test_a_file_keeps_the_mode_of_the_one_that_it_replaces(tmp_path, kept):
    file = tmp_path / "plan"
    file.write_text("old")
    file.chmod(kept)
    with written(file) as out:
        out.write(b"new")
        (part,) = tmp_path.glob(".plan.*")
        assert mode(part) == 0o600  # until it has the rights of the old one, it is its owner's alone
    assert (file.read_text(), mode(file)) == ("new", kept)


@pytest.mark.usefixtures("usual_umask")
def test_a_link_has_no_rights_to_keep(tmp_path):
    (tmp_path / "outside").touch(0o600)
    (tmp_path / "plan").symlink_to(tmp_path / "outside")
    with written(tmp_path / "plan", ours=True):
        pass
    assert mode(tmp_path / "plan") == 0o644


@pytest.mark.usefixtures("usual_umask")
def test_a_folder_keeps_its_mode_and_those_of_its_files(tmp_path, exchange):
    report = tmp_path / "report"
    report.mkdir(0o700)
    (report / "secret").touch(0o600)
    with written_folder(report) as folder:
        assert mode(folder) == 0o700
        for name in ("secret", "other"):
            (folder / name).touch()
    assert mode(report) == 0o700
    assert [mode(report / name) for name in ("secret", "other")] == [0o600, 0o644]
    report.chmod(0o555)
    with written_folder(report):
        pass
    assert (mode(report), os.listdir(tmp_path)) == (0o555, ["report"])


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize("may", [True, False])
def test_rights_of_a_group_are_not_given_to_another(tmp_path, monkeypatch, may):
    file, group = tmp_path / "plan", 54321
    file.touch()
    try:
        os.chown(file, -1, group)
    except PermissionError:
        pytest.skip(missing("rights"))
    file.chmod(0o664)
    if not may:
        monkeypatch.setattr(os, "chown", lambda *_: (_ for _ in ()).throw(PermissionError))
    with written(file):
        pass
    assert (file.stat().st_gid == group, mode(file)) == ((True, 0o664) if may else (False, 0o644))


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize("may", [True, False])
def test_an_access_list_is_kept_or_the_group_gets_what_all_have(tmp_path, monkeypatch, may):
    """Where user 54321 may read and write, and the group nothing, the mode is 0660: the list says whose the 6 is."""
    file, list_of = tmp_path / "plan", "system.posix_acl_access"
    file.touch(0o600)
    entries = (0x01, 6, -1), (0x02, 6, 54321), (0x04, 0, -1), (0x10, 6, -1), (0x20, 0, -1)  # owner, user, group, mask, all
    access = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(file, list_of, access)
    except OSError:
        pytest.skip(missing("rights"))
    assert mode(file) == 0o660
    if not may:
        monkeypatch.setattr(os, "setxattr", lambda *_: (_ for _ in ()).throw(PermissionError))
    with written(file):
        pass
    assert mode(file) == (0o660 if may else 0o600)
    if may:
        assert os.getxattr(file, list_of) == access
