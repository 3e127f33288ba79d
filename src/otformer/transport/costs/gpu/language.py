"""Triton's language for the kernel files. A machine without Triton imports them too, and never runs them."""

from __future__ import annotations

import functools
from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None


def constant(value: float) -> Any:
    """A number that kernels read as a global."""
    return value if tl is None else tl.constexpr(value)


def jit(*changing: str) -> Any:
    """A decorator that compiles kernels, once whatever the values of the ``changing`` parameters are."""
    return functools.partial(triton.jit, do_not_specialize=changing) if triton else lambda kernel: kernel
