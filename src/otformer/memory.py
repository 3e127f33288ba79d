"""Lack of memory: which errors mean it, and the one line that says what a call would have needed.

A function that may run out of memory is decorated with `needs` and what its arguments need:

>>> @needs(lambda rows, columns, **_: Need(matrices("table", rows, columns), rows * columns, "ask for fewer rows"))
... def table(rows, columns=10**5, dtype=float):
...     raise MemoryError
>>> table(10**6)
Traceback (most recent call last):
MemoryError: not enough memory: table of a 1,000,000 × 100,000 table needs about 745 GiB; ask for fewer rows
"""

from __future__ import annotations

import errno
import functools
import inspect
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
SAYS = "not enough memory: "  # how every line begins
LOADED = 2**26  # bytes: what the first call of a function loads besides its numbers
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
# What a plain RuntimeError of torch says where there is no class for it: its allocator on a CPU (Linux, then Windows), the
# system where a file is mapped, the allocator of C++, CUDA itself, and CUDA's libraries.
TORCH_SAYS = (
    "can't allocate memory", "Allocator: not enough memory", "Cannot allocate memory", "bad_alloc", "error: out of memory",
    "_ALLOC_FAILED",
)  # fmt: skip


class Need(NamedTuple):
    """What a call needs."""

    what: str  # the sizes it was given, in words: "a 300 × 200 cost"
    numbers: float  # of float64 that it holds at once, about
    instead: str  # what takes less


def lacking(error: BaseException) -> bool:
    """Whether an error says that memory is lacking, and nothing else.

    >>> lacking(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"))
    True
    >>> [lacking(e) for e in (MemoryError(), NotImplementedError("can't allocate memory"), RuntimeError("no graph"))]
    [True, False, False]
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True  # numpy's and numba's too; and that of a file that is mapped
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    of_cuda = getattr(torch, "AcceleratorError", RuntimeError)  # a class of newer versions
    return type(error) in (RuntimeError, of_cuda) and any(said in str(error) for said in TORCH_SAYS)


def needs(need: Callable[..., Need]) -> Callable[[F], F]:
    """Decorate a function: where memory is lacking, a MemoryError says what ``need`` makes of its arguments.

    ``need`` gets all of them by name, those that were not given with their defaults. Of functions that call each other the
    outermost, which is the one that the user knows, has the last word.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except (MemoryError, RuntimeError, OSError) as error:
                if not lacking(error):
                    raise
                raise MemoryError(_line(function, need, *args, **kwargs)) from error

        return call  # type: ignore[return-value]

    return decorate


def _line(function: Callable[..., Any], need: Callable[..., Need], /, *args: Any, **kwargs: Any) -> str:
    given = inspect.signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    what, numbers, instead = need(**given.arguments)
    own = given.arguments.get("self")
    name = function.__name__ if own is None else f"{type(own).__name__}.{function.__name__}"
    name = name.removesuffix(".forward").removesuffix(".__init__")
    return f"{SAYS}{name} of {what} needs about {human(LOADED + 8 * numbers)}; {instead}"


def human(size: float) -> str:
    """A number of bytes in units that a person reads.

    >>> human(8 * 20_000**2), human(100)
    ('2.98 GiB', '100 bytes')
    """
    power = min(int(math.log(max(size, 1), 1024)), len(UNITS) - 1)
    return f"{size / 1024**power:.3g} {UNITS[power]}"


def matrices(kind: str, n: int, m: int, count: int = 1) -> str:
    """So many matrices in words.

    >>> matrices("cost", 300, 200), matrices("cost", 300, 200, 8)
    ('a 300 × 200 cost', '8 costs of 300 × 200')
    """
    several = "matrices" if kind == "matrix" else f"{kind}s"
    return f"a {n:,} × {m:,} {kind}" if count == 1 else f"{count:,} {several} of {n:,} × {m:,}"


def shape(value: Any, axes: int = 2) -> tuple[int, ...]:
    """At least so many axes of an array, a tensor or nested lists, of which no array is made; 1 for those in front.

    >>> shape([[1, 2, 3], [4, 5, 6]]), shape([1, 2, 3]), shape(None)
    ((2, 3), (1, 3), (1, 1))
    """
    known = _shape(value)
    return (1,) * (axes - len(known)) + known


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        return (len(value), *_shape(value[0])) if value else (0,)
    return tuple(getattr(value, "shape", ()))
