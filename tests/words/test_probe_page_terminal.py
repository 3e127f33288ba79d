"""Words in a terminal and the commands that show them: `align --show`, `probe --show`, `probe --html`."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from needs import missing

pytest.importorskip("transformers", reason=missing("words"))
from helpers import tiny_models
from helpers.messages import assert_says
from otformer.cli.main import main
from otformer.show.heat import Heat
from otformer.show.links import BRAILLE, LINES_WIDE, Links
from otformer.words.probe.one_pair import look_at


def otformer(*arguments) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["otformer", *map(str, arguments)])
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    return int(str(code or 0)), out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.marian(tmp_path_factory.mktemp("models") / "marian")


def ends(line: str) -> tuple[bool, bool]:
    """Whether a line of a drawing has dots beside its left and its right word."""
    cells = [c for c in line if BRAILLE <= ord(c) < BRAILLE + 256]
    assert len(cells) == LINES_WIDE
    return ord(cells[0]) > BRAILLE, ord(cells[-1]) > BRAILLE


def test_lines_begin_and_end_at_linked_words():
    found = Links(["one", "zwei", "drei"], ["un", "deux", "trois"], {(0, 2): 0.9, (2, 0): 0.3}, "")
    lines = str(found.text()).split("\n")
    assert [(line.split()[0], line.split()[-1]) for line in lines] == [("one", "un"), ("zwei", "deux"), ("drei", "trois")]
    # straight lines cross in the middle row; neither word of it is touched
    assert [ends(line) for line in lines] == [(True, True), (False, False), (True, True)]
    dim = {span.style for span in found.text().spans}
    assert any(str(style).endswith("dim") for style in dim)  # the weak link and the words without one


def test_words_of_two_columns_and_of_different_numbers():
    found = Links(["猫"], ["a", "cat", "sits"], {(0, 0): 0.9}, "")
    lines = str(found.text()).split("\n")
    assert [ends(line) for line in lines] == [(False, True), (True, False), (False, False)]
    assert len({line.index(chr(BRAILLE)) for line in lines[2:]} | {3}) == 1  # 2 columns of the sign, and a space
    assert str(Links([], [], {}, "").text()) == ""


def test_control_characters_do_not_reach_the_terminal():
    evil = "\x1b[2J\x07\u202e"
    heat = Heat(np.eye(1), "", (1, 1), labels=([evil], [evil]))
    drawn = str(Links([evil], [evil], {(0, 0): 1.0}, "").text()) + str(heat.text())
    assert not set("\x1b\x07\u202e") & set(drawn)
    assert "�[2J��" in drawn


def test_heat_maps_have_every_number_once_whatever_the_width():
    rng = np.random.default_rng(0)
    source, target, A = [f"source{k}" for k in range(17)], ["ein", "Wort"], rng.random((2, 17))
    heat = Heat(A, "", A.shape, 1.0, labels=(target, source))
    for width in (200, 90, 40, 10):
        lines = str(heat.text(width)).split("\n")
        rows = {word: [int(x) for line in lines if line.startswith(word) for x in line.split()[1:]] for word in target}
        assert rows == {word: np.rint(100 * row).astype(int).tolist() for word, row in zip(target, A, strict=True)}
        assert max(map(len, lines)) <= max(width, 9)
    upright = str(heat.text(90)).split("\n")
    assert ["".join(line[8 + 4 * k] for line in upright[:8]).strip() for k in range(17)] == source


def test_align_draws():
    code, out, err = otformer("align", "The black cat ||| Le chat noir", "--show")
    assert (code, err) == (0, "")
    assert [ends(line) for line in out.rstrip().splitlines()] == [(True, True)] * 3
    assert [line.split()[-1] for line in out.rstrip().splitlines()] == ["Le", "chat", "noir"]
    code, out, err = otformer("align", "a ||| b", "--show", "--json")
    assert (code, out) == (2, "")
    assert_says(err, "--json", "combined with --show", "--json")


def test_probe_draws_the_nearest_layer_and_says_what_it_is(model):
    code, out, err = otformer("probe", model, "the cat ||| le chat", "--show")
    found = look_at(model, "the cat ||| le chat")
    assert (code, err) == (0, "")
    near = found.nearest
    A = found.scaled(near["reading"])[near["layer"] - 1, -1]
    rows = [[int(x) for x in line.split()[1:]] for line in out.splitlines() if line.startswith(("le ", "chat "))]
    assert rows == np.rint(100 * np.concatenate([A, 2 * found.plan])).astype(int).tolist()
    assert out.rstrip().endswith(found.verdict())


def test_probe_writes_a_page(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OTFORMER_DATA", raising=False)
    code, out, err = otformer("probe", model, "--html", "page.html", "--pairs", 3)
    assert (code, err, os.listdir()) == (0, "", ["page.html"])
    assert "page.html: 3 of 3 sentence pairs" in out
    assert '"gold":[[' in Path("page.html").read_text()  # the examples have links made by hand
    code, out, _ = otformer("probe", model, "the cat ||| le chat", "--html", "page.html", "--json")
    record = json.loads(out)
    assert (code, record["page"], len(record["pairs"])) == (0, "page.html", 1)
    assert record["pairs"][0]["verdict"] == look_at(model, "the cat ||| le chat").verdict()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["the cat ||| le chat", "--html", "page.png"], ("--html", "end in .html or .htm", "'page.png'")),
        (["the cat ||| le chat", "--html", "none/page.html"], ("none/page.html", "be written", "the folder")),
        (["the cat ||| le chat", "--html", "p.html", "--show"], ("--html", "combined with --show", "--html p.html")),
        (["--show"], ("--show", "one sentence pair, 'a ||| b'", "the examples: --html FILE shows many")),
        ([" ||| ", "--html", "p.html"], ("text", "two sentences with one ||| between them", "' ||| '")),
        (["cat " * 3000 + "|||" + "chat " * 3000, "--html", "p.html", "--by", "spaces"], ()),
    ],
)
def test_bad_input_leaves_nothing(model, arguments, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = otformer("probe", model, *arguments)
    if not parts:  # cut at the model's limit of 40 tokens, and so small enough
        assert (code, os.listdir()) == (0, ["p.html"])
        return
    assert (code, out, os.listdir()) == (2, "", [])
    assert_says(err, *parts)
