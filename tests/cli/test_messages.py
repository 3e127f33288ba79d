"""What a new user reads: one line that names the argument, what came, what was expected, and what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import otformer as of
from helpers.messages import assert_says, refuses
from helpers.shell import ENVIRONMENT
from otformer.cli.main import main
from otformer.errors import ArgumentError, ConflictError
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


BAR = "two sentences with one |||"
LONG = "o" * 245 + ".npz"
LONGER = "o" * 300 + ".npz"
SAID = [  # the command; the argument, what was expected, what came
    (["solve", "x.csv", "wide.csv"], "x.csv and wide.csv", "have the same dimension", "2) and "),
    (["solve", "both.npz"], "x of both.npz and y of both.npz", "have the same dimension", "2) and "),
    (["solve", "x.csv", "x.csv", "--exact", "--reg", "1"], "--reg", "combined with --exact", "--reg 1.0"),
    (["solve", "x.csv", "x.csv", "--exact", "--out", "x.csv"], "x.csv", "name another file", "is read"),
    (["align", "x.csv", "--out", "x.csv"], "x.csv", "name another file", "is read"),
    (["solve", "x.csv", "x.csv", "--html", "p.png"], "--html", "end in .html or .htm", "'p.png'"),
    (["solve", "x.csv", "x.csv", "--out", "p.png"], "--out", "end in .npz", "'p.png'"),
    (["solve", "x.csv", "x.csv", "--metric", "hamming"], "--metric", "one of sqeuclidean, ", "'hamming'"),
    (["probe", "enfr"], "model", "a folder, a hub name or one of en-fr, de-en, bert-en-fr", "'enfr': did you mean en-fr?"),
    (["probe", "en-fr", PAIR, "--html", "p.png"], "--html", "end in .html or .htm", "'p.png'"),
    (["probe", "en-fr", "--html", "p.html", "--out", "o"], "--out", "combined with --html", "--out o"),
    (["probe", "en-fr", "--html", "p.html", "--dictionary", "d"], "--dictionary", "combined with --html", "--dictionary d"),
    (["probe", "en-fr", PAIR, "--show", "--gold", "g"], "--gold", "combined with --show", "--gold g"),
    (["probe", "en-fr", PAIR, "--show", "--json"], "--json", "combined with --show", "--json"),
    (["probe", "en-fr", PAIR, "--out", "o"], "--out", "combined with one sentence pair", "--out o"),
    (["probe", "en-fr", "--by", "letters"], "--by", "one of words, spaces", "'letters'"),
    (["probe", "en-fr", "--engine", "spark"], "--engine", "one of local, ray", "'spark'"),
    (["probe", "en-fr", "--workers", "0"], "--workers", "a whole number of at least 1", "0"),
    (["probe", "en-fr", "--device", "tpu"], "--device", "cpu or cuda", "'tpu'"),
    (["probe", "en-fr", "--one-based"], "--one-based", "used with --gold", "alone"),
    (["align", PAIR, "--one-based"], "--one-based", "used with --gold", "alone"),
    (["align", PAIR, "--show", "--json"], "--json", "combined with --show", "--json"),
    (["align", PAIR, "--matrix", "m.csv"], "--matrix", "end in .npz", "'m.csv'"),
    (["probe", "en-fr", "--seed", "-1"], "--seed", "a whole number of at least 0", "-1"),
    (["solve", "x.csv", "x.csv", "--unbalanced", "1", "--schedule", "paper"], "--unbalanced", "combined with --schedule"),
    (["align", "no\x1b[2Jfile"], "'no\\x1b[2Jfile'", "exist", "does not"),
    (["align", "The cat ||| "], "text", BAR, "'The cat ||| '"),
    (["align", "||| le chat"], "text", BAR, "'||| le chat'"),
    (["align", "a ||| b ||| c"], "text", BAR, "'a ||| b ||| c'"),
    (["align", ""], "text", "a sentence pair 'a ||| b' or the name of a file", "an empty text"),
    (["probe", "en-fr", "The cat ||| "], "text", BAR, "'The cat ||| '"),
    (["probe", "en-fr", "--show"], "--show", "one sentence pair, 'a ||| b'", "the examples"),
    (["solve", "true.npy", "x.csv"], "true.npy", "float16, bfloat16, float32 or float64", "dtype bool"),
    (["solve", "x.csv", "far.npy"], "x.csv and far.npy", "finite squared distances", "points up to 1e+300"),
    (["solve", "x.csv", "none.npy"], "points", "on both sides, or on neither", "2 in x.csv and 0 in none.npy"),
    (["solve", "x.csv", "x.csv", "--a", "below.csv"], "--a below.csv", "not be negative", "-1"),
    (["solve", "x.csv", "x.csv", "--exact", "--b", "wide.csv"], "--b wide.csv", "shape (2,)", "(2, 3)"),
    (["solve", "below.npz"], "a of below.npz", "not be negative", "-1"),
    (["solve", "x.csv", "x.csv", "--reg", "abc"], "--reg", "a number", "'abc'"),
    (["solve", "x.csv", "x.csv", "--lambda=abc"], "--reg", "a number", "'abc'"),
    (["solve", "x.csv", "x.csv", "--max-depth", "1.5"], "--max-depth", "a whole number", "'1.5'"),
    (["solve", "x.csv", "x.csv", "--max-depth", "0"], "--max-depth", "a whole number of at least 2", "0"),
    (["solve", "x.csv", "x.csv", "--unbalanced", "-1"], "--unbalanced", "a positive, finite number", "-1.0"),
    (
        ["solve", "x.csv", "x.csv", "--reg", "integer"],
        "--reg",
        "a number",
        "'integer'",
    ),
    (["solve", "cost", "--cost"], "cost", "end in .npz, .npy, .csv, .tsv or .txt"),
    (["solve", "x.csv", "x.csv", "--a", "./b"], "b", "end in .npz, .npy, .csv, .tsv or .txt"),
    (["solve", "no\nsuch.csv", "x.csv"], "no\\nsuch.csv", "exist", "does not"),
    (["solve", "x.csv", "x.csv", "--out", LONG], LONG, "be written", "File name too long"),
    (["solve", "x.csv", "x.csv", "--out", LONGER], LONGER, "be written", "File name too long"),
    (["solve", LONGER[:-4] + ".csv", "x.csv", "--exact", "--out", "o.npz"], "ooo", "be read", "File name too long"),
    (["solve", "x.csv", "x.csv", "--out", "circle.npz"], "circle.npz", "be written", "Too many levels of symbolic links"),
    (["solve", "x.csv", "x.csv", "--html", "circle.html"], "circle.html", "be written", "Too many levels"),
    (["align", PAIR, "--out", "circle.npz/x"], "circle.npz/x", "be written", "the folder "),
    (["explore", "--save", "circle.html", "--no-open"], "circle.html", "be written", "Too many levels"),
    (["solve"], "Missing argument 'file'", "see otformer solve --help"),
    (["sort", "1", "--foo"], "No such option: --foo", "see otformer sort --help"),
    (["sort", "-1", "2"], "No such option: -1", "negative numbers go behind --"),
    (["sort", "x.csv"], "values", "numbers", "'x.csv': otformer sort < x.csv reads a file"),
    (["explore", "--save", "p.png", "--no-open"], "--save", "end in .html or .htm", "'p.png'"),
    (["bench", "small", "--n", "5", "--n", "x"], "--n", "a whole number", "'x'"),
    (["bench", "small", "--seed", "-1"], "--seed", "a whole number of at least 0", "-1"),
    (["bench", "small", "--family", "no"], "--family", "one of uniform-2d", "'no'"),
    (["train"], "--recipe", "one of paper-sorted", "none"),
    (["reproduce", "--check", "--seed", "1"], "--check", "combined with --seed 1", "seed 0"),
]


@pytest.mark.parametrize(("arguments", "parts"), [(arguments, parts) for arguments, *parts in SAID])
def test_the_line_says_what_to_do_before_a_model_is_loaded(arguments, parts, tmp_path, monkeypatch, capsys):
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
    assert_says(err, *parts)
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
CALLS = [
    (lambda: of.solve_unbalanced(SQUARE, reg=None), "reg", "a positive number", "None"),
    (lambda: of.solve(SQUARE, reg=0, max_depth=3), "max_depth", "reg=0", "3"),
    (lambda: of.solve_sample(SQUARE, SQUARE, reg=0, max_depth=4), "max_depth", "reg=0", "4"),
    (lambda: of.solve_sample(SQUARE, SQUARE, executor="stream", mask=SQUARE), "executor='stream'", "mask"),
    (lambda: of.solve(SQUARE).save(3), "path", "the name of a file", "3"),
    (lambda: AligningTransformer(1, 0.1, 2).save(None), "path", "the name of a file", "None"),
    (lambda: write_page(""), "path", "the name of a file", "''"),
    (lambda: AligningTransformer.from_file(1.5), "path", "the name of a file", "1.5"),
    (lambda: of.solve([[1, 2], [3]]), "M", "an array of numbers", "rows of different length, 2 and 1"),
    (lambda: of.solve([["a", 2], [3, 4]]), "M", "an array of numbers", "'a' in a list"),
    (lambda: of.solve(np.eye(2) > 0), "M", "float64, or whole numbers", "dtype bool"),
    (lambda: of.solve(SQUARE, schedule=of.Relaxed), "schedule", "have a method layers", "the class Relaxed"),
    (lambda: of.solve_batch(np.eye(3)), "problems", "be a list of problems", "one array of shape (3, 3)"),
    (lambda: of.align(["The cat"], ["Le chat"]), "languages", "be one of en-fr", "['Le chat']"),
    (lambda: of.align("The cat", "Le chat"), "languages", "be one of en-fr", "'Le chat'"),
]
ADVICE = [
    (lambda: of.solve([0.5, 0.5], [0.5, 0.5], SQUARE), r"M must have shape \(n, m\), got \(2,\): the order is M, a, b"),
    (lambda: of.solve([0.5, 0.5]), r"M must have shape \(n, m\), got \(2,\)$"),
    (lambda: of.solve_sample([1.0, 2.0], [[1.0]]), r"got \(2,\): X_a\[:, None\] has a point in every row"),
    (lambda: of.solve_sample(SQUARE, SQUARE, executor="streem"), "got 'streem': did you mean stream"),
    (lambda: of.align("a", "b"), r"second argument; pairs are the first alone: \[\(source, target\), …\]"),
    (lambda: of.nn.Transport()(), "or a cost alone, got neither"),
]


@pytest.mark.parametrize(("call", "parts"), [(call, parts) for call, *parts in CALLS])
def test_functions_say_so_too(call, parts):
    with refuses(*parts):
        call()


@pytest.mark.parametrize(("call", "line"), ADVICE)
def test_they_say_what_to_do(call, line):
    with pytest.raises(ValueError, match=line):
        call()


@pytest.mark.parametrize(("keyword", "ours"), [("numItermax", "max_depth"), ("stopThr", "tol"), ("method", "solver")])
def test_keywords_of_pot_are_answered_with_ours(keyword, ours):
    for call in (lambda **given: of.solve(SQUARE, **given), lambda **given: of.solve_sample(SQUARE, SQUARE, **given)):
        with pytest.raises(TypeError, match=rf"^solve.*\(\) has no keyword '{keyword}': it is {ours}"):
            call(**{keyword: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'unknown'"):
        of.solve(SQUARE, unknown=1)


@pytest.mark.parametrize("name", ["permutation", "gap", "dense"])
def test_what_exact_results_have_is_told_of_others(name):
    with pytest.raises(AttributeError, match=rf"^{name} is an attribute of exact results: solve\(…, reg=0\)$"):
        getattr(of.solve(SQUARE), name)
    assert getattr(of.solve(SQUARE, reg=0), name) is not None
    with pytest.raises(AttributeError, match="'Result' object has no attribute 'nothing'"):
        _ = of.solve(SQUARE).nothing


def test_an_exact_plan_is_not_rounded():
    with pytest.raises(ValueError, match=r"^rounded is for results with reg > 0"):
        of.solve(SQUARE, reg=0).rounded()


def test_a_file_keeps_its_name_where_an_argument_has_the_same():
    names = {"tol": "--tol"}
    assert str(ArgumentError("tol", "be positive", -1).renamed(names)) == "--tol must be positive, got -1"
    assert str(ArgumentError(Path("tol"), "be positive", -1).renamed(names)) == "tol must be positive, got -1"
    assert (
        str(ConflictError("tol", "reg", advice="give one").renamed(names)) == "--tol cannot be combined with reg: give one"
    )


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
    from otformer.lab.commands import _tell_found
    from otformer.lab.experiments.runner import Record

    record = Record(tmp_path, {"name": "sizes", "checks": {"it grows": True, "it stops": False}})
    _tell_found([record], tmp_path / "index.html", None, as_json=False)
    yes, no, legend, _ = capsys.readouterr().out.splitlines()
    assert (yes, no) == ("yes sizes: it grows", "no  sizes: it stops")
    assert legend.startswith("1 of 2 statements hold of these numbers; 'no' means")
    assert legend.endswith("it is not a test failure")


def test_the_list_of_commands_cuts_no_sentence():
    call = [sys.executable, "-m", "otformer.cli", "--help"]
    shown = subprocess.run(call, env=ENVIRONMENT | {"COLUMNS": "100"}, capture_output=True, text=True, check=True).stdout
    assert "..." not in shown[shown.index("Commands:") :]
