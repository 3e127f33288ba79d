"""Where numba's code is kept on disk: in the user's cache folder. A file that is damaged is compiled anew, and replaced.

numba's own cache lies in the source tree, and lets an error of a damaged file through. Two kinds of damage are found here:
what cannot be read at all, and wrong bytes inside, as after a power cut, which LLVM would run: a digest ends every file.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    NullCache,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)

from otformer._version import __version__
from otformer.files import cache_folder

DIGEST = 32  # bytes of a sha256
logger = logging.getLogger("otformer")


@cache
def _sources(folder: Path) -> bytes:
    """A digest of all sources of a room: compiled functions call those of its other files, which numba does not look at."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.py")))).digest()


class _Stamped:
    _py_file: str

    def get_source_stamp(self) -> bytes:
        return _sources(Path(self._py_file).parent) + _sources(Path(__file__).parent)


class AsAsked(_Stamped, UserProvidedCacheLocator):
    """In the folder that NUMBA_CACHE_DIR names."""


class OfUser(_Stamped, UserWideCacheLocator):
    """In the user's cache folder: a folder for these versions, and in it one for every place the package lies in."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        versions = f"compiled-{__version__}-numba-{numba.__version__}"
        self._cache_path = str(cache_folder() / versions / self.get_suitable_cache_subpath(file))


class _Found(CompileResultCacheImpl):
    _locator_classes = [AsAsked, OfUser]  # noqa: RUF012


class _Sealed(IndexDataCacheFile):
    def _dump(self, obj: Any) -> bytes:
        data: bytes = super()._dump(obj)
        return data + hashlib.sha256(data).digest()  # pickle ignores what comes after an object

    def _load_data(self, name: str) -> Any:
        written = Path(self._data_path(name)).read_bytes()
        data, digest = written[:-DIGEST], written[-DIGEST:]
        if hashlib.sha256(data).digest() != digest:
            raise ValueError(f"{name} is damaged")
        return super()._load_data(name)


class Kept(FunctionCache):
    """numba's cache of one function; no file in it, and no lack of room for one, is a fault of the call."""

    _impl_class = _Found

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        found = self._impl
        self._cache_file = _Sealed(self._cache_path, found.filename_base, found.locator.get_source_stamp())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # damaged, or not ours to read: whatever pickle, LLVM or the file system says
            found = None
            try:
                self.flush()
            except OSError:
                self.disable()
        if found is None:
            _tell()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # the disk is full: it is compiled all the same
            super().save_overload(sig, data)


class Forgotten(NullCache):
    """Nothing can be kept, as for a service that has no home."""

    def load_overload(self, sig: Any, target_context: Any) -> None:
        _tell()


def cache_of(function: Any) -> Kept | Forgotten:
    """What a compiled function looks into before it compiles."""
    try:
        return Kept(function)
    except RuntimeError:  # no folder can be written, or there is no home
        return Forgotten()


@cache
def _tell() -> None:
    """Once per process: these calls take longer than the next ones."""
    logger.info("compiling with numba: the first exact solve takes longer")
