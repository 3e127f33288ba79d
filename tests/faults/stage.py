"""Where commands run: what they read, what they leave when nothing disturbs them, and places to disturb them in."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.commands import COMMANDS, Command, comparable, contents, without_times, write_inputs
from faults.process import Place
from faults.watch import passing

HANG = 180  # seconds for one command
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "fcntl.flock"}  # audit events of Python: changes of a folder


def ended(child: int) -> int | None:
    """The exit code of a child, negative for the signal that ended it; none while it lives."""
    found, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def waited(child: int) -> int:
    """The exit code of a child, which is killed after `HANG` seconds."""
    until = time.monotonic() + HANG
    while (code := ended(child)) is None:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    return code


def dies_at(number: int, count: Callable[[int], None] = lambda number: None) -> None:
    """From now on count the operations that change files, and end this process by SIGKILL before the one of that number."""
    done = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGES or writes:
            done += 1
            count(done)
            if done == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def keep_versions(out: Path, kept: Path) -> None:
    """From now on keep every file that is put in its place, by a second name of it."""
    replace = os.replace

    def keep(source: Any, target: Any) -> None:
        replace(source, target)
        if Path(target).is_relative_to(out.resolve()):  # numba keeps what it has compiled elsewhere
            key = str(Path(target).relative_to(out.resolve())).replace("/", "|")
            os.link(target, kept / f"{time.monotonic_ns()}-{key}")

    os.replace = keep  # type: ignore[assignment]


@dataclass
class Undisturbed:
    """What a command left and said that nothing disturbed, every version of a file that was to be seen, its time."""

    name: str
    left: dict[str, bytes]
    said: bytes
    seconds: float
    operations: int
    versions: dict[str, set[bytes]]

    @property
    def command(self) -> Command:
        return COMMANDS[self.name]

    def wrong(self, out: Path) -> list[str]:
        """What can be seen in a folder and is no version that was whole, nor a file's beginning that grows."""
        found = []
        for key, data in contents(out).items():
            if not (passing(Path(key)) or key.endswith("/")):
                growing = key in self.command.growing and self.left[key].startswith(data)
                found += [] if growing or data in self.versions.get(key, ()) else [f"{key} is half: {len(data)} bytes"]
        return found

    def differences(self, place: Place) -> list[str]:
        """Files that differ from those the command leaves, and what is left besides."""
        found = contents(place.out)
        other = [f"{key} differs" for key, data in self.left.items() if found.get(key) != data]
        return other + [f"{key} is left" for key in (*(found.keys() - self.left.keys()), *place.forgotten())]


class Stage:
    """A folder with what commands read, and new places in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.given, self._number = folder, folder / "given", 0
        self._known: dict[str, Undisturbed] = {}
        self._older: dict[str, Path] = {}
        write_inputs(self.given)

    def place(self) -> Place:
        self._number += 1
        return Place(self.folder / str(self._number), self.given)

    def known(self, name: str) -> Undisturbed:
        """A command undisturbed; run when it is asked for first, and once before: numba may have to compile."""
        if name not in self._known:
            self._succeed(self.place(), COMMANDS[name].first, COMMANDS[name].stdin)
            self._known[name] = self._run(name)
        return self._known[name]

    def older(self, name: str) -> Path | None:
        """A folder with an older result of a command, if it takes one; made when it is asked for first."""
        if COMMANDS[name].old and name not in self._older:
            known, place = self.known(name), self.place()
            self._succeed(place, COMMANDS[name].old)
            for key, data in contents(place.out).items():
                assert known.left[key] != data, f"{key} must differ from the older one"
                known.versions[key].add(data)
            self._older[name] = place.out
        return self._older.get(name)

    def _run(self, name: str) -> Undisturbed:
        command, place = COMMANDS[name], self.place()
        kept, counted = place.folder / "kept", os.open(place.folder / "operations", os.O_RDWR | os.O_CREAT)
        kept.mkdir()

        def before() -> None:
            dies_at(0, lambda number: os.pwrite(counted, f"{number:9}".encode(), 0) and None)
            keep_versions(place.out, kept)

        began = time.monotonic()
        self._succeed(place, command.first, command.stdin, before)
        seconds, operations, left = time.monotonic() - began, int(os.pread(counted, 9, 0)), contents(place.out)
        os.close(counted)
        versions = {key: {data} for key, data in left.items()}
        for path in kept.iterdir():
            key = path.name.partition("-")[2].replace("|", "/")
            versions.setdefault(key, set()).add(comparable(key, path.read_bytes()))
        return Undisturbed(name, left, without_times(place.said.read_bytes()), seconds, operations, versions)

    @staticmethod
    def _succeed(place: Place, line: str, stdin: str = os.devnull, before: Callable[[], None] = lambda: None) -> None:
        code = waited(place.start(line, stdin, before=before))
        assert code == 0, f"{line}: exit code {code}, {place.said.read_text()}"
