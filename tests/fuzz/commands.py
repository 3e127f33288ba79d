"""Calls of the command line on hostile files and options, in this process: exit code 0, or one line and exit code 2."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np

from fuzz.inputs import Rng, array, pick, size
from otformer.cli.main import main

WORDS = (
    "",
    "-",
    "--",
    "--out",
    "--reg",
    "-1",
    "nan",
    "1e309",
    "\x00",
    "ü",
    "../..",
    "/dev/null",
    "--json",
    "--help",
    "x.npy",
)
TEXTS = (
    b"",
    b"\xff\xfe\x00",
    b"1,2\n3\n",
    b"a,b\n1,2\n3,4\n",
    b"1;2\n3;4\n",
    b"nan inf\n",
    b"\n\n\n",
    b"1e999 2\n",
    b"0x10 1\n",
    b"1 2\n3 4\n",
)
SENTENCES = (
    "the cat ||| le chat",
    "|||",
    "a|||b|||c",
    "",
    "\u202e\x1b[2J ||| \x07",
    "the " * 50 + "||| le",
    "\ud800 ||| x",
    "a\tb",
)


def damaged(rng: Rng, data: bytes) -> bytes:
    """Cut short, or with some bits flipped, or as it was."""
    kind, raw = rng.integers(4), bytearray(data)
    if kind == 0:
        return bytes(raw[: rng.integers(len(raw) + 1)])
    for _ in range(rng.integers(1, 4) if kind < 3 and raw else 0):
        raw[rng.integers(len(raw))] ^= 1 << int(rng.integers(8))
    return bytes(raw)


def file(rng: Rng, name: str) -> str:
    """A file of points, or of something else, in the folder at hand; its name."""
    stream, kind = io.BytesIO(), pick(rng, (".npy", ".npz", ".csv", ".txt", ".tsv"))
    values = array(
        rng, pick(rng, ((size(rng), 2), (size(rng), 2), (size(rng), 2), (size(rng),), (size(rng), size(rng)), ()))
    )
    if kind == ".npy":
        np.save(stream, values)
    elif kind == ".npz":
        np.savez_compressed(stream, **pick(rng, ({"x": values, "y": values}, {"cost": values}, {"z": values}, {})))
    elif rng.random() < 0.5 and values.ndim:
        np.savetxt(stream, values, delimiter={".csv": ",", ".tsv": "\t"}.get(kind, " "))
    else:
        stream.write(pick(rng, TEXTS))
    Path(name + kind).write_bytes(damaged(rng, stream.getvalue()) if rng.random() < 0.3 else stream.getvalue())
    return name + kind


SOLVE = ("--cost", "--exact", "--reg 0", "--reg 1e-9", "--unbalanced 1", "--out o.npz", "--out no/o.npz", "--metric cosine",
         "--schedule paper", "--json", "--tol nan", "--max-time 1")  # fmt: skip
ALIGN = ("--by spaces", "--json", "--tokens", "--scores", "--gold pairs", "-l fr-en", "--method no", "--matrix m.npz",
         "--matrix -", "--out links", "--out .", "--show", "--workers 0")  # fmt: skip


def some(rng: Rng, options: tuple[str, ...]) -> list[str]:
    """Up to two options, as words."""
    return [word for _ in range(rng.integers(3)) for word in pick(rng, options).split()]


def solve(rng: Rng) -> list[str]:
    weights = ["--a", file(rng, "a")] if rng.random() < 0.2 else []
    files = [file(rng, name) for name in ("x", "y")[: rng.integers(1, 3)]]
    return ["solve", *files, "--max-depth", "300", *weights, *some(rng, SOLVE)]


def sort(rng: Rng) -> list[str]:
    words = (
        *map(str, range(5)),
        "1e308",
        "-1e308",
        "1e-320",
        "nan",
        "inf",
        "9007199254740993",
        "1,5",
        "0x1",
        "١",
        "1_0",
        "",
    )
    return ["sort", "--", *(pick(rng, words) for _ in range(rng.integers(8)))]


def align(rng: Rng) -> list[str]:
    Path("pairs").write_bytes("\n".join(pick(rng, SENTENCES) for _ in range(4)).encode("utf-8", "surrogatepass"))
    text = pick(rng, (pick(rng, SENTENCES).encode("utf-8", "ignore").decode(), "pairs", "nothing", "."))
    return ["align", text, *some(rng, ALIGN)]


def options(rng: Rng) -> list[str]:
    """Any command with words that make no sense; nothing here begins long work."""
    command = pick(rng, ("solve", "sort", "align", "probe", "reproduce", "train", "bench", "nothing", ""))
    rest = [pick(rng, WORDS) for _ in range(rng.integers(1, 4))]
    return [command, *(["no-such-name"] if command in ("reproduce", "bench", "probe") else []), *rest]


FAMILIES: dict[str, Callable[[Rng], list[str]]] = {f"cli {each.__name__}": each for each in (solve, sort, align, options)}


def run(family: str, seed: int) -> str:
    """One command in a folder of its own; raises what is a finding."""
    rng = np.random.default_rng([sum(map(ord, family)), seed])
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            arguments = FAMILIES[family](rng)
            code, out, err = called(arguments)
        finally:
            os.chdir(before)
    shown = f"{arguments!r} gave {code} and {err[:300]!r}"
    assert code in (0, 2, 3), shown
    assert "Traceback" not in err, shown
    assert code in (0, 3) or (len(err.splitlines()) >= 1 and err.splitlines()[-1].startswith("otformer: ")), shown
    assert code == 0 or out == "", shown
    assert "nan" not in out.lower() or "nan" in " ".join(arguments).lower() or "align" in arguments, (
        f"{arguments!r} printed {out!r}"
    )
    return "answered" if code == 0 else "refused"


def called(arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command with nothing on standard input."""
    kept = [io.BytesIO(), io.BytesIO(), io.BytesIO()]
    given, out, err = (io.TextIOWrapper(stream, "utf-8") for stream in kept)
    streams = mock.patch.multiple(sys, argv=["otformer", *arguments], stdin=given, stdout=out, stderr=err)
    code: object = 0
    with streams:
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    out.flush()
    err.flush()
    return int(str(code)), *(stream.getvalue().decode("utf-8", "replace") for stream in kept[1:])
