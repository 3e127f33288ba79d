"""The scripts of bench/ for exact transport: cases on a CPU, one that is over its time, and benchopt's solver."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import ot
import pytest

import otformer

BENCH = Path(__file__).parents[2] / "bench"
ENV = os.environ | {"PYTHONPATH": str(Path(otformer.__file__).parents[1])}


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # as Python does for a script
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def cases(out, *arguments):
    """The rows that the script leaves, by case."""
    call = [sys.executable, str(BENCH / "exact_gpu.py"), "--device", "cpu", "--out", str(out), *map(str, arguments)]
    done = subprocess.run(call, env=ENV, capture_output=True, text=True, timeout=300, check=True)
    rows = [json.loads(line) for line in (out / "exact_gpu.jsonl").read_text().splitlines()]
    return {row["case"]: row for row in rows}, done.stdout


@pytest.mark.slow
def test_cases_run_on_a_cpu_and_a_later_run_goes_on(tmp_path):
    rows, _ = cases(tmp_path, "--shrink", 200, "--only", "ties", "weights", "--parts")
    assert list(rows) == ["ties", "weights"]
    assert all(row["converged"] and row["gap"] < 1e-12 for row in rows.values())
    assert rows["weights"].keys() >= {"n", "d", "seconds", "value", "rounds", "looks, s", "flow, s"}
    again, said = cases(tmp_path, "--shrink", 200, "--only", "ties", "batch-scipy", "--keep")
    assert again["ties"] == rows["ties"]
    assert "── ties" not in said
    assert list(again) == ["ties", "weights", "batch-scipy"]


@pytest.mark.slow
def test_a_case_over_its_time_is_ended_and_the_next_has_its_turn(tmp_path, monkeypatch):
    script = loaded(BENCH / "exact_gpu.py")
    monkeypatch.setattr(sys, "argv", ["exact_gpu.py", "--device", "cpu", "--out", str(tmp_path), "--only", "ties", "ring"])
    hung = "import os, signal; os.kill(os.getpid(), signal.SIGALRM)"
    ran = []

    def run(command, check):
        ran.append(command[command.index("--only") + 1 :])
        return subprocess.CompletedProcess(command, subprocess.run([sys.executable, "-c", hung], check=False).returncode)

    monkeypatch.setattr(script, "subprocess", types.SimpleNamespace(run=run))
    script.main()
    assert ran == [["ties", "ring"], ["ring"]]
    assert {name: row["failed"] for name, row in script.recorded(tmp_path).items()} == dict.fromkeys(
        ("ties", "ring"), "over its time"
    )


def test_a_missing_numba_says_how_to_bring_it(tmp_path, monkeypatch):
    script = loaded(BENCH / "exact_gpu.py")
    monkeypatch.setattr(sys, "argv", ["exact_gpu.py", "--device", "cpu", "--out", str(tmp_path / "new")])
    monkeypatch.setattr(script, "importlib", types.SimpleNamespace(util=types.SimpleNamespace(find_spec=lambda _: None)))
    with pytest.raises(SystemExit, match=r"needs numba.*pip install numba"):
        script.main()
    assert not (tmp_path / "new").exists()


def test_the_solver_for_benchopt_finds_the_plan_of_pot(monkeypatch):
    names = {"BaseSolver": object, "safe_import_context": contextlib.nullcontext}
    monkeypatch.setitem(sys.modules, "benchopt", types.SimpleNamespace(**names))
    criterion = types.SimpleNamespace(SingleRunCriterion=object)
    monkeypatch.setitem(sys.modules, "benchopt.stopping_criterion", criterion)
    solver = loaded(BENCH / "benchopt" / "otformer_exact.py").Solver()
    solver.use_gpu = False
    assert solver.skip() == (False, None)
    rng = np.random.default_rng(0)
    x, y, a, b = rng.random((9, 2)), rng.random((11, 2)), ot.unif(9), ot.unif(11)
    solver.set_objective(x=x, a=a, y=y, b=b)
    solver.run(1)
    np.testing.assert_allclose(solver.get_result()["P"], ot.emd(a, b, ot.dist(x, y) / 2), atol=1e-12)
