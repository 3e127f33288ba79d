"""`otformer align` and `otformer probe`: every kind of input and output, and nothing on disk after bad input."""

import contextlib
import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helpers import tiny_models
from otformer.cli.main import main
from otformer.words.text.examples import examples

TEXT = [("The cat sleeps", "Le chat dort"), ("", ""), ("The man reads", "L'homme lit")]
LINES = ["0-0 1-1 2-2", "", "0-0 1-1 2-2"]


def otformer(*arguments, stdin=b""):
    """(exit code, standard output, standard error) of the command, in this process."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["otformer", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    return code or 0, out.getvalue(), err.getvalue()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    lines = [" ||| ".join(pair) if pair[0] else "" for pair in TEXT]
    (tmp_path / "bars.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "table.tsv").write_text("".join("\t".join(pair) + "\n" for pair in TEXT))
    (tmp_path / "packed.gz").write_bytes(gzip.compress((tmp_path / "bars.txt").read_bytes()))
    for side, name in enumerate(("en", "fr")):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in TEXT))
    (tmp_path / "short").write_text("Le chat dort\n\n")
    (tmp_path / "cut.gz").write_bytes((tmp_path / "packed.gz").read_bytes()[:-12])
    (tmp_path / "gold").write_text("0-0 1-1 2p2\n\n0-0 1-1\n")
    (tmp_path / "gold1").write_text("1-1 2-2 3-3\n\n1-1 2-2 3-3\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_text_on_a_bare_install_in_seconds():
    """A process of its own, in which transformers, ray and the network are not there."""
    code = (
        "import sys, socket\n"
        "sys.modules.update(transformers=None, ray=None, sentencepiece=None)\n"
        "socket.socket.connect = lambda *where: sys.exit(f'connects to {where}')\n"
        "sys.argv = ['otformer', 'align', 'The cat sleeps ||| Le chat dort']\n"
        "from otformer.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0-0 1-1 2-2\n"
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("given", [["bars.txt"], ["table.tsv"], ["packed.gz"], ["en", "fr"]])
def test_every_kind_of_file_gives_the_same_lines(folder, given):
    code, out, err = otformer("align", *given)
    assert (code, out.splitlines()) == (0, LINES)
    assert "words are split from their punctuation" in err
    assert otformer("align", *given, "--out", "links", "--by", "words") == (0, "", "")
    assert Path("links").read_text().splitlines() == LINES


@pytest.mark.parametrize("file", ["bars.txt", "table.tsv", "packed.gz"])
def test_standard_input_and_pipes(folder, file):
    data = Path(file).read_bytes()
    assert otformer("align", "-", stdin=data)[1].splitlines() == LINES
    os.mkfifo("pipe")
    with subprocess.Popen(["sh", "-c", f"cat {file} > pipe"]):
        assert otformer("align", "pipe")[1].splitlines() == LINES


def test_exchanged_languages(folder):
    assert otformer("align", "fr", "en", "-l", "fr-en")[1].splitlines() == LINES
    assert otformer("align", "Der Hund schläft ||| The dog sleeps", "-l", "de-en")[1] == "0-0 1-1 2-2\n"


def test_forms_of_output(folder):
    text = "The cat sleeps. ||| Le chat dort."
    assert otformer("align", text, "--tokens")[1] == "The cat sleeps . ||| Le chat dort . ||| 0-0 1-1 2-2 3-3\n"
    assert otformer("align", text, "--by", "spaces", "--tokens")[1].startswith("The cat sleeps. ||| Le chat dort. ||| ")
    scored = otformer("align", text, "--scores")[1].split()
    assert [link.split(":")[0] for link in scored] == ["0-0", "1-1", "2-2", "3-3"]
    assert all(0.5 < float(link.split(":")[1]) <= 1 for link in scored)
    record = json.loads(otformer("align", text, "--json")[1])
    assert record["source"] == ["The", "cat", "sleeps", "."]
    assert record["links"] == [[k, k] for k in range(4)]
    printed = otformer("align", text, "--matrix", "-")[1].splitlines()
    assert printed[1].split() == ["The", "cat", "sleeps", "."]
    assert [line.split()[0] for line in printed[2:]] == ["Le", "chat", "dort", "."]


def test_matrices_of_a_corpus(folder):
    assert otformer("align", "bars.txt", "--matrix", "all.npz", "--by", "words", "--out", "links")[0] == 0
    with np.load("all.npz") as arrays:
        assert [arrays[name].shape for name in arrays] == [(3, 3), (0, 0), (3, 3)]
        assert {(int(i), int(j)) for j, i in np.argwhere(arrays["0"] > 0.5)} == {(0, 0), (1, 1), (2, 2)}


def test_nothing_given_are_the_examples():
    for languages, number in (("en-fr", 60), ("en-de", 40)):
        code, out, err = otformer("align", "-l", languages)
        assert (code, out.count("\n")) == (0, number)
        found = [{tuple(map(int, link.split("-"))) for link in line.split()} for line in out.splitlines()]
        gold = [e.links for e in examples(languages)]
        right, both = sum(len(A & S) for A, S in zip(found, gold, strict=True)), sum(map(len, found)) + sum(map(len, gold))
        assert f"{number} pairs: AER {100 * (1 - 2 * right / both):.1f} %" in err


def test_gold_by_hand(folder):
    """Six links are said; of four sure ones four are found, of five possible ones five: AER 1 − (4 + 5)/(6 + 4)."""
    Path("spaced").write_text("The cat sleeps ||| Le chat dort\n\nThe man reads ||| L' homme lit\n")
    code, out, err = otformer("align", "spaced", "--gold", "gold")
    assert (code, err) == (0, "")
    assert out == "3 pairs: AER 10.0 %, precision 83.3 %, recall 100.0 %, f1 90.9 %\n"
    score = json.loads(otformer("align", "spaced", "--gold", "gold", "--json", "--out", "links")[1])
    assert score == pytest.approx({"pairs": 3, "aer": 0.1, "precision": 5 / 6, "recall": 1.0, "f1": 10 / 11})
    assert len(Path("links").read_text().splitlines()) == 3
    code, out, err = otformer("align", "spaced", "--gold", "gold1", "--out", "never")
    warning, error = err.splitlines()
    assert (code, out, Path("never").exists()) == (2, "", False)
    assert "no index 0 in the file gold1: if it counts from 1, use --one-based" in warning
    assert "gold of pair 1 must have source word < 3 and target word < 3, got (3, 3)" in error
    assert otformer("align", "spaced", "--gold", "gold1", "--one-based")[1].startswith("3 pairs: AER 0.0 %")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["en", "short"], "short is short: it has 2 lines, en has 3"),
        (["bars.txt", "--languages", "en-es"], "languages must be one of"),
        (["bars.txt", "--method", "magic"], "method must be one of"),
        (["bars.txt", "--by", "letters"], "by must be one of"),
        (["bars.txt", "--engine", "spark"], "engine must be one of"),
        (["bars.txt", "--workers", "0"], "workers must be"),
        (["cut.gz"], "cut.gz is not a readable gz file"),
        (["none.txt"], "'none.txt' does not exist"),
        (["The cat sleeps"], "write 'source ||| target'"),
        (["a ||| b ||| c"], "text must be two sentences with one ||| between them"),
        ([".", "--by", "words"], "is a folder, not a file"),
        (["en", "fr", "gold"], "one text, one file or two files, got 3"),
        (["en"], "en line 1 must have one ||| between two sentences"),
        (["bars.txt", "--gold", "short"], "short line 1 must hold links"),
        (["bars.txt", "--gold", "none"], "none cannot be read: No such file"),
        (["a ||| b", "--gold", "gold"], "gold must have a line for each of 1 sentence pairs, got 3"),
        (["bars.txt", "--matrix", "-"], "--matrix - must be used with one sentence pair, as text, got 3 pairs"),
        (["a ||| b", "--matrix", "-", "--json"], "--matrix - must be used with one sentence pair, as text, got --json"),
        (["a ||| b", "c ||| d"], "text must be one 'a ||| b' or two files"),
        (["/dev/null"], "/dev/null is empty: no sentence pairs"),
        (["bars.txt", "--matrix", "none/all.npz"], "does not exist"),
        (["bars.txt", "--out", "/dev/full"], "/dev/full cannot be written: No space left on device"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(folder, arguments, message):
    before = {file: file.read_bytes() for file in folder.iterdir()}
    for out in ([], ["--out", "links"]) if "--out" not in arguments else ([],):
        code, text, err = otformer("align", *arguments, *out)
        errors = [line for line in err.splitlines() if "words are split" not in line]
        assert (code, text, len(errors)) == (2, "", 1), err
        assert message in errors[0]
        assert errors[0].startswith("otformer: ")
        assert {file: file.read_bytes() for file in folder.iterdir()} == before
    assert otformer("align", "bars.txt", "--out", "none/links")[0] == 2


def command(*arguments, shell="", **options):
    call = [sys.executable, "-c", "from otformer.cli.main import main; main()", *map(str, arguments)]
    if shell:
        call = ["bash", "-c", shell, "bash", *call]
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.slow
def test_full_disk(folder):
    """Files of more than 1024 bytes cannot be written."""
    Path("long").write_text("The cat sleeps ||| Le chat dort\n" * 200)
    before = sorted(os.listdir())
    done = command("align", "long", "--out", "links", "--by", "spaces", shell="trap '' XFSZ; ulimit -f 1; exec \"$@\"")
    out, err = done.communicate(timeout=60)
    assert (done.returncode, out) == (2, "")
    assert "cannot be written: File too large" in err
    assert err.count("\n") == 1
    assert sorted(os.listdir()) == before


@pytest.mark.slow
def test_full_standard_output_and_a_reader_that_leaves(folder):
    Path("long").write_text("The cat sleeps ||| Le chat dort\n" * 200)
    done = command("align", "long", "--by", "spaces", shell='"$@" > /dev/full')
    assert done.communicate(timeout=60)[1] == "otformer: standard output cannot be written: No space left on device\n"
    assert done.returncode == 2
    done = command("align", "long", "--by", "spaces", shell='"$@" | head -1')
    assert done.communicate(timeout=60) == ("0-0 1-1 2-2\n", "")


@pytest.mark.slow
def test_ctrl_c_and_going_on(folder):
    Path("long").write_text("".join(f"The cat number {k} sleeps ||| Le chat numéro {k} dort\n" for k in range(20_000)))
    parts = Path("links.parts")
    done = command("align", "long", "--out", "links", "--by", "spaces")
    until = time.monotonic() + 60
    while len(list(parts.glob("[!.]*"))) <= 2 and time.monotonic() < until:
        time.sleep(0.02)
    done.send_signal(signal.SIGINT)
    _, err = done.communicate(timeout=30)
    assert done.returncode == 130
    assert "interrupted; " in err
    assert "the same command goes on from there" in err
    assert err.count("\n") == 1
    assert not Path("links").exists()
    kept = {file: file.stat().st_mtime_ns for file in parts.iterdir()}
    assert len(kept) > 2
    small = Path("long").read_text().splitlines(keepends=True)[: 256 * len(kept)]
    Path("long").write_text("".join(small))
    assert otformer("align", "long", "--out", "links", "--by", "spaces") == (0, "", "")
    assert Path("links").read_text() == otformer("align", "long", "--by", "spaces")[1]
    assert not parts.exists()


@pytest.mark.slow
def test_probe_of_a_folder(folder):
    model = tiny_models.marian(folder / "model")
    code, out, err = otformer("probe", model, "--out", "made", "--pairs", 8)
    assert code == 0, err
    with open("made/probe.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"attention", "nearest", "transport"}
    assert {row["sentences"] for row in rows} == {"8"}
    assert all(0 <= float(row["Hits@1"]) <= 1 and 0 <= float(row["AER"]) <= 1 for row in rows)
    assert sorted(os.listdir("made")) == ["probe.csv", "probe.png"]
    assert "8 sentences" in out
    Path("words.txt").write_text("cat chat\nman homme\nreads lit\n")
    code, out, _ = otformer("probe", model, "en", "fr", "--dictionary", "words.txt", "--out", "made", "--json")
    assert code == 0
    assert {row["pairs"] for row in json.loads(out)["rows"]} == {3}


@pytest.mark.slow
def test_probe_of_a_shipped_model_takes_its_languages(folder):
    """40 German pairs are those of the package; read with English–French examples there would be 60."""
    code, out, err = otformer("probe", "de-en", "--out", "made", "--json")
    assert code == 0, err
    assert {row["sentences"] for row in json.loads(out)["rows"]} == {40}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["./none"], "no such folder"),
        (["model", "en", "short"], "short is short"),
        (["model", "en", "fr", "--dictionary", "none"], "none cannot be read"),
        (["model", "en", "fr"], "OTFORMER_DATA"),
        (["de-en", "-l", "en-fr"], "languages must be de-en, those of the model de-en, got 'en-fr'"),
    ],
)
def test_probe_of_bad_input(folder, arguments, message, monkeypatch):
    monkeypatch.delenv("OTFORMER_DATA", raising=False)
    before = sorted(os.listdir())
    code, out, err = otformer("probe", *arguments, "--out", "made")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(os.listdir()) == before


def test_an_empty_side_in_a_file_is_an_empty_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.txt").write_text("the cat ||| \n ||| le chat\nthe cat ||| le chat\n", encoding="utf-8")
    assert otformer("align", "pairs.txt")[:2] == (0, "\n\n0-0 1-1\n")


@pytest.fixture
def mixed(tmp_path):
    """Two translations, and between them a pair that is none."""
    pairs = [TEXT[0], ("The price of oil rises again today", "Le vieil homme lit un livre dans le jardin"), TEXT[2]]
    file = tmp_path / "mixed.txt"
    file.write_text("".join(f"{e} ||| {f}\n" for e, f in pairs))
    return file, [f"{e} ||| {f}" for e, f in pairs]


def test_pairs_that_are_no_translations_are_left_out(mixed):
    file, lines = mixed
    code, out, err = otformer("align", file, "--keep", "0.6", "--format", "pairs")
    assert (code, out.splitlines()) == (0, lines[::2])
    assert "2 of 3 pairs have a coverage of 0.6 or more" in err
    numbers = {line.split()[0] for line in otformer("align", file, "--keep", "0.6", "--format", "naacl")[1].splitlines()}
    assert numbers == {"1", "3"}
    covered = [json.loads(line)["coverage"] for line in otformer("align", file, "--json")[1].splitlines()]
    assert covered[1] < 0.6 < min(covered[::2])
    made = file.with_name("clean.txt")
    assert otformer("align", file, "--keep", "0.6", "--format", "pairs", "--out", made)[0] == 0
    assert made.read_text().splitlines() == lines[::2]


def test_formats(mixed):
    file, _ = mixed
    assert otformer("align", file, "--format", "json")[1] == otformer("align", file, "--json")[1]
    assert otformer("align", file, "--format", "tokens")[1] == otformer("align", file, "--tokens")[1]
    rows = otformer("align", file, "--format", "naacl", "--scores")[1].splitlines()
    pharaoh = [line.split() for line in otformer("align", file, "--scores")[1].splitlines()]
    expected = []
    for number, links in enumerate(pharaoh, 1):
        for link in links:
            places, p = link.split(":")
            i, j = map(int, places.split("-"))
            expected.append(f"{number} {i + 1} {j + 1} {'S' if float(p) > 0.5 else 'P'} {p}")
    assert rows == expected
    sure = otformer("align", file, "--threshold", "0.97", "--scores")[1].split()
    assert sure
    assert all(float(link.split(":")[1]) >= 0.97 for link in sure)
    assert len(otformer("align", file, "--symmetrize", "union")[1].split()) > len(sure)


def test_translation_memories(tmp_path):
    units = "".join(
        f"<tu><tuv xml:lang='fr'><seg>{f}</seg></tuv><tuv xml:lang='en-GB'><seg>{e}</seg></tuv></tu>" for e, f in TEXT
    )
    file = tmp_path / "memory.tmx.gz"
    file.write_bytes(gzip.compress(f"<tmx><body>{units}</body></tmx>".encode()))
    assert otformer("align", file)[1].splitlines() == LINES
    code, _, err = otformer("align", file, "-l", "de-en")
    assert (code, err.strip().count("\n")) == (2, 0)
    assert "memory.tmx.gz must have a unit in de and en, got units in fr, en-gb" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "xml"], "--format must be one of pharaoh, tokens, json, naacl, pairs, got 'xml'"),
        (["--format", "naacl", "--json"], "--format cannot be combined with --json, got --format naacl"),
        (["--tokens", "--json"], "--tokens cannot be combined with --json"),
        (["--keep", "0.5"], "--keep must be used with --format tokens, json, naacl or pairs, got pharaoh"),
        (["--keep", "2", "--json"], "--keep must be a coverage, from 0 to 1, got 2.0"),
        (["--keep", "0.5", "--json", "--matrix", "x.npz"], "--keep, got --matrix"),
        (["--threshold", "nan"], "threshold must be zero or a positive, finite number, got nan"),
        (["--symmetrize", "both"], "symmetrize must be one of source"),
    ],
)
def test_bad_forms_are_one_line(mixed, options, message):
    code, out, err = otformer("align", mixed[0], *options)
    assert (code, out, err.strip().count("\n")) == (2, "", 0)
    assert message in err
    assert list(mixed[0].parent.iterdir()) == [mixed[0]]
