"""Reading problems from files and writing results whole or not at all."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from otformer import checks
from otformer.array_files import Array, read_npy, read_npz, read_whole
from otformer.locks import beside, part_of
from otformer.replacing import first_mode, put_file, put_folder

TEXT_BYTES = 2**30  # of numbers written out, which take some ten times that in memory
_NAME = re.compile(r"\s*[\"']?[^\W\d_]")  # of a column: a letter comes first


def read_problem(file: Path, second: Path | None = None, cost: bool = False) -> dict[str, Array]:
    """Read arguments for `solve` (key M) or `solve_sample` (keys X_a, X_b), with a and b where the file has them.

    Two files hold points, an npz says what it holds by its names; a single matrix may be either, so ``cost`` has to say it.
    """
    if second is not None:
        if cost:
            raise ValueError(f"cost goes with one file, a matrix, got two: {file} and {second}")
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
    raise ValueError(f"{file} must hold {wanted} (and a, b if you like), got {found}")


def _points(x: Array) -> Array:
    """A list of numbers is a list of points in one dimension."""
    return x[:, None] if x.ndim == 1 else x


def _matrix(file: Path) -> Array:
    if file.suffix == ".npz":
        raise ValueError(f"{file} is an npz, which holds the whole problem: give it alone")
    return _finite(str(file), _load(file))


def _finite(name: str, array: Array) -> Array:
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold numbers, got dtype {array.dtype}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {checks.first_not_finite(array)}")
    return array


def _load(file: Path) -> Any:
    """The array of a file; of an npz a dict of them."""
    try:
        return _loaded(file)
    except OSError as error:  # said here, or it would be taken for one of a file that is being written meanwhile
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from None


def _loaded(file: Path) -> Any:
    if file.suffix not in (".npz", ".npy", ".csv", ".tsv", ".txt"):
        raise ValueError(f"{file} must end in .npz, .npy, .csv, .tsv or .txt")
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


def _read_text(file: Path) -> Array:
    """Read one row of numbers per line; a csv may be separated by semicolons.

    Column names on the first line are passed over, with a warning: every one of them begins with a letter.
    """
    if file.stat().st_size > TEXT_BYTES:
        raise ValueError(f"{file} must have at most {TEXT_BYTES:,} bytes as text, got more: give it as .npy")
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
            raise ValueError(f"{file} must hold rows of {len(rows[0])} numbers, got {line[:60]!r}{comma}")
    return np.array(rows, dtype=np.float64)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def checked_out(out: str | Path) -> Path:
    """The output file, links followed; says before the work, not after it, that it cannot be written."""
    try:
        file = _followed(Path(out))
        if file.is_dir():
            raise ValueError(f"{out} cannot be written: it is a folder")
        if not file.parent.is_dir():
            raise ValueError(f"{out} cannot be written: the folder {file.parent} does not exist")
        if file.exists() and not os.access(file, os.W_OK):
            raise ValueError(f"{out} cannot be written: Permission denied")
        if file.is_file() or not file.exists():
            with part_of(file):  # it is written under another name, which may be too long, in a folder that may be closed
                pass
    except OSError as error:
        raise ValueError(f"{out} cannot be written: {error.strerror}") from None
    return file


def not_read(out: str | Path | None, *read: str | Path | None) -> None:
    """An output file must not be one of those that are read."""
    for file in read:
        if out and file and os.path.isfile(out) and os.path.isfile(file) and os.path.samefile(out, file):
            raise ValueError(f"{out} is read, and would be replaced: name another file for the output")


def check_writable(file: Path) -> None:
    """`checked_out` for an npz."""
    if file.suffix != ".npz":
        raise ValueError(f"{file} must end in .npz")
    checked_out(file)


def _followed(file: Path) -> Path:
    """Where links lead; an OSError if in a circle, of which `Path.resolve` makes a RuntimeError in Python 3.11."""
    found = Path(os.path.realpath(file))
    if found.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return found


@contextmanager
def written(file: Path, ours: bool = False) -> Iterator[IO[bytes]]:
    """A stream that becomes ``file`` when all went well, with the rights of one that it replaces; otherwise nothing is left.

    A file that the caller has named may be a link, which is followed, a device or a pipe, which is written to. Where the
    name is ``ours``, in a folder that the caller has named, whatever stands there is replaced: no link is followed.
    """
    try:
        file = _followed(file.parent) / file.name if ours else _followed(file)
        special = not ours and file.exists() and not file.is_file()
        with nullcontext(file) if special else part_of(file, first_mode(file)) as part:
            with _Forward(io.FileIO(part, "wb")) if special else part.open("wb") as out:
                yield out
            if not special:
                put_file(part, file)
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
    """A new folder that takes the place of ``folder``, with its rights, when all went well; otherwise nothing of it is left,
    and the old one stays. What killed processes have left behind is tidied first. Of two at once the later one stays."""
    try:
        with part_of(folder) as part:
            fresh, old = beside(part)
            fresh.mkdir(first_mode(folder, folder=True))
            yield fresh
            put_folder(fresh, folder, old)
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


def write_npz(file: Path, **arrays: Array) -> None:
    """Write an npz under another name in the same folder, then put it in place."""
    with written(file) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # the stubs take **arrays for allow_pickle


def writable_folder(out: str | Path) -> Path:
    """The output folder, made if needed; a clear line if nothing can be written there."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # where the system has files without a name, it never gets one
            pass
    except OSError as error:
        raise ValueError(f"out must be a folder that can be written to, got {str(folder)!r} ({error.strerror})") from None
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
