"""Writing results whole or not at all, and checking before the work that they can be written."""

from __future__ import annotations

import csv
import errno
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from otformer.errors import ArgumentError
from otformer.locks import part_of


def checked_out(out: str | Path) -> Path:
    """Return the output file, links followed; raise ValueError, before the work, if it cannot be written."""
    try:
        file = _followed(Path(out))
        if file.is_dir():
            raise ValueError(f"{out} cannot be written: it is a folder")
        if not file.parent.is_dir():
            raise ValueError(f"{out} cannot be written: the folder {file.parent} does not exist")
        if file.exists() and not os.access(file, os.W_OK):
            raise ValueError(f"{out} cannot be written: Permission denied")
        if file.is_file() or not file.exists():
            with part_of(file, out) as (new, _):  # a name that may be too long, in a folder that may be closed
                new.touch()
    except OSError as error:
        raise ValueError(f"{out} cannot be written: {error.strerror}") from None
    return file


def not_read(out: str | Path | None, *read: str | Path | None) -> None:
    """Raise ValueError if the output is also an input."""
    for file in read:
        if out and file and os.path.isfile(out) and os.path.isfile(file) and os.path.samefile(out, file):
            raise ValueError(f"{out} is read, and would be replaced: name another file for the output")


def check_ending(name: str, file: str | Path, *endings: str) -> None:
    """Raise ArgumentError unless the file has one of these extensions."""
    if Path(file).suffix.lower() not in endings:
        *others, last = endings
        allowed = f"{', '.join(others)} or {last}" if others else last
        raise ArgumentError(name, f"end in {allowed}", repr(str(file)))


def _followed(file: Path) -> Path:
    """Where links lead; an OSError if in a circle, of which `Path.resolve` makes a RuntimeError in Python 3.11."""
    found = Path(os.path.realpath(file))
    if found.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return found


@contextmanager
def written(file: Path, ours: bool = False) -> Iterator[IO[bytes]]:
    """A stream that becomes ``file`` when all went well, with the mode of one that it replaces; otherwise nothing is left.

    A file that the caller has named may be a link, which is followed, a device or a pipe, which is written to. Where the
    name is ``ours``, in a folder that the caller has named, whatever stands there is replaced: no link is followed.
    """
    try:
        file = _followed(file.parent) / file.name if ours else _followed(file)
        if not ours and file.exists() and not file.is_file():
            with _Forward(io.FileIO(file, "wb")) as out:
                yield out
            return
        with part_of(file) as (new, _):
            with new.open("xb") as out:
                if file.is_file() and not file.is_symlink():
                    shutil.copymode(file, new)
                yield out
            os.replace(new, file)
    except OSError as error:
        raise ValueError(f"{file} cannot be written: {error.strerror or error}") from None


class _Forward(io.BufferedWriter):
    """A stream that cannot go back and says so: /dev/null would say that it always stands at 0, which breaks a zip."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation("tell")


@contextmanager
def written_folder(folder: Path) -> Iterator[Path]:
    """A new folder that takes the place of ``folder``, with its mode, when all went well; otherwise the old one stays.

    Two renames do it. A process killed between them leaves neither in place: the next writer puts the old one back.
    """
    try:
        with part_of(folder) as (new, old):
            mode = folder.stat().st_mode & 0o777 if folder.is_dir() and not folder.is_symlink() else None
            new.mkdir(0o777 if mode is None else mode | 0o700)
            yield new
            if mode is not None:
                new.chmod(mode)
            if os.path.lexists(folder):
                os.rename(folder, old)
            os.rename(new, folder)
    except OSError as error:
        raise ValueError(f"{folder} cannot be written: {error.strerror or error}") from None


def write_csv(file: Path, rows: Sequence[Mapping[str, Any]], digits: int | None = None) -> None:
    """Write a CSV file with the column names of the first row, whole or not at all; numbers with ``digits`` if given.

    Its name is ours (`written`)."""
    with written(file, ours=True) as out, io.TextIOWrapper(out, "utf-8", newline="") as text:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        short = digits and (lambda x: f"{x:.{digits}g}" if isinstance(x, float) else x)
        writer.writerows({k: short(x) for k, x in row.items()} if short else row for row in rows)


def write_npz(file: Path, **arrays: Any) -> None:
    """Write an npz under another name in the same folder, then put it in place."""
    with written(file) as stream:
        np.savez(stream, **arrays)


def writable_folder(out: str | Path) -> Path:
    """The output folder, made if needed; a clear line if nothing can be written there."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # where the system has files without a name, it never gets one
            pass
    except OSError as error:
        raise ArgumentError("out", "be a folder that can be written to", f"{str(folder)!r} ({error.strerror})") from None
    return folder


def cache_folder() -> Path:
    """Where this user's programs keep what can be made again: XDG_CACHE_HOME if it is a whole path, or ~/.cache."""
    asked = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (asked if asked.is_absolute() else Path.home() / ".cache") / "otformer"


@contextmanager
def output_folder(out: str | Path) -> Iterator[Path]:
    """`writable_folder`, which goes again if it was made for what then failed before anything was written."""
    there = Path(out).exists()
    folder = writable_folder(out)
    try:
        yield folder
    except BaseException:
        if not there and not any(folder.iterdir()):
            folder.rmdir()
        raise
