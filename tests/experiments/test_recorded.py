"""Recorded results: quick experiments still give them, a drift is found and told, and the tolerances are what they say.

What the tolerances were measured by, on a machine with AVX2 (no line may begin with "drift"):

    ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Sandybridge NPY_DISABLE_CPU_FEATURES="AVX2 FMA3" \
        otformer reproduce --check --out other
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from helpers.command import otformer
from otformer.cli.main import main
from otformer.files import write_csv
from otformer.lab.experiments import recorded
from otformer.lab.experiments.recorded import COMMAND, FOLDER, Tolerance, asked, drifts, record
from otformer.lab.experiments.registry import EXPERIMENTS
from otformer.lab.experiments.runner import Record

QUICK = ("sizes", "rates", "errata", "iterative", "embedding-ot")  # five seconds; tables, a fit, trained networks, words


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quick experiments, run and checked by the command."""
    place = tmp_path_factory.mktemp("report")
    done = otformer("reproduce", *QUICK, "--check", "--out", place)
    assert done.returncode == 0, done.stdout
    assert f"every verdict and number of {len(QUICK)} experiments is as recorded" in done.stdout
    return place


def run_of(report: Path, name: str) -> Record:
    return Record(report / name, json.loads((report / name / "run.json").read_text("utf-8")))


def changed(report: Path, place: Path, name: str, old: str, new: str) -> Record:
    """A run with one text of its numbers replaced by another."""
    shutil.copytree(report / name, place / name)
    file = place / name / "numbers.csv"
    text = file.read_text("utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), "utf-8")
    return run_of(place, name)


@pytest.mark.slow
def test_a_number_that_drifts_is_told_in_one_line_and_the_command_fails(report: Path, tmp_path: Path) -> None:
    number = run_of(report, "sizes").numbers[0]["σ"]
    moved = f"{float(number) * 1.0001:.12f}"
    run = changed(report, tmp_path, "sizes", number, moved)
    (line,) = drifts(run)
    assert line.startswith(f"sizes: numbers.csv, line 2, σ: {moved}, recorded: {float(number):.6g} ± (1e-08 + 0.001 %)")
    done = otformer("reproduce", "sizes", "--check", "--resume", "--out", tmp_path)
    assert done.returncode == 1
    assert done.stdout.count("drift in sizes:") == 1
    asked = json.loads(otformer("reproduce", "sizes", "--check", "--resume", "--out", tmp_path, "--json").stdout)
    assert asked["drifts"] == [line]


@pytest.mark.slow
def test_whole_numbers_text_verdicts_and_shapes_must_be_equal(report: Path, tmp_path: Path) -> None:
    (line,) = drifts(changed(report, tmp_path / "whole", "sizes", "\n8,", "\n9,"))
    assert "line 2, n: 9, recorded: 8" in line
    (line,) = drifts(changed(report, tmp_path / "text", "errata", "The sign of B", "The sign of A"))
    assert "The sign of A, recorded: The sign of B" in line
    (line,) = drifts(changed(report, tmp_path / "columns", "sizes", "n,σ", "n,τ"))
    assert "rows of ['n', 'τ'" in line
    run = run_of(report, "sizes")
    claim = next(iter(run.checks))
    (line,) = drifts(Record(run.folder, run.about | {"checks": run.checks | {claim: False}}))
    assert line == f"sizes: “{claim}” does not hold, recorded: holds"
    (line,) = drifts(Record(run.folder, run.about | {"checks": run.checks | {"it rains": True}}))
    assert line == "sizes: “it rains” holds, recorded: is not asked"


@pytest.mark.slow
def test_many_drifts_are_counted(report: Path, tmp_path: Path) -> None:
    shutil.copytree(report / "rates", tmp_path / "rates")
    run = run_of(tmp_path, "rates")
    text = (run.folder / "numbers.csv").read_text("utf-8")
    (run.folder / "numbers.csv").write_text(text.replace(",1,", ",2,").replace(",2,", ",3,"), "utf-8")  # layers per step
    lines = drifts(run)
    assert len(lines) == recorded.MOST_LINES + 1
    assert lines[-1] == f"rates: and {len(run.numbers) - recorded.MOST_LINES} more"


@pytest.mark.slow
def test_what_is_recorded_is_read_again_and_the_rest_stays(report: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    shutil.copytree(FOLDER, folder)
    (folder / "sizes.csv").write_text("n\n1\n")
    assert drifts(run_of(report, "sizes"), folder)
    record(report, folder)
    assert [drifts(run_of(report, name), folder) for name in QUICK] == [[]] * len(QUICK)
    assert (folder / "depth.csv").read_bytes() == (FOLDER / "depth.csv").read_bytes()
    assert list(json.loads((folder / "checks.json").read_text("utf-8"))) == list(EXPERIMENTS)
    (folder / "sizes.csv").unlink()
    assert drifts(run_of(report, "sizes"), folder) == [f"sizes: no results are recorded: {COMMAND}"]


def test_every_experiment_is_recorded() -> None:
    kept = {path.stem for path in FOLDER.glob("*.csv")}
    assert kept == set(EXPERIMENTS), f"make report, then {COMMAND}"
    assert set(json.loads((FOLDER / "checks.json").read_text("utf-8"))) == kept


@pytest.mark.parametrize(
    ("new", "old", "agrees"),
    [
        ("1.0", "1.0", True),
        ("1.009", "1.0", True),
        ("1.012", "1.0", False),
        ("-1.0", "1.0", False),
        ("2.9e-05", "0.0", True),  # 30 times the level of rounding
        ("3.1e-05", "0.0", False),
        ("0.0009", "0.0", False),
        ("0.0", "0.0009", False),  # below the absolute tolerance, but not the number that was recorded
        ("0.0002", "0.0009", True),
        ("-0.0002", "0.0005", True),
        ("2e-05", "0.0009", False),
        ("0.0", "1e-05", True),
        ("nan", "nan", True),
        ("nan", "1.0", False),
        ("inf", "1.0", False),
        ("", "1.0", False),
        ("", "", True),
        ("20", "19", False),
        ("20.0", "20", False),
        ("[1.0, 2.0]", "[1.0, 2.01]", True),
        ("[1.0, 2.0]", "[1.0]", False),
        ("True", "False", False),
        ("1e-13", "2e-14", True),
    ],
)
def test_what_agrees(new: str, old: str, agrees: bool) -> None:
    assert Tolerance(relative=0.01, absolute=0.001, rounding=1e-6).allows(new, old) is agrees


TINY = {"errata": "corrected", "theorem-gd": "frozen sink: largest gap", "theorem-bound": "μ at layer 4000"}
TINY |= {"sketch": "μ by layers alone", "sizes": "marginal error"}


def kept_run(place: Path, name: str, change: Callable[[dict[str, str]], dict[str, str]]) -> Record:
    """A run that has what is recorded, each row changed."""
    (place / name).mkdir(parents=True)
    with (FOLDER / f"{name}.csv").open(newline="", encoding="utf-8") as lines:
        write_csv(place / name / "numbers.csv", [change(row) for row in csv.DictReader(lines)])
    return Record(place / name, {"name": name, "checks": json.loads((FOLDER / "checks.json").read_text("utf-8"))[name]})


@pytest.mark.parametrize("name", TINY)
def test_errors_at_the_level_of_rounding_are_asked_for(tmp_path: Path, name: str) -> None:
    column = TINY[name]
    for change in ("0.0", "1e-9"):  # the two compared are one; an error came in that no tolerance of 1e-8 sees
        lines = drifts(kept_run(tmp_path / change, name, lambda row: row | {column: row[column] and change}))  # noqa: B023
        assert lines
        assert all(f", {column}: {change.rstrip('.0')}" in line for line in lines if "more" not in line)
    assert drifts(kept_run(tmp_path / "same", name, dict)) == []


def test_no_rows_are_a_drift_in_one_line(tmp_path: Path) -> None:
    run = kept_run(tmp_path, "sizes", dict)
    (run.folder / "numbers.csv").write_text("")
    (line,) = drifts(run)
    assert line.startswith("sizes: numbers.csv has 0 rows of [], recorded: ")


def test_the_numbers_are_counted_by_what_is_asked_of_them(tmp_path: Path) -> None:
    rows = [{"n": "8", "σ": "0.5", "x": "[1e-09, 3]"}, {"n": "word 2", "σ": "-2e-13", "x": "0.0"}]
    write_csv(tmp_path / "sizes.csv", rows)
    assert asked(["sizes", "not recorded"], tmp_path) == {"equal": 3, "near": 1, "magnitude": 1, "small": 2}
    cells = [cell for name in EXPERIMENTS for row in kept_run(tmp_path, name, dict).numbers for cell in row.values()]
    assert asked(EXPERIMENTS).total() == sum(len(recorded.NUMBER.findall(cell)) for cell in cells)


def test_one_experiment_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["otformer", "reproduce", "transport-translator", "--check", "--out", str(tmp_path)])
    with suppress(SystemExit):
        main()
    said = capsys.readouterr().out
    counts = asked(["transport-translator"])
    assert (
        f"number of 1 experiment is as recorded; of {counts.total():,} numbers {counts['equal']} are whole and equal, "
        in said
    )
    assert f"{counts['near']:,} within tolerance, {counts['magnitude']} near 0 and alike in magnitude, " in said
    assert f"{counts['small']} only as small as rounding\n" in said


def test_check_goes_with_the_default_seed_and_size_and_recording_with_a_report(tmp_path: Path) -> None:
    for option in (["--seed", 1], ["--full"]):
        done = otformer("reproduce", "sizes", "--check", *option, "--out", tmp_path / "new")
        assert done.returncode == 2
        assert "--check cannot be combined with" in done.stderr
    assert not (tmp_path / "new").exists()
    with pytest.raises(SystemExit, match="one argument is expected, the folder of a report"):
        recorded.main([str(tmp_path / "nothing")])
    (tmp_path / "sizes").mkdir()
    (tmp_path / "sizes" / "run.json").write_text('{"seed": 1, "full": false}')
    with pytest.raises(ValueError, match="report must have seed 0, the default size and the standard settings, got"):
        record(tmp_path, tmp_path / "results")
