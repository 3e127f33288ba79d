"""The command line: answers, JSON, exit codes, and nothing on disk after bad input."""

import contextlib
import io
import json
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from otformer.cli.main import main


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def otformer(*arguments, stdin=""):
    """The command in this process, as the console script calls it."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["otformer", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    return Done(code or 0, out.getvalue(), err.getvalue())


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.random((5, 2)), rng.random((6, 2))
    cost = ((x[:, None] - y) ** 2).sum(-1)
    np.savez(tmp_path / "points.npz", x=x, y=y)
    np.savez(tmp_path / "cost.npz", cost=cost, a=np.full(5, 0.2), b=np.full(6, 1 / 6))
    np.savez(tmp_path / "other.npz", z=x)
    np.save(tmp_path / "cost.npy", cost)
    np.savetxt(tmp_path / "cost.csv", cost, delimiter=",", header="a,b,c,d,e,f", comments="")
    np.savetxt(tmp_path / "x.csv", x, delimiter=",")
    np.savetxt(tmp_path / "y.csv", y, delimiter=",")
    (tmp_path / "words.csv").write_text("a,b\nc,d\n")
    (tmp_path / "uneven.csv").write_text("1,2\n3\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    (tmp_path / "typo.csv").write_text("0.1,O.2\n0.3,0.4\n")
    (tmp_path / "archive.npy").write_bytes((tmp_path / "cost.npz").read_bytes())
    (tmp_path / "array.npz").write_bytes((tmp_path / "cost.npy").read_bytes())
    (tmp_path / "nan.csv").write_text("1,nan\n2,3\n")
    return tmp_path


def test_every_file_format_gives_the_same_answer(files):
    calls = (["points.npz"], ["cost.npz"], ["cost.npy"], ["cost.csv"], ["x.csv", "y.csv"])
    answers = [
        json.loads(otformer("solve", *(files / name for name in call), "--reg", 0.1, "--json").stdout) for call in calls
    ]
    assert all(answer["converged"] for answer in answers)
    values = [answer["value"] for answer in answers]
    np.testing.assert_allclose(values, values[0], atol=1e-6)


def test_solve_writes_the_plan(files):
    done = otformer("solve", files / "cost.csv", "--out", files / "plan.npz")
    assert done.returncode == 0
    assert "converged      True" in done.stdout
    plan = np.load(files / "plan.npz")["plan"]
    np.testing.assert_allclose(plan.sum(1), 0.2, atol=1e-6)


def test_solve_says_when_it_has_not_converged(files):
    done = otformer("solve", files / "cost.csv", "--reg", 1e-4, "--max-depth", 4, "--json")
    assert json.loads(done.stdout)["converged"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "missing.npz"], "missing.npz does not exist"),
        (["solve", "."], "must end in"),
        (["solve", "empty.csv"], "empty.csv is empty"),
        (["solve", "words.csv"], "words.csv must hold rows of 2 numbers, got 'c,d'"),
        (["solve", "uneven.csv"], "uneven.csv must hold rows of 2 numbers, got '3'"),
        (["solve", "typo.csv"], "typo.csv must hold rows of 2 numbers, got '0.1,O.2'"),
        (["solve", "archive.npy"], "archive.npy holds an archive, not one array: name it .npz"),
        (["solve", "array.npz"], "array.npz holds one array, not an archive: name it .npy"),
        (["solve", "cost.csv", "--out", "plan.txt"], "plan.txt must end in .npz"),
        (["sort", "9007199254740993", "9007199254740992"], "got the whole number 9007199254740993"),
        (["sort", "3", "-1"], "negative numbers go behind --"),
        (["solve", "broken.npz"], "broken.npz is not a readable .npz file"),
        (["solve", "other.npz"], "other.npz must hold x and y, or cost (and a, b if you like), got z"),
        (["solve", "nan.csv"], "M must be finite, got nan at index (0, 1)"),
        (["solve", "cost.csv", "--reg", "0"], "reg must be a positive, finite number, got 0.0"),
        (["solve", "cost.csv", "--reg", "x"], "Invalid value for '--reg'"),
        (["solve", "cost.csv", "--schedule", "x"], "schedule must be one of"),
        (["solve", "cost.csv", "--out", "no/where.npz"], "no/where.npz cannot be written: no is not a folder for files"),
        (["sort", "1", "two"], "values must be numbers, got 'two'"),
        (["sort", "1", "nan"], "values must be finite, got nan at index 1"),
        (["sort"], "values are missing"),
        (["reproduce", "everything"], "everything"),
        (["fly"], "No such command 'fly'"),
    ],
)
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(files, monkeypatch, arguments, message):
    monkeypatch.chdir(files)
    before = sorted(files.rglob("*"))
    done = otformer(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
    assert sorted(files.rglob("*")) == before


def test_sort_from_arguments_and_from_standard_input():
    assert otformer("sort", "3", "1.50", "2").stdout.split() == ["1.50", "2", "3"]
    assert otformer("sort", "--", "3", "-1").stdout.split() == ["-1", "3"]
    assert otformer("sort", stdin="3, 1\n2").stdout.split() == ["1", "2", "3"]
    assert json.loads(otformer("sort", "--json", "3", "1").stdout) == {"sorted": [1.0, 3.0], "order": [1, 0]}


def test_help_and_list():
    assert otformer("--version").stdout.startswith("otformer 0.")
    assert otformer().stdout == otformer("--help").stdout
    for command in ([], ["solve"], ["sort"], ["reproduce"]):
        assert otformer(*command, "--help").returncode == 0
    listed = otformer("reproduce", "--list").stdout
    assert "theorem-gd" in listed
    assert "sorting" in listed


def test_the_console_script():
    script = [sys.executable, "-c", "from otformer.cli.main import main; main()", "sort", "2", "x"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "otformer: values must be numbers, got 'x'\n")


def test_train_writes_a_model_that_loads_and_refuses_what_it_cannot_do(tmp_path):
    from otformer.learning.trained import load_trained

    out = tmp_path / "run"
    done = otformer("train", "--recipe", "nearest", "--steps", 100, "--ensemble", 2, "--out", out, "--json")
    assert done.returncode == 0
    rows = json.loads(done.stdout)["rows"]
    assert len(rows["values"]["7"]) == 2
    assert max(rows["permutations"]["7"]) > 1.5 / 7  # a hundred steps are enough to be better than chance
    left = {path.name for path in out.iterdir()}
    assert left == {"checkpoint.safetensors", "log.csv", "log.png", "model.safetensors"}
    assert load_trained(out / "model.safetensors", member=1)([0.5, 1.0], [0.5, 1.0]).shape == (2, 2)
    again = otformer("train", "--recipe", "nearest", "--steps", 100, "--ensemble", 2, "--out", out)
    assert (again.returncode, "out already holds a run" in again.stderr) == (2, True)
    other = otformer("train", "--recipe", "nearest", "--steps", 100, "--ensemble", 3, "--out", out, "--resume")
    assert (other.returncode, "is of another run: its ensemble is 2, this run's 3" in other.stderr) == (2, True)
    for arguments, message in (
        (("--recipe", "magic"), "recipe must be one of paper-sorted, "),
        ((), "recipe is missing"),
        (("--recipe", "nearest", "--device", "cuda"), "device is cuda, but torch finds 0 CUDA devices here"),
        (("--recipe", "nearest", "--ensemble", 0), "ensemble must be a whole number of at least 1, got 0"),
    ):
        bad = otformer("train", *arguments, "--out", tmp_path / "bad")
        assert bad.returncode == 2
        assert message in bad.stderr
        assert not (tmp_path / "bad").exists()
