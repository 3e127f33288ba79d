"""Cases that were findings once, and the first of every family; the fuzzer itself is `make fuzz`."""

from __future__ import annotations

import pytest

from fuzz.__main__ import RUNS, case

FIRST = 8  # cases of every family
FINDINGS = [
    ("divergence", 24),  # reg = 10**400: OverflowError
    ("network", 112),  # depth = 10**400: OverflowError
    ("network", 281),  # depth = 10**29: no end
    ("line", 52),  # values 1e307 and a mass of 1e8: an infinite distance
    ("cli solve", 12),  # an array without axes: TypeError
]


@pytest.mark.parametrize(("family", "seed"), FINDINGS)
def test_what_was_found_is_mended(family, seed):
    came, said = case(family, seed)
    assert came != "found", said


@pytest.mark.parametrize("family", RUNS)
def test_the_first_cases_of_every_family(family):
    for seed in range(FIRST):
        came, said = case(family, seed)
        assert came != "found", f"seed {seed}: {said}"


def test_the_fuzzer_finds_what_is_wrong(monkeypatch):
    """A sort that swaps two numbers, and an answer that is no number, are findings."""
    import numpy as np

    import otformer as of

    monkeypatch.setattr(of, "sort", lambda values: np.sort(np.asarray(values, float))[::-1])
    monkeypatch.setattr(of, "sinkhorn", lambda *_, **__: np.full((1, 1), np.nan))
    assert any(case("sort", seed)[0] == "found" for seed in range(20))
    assert any(case("sinkhorn", seed)[0] == "found" for seed in range(20))
