"""Functions that numba compiles; a missing numba is said in one line, when one of them is first called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    from numba import njit, prange
except ImportError:  # the extra is not installed
    njit, prange = None, range  # type: ignore[assignment, misc]


def compiled(function: F) -> F:
    """Compiled when it is first called, and kept on disk."""
    return _compiled(function, parallel=False)


def parallel(function: F) -> F:
    """The same, its `prange` loops in threads."""
    return _compiled(function, parallel=True)


def _compiled(function: F, parallel: bool) -> F:
    def missing(*_: Any) -> Any:
        raise ImportError("exact transport needs numba: pip install 'otformer[exact]'")

    found: Any = missing if njit is None else njit(cache=True, nogil=True, parallel=parallel)(function)
    return found
