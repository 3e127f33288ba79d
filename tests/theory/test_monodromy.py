"""The remark on LayerNorm after theorem X of docs/exactness.md: loops move six branches of the plan for n = 3.

Measured by Newton's method along paths, not proved.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

import oracles

Array = np.ndarray
BASE = 0.7
LOOPS = (
    (1.011 - 1.173j, 1.439 + 0.815j, 0.997 + 0.402j),
    (-0.004 - 0.248j, 0.469 + 1.165j, 0.707 + 0.906j),
    (0.237 + 0.098j, -0.783 - 1.105j, 0.851 - 0.615j),
    (-0.030 + 0.806j, 1.377 - 0.311j, 0.928 - 1.334j),
    (0.601 + 0.174j, 0.299 - 1.468j, 1.398 - 1.076j),
)


def kernel(s: complex) -> Array:
    """e^{−C} of x = (0, s, 0.9), y = (0, 0.5, 1.3s), λ = 1."""
    x, y = np.array([0, s, 0.9]), np.array([0, 0.5, 1.3 * s])
    return np.exp(-((x[:, None] - y) ** 2))


def matrices(w: Array, K: Array) -> Array:
    """diag(1, w_1, w_2) K diag(w_3, w_4, w_5), [B, 3, 3]."""
    left = np.concatenate([np.ones((len(w), 1)), w[:, :2]], 1)
    return left[:, :, None] * K * w[:, None, 2:]


def newton(w: Array, K: Array, steps: int) -> tuple[Array, Array]:
    """Newton's method in log w for five of the six marginals, and the last step, [B]."""
    for _ in range(steps):
        M = matrices(w, K)
        rows, columns = M.sum(2), M.sum(1)
        J = np.zeros((len(w), 5, 5), complex)
        J[:, :3, 2:], J[:, 3:, :2] = M, M[:, 1:, :2].swapaxes(1, 2)
        J[:, (1, 2), (0, 1)], J[:, (3, 4), (2, 3)] = rows[:, 1:], columns[:, :2]
        step = np.linalg.solve(J, np.concatenate([rows - 1, columns[:, :2] - 1], 1)[..., None])[..., 0]
        w = w * np.exp(-step / np.maximum(1, np.abs(step)))
    return w, np.abs(step).max(1)


def branches() -> Array:
    """All solutions at the base point, from random starts."""
    random, found = np.random.default_rng(0), list[Array]()
    w, last = newton(np.exp(random.normal(size=(2000, 5)) + 2j * np.pi * random.random((2000, 5))), kernel(BASE), 60)
    for each in w[last < 1e-10]:
        if all(np.abs(each - other).max() > 1e-6 for other in found):
            found.append(each)
    return np.array(sorted(found, key=lambda each: float(matrices(each[None], kernel(BASE))[0, 0, 0].real)))


def moved(start: Array, corners: tuple[complex, ...]) -> tuple[int, ...]:
    """Where the branches are after a loop through these corners."""
    path, w = [BASE, *corners, BASE], start
    for a, b in pairwise(path):
        for s in np.linspace(a, b, 500):
            w, last = newton(w, kernel(s), 4)
            assert last.max() < 1e-6
    apart = np.abs(w[:, None] - start).max(2)
    assert apart.min(1).max() < 1e-6
    return tuple(int(k) for k in apart.argmin(1))


def test_x_six_branches_and_loops_that_generate_all_720_permutations() -> None:
    found = branches()
    M = matrices(found, kernel(BASE))
    assert len(found) == 6
    assert np.abs(M.sum(1) - 1).max() < 1e-9
    plan = oracles.pot_plan(-np.log(kernel(BASE)), np.ones(3), np.ones(3), 1.0)
    assert np.abs(M - plan).max((1, 2)).min() < 1e-8  # the plan is one of them
    loops = [moved(found, corners) for corners in LOOPS]
    assert all(len(set(p)) == 6 for p in loops)
    group = new = {tuple(range(6))}
    while new:
        new = {tuple(p[k] for k in g) for g in new for p in loops} - group
        group = group | new
    assert len(group) == 720
