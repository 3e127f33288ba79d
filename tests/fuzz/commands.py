"""Calls of the command line on hostile files, options and standard input, in this process: exit code 0, or one line and 2.

The commands and their options are read from the program itself: an option for which there are no values here is a gap that
`missing` names.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import typer

from fuzz.inputs import Rng, array, drawn, pick, size
from fuzz.options import VALUES
from fuzz.public import COUNTS
from otformer.cli.main import app, main
from otformer.words import train

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
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
TEXTS = (b"", b"\xff\xfe\x00", b"1,2\n3\n", b"a,b\n1,2\n3,4\n", b"1;2\n3;4\n", b"nan inf\n", b"\n\n\n", b"1e999 2\n",
         b"0x10 1\n", b"1 2\n3 4\n", b"3 1 2", b"the cat ||| le chat\n", b"\x00" * 9, b"1" * 9999)  # fmt: skip
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


def missing() -> list[str]:
    """Commands and options of the program for which there are no values here, and those here that the program has not."""
    real = {
        (name, option.opts[0])
        for name, command in COMMANDS.items()
        for option in command.params
        if option.opts[0].startswith("--")
    }
    here = {(name, option) for name, options in VALUES.items() for option in options}
    return sorted(f"{name} {option}" for name, option in (real ^ here)) + sorted(set(COMMANDS) ^ set(VALUES))


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
    stream, kind, n = io.BytesIO(), pick(rng, (".npy", ".npz", ".csv", ".txt", ".tsv")), size(rng)
    shape = (n, 2) if rng.mild else pick(rng, ((n, 2), (n, 2), (n,), (n, size(rng)), ()))
    values = array(rng, shape)
    if kind == ".npy":
        np.save(stream, values)
    elif kind == ".npz":
        np.savez_compressed(stream, **pick(rng, ({"x": values, "y": values}, {"cost": values}, {"z": values}, {})))
    elif (rng.mild or rng.random() < 0.5) and values.ndim:
        np.savetxt(stream, values, delimiter={".csv": ",", ".tsv": "\t"}.get(kind, " "))
    else:
        stream.write(pick(rng, TEXTS))
    hurt = rng.random() < 0.3 and not rng.mild
    Path(name + kind).write_bytes(damaged(rng, stream.getvalue()) if hurt else stream.getvalue())
    return name + kind


def options(rng: Rng, command: str) -> list[str]:
    """Up to two options of a command with values; of a mild case the first value, which most often is a good one."""
    words: list[str] = []
    for _ in range(rng.integers(3)):
        name = pick(rng, sorted(VALUES[command]))
        values = VALUES[command][name]
        COUNTS[f"{command} {name}"] += 1
        words += [name] if values is None else [name, values[0] if rng.mild else pick(rng, values)]
    return words


def solve(rng: Rng) -> list[str]:
    np.savetxt("a.csv", np.abs(array(rng, (size(rng),))))
    files = [file(rng, name) for name in ("x", "y")[: rng.integers(1, 3)]]
    files = [files[0], files[0]] if rng.mild else files
    return ["solve", *files, "--max-depth", "300", *options(rng, "solve")]


def sort(rng: Rng) -> list[str]:
    odd = ("1e308", "-1e308", "1e-320", "nan", "inf", "9007199254740993", "1,5", "0x1", "١", "1_0", "")
    words = (*map(str, range(5)), *(("-2.5", "1e3") if rng.mild else odd))
    return ["sort", *options(rng, "sort"), "--", *(pick(rng, words) for _ in range(rng.integers(8)))]


@cache
def aligner() -> dict[str, bytes]:
    """The files of an aligner of one's own text."""
    with tempfile.TemporaryDirectory() as folder:
        train(SENTENCES[:1], Path(folder, "aligner"), languages="en-fr")
        return {file.name: file.read_bytes() for file in Path(folder, "aligner").iterdir()}


def write_aligner(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, data in aligner().items():
        (folder / name).write_bytes(data)


def corpus(rng: Rng) -> None:
    """Files of sentence pairs, gold and a dictionary, and an aligner, good or not."""
    write_aligner(Path("aligner"))
    lines = ("the cat ||| le chat",) if rng.mild else [pick(rng, SENTENCES) for _ in range(4)]
    Path("pairs").write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    gold = "1-1 2-2\n" if rng.mild else pick(rng, ("0-0\n", "9-9\n" * 4, "x\n", "", "1-1 2-2\n" * 4, "0-" + "9" * 30))
    Path("gold").write_text(gold)
    Path("dictionary").write_text("the le\ncat chat\n" if rng.mild else pick(rng, ("the le\n", "x", "", "\x00 y\n")))


def text(rng: Rng) -> str:
    if rng.mild:
        return pick(rng, (SENTENCES[0], "pairs"))
    return pick(rng, (pick(rng, SENTENCES).encode("utf-8", "ignore").decode(), "pairs", "nothing", ".", "-"))


def align(rng: Rng) -> list[str]:
    corpus(rng)
    return ["align", text(rng), *options(rng, "align")]


def transfer(rng: Rng) -> list[str]:
    corpus(rng)
    tagged = ("the <b>cat</b> ||| le chat", "<b>the ||| le", "a < b &amp; <br/> ||| \u202e\x1b[2J")
    return ["transfer", pick(rng, tagged) if rng.random() < 0.5 else text(rng), *options(rng, "transfer")]


def probe(rng: Rng) -> list[str]:
    corpus(rng)
    model = "bert-en-fr" if rng.mild else pick(rng, ("bert-en-fr", "no-such-model", ".", "pairs", "", "../x", "/dev/null"))
    return [
        "probe",
        model,
        text(rng),
        *(["--gold", "gold", "--out", "out"] if rng.random() < 0.5 else []),
        *options(rng, "probe"),
    ]


def rest(rng: Rng) -> list[str]:
    """The long commands, stopped by a name that does not exist or an option; lists and the explorer's page in full."""
    command = pick(rng, ("explore", "reproduce", "train", "bench"))
    first = {"explore": ["--no-open", "--save", "e.html"],
             "reproduce": pick(rng, (["no-such-name"], ["--list"], ["figure-3", "--settings"])),
             "train": [pick(rng, ("--list", "--recipe=no"))], "bench": ["no-such-scenario"]}[command]  # fmt: skip
    return [command, *first, *options(rng, command)]


def words(rng: Rng) -> list[str]:
    """Any command with words that make no sense; nothing here begins long work."""
    command = pick(rng, (*COMMANDS, "nothing", ""))
    names = {"reproduce": ["no-such-name"], "bench": ["no-such-name"], "probe": ["no-such-name"], "explore": ["--no-open"]}
    return [command, *names.get(command, []), *(pick(rng, WORDS) for _ in range(rng.integers(1, 4)))]


FAMILIES: dict[str, Callable[[Rng], list[str]]] = {
    f"cli {each.__name__}": each for each in (solve, sort, align, transfer, probe, rest, words)
}


def run(family: str, seed: int) -> str:
    """One command in a folder of its own; raises what is a finding."""
    rng, before = drawn(family, seed), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            arguments = FAMILIES[family](rng)
            COUNTS[f"{arguments[0]} (command)"] += arguments[0] in COMMANDS
            given = b"" if rng.mild else pick(rng, TEXTS)
            code, out, err = called(arguments, given)
        finally:
            os.chdir(before)
    judge(arguments, code, out, err)
    if family == "cli sort" and code == 0 and "--json" not in arguments and "--help" not in arguments:
        numbers = [float(word) for word in out.split()]
        assert numbers == sorted(numbers), f"{arguments!r} printed {out!r}"
    if code == 0 and out and "--json" in arguments and "--help" not in arguments and "--list" not in arguments:
        json.loads(out.splitlines()[-1], parse_constant=lambda word: 1 / 0)  # NaN and Infinity are not JSON
    return "refused" if code == 2 else "answered"


def judge(arguments: list[str], code: int, out: str, err: str) -> None:
    """Exit code 0, 3 if it has not converged, or 2 with one line that begins with the program's name; no nan."""
    shown = f"{arguments!r} gave {code} and {err[-300:]!r}"
    assert code in (0, 2, 3), shown
    assert "Traceback" not in err, shown
    assert code in (0, 3) or (len(err.splitlines()) >= 1 and err.splitlines()[-1].startswith("otformer: ")), shown
    assert code in (0, 3) or out == "", shown
    free = {"align", "transfer", "probe"} & set(arguments) or "nan" in " ".join(arguments).lower()  # words are the user's
    assert "nan" not in out.lower() or free, f"{arguments!r} printed {out!r}"


def called(arguments: list[str], given: bytes = b"") -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command with these bytes on standard input."""
    kept = [io.BytesIO(given), io.BytesIO(), io.BytesIO()]
    stdin, out, err = (io.TextIOWrapper(stream, "utf-8") for stream in kept)
    streams = mock.patch.multiple(sys, argv=["otformer", *arguments], stdin=stdin, stdout=out, stderr=err)
    code: object = 0
    with streams, mock.patch.object(webbrowser, "open", return_value=False):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    out.flush()
    err.flush()
    return int(str(code)), *(stream.getvalue().decode("utf-8", "replace") for stream in kept[1:])
