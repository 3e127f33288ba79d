"""`otformer transfer`: every kind of input and output, and nothing on disk after bad input."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from unittest import mock

import pytest

from fuzz.commands import called
from otformer.cli.main import main

PAIRS = [("the <b>black</b> cat", "le chat noir"), ("", ""), ("<i>the man</i> reads<br/>", "l'homme lit")]
RESULT = "le chat <b>noir</b>\n\n<i>l'homme</i> lit<br/>\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    bars = "".join(" ||| ".join(pair) + "\n" if pair[0] else "\n" for pair in PAIRS)
    (tmp_path / "bars").write_text(bars)
    (tmp_path / "table.tsv").write_text("".join("\t".join(pair) + "\n" for pair in PAIRS))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(bars.encode()))
    for side, name in enumerate(("en", "fr")):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in PAIRS))
    (tmp_path / "links").write_text("0-0 1-2 2-1\n\n0-0 1-0 2-1\n")
    (tmp_path / "conll").write_text("the O\nman B-P\n\nthe O\nmen B-P\n")
    (tmp_path / "texts").write_text("l'homme\nles hommes\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("given", [["bars"], ["table.tsv"], ["packed.gz"], ["en", "fr"]])
def test_every_kind_of_file_gives_the_same_lines(given):
    assert called(["transfer", *given]) == (0, RESULT, "")
    assert called(["transfer", *given, "--links", "links"]) == (0, RESULT, "")
    assert called(["transfer", *given, "--out", "made"]) == (0, "", "")
    assert Path("made").read_text() == RESULT
    assert not Path("made.parts").exists()


def test_text_standard_input_and_json():
    assert called(["transfer", "Der <b>schwarze</b> Hund ||| The black dog", "-l", "de-en"])[1] == "The <b>black</b> dog\n"
    assert called(["transfer", "-"], Path("bars").read_bytes())[1] == RESULT
    records = [json.loads(line) for line in called(["transfer", "bars", "--json"])[1].splitlines()]
    assert "".join(record["result"] + "\n" for record in records) == RESULT


def test_labels():
    expected = "l'\tO\nhomme\tB-P\n\nles\tO\nhommes\tB-P\n\n"
    assert called(["transfer", "conll", "texts", "--column", "2"]) == (0, expected, "")
    assert called(["transfer", "conll", "texts", "--column", "-1", "--out", "made"])[0] == 0
    assert Path("made").read_text() == expected
    records = [
        json.loads(line) for line in called(["transfer", "conll", "texts", "--column", "2", "--json"])[1].splitlines()
    ]
    assert records[1] == {"words": ["les", "hommes"], "labels": ["O", "B-P"]}


def test_what_is_kept_of_a_run_that_stopped_is_used(monkeypatch):
    """Ctrl-C comes after the first of three chunks; the same command makes the two others alone."""
    from otformer.words.projection.work import TransferWork

    Path("many").write_text("".join(f"the <b>cat</b> {k} ||| le chat {k}\n" for k in range(600)))
    whole, made = called(["transfer", "many"])[1], []
    real = TransferWork.__call__

    def counted(self):
        work = real(self)

        def step(items):
            if made and not Path("again").exists():
                raise KeyboardInterrupt
            made.append(len(items))
            return work(items)

        return step

    monkeypatch.setattr(TransferWork, "__call__", counted)
    code, _, err = called(["transfer", "many", "--out", "out"])
    assert (code, Path("out").exists()) == (130, False)
    assert "1 chunks are in" in err
    Path("again").touch()
    assert called(["transfer", "many", "--out", "out"])[0] == 0
    assert Path("out").read_text() == whole
    assert sum(made) == 600


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a <b>c ||| d"], "text must close every tag that it opens, got '<b>' alone"),
        (["broken"], "pair 2 must nest its tags, got '</b>' before the end of '<i>'"),
        (["en", "short"], "short is short: it has 1 line, en has 3"),
        (["bars", "--links", "short"], "links of pair 1 must hold links like 0-1 or 2p3, got 'le'"),
        (["bars", "--links", "far"], "links of pair 1 must have source word < 3 and target word < 3, got 5-0"),
        (["bars", "--links", "one"], "one must have a line for each of 3 sentence pairs, got 1"),
        (["bars", "--links", "links", "-l", "de-en"], "--languages cannot be combined with --links"),
        (["bars", "--one-based"], "--one-based must be used with --links"),
        (["bars", "--column", "0"], "--column must count from 1"),
        (["bars", "--column", "1"], "text must be two files: CoNLL, and its translation, got bars"),
        (["conll", "texts", "--column", "3"], "conll line 1 must have a label in column 3, got 'the O'"),
        (["conll", "short", "--column", "2"], "short is short: it has 1 sentences, conll has more"),
        (["texts", "en", "--column", "2"], "texts line 1 must have a label in column 2"),
        (["none"], "'none' does not exist"),
        (["bars", "-l", "en-es"], "languages must be one of"),
        (["bars", "--by", "letters"], "by must be one of"),
        (["long"], "pair 1 must have at most 20,000 words per side"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(folder, arguments, message):
    Path("broken").write_text("<b>a</b> ||| b\n<b><i>c</b></i> ||| d\n")
    Path("short").write_text("le chat\n")
    Path("far").write_text("5-0\n\n\n")
    Path("one").write_text("0-0\n")
    Path("long").write_text("a " * 2_000 + "||| " + "b " * 2_000 + "\n")
    before = sorted(file.name for file in folder.iterdir())
    for out in ([], ["--out", "made"]):
        code, text, err = called(["transfer", *arguments, *out])
        assert (code, text, len(err.splitlines())) == (2, "", 1), err
        assert err.startswith("otformer: ")
        assert message in err
        assert sorted(file.name for file in folder.iterdir()) == before


def test_nothing_that_a_terminal_obeys_reaches_it():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    Path("hostile").write_text("<b t='\x1b[2J'>a\x1b]0;x\x07</b> ||| b\x9b2J\u202e\x00\n")
    Path("labels").write_text("a\x1b\tO\n")
    Path("target").write_text("b\x9b2J\n")
    for given in (["hostile"], ["hostile", "--json"], ["labels", "target", "--column", "2"]):
        terminal = Terminal()
        with mock.patch.multiple(sys, argv=["otformer", "transfer", *given], stdout=terminal):
            main()
        out = terminal.getvalue()
        assert out.replace("\n", "").replace("\t", "").isprintable()
        assert "b" in out
    assert called(["transfer", "hostile"])[1] == "<b t='\x1b[2J'>b\x9b2J\u202e\x00</b>\n", "a file keeps its text"


def test_a_model_of_ones_own_text_aligns(folder):
    (folder / "text").write_text("ruma kala ||| house fish\nruma suuri ||| house big\nkala suuri ||| fish big\n" * 8)
    assert called(["align", "--train", "text", "--out", "model"])[0] == 0
    Path("own").write_text("<b>kala</b> ruma ||| house fish\n")
    assert called(["transfer", "own", "--model", "model"]) == (0, "house <b>fish</b>\n", "")
    status, said, line = called(["transfer", "own", "--model", "model", "-l", "de-en"])
    assert (status, said) == (2, "")
    assert "--languages" in line
    assert "--model" in line
    assert called(["transfer", "own", "--model", "bars"])[0] == 2
