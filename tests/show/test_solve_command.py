"""``otformer solve --show`` and ``--html``."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from helpers.messages import assert_says
from otformer.cli.main import main


@pytest.fixture
def solve(tmp_path, monkeypatch, capsys):
    """The command on three points a side, each nearest to its own; (exit status, standard output, standard error)."""
    np.savetxt(tmp_path / "x.csv", [[0.1, 0.2], [0.4, 0.9], [0.8, 0.3]], delimiter=",")
    np.savetxt(tmp_path / "y.csv", [[0.2, 0.2], [0.5, 0.9], [0.7, 0.3]], delimiter=",")
    monkeypatch.chdir(tmp_path)

    def call(*options: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["otformer", "solve", "x.csv", "y.csv", "--reg", "0.01", *options])
        status: object = 0
        try:
            main()
        except SystemExit as stop:
            status = stop.code or 0
        return (status, *capsys.readouterr())

    return call


def test_show_draws_the_plan_below_the_numbers(solve):
    status, out, _ = solve("--show")
    assert status == 0
    assert out.index("marginal_error") < out.index("✓ converged")
    for line in ("▕██    ▏", "▕  ██  ▏", "▕    ██▏"):
        assert line in out


def test_html_writes_a_page_beside_json(solve, tmp_path):
    status, out, _ = solve("--json", "--html", "plan.html")
    assert (status, json.loads(out)["converged"]) == (0, True)
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2  # the points and the matrix
    assert page.count("<circle") == 6


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--show", "--json"), ("--show", "combined with --json")),
        (("--html", "plan.png"), ("--html", "end in .html or .htm", "'plan.png'")),
        (("--html", "no/plan.html"), ("no/plan.html", "be written", "the folder ")),
    ],
)
def test_what_cannot_be_drawn_is_said_before_anything_is_solved(solve, tmp_path, monkeypatch, options, parts):
    monkeypatch.setattr("otformer.problem_files.read_problem", lambda *_: pytest.fail("a problem was read"))
    status, out, err = solve(*options)
    assert (status, out) == (2, "")
    assert_says(err, *parts)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv", "y.csv"]
