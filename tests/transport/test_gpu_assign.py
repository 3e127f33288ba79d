"""Assignments on a GPU against scipy's: on a CUDA device, and small in Triton's interpreter, which runs this file."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

import otformer as of
from needs import missing
from otformer.transport.costs.gpu.assign import assign
from otformer.transport.ragged.exact_stacks import ON_MATRIX

CHECKS = ("values", "broken")
DRAWS = {
    "uniform": lambda rng, shape: rng.random(shape),
    "ties": lambda rng, shape: rng.integers(-2, 3, shape).astype(float),
    "negative": lambda rng, shape: -1e5 * rng.random(shape) ** 4,
    "far from 0": lambda rng, shape: 1e9 + rng.random(shape),
    "constant": lambda rng, shape: np.ones(shape),
    "forbidden": lambda rng, shape: np.where(rng.random(shape) < 0.4, np.inf, rng.random(shape)),
    "points": lambda rng, shape: np.square(rng.random((*shape[:2], 1, 2)) - rng.random((shape[0], 1, shape[2], 2))).sum(-1),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason=missing("linux"))
def test_in_the_interpreter() -> None:
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    call = [sys.executable, __file__, *CHECKS]
    done = subprocess.run(call, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def check(C: np.ndarray, device: str) -> None:
    """The assignment costs what scipy's does, and its potentials are feasible for all pairs; or there is none."""
    n, given = C.shape[1], torch.from_numpy(C).to(device)
    to, f, g, low, spread, total, gap = (t.cpu().numpy() for t in assign(given))
    for k, cost in enumerate(C):
        try:
            best = cost[linear_sum_assignment(cost)].sum()
        except ValueError:  # there is none
            assert gap[k] == np.inf
            continue
        scale = spread[k] + abs(low[k])
        assert sorted(to[k].tolist()) == list(range(n))
        assert cost[np.arange(n), to[k]].sum() == pytest.approx(best, abs=1e-14 * n * scale)
        assert total[k] + n * low[k] == pytest.approx(best, abs=1e-14 * n * scale)
        assert 0 <= gap[k] <= n * 2.0**-46 * spread[k]
        assert spread[k] == np.ptp(cost[np.isfinite(cost)])
        assert (cost - low[k] - f[k][:, None] - g[k] >= -1e-14 * scale).all()


# Small, in the interpreter.


def values() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 9):
        for draw in DRAWS.values():
            check(draw(rng, (3, n, n)), "cpu")
    check(DRAWS["uniform"](rng, (1, 33, 33)), "cpu")


def broken() -> None:
    """Whatever comes, the kernel ends, and nothing is proved."""
    C = torch.rand(5, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    C[0, 1, 2], C[1, 0, 0], C[2], C[3, :, 4], C[4, :4, :3] = torch.nan, -torch.inf, torch.inf, torch.inf, torch.inf
    *_, spread, _, gap = assign(C)
    assert not bool((gap <= 2.0**-46 * spread * 6).any())
    assert [len(t) for t in assign(C[:0])] == [0] * 7


# Large, on a GPU.


@pytest.mark.gpu
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("n", [1, 2, 31, 64, 65, 200, 512])
def test_equals_scipy(draw: str, n: int) -> None:
    check(DRAWS[draw](np.random.default_rng(n), (200 if n < 100 else 6, n, n)), "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("n", [2, 30, 512])
def test_solve_batch(n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.random((2, 300 if n < 100 else 4, n, 3))
    X, Y = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()
    here, there, moved = (
        of.solve_batch((x, y), reg=0),
        of.solve_batch((X, Y), reg=0),
        of.solve_batch((x, y), reg=0, device="cuda"),
    )
    for r, on_gpu, back in zip(here, there, moved, strict=True):
        assert r.method == on_gpu.method == back.method == ON_MATRIX
        assert float(on_gpu.value) == pytest.approx(r.value, rel=1e-12)
        assert back.value == pytest.approx(r.value, rel=1e-12)
        assert on_gpu.plan.is_cuda
        assert on_gpu.converged
        assert isinstance(back.permutation, np.ndarray)
    C = torch.rand(4, 5, 5, generator=torch.Generator().manual_seed(1)).cuda()
    C[1, 0, 0], C[2, :2, 1:] = torch.nan, torch.inf
    with pytest.raises(of.BrokenProblems, match="problem 1: M must be finite") as raised:
        of.solve_batch(C, reg=0)
    assert list(raised.value.errors) == [1, 2]
    assert raised.value.results[3].value.dtype == torch.float32


@pytest.mark.gpu
def test_broken() -> None:
    C = torch.full((3, 64, 64), torch.nan, dtype=torch.float64, device="cuda")
    C[1], C[2] = -torch.inf, torch.inf
    *_, spread, _, gap = assign(C)
    assert not bool((gap <= 2.0**-46 * spread).any())


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
