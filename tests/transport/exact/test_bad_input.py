"""Wrong input of every exact entry point is one line that names the argument; odd but right input passes."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.sparse
import torch

import otformer as of
from otformer.cli.main import main

EYE, POINTS = np.eye(3), np.random.default_rng(0).random((3, 2))
RAGGED = [[0.0, 1.0], [1.0]]
COMPLEX = torch.zeros(3, 3, dtype=torch.complex64)
MATRICES = {
    "nothing": None, "ragged": RAGGED, "complex tensor": COMPLEX, "complex": EYE * 1j, "text": "abc",
    "nan": [[0, math.nan], [1, 0]], "one axis": np.zeros(3), "objects": np.array([[None, 1]], dtype=object),
    "no data": torch.zeros(2, 2, device="meta"),
}  # fmt: skip
TAKE_A_MATRIX = {
    "solve": (lambda M: of.solve(M, reg=0), "M"),
    "emd": (lambda M: of.emd([], [], M), "M"),
    "emd2": (lambda M: of.emd2([], [], M), "M"),
    "linear_sum_assignment": (of.linear_sum_assignment, "cost|matrix contains invalid"),
    "solve_batch": (lambda M: of.solve_batch([M], reg=0), "problem 0: M"),
}
TAKE_POINTS = {
    "solve_sample": (lambda x: of.solve_sample(x, x, reg=0), "X_a"),
    "stream": (lambda x: of.solve_sample(x, x, reg=0, executor="stream"), "X_a"),
    "assignment": (lambda x: of.assignment(x, x), "x|X_a"),
    "solve_batch": (lambda x: of.solve_batch([(x, x)], reg=0), "problem 0: (X_a|M)"),
}
WEIGHTS = {
    "negative": [-1, 1, 3], "nan": [math.nan, 1, 1], "infinite": [math.inf, 1, 1], "short": [1.5, 1.5], "zeros": [0, 0, 0],
    "text": "abc", "ragged": [[1], 1, 1], "another sum": [5, 1, 1], "complex": np.ones(3) * 1j,
}  # fmt: skip
TAKE_WEIGHTS = {
    "solve": (lambda w: of.solve(EYE, w, np.ones(3), reg=0), "a"),
    "solve_sample": (lambda w: of.solve_sample(POINTS, POINTS, np.ones(3), w, reg=0), "b|a and b"),
    "emd": (lambda w: of.emd(w, np.ones(3), EYE), "a"),
    "emd sparse": (lambda w: of.emd(w, np.ones(3), scipy.sparse.csr_array(EYE + 1)), "a"),
    "wasserstein_1d": (lambda w: of.wasserstein_1d([0, 1, 2], [0, 1, 2], w, np.ones(3)), "u_weights"),
}
NO_NUMBERS = {"nan": math.nan, "negative": -1.0, "true": True, "text": "1", "list": [1.0, 2.0], "complex": 1j}
TAKE_A_NUMBER = {
    "max_time": lambda t: of.solve(EYE, reg=0, max_time=t),
    "tol": lambda t: of.solve(EYE, reg=0, tol=t),
    "reg": lambda t: of.solve(EYE, reg=t),
    "p": lambda t: of.wasserstein_1d([0.0, 1.0], [1.0, 3.0], p=t),
}
OTHERS = {
    "reg must be": lambda: of.solve_batch([EYE], reg=False),
    "max_time must be a positive": lambda: of.assignment(POINTS, POINTS, max_time=0),
    "costs must lie less than 1e300 apart": lambda: of.solve([[1e308, -1e308], [0, 0]], reg=0),
    "costs must lie less than 1e300": lambda: of.emd([], [], scipy.sparse.csr_array([[1e308, -1e308], [1.0, 1.0]])),
    "problem 0: costs must lie": lambda: of.solve_batch(np.array([[[1e308, -1e308], [0, 0]]]), reg=0),
    "problems must be a list": lambda: of.solve_batch(None, reg=0),
    "problems must be a list of": lambda: of.solve_batch({"a": EYE}, reg=0),
    "device must be cpu or cuda": lambda: of.solve_batch([EYE], reg=0, device="tpu"),
    "mask must be boolean of": lambda: of.solve(EYE, reg=0, mask=np.ones((3, 3))),
    "mask must be a boolean": lambda: of.solve(EYE, reg=0, mask="all"),
    "labels": lambda: of.assignment(POINTS, POINTS, labels=([0, 1], [0, 1, 2])),
    "potentials must be": lambda: of.solve(EYE, reg=0, potentials=(np.ones(3) * 1j,) * 2),
    "potentials must have shapes": lambda: of.emd([], [], EYE, potentials_init=(np.zeros(2), np.zeros(3))),
    "values must be finite": lambda: of.solve(EYE, reg=0).map([math.nan, 0, 0]),
    "vector must be": lambda: of.solve(EYE, reg=0).apply(np.zeros(3) * 1j),
    "numThreads must be": lambda: of.emd([], [], EYE, numThreads="few"),
    "b must be an array": lambda: of.emd2([], RAGGED, EYE),
    "u_values must be sorted": lambda: of.wasserstein_1d([1.0, 0.0], [0.0, 1.0], require_sort=False),
    "p is too large": lambda: of.wasserstein_1d([0.0, 100.0], [1.0, 3000.0], p=1e6),
    "rounded is for results with reg > 0": lambda: of.solve(EYE, reg=0).rounded(),
    "metric must be one of": lambda: of.assignment(POINTS, POINTS, metric=3),
    "reg=0 cannot be combined with unbalanced": lambda: of.solve(EYE, reg=np.float64(0), unbalanced=1.0),
    "reg=0 cannot be combined with schedule": lambda: of.solve(EYE, reg=0, schedule="relaxed"),
    "reg=0 cannot be combined with solver": lambda: of.solve(EYE, reg=0, solver=of.Newton()),
    "max_time cannot be combined with reg > 0, got 1.0": lambda: of.solve(EYE, max_time=1.0),
    "executor must be one of": lambda: of.solve_sample(POINTS, POINTS, reg=0, executor="fast"),
}


def refused(call, begin):
    with pytest.raises(ValueError, match=f"^({begin})") as raised:
        call()
    assert "\n" not in str(raised.value)
    assert "1e+300" not in str(raised.value)


@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("entry", TAKE_A_MATRIX)
def test_matrices(entry, kind):
    call, begin = TAKE_A_MATRIX[entry]
    refused(lambda: call(MATRICES[kind]), begin)


@pytest.mark.parametrize("kind", [kind for kind in MATRICES if kind != "no data"])
@pytest.mark.parametrize("entry", TAKE_POINTS)
def test_points(entry, kind):
    call, begin = TAKE_POINTS[entry]
    refused(lambda: call(MATRICES[kind]), begin)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("entry", TAKE_WEIGHTS)
def test_weights(entry, kind):
    call, begin = TAKE_WEIGHTS[entry]
    refused(lambda: call(WEIGHTS[kind]), begin)


@pytest.mark.parametrize("kind", NO_NUMBERS)
@pytest.mark.parametrize("name", TAKE_A_NUMBER)
def test_numbers(name, kind):
    refused(lambda: TAKE_A_NUMBER[name](NO_NUMBERS[kind]), f"{name} must be")


@pytest.mark.parametrize("begin", OTHERS)
def test_all_others(begin):
    refused(OTHERS[begin], begin)


@pytest.mark.parametrize("zero", [0, 0.0, np.float64(0), np.float32(0), np.int64(0)])
def test_all_kinds_of_zero_ask_for_the_optimum(zero):
    M = [[3.0, 1.0], [1.0, 0.0]]
    x = [[0.0], [1.0]]
    results = [of.solve(M, reg=zero), of.solve_sample(x, x, reg=zero), *of.solve_batch([M, np.array(M)], reg=zero)]
    assert [r.permutation.tolist() for r in results] == [[1, 0], [0, 1], [1, 0], [1, 0]]


@pytest.mark.parametrize("limit", [math.inf, np.float64(np.inf), 5, np.float32(5)])
def test_time_limits_that_do_not_matter(limit):
    assert of.solve(EYE, reg=0, max_time=limit).converged
    assert of.assignment(POINTS, POINTS, max_time=limit).tolist() == [0, 1, 2]


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """`otformer solve --exact` on a small cost: its exit status, and what it wrote."""
    file = tmp_path / "M.csv"
    file.write_text("0,1\n1,0\n")

    def run(*options):
        monkeypatch.setattr("sys.argv", ["otformer", "solve", str(file), "--cost", "--exact", *options])
        try:
            main()
        except SystemExit as end:
            return end.code, capsys.readouterr()
        return 0, capsys.readouterr()

    return run


@pytest.mark.parametrize("options", [["--max-time", "nan"], ["--max-time", "-1"], ["--tol", "nan"], ["--reg", "0.1"]])
def test_the_command_line_refuses(command, options):
    code, said = command(*options)
    assert code == 2
    assert len(said.err.splitlines()) == 1
    assert options[0].removeprefix("--") in said.err.replace("_", "-")


def test_the_command_line_takes_no_limit_for_an_answer(command):
    code, said = command("--json", "--max-time", "inf")
    assert code == 0
    assert json.loads(said.out)["converged"]
