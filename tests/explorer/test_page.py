"""The explorer's file, what it is made of, and the command that opens it."""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from needs import missing
from otformer.cli.main import main
from otformer.explorer.page import LARGEST, MODULES, page, write_page
from otformer.lab import explorer_data

FOLDER = explorer_data.DATA.parent


def otformer(monkeypatch, *arguments) -> int:
    monkeypatch.setattr(sys, "argv", ["otformer", *map(str, arguments)])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_the_page_is_one_small_file_that_asks_for_nothing():
    text = page()
    assert len(text.encode()) < LARGEST
    loads = text.replace('href="#"', "").replace("link.href", "")
    assert not re.search(r"""(?:src|href)\s*=|\bimport\b[^;]*from|url\(|https?:""", loads)
    assert not re.search(r"/\*(?:DATA|STYLE|PROGRAM)\*/", text)


def test_every_program_is_in_the_page_and_short():
    files = sorted((FOLDER / "js").glob("*.js"))
    assert sorted(MODULES) == [file.stem for file in files]
    assert max(len(file.read_text("utf-8").splitlines()) for file in files) < 300
    for name, program in ((file.stem, file.read_text("utf-8")) for file in files):
        used = re.findall(r'from "\./(\w+)\.js"', program)
        assert all(MODULES.index(each) < MODULES.index(name) for each in used), name


def test_the_data_are_those_of_the_package():
    """Trained weights and vectors, made again."""
    stored = json.loads(explorer_data.DATA.read_text("utf-8"))
    assert stored["networks"] == {name: explorer_data.learned(name) for name in explorer_data.NETWORKS}
    for side, language in enumerate(("en", "fr")):
        assert stored["vocabulary"][language] == explorer_data.vocabulary(language, side)


@pytest.mark.slow
def test_the_attention_is_that_of_the_shipped_translator():
    pytest.importorskip("transformers", reason=missing("words"))
    stored = json.loads(explorer_data.DATA.read_text("utf-8"))
    pairs, shape = explorer_data.sentences()
    assert (stored["translator"]["layers"], stored["translator"]["heads"]) == shape
    for made, kept in zip(pairs, stored["sentences"], strict=True):
        assert [list(made[name]) for name in ("source", "target")] == [kept["source"], kept["target"]]
        assert [list(link) for link in made["links"]] == kept["links"]
        for reading, packed in made["attention"].items():
            both = (base64.b64decode(each) for each in (packed, kept["attention"][reading]))
            new, old = (np.frombuffer(each, np.uint8) for each in both)
            assert len(old) == shape[0] * shape[1] * len(kept["source"]) * len(kept["target"])
            assert np.abs(new.astype(int) - old).max() <= 1  # other processors round otherwise


def test_the_command_writes_and_opens(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    file = tmp_path / "explore.html"
    assert otformer(monkeypatch, "explore", "--save", file, "--no-open") == 0
    assert (file.read_text("utf-8"), opened) == (page(), [])
    assert capsys.readouterr().out == f"{file}\n"
    assert otformer(monkeypatch, "explore", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert opened == [Path(said["file"]).as_uri()]
    assert (said["opened"], said["bytes"]) == (True, Path(said["file"]).stat().st_size)


def test_without_a_browser_the_command_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert otformer(monkeypatch, "explore", "--save", tmp_path / "e.html") == 0
    assert "no browser could be started" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "said"), [("e.png", "must end in .html"), ("nowhere/e.html", "cannot be written")])
def test_bad_files_are_one_line_and_leave_nothing(tmp_path, monkeypatch, capsys, name, said):
    assert otformer(monkeypatch, "explore", "--save", tmp_path / name) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_write_page_returns_its_path(tmp_path):
    assert write_page(str(tmp_path / "e.htm")) == tmp_path / "e.htm"
