"""A command undisturbed, and a round: the command is killed, what can be seen is looked at, and the command given again."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.commands import COMMANDS, Command, contents, without_times
from faults.process import Place
from faults.watch import Watch, passing

HANG = 120  # seconds for one command
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


def dies_at(number: int, total: Callable[[int], None] = lambda count: None) -> None:
    """From now on count the operations that change files, and end this process by SIGKILL before the one of that number."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGES or writes:
            count += 1
            total(count)
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


@dataclass
class Undisturbed:
    """A command that nothing disturbed: what it left and said, every version of a file that was to be seen, its time."""

    name: str
    left: dict[str, bytes]
    said: bytes
    seconds: float
    operations: int
    versions: dict[str, set[bytes]]
    old: Path | None = None

    @property
    def command(self) -> Command:
        return COMMANDS[self.name]

    @classmethod
    def of(cls, name: str, folder: Path, given: Path) -> Undisturbed:
        """Run a command, and that which leaves its older result."""
        command, folder = COMMANDS[name], folder / name
        folder.mkdir()
        place, kept, count = Place(folder / "new", given), folder / "kept", folder / "count"
        kept.mkdir()

        def before() -> None:
            dies_at(-1, lambda number: os.pwrite(counted, f"{number:9}".encode(), 0) and None)
            keep_versions(place.out, kept)

        counted = os.open(count, os.O_WRONLY | os.O_CREAT)
        began = time.monotonic()
        code = waited(place.start(command.first, command.stdin, before=before))
        seconds = time.monotonic() - began
        os.close(counted)
        assert code == 0, place.said.read_text()
        left = contents(place.out)
        versions = {key: {data} for key, data in left.items()}
        for path in kept.iterdir():
            key = path.name.partition("-")[2].replace("|", "/")
            versions.setdefault(key, set()).add(_comparable(key, path.read_bytes()))
        found = cls(name, left, without_times(place.said.read_bytes()), seconds, int(count.read_text()), versions)
        if command.old:
            older = Place(folder / "old", given)
            code = waited(older.start(command.old))
            assert code == 0, older.said.read_text()
            found.old = older.out
            for key, data in contents(older.out).items():
                assert left[key] != data, f"{key} must differ from the older one"
                versions.setdefault(key, set()).add(data)
        return found

    def wrong(self, out: Path) -> list[str]:
        """What can be seen in a folder and is neither a version that was whole nor on its way to it."""
        growing, found = self.command.growing, []
        for key, data in contents(out).items():
            if passing(Path(key)) or key.endswith("/"):
                continue
            whole = self.left[key].startswith(data) if key in growing else data in self.versions.get(key, ())
            found += [] if whole else [f"{key} is half: {len(data)} bytes"]
        return found


def keep_versions(out: Path, kept: Path) -> None:
    """From now on keep a copy of every file that is put in its place."""
    replace = os.replace

    def keep(source: Any, target: Any) -> None:
        replace(source, target)
        key = str(Path(target).relative_to(out.resolve())).replace("/", "|")
        shutil.copyfile(target, kept / f"{time.monotonic_ns()}-{key}")

    os.replace = keep  # type: ignore[assignment]


def _comparable(key: str, data: bytes) -> bytes:
    return without_times(data) if key.endswith((".json", ".html")) else data


@dataclass
class Round:
    """What came of a round: whether the command was killed, after how many seconds, and what was wrong."""

    killed: bool
    seconds: float = 0.0
    half: list[str] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """Everything that should not be, in words."""
        return [*self.half, *(f"{each} differs" for each in self.differ), *(f"{each} is left" for each in self.left)]


def play(
    known: Undisturbed,
    place: Place,
    old: bool,
    after: float = HANG,
    sent: int = signal.SIGKILL,
    fresh: bool = False,
    at: int = -1,
) -> Round:
    """Kill the command after so many seconds, or before its file operation number ``at``; then give it again."""
    command = known.command
    if old and known.old is not None:
        shutil.copytree(known.old, place.out, dirs_exist_ok=True)
    half: list[str] = []
    with Watch(place.out) as watch:
        began = time.monotonic()
        child = place.start(command.first, command.stdin, fresh, lambda: dies_at(at))
        while (code := ended(child)) is None and time.monotonic() < began + after:
            if watch.wait(min(0.02, began + after - time.monotonic()), command.growing):
                half += known.wrong(place.out)
        seconds = time.monotonic() - began
        if code is None:
            os.kill(child, sent)
            code = waited(child)
        while watch.wait(0, command.growing):
            pass
        half += known.wrong(place.out) + watch.broken
    played = Round(code == -sent, seconds, half)
    code = waited(place.start(command.again, command.stdin, fresh))
    said, left = without_times(place.said.read_bytes()), contents(place.out)
    if code or said != known.said:
        played.differ.append(f"exit code {code}, said {said[-300:]!r}")
    played.differ += [key for key, data in known.left.items() if left.get(key) != data]
    played.left = [key for key in left if key not in known.left] + [f"TMPDIR/{key}" for key in contents(place.tmp)]
    return played
