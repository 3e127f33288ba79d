"""What replaces a file or a folder has its mode, from the first moment on."""

from __future__ import annotations

import os
import stat

import pytest

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
        (part,) = tmp_path.glob(".plan.*-new")
        assert mode(part) == kept
    assert (file.read_text(), mode(file)) == ("new", kept)


@pytest.mark.usefixtures("usual_umask")
def test_a_link_has_no_rights_to_keep(tmp_path):
    (tmp_path / "outside").touch(0o600)
    (tmp_path / "plan").symlink_to(tmp_path / "outside")
    with written(tmp_path / "plan", ours=True):
        pass
    assert mode(tmp_path / "plan") == 0o644


@pytest.mark.usefixtures("usual_umask")
def test_a_folder_keeps_its_mode(tmp_path):
    report = tmp_path / "report"
    report.mkdir(0o700)
    with written_folder(report) as folder:
        assert mode(folder) == 0o700
        (folder / "text").touch()
    assert mode(report) == 0o700
    report.chmod(0o555)
    with written_folder(report):
        pass
    assert (mode(report), os.listdir(tmp_path)) == (0o555, ["report"])
