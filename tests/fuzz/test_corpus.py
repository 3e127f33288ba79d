"""Cases that were findings once, and the first of every family; the fuzzer itself is `make fuzz`."""

from __future__ import annotations

import numpy as np
import pytest

import otformer as of
from fuzz.__main__ import RUNS, case
from fuzz.commands import called

FIRST = 8  # cases of every family
X = np.eye(2)
FINDINGS = {  # calls that the fuzzer found, and what they raised, gave or took
    "OverflowError": lambda: of.divergence(X, X, reg=10**400),
    "OverflowError of a depth": lambda: of.AligningTransformer(2, 0.1, 10**400),
    "NaN attention": lambda: of.AligningTransformer(1, 1e300, 1),
    "NaN attention in float32": lambda: of.AligningTransformer(1, 1e-45, 1),
    "no end": lambda: of.AligningTransformer(2, 1.0, 10**29, schedule="relaxed"),
    "an infinite distance": lambda: of.wasserstein_1d([1.0], [3e307], [1e8], [1e8]),
    "AttributeError of Newton": lambda: of.solve([[1e308, 0.0, np.inf], [1e308, 0.0, 1e308]], reg=1e100),
    "a NaN bound": lambda: of.solve([[1e308, np.inf], [np.inf, 0.0]], reg=0),
    "a NaN cost": lambda: of.emd([0.5, 0.5], [0.5, 0.5], [[1e308, np.inf], [np.inf, 0.0]]),
    "IndexError": lambda: of.solve_sample(np.ones((2, 0)), np.ones((3, 0)), metric="cosine"),
}


@pytest.mark.parametrize("was", FINDINGS)
def test_what_was_found_is_refused_in_one_line(was):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        FINDINGS[was]()


def test_an_array_without_axes_is_refused_by_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.array(1.0))
    code, out, err = called(["solve", "x.npy", "x.npy"])
    assert (code, out, err) == (2, "", "otformer: points must be a matrix, got shape () in x.npy\n")


@pytest.mark.parametrize("family", RUNS)
def test_the_first_cases_of_every_family(family):
    for seed in range(FIRST):
        came, said = case(family, seed)
        assert came != "found", f"seed {seed}: {said}"


def test_the_fuzzer_finds_what_is_wrong(monkeypatch):
    """A sort that swaps two numbers, and an answer that is no number, are findings."""
    monkeypatch.setattr(of, "sort", lambda values: np.sort(np.asarray(values, float))[::-1])
    monkeypatch.setattr(of, "sinkhorn", lambda *_, **__: np.full((1, 1), np.nan))
    assert any(case("sort", seed)[0] == "found" for seed in range(20))
    assert any(case("sinkhorn", seed)[0] == "found" for seed in range(20))
