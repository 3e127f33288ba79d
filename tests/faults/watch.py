"""What becomes visible in a folder, told by the kernel (inotify): nothing that happens between two looks is missed.

A file that appears whole appears by a rename. One that is created or written to under its own name could be seen half.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Iterator
from pathlib import Path

MODIFY, MOVED_TO, CREATE, IS_FOLDER = 0x2, 0x80, 0x100, 0x40000000  # of sys/inotify.h
HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_libc = ctypes.CDLL(None, use_errno=True)


def passing(path: Path) -> bool:
    """Whether a file is on its way: hidden, or a finished chunk of a result. Nobody takes it for the result."""
    return any(part.startswith(".") or part.endswith(".parts") for part in path.parts)


class Watch:
    """A folder and those below it, from now on. ``broken`` names what was written in place."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.folders, self.broken = folder, dict[int, Path](), list[str]()
        self.handle = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.handle < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self._add(folder)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.handle)

    def _add(self, folder: Path) -> None:
        number = _libc.inotify_add_watch(self.handle, os.fsencode(folder), MODIFY | MOVED_TO | CREATE)
        if number >= 0:  # it may be gone already
            self.folders[number] = folder
            for each in folder.iterdir() if folder.is_dir() else ():
                if each.is_dir() and not passing(each.relative_to(self.folder)):
                    self._add(each)

    def wait(self, seconds: float, growing: tuple[str, ...] = ()) -> bool:
        """Look at what happens for so long at most; whether something has appeared."""
        if not select.select([self.handle], [], [], seconds)[0]:
            return False
        appeared = False
        for path, mask in self._events():
            name = path.relative_to(self.folder)
            if passing(name):
                continue
            if mask & IS_FOLDER:
                self._add(path)
            elif not mask & MOVED_TO and str(name) not in growing:
                self.broken.append(f"{name} was {'made' if mask & CREATE else 'written'} in place")
            appeared = True
        return appeared

    def _events(self) -> Iterator[tuple[Path, int]]:
        data = os.read(self.handle, 1 << 16)
        while data:
            watch, mask, _, length = HEAD.unpack_from(data)
            name = os.fsdecode(data[HEAD.size : HEAD.size + length].rstrip(b"\0"))
            data = data[HEAD.size + length :]
            if watch in self.folders and name:
                yield self.folders[watch] / name, mask
