"""The k least reduced costs of every row and column: against brute force in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from otformer.transport.costs.clouds import Rule
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.costs.point_pairs import PointPairs

RULES = [(root, same) for root in (False, True) for same in (None, True, False)]  # None: no labels


def matrix(x: np.ndarray, y: np.ndarray, rule: Rule) -> np.ndarray:
    """All costs, summed one coordinate after the other."""
    C = sum((a[:, None] - b) ** 2 for a, b in zip(x.T, y.T, strict=True))
    C = np.sqrt(C) if rule.root else C
    if rule.labels is None:
        return C
    return np.where((rule.labels[0].numpy()[:, None] == rule.labels[1].numpy()) == rule.same, C, np.inf)


def rule_of(root: bool, same: bool | None, n: int, m: int, rng: np.random.Generator, kinds: int = 4) -> Rule:
    """Labels 0 … on one side and 1 … on the other: some have no counterpart."""
    labels = torch.from_numpy(rng.integers(0, kinds, n)), torch.from_numpy(rng.integers(1, kinds + 1, m))
    return Rule(root) if same is None else Rule(root, labels, same)


def check(pairs: Any, C: np.ndarray, potentials: tuple[np.ndarray, np.ndarray], k: int) -> None:
    """Values are those of a sort, each that of its place, to the last bit; places are different, −1 where there is none."""
    assert pairs.shape == C.shape
    for rows, c, h in ((True, C, potentials[1]), (False, C.T, potentials[0])):
        values, places = pairs.least(h, k, rows)
        assert values.shape == places.shape == (len(c), k)
        assert (values.dtype, places.dtype) == (np.float64, np.int64)
        found = places >= 0
        counts = np.minimum(np.isfinite(c).sum(1), k)
        np.testing.assert_array_equal(found, np.arange(k) < counts[:, None])
        assert np.isposinf(values[~found]).all()
        assert (places[~found] == -1).all()
        own = np.broadcast_to(np.arange(len(c))[:, None], places.shape)[found]
        at = (own, places[found]) if rows else (places[found], own)
        np.testing.assert_array_equal(values[found], pairs.costs(*at) - h[places[found]])
        assert len(np.unique(own * c.shape[1] + places[found])) == len(own)
        least = np.sort(c - h, 1)[:, :k]
        np.testing.assert_array_equal(values[:, : least.shape[1]], least)
        np.testing.assert_array_equal(pairs.costs(*at), C[at])


def potentials(x: np.ndarray, y: np.ndarray, rng: np.random.Generator, steep: float) -> tuple[np.ndarray, np.ndarray]:
    """Rough and steep: lines, bends and noise."""
    out = []
    for points in (x, y):
        mid = points - points.mean(0)
        bend = mid @ rng.standard_normal(points.shape[1]) + (mid * mid).sum(1)
        out.append(steep * bend + 0.01 * rng.random(len(points)))
    return out[0], out[1]


@pytest.mark.parametrize("k", [1, 3, 12])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 40), (33, 5), (70, 131), (300, 257)])
def test_a_matrix(n, m, k):
    rng = np.random.default_rng(n * m + k)
    C = rng.standard_normal((n, m))
    u, v = rng.standard_normal(n), rng.standard_normal(m)
    check(MatrixCost(C), C, (u, v), k)
    check(MatrixCost(np.asfortranarray(C)), C, (u, v), k)
    holes = np.where(rng.random((n, m)) < 0.9, np.inf, C)
    check(MatrixCost(holes), holes, (u, v), k)
    holes[: n // 2], holes[:, m // 2 :] = np.inf, np.inf  # rows and columns without a pair
    check(MatrixCost(holes), holes, (u, v), k)


@pytest.mark.parametrize("k", [1, 12])
def test_a_matrix_with_ties_and_in_any_order(k):
    rng = np.random.default_rng(0)
    t = np.sort(rng.random(200))
    zero = np.zeros(200), np.zeros(200)
    for C in (rng.integers(0, 3, (200, 200)) * 1.0, np.zeros((200, 200)), (t[:, None] - t) ** 2, (t[:, None] + t[::-1])):
        check(MatrixCost(C), C, zero, k)
        check(MatrixCost(C), C, (-9 * t, 9 * t), k)


@pytest.mark.parametrize(("root", "same"), RULES)
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 9, 20, 64])
def test_points(d, root, same):
    rng = np.random.default_rng(d)
    for n, m, k in ((1, 1, 2), (3, 200, 12), (150, 5, 12), (700, 500, 12), (500, 700, 1)):
        x, y = rng.standard_normal((n, d)), 1 + rng.random((m, d))
        rule = rule_of(root, same, n, m, rng)
        for steep in (0.0, 0.3, 2.0, 50.0):
            check(PointPairs(x, y, rule), matrix(x, y, rule), potentials(x, y, rng, steep), k)


def shapes(rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Clouds of 400 and 300 points that boxes, curves or rounding might not like."""
    x, y, line = rng.random((400, 3)), rng.random((300, 3)), np.array([1.0, -2.0, 0.5])
    turn = rng.random(300) * 2 * np.pi
    return {
        "one point": (np.full((400, 2), 0.3), np.full((300, 2), 0.3)),
        "duplicates": (x[rng.integers(0, 9, 400)], x[rng.integers(0, 9, 300)]),
        "grid": (rng.integers(0, 4, (400, 3)) * 1.0, rng.integers(0, 4, (300, 3)) * 1.0),
        "collinear": (x[:, :1] * line, y[:, :1] * line),
        "flat": (x * [1, 1e-9, 0], y * [1, 1e-9, 0]),
        "far from 0": (x + 1e7, y + 1e7),
        "far apart": (x, y - 1e5),
        "large": (x * 1e120, y * 1e120),
        "small": (x * 1e-120, y * 1e-120),
        "clusters": (x * 1e-6 + rng.integers(0, 3, (400, 1)), y * 1e-6 + rng.integers(0, 3, (300, 1))),
        "ring": (0.3 * rng.standard_normal((400, 2)), np.stack([np.cos(turn), np.sin(turn)], 1)),
    }


@pytest.mark.parametrize(("root", "same"), RULES)
@pytest.mark.parametrize("name", shapes(np.random.default_rng(0)))
def test_points_of_unpleasant_shapes(name, root, same):
    rng = np.random.default_rng(0)
    x, y = shapes(rng)[name]
    rule = rule_of(root, same, len(x), len(y), rng)
    pairs, C = PointPairs(x, y, rule), matrix(x, y, rule)
    check(pairs, C, (np.zeros(len(x)), np.zeros(len(y))), 12)
    bare = matrix(x, y, Rule(root))
    v = bare.min(0)
    for _ in range(3):  # as potentials of transport are: tight, where rounding decides
        u = (bare - v).min(1)
        v = (bare - u[:, None]).min(0)
        check(pairs, C, (u, v), 12)
        check(pairs, C, (3 * u, -v), 1)


@pytest.mark.parametrize("same", [True, False])
def test_points_with_a_label_each(same):
    rng = np.random.default_rng(0)
    x, y = rng.random((150, 2)), rng.random((140, 2))
    rule = rule_of(False, same, 150, 140, rng, kinds=1000)
    check(PointPairs(x, y, rule), matrix(x, y, rule), potentials(x, y, rng, 1.0), 3)
