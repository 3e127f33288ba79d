"""What is said where there is no memory, or no Triton."""

from __future__ import annotations

import importlib.util
import warnings

import numpy as np
import pytest
import torch

import otformer as of
from otformer.transport import solve as ways
from otformer.transport.executors import open as opening


@pytest.mark.parametrize("error", [MemoryError("Unable to allocate"), torch.OutOfMemoryError("CUDA out of memory")])
def test_a_solve_without_memory_says_what_it_would_have_needed(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(ways, "read_points", fail)
    monkeypatch.setattr(ways, "read_cost", fail)
    x = np.zeros((20_000, 3))
    with pytest.raises(MemoryError, match=r"the 20,000 × 20,000 cost takes 2\.98 GiB in float64"):
        of.solve_sample(x, X_b=x)
    with pytest.raises(MemoryError, match="the 300 × 200 cost takes"):
        of.solve(np.zeros((300, 200)))
    with pytest.raises(MemoryError, match=r"streaming 20,000 and 20,000 points needs about 0\.035 GiB"):
        of.solve_sample(x, x, executor="stream")


def test_without_triton_blocks_run_and_a_warning_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opening.has_triton.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.warns(RuntimeWarning, match="triton is not installed"):
        assert not opening.has_triton()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not opening.has_triton()
    opening.has_triton.cache_clear()
