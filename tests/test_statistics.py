"""Intervals: against scipy, and against resamples drawn one by one."""

import numpy as np
import pytest
from scipy import stats

from otformer.statistics import bootstrap, ratio, student


def test_resamples_are_those_drawn_one_by_one():
    """Sums of rows drawn by the same generator, a resample at a time; more resamples than are held together."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(7, 2, 3))
    draw = np.random.default_rng(5)
    sums = np.stack([rows[draw.integers(7, size=7)].sum(0) for _ in range(250)])
    low, high = bootstrap(rows, lambda s: s**2, level=0.8, draws=250, seed=5)
    np.testing.assert_allclose([low, high], np.quantile(sums**2, [0.1, 0.9], axis=0), rtol=1e-12)


def test_resamples_that_are_given():
    drawn = np.random.default_rng(0).integers(4, size=(1000, 4))
    x = np.array([1.0, 2.0, 4.0, 8.0])
    assert bootstrap(x[:, None], lambda s: s[:, 0] / 4, draws=drawn) == pytest.approx(
        tuple(np.quantile(x[drawn].mean(1), [0.025, 0.975]))
    )


def test_ratio_against_scipy():
    rng = np.random.default_rng(1)
    parts, wholes = rng.random(200), rng.integers(1, 9, 200)
    value, low, high = ratio(parts, wholes, draws=4000)
    assert value == pytest.approx(parts.sum() / wholes.sum())
    peer = stats.bootstrap(
        (parts, wholes),
        lambda p, w, axis: p.sum(axis) / w.sum(axis),
        paired=True,
        method="percentile",
        n_resamples=4000,
        rng=np.random.default_rng(2),
    ).confidence_interval
    np.testing.assert_allclose([low, high], peer, atol=0.05 * (peer.high - peer.low))


def test_student_by_its_formula():
    x = np.random.default_rng(4).normal(3, 2, 9)
    half = stats.t.ppf(0.95, 8) * x.std(ddof=1) / 3
    assert student(x, 0.9) == pytest.approx((x.mean() - half, x.mean() + half))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap([1.0], np.sum), r"^rows must have shape \(N, c\) with N ≥ 1, got \(1,\)$"),
        (lambda: bootstrap(np.ones((0, 2)), np.sum), r"N ≥ 1, got \(0, 2\)$"),
        (lambda: bootstrap([[1.0]], lambda s: s[:, 0], level=95), "^level must be between 0 and 1, got 95$"),
        (lambda: bootstrap([[1.0]], lambda s: s[:, 0], draws=0), "^draws must be a whole number of at least 1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
