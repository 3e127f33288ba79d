"""Locks that end with their process, however it ends: who works where, and which half-made files nobody makes any more."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


@contextmanager
def held(path: Path, name: str | Path | None = None) -> Iterator[bool]:
    """One process at a time works in a folder, or on a file; another is told so, of ``name``.

    Gives whether there is a lock at all: Windows has none of these, nor have some file systems.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, held(Path(place), "out"), held(Path(place), "out"):
    ...     pass
    Traceback (most recent call last):
    ValueError: out is being written by another process: wait for its end, or name another
    """
    try:
        import fcntl
    except ImportError:
        yield False
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        taken = f"{name or path} is being written by another process: wait for its end, or name another"
        sure = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(taken) from None
        except OSError:
            sure = False
        if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):  # it was removed meanwhile
            raise ValueError(taken)
        yield sure
    finally:
        os.close(handle)


@contextmanager
def part_of(file: Path, mode: int = 0o666) -> Iterator[Path]:
    """An empty file beside ``file`` for what is to become it, held by this process; gone in the end if it is still there.

    Those that killed processes have left are removed first. One is known by its name and by its lock, which nobody has.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, part_of(Path(place, "plan.npz")) as part:
    ...     part.name.startswith(".plan.npz."), part.suffix, part.stat().st_size
    (True, '.part', 0)
    """
    for left in file.parent.glob(f".{glob.escape(file.name)}.*.part"):
        with suppress(ValueError, OSError), held(left) as sure:
            if sure:
                left.unlink()
    with ExitStack() as stack:
        while True:
            part = file.with_name(f".{file.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
            part.touch(mode, exist_ok=False)
            with suppress(ValueError, FileNotFoundError):  # another has taken it for one that was left: so it is gone
                stack.enter_context(held(part))
                break
        stack.callback(part.unlink, missing_ok=True)
        yield part
