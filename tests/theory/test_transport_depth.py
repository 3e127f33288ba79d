"""Theorem O of docs/theorems.md: what the rounded plan costs more than the optimum, at every layer, and the depth for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import ot
import pytest
from scipy.optimize import linear_sum_assignment

from helpers.extreme import Array
from otformer import theory

Record = Callable[[str, object], None]


def rounded(M: Array, a: Array, b: Array) -> Array:
    """The plan of Altschuler, Weed and Rigollet with sums a and b, [B, n, m]."""
    M = M * np.minimum(1, a / M.sum(2))[:, :, None]
    M = M * np.minimum(1, b / M.sum(1))[:, None]
    rows, columns = np.maximum(a - M.sum(2), 0), np.maximum(b - M.sum(1), 0)
    missing = np.maximum(rows.sum(1), 1e-14 * a.sum(1))  # less than that is rounding
    return M + rows[:, :, None] * columns[:, None] / missing[:, None, None]


def costs(random: np.random.Generator, count: int, n: int, m: int) -> Array:
    """Costs from 0 to 1: uniform, on a line, ties, one dear row, one cheap pair per row; [count, n, m]."""
    uniform = random.random((count, n, m))
    line = (random.random((count, n, 1)) - random.random((count, 1, m))) ** 2
    ties = random.integers(0, 3, (count, n, m)) / 2
    dear = uniform * (np.arange(n) == 0)[:, None]
    cheap = 1.0 - (np.arange(n)[:, None] == np.arange(m)) * random.random((count, 1, 1))
    kinds = np.stack([uniform, line, ties, dear, cheap])[random.integers(0, 5, count), np.arange(count)]
    kinds[kinds.max((1, 2)) == 0] = 1
    return kinds * 10 ** random.uniform(-3, 3, (count, 1, 1))


def run(C: Array, reg: Array, a: Array, b: Array, start: tuple[Array, Array]) -> Iterator[Array]:
    """M at every layer of both heads with γ = λ; C [B, n, m], λ [B]."""
    u, v = start
    while True:
        M = np.exp(np.minimum((u[:, :, None] + v[:, None] - C) / reg[:, None, None] - 1, 500))
        yield M
        u = u - reg[:, None] * (M.sum(2) - a) / (M.sum(2) + a)
        v = v - reg[:, None] * (M.sum(1) - b) / (M.sum(1) + b)


def error(M: Array, a: Array, b: Array) -> Array:
    return np.abs(M.sum(2) - a).sum(1) + np.abs(M.sum(1) - b).sum(1)


def assigned(C: Array) -> float:
    return float(C[linear_sum_assignment(C)].sum())


@pytest.mark.parametrize("weights", ["unit", "any"])
def test_O_at_every_layer(weights: str, record_property: Record) -> None:
    """⟨C, P̂⟩ − min ≤ c̄E + λσ log min(n, m), from (0, 0) and from far away; the optimum by scipy, or by POT."""
    random, count, nearest = np.random.default_rng(0), 0, 0.0
    for n, m in ((2, 2), (3, 3), (8, 8), (20, 20)) if weights == "unit" else ((2, 2), (2, 7), (9, 4), (12, 12)):
        C = costs(random, 260, n, m)
        largest, reg = C.max((1, 2)), C.max((1, 2)) * 10 ** random.uniform(-1.5, 0.5, 260)
        a, b = (np.ones((260, size)) if weights == "unit" else 10 ** random.uniform(-2, 2, (260, size)) for size in (n, m))
        b = b * (a.sum(1) / b.sum(1))[:, None]
        least = [assigned(c) if weights == "unit" else float(ot.emd2(r, t, c)) for c, r, t in zip(C, a, b, strict=True)]
        away = (random.random((260, 1)) < 0.5) * reg[:, None]
        start = away * random.uniform(-3, 3, (260, n)), away * random.uniform(-3, 3, (260, m))
        count += 260
        for depth, M in zip(range(61), run(C, reg, a, b, start), strict=False):
            if depth not in (0, 1, 2, 5, 20, 60):
                continue
            P = rounded(M, a, b)
            assert np.abs(P.sum(2) - a).max() + np.abs(P.sum(1) - b).max() < 1e-9 * a.sum(1).max()
            given = zip(error(M, a, b), M.sum((1, 2)), reg, largest, strict=True)
            bound = np.array([theory.transport_excess(*each, n=min(n, m)) for each in given])
            excess = (P * C).sum((1, 2)) - least
            assert (excess <= bound + 1e-9 * largest * a.sum(1)).all()
            nearest = max(nearest, float((excess / bound).max()))
    record_property("problems", count)
    record_property("largest ratio", nearest)


def test_O_the_error_part_is_attained(record_property: Record) -> None:
    """C = [[0, 1], [1, 0]], M = [[1 − x, 2x], [0, 1 − x]]: optimal for its sums, N = 4x, and the rounded plan costs 4x."""
    x, ones, C = 1e-4, np.ones((1, 2)), np.array([[0.0, 1.0], [1.0, 0.0]])
    M = np.array([[[1 - x, 2 * x], [1e-30, 1 - x]]])
    N = float(error(M, ones, ones)[0])
    excess = float((rounded(M, ones, ones)[0] * C).sum()) - assigned(C)
    ratio = excess / theory.transport_excess(N, 2.0, 1e-9, 1.0, 2)
    assert 0.999 < ratio <= 1
    record_property("largest ratio", ratio)


def test_O_the_entropy_part_is_attained(record_property: Record) -> None:
    """C = c(1 − I): P*_λ costs n c(n−1)/(n−1 + e^{c/λ}) more than the optimum, near λ n log n for the best c and n → ∞."""

    def excess(c: float, n: float) -> float:  # for λ = 1
        return n * (c * (n - 1) / (n - 1 + math.exp(c)))

    n, c = 30, 2.0
    C = c * (1 - np.eye(n))[None]
    *_, M = islice(run(C, np.ones(1), np.ones((1, n)), np.ones((1, n)), (np.zeros((1, n)),) * 2), 400)
    assert float((M * C).sum()) == pytest.approx(excess(c, n), rel=1e-9)
    for digits, near in ((2, 0.4), (20, 0.8), (200, 0.97)):
        n = 10**digits
        ratio = excess(math.log(n) - math.log(math.log(n)), float(n)) / theory.transport_excess(0.0, float(n), 1.0, 1.0, n)
        assert near < ratio < 1
    record_property("largest ratio", ratio)


def test_O_depth(record_property: Record) -> None:
    """Among `transport_depth` layers from (0, 0) one has E ≤ 2εn/5c̄, and its rounded plan is optimal up to εn."""
    random, count, nearest = np.random.default_rng(1), 0, 0.0
    for n in (2, 3, 5, 8, 12):
        C, tol = costs(random, 200, n, n), random.uniform(0.3, 1, 200)
        largest, ones = C.max((1, 2)), np.ones((200, n))
        tol *= largest
        limits = np.array([theory.transport_depth(n, *each) for each in zip(largest, tol, strict=True)])
        first, found = np.full(200, -1), np.zeros(200)
        zero = np.zeros((200, n)), np.zeros((200, n))
        for depth, M in enumerate(run(C, tol / (2 * math.log(n)), ones, ones, zero)):
            good = (error(M, ones, ones) <= 0.4 * tol * n / largest) & (first < 0)
            first[good] = depth
            found[good] = (rounded(M, ones, ones) * C).sum((1, 2))[good]
            if (first >= 0).all() or depth > limits.max():
                break
        assert ((first >= 0) & (first < limits)).all()
        assert (found - [assigned(c) for c in C] <= tol * n).all()
        nearest, count = max(nearest, float((first / limits).max())), count + 200
    record_property("problems", count)
    record_property("largest ratio", nearest)


def test_O_depth_follows_from_theorem_C() -> None:
    """At that depth k theorem C itself, from x_0 = (n/e + 1)/2, gives y = 4 KL_{k/2}/(ck) ≤ ν²/(4n + ν), ν = 2εn/5c̄."""
    c = theory.descent_constant(1.0)
    for n in (2, 3, 10, 100, 10**4, 10**8):
        for tol in (1.0, 0.3, 0.01, 1e-4):
            k, reg = theory.transport_depth(n, 1.0, tol), tol / (2 * math.log(n))
            R = 0.5 + reg / 2 * max(1, math.log(n) - 1)
            start = 4 * n * R / reg * (n / math.e + 1) / 2
            KL = theory.divergence_after(k // 2, n, reg, R, start)
            nu = 0.4 * tol * n
            assert 4 * KL / (c * k) <= nu**2 / (4 * n + nu)
            assert theory.transport_excess(nu, n + nu / 2, reg, 1.0, n) <= tol * n * (1 + 1e-12)  # equal at tol = c̄


def test_O_depth_has_slope_two() -> None:
    """(c̄/ε)² log n: ten times the accuracy takes a hundred times the layers; scaling the costs changes nothing."""
    for n in (10, 1000):
        deep = [theory.transport_depth(n, 1.0, tol) for tol in (1e-3, 1e-4)]
        assert deep[1] / deep[0] == pytest.approx(100, rel=0.01)
        assert theory.transport_depth(n, 7.0, 7e-3) == pytest.approx(deep[0], rel=1e-9)
    grown = theory.transport_depth(10**6, 1.0, 1e-5) / theory.transport_depth(10**3, 1.0, 1e-5)
    assert grown == pytest.approx(2, rel=0.01)


def test_bad_input() -> None:
    for call, message in (
        (lambda: theory.transport_depth(1, 1.0, 0.1), "n must be a whole number of at least 2"),
        (lambda: theory.transport_depth(5, 1.0, 1.1), "tol must be at most largest = 1, got 1.1: every plan is that good"),
        (lambda: theory.transport_depth(5, 0.0, 0.1), "largest must be"),
        (lambda: theory.transport_depth(5, 1.0, 1e-40), "tol must need fewer"),
        (lambda: theory.transport_excess(-1.0, 1.0, 1.0, 1.0, 2), "error must be"),
        (lambda: theory.transport_excess(1.0, math.inf, 1.0, 1.0, 2), "mass must be"),
        (lambda: theory.transport_excess(1.0, 1.0, 1.0, -1.0, 2), "largest must be"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
