"""Functions that numba compiles; a missing numba is said in one line, when one of them is first called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    from numba import njit, prange
except ImportError:  # the extra is not installed
    njit, prange = None, range


def compiled(function: F) -> F:
    """Compiled when it is first called, and kept on disk."""
    if njit is not None:
        return njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]

    def missing(*_: Any) -> Any:
        raise ImportError("exact transport needs numba: pip install 'otformer[exact]'")

    return missing  # type: ignore[return-value]


def parallel(function: F) -> F:
    """The same, its `prange` loops in threads."""
    return compiled(function) if njit is None else njit(cache=True, nogil=True, parallel=True)(function)  # type: ignore[no-any-return]
