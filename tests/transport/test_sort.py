"""of.sort and of.argsort against numpy: exact, or an error."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import otformer as of
from otformer.transport import sort as module

DRAWS = {
    "uniform": lambda rng, n: rng.random(n),
    "normal": lambda rng, n: rng.normal(size=n),
    "lognormal": lambda rng, n: np.exp(2 * rng.normal(size=n)),
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
    "ties": lambda rng, n: rng.integers(0, 7, n).astype(float),
    "permutation": lambda rng, n: (rng.permutation(n) + 1) / n,
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("n", [1, 2, 3, 10, 100, 300])
def test_argsort_is_numpys_stable_argsort(draw, n):
    values = DRAWS[draw](np.random.default_rng(n), n)
    np.testing.assert_array_equal(of.argsort(values), np.argsort(values, kind="stable"))
    np.testing.assert_array_equal(of.sort(values), np.sort(values))


def test_many_short_lists():
    rng = np.random.default_rng(0)
    for _ in range(100):
        values = rng.normal(size=rng.integers(2, 12)) * 10 ** rng.uniform(-5, 5)
        np.testing.assert_array_equal(of.sort(values), np.sort(values))


def test_tensors_stay_tensors_lists_become_arrays():
    assert torch.equal(of.sort(torch.tensor([3.0, 1.0, 2.0])), torch.tensor([1.0, 2.0, 3.0]))
    assert of.argsort([3, 1, 2]).tolist() == [1, 2, 0]
    assert of.sort([]).tolist() == []
    assert of.sort([5, 5]).tolist() == [5, 5]


def test_values_that_crowd_too_much_are_an_error_that_names_them():
    crowded = [1.0, 1.0 + 1e-15, 1e9, 2e9]
    with pytest.raises(ValueError, match=r"1.0 and 1.000000000000001 differ by 5.6e-25 of the range"):
        of.sort(crowded)


def test_whole_numbers_are_exact_or_refused():
    assert of.sort([2**53 - 1, -(2**53) + 1, 7]).tolist() == [-(2**53) + 1, 7, 2**53 - 1]
    assert of.sort(np.array([3, 1], dtype=np.int32)).dtype == np.int32
    with pytest.raises(ValueError, match="whole numbers below 2\\*\\*53, exact in float64, got larger"):
        of.sort([2**60 + 1, 2**60])
    with pytest.raises(ValueError, match="values must span less than the largest float"):
        of.sort([1e308, -1e308, 0.0])


@pytest.mark.parametrize("bad", [[[1.0, 2.0]], ["a"], [1.0, float("nan")], [1.0, float("inf")]])
def test_bad_input(bad):
    with pytest.raises(ValueError, match="values must be"):
        of.sort(bad)


LONG = {
    "uniform": lambda rng, n: rng.random(n),
    "decades": lambda rng, n: rng.permutation(10 ** np.linspace(-8, 0, n)),
    "sixty decades": lambda rng, n: rng.permutation(10 ** np.linspace(-60, 0, n)),
    "hundred values": lambda rng, n: rng.integers(0, 100, n) / 7,
    "one value and five": lambda rng, n: np.r_[np.zeros(n - 5), 3.0, 1.0, 2.0, 5.0, 4.0],
    "clusters": lambda rng, n: rng.integers(0, 20, n) + 1e-9 * rng.integers(0, n, n),
    "neighbouring floats": lambda rng, n: 1 + rng.permutation(n) * 2.0**-52,
    "reversed": lambda rng, n: np.sort(rng.normal(size=n))[::-1],
    "outlier": lambda rng, n: np.r_[rng.random(n - 1), 1e12],
    "whole numbers": lambda rng, n: rng.permutation(n),
}


@pytest.mark.slow
@pytest.mark.parametrize("draw", LONG)
def test_long_lists_are_cut_into_bands(draw):
    values = LONG[draw](np.random.default_rng(0), 1500)
    np.testing.assert_array_equal(of.argsort(values), np.argsort(values, kind="stable"))


def test_bands_whose_border_rounding_has_crossed_are_joined(monkeypatch):
    exact, swapped = module._soft_rank, []

    def crossed(problem, v, lam, y):
        """The soft ranks of the two values on either side of the first border, exchanged."""
        r = exact(problem, v, lam, y)
        first = r * len(y) < 1
        i, j = int(r.masked_fill(~first, -1).argmax()), int(r.masked_fill(first, 2).argmin())
        r[i], r[j] = r[j].item(), r[i].item()
        swapped.append((i, j))
        return r

    monkeypatch.setattr(module, "_soft_rank", crossed)
    values = np.random.default_rng(0).random(600)
    np.testing.assert_array_equal(of.sort(values), np.sort(values))
    assert swapped


@pytest.mark.parametrize("others", [[], [1.0], [3.0, -1.0, 2.0]])
def test_one_value_seventy_thousand_times(others):
    values = np.r_[others, np.zeros(70_000)]
    np.testing.assert_array_equal(of.argsort(values), np.argsort(values, kind="stable"))


def test_short_lists_over_ten_decades_are_cut_where_a_plan_alone_fails():
    values = np.random.default_rng(3).permutation(10 ** np.linspace(-12, 0, 20))
    np.testing.assert_array_equal(of.sort(values), np.sort(values))


@pytest.mark.slow
def test_ten_thousand_numbers_take_seconds_and_linear_memory():
    """Their plan would have 0.8 GB; a cut holds 64 numbers per value a few times over, 5 MB each."""
    code = """
import resource, time, numpy as np, otformer as of
of.sort([2.0, 1.0])
values, before = np.random.default_rng(0).normal(size=10_000), resource.getrusage(resource.RUSAGE_SELF)
assert (of.argsort(values) == np.argsort(values, kind="stable")).all()
after = resource.getrusage(resource.RUSAGE_SELF)
print((after.ru_maxrss - before.ru_maxrss) / 2**10, after.ru_utime - before.ru_utime)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    megabytes, seconds = map(float, done.stdout.split())
    assert megabytes < 100
    assert seconds < 20
