"""Sorting by counting in two attention layers, against numpy's order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from otformer.network.counting_sorter import SINK_WEIGHT, CountingSorter


def ranks(values: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(np.argsort(np.argsort(values, axis=-1), axis=-1))


def test_one_network_sorts_lists_of_every_length() -> None:
    random, net = np.random.default_rng(0), CountingSorter()
    for n, lists in ((1, 1), (2, 50), (7, 100), (60, 10), (400, 1)):
        x = random.uniform(size=(lists, n))
        A = net(x)
        assert torch.equal(A.argmax(-1), ranks(x))
        assert torch.allclose(A.amax(-1), torch.ones(lists, n, dtype=A.dtype), atol=1e-9)  # the attention is the permutation


def test_counts_are_within_the_bound_and_the_bound_is_of_the_right_size() -> None:
    random, net = np.random.default_rng(1), CountingSorter()
    x = random.uniform(size=(4, 300))
    found = net.count(net.prompt(x))[:, :-1, net.registers.column("rank")]
    off = float((found - ranks(x)).abs().max()) * SINK_WEIGHT / 300**2
    assert 0.05 < off <= 1


def test_neighbours_in_the_last_bit_are_told_apart() -> None:
    x = torch.tensor([0.5, 0.5 + 2.0**-53 * 2, 0.5 - 2.0**-53, 0.0, 1 - 2.0**-53], dtype=torch.float64)
    assert CountingSorter()(x).argmax(-1).tolist() == [2, 3, 1, 0, 4]
    close = torch.tensor([0.3, 0.3 + 2.0**-9], dtype=torch.float64)
    assert CountingSorter(bits=12)(close.flip(0)).argmax(-1).tolist() == [1, 0]
    assert CountingSorter(bits=4)(close.flip(0)).argmax(-1).tolist() == [0, 0]  # equal to four places: one rank


def test_bad_input_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"values must be in \[0, 1\), got 0.5 to 1"):
        CountingSorter()([0.5, 1.0])
    with pytest.raises(ValueError, match=r"values must have shape \(n,\) or \(B, n\), n ≥ 1, got \(0,\)"):
        CountingSorter()(np.zeros(0))
    with pytest.raises(ValueError, match="bits must be at most 53"):
        CountingSorter(bits=64)
