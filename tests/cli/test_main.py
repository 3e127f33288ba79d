"""The command line: answers, JSON, exit codes, and nothing on disk after bad input."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist

from helpers.command import otformer
from helpers.messages import assert_says
from otformer.cli import common
from otformer.lab.training.recipes import RECIPES
from otformer.network.schedule import SCHEDULES


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
    (tmp_path / "a.csv").write_text("0.2\n" * 5)
    (tmp_path / "comma.csv").write_text("0,1;0,2\n0,3;0,4\n")
    (tmp_path / "digits.csv").write_text("0.1x,0.2x\n0.3,0.4\n")
    np.savez(tmp_path / "nan.npz", x=x, y=[[0.0, np.inf]])
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    return tmp_path


def test_every_file_format_gives_the_same_answer(files, monkeypatch):
    monkeypatch.chdir(files)
    Path("semicolons.csv").write_text((files / "x.csv").read_text().replace(",", ";"))
    cost = ["--cost", "--reg", 0.1]
    calls = (["points.npz"], ["cost.npz"], ["cost.npy", *cost], ["cost.csv", *cost], ["x.csv", "y.csv"])
    calls += (["semicolons.csv", "y.csv"], ["x.csv", "y.csv", "--a", "a.csv", "--lambda", 0.1])
    answers = [json.loads(otformer("solve", *call, "--json").stdout) for call in calls]
    assert all(answer["converged"] for answer in answers)
    values = [answer["value"] for answer in answers]
    np.testing.assert_allclose(values, values[0], atol=1e-6)


def test_solve_writes_the_plan(files):
    done = otformer("solve", files / "cost.csv", "--cost", "--out", files / "plan.npz")
    assert done.returncode == 0
    assert done.stderr == f"otformer: {files / 'cost.csv'}: the first line, 'a,b,c,d,e,f', is read as column names\n"
    assert "converged      True" in done.stdout
    plan = np.load(files / "plan.npz")["plan"]
    np.testing.assert_allclose(plan.sum(1), 0.2, atol=1e-6)


def test_solve_says_when_it_has_not_converged(files):
    done = otformer("solve", files / "cost.npy", "--cost", "--reg", 1e-4, "--max-depth", 4, "--json")
    assert json.loads(done.stdout)["converged"] is False
    done = otformer("solve", files / "cost.npy", "--cost", "--reg", 1e-4, "--max-depth", 4)
    assert "not converged" in done.stderr


def test_unbalanced_and_weights_are_those_of_pot(files):
    cost = np.load(files / "cost.npy")
    a, b = np.array([0.1, 0.1, 0.2, 0.3, 0.3]), np.full(6, 1 / 6)
    np.savetxt(files / "a.txt", a)
    call = ("solve", files / "x.csv", files / "y.csv", "--a", files / "a.txt", "--reg", 0.1, "--tol", 1e-9, "--out")
    assert otformer(*call, files / "balanced.npz").returncode == 0
    wanted = ot.sinkhorn(a, b, cost, 0.1, stopThr=1e-12)
    np.testing.assert_allclose(np.load(files / "balanced.npz")["plan"], wanted, atol=1e-8)
    summary = json.loads(otformer(*call, files / "loose.npz", "--unbalanced", 0.5, "--json").stdout)
    plan = np.load(files / "loose.npz")["plan"]
    wanted = ot.unbalanced.sinkhorn_unbalanced(a, b, cost, 0.1, 0.5, reg_type="kl", stopThr=1e-13, numItermax=10**5)
    np.testing.assert_allclose(plan, wanted, atol=1e-7)
    assert summary["mass"] == pytest.approx(plan.sum())


def test_a_metric_is_the_cost_of_that_name(files):
    x, y = (np.loadtxt(files / name, delimiter=",") for name in ("x.csv", "y.csv"))
    np.save(files / "cosine.npy", cdist(x, y, "cosine"))
    calls = ([files / "x.csv", files / "y.csv", "--metric", "cosine"], [files / "cosine.npy", "--cost"])
    values = [json.loads(otformer("solve", *call, "--json").stdout)["value"] for call in calls]
    assert values[0] == pytest.approx(values[1], abs=1e-7)


def test_above_so_many_entries_potentials_alone_are_written_and_make_the_plan(files, monkeypatch):
    monkeypatch.setattr("otformer.cli.solve.PLAN_ENTRIES", 29)
    done = otformer("solve", files / "x.csv", files / "y.csv", "--out", files / "plan.npz")
    assert "plan.npz gets u and v without the plan, which has 5 × 6 entries" in done.stderr
    made = np.load(files / "plan.npz")
    assert set(made) == {"u", "v"}
    plan = np.exp((made["u"][:, None] + made["v"] - np.load(files / "cost.npy")) / 0.1 - 1)
    np.testing.assert_allclose(plan.sum(0), 1 / 6, atol=1e-6)
    np.testing.assert_allclose(plan.sum(1), 1 / 5, atol=1e-6)


BAD = [  # the command; the argument, what was expected, what came
    (["solve", "missing.npz"], "missing.npz", "exist", "does not"),
    (["solve", "."], ".", "end in .npz"),
    (["solve", "empty.csv"], "empty.csv", "empty"),
    (["solve", "x.csv"], "x.csv", "give a second file of points, or --cost", "points or a cost"),
    (["solve", "cost.npy"], "cost.npy", "give a second file of points, or --cost", "points or a cost"),
    (["solve", "x.csv", "y.csv", "--cost"], "--cost", "one file, a matrix", "two, x.csv and y.csv"),
    (["solve", "points.npz", "--cost"], "points.npz", "hold cost (and a, b if you like)", "x, y"),
    (["solve", "cost.npz", "--a", "a.csv"], "--a", "left out where cost.npz holds a", "a.csv"),
    (["solve", "points.npz", "--a", "y.csv"], "--a y.csv", "shape (5,)", "(6, 2)"),
    (["solve", "cost.npz", "--metric", "cosine"], "--metric", "used with points", "a cost matrix in cost.npz"),
    (["solve", "words.csv", "--cost"], "words.csv", "rows of 2 numbers", "'c,d'"),
    (["solve", "uneven.csv", "--cost"], "uneven.csv", "rows of 2 numbers", "'3'"),
    (["solve", "typo.csv", "--cost"], "typo.csv", "rows of 2 numbers", "'0.1,O.2'"),
    (["solve", "digits.csv", "--cost"], "digits.csv", "rows of 2 numbers", "'0.1x,0.2x'"),
    (["solve", "comma.csv", "--cost"], "comma.csv", "rows of 2 numbers", "'0,1;0,2'; write decimals with a point"),
    (["solve", "nan.npz"], "y of nan.npz", "finite", "inf at index (0, 1)"),
    (["solve", "text.npy", "--cost"], "text.npy", "numbers", "dtype <U1"),
    (["solve", "archive.npy"], "archive.npy", "name it .npz", "an archive"),
    (["solve", "array.npz"], "array.npz", "name it .npy", "one array"),
    (["solve", "cost.npy", "--cost", "--out", "plan.txt"], "--out", "end in .npz", "'plan.txt'"),
    (["sort", "9007199254740993", "9007199254740992"], "values", "exact in float64", "the whole number 9007199254740993"),
    (["sort", "3", "-1"], "No such option: -1", "negative numbers go behind --"),
    (["solve", "broken.npz"], "broken.npz", "a readable .npz file", "is not"),
    (["solve", "other.npz"], "other.npz", "hold x and y, or cost (and a, b if you like)", "z"),
    (["solve", "nan.csv", "x.csv"], "nan.csv", "finite", "nan at index (0, 1)"),
    (["solve", "cost.npy", "--cost", "--reg", "-1"], "--reg", "a positive", "-1.0"),
    (["solve", "cost.npy", "--cost", "--reg", "x"], "--reg", "a number", "'x'"),
    (["solve", "cost.npy", "--cost", "--schedule", "x"], "--schedule", "one of", "'x'"),
    (["solve", "cost.npy", "--cost", "--out", "no/where.npz"], "no/where.npz", "be written", "the folder "),
    (["sort", "3,1,2"], "values", "numbers", "'3,1,2': separate numbers by spaces"),
    (["sort", "1", "two"], "values", "numbers", "'two'"),
    (["sort", "1", "nan"], "values", "finite", "nan at index 1"),
    (["sort"], "values", "give numbers as arguments or on standard input", "missing"),
    (["reproduce", "everything"], "unknown experiment 'everything'", ""),
    (["fly"], "No such command 'fly'", "otformer --help"),
]


@pytest.mark.parametrize(("arguments", "parts"), [(arguments, parts) for arguments, *parts in BAD])
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(files, monkeypatch, arguments, parts):
    monkeypatch.chdir(files)
    before = sorted(files.rglob("*"))
    done = otformer(*arguments)
    assert done.returncode == 2
    assert_says(done.stderr, *parts)
    assert done.stdout == ""
    assert sorted(files.rglob("*")) == before


def test_sort_from_arguments_and_from_standard_input():
    assert otformer("sort", "3", "1.50", "2").stdout.split() == ["1.50", "2", "3"]
    assert otformer("sort", "--", "3", "-1").stdout.split() == ["-1", "3"]
    assert otformer("sort", stdin="3, 1\n2").stdout.split() == ["1", "2", "3"]
    assert json.loads(otformer("sort", "--json", "3", "1").stdout) == {"sorted": [1.0, 3.0], "order": [1, 0]}


@pytest.mark.slow
def test_help_and_list():
    assert otformer("--version").stdout.startswith("otformer 0.")
    assert otformer().stdout == otformer("--help").stdout
    for command in ("solve", "sort", "align", "transfer", "probe", "reproduce", "train", "bench"):
        text = otformer(command, "-h").stdout
        assert text == otformer(command, "--help").stdout
        assert "bool" not in text
        assert f"    otformer {command} " in text  # an example
        assert command in otformer("-h").stdout


def test_lists_are_aligned():
    lines = otformer("reproduce", "--list").stdout.splitlines()
    records = json.loads(otformer("reproduce", "--list", "--json").stdout)
    assert len({line.index(record["title"]) for line, record in zip(lines, records, strict=True)}) == 1
    assert all(line.split() == f"{r['name']} {r['shows']} {r['seconds']} s {r['title']}".split() for line, r in
               zip(lines, records, strict=True))  # fmt: skip
    assert {"theorem-gd", "sorting"} <= {record["name"] for record in records}
    lines = otformer("train", "--list").stdout.splitlines()
    about = json.loads(otformer("train", "--list", "--json").stdout)
    assert len({line.index(text) for line, text in zip(lines, about.values(), strict=True)}) == 1
    assert {name: each.about for name, each in RECIPES.items()} == {name: about[name] for name in RECIPES}
    assert set(about) == {*RECIPES, "NAME-N"}


def test_help_names_every_schedule():
    from otformer.cli.solve import SCHEDULES as listed

    assert listed.split("|") == ["auto", *SCHEDULES]


def test_progress_tells_the_time_left_where_there_is_no_terminal(monkeypatch, capsys):
    """Half the work in a fifth of a second: another fifth is left."""
    monkeypatch.setattr(common, "LINE_EVERY", 0.25)
    with common.bar("sorting", 10) as shown:
        time.sleep(0.2)
        shown.reach(5, "sorting, step 5")
        assert shown.progress.tasks[0].time_remaining == 1  # in whole seconds, rounded up
        time.sleep(0.1)
        shown.advance(5)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("otformer: sorting, step 5: 50 %, 0:00:00, 0:00:01 left")
    assert len(lines) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "until", "said"),
    [
        (["train", "--recipe", "nearest", "--out", "run"], "run/checkpoint.safetensors", "a checkpoint is in run"),
        (["reproduce", "sizes", "depth", "--out", "run"], "run/sizes/run.json", "1 of 2 experiments are in run"),
    ],
)
def test_ctrl_c_says_what_is_kept_and_how_to_go_on(tmp_path, arguments, until, said):
    """One more Ctrl-C, while Python ends, changes nothing."""
    script, end, said_in = [sys.executable, "-m", "otformer", *arguments], time.monotonic() + 120, tmp_path / "said"
    with said_in.open("w") as file:
        work = subprocess.Popen(script, cwd=tmp_path, stdout=subprocess.PIPE, stderr=file, text=True)
    while not (tmp_path / until).exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.3)
    while work.poll() is None and time.monotonic() < end:  # Python drops one that falls into a callback of its own
        work.send_signal(signal.SIGINT)
        wait_until = time.monotonic() + 3
        while work.poll() is None and "interrupted" not in said_in.read_text() and time.monotonic() < wait_until:
            time.sleep(0.05)
        time.sleep(0.1)
    out, err = work.communicate(timeout=60)[0], said_in.read_text()
    assert (work.returncode, out) == (130, "")
    assert err.endswith(f"otformer: interrupted; {said}: rerun with --resume to continue\n")


def test_the_console_script():
    script = [sys.executable, "-c", "from otformer.cli.main import main; main()", "sort", "2", "x"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "otformer: values must be numbers, got 'x'\n")


@pytest.mark.slow
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
        ((), "--recipe must be one of paper-sorted, "),
        (
            ("--recipe", "nearest", "--device", "cuda"),
            "--device must be cpu or an available CUDA device, got cuda",
        ),
        (("--recipe", "nearest", "--ensemble", 0), "ensemble must be a whole number of at least 1, got 0"),
    ):
        bad = otformer("train", *arguments, "--out", tmp_path / "bad")
        assert bad.returncode == 2
        assert message in bad.stderr
        assert not (tmp_path / "bad").exists()
