"""Two of the same command at once, a clock that jumps, a full disk: results are right, or old and one line says why."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np

from faults.commands import COMMANDS, contents, without_times
from faults.process import Place
from faults.stage import Stage, Undisturbed, waited

TIMES = 4  # that two commands are started together
JUMP = 1e8  # seconds, three years
ROOM = (0.0, 0.3, 0.6, 0.9)  # shares of what a command writes in the end that are free on the disk
DISK = 1 << 23  # bytes of the disk that fills
Found = Iterator[tuple[str, list[str]]]  # what was tried, and what was wrong with it


def _more_than_a_line(place: Place) -> list[str]:
    """What a command has said, if it is more than the line with which one refuses."""
    said = place.said.read_text(errors="replace")
    return [] if said.startswith("otformer: ") and said.count("\n") == 1 else [f"said {said[-300:]!r}"]


def twice(stage: Stage, first: int) -> Found:
    """Two of the same command in one folder: both succeed, or one is refused; the result is that of one alone."""
    for name, command in COMMANDS.items():
        known, refused, wrong = stage.known(name), 0, list[str]()
        for seed in range(first, first + TIMES):
            one = stage.place()
            other = one.beside()
            child = one.start(command.first, command.stdin)
            time.sleep(np.random.default_rng(seed).uniform(0, 0.5 * known.seconds) if seed % 2 else 0)
            late = other.start(command.first, command.stdin)
            codes = waited(child), waited(late)
            refused += codes.count(2)
            wrong += [] if sorted(codes) in ([0, 0], [0, 2]) else [f"exit codes {codes}"]
            for place, code in zip((one, other), codes, strict=True):
                wrong += _more_than_a_line(place) if code else []
            wrong += known.differences(one)
        yield f"{name}, {TIMES} times, {refused} refused", wrong


def clock(stage: Stage, first: int) -> Found:
    """The clock goes back and forth by years from look to look: nothing changes."""

    def jumping() -> None:
        real, number = time.time, count(first)
        time.time = lambda: real() + JUMP * (-1) ** next(number)
        time.time_ns = lambda: int(time.time() * 1e9)

    for name, command in COMMANDS.items():
        known, place = stage.known(name), stage.place()
        code = waited(place.start(command.first, command.stdin, before=jumping))
        said = without_times(place.said.read_bytes())
        wrong = [] if (code, said) == (0, known.said) else [f"exit code {code}, said {said[-300:]!r}"]
        yield name, wrong + known.differences(place)


def disk(stage: Stage, first: int) -> Found:
    """A disk with too little room: one line, and every result old or new; with room again the same command succeeds."""
    for name in COMMANDS:
        known, refused, wrong = stage.known(name), 0, list[str]()
        for share in ROOM:
            place = stage.place()
            with _small(place.out) as mounted:
                if not mounted:
                    yield "not tried: no tmpfs can be mounted here", []
                    return
                if (old := stage.older(name)) is not None:
                    shutil.copytree(old, place.out, dirs_exist_ok=True)
                code, found = _with_room(share, known, place)
            refused += code != 0
            wrong += [f"{each}, with {share:.0%} of the room" for each in found]
        yield f"{name}, {len(ROOM)} times, {refused} refused", wrong


def _with_room(share: float, known: Undisturbed, place: Place) -> tuple[int, list[str]]:
    """Fill the disk but for this share of the result, run the command, make room and run it again."""
    command, filler = known.command, place.out / ".filler"
    before, needs = contents(place.out), sum(map(len, known.left.values()))
    filler.write_bytes(bytes(max(0, shutil.disk_usage(place.out).free - int(share * needs))))
    code = waited(place.start(command.first, command.stdin))
    filler.unlink()
    if not code:
        return 0, known.differences(place)
    wrong = [] if code == 2 else [f"exit code {code}"]
    wrong += _more_than_a_line(place) + known.wrong(place.out)
    wrong += [f"{key} is gone" for key in before if not (place.out / key).exists()]
    again = waited(place.start(command.again, command.stdin))
    return code, wrong + ([f"exit code {again} with room again"] if again else []) + known.differences(place)


@contextmanager
def _small(folder: Path) -> Iterator[bool]:
    """A disk of `DISK` bytes in place of a folder, if this machine lets us."""
    call = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    mounted = subprocess.run(call, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
