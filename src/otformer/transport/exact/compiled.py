"""Functions that numba compiles; a missing numba is said in one line, when one of them is first called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch

F = TypeVar("F", bound=Callable[..., Any])
ALONE_UP_TO = 2**21  # pairs to look at: threads would wait for each other longer than one of them works

try:
    from numba import get_num_threads, njit, prange, set_num_threads
except ImportError:  # the extra is not installed
    njit, prange = None, range  # type: ignore[assignment, misc]


def compiled(function: F) -> F:
    """Compiled when it is first called, and kept on disk."""
    return _compiled(function, parallel=False)


def parallel(function: F) -> F:
    """The same, its `prange` loops in threads."""
    return _compiled(function, parallel=True)


@contextmanager
def threads(pairs: int) -> Iterator[None]:
    """`parallel` functions in here have as many threads as torch if there is enough to do; torch keeps those it had."""
    if njit is None:
        yield
        return
    own, before = torch.get_num_threads(), get_num_threads()
    set_num_threads(min(own, before) if pairs > ALONE_UP_TO else 1)
    try:
        yield
    finally:
        set_num_threads(before)
        if torch.get_num_threads() != own:  # they share a pool
            torch.set_num_threads(own)


def _compiled(function: F, parallel: bool) -> F:
    def missing(*_: Any) -> Any:
        raise ImportError("exact transport needs numba: pip install 'otformer[exact]'")

    found: Any = missing if njit is None else njit(cache=True, nogil=True, parallel=parallel)(function)
    return found


@compiled
def by_row(i: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Where edges of each row begin when they are put in the order of rows, [n + 1], and that order."""
    start = np.zeros(n + 1, np.int64)
    for row in i:
        start[row + 1] += 1
    start = np.cumsum(start)
    at, order = start[:-1].copy(), np.empty(len(i), np.int64)
    for e in range(len(i)):
        order[at[i[e]]] = e
        at[i[e]] += 1
    return start, order
