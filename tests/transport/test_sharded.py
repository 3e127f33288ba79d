"""Ranks against one process, POT, bad input and each other's death. Two launches, shared by all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import otformer as of
from helpers.sharded_worker import CASES, RANKS, Case
from oracles import marginal_error, pot_plan, squared_cost
from otformer.network.schedule import named
from otformer.transport.costs.distances import squared_distances
from otformer.transport.costs.matrix import Dense
from otformer.transport.costs.ranks import Sharded
from otformer.transport.sharded import solve_sharded
from otformer.transport.solvers.network import run

WORKER = Path(__file__).parents[1] / "helpers" / "sharded_worker.py"
LOOPBACK = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]


def _python(*arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=LOOPBACK, capture_output=True, text=True, timeout=100)


def _found(out: Path, ended: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    files = [out / f"{rank}.pt" for rank in range(RANKS)]
    assert all(file.exists() for file in files), ended.stderr
    return [torch.load(file, weights_only=False, map_location="cpu") for file in files]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], subprocess.CompletedProcess[str]]:
    """What every rank found, and how the torchrun job ended (rank 2 kills itself when all is found)."""
    out = tmp_path_factory.mktemp("ranks")
    ended = _python(*TORCHRUN, WORKER, "all", out)
    return _found(out, ended), ended


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_ranks_equal_one_process(job: Any, name: str) -> None:
    _check_against_one_process(job[0], name)


def _one_process(case: Case) -> Any:
    """The same problem, all rows on one rank; its value is that of `solve_sample`."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        one = solve_sharded(*case.problem(), reg=case.reg, tol=case.tol)
    finally:
        dist.destroy_process_group()
    alone = of.solve_sample(*case.problem(), reg=case.reg, tol=case.tol)
    assert one.value == pytest.approx(float(alone.value), rel=0, abs=10 * case.tol)
    return one


def test_the_error_is_that_from_the_weights_given_and_little_mass_is_no_excuse() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((10, 2)), rng.random((12, 2))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.warns(RuntimeWarning, match="not converged"):
            r = solve_sharded(x, y, np.full(10, 0.1), np.full(12, 1 / 12) * (1 + 8e-6), reg=0.1)
        assert r.marginal_error == pytest.approx(8e-6, rel=0.1)
        little = solve_sharded(x, y, np.full(10, 1e-9), np.full(12, 1e-8 / 12), reg=0.1)
        assert little.converged
        assert little.marginal_error < 1e-14
    finally:
        dist.destroy_process_group()


def _check_against_one_process(found: list[dict[str, Any]], name: str) -> None:
    case = CASES[name]
    one = _one_process(case)
    ranks = [rank["solved"][name] for rank in found]
    near = {"rtol": 0, "atol": 1e-10 if case.dtype == torch.float64 else 1e-6}
    torch.testing.assert_close(torch.cat([r.potentials[0] for r in ranks]), one.potentials[0], **near)
    for r, rows in zip(ranks, case.shards, strict=True):
        assert r.potentials[0].shape == (rows,)
        torch.testing.assert_close(r.potentials[1], one.potentials[1], **near)
        assert r.value == pytest.approx(float(one.value), rel=0, abs=near["atol"])
        assert r.marginal_error == pytest.approx(one.marginal_error, rel=0, abs=near["atol"])
        assert (r.converged, r.depth) == (True, one.depth)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.dtype == torch.float64])
def test_gathered_plan_has_the_claimed_error_and_value_and_is_pots(job: Any, name: str) -> None:
    case = CASES[name]
    x, y, a, b = (None if t is None else t.numpy() for t in case.problem())
    a, b = np.full(len(x), 1 / len(x)) if a is None else a, np.full(len(y), 1 / len(y)) if b is None else b
    ranks = [found["solved"][name] for found in job[0]]
    u, v, C = np.concatenate([r.potentials[0] for r in ranks]), ranks[0].potentials[1].numpy(), squared_cost(x, y)
    P = np.exp((u[:, None] + v - C) / case.reg - 1)
    error = marginal_error(P, a, b)
    assert error < case.tol
    assert ranks[0].marginal_error == pytest.approx(error, rel=0, abs=1e-13)
    assert ranks[0].value == pytest.approx((P * C).sum() + case.reg * (P[P > 0] * np.log(P[P > 0])).sum(), rel=0, abs=1e-13)
    kept = np.ix_(a > 0, b > 0)
    assert abs(P - pot_plan(C, a, b, case.reg)).max() < 10 * case.tol
    assert P.sum() == pytest.approx(P[kept].sum())  # nothing goes where there is no mass


@pytest.mark.slow
def test_what_ranks_share_is_the_same_to_the_last_bit(job: Any) -> None:
    for name in CASES:
        first, *others = [found["solved"][name] for found in job[0]]
        for r in others:
            assert torch.equal(r.potentials[1], first.potentials[1])
            assert (r.value, r.marginal_error, r.depth) == (first.value, first.marginal_error, first.depth)


@pytest.mark.slow
def test_a_fixed_weight_network_runs_on_ranks(job: Any) -> None:
    x, y, _, _ = CASES["uneven"].problem()
    whole = Dense(squared_distances(x, y), x.new_zeros(len(x)), y.new_zeros(len(y)))
    u, v = list(run(whole, named("gradient").layers(0.1, 50)))[-1]
    torch.testing.assert_close(torch.cat([found["fixed"][0] for found in job[0]]), u, rtol=0, atol=1e-13)
    for found in job[0]:
        torch.testing.assert_close(found["fixed"][1], v, rtol=0, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    {
        "nan": "rank 2: X_a_local must be finite, got nan at index (0, 0)",
        "dimension": "rank 2: X_a_local and X_b must have the same dimension, got (5, 3) and (80, 2)",
        "both dimensions": "ranks must agree, but rank 0 has X_b (80, 2) float64",
        "other targets": "ranks must agree, but rank 0 has X_b (80, 2) float64",
        "dtype": "ranks must agree, but rank 0 has X_b (80, 2) float64",
        "reg": "ranks must agree",
        "bad reg": "rank 2: reg must be a positive, finite number, got -1.0",
        "weights on one": "ranks must agree",
        "negative weight": "rank 2: a_local must not be negative, got -0.05",
        "mass": "a and b must have the same sum, got 1.25 and 1",
        "nothing": "X_a_local must have points on at least one rank",
        "object": "rank 2: X_a_local must be an array of numbers, got object",
    }.items(),
)
def test_bad_input_on_one_rank_is_an_error_on_all(job: Any, name: str, message: str) -> None:
    said = [found["refused"][name] for found in job[0]]
    assert said[0].startswith(message)
    assert said == [said[0]] * RANKS
    assert "\n" not in said[0]


@pytest.mark.slow
def test_ranks_that_drift_apart_find_out(job: Any) -> None:
    said = [found["disagree"] for found in job[0]]
    assert said[0].startswith("ranks disagree: sum of v")
    assert said == [said[0]] * RANKS


@pytest.mark.slow
def test_torchrun_ends_when_a_rank_is_killed(job: Any) -> None:
    ended = job[1]
    assert ended.returncode != 0
    root = ended.stderr.split("Root Cause")[1]
    assert "rank      : 2 " in root
    assert "SIGKILL" in root


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plain")
    ended = _python(WORKER, "plain", out)
    assert ended.returncode == 0, ended.stderr
    return out


@pytest.mark.slow
@pytest.mark.parametrize(("rank_2", "reason"), [("dead", "peer"), ("silent", "imed out")])
def test_without_a_launcher_the_others_leave_by_themselves(plain: Path, rank_2: str, reason: str) -> None:
    """By the closed connection, or by our timeout (gloo's own is 30 minutes), or since a neighbour has left so."""
    last = {}
    for rank in (0, 1, 3):
        status, seconds = (plain / rank_2 / f"{rank}.end").read_text().split()
        assert int(status) == 1
        assert float(seconds) < 30
        last[rank] = (plain / rank_2 / f"{rank}.err").read_text().strip().splitlines()[-1]
        assert f"RuntimeError: a rank stopped answering; heard by rank {rank} of {RANKS}: " in last[rank]
    assert any(reason in line for line in last.values())


def test_without_a_process_group() -> None:
    nothing = torch.zeros(1, dtype=torch.float64)
    with pytest.raises(ValueError, match="group must be a process group, got none"):
        Sharded(Dense(nothing[None], nothing, nothing))


@pytest.mark.gpu
def test_four_ranks_on_one_gpu_equal_one_process_on_the_cpu(tmp_path: Path) -> None:
    found = _found(tmp_path, _python(*TORCHRUN, WORKER, "cuda", tmp_path))
    for name in CASES:
        _check_against_one_process(found, name)


@pytest.mark.gpu
def test_nccl() -> None:
    """One rank: nccl wants a GPU for each."""
    case = CASES["weights, some 0"]
    one = _one_process(case)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    try:
        r = solve_sharded(*(t.cuda() for t in case.problem()), reg=case.reg, tol=case.tol)
        with pytest.raises(ValueError, match="rank 0: X_a_local must be on a CUDA device in an nccl group, got cpu"):
            solve_sharded(*case.problem(), reg=case.reg)
    finally:
        dist.destroy_process_group()
    for ours, theirs in zip(r.potentials, one.potentials, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=1e-10)
    assert (r.converged, float(r.value)) == (True, pytest.approx(float(one.value), rel=0, abs=1e-10))
