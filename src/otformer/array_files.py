"""Read untrusted arrays: check declared sizes against the file size before allocating.

An npy of 150 bytes may say that it holds 200,000 × 200,000 numbers, and an npz of 3 MB unpack to 3 GB. Both are known from
the headers alone: the shape in an npy, the size that a zip's directory gives for each member (zipfile gives no byte more).
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

Array = np.ndarray[Any, np.dtype[Any]]
UNPACKED_BYTES = 2**30  # to which an archive may always unpack
UNPACKED_RATIO = 100  # times the size of its file to which a larger one may
LARGEST_RECORD, LARGEST_TABLE = 10**6, 10**8  # bytes of a run.json, and of a CSV of ours
BROKEN = ValueError, EOFError, OSError, OverflowError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError


def read_whole(file: str | Path, most: int) -> bytes:
    """Read at most ``most`` bytes of an ordinary file. Devices and pipes may be endless, so they are not opened.

    >>> read_whole("/dev/zero", 10)
    Traceback (most recent call last):
    otformer.array_files.Unreadable: /dev/zero is not an ordinary file
    """
    if not Path(file).is_file():
        raise Unreadable(f"{file} is not an ordinary file")
    with Path(file).open("rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise Unreadable(f"{file} must have at most {most:,} bytes, got more")
    return data


def read_npy(file: str | Path) -> Array:
    """The array of an npy file; never one of Python objects.

    >>> import tempfile; folder = tempfile.TemporaryDirectory()
    >>> np.save(Path(folder.name, "x.npy"), np.eye(2))
    >>> read_npy(Path(folder.name, "x.npy")).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    with Path(file).open("rb") as stream:
        return _read(str(file), stream, os.fstat(stream.fileno()).st_size)


def read_npz(file: str | Path) -> dict[str, Array]:
    """The arrays of an npz file, by name.

    >>> import tempfile; folder = tempfile.TemporaryDirectory()
    >>> np.savez(Path(folder.name, "p.npz"), x=np.ones(2))
    >>> read_npz(Path(folder.name, "p.npz"))
    {'x': array([1., 1.])}
    """
    with Path(file).open("rb") as stream:
        return unpacked(str(file), stream)


def unpacked(name: str, stream: IO[bytes]) -> dict[str, Array]:
    """The arrays of an npz that a stream holds, by name."""
    try:
        room = unpacked_room(stream.seek(0, os.SEEK_END))
        with zipfile.ZipFile(stream) as archive:
            members = {each.filename.removesuffix(".npy"): each for each in archive.infolist()}
            size = sum(each.file_size for each in members.values())
            if size > room:
                raise Unreadable(f"{name} would unpack to {size / 2**30:.3g} GiB, over {UNPACKED_RATIO} times its size")
            return {each: _read(f"{each} of {name}", archive.open(info), info.file_size) for each, info in members.items()}
    except Unreadable:
        raise
    except BROKEN:
        raise Unreadable(f"{name} is not a readable .npz file") from None


def unpacked_room(size: int) -> int:
    """The bytes to which a packed file of ``size`` bytes may unpack.

    >>> unpacked_room(3_000_000) == 2**30, unpacked_room(2**30) == 100 * 2**30
    (True, True)
    """
    return max(UNPACKED_BYTES, UNPACKED_RATIO * size)


class Unreadable(ValueError):
    """A file that is not what its name says."""


def _read(name: str, stream: IO[bytes], size: int) -> Array:
    """The array of a stream of ``size`` bytes: header, then numbers, as many as there is room for."""
    unreadable = Unreadable(f"{name} is not a readable .npy file")
    try:
        version = npy.read_magic(stream)
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, _, dtype = read_header(stream)
    except Exception:  # the header is parsed as Python: damaged, it raises TokenError, RecursionError, MemoryError and more
        raise unreadable from None
    if dtype.hasobject:
        raise Unreadable(f"{name} holds Python objects, which are never read: only numbers and text are")
    if not dtype.itemsize or min(shape, default=0) < 0:
        raise unreadable
    numbers, room = math.prod(shape), size - stream.tell()
    if numbers * dtype.itemsize > room:
        stated = " × ".join(map(str, shape)) or "one"
        raise Unreadable(f"{name} is truncated: its header declares {stated} {dtype}, but only {max(room, 0)} bytes follow")
    stream.seek(0)
    try:
        return npy.read_array(stream, allow_pickle=False)
    except BROKEN:
        raise unreadable from None
