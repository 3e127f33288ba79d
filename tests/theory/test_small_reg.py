"""Theorems T and U of docs/exactness.md: the limit of P*_λ, and its rate if P* is unique, against all permutations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import permutations

import numpy as np
import pytest

import oracles
from otformer import solve

Array = np.ndarray
Record = Callable[[str, object], None]


def balanced(M: Array) -> Array:
    """The doubly stochastic scaling of a matrix of total support."""
    for _ in range(20_000):
        M = M / M.sum(1, keepdims=True)
        M = M / M.sum(0)
        if np.abs(M.sum(1) - 1).max() < 1e-14:
            break
    return M


def ordered(C: Array) -> tuple[Array, float]:
    """The columns of C in the order of the optimum, and ρ: the least excess of another permutation, per row of a cycle."""
    n = len(C)
    tried = list(permutations(range(n)))
    best = min(tried, key=lambda p: sum(C[i, p[i]] for i in range(n)))
    C = C[:, best]
    excess = C - np.diag(C)[:, None]  # W_ik
    cycles = [[i for i in range(n) if p[i] != i] for p in tried]
    single = [(p, moved) for p, moved in zip(tried, cycles, strict=True) if moved and is_cycle(p, moved)]
    return np.array(best), min(sum(excess[i, p[i]] for i in moved) / len(moved) for p, moved in single)


def is_cycle(p: tuple[int, ...], moved: list[int]) -> bool:
    at, seen = p[moved[0]], 1
    while at != moved[0]:
        at, seen = p[at], seen + 1
    return seen == len(moved)


def plans(count: int) -> Iterator[Array]:
    """Positive doubly stochastic matrices, means of all permutations with weights of many sizes. Each is P*_1 of −log P."""
    for seed in range(count):
        random = np.random.default_rng(seed)
        n = int(random.integers(2, 6))
        matrices = np.array([np.eye(n)[list(p)] for p in permutations(range(n))])
        weights = 10.0 ** (random.uniform(0, 8) * -random.random(len(matrices)))
        weights[0] += 10.0 ** random.uniform(-2, 2)
        yield np.einsum("k,kij->ij", weights / weights.sum(), matrices)


# U: the rate


def test_u_the_distance_is_between_the_two_bounds(record_property: Record) -> None:
    """1,200 problems with λ = 1, made from their solutions; gauges do not enter ρ."""
    nearest = {"low": 0.0, "high": 0.0}
    for P in plans(1200):
        n = len(P)
        gauge = np.add.outer(np.sin(np.arange(n)), np.cos(np.arange(n)))
        best, rho = ordered(gauge - np.log(P))
        D = P[:, best]
        off = 2 * float(D[~np.eye(n, dtype=bool)].sum())
        low, high = 4 * math.exp(-rho) * D.diagonal().min(), 2 * n * (n - 1) * math.exp(-rho)
        assert low * (1 - 1e-9) <= off <= high * (1 + 1e-9)
        nearest = {"low": max(nearest["low"], low / off), "high": max(nearest["high"], off / high)}
    record_property("problems", 1200)
    record_property("largest ratio", float(min(nearest.values())))
    assert nearest["low"] > 1 - 1e-9  # n = 2 attains it


@pytest.mark.parametrize("n", [2, 3, 6])
def test_u_both_bounds_are_attained(n: int) -> None:
    """C = 1 − I, ρ = 1: P_ij = P_ii e^{−1/λ} for i ≠ j. The upper bound to first order, for every n; the lower for n = 2."""
    for reg in (0.3, 0.1):
        C, ones = 1 - np.eye(n), np.ones(n)
        P = oracles.pot_plan(C, ones, ones, reg)
        off, high = float(np.abs(P - np.eye(n)).sum()), 2 * n * (n - 1) * math.exp(-1 / reg)
        assert ordered(C)[1] == pytest.approx(1)
        assert off / high == pytest.approx(1 / (1 + (n - 1) * math.exp(-1 / reg)), rel=1e-6)
        if n == 2:
            assert off == pytest.approx(4 * math.exp(-1 / reg) * P[0, 0], rel=1e-6)


def test_u_the_hypothesis_is_needed() -> None:
    """Two optimal permutations: ρ = 0, and the distance to either does not fall."""
    C, ones = np.zeros((2, 2)), np.ones(2)
    assert ordered(C)[1] == 0
    for reg in (1.0, 0.01):
        assert np.abs(oracles.pot_plan(C, ones, ones, reg) - np.eye(2)).sum() == pytest.approx(2)


# T: ties


def test_t_the_limit_is_the_scaling_of_the_optimal_support(record_property: Record) -> None:
    """1,000 costs of whole numbers with ties: P*_λ against diag(p) 1_E diag(q), E from all optimal permutations."""
    found, seed = 0, 0
    while found < 1000:
        random = np.random.default_rng([5, seed])
        seed += 1
        n = int(random.integers(3, 5))
        C = random.integers(0, 3, (n, n)).astype(float)
        tried = list(permutations(range(n)))
        costs = [sum(C[i, p[i]] for i in range(n)) for p in tried]
        optimal = [p for p, cost in zip(tried, costs, strict=True) if cost == min(costs)]
        if len(optimal) < 3:
            continue
        found += 1
        E = np.zeros((n, n))
        for p in optimal:
            E[range(n), p] = 1
        P = np.asarray(solve(C, np.ones(n), np.ones(n), reg=0.03, tol=1e-8).plan)
        assert np.abs(P - balanced(E)).max() < 2e-3  # e^{−1/(0.03·n)} times a constant
    record_property("problems", found)


def test_t_the_limit_is_not_the_mean_of_the_optimal_permutations() -> None:
    """Costs 0 but for C_13 = C_31 = 1: golden ratios, where the mean of the three optimal permutations has 1/3 and 2/3."""
    C, golden = np.zeros((3, 3)), (1 + math.sqrt(5)) / 2
    C[0, 2] = C[2, 0] = 1
    expected = np.array([[1, 1 / golden, 0], [1 / golden, 1 / golden**2, 1 / golden], [0, 1 / golden, 1]]) / golden
    P = np.asarray(solve(C, np.ones(3), np.ones(3), reg=0.03, tol=1e-10).plan)
    assert np.abs(P - expected).max() < 1e-6
    assert abs(P[1, 1] - 1 / 3) > 0.05
