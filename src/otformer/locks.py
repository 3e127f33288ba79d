"""Locks that end with their process, and unfinished files, which only the holder of a lock makes or removes.

A file or folder is made under a name beside its own, then renamed. One writer at a time does so, so that unfinished ones
that the next writer finds belong to killed processes. A lock is removed while it is held: filelock (since 3.21) notices
that the file it waited for is gone, and makes another.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from otformer import callers

LOCK = ".otformer.lock"  # in a folder that is held
WAIT = 60.0  # seconds that a writer waits for another one of the same file
GRACE = 0.1  # seconds in which a lock that is just being removed is made again
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP}


@contextmanager
def held(lock: Path, name: str | Path) -> Iterator[None]:
    """Hold a lock file; another process is refused. A warning says where the file system has no locks.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, held(Path(place, LOCK), "out"), held(Path(place, LOCK), "out"):
    ...     pass
    Traceback (most recent call last):
    ValueError: out is being written by another process: wait until it ends, or name another
    """
    with _locked(lock, name, GRACE) as alone:
        if not alone:
            callers.warn(f"{name} is on a file system without locks: let no other process write there", UserWarning)
        yield


@contextmanager
def _locked(lock: Path, name: str | Path, wait: float) -> Iterator[bool]:
    """Hold a lock file, for which to wait so many seconds; False where the file system has no locks."""
    from filelock import FileLock, Timeout

    if not lock.parent.is_dir():  # filelock would make it
        raise ValueError(f"{name} cannot be written: the folder {lock.parent} does not exist")
    handle = FileLock(lock, mode=0o666)
    try:
        handle.acquire(timeout=wait, poll_interval=0.01)
    except Timeout:
        raise ValueError(f"{name} is being written by another process: wait until it ends, or name another") from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise ValueError(f"{name} cannot be written: {error.strerror} ({lock})") from None
    try:
        yield handle.is_locked
    finally:
        with suppress(OSError):
            lock.unlink()
        handle.release()


@contextmanager
def part_of(file: Path, name: str | Path | None = None) -> Iterator[tuple[Path, Path]]:
    """Yield, under a lock, two temporary paths next to ``file``: for the new one and for the old folder.

    Both are removed on exit. What killed writers of ``file`` left is removed first. An older folder goes back to its
    place if that is empty. Messages call the file ``name``, if given.
    """
    with _locked(file.with_name(f".{file.name}.otformer-lock"), name or file, WAIT) as alone:
        names = os.listdir(file.parent) if alone and os.access(file.parent, os.R_OK) else []
        for left in filter(re.compile(rf"\.{re.escape(file.name)}\.[0-9a-f]{{8}}\.otformer-(new|old)").fullmatch, names):
            with suppress(OSError):  # it may be another user's
                _end(file.with_name(left), file)
        new = file.with_name(f".{file.name}.{secrets.token_hex(4)}.otformer-new")
        try:
            yield new, new.with_suffix(".otformer-old")
        finally:
            with suppress(OSError):  # what is left is removed by the next writer
                _end(new, file)


def _end(left: Path, file: Path) -> None:
    """Put an older folder back if nothing is in its place, then remove both; it is not removed if that fails."""
    new, old = left.with_suffix(".otformer-new"), left.with_suffix(".otformer-old")
    if os.path.lexists(old) and not os.path.lexists(file):
        os.rename(old, file)
    for path in (new, old):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)  # its mode may forbid changes
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
