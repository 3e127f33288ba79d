"""Barycenters beside POT's, brute force, closed forms and finite differences; and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import ot
import pytest
import torch

import otformer as of

RNG = np.random.default_rng(5)
CLOUDS = [RNG.normal(size=(m, 2)) * s + [m / 10, s] for m, s in ((20, 0.3), (12, 1.0), (15, 0.6))]
START = RNG.normal(size=(10, 2))


def exact_objective(x: np.ndarray, clouds: list[np.ndarray], w: np.ndarray) -> float:
    return float(sum(share * ot.emd2([], [], ot.dist(x, y)) for share, y in zip(w, clouds, strict=True)))


@pytest.mark.parametrize("weights", [None, [0.2, 0.5, 0.3]])
def test_exact_is_pots_fixed_point(weights: Any) -> None:
    found = of.barycenter(CLOUDS, weights, start=START)
    w = np.ones(3) / 3 if weights is None else np.array(weights)
    theirs = ot.lp.free_support_barycenter(CLOUDS, [ot.unif(len(y)) for y in CLOUDS], START, weights=w, numItermax=1000)
    np.testing.assert_allclose(found.points, theirs, atol=1e-9)
    assert found.converged
    assert found.value == pytest.approx(exact_objective(found.points, CLOUDS, w), rel=1e-12)


def test_entropic_is_no_higher_than_pots() -> None:
    reg, uniform = 0.3, [ot.unif(len(y)) for y in CLOUDS]
    theirs = ot.bregman.free_support_sinkhorn_barycenter(
        CLOUDS, uniform, START, reg, numItermax=3000, numInnerItermax=10_000, stopThr=1e-14, method="sinkhorn_log"
    )
    found = of.barycenter(CLOUDS, reg=reg, start=START, tol=1e-8)

    def objective(x: np.ndarray) -> float:
        plans = [ot.bregman.sinkhorn_log(ot.unif(10), a, ot.dist(x, y), reg, stopThr=1e-12, numItermax=10_000)
                 for a, y in zip(uniform, CLOUDS, strict=True)]  # fmt: skip
        return float(np.mean([(P * ot.dist(x, y) + reg * P * np.log(P)).sum() for P, y in zip(plans, CLOUDS, strict=True)]))

    assert found.converged
    assert found.value == pytest.approx(objective(found.points), abs=1e-8)
    assert objective(found.points) <= objective(theirs) + 1e-8


def test_debiased_is_stationary_and_of_no_bias() -> None:
    """The sum of `divergence` has no slope at the points, by differences; one cloud is its own barycenter."""
    found = of.barycenter(CLOUDS, reg=0.5, start=START, debiased=True, tol=1e-6)
    assert found.converged
    x = torch.tensor(found.points, requires_grad=True)
    loss = sum(of.divergence(x, torch.as_tensor(y), reg=0.5, tol=1e-10) for y in CLOUDS) / 3
    loss.backward()
    assert found.value == pytest.approx(float(loss.detach()), abs=1e-6)
    assert x.grad.abs().max() < 1e-4
    h = np.zeros((10, 2))
    h[3, 1] = 1e-3
    ends = [sum(of.divergence(found.points + s * h, y, reg=0.5) for y in CLOUDS) / 3 for s in (-1, 1)]
    assert abs(ends[1] - ends[0]) / 2e-3 < 1e-4
    assert min(ends) > found.value - 1e-7
    alone = of.barycenter([CLOUDS[0]], reg=0.5, start=CLOUDS[0] + 0.02 * RNG.normal(size=(20, 2)), debiased=True)
    assert alone.value < 1e-4
    assert np.ptp(alone.points, 0).min() > 0.9 * np.ptp(CLOUDS[0], 0).min()
    assert np.ptp(of.barycenter([CLOUDS[0]], reg=0.5).points, 0).max() < 0.5 * np.ptp(CLOUDS[0], 0).max()


def test_two_clouds_have_the_middle_of_their_matching() -> None:
    """Of two uniform clouds of n points the middles of the optimal pairs are a barycenter, of value W²/4."""
    x, y = RNG.random((2, 5, 2))
    best = min(((x - y[list(p)]) ** 2).sum() / 5 for p in itertools.permutations(range(5)))
    found = of.barycenter([x, y])
    middle = of.solve_sample(x, y, reg=0)
    np.testing.assert_allclose(found.points, (x + y[middle.permutation]) / 2, atol=1e-12)
    assert found.value == pytest.approx(best / 4)


def test_in_one_dimension_it_is_the_mean_of_quantiles() -> None:
    clouds = [np.sort(RNG.random(30)) * s for s in (1, 3, 7)]
    found = of.barycenter([c[RNG.permutation(30), None] for c in clouds], [1, 2, 3])
    np.testing.assert_allclose(np.sort(found.points[:, 0]), (clouds[0] + 2 * clouds[1] + 3 * clouds[2]) / 6, atol=1e-12)


def test_weights_that_are_zero_have_no_influence() -> None:
    far = CLOUDS[1] + 1e6
    with_zero = of.barycenter([CLOUDS[0], far, CLOUDS[2]], [1, 0, 2], start=START)
    without = of.barycenter([CLOUDS[0], CLOUDS[2]], [1 / 3, 2 / 3], start=START)
    np.testing.assert_allclose(with_zero.points, without.points, atol=1e-12)
    assert with_zero.results[1] is None
    a = [None, [1.0] * 6 + [0.0] * 6, None]
    half = of.barycenter(CLOUDS, a=a, start=START)
    np.testing.assert_allclose(
        half.points, of.barycenter([CLOUDS[0], CLOUDS[1][:6], CLOUDS[2]], start=START).points, atol=1e-12
    )


@pytest.mark.parametrize(("reg", "debiased"), [(0, False), (0.2, False), (0.2, True)])
def test_one_point_is_the_mean_of_means(reg: float, debiased: bool) -> None:
    found = of.barycenter(CLOUDS, [1, 1, 2], reg, n=1, debiased=debiased)
    means = [y.mean(0) for y in CLOUDS]
    np.testing.assert_allclose(found.points, [(means[0] + means[1] + 2 * means[2]) / 4], atol=1e-9)
    assert found.converged


@pytest.mark.parametrize("reg", [0, 0.2])
def test_identical_clouds_and_clouds_of_one_place(reg: float) -> None:
    found = of.barycenter([CLOUDS[0]] * 3, reg=0)
    np.testing.assert_allclose(found.points, CLOUDS[0], atol=1e-12)
    assert found.value == pytest.approx(0, abs=1e-12)
    far = of.barycenter([np.zeros((4, 2))] * 2, reg=reg, start=START)
    assert far.steps > 1
    np.testing.assert_allclose(far.points, np.zeros((10, 2)), atol=1e-12)
    still = of.barycenter([np.ones((4, 2))] * 2, reg=reg, n=3)
    assert still.converged
    np.testing.assert_allclose(still.points, np.ones((3, 2)), atol=1e-12)


def test_weights_of_points_stay_and_are_met() -> None:
    b = np.array([0.5, 0.25, 0.25])
    found = of.barycenter(CLOUDS, b=b * 4, n=3)
    np.testing.assert_allclose(found.b, b)
    for result, y in zip(found.results, CLOUDS, strict=True):
        np.testing.assert_allclose(result.dense().sum(1), b, atol=1e-12)
        np.testing.assert_allclose(result.dense().sum(0), 1 / len(y), atol=1e-12)
    theirs = ot.lp.free_support_barycenter(CLOUDS, [ot.unif(len(y)) for y in CLOUDS], found.points, b)
    np.testing.assert_allclose(theirs, found.points, atol=1e-9)


def test_tensors_and_precision() -> None:
    clouds = [torch.as_tensor(y).float() for y in CLOUDS]
    found = of.barycenter(clouds, start=torch.as_tensor(START))
    assert found.points.dtype == torch.float32
    np.testing.assert_allclose(found.points.numpy(), of.barycenter(CLOUDS, start=START).points, atol=1e-5)
    assert of.barycenter(np.stack([START, START + 1]).astype(np.float32)).points.dtype == np.float32


def test_not_converged_says_so_and_goes_on() -> None:
    with pytest.warns(RuntimeWarning, match="not converged: the last step was .* raise max_steps"):
        cut = of.barycenter(CLOUDS, start=START, max_steps=2)
    assert not cut.converged
    whole = of.barycenter(CLOUDS, start=START)
    np.testing.assert_allclose(of.barycenter(CLOUDS, start=cut.points).points, whole.points, atol=1e-12)
    assert whole.errors[-1] == whole.error <= 1e-5


def test_it_shows_itself(tmp_path: Any) -> None:
    found = of.barycenter(CLOUDS, n=4)
    assert repr(found).startswith("Barycenter(4 points in 2-D of 3 clouds of 12 to 20 points, value")
    found.save(tmp_path / "b.html")
    found.save(tmp_path / "b.png")
    page = (tmp_path / "b.html").read_text("utf-8")
    assert "to cloud 3, weight 0.333" in page
    assert page.count("<svg") == 4
    assert found._repr_html_().count("<svg") == 4
    assert of.barycenter(RNG.random((2, 5, 3)))._repr_html_().count("<svg") == 1


REFUSED = {
    "clouds must hold at least one cloud": {"clouds": []},
    "clouds must be a list of arrays": {"clouds": np.ones((3, 2))},
    r"clouds\[1\] must have points": {"clouds": [START, np.empty((0, 2))]},
    r"clouds\[1\] must have 2 coordinates, as clouds\[0\] has, got 3": {"clouds": [START, np.ones((4, 3))]},
    r"clouds\[0\] must be finite, got nan at index \(0, 0\)": {"clouds": [np.full((2, 2), np.nan)]},
    "clouds must have squared distances within float64": {"clouds": [START * 1e200, START]},
    r"clouds\[0\] must not require a gradient": {"clouds": [torch.ones(2, 2, requires_grad=True)]},
    "weights must have a positive sum": {"weights": [0, 0, 0]},
    "weights must not be negative": {"weights": [1, -1, 1]},
    r"weights must have shape \(3,\)": {"weights": [1, 1]},
    "a must be a list of 3 weights": {"a": [None]},
    r"a\[0\] must have shape \(20,\)": {"a": [[1.0], None, None]},
    "b must be positive": {"b": [1, 0]},
    "n must be a whole number": {"n": 0},
    "start must have 4 points, got 10": {"n": 4, "start": START},
    "start must have 2 coordinates": {"start": np.ones((4, 3))},
    "reg must be zero or a positive": {"reg": -1},
    "debiased=True cannot be combined with reg=0": {"debiased": True},
    "tol must be a positive": {"tol": 0},
    "max_steps must be a whole number": {"max_steps": 0},
    "seed must be a whole number": {"seed": 1.5},
}


@pytest.mark.parametrize("said", REFUSED)
def test_wrong_input_is_one_line(said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}") as refused:
        of.barycenter(**({"clouds": CLOUDS} | REFUSED[said]))
    assert "\n" not in str(refused.value)
