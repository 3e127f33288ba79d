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
from otformer.lab.benchmarks.exact_peers import FAMILIES, PEERS, ExactPeer, Plan, make
from otformer.lab.benchmarks.harness import read_csv


def here(family):
    """Peers that are installed and take the family."""
    some = {name: peer for name, peer in PEERS.items() if peer.missing() is None}
    return {name: peer for name, peer in some.items() if family != "weights" or not peer.assigns}


@pytest.mark.parametrize("family", FAMILIES)
def test_problems_are_seeded_and_every_peer_finds_the_same_value(family):
    p, same, other = make(family, 40, seed=1), make(family, 40, seed=1), make(family, 40, seed=2)
    assert p.x.shape == p.y.shape
    assert np.array_equal(p.x, same.x)
    assert not np.array_equal(p.x, other.x)
    assert (p.a is None) == (family != "weights")
    M = ot.dist(p.x, p.y)
    wanted = (ot.emd(*p.weights(), M) * M).sum()
    found = {name: judged(p, peer.read(peer.prepare(p)()), rows=7) for name, peer in here(family).items()}
    assert {"otformer", "otformer matrix", "POT emd", "POT emd2_lazy"} <= set(found)
    for name, said in found.items():
        assert said["value"] == pytest.approx(wanted, rel=1e-9), name
        assert said["gap"] is None or abs(said["gap"]) < 1e-9, name


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
    assert claims(rows) == [
        "- ties, n = 5: 2 times the speed of scipy",
        "- ties, n = 9: 2 times the speed of POT emd, more than 15 times the speed of lapx",
    ]
    lines = table(rows)
    assert all(line.count("|") == lines[0].count("|") for line in lines)
    assert lines[-1] == "| ties | 9 | lapx | > 30 |  |  |  | > 7.5 | over 30 s |"
    assert "| scipy | — |" in lines[-2]


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
