"""Functions that numba compiles; a missing numba is said in one line, when one of them is first called."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from otformer.extras import absence, install

F = TypeVar("F", bound=Callable[..., Any])
ALONE_UP_TO = 2**21  # pairs to look at: threads would wait for each other longer than one of them works
PARTS = 8  # of the work for every thread, so that none is left with the last long one

try:
    from numba import njit
    from numba.core import event

    from otformer.transport.compiled_cache import cache_of
except ImportError as error:  # the extra is not installed, or numba does not know this version of numpy yet
    njit, WHY = None, absence(error, "numba")  # type: ignore[assignment]

# torch computes in GNU OpenMP, whose threads a forked process lacks and waits for: a DataLoader sets this too.
os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


def compiled(function: F) -> F:
    """Compiled when it is first called, and kept on disk where there is room for it (compiled_cache.py).

    What Python calls must write into arrays that it is given: new ones are made by Python code, in which Ctrl-C would be an
    error of the interpreter itself.
    """

    def missing(*_: Any) -> Any:
        raise ImportError(f"exact transport needs numba, which is {WHY}: {install('exact')}")

    if njit is None:
        return missing
    found: Any = njit(nogil=True)(function)
    if found is not function:  # with NUMBA_DISABLE_JIT it stays plain Python
        found._cache = cache_of(function)
    return found


@contextmanager
def compilation(tell: Callable[[], None]) -> Iterator[Callable[[], float]]:
    """Call ``tell`` with the seconds so far when something is first compiled; never if all compiled code is on disk."""
    if njit is None:
        yield lambda: 0.0
        return

    class Told(event.TimingListener):
        def on_start(self, given: Any) -> None:
            if not (self.done or self._depth):
                tell()
            super().on_start(given)

    with event.install_listener("numba:compile", Told()) as heard:
        yield lambda: heard.duration if heard.done else 0.0


def in_threads(work: Callable[[int, int], Any], many: int, pairs: int) -> None:
    """``work(first, last)`` on parts of range(many), in as many threads as torch has if there is enough to do.

    Compiled functions let other threads run. These here end with the call: no pool, so nothing is lost in a fork.

    >>> found = np.zeros(5)
    >>> in_threads(lambda first, last: found[first:last].fill(1), 5, pairs=2**22)
    >>> found.sum()
    np.float64(5.0)
    """
    count = torch.get_num_threads() if pairs > ALONE_UP_TO else 1
    if count == 1:
        work(0, many)
        return
    ends = np.linspace(0, many, min(many, PARTS * count) + 1).astype(int).tolist()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, ends[:-1], ends[1:]))


@compiled
def by_row(i: np.ndarray, start: np.ndarray, order: np.ndarray) -> None:
    """Write where edges of each row begin when they are put in the order of rows, [n + 1], and that order."""
    start[:] = 0
    for row in i:
        start[row + 1] += 1
    for row in range(1, len(start)):
        start[row] += start[row - 1]
    at = start[:-1].copy()
    for e in range(len(i)):
        order[at[i[e]]] = e
        at[i[e]] += 1
