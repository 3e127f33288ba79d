"""What is said where there is no memory, or no Triton."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
import torch

import otformer as of
from otformer.transport import solve as ways
from otformer.transport.costs import points as opening
from otformer.transport.ragged import batch


@pytest.mark.parametrize("error", [MemoryError("Unable to allocate"), torch.OutOfMemoryError("CUDA out of memory")])
def test_a_solve_without_memory_says_what_it_would_have_needed(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(ways, "read_points", fail)
    monkeypatch.setattr(ways, "read_cost", fail)
    x = np.zeros((20_000, 3))
    with pytest.raises(MemoryError, match=r"solve_sample of a 20,000 × 20,000 cost needs about 12 GiB; \S"):
        of.solve_sample(x, x, None, None, 0.1, schedule="relaxed")
    with pytest.raises(MemoryError, match=r"solve_sample of a 20,000 × 20,000 cost needs about 12 GiB; \S"):
        of.solve_sample(x, X_b=x, executor="dense")
    with pytest.raises(MemoryError, match="solve of a 300 × 200 cost needs about"):
        of.solve(np.zeros((300, 200)))
    with pytest.raises(MemoryError, match=r"solve_sample of a stream of 20,000 and 20,000 points needs about 100 MiB; \S"):
        of.solve_sample(x, X_b=x)  # above 10⁸ entries no matrix is formed


def test_without_triton_blocks_run_and_a_warning_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opening.has_triton.cache_clear()
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.warns(RuntimeWarning, match="triton is not installed"):
        assert not opening.has_triton()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not opening.has_triton()
    opening.has_triton.cache_clear()


class Unfinished(RuntimeError):
    """A subclass of the class in which torch says that memory is lacking."""


@pytest.mark.parametrize(
    "kind", [NotImplementedError, RecursionError, np.linalg.LinAlgError, torch.linalg.LinAlgError, Unfinished]
)
def test_other_errors_are_no_lack_of_memory(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise kind("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(ways, "read_cost", fail)
    with pytest.raises(kind, match="DefaultCPUAllocator"):
        of.solve(np.zeros((3, 2)), None, None, 0.1)


LACKS = [
    MemoryError("Unable to allocate 8 TiB"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"
    ),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    RuntimeError("std::bad_alloc"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
]


@pytest.mark.parametrize("error", LACKS, ids=str)
def test_a_problem_of_a_batch_without_memory_is_not_called_broken(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(batch, "read_alone", fail)
    for problems in ([np.eye(2), np.zeros((700, 600))], [np.eye(2), (np.zeros((700, 2)), np.zeros((600, 2)))]):
        with pytest.raises(MemoryError, match=r"solve_batch of 2 problems up to 700 × 600 needs about 76\.8 MiB") as caught:
            of.solve_batch(problems)
        assert caught.value.__cause__ is error
