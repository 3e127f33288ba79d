"""The families of the exact benchmark: seeded, finite, and what their names say; drawn ones come back from their seed."""

from __future__ import annotations

import numpy as np
import pytest

from otformer.lab.benchmarks.exact_drawn import drawn, expanded, place
from otformer.lab.benchmarks.exact_families import FAMILIES, family, make, order
from otformer.lab.benchmarks.exact_families import expanded as expanded_all
from otformer.lab.benchmarks.exact_shapes import CHANGES, CLOUDS, MATRICES, WEIGHTS


@pytest.mark.parametrize("name", [*FAMILIES, "drawn-3-1"])
def test_problems_are_seeded(name):
    p, same, other = make(name, 36, seed=1), make(name, 36, seed=1), make(name, 36, seed=2)
    assert np.array_equal(p.rows(), same.rows())
    assert all(np.array_equal(w, v) for w, v in zip(p.weights(), same.weights(), strict=True))
    changed = not np.array_equal(p.rows(), other.rows()) or not np.array_equal(p.weights()[0], other.weights()[0])
    assert changed != (name == "product")  # which has nothing random
    assert (p.a is None) == (p.b is None)
    assert family(name).hard.endswith(".")


@pytest.mark.parametrize("name", FAMILIES)
def test_sizes_weights_and_costs_are_what_they_should_be(name):
    p = make(name, 49)
    assert p.shape == (49, 49)
    assert np.isfinite(p.rows()).all()
    assert (p.a is not None) == (name in ("weights", "images") or name.endswith("-weights"))
    for w in p.weights():
        assert w.sum() == pytest.approx(1)
        assert (w > 0).all()
    i, j = np.arange(49), np.arange(49)[::-1]
    np.testing.assert_allclose(p.costs(i, j), p.rows()[i, j], rtol=1e-12)


def test_matrices_are_as_written_down():
    assert make("product", 4).M.tolist() == [[1, 2, 3, 4], [2, 4, 6, 8], [3, 6, 9, 12], [4, 8, 12, 16]]
    assert make("inverse-weights", 3).M[1].tolist() == [1 / 2, 1 / 3, 1 / 4]
    assert set(np.unique(make("zero-one", 50).M)) == {0.0, 1.0}
    assert len(np.unique(make("five-rows-weights", 50).M, axis=0)) == 5


def test_clouds_are_where_they_should_be():
    annulus, images = make("annulus", 200), make("images", 100)
    radii = [np.linalg.norm(t, axis=1) for t in annulus.points]
    assert radii[0].max() <= 1
    assert 9 <= radii[1].min() <= radii[1].max() <= 10
    assert images.shape == (100, 100)
    assert np.array_equal(images.x, images.y)
    assert np.ptp(make("line", 50).y @ [2, -1]) < 1e-12


def test_all_that_the_grammar_can_say_makes_a_problem():
    words = set()
    for seed in range(60):
        for k in range(10):
            made = drawn(seed, k)
            words |= {*made.clouds, made.matrix, *made.changes, *made.weights, made.metric}
            for n in (2, 7):
                p = made.make(n, np.random.default_rng(n))
                assert p.shape == (n, max(2, round(made.ratio * n)))
                assert np.isfinite(p.rows()).all(), made
                assert all(w.min() >= 0 and w.sum() == pytest.approx(1) for w in p.weights()), made
    assert words >= {*CLOUDS, *MATRICES, *CHANGES, *WEIGHTS, "", "cosine", "cityblock", "chebyshev", "euclidean"}


def test_a_seed_stands_for_ten_families_that_tell_what_was_drawn():
    assert expanded("drawn-17") == [f"drawn-17-{k}" for k in range(10)]
    assert expanded("drawn-17-3") == ["drawn-17-3"]
    assert [expanded(name) for name in ("ring", "drawn", "drawn-", "drawn--1", "drawn-17-10")] == [[]] * 5
    assert expanded_all(["ring", "drawn-4", "drawn-4-2"]) == ("ring", *expanded("drawn-4"))
    assert sorted(["drawn-2-1", "ring", "drawn-10-0", "uniform-2d"], key=order) == [
        "uniform-2d", "ring", "drawn-2-1", "drawn-10-0",
    ]  # fmt: skip
    assert (place("drawn-17-3"), drawn(17, 3)) == ((17, 3), drawn(17, 3))
    assert drawn(17, 1).words == family("drawn-17-1").hard
    assert drawn(17, 1).words == (
        "Nearly equal clouds in 2-D, euclidean, rounded to few values, log(1 + |c|); a few heavy weights; m = 1.5 n."
    )
    assert drawn(17, 5).words == "Collinear groups in 2-D, sqeuclidean; equal weights; m = 0.7 n."
