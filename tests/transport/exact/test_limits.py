"""What is around a solve: time that is up, and processes that are forked."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import otformer as of
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.costs.point_pairs import PointPairs
from otformer.transport.problem.read import read_cost

FORK = """
    import os, signal, sys
    import numpy as np, otformer as of
    x, y = np.random.default_rng(0).random((2, {n}, 3))
    of.solve_sample(x, y, reg=0)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends a child that waits for threads it does not have
        os._exit(0 if of.solve_sample(x, y, reg=0).converged else 3)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("n", [600, 2000])
def test_a_forked_process_solves(n):
    """In a process of its own, with two threads; 2,000 points are enough for both of them."""
    script = "import torch; torch.set_num_threads(2)\n" + textwrap.dedent(FORK.format(n=n))
    done = subprocess.run([sys.executable, "-c", script], timeout=120, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def problem(kind, n):
    rng = np.random.default_rng(0)
    x, y = rng.random((2, n, 20 if kind == "many dimensions" else 3))
    if kind == "ring":  # and a Gaussian: the start has layers on all points
        x, turn = 0.3 * rng.standard_normal((n, 2)), 2 * np.pi * rng.random(n)
        y = np.stack([np.cos(turn), np.sin(turn)], 1)
    return x, y, rng.dirichlet(np.ones(n)) if kind == "weights" else None


@pytest.mark.parametrize("kind", ["points", "weights", "many dimensions", "ring", "matrix"])
def test_time_is_kept(kind):
    """Seconds of this process beside max_time: 0.2 and, twice, reading and a look at all pairs; plan and bound are true."""
    limit, matrix = 0.05, kind == "matrix"
    x, y, a = problem(kind, 4000)
    C = cdist(x, y, "sqeuclidean") if matrix else np.zeros((4000, 1))

    def solve(m, seconds):
        if matrix:
            return of.solve(C[:m, :m], reg=0, max_time=seconds)
        return of.solve_sample(x[:m], y[:m], None if m < 4000 else a, reg=0, executor="stream", max_time=seconds)

    solve(600, 60)  # compiled
    began = time.process_time()
    pairs = MatrixCost(read_cost(C).cost.dense.numpy()) if matrix else PointPairs(x, y)
    pairs.least(np.zeros(4000), 12, rows=True)
    look = time.process_time() - began
    began = time.process_time()
    with pytest.warns(RuntimeWarning, match="not proved optimal"):
        r = solve(4000, limit)
    assert time.process_time() - began < limit + 0.2 + 2 * look
    assert r.marginal_error < 1e-12
    assert r.bound < r.value
    assert r.gap == pytest.approx(r.value - r.bound)
