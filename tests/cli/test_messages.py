"""What a new user reads: one line that names the argument, what came, what was expected, and what to do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import otformer as of
from helpers.shell import ENVIRONMENT
from otformer.cli.main import main
from otformer.explorer.page import write_page
from otformer.network.transformer import AligningTransformer

PAIR = "the cat ||| le chat"


def otformer(*arguments: object) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["otformer", *map(str, arguments)])
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0


ONE_BASED = "--one-based must be used with --gold, whose words it counts, got --one-based alone"
SAID = [
    (["solve", "x.csv", "wide.csv"], "points must have as many coordinates in both, got 2 in x.csv and 3 in wide.csv"),
    (["solve", "both.npz"], "points must have as many coordinates in both, got 2 in x of both.npz and 3 in y of both.npz"),
    (["solve", "x.csv", "x.csv", "--exact", "--reg", "1"], "--reg cannot be used with --exact, got --reg 1.0"),
    (
        ["solve", "x.csv", "x.csv", "--exact", "--out", "x.csv"],
        "x.csv is read, and would be replaced: name another file for the output",
    ),
    (["align", "x.csv", "--out", "x.csv"], "x.csv is read, and would be replaced: name another file for the output"),
    (["solve", "x.csv", "x.csv", "--html", "p.png"], "--html must be a file that ends in .html or .htm, got p.png"),
    (
        ["probe", "enfr"],
        "model must be a folder, a hub name or one of en-fr, de-en, bert-en-fr, got 'enfr': did you mean en-fr?",
    ),
    (["probe", "en-fr", PAIR, "--html", "p.png"], "--html must end in .html or .htm, since it becomes a page, got 'p.png'"),
    (["probe", "en-fr", "--html", "p.html", "--out", "o"], "--out cannot be used with --html, got --out o"),
    (
        ["probe", "en-fr", "--html", "p.html", "--dictionary", "d"],
        "--dictionary cannot be used with --html, got --dictionary d",
    ),
    (["probe", "en-fr", PAIR, "--show", "--gold", "g"], "--gold cannot be used with --show, got --gold g"),
    (["probe", "en-fr", PAIR, "--out", "o"], "--out cannot be used with one sentence pair, which is printed, got --out o"),
    (["probe", "en-fr", "--by", "letters"], "--by must be one of words, spaces, got 'letters'"),
    (["probe", "en-fr", "--engine", "spark"], "--engine must be one of local, ray, got 'spark'"),
    (["probe", "en-fr", "--workers", "0"], "--workers must be a whole number of at least 1, got 0"),
    (["probe", "en-fr", "--device", "tpu"], "--device must be cpu or cuda, got 'tpu'"),
    (["probe", "en-fr", "--one-based"], ONE_BASED),
    (["align", PAIR, "--one-based"], ONE_BASED),
    (["align", PAIR, "--show", "--json"], "--show draws links in the terminal and cannot be used with --json"),
    (["align", "no\x1b[2Jfile"], "'no\\x1b[2Jfile' does not exist"),
    (["align", "The cat ||| "], "text must be two sentences with one ||| between them, got 'The cat ||| '"),
    (["align", "||| le chat"], "text must be two sentences with one ||| between them, got '||| le chat'"),
    (["align", "a ||| b ||| c"], "text must be two sentences with one ||| between them, got 'a ||| b ||| c'"),
    (["align", ""], "text must be a sentence pair 'a ||| b' or the name of a file, got an empty text"),
    (["probe", "en-fr", "The cat ||| "], "text must be two sentences with one ||| between them, got 'The cat ||| '"),
    (["probe", "en-fr", "--show"], "--show draws one sentence pair given as 'a ||| b', got the examples"),
    (["solve", "true.npy", "x.csv"], "true.npy must be float16, bfloat16, float32 or float64, got dtype bool"),
    (["solve", "x.csv", "far.npy"], "x.csv and far.npy must have finite squared distances, got points up to 1e+300"),
    (["solve", "x.csv", "none.npy"], "points must be on both sides, or on neither, got 2 in x.csv and 0 in none.npy"),
    (["solve", "x.csv", "x.csv", "--a", "below.csv"], "--a below.csv must not be negative, got -1"),
    (["solve", "x.csv", "x.csv", "--exact", "--b", "wide.csv"], "--b wide.csv must have shape (2,), got (2, 3)"),
    (["solve", "below.npz"], "a of below.npz must not be negative, got -1"),
    (["solve", "x.csv", "x.csv", "--reg", "abc"], "--reg must be a number, got 'abc'"),
    (["solve", "x.csv", "x.csv", "--lambda=abc"], "--lambda must be a number, got 'abc'"),
    (["solve", "x.csv", "x.csv", "--max-depth", "1.5"], "--max-depth must be a whole number, got '1.5'"),
    (["solve", "x.csv", "x.csv", "--max-depth", "0"], "--max-depth must be a whole number of at least 2, got 0"),
    (["solve", "x.csv", "x.csv", "--unbalanced", "-1"], "--unbalanced must be a positive, finite number, got -1.0"),
    (["solve", "x.csv", "x.csv", "--reg", "integer"], "--reg must be a number, got 'integer'"),
    (["solve", "cost", "--cost"], "cost must end in .npz, .npy, .csv, .tsv or .txt"),
    (["solve", "x.csv", "x.csv", "--a", "./b"], "b must end in .npz, .npy, .csv, .tsv or .txt"),
    (["solve", "no\nsuch.csv", "x.csv"], "no\\nsuch.csv does not exist"),
    (["solve", "x.csv", "x.csv", "--out", "o" * 245 + ".npz"], "o" * 245 + ".npz cannot be written: File name too long"),
    (["solve", "x.csv", "x.csv", "--out", "o" * 300 + ".npz"], "o" * 300 + ".npz cannot be written: File name too long"),
    (
        ["solve", "x" * 300 + ".csv", "x.csv", "--exact", "--out", "o.npz"],
        "x" * 300 + ".csv cannot be read: File name too long",
    ),
    (["solve", "x.csv", "x.csv", "--out", "circle.npz"], "circle.npz cannot be written: Too many levels of symbolic links"),
    (["solve", "x.csv", "x.csv", "--html", "circle.html"], "circle.html cannot be written: Too many levels"),
    (["align", PAIR, "--out", "circle.npz/x"], "circle.npz/x cannot be written: the folder "),
    (["explore", "--save", "circle.html", "--no-open"], "circle.html cannot be written: Too many levels"),
    (["solve"], "Missing argument 'file': see otformer solve --help"),
    (["sort", "1", "--foo"], "No such option: --foo\n"),
    (["sort", "-1", "2"], "No such option: -1 (negative numbers go behind --)"),
    (["sort", "x.csv"], "values must be numbers, got 'x.csv': otformer sort < x.csv reads a file"),
    (["explore", "--save", "p.png", "--no-open"], "--save must end in .html or .htm, got 'p.png'"),
    (["bench", "small", "--n", "5", "--n", "x"], "--n must be a whole number, got 'x'"),
    (["bench", "small", "--seed", "-1"], "--seed must be a whole number of at least 0, got -1"),
    (["bench", "small", "--family", "no"], "--family must be one of uniform-2d"),
    (["train"], "--recipe is missing: give --recipe with one of paper-sorted"),
]


@pytest.mark.parametrize(("arguments", "message"), SAID)
def test_the_line_says_what_to_do_before_a_model_is_loaded(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("otformer.words.models.models.library", lambda: pytest.fail("a model was loaded"))
    np.savetxt("x.csv", np.zeros((2, 2)), delimiter=",")
    np.savetxt("wide.csv", np.zeros((2, 3)), delimiter=",")
    np.save("true.npy", np.ones((2, 2), bool))
    np.save("far.npy", np.full((2, 2), 1e300))
    np.save("none.npy", np.ones((0, 2)))
    np.savetxt("below.csv", [-1, 2])
    np.savez("below.npz", cost=np.eye(2), a=[-1, 2])
    np.savez("both.npz", x=np.zeros((2, 2)), y=np.zeros((2, 3)))
    for circle in ("circle.npz", "circle.html"):
        (tmp_path / circle).symlink_to(circle)
    before = sorted(tmp_path.iterdir())
    assert otformer(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"otformer: {message}")
    assert len(err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_cannot_be_read_is_not_taken_for_a_number(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.csv").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    assert otformer("solve", "--a", "a.csv", "x.csv", "x.csv") == 2
    assert "--a" in (said := capsys.readouterr().err)
    assert "'a.csv' is not readable" in said


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--max-depth", "2"], 3), (["--max-depth", "2", "--json"], 3)])
def test_solve_ends_with_3_where_it_has_not_converged_and_writes_all_the_same(options, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savetxt("x.csv", np.random.default_rng(0).random((9, 2)), delimiter=",")
    np.savetxt("y.csv", np.random.default_rng(1).random((9, 2)), delimiter=",")
    assert otformer("solve", "x.csv", "y.csv", "--reg", 0.01, "--out", "plan.npz", *options) == code
    out, err = capsys.readouterr()
    assert "converged" in out
    assert ("not converged" in err) == (code == 3 and "--json" not in options)
    assert (tmp_path / "plan.npz").stat().st_size > 0


SQUARE = [[0.0, 1.0], [1.0, 0.0]]
CALLS = {
    "rounded is for results with reg > 0": lambda: of.solve(SQUARE, reg=0).rounded(),
    "max_depth goes with reg > 0 only, got max_depth = 3": lambda: of.solve(SQUARE, reg=0, max_depth=3),
    "max_depth goes with reg > 0 only, got max_depth = 4": lambda: of.solve_sample(SQUARE, SQUARE, reg=0, max_depth=4),
    "path must be the name of a file, got 3": lambda: of.solve(SQUARE).save(3),
    "path must be the name of a file, got None": lambda: AligningTransformer(1, 0.1, 2).save(None),
    "path must be the name of a file, got ''": lambda: write_page(""),
    "path must be the name of a file, got 1.5": lambda: AligningTransformer.from_file(1.5),
}


@pytest.mark.parametrize("message", CALLS)
def test_functions_say_so_too(message):
    with pytest.raises(ValueError, match=f"^{message}"):
        CALLS[message]()


def test_every_option_of_every_command_has_a_sentence():
    """In the help of a new process, as a user sees it."""
    from otformer.cli.main import app

    for command in app.registered_commands:
        name = str(command.callback.__name__)
        call = [sys.executable, "-m", "otformer.cli", name, "--help"]
        shown = subprocess.run(call, env=ENVIRONMENT | {"COLUMNS": "100"}, capture_output=True, text=True, check=True).stdout
        lines = shown[shown.index("Options:") : shown.index("Examples:")].splitlines()[1:]
        entries = " ".join(line.strip() if not line.startswith("  -") else "\n" + line.strip() for line in lines).split("\n")
        for entry in filter(None, map(str.strip, entries)):
            option, _, says = entry.partition("  ")
            assert len(says.strip()) > 8, f"{name} {option}: no help"


def test_what_numbers_do_not_bear_out_is_a_no_in_words_and_no_failed_test(capsys, tmp_path):
    from otformer.cli.runs import _tell_found
    from otformer.experiments.runner import Record

    record = Record(tmp_path, {"name": "sizes", "checks": {"it grows": True, "it stops": False}})
    _tell_found([record], tmp_path / "index.html", None, as_json=False)
    yes, no, legend, _ = capsys.readouterr().out.splitlines()
    assert (yes, no) == ("yes sizes: it grows", "no  sizes: it stops")
    assert legend.startswith("1 of 2 statements hold of these numbers; no: a claim")
    assert legend.endswith("not a failed test")


def test_the_list_of_commands_cuts_no_sentence():
    call = [sys.executable, "-m", "otformer.cli", "--help"]
    shown = subprocess.run(call, env=ENVIRONMENT | {"COLUMNS": "100"}, capture_output=True, text=True, check=True).stdout
    assert "..." not in shown[shown.index("Commands:") :]
