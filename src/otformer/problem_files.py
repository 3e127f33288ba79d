"""Reading problems from files: points, costs and weights, as arrays or as text."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from otformer import checks
from otformer.array_files import Array, read_npy, read_npz, read_whole
from otformer.errors import ArgumentError

TEXT_BYTES = 2**30  # of numbers written out, which take some ten times that in memory
_NAME = re.compile(r"\s*[\"']?[^\W\d_]")  # of a column: a letter comes first


def read_problem(file: Path, second: Path | None = None, cost: bool = False) -> dict[str, Array]:
    """Read arguments for `solve` (key M) or `solve_sample` (keys X_a, X_b), with a and b where the file has them.

    Two files hold points, an npz says what it holds by its names; a single matrix may be either, so ``cost`` has to say it.
    """
    if second is not None:
        if cost:
            raise ArgumentError("--cost", "be used with one file, a matrix", f"two, {file} and {second}")
        return {"X_a": _points(_matrix(file)), "X_b": _points(_matrix(second))}
    if file.suffix == ".npz":
        return _from_npz(file, cost)
    matrix = _matrix(file)
    if not cost:
        raise ValueError(f"{file} alone may be points or a cost: give a second file of points, or --cost for a cost matrix")
    return {"M": matrix}


def read_weights(file: Path) -> Array:
    """Read weights: a list of numbers, one per line or all in one line."""
    weights = _matrix(file)
    return weights.reshape(-1) if weights.ndim == 2 and 1 in weights.shape else weights


def _from_npz(file: Path, cost: bool) -> dict[str, Array]:
    arrays = _load(file)
    for name in arrays.keys() & {"x", "y", "a", "b", "cost"}:
        _finite(f"{name} of {file}", arrays[name])
    weights: dict[str, Array] = {name: arrays[name] for name in ("a", "b") if name in arrays}
    if "cost" in arrays and ("x" in arrays or "y" in arrays):
        raise ValueError(f"{file} holds both cost and points: keep one of them")
    if "cost" in arrays:
        return {"M": arrays["cost"], **weights}
    if "x" in arrays and "y" in arrays and not cost:
        return {"X_a": _points(arrays["x"]), "X_b": _points(arrays["y"]), **weights}
    found, wanted = ", ".join(arrays) or "nothing", "cost" if cost else "x and y, or cost"
    raise ArgumentError(file, f"hold {wanted} (and a, b if you like)", found)


def _points(x: Array) -> Array:
    """A list of numbers is a list of points in one dimension."""
    return x[:, None] if x.ndim == 1 else x


def _matrix(file: Path) -> Array:
    if file.suffix == ".npz":
        raise ValueError(f"{file} is an npz, which holds the whole problem: give it alone")
    return _finite(str(file), _load(file))


def _finite(name: str, array: Array) -> Array:
    if array.dtype.kind not in "fiub":
        raise ArgumentError(name, "hold numbers", f"dtype {array.dtype}")
    if not np.isfinite(array).all():
        raise ArgumentError(name, "be finite", checks.first_not_finite(array))
    return array


def _load(file: Path) -> Any:
    """Read the array of a file; of an npz a dict of them."""
    if file.suffix not in (".npz", ".npy", ".csv", ".tsv", ".txt"):
        raise ArgumentError(file, "end in .npz, .npy, .csv, .tsv or .txt")
    try:
        if not file.exists():
            raise ValueError(f"{file} does not exist")
        if not file.is_file():
            raise ValueError(f"{file} is a {'folder' if file.is_dir() else 'device or a pipe'}, not a file")
        if file.stat().st_size == 0:
            raise ValueError(f"{file} is empty")
        if not file.suffix.startswith(".np"):
            return _read_text(file)
        with file.open("rb") as stream:
            first = stream.read(len(MAGIC_PREFIX))
        if file.suffix == ".npy" and first.startswith(b"PK"):
            raise ValueError(f"{file} holds an archive, not one array: name it .npz")
        if file.suffix == ".npz" and first == MAGIC_PREFIX:
            raise ValueError(f"{file} holds one array, not an archive: name it .npy")
        return read_npy(file) if file.suffix == ".npy" else read_npz(file)
    except OSError as error:  # reported here, or it would be taken for one of a file that is being written meanwhile
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from None


def _read_text(file: Path) -> Array:
    """Read one row of numbers per line; a csv may be separated by semicolons.

    Column names on the first line are passed over, with a warning: every one of them begins with a letter.
    """
    if file.stat().st_size > TEXT_BYTES:
        raise ArgumentError(file, f"have at most {TEXT_BYTES:,} bytes as text", "more", "give it as .npy")
    try:
        text = read_whole(file, TEXT_BYTES).decode("utf-8-sig")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not a text file") from None
    semicolons = file.suffix == ".csv" and bool(lines) and ";" in lines[0]
    separator = ";" if semicolons else {".csv": ",", ".tsv": "\t"}.get(file.suffix)
    rows = [[_number(word) for word in line.split(separator)] for line in lines]
    if rows and set(rows[0]) == {None} and all(_NAME.match(word) for word in lines[0].split(separator)):
        warnings.warn(f"{file}: the first line, {lines[0][:60]!r}, is read as column names", stacklevel=2)
        del lines[0], rows[0]
    if not rows:
        raise ValueError(f"{file} holds no numbers")
    for line, row in zip(lines, rows, strict=True):
        if None in row or len(row) != len(rows[0]):
            comma = "; write decimals with a point" if semicolons and "," in line else ""
            wanted = "one number per row" if len(rows[0]) == 1 else f"rows of {len(rows[0])} numbers"
            raise ArgumentError(file, f"hold {wanted}", f"{line[:60]!r}{comma}")
    return np.array(rows, dtype=np.float64)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
