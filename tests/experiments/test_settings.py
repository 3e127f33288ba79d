"""Named settings: what --set takes and refuses, that a run uses it, and that it never passes for the standard run."""

from __future__ import annotations

import ast
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from oracles import pot_plan
from otformer.cli.main import main
from otformer.lab.experiments import recorded
from otformer.lab.experiments._problems import unit_cube
from otformer.lab.experiments.registry import EXPERIMENTS
from otformer.lab.experiments.settings import chosen_settings, settings
from otformer.network.transformer import AligningTransformer

WITH_SETTINGS = [each for each in EXPERIMENTS.values() if each.settings]


def reproduce(monkeypatch, *arguments) -> int:
    monkeypatch.setattr(sys, "argv", ["otformer", "reproduce", *map(str, arguments)])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def read_at_import(tree: ast.Module) -> set[str]:
    """The names that a module reads when it is imported: all but those in bodies of functions and in annotations."""
    found: set[str] = set()
    parts: list[ast.AST] = list(tree.body)
    while parts:
        node = parts.pop()
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            parts += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            parts += node.decorator_list if isinstance(node, ast.FunctionDef) else []
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        parts += ast.iter_child_nodes(node)
    return found


@pytest.mark.parametrize("experiment", WITH_SETTINGS, ids=lambda each: each.name)
def test_a_setting_is_a_constant_that_is_read_when_the_experiment_runs(experiment):
    own = settings(experiment)
    for setting in own.values():
        values = setting.standard if isinstance(setting.standard, tuple) else (setting.standard,)
        assert all(setting.least <= value <= setting.most for value in values), setting
    file = importlib.import_module(experiment.module).__file__
    assert not {name.upper() for name in own} & read_at_import(ast.parse(Path(file).read_text("utf-8")))


def test_most_experiments_have_settings_and_figure_3_has_those_of_the_problem():
    assert len(WITH_SETTINGS) >= 20
    assert list(EXPERIMENTS["convergence"].settings) == ["n", "dim", "reg", "depth", "problems"]


def test_a_run_of_other_settings_is_of_them_and_says_so(tmp_path, monkeypatch, capsys):
    given = ("--set", "n=4", "--set", "reg=0.1", "--set", "problems=1", "--set", "dim=2", "--out", tmp_path)
    assert reproduce(monkeypatch, "figure-3", *given) == 0
    assert "convergence: not the standard run (n = 4, reg = 0.1, problems = 1)" in capsys.readouterr().out
    about = json.loads((tmp_path / "convergence" / "run.json").read_text("utf-8"))
    assert about["changed"] == {"n": 4, "reg": 0.1, "problems": 1}  # dim is what it always is
    assert "Not the standard run:</strong> n 4, reg 0.1, problems 1" in (tmp_path / "index.html").read_text("utf-8")

    x, y, costs = unit_cube(1, 4, 2, generator=torch.Generator().manual_seed(0))
    A = AligningTransformer(2, 0.1, 600)(x, y, warn=False).attention()[0].numpy()
    off = np.abs(A - pot_plan(costs[0].numpy(), np.ones(4), np.ones(4), 0.1)).max()
    last = (tmp_path / "convergence" / "numbers.csv").read_text("utf-8").splitlines()[-1].split(",")
    assert float(last[1]) == pytest.approx(off, abs=1e-9)

    with pytest.raises(ValueError, match="report must have seed 0, the default size and the standard settings"):
        recorded.record(tmp_path, tmp_path)
    assert importlib.import_module("otformer.lab.experiments.convergence").N == 9  # as before
    before = (tmp_path / "convergence" / "run.json").stat().st_mtime_ns
    assert reproduce(monkeypatch, "figure-3", *given, "--resume") == 0
    assert (tmp_path / "convergence" / "run.json").stat().st_mtime_ns == before
    assert reproduce(monkeypatch, "figure-3", "--set", "n=5", "--set", "problems=1", "--out", tmp_path, "--resume") == 0
    assert json.loads((tmp_path / "convergence" / "run.json").read_text("utf-8"))["changed"] == {"n": 5, "problems": 1}


@pytest.mark.parametrize(
    ("names", "given", "said"),
    [
        (
            ["convergence"],
            ["width=3"],
            "--set must name a setting of convergence: n, dim, reg, depth, problems, got 'width'",
        ),
        (["convergence"], ["n"], "--set must be NAME=VALUE, say n=16, got 'n'"),
        (["convergence"], ["n="], "--set must be NAME=VALUE"),
        (["convergence"], ["n=16", "n=17"], "--set n must be given once"),
        (["convergence"], ["n=1e3"], "--set n must be a whole number from 2 to 64, got '1e3'"),
        (["convergence"], ["n=65"], "--set n must be a whole number from 2 to 64, got '65'"),
        (["convergence"], ["reg=nan"], "--set reg must be a number from 0.005 to 10, got 'nan'"),
        (["convergence"], ["reg=-1"], "--set reg must be a number from 0.005 to 10"),
        (
            ["rates"],
            ["regs=0.1,,0.2"],
            "--set regs must be numbers from 0.02 to 0.2, with commas between them, got ''",
        ),
        (["rates"], ["regs=0.1,0.1"], "--set regs must have every value once"),
        (["beyond"], ["n=3"], "--set must be left out: beyond has no settings, got 'n'"),
        (["convergence", "sizes"], ["n=16"], "--set must name a setting of sizes: dim, reg, got 'n'"),
    ],
)
def test_what_is_no_setting_is_one_line(names, given, said):
    with pytest.raises(ValueError, match="^" + said.replace(".", r"\.")) as refused:
        chosen_settings([EXPERIMENTS[name] for name in names], given)
    assert "\n" not in str(refused.value)


def test_the_command_lists_settings_and_refuses_what_they_exclude(tmp_path, monkeypatch, capsys):
    assert reproduce(monkeypatch, "figure-3", "--settings") == 0
    header, n, *_ = capsys.readouterr().out.splitlines()
    assert header.split() == ["experiment", "setting", "standard", "takes"]
    assert n.split(maxsplit=3) == ["convergence", "n", "9", "a whole number from 2 to 64"]
    assert reproduce(monkeypatch, "--settings", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)) == sum(len(each.settings) for each in WITH_SETTINGS)
    out = ("--out", tmp_path / "new")
    for arguments, said in (
        (("figure-3", "--set", "n=16", "--check"), "--check cannot be combined with --set"),
        (("--set", "n=16"), "--set cannot be combined with all experiments"),
        (("figure-3", "--set", "m=16"), "--set must name a setting of convergence"),
    ):
        assert reproduce(monkeypatch, *arguments, *out) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
