"""Squared distances by a matrix product, against extended precision, on clouds whose costs cancel; and optima of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

import otformer as of
from otformer.transport.costs import by_product
from otformer.transport.costs.by_product import ROUNDED, squares_by_product
from otformer.transport.costs.clouds import Rule
from otformer.transport.costs.point_pairs import PointPairs
from otformer.transport.problem import read_points

SEEDS = 75  # times as many families: a thousand problems and more


def clouds(n: int, m: int, d: int, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Clouds that a matrix product might not like."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, d)), rng.standard_normal((m, d))
    same = rng.standard_normal((max(n, m), d))
    left, right = (np.sign(rng.standard_normal((k, 1))) for k in (n, m))
    scales = 10.0 ** rng.uniform(-9, 9, d)
    return {
        "normal": (x, y),
        "float32": (x.astype(np.float32).astype(np.float64), y.astype(np.float32).astype(np.float64)),
        "far from 0": (1e8 + x, 1e8 + y),
        "far apart": (x, 1e8 + y),
        "the same points": (same[:n], same[:m][::-1].copy()),
        "nearly the same": (same[:n], same[:m] + 1e-2 * y),
        "far clusters": (left + 1e-7 * x, right + 1e-7 * y),
        "grid": (x.round(), y.round()),
        "duplicates": (x[np.arange(n) // 3], y[np.arange(m) // 5]),
        "one huge": (x * 10.0 ** (12 * (np.arange(n) == 0))[:, None], y),
        "tiny": (1e-140 * x, 1e-140 * y),
        "huge": (1e140 * x, 1e140 * y),
        "coordinates of all sizes": (x * scales, y * scales[::-1]),
        "points of all sizes": (x * 10.0 ** rng.uniform(-150, 150, (n, 1)), y * 10.0 ** rng.uniform(-150, 150, (m, 1))),
    }


FAMILIES = list(clouds(1, 1, 1, 0))


def truth(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """All costs by differences, of more digits than float64 has."""
    return np.stack([np.square(point.astype(np.longdouble) - y).sum(1) for point in x])


def assert_near(C: torch.Tensor, x: np.ndarray, y: np.ndarray) -> None:
    exact = truth(x, y)
    assert np.abs(C.numpy() - exact).max(initial=0, where=exact < 1e-290) <= 1e-300
    assert (np.abs(C.numpy() - exact) <= ROUNDED * exact)[exact >= 1e-290].all()
    assert (C.numpy()[exact == 0] == 0).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("d", [1, 3, 8, 9, 16, 100, 257, 784, 3072])
def test_every_entry_is_near_the_true_one(family, d):
    for n, m in ((1, 1), (7, 13), (40, 33)):
        x, y = clouds(n, m, d, d)[family]
        assert_near(squares_by_product(torch.from_numpy(x), torch.from_numpy(y)), x, y)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_mends_on_a_gpu_does_so_here(family, monkeypatch):
    monkeypatch.setattr(by_product, "_mend", lambda x, y, p, q, least, C, first, last: mend(x, y, p, q, least, C))
    monkeypatch.setattr(by_product, "AT_ONCE", 300)

    def mend(*given):
        by_product._mend_on_gpu(*(torch.from_numpy(t) if isinstance(t, np.ndarray) else t for t in given))

    x, y = clouds(20, 30, 40, 0)[family]
    assert_near(squares_by_product(torch.from_numpy(x), torch.from_numpy(y)), x, y)


def test_whole_numbers_stay_whole():
    x, y = torch.randint(-128, 128, (2, 50, 3072), generator=torch.Generator().manual_seed(0)).double()
    assert torch.equal(
        squares_by_product(x, y), torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square().round()
    )


@pytest.mark.parametrize("root", [False, True])
def test_the_matrix_of_an_index_has_its_costs(root):
    x, y = clouds(40, 30, 50, 0)["far clusters"]
    pairs, (i, j) = PointPairs(x, y, Rule(root)), np.divmod(np.arange(1200), 30)
    np.testing.assert_allclose(pairs.matrix().ravel(), pairs.costs(i, j), rtol=ROUNDED)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "points of all sizes"])
def test_optima_are_those_of_true_costs(family, monkeypatch):
    """Value, bound and potentials, where none is of a matrix of differences."""
    monkeypatch.setattr(read_points, "POINTS_ABOVE", -1)
    rng = np.random.default_rng(0)
    for seed in range(SEEDS):
        n, d = int(rng.integers(1, 40)), int(rng.choice([9, 16, 40, 100, 300]))
        x, y = clouds(n, n, d, seed)[family]
        C = truth(x, y)
        best = float(C[linear_sum_assignment(C.astype(np.float64))].mean())
        r = of.solve_sample(x, y, reg=0)
        assert C[np.arange(n), r.permutation].mean() <= best * (1 + 1e-12)
        assert r.value == pytest.approx(best, rel=1e-12, abs=0)
        assert r.gap <= 1e-12 * best
        assert r.value - r.gap == pytest.approx(r.bound, rel=1e-12, abs=1e-14 * float(C.max()))
        assert float((r.potentials[0][:, None] + r.potentials[1] - C).max()) <= 1e-12 * float(C.max())


@pytest.mark.parametrize("family", ["normal", "far clusters", "nearly the same"])
def test_an_assignment_of_many_points(family):
    x, y = clouds(600, 600, 64, 1)[family]
    C = truth(x, y).astype(np.float64)
    assert C[np.arange(600), of.assignment(x, y)].sum() == pytest.approx(C[linear_sum_assignment(C)].sum(), rel=1e-12)
