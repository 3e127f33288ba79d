"""of.sort and of.argsort against numpy: exact, or an error."""

import numpy as np
import pytest
import torch

import otformer as of

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
    with pytest.raises(ValueError, match="larger whole numbers are not exact in float64"):
        of.sort([2**60 + 1, 2**60])
    with pytest.raises(ValueError, match="values must span less than the largest float"):
        of.sort([1e308, -1e308, 0.0])


@pytest.mark.parametrize("bad", [[[1.0, 2.0]], ["a"], [1.0, float("nan")], [1.0, float("inf")]])
def test_bad_input(bad):
    with pytest.raises(ValueError, match="values must be"):
        of.sort(bad)
