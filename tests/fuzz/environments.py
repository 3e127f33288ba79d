"""Commands in hostile surroundings, each in a process of its own: no HOME, a folder that cannot be written, no TMPDIR, the
locale C, closed streams, a full disk, a folder that is gone. The command works, or it is one line and exit code 2.

Cases of "surroundings" are forked from this process, in which everything is imported, so that they take milliseconds; those
of "new process" are a new Python, which meets the surroundings from its first import on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import otformer
from fuzz.commands import judge
from fuzz.inputs import drawn, pick
from fuzz.public import COUNTS

LIBC = ctypes.CDLL(None)
NEW_NAMESPACE, PRIVATE, REMOUNT_READ_ONLY = 0x20000, 0x44000, 0x21  # of Linux's unshare and mount
LIMIT = 40  # seconds of the processor for a new Python; imports are most of it
STILL = 600  # seconds by the clock, on a loaded machine
COMMANDS: tuple[list[str], ...] = (
    ["sort", "3", "1", "2"],
    ["sort"],
    ["solve", "x.npy", "x.npy"],
    ["solve", "x.npy", "x.npy", "--out", "o.npz"],
    ["solve", "x.npy", "x.npy", "--exact", "--out", "o.csv"],
    ["solve", "x.npy", "x.npy", "--html", "p.html"],
    ["align", "the cat ||| le chat"],
    ["align", "-"],
    ["align", "the cat ||| le chat", "--out", "links"],
    ["align", "le \u00e9t\u00e9 \u732b ||| the summer", "--tokens"],
    ["explore", "--no-open", "--save", "e.html"],
    ["explore", "--no-open"],
    ["reproduce", "--list"],
    ["train", "--list"],
    ["--help"],
    ["--version"],
)


def closed(stream: int) -> Callable[[], None]:
    return lambda: os.close(stream)


def onto(stream: int, path: str) -> Callable[[], None]:
    def redirect() -> None:
        os.dup2(os.open(path, os.O_RDWR), stream)

    return redirect


def small_files() -> None:
    """Files of 4 KB at most: a longer write fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def gone() -> None:
    """The folder at hand is removed under the process."""
    folder = Path.cwd()
    for each in folder.iterdir():
        each.unlink()
    folder.rmdir()


def own_disk() -> bool:
    """The folder at hand becomes a disk of 64 KB that only this process sees, with the same files; False where that is not
    allowed."""
    kept = {each.name: each.read_bytes() for each in Path.cwd().iterdir()}
    folder = str(Path.cwd()).encode()
    if LIBC.unshare(NEW_NAMESPACE) or LIBC.mount(b"none", b"/", None, PRIVATE, None):
        return False
    if LIBC.mount(b"tmpfs", folder, b"tmpfs", 0, b"size=64k"):
        return False
    os.chdir(folder)
    for name, content in kept.items():
        Path(name).write_bytes(content)
    return True


def read_only() -> None:
    if not own_disk():
        Path.cwd().chmod(0o555)
    elif LIBC.mount(b"none", str(Path.cwd()).encode(), None, REMOUNT_READ_ONLY, None):
        raise OSError("no read-only folder can be had")


def full_disk() -> None:
    """No room for another byte; files of 4 KB at most, where no disk can be had."""
    if not own_disk():
        small_files()
        return
    with contextlib.suppress(OSError), open("filler", "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


def surely_nothing() -> None:
    """No variable at all."""
    os.environ.clear()


SURROUNDINGS: dict[str, tuple[dict[str, str | None], Callable[[], None] | None]] = {  # variables, and what is done first
    "no HOME": ({"HOME": None, "XDG_CACHE_HOME": None}, None),
    "HOME is a file": ({"HOME": "/dev/null"}, None),
    "HOME does not exist": ({"HOME": "/nonexistent/home"}, None),
    "no TMPDIR": ({"TMPDIR": "/nonexistent/tmp", "TEMP": None, "TMP": None}, None),
    "locale C": (
        {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
        None,
    ),
    "dumb terminal": ({"TERM": "dumb", "COLUMNS": "1", "LINES": "0"}, None),
    "odd numbers": ({"COLUMNS": "x", "OMP_NUM_THREADS": "x", "OTFORMER_DATA": "/dev/null"}, None),
    "no variables": ({}, surely_nothing),
    "closed stdin": ({}, closed(0)),
    "closed stdout": ({}, closed(1)),
    "closed stderr": ({}, closed(2)),
    "full stdout": ({}, onto(1, "/dev/full")),
    "full disk": ({}, full_disk),
    "small files": ({}, small_files),
    "folder gone": ({}, gone),
    "read-only folder": ({}, read_only),
    "few open files": ({}, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))),
}
FULL = ("full disk", "small files")
MUTE = ("closed stdout", "full stdout", "closed stderr")  # where less can be seen of what was said


def run(family: str, seed: int) -> str:
    """One command in one of the surroundings; raises what is a finding."""
    rng = drawn(family, seed)
    name = pick(rng, sorted(SURROUNDINGS))
    arguments = pick(rng, COMMANDS)
    COUNTS[f"in {name}"] += 1
    with tempfile.TemporaryDirectory() as outer:
        folder = Path(outer, "here")
        folder.mkdir()
        Path(outer).chmod(0o755)
        np.save(folder / "x.npy", np.arange(6.0).reshape(3, 2) / 6)
        given = pick(rng, (b"", b"3 1 2", b"the cat ||| le chat\n", b"\xff\x00"))
        fresh = family == "new process"
        code, out, err = (started if fresh else forked)(name, arguments, folder, given)
        if folder.exists():
            folder.chmod(0o755)
            left = {each.name for each in folder.iterdir()} - {"x.npy", "o.npz", "o.csv", "p.html", "links", "e.html"}
            assert not left, f"{arguments!r} in {name} left {sorted(left)}"
    seen = f"{arguments!r} in {name} gave {code}, {out[-200:]!r} and {err[-500:]!r}"
    assert code in (0, 2), seen
    assert not any(sign in err for sign in ("Traceback", "Exception ignored")), seen
    if name not in MUTE and arguments[0] not in ("--help", "--version"):
        said = "" if name in FULL and code == 2 else out  # that a page does not fit is known after the numbers
        judge([*arguments, f"in {name}"], code, said, err)
    return "answered" if code == 0 else "refused"


def environment(name: str) -> dict[str, str]:
    changes = SURROUNDINGS[name][0]
    kept = {key: value for key, value in os.environ.items() if key not in changes}
    return kept | {key: value for key, value in changes.items() if value is not None}


def started(name: str, arguments: list[str], folder: Path, given: bytes) -> tuple[int, str, str]:
    """A new Python."""
    first = SURROUNDINGS[name][1]
    source = str(Path(otformer.__file__).parents[1])
    call = [sys.executable, "-m", "otformer.cli", *arguments]

    def prepared() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        if first is not None:
            first()

    if first is surely_nothing:
        call = ["env", "-i", f"PYTHONPATH={source}", *call]
    about: dict[str, Any] = {"cwd": folder, "env": environment(name) | {"PYTHONPATH": source}, "preexec_fn": prepared}
    done = subprocess.run(call, input=given, capture_output=True, timeout=STILL, check=False, **about)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def forked(name: str, arguments: list[str], folder: Path, given: bytes) -> tuple[int, str, str]:
    """A child of this process with its own streams, folder, variables and limits."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(given)
        stdin.seek(0)
        child = os.fork()
        if not child:
            _be(name, arguments, folder, [stdin.fileno(), stdout.fileno(), stderr.fileno()])
        _, status = os.waitpid(child, 0)
        kept = []
        for stream in (stdout, stderr):
            stream.seek(0)
            kept.append(stream.read().decode("utf-8", "replace"))
    return os.waitstatus_to_exitcode(status), kept[0], kept[1]


def _stream(place: int, mode: str, encoding: str) -> Any:
    """What Python has for a standard stream at its start: None where that is closed."""
    errors = "strict" if place < 2 else "backslashreplace"
    try:
        return os.fdopen(place, mode, encoding=encoding, errors=errors, closefd=False)
    except OSError:
        return None


def _be(name: str, arguments: list[str], folder: Path, streams: list[int]) -> None:
    """What the child does; it does not return."""
    import traceback

    from otformer.cli.__main__ import main

    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a hang ends by the signal
        signal.alarm(20)
        os.chdir(folder)
        for place, stream in enumerate(streams):
            os.dup2(stream, place)
        os.environ.clear()
        os.environ.update(environment(name))
        tempfile.tempdir = None
        encoding = "ascii" if name == "locale C" else "utf-8"
        first = SURROUNDINGS[name][1]
        if first is not None:
            first()
        for place, (which, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
            setattr(sys, which, _stream(place, mode, encoding))
            setattr(sys, f"__{which}__", getattr(sys, which))
        sys.argv = ["otformer", *arguments]
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except BaseException:
        code = 1
        os.write(streams[2], traceback.format_exc().encode())
    finally:
        os._exit(code)


FAMILIES = ("surroundings", "new process")
