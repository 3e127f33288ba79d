"""Reading problems from files and writing results whole or not at all."""

from __future__ import annotations

import os
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def read_problem(file: Path, second: Path | None = None) -> dict[str, Array]:
    """Arguments for `solve` (key M) or `solve_sample` (keys X_a, X_b), with a and b where the file has them."""
    if second is not None:
        return {"X_a": _points(_matrix(file)), "X_b": _points(_matrix(second))}
    if file.suffix == ".npz":
        return _from_npz(file)
    return {"M": _matrix(file)}


def _from_npz(file: Path) -> dict[str, Array]:
    arrays = _load(file)
    assert isinstance(arrays, dict)
    weights: dict[str, Array] = {name: arrays[name] for name in ("a", "b") if name in arrays}
    if "cost" in arrays:
        return {"M": arrays["cost"], **weights}
    if "x" in arrays and "y" in arrays:
        return {"X_a": _points(arrays["x"]), "X_b": _points(arrays["y"]), **weights}
    found = ", ".join(arrays) or "nothing"
    raise ValueError(f"{file} must hold x and y, or cost (and a, b if you like), got {found}")


def _points(x: Array) -> Array:
    """A list of numbers is a list of points in one dimension."""
    return x[:, None] if x.ndim == 1 else x


def _matrix(file: Path) -> Array:
    if file.suffix == ".npz":
        raise ValueError(f"{file} is an npz, which holds both sides: give it alone")
    if file.suffix == ".npy":
        array = _load(file)
        assert not isinstance(array, dict)
        return array
    if file.suffix in (".csv", ".txt", ".tsv"):
        return _read_text(file)
    raise ValueError(f"{file} must end in .npz, .npy, .csv, .tsv or .txt")


def _load(file: Path) -> Array | dict[str, Array]:
    _readable(file)
    try:
        loaded = np.load(file, allow_pickle=False)
        return dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else loaded
    except (ValueError, EOFError, zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{file} is not a readable {file.suffix} file: {str(error).splitlines()[0]}") from None


def _read_text(file: Path) -> Array:
    """Numbers, a row a line; one line of column names at the top is passed over."""
    _readable(file)
    separator = {".csv": ",", ".tsv": "\t"}.get(file.suffix)
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not a text file") from None
    if lines and not _numeric(lines[0], separator):
        lines = lines[1:]
    if not lines:
        raise ValueError(f"{file} holds no numbers")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.loadtxt(lines, delimiter=separator, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{file} must hold rows of numbers of one length: {str(error).splitlines()[0]}") from None


def _numeric(line: str, separator: str | None) -> bool:
    try:
        return bool([float(word) for word in line.split(separator)])
    except ValueError:
        return False


def _readable(file: Path) -> None:
    if not file.exists():
        raise ValueError(f"{file} does not exist")
    if file.is_dir():
        raise ValueError(f"{file} is a folder, not a file")
    if file.stat().st_size == 0:
        raise ValueError(f"{file} is empty")


def write_npz(file: Path, **arrays: Array) -> None:
    """Write an npz under a temporary name in the same folder, then put it in place."""
    if not file.parent.is_dir():
        raise ValueError(f"{file.parent} is not a folder")
    handle, name = tempfile.mkstemp(dir=file.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
