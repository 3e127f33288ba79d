"""Locks that end with their process, however it ends: who works where, and which half-made files nobody makes any more.

A lock is that of a file, opened for writing: a file server gives no other. (The lock of a *folder* on NFS is one among
the processes of one machine, and one of a file that was opened for reading is refused there.) A process number says nothing
of who is alive, as each container counts its own; it stands in names for whoever looks at them.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from otformer import callers
from otformer.replacing import remove

TOKEN = r"\d+-[0-9a-f]{8}"  # of a writer: the number of its process, and eight digits by chance
LOCK = ".otformer.lock"  # in a folder that is held
_OPENED = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # no link is followed, no pipe waited for


@contextmanager
def held(folder: Path, name: str | Path | None = None) -> Iterator[None]:
    """One process at a time works in a folder; another is told so, of ``name``.

    Where there are no locks (Windows, some file systems) a warning says that two are not told apart.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, held(Path(place), "out"), held(Path(place), "out"):
    ...     pass
    Traceback (most recent call last):
    ValueError: out is being written by another process: wait for its end, or name another
    """
    file = folder / LOCK
    while True:
        try:
            handle, sure = _locked(file, os.O_CREAT)
            break
        except BlockingIOError:
            raise ValueError(
                f"{name or folder} is being written by another process: wait for its end, or name another"
            ) from None
        except FileNotFoundError:  # the last to hold it has removed it between our opening and our locking
            if not folder.is_dir():
                raise
        except OSError as error:
            raise ValueError(f"{file} cannot be opened, which tells two writers apart: {error.strerror}") from None
    try:
        if not sure:
            told = f"{name or folder} is on a file system without locks: let no other process write there meanwhile, as two"
            callers.warn(f"{told} are not told apart", UserWarning)
        yield
    finally:
        with suppress(OSError):
            file.unlink()
        os.close(handle)


def _locked(file: Path, more: int = 0) -> tuple[int, bool]:
    """Open and lock a file: the handle, whose closing ends the lock, and whether there is a lock at all.

    BlockingIOError says that another has it, FileNotFoundError that it is gone, perhaps since it was opened.
    """
    try:
        handle = os.open(file, _OPENED | more, 0o666)
    except PermissionError:
        if not os.path.lexists(file):  # nor may it be made here
            raise
        handle = os.open(file, _OPENED & ~os.O_RDWR)  # another user's
    try:
        sure = _lock(handle)
        if not os.path.samestat(os.fstat(handle), os.lstat(file)):
            raise FileNotFoundError(errno.ENOENT, "it was replaced", str(file))
    except BaseException:
        os.close(handle)
        raise
    return handle, sure


def _lock(handle: int) -> bool:
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except (ImportError, OSError):  # Windows; ENOLCK, EOPNOTSUPP, EBADF and the like
        return False
    return True


@contextmanager
def part_of(file: Path, mode: int = 0o666) -> Iterator[Path]:
    """An empty file beside ``file`` for what is to become it, locked; in the end it is removed, if it is still there.

    What killed writers of ``file`` have left is tidied first. For one that is to become a folder the part is the lock alone,
    and `beside` it is the folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, part_of(Path(place, "plan.npz")) as part:
    ...     part.name.startswith(".plan.npz."), part.suffix, part.stat().st_size
    (True, '.part', 0)
    """
    tidy(file)
    while True:
        part = file.with_name(f".{file.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
        part.touch(mode, exist_ok=False)
        try:
            handle, _ = _locked(part)
            break
        except (BlockingIOError, FileNotFoundError):
            continue  # another has taken it, not locked yet, for one that was left, and removes it
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    try:
        yield part
    finally:
        with suppress(OSError):
            _end(part, file)
        os.close(handle)


def beside(part: Path) -> tuple[Path, Path]:
    """The folder that is being made under the lock of a part, and the place of the one that it replaces."""
    return part.with_suffix(".new"), part.with_suffix(".old")


def tidy(file: Path) -> None:
    """Remove what killed writers of a file or a folder have left beside it; one killed between two renames is undone.

    Theirs are those whose part, a name of ours, exists and is locked by nobody.
    """
    tidy_parts(file.parent, re.escape(file.name))


def tidy_parts(folder: Path, name: str) -> None:
    """`tidy` for every file of a folder whose name matches the pattern ``name``."""
    made = re.compile(rf"\.({name})\.{TOKEN}\.part")
    names: list[str] = []
    with suppress(OSError):  # a folder may be written to and not listed
        names = os.listdir(folder)
    for found in filter(None, map(made.fullmatch, names)):
        with suppress(OSError):  # it is held, gone, or may not be removed
            handle, sure = _locked(folder / found[0])
            try:
                if sure:
                    _end(folder / found[0], folder / found[1])
            finally:
                os.close(handle)


def _end(part: Path, file: Path) -> None:
    """Remove all that was made under the lock of a part, the part last: what cannot be removed yet is found again.

    An older folder goes back to its place if the new one is not there. That is so only while the new one still has its first
    name: if it has not, ``file`` may be missing because the next writer is between its own two renames.
    """
    fresh, old = beside(part)
    if os.path.lexists(fresh) and os.path.lexists(old) and not os.path.lexists(file):
        old.rename(file)
    remove(fresh)  # first: never is there a half-removed older one beside it, which would go back to its place
    remove(old)
    part.unlink(missing_ok=True)
