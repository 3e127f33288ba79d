"""The benchmark harness: errors are computed, not believed; tables have their columns; bad input is one line."""

from __future__ import annotations

import csv
import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from oracles import squared_cost
from otformer.lab.benchmarks import harness
from otformer.lab.benchmarks.harness import BenchSettings, Row, bench, read_csv, with_ratios
from otformer.lab.benchmarks.measure import attempt, marginal_error, single, tuned
from otformer.lab.benchmarks.peers import PEERS, Answer, Peer
from otformer.lab.benchmarks.problems import FAMILIES, make, sentences
from otformer.lab.benchmarks.report import claims, exponents, table

HERE = [name for name, peer in PEERS.items() if peer.missing() is None]


@pytest.mark.parametrize("family", FAMILIES)
def test_problems_are_scaled_seeded_and_agree_with_their_points(family):
    p, same, other = make(family, 30, seed=1), make(family, 30, seed=1), make(family, 30, seed=2)
    assert p.C.shape == (30, 30)
    assert p.C.max() == 1
    assert p.C.min() >= 0
    assert p.a.sum() == pytest.approx(1)
    assert np.array_equal(p.C, same.C)
    assert not np.array_equal(p.C, other.C)
    if p.x is not None:
        assert np.allclose(squared_cost(p.x, p.y), p.C, atol=1e-12)


def test_sentences_are_ragged():
    shapes = np.array([p.C.shape for p in sentences(200)])
    assert shapes.min() >= 3
    assert shapes.max() <= 60
    assert len(np.unique(shapes)) > 40


def test_error_is_that_of_the_plan_in_float64():
    p = make("uniform-2d", 40)
    rng = np.random.default_rng(0)
    f, g = rng.standard_normal(40), rng.standard_normal(40)
    P = np.exp(f[:, None] + g[None, :] - p.C / 0.1)
    expected = np.abs(P.sum(1) - p.a).sum() + np.abs(P.sum(0) - p.b).sum()
    assert marginal_error(p, Answer(f, g), 0.1, rows=7) == pytest.approx(expected, rel=1e-12)


def test_error_of_numbers_that_are_not_is_infinite_and_of_wrong_shapes_an_error():
    p = make("random", 5)
    assert marginal_error(p, Answer(np.full(5, np.nan), np.zeros(5)), 0.1) == math.inf
    with pytest.raises(ValueError, match="must have shapes"):
        marginal_error(p, Answer(np.zeros(4), np.zeros(5)), 0.1)


def test_a_peer_that_lies_is_caught():
    """It says it took two passes and is done, whatever the tolerance."""
    liar = Peer("liar", "torch", lambda p, reg, tol, effort: lambda: Answer(np.log(p.a), np.log(p.b), 2))
    with pytest.raises(RuntimeError, match="computed error"):
        tuned(liar, make("uniform-2d", 20), 0.1, 1e-6)


def test_a_peer_with_its_own_idea_of_tolerance_works_until_it_arrives():
    """POT asked for 50 times too little arrives after its tolerance has been tightened, and not before."""
    pot = PEERS["POT sinkhorn_log"]
    lazy = Peer("lazy", "ot", lambda p, reg, tol, effort: pot.prepare(p, reg, 50 * tol, effort))
    problem = make("gaussian-10d", 30)
    assert attempt(lazy, problem, 0.02, 1e-6, 1.0).error > 1e-6
    run = tuned(lazy, problem, 0.02, 1e-6)
    assert run.error < 1e-6
    assert run.effort > 1


def test_a_peer_stricter_than_asked_is_given_a_looser_tolerance():
    pot, problem = PEERS["POT sinkhorn"], make("uniform-2d", 60)
    strict = Peer("strict", "ot", lambda p, reg, tol, effort: pot.prepare(p, reg, tol / 50, effort))
    usual, run = tuned(pot, problem, 0.02, 1e-6), tuned(strict, problem, 0.02, 1e-6)
    assert run.error < 1e-6
    assert run.effort < 0.1
    assert run.passes == usual.passes < strict.prepare(problem, 0.02, 1e-6, 1.0)().passes


def test_iterations_are_cut_to_what_is_needed():
    """A peer that needs 100 iterations exactly, and has no tolerance."""
    problem = make("random", 10)
    exact = PEERS["POT sinkhorn_log"].prepare(problem, 0.1, 1e-12, 1.0)()

    def prepare(p, reg, tol, effort):
        return lambda: Answer(exact.f + 10.0 ** (-6.5 * effort / 100), exact.g, effort)

    run = tuned(Peer("counter", "torch", prepare, counts=True), problem, 0.1, 1e-6)
    assert run.error < 1e-6
    needed = -math.log10(0.5e-6) / 6.5 * 100  # Σ|P − a| + Σ|P − b| = 2 (e^δ − 1) < 1e-6
    assert needed <= run.effort < 1.15 * needed


ARRIVE = [name for name in HERE if not PEERS[name].counts or name == "GeomLoss loop"]  # others cannot reach 1e-6


@pytest.mark.parametrize("name", ARRIVE)
@pytest.mark.parametrize(("n", "reg"), [(25, 0.05), (40, 0.2)])
def test_every_installed_peer_arrives(name, n, reg):
    run = tuned(PEERS[name], make("uniform-2d", n), reg, 1e-6)
    assert run.error < 1e-6
    assert run.cpu > 0


def test_peers_agree_on_the_plan():
    problem, reg = make("clustered", 20), 0.1
    plans = []
    for name in HERE[:4]:
        answer = PEERS[name].prepare(problem, reg, 1e-9, 1.0)()
        plans.append(np.exp(answer.f[:, None] + answer.g - problem.C / reg))
    for plan in plans[1:]:
        assert np.allclose(plan, plans[0], atol=1e-9)


@pytest.mark.slow
def test_bench_writes_csv_table_and_figure_and_adds_to_them(tmp_path: Path):
    shares: list[float] = []
    one = {"n": (16,), "families": ("random",), "peers": ("otformer",), "rounds": 1, "limit": 20}
    bench("cpu", tmp_path, BenchSettings(regs=(0.2, 0.1), progress=shares.append, **one))
    assert shares == [0.5, 1.0]
    bench("cpu", tmp_path, BenchSettings(regs=(0.1,), **one))
    second = BenchSettings(n=(16,), regs=(0.1,), families=("random",), peers=("POT sinkhorn",), rounds=1, limit=20)
    rows = bench("cpu", tmp_path, second, append=True)
    assert [r.peer for r in rows] == ["otformer", "POT sinkhorn"]
    assert rows[1].ratio == 1
    assert rows[0].ratio == pytest.approx(rows[0].time / rows[1].time)
    assert all(r.error < 1e-6 for r in rows)
    with (tmp_path / "cpu.csv").open() as file:
        assert next(csv.reader(file)) == [f.name for f in fields(Row)]
    assert read_csv(tmp_path / "cpu.csv", Row) == rows
    assert "| random | 16 | 0.1 | **otformer** |" in (tmp_path / "cpu.md").read_text()
    assert (tmp_path / "cpu.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_solve_over_the_limit_is_a_lower_bound_not_an_answer(tmp_path: Path):
    s = BenchSettings(n=(400,), regs=(0.0005,), families=("gaussian-10d",), peers=("POT sinkhorn_log",), rounds=2, limit=0.5)
    (row,) = bench("cpu", tmp_path, s)
    assert row.note == "over 0.5 s"
    assert math.isnan(row.error)
    assert "> 0.5" in table([row])[-1]


def test_a_repeat_that_misses_the_tolerance_is_refused():
    spec = {"peer": "POT sinkhorn_log", "family": "gaussian-10d", "n": 30, "seed": 0, "reg": 0.02, "tol": 1e-6}
    with pytest.raises(RuntimeError, match="in a repeat"):
        single(spec | {"limit": 60, "effort": 1e-4})


def test_ratios_are_to_the_best_peer_that_arrived():
    row = ("cpu", "random", 10, 0.1)
    failed = Row(*row, "POT sinkhorn", 3.0, note="computed error inf at 1 times the effort")
    late = Row(*row, "POT sinkhorn_log", 30.0, note="over 30 s")
    rows = with_ratios([Row(*row, "otformer", 1.0, error=1e-7), failed, late, Row(*row, "mdot_tnt", 4.0, error=1e-7)])
    assert [r.ratio for r in rows] == [0.25, pytest.approx(math.nan, nan_ok=True), 7.5, 1.0]
    lines = table(rows)
    assert "| — |" in lines[3]  # no time, no ratio
    assert "| > 30 |" in lines[4]
    assert "more than 30 times the speed of POT sinkhorn_log, 4 times the speed of mdot_tnt" in claims(rows)[0]


def test_exponents_are_slopes():
    rows = [Row("scaling", "words", n, 0.1, "otformer", 1e-9 * n**2.5, memory=3.0 * n, error=1e-7) for n in (10, 40, 160)]
    assert exponents(rows)[-1] == "| words | 0.1 | otformer | 2.50 | 1.00 | 10–160 |"


def test_effort_of_a_small_problem_is_enough_and_not_twice_too_much():
    pot, problem = PEERS["POT sinkhorn"], make("gaussian-10d", 20)
    lazy = Peer("lazy", "ot", lambda p, reg, tol, effort: pot.prepare(p, reg, 1000 * tol, effort))
    effort = tuned(lazy, problem, 0.02, 1e-6).effort
    errors = [marginal_error(problem, lazy.prepare(problem, 0.02, 1e-6, e)(), 0.02) for e in (effort / 2, effort)]
    assert errors[0] >= 1e-6 > errors[1]


@pytest.mark.slow
def test_ragged_sentences_ours_equal_a_loop_over_pot(tmp_path: Path):
    rows = bench("ragged", tmp_path, BenchSettings(count=60, rounds=1))
    assert [r.peer for r in rows] == ["otformer", "POT sinkhorn"]
    assert all(r.error < 1e-6 for r in rows)
    gap = float(rows[1].note.rsplit(" ", 1)[1])
    assert gap < 1e-6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bench("gpu", "x"), "scenario must be one of cpu, small, ragged, scaling, got 'gpu'"),
        (lambda: BenchSettings(families=("cube",)), "families must be one of uniform-2d, .* got 'cube'"),
        (lambda: BenchSettings(peers=("Gurobi",)), "peers must be one of otformer, .* got 'Gurobi'"),
        (lambda: BenchSettings(regs=(0.0,)), "regs must be a positive"),
        (lambda: BenchSettings(rounds=0), "rounds must be a whole number of at least 1"),
        (lambda: BenchSettings(n=(1,)), "n must be a whole number of at least 2"),
        (lambda: make("cube", 5), "family must be one of"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_peer_that_is_not_installed_is_told(monkeypatch):
    monkeypatch.setitem(harness.PEERS, "ghost", Peer("ghost", "no_such_package", PEERS["otformer"].prepare))
    told: list[str] = []
    assert BenchSettings(peers=("ghost", "otformer"), tell=told.append).installed_peers() == ["otformer"]
    assert told == ["ghost: no_such_package is not installed"]
