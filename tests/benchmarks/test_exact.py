"""The exact benchmark: problems are seeded, plans are judged here, tables say who was how far and how fast."""

from __future__ import annotations

import contextlib
import io
import math
import sys

import numpy as np
import ot
import pytest

from helpers.messages import assert_says
from otformer.cli.main import main
from otformer.lab.benchmarks import exact
from otformer.lab.benchmarks.exact import ExactRow, ExactSettings, bench, claims, compared, judged, table
from otformer.lab.benchmarks.exact_families import FAMILIES, make
from otformer.lab.benchmarks.exact_peers import PEERS, ExactPeer, Plan
from otformer.lab.benchmarks.exact_problem import Problem
from otformer.lab.benchmarks.harness import read_csv


@pytest.mark.parametrize("family", [*FAMILIES, "drawn-17-1", "drawn-17-2", "drawn-17-7", "drawn-17-9"])
def test_every_peer_finds_the_same_value(family):
    p = make(family, 40, seed=1)
    M, takes = p.rows(), [name for name, peer in PEERS.items() if peer.missing() is None and peer.takes(p)]
    wanted = (ot.emd(*p.weights(), M) * M).sum()
    found = {name: judged(p, PEERS[name].read(PEERS[name].prepare(p)()), rows=7) for name in takes}
    assert {"otformer", "POT emd"} | ({"otformer matrix", "POT emd2_lazy"} if p.M is None else set()) <= set(found)
    assert ("scipy" in found) == (p.a is None and M.shape[0] == M.shape[1])
    for name, said in found.items():
        assert said["value"] == pytest.approx(wanted, rel=1e-9), name
        assert said["gap"] is None or -1e-12 < said["gap"] < 1e-9, name


def test_reading_a_dense_plan_is_not_timed():
    p, peer = make("weights", 20), PEERS["POT emd"]
    M, found = ot.dist(p.x, p.y), peer.prepare(p)()
    np.testing.assert_array_equal(found[0], ot.emd(*p.weights(), M))
    plan = peer.read(found)
    assert plan.masses @ M[plan.i, plan.j] == pytest.approx(ot.emd2(*p.weights(), M))


def test_a_plan_that_is_not_best_has_its_gap_and_one_that_is_none_is_refused():
    p = make("uniform-2d", 30)
    each, masses = np.arange(30), np.full(30, 1 / 30)
    M = ot.dist(p.x, p.y)
    best, log = ot.emd(*p.weights(), M, log=True)
    said = judged(p, Plan(each, each, masses, log["v"]))
    least = (best * M).sum()
    assert said["value"] == pytest.approx(np.diag(M).mean())
    assert said["gap"] == pytest.approx((said["value"] - least) / said["value"], rel=1e-6)
    with pytest.raises(RuntimeError, match=r"marginals are off by 0\.067"):
        judged(p, Plan(each, np.append(each[:-1], 0), masses))


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
def test_a_plan_between_points_is_judged_as_that_of_their_matrix(metric):
    rng = np.random.default_rng(0)
    x, y, (a, b) = rng.random((9, 2)), rng.random((6, 2)), (rng.dirichlet(np.ones(k)) for k in (9, 6))
    p = Problem(x, y, a, b, metric=metric)
    best, log = ot.emd(a, b, p.rows(), log=True)
    plan = Plan(*np.nonzero(best), best[best > 0], log["v"])
    said, of_matrix = judged(p, plan, rows=4), judged(Problem(a=a, b=b, M=p.rows()), plan)
    assert said["value"] == pytest.approx((best * p.rows()).sum(), rel=1e-12)
    assert {name: pytest.approx(value, rel=1e-12, abs=1e-15) for name, value in said.items()} == of_matrix


def test_columns_without_mass_make_no_bound_and_marginals_that_are_off_make_a_gap():
    M = np.array([[1.0, 2.0, -5.0], [3.0, 1.0, -5.0]])
    p = Problem(a=np.array([0.5, 0.5]), b=np.array([0.5, 0.5, 0.0]), M=M)
    each, g = np.arange(2), np.array([0.0, 0.0, np.nan])
    said = judged(p, Plan(each, each, np.array([0.5, 0.5]), g))
    assert said == {"value": 1.0, "error": 0, "gap": 0, "floor": pytest.approx(1.75e-9)}
    assert judged(p, Plan(each, each, np.array([0.5 - 1e-10, 0.5]), g))["gap"] == pytest.approx(1e-10)
    with pytest.raises(RuntimeError, match=r"a mass is -0\.1"):
        judged(p, Plan(each, each, np.array([-0.1, 1.1])))


def test_a_gap_at_the_value_0_is_relative_to_the_costs():
    p = Problem(M=np.array([[0.0, 1.0], [1.0, 0.0]]))
    said = judged(p, Plan(np.arange(2), np.arange(2), np.full(2, 0.5), np.array([0.0, -1 - 1e-12])))
    assert said["value"] == 0
    assert said["gap"] == pytest.approx(0.5e-12 / (1e-9 * 0.5), rel=1e-3)


def test_rows_are_compared_within_their_problem():
    def row(n, peer, seconds, value=math.nan, note=""):
        return ExactRow(
            "exact", "ties", n, 0.0, peer, seconds, error=1e-16 if not note else math.nan, value=value, note=note
        )

    ours = [row(5, "otformer", 1.0, 1.0), row(9, "otformer", 2.0, 2.0)]
    others = [row(9, "POT emd", 4.0, 2.0), row(5, "scipy", 2.0, 1.1)]
    late, wrong = row(9, "lapx", 30.0, note="over 30 s"), row(9, "scipy", 30.0, note="marginals are off by 1")
    rows = compared([late, wrong, *others, *ours])
    assert [(r.n, r.peer) for r in rows[:3]] == [(5, "otformer"), (5, "scipy"), (9, "otformer")]
    assert [r.ratio for r in rows[:4]] == [0.5, 1.0, 0.5, 1.0]
    assert rows[1].difference == pytest.approx(0.1)
    lines = table(rows)
    assert all(line.count("|") == lines[0].count("|") for line in lines)
    assert lines[-1] == "| ties | 9 | lapx | > 30 |  |  |  | > 7.5 | over 30 s |"
    assert "| scipy | — |" in lines[-2]


def test_what_is_said_beside_pot_counts_and_names_where_ours_loses():
    def row(family, peer, seconds, gap=1e-16, value=2.0, note=""):
        error = math.nan if note else 1e-16
        return ExactRow("exact", family, 9, 0.0, peer, seconds, error=error, value=value, gap=gap, note=note)

    late = {"gap": None, "value": math.nan, "note": "over 30 s"}
    pairs = {
        "ties": (row("ties", "otformer", 1.0), row("ties", "POT emd", 4.0)),
        "ring": (row("ring", "otformer", 1.4), row("ring", "POT emd", 1.0)),
        "halos": (row("halos", "otformer", 1.0), row("halos", "POT emd", 30.0, **late)),
        "line": (row("line", "otformer", 30.0, **late), row("line", "POT emd", 1.0)),
        "cauchy": (row("cauchy", "otformer", 1.0, gap=1e-3), row("cauchy", "POT emd", 1.0)),
        "annulus": (row("annulus", "otformer", 1.0), row("annulus", "POT emd", 9.0, value=1.9)),
        "images": (row("images", "otformer", 1.0), row("images", "POT emd", 30.0, note="marginals are off by 1")),
    }
    said = claims(compared(row for pair in pairs.values() for row in pair))
    lines = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[3:-1]] for line in said[2:9]}
    assert lines["ties"] == ["1", "", "4", "", "0.25", "0.0e+00", "1.0e-16"]
    assert lines["halos"][2:5] == ["> 30", "", "< 0.033"]
    assert lines["line"][0] == "> 30"
    assert lines["line"][4:] == ["> 30", "", ""]
    assert lines["images"][2:5] == ["—", "", ""]
    assert lines["annulus"][5] == "5.3e-02"
    assert said[10:14] == [
        "- of 7 problems ours has the proved optimum in at most 1.5 times POT's time on 3, and at least 3 times faster on 2",
        "- slower than POT: line, n = 9 (> 30 times its time); ring, n = 9 (1.4 times its time)",
        "- without a proved optimum of ours: cauchy, n = 9; line, n = 9; annulus, n = 9",
        "- without a time of POT's: images, n = 9",
    ]
    assert "- line: The side across the line costs the same for all plans, so only one dimension matters." in said[14:]


@pytest.mark.slow
def test_results_are_written_whole_and_added_to(tmp_path):
    shares: list[float] = []
    settings = {"n": (30,), "families": ("weights",), "rounds": 1}
    rows = bench(tmp_path, ExactSettings(**settings, peers=("otformer", "scipy"), progress=shares.append))
    assert ([r.peer for r in rows], shares) == (["otformer"], [1.0])
    assert rows[0].gap < 1e-12
    rows = bench(tmp_path, ExactSettings(**settings, peers=("POT emd",)), append=True)
    assert [r.peer for r in rows] == ["otformer", "POT emd"]
    assert rows[1].ratio == 1
    assert repr(read_csv(tmp_path / "exact.csv", ExactRow)) == repr(rows)  # nan is not itself
    assert "numba" in (tmp_path / "exact.md").read_text().splitlines()[1]


@pytest.mark.slow
def test_a_peer_that_takes_too_long_is_ended(tmp_path):
    row = bench(tmp_path, ExactSettings(n=(1500,), families=("uniform-3d",), peers=("POT emd",), limit=0.05))[0]
    assert (row.note, row.timed, row.arrived) == ("over 0.05 s", True, False)


def test_a_peer_that_is_not_installed_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(exact.PEERS, "ghost", ExactPeer("no_such_package", PEERS["otformer"].prepare))
    told: list[str] = []
    with pytest.raises(ValueError, match="peers must have one that is installed and takes these families, got ghost"):
        bench(tmp_path / "new", ExactSettings(peers=("ghost",), n=(5,), tell=told.append))
    assert not (tmp_path / "new").exists()
    assert told == ["ghost: no_such_package is not installed"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["exact", "--reg", "0.1"], ("--reg", "combined with the scenario exact", "--reg 0.1")),
        (["exact", "--n", "1"], ("--n", "a whole number of at least 2", "1")),
        (["exact", "--family", "cube"], ("--family", "one of uniform-2d, ", "'cube'")),
        (["exact", "--family", "drawn-x"], ("--family", ", drawn-17", "'drawn-x'")),
        (["exact", "--peer", "Gurobi"], ("--peer", "one of otformer, otformer matrix, POT emd, ", "'Gurobi'")),
        (["exact", "--limit", "0"], ("--limit", "a positive, finite number", "0.0")),
        (["fast"], ("scenario", "one of cpu, small, ragged, scaling, exact", "'fast'")),
    ],
)
def test_bad_input_is_one_line_and_nothing_written(arguments, parts, tmp_path, monkeypatch):
    err = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["otformer", "bench", *arguments, "--out", str(tmp_path / "out")])
    with contextlib.redirect_stderr(err), pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert_says(err.getvalue(), *parts)
    assert not (tmp_path / "out").exists()
