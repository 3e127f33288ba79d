"""`otformer solve --exact`: the optimum of POT, a plan that can be read again, and nothing on disk after bad input."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import time

import numpy as np
import ot
import pytest
from scipy.sparse import load_npz

import otformer as of
from helpers.messages import assert_says
from helpers.shell import ENVIRONMENT
from otformer.cli.main import main


def otformer(*arguments):
    """Exit code, standard output and standard error of the command, in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["otformer", *map(str, arguments)])
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def compiled():
    """What the problems here need is compiled, as after a first call on this machine."""
    rng = np.random.default_rng(0)
    of.solve_sample(rng.random((7, 2)), rng.random((9, 2)), reg=0)
    of.solve(rng.random((7, 9)), reg=0)


@pytest.fixture
def files(tmp_path, monkeypatch, compiled):
    rng = np.random.default_rng(0)
    x, y, a = rng.random((7, 2)), rng.random((9, 2)), rng.random(7)
    np.savetxt(tmp_path / "x.csv", x, delimiter=",")
    np.savetxt(tmp_path / "y.csv", y, delimiter=",")
    np.savetxt(tmp_path / "a.txt", a / a.sum())
    np.save(tmp_path / "cost.npy", ot.dist(x, y))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def best(a=None):
    """Value and plan of POT."""
    M = np.load("cost.npy")
    plan = ot.emd(ot.unif(7) if a is None else a, ot.unif(9), M)
    return (plan * M).sum(), plan


@pytest.mark.parametrize("problem", [("x.csv", "y.csv"), ("cost.npy", "--cost")], ids=["points", "cost"])
def test_it_is_the_optimum_and_says_so(files, problem):
    code, out, err = otformer("solve", *problem, "--exact", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert list(told) == ["n", "m", "value", "bound", "gap", "converged", "method", "rounds", "seconds"]
    assert told["value"] == pytest.approx(best()[0], rel=1e-12)
    assert told["bound"] == pytest.approx(told["value"], rel=1e-12)
    assert told["converged"]
    text = otformer("solve", *problem, "--exact")[1]
    assert f"value          {told['value']:.8g}\n" in text
    assert "converged      True\n" in text


def test_a_csv_lists_pairs_and_an_npz_is_a_sparse_array_with_its_proof(files):
    a, M = np.loadtxt("a.txt"), np.load("cost.npy")
    value, plan = best(a)
    call = ("solve", "x.csv", "y.csv", "--a", "a.txt", "--exact", "--out")
    assert otformer(*call, "pairs.csv")[0] == otformer(*call, "plan.npz")[0] == 0
    assert (files / "pairs.csv").read_text().startswith("row,column,mass\n")
    rows, columns, masses = np.loadtxt("pairs.csv", delimiter=",", skiprows=1, unpack=True)
    listed = np.zeros((7, 9))
    listed[rows.astype(int), columns.astype(int)] = masses
    np.testing.assert_allclose(listed, plan, atol=1e-12)
    np.testing.assert_allclose(load_npz("plan.npz").toarray(), plan, atol=1e-12)
    proof = np.load("plan.npz")
    assert (M - proof["u"][:, None] - proof["v"]).min() >= -1e-12
    assert a @ proof["u"] + proof["v"].mean() == pytest.approx(value, rel=1e-12)


def test_time_that_is_out_is_told(files, tmp_path):
    x = np.random.default_rng(1).random((2, 700, 3))
    np.savez("large.npz", x=x[0], y=x[1])
    code, out, err = otformer("solve", "large.npz", "--exact", "--max-time", 1e-9, "--tol", 0)
    assert code == 3
    assert "converged      False" in out
    assert err.splitlines()[-1].startswith("not proved optimal: gap ")  # before it, on a new machine, that it compiles
    told = json.loads(otformer("solve", "large.npz", "--exact", "--max-time", 1e-9, "--tol", 0, "--json")[1])
    assert told["bound"] is None or told["bound"] < told["value"]


EXACT = ["solve", "cost.npy", "--cost", "--exact"]


BAD = [  # the command; the argument, what was expected, what came
    ([*EXACT, "--reg", "0.1"], "--reg", "combined with --exact", "--reg 0.1"),
    ([*EXACT, "--lambda", "0.2"], "--reg", "combined with --exact", "--reg 0.2"),
    ([*EXACT, "--unbalanced", "1"], "--unbalanced", "combined with --exact", "--unbalanced 1"),
    ([*EXACT, "--schedule", "paper"], "--schedule", "combined with --exact", "--schedule paper"),
    ([*EXACT, "--max-depth", "9"], "--max-depth", "combined with --exact", "--max-depth 9"),
    ([*EXACT, "--max-time", "0"], "--max-time", "a positive, finite number", "0.0"),
    ([*EXACT, "--tol", "-1"], "--tol", "zero or a positive, finite number", "-1.0"),
    ([*EXACT, "--out", "plan.txt"], "--out", "end in .csv or .npz", "'plan.txt'"),
    ([*EXACT, "--out", "no/where.csv"], "no/where.csv", "be written", "the folder "),
    ([*EXACT, "--a", "x.csv", "--out", "plan.csv"], "--a x.csv", "shape (7,)", "(7, 2)"),
    (["solve", "missing.csv", "y.csv", "--exact", "--out", "plan.npz"], "missing.csv", "exist", "does not"),
    (["solve", "cost.npy", "--cost", "--max-time", "3"], "--max-time", "used with --exact", "--max-time 3"),
    (["solve", "cost.npy", "--cost", "--reg", "0", "--schedule", "paper"], "--schedule", "with --reg 0", "--schedule paper"),
]


@pytest.mark.parametrize(("arguments", "parts"), [(arguments, parts) for arguments, *parts in BAD])
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(files, arguments, parts):
    before = sorted(files.rglob("*"))
    code, out, err = otformer(*arguments)
    assert (code, out) == (2, "")
    assert_says(err, *parts)
    assert sorted(files.rglob("*")) == before


def test_a_missing_numba_is_one_line(files, monkeypatch):
    def missing(*_, **__):
        raise ImportError("exact transport needs numba: pip install numba")

    monkeypatch.setattr("otformer.transport.exact.find_optimum._on_matrix", missing)
    code, out, err = otformer(*EXACT, "--out", "plan.csv")
    assert (code, out, err) == (2, "", "otformer: exact transport needs numba: pip install numba\n")
    assert not (files / "plan.csv").exists()


def test_the_first_call_on_a_machine_says_that_it_compiles_and_does_not_count_it(files):
    """The command says so once, with numba's cache empty; the Python call prints nothing."""
    np.savetxt("square.csv", [[1, 2], [3, 1]], delimiter=",")
    command = [sys.executable, "-m", "otformer.cli", "solve", "square.csv", "--cost", "--exact", "--json"]
    python = [sys.executable, "-c", "import otformer as of; print(of.solve([[1, 2], [3, 1]], reg=0).value)"]

    def said(call, cache):
        return subprocess.run(call, env=ENVIRONMENT | {"NUMBA_CACHE_DIR": cache}, capture_output=True, text=True, check=True)

    start = time.monotonic()
    first = said(command, "one")
    took, called = time.monotonic() - start, said(python, "two")
    assert first.stderr.startswith("otformer: compiling, once")
    assert len(first.stderr.splitlines()) == 1
    assert json.loads(first.stdout)["seconds"] < took / 3  # compiling is over half of it
    assert (called.stderr, called.stdout) == ("", "1.0\n")
