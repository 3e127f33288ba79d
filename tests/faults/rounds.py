"""A round: a command is killed, what can be seen then is looked at, and the command is given again."""

from __future__ import annotations

import os
import shutil
import signal
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from faults.commands import without_times
from faults.process import Place
from faults.stage import HANG, Stage, Undisturbed, dies_at, ended, waited
from faults.watch import Watch

KINDS = ("kills", "terms", "operations")
FRESH = 10  # of so many kills one is of a process of its own
TRIES = 20  # for a moment before the end: the time of a command varies with what else the machine does
STARTED = 0.4  # share of the time of a process of its own after which it may be killed; until then it imports


@dataclass
class Round:
    """Whether the command was killed, after how many seconds; what was half, and what was wrong after it was given again."""

    killed: bool
    seconds: float
    half: list[str]
    differ: list[str] = field(default_factory=list)

    @property
    def left(self) -> bool:
        return any(each.endswith("is left") for each in self.differ)

    @property
    def equal(self) -> bool:
        return all(each.endswith("is left") for each in self.differ)


def play(
    known: Undisturbed,
    place: Place,
    old: Path | None,
    after: float = HANG,
    sent: int = signal.SIGKILL,
    fresh: bool = False,
    at: int = 0,
) -> Round:
    """Kill the command after so many seconds, or before its file operation number ``at``; then give it again."""
    command, half = known.command, list[str]()
    if old is not None:
        shutil.copytree(old, place.out, dirs_exist_ok=True)
    with Watch(place.out) as watch:
        began = time.monotonic()
        child = place.start(command.first, command.stdin, fresh, lambda: dies_at(at))
        while (code := ended(child)) is None and time.monotonic() < began + after:
            if watch.wait(max(0, min(0.02, began + after - time.monotonic())), command.growing):
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
    said = without_times(place.said.read_bytes())
    played.differ = [] if (code, said) == (0, known.said) else [f"exit code {code}, said {said[-300:]!r}"]
    played.differ += known.differences(place)
    return played


class Player:
    """Plays rounds of one command, each in a place of its own."""

    def __init__(self, name: str, stage: Stage) -> None:
        self.stage, self.known = stage, stage.known(name)
        self._seconds = {False: self.known.seconds}  # what the command takes, or takes as a process of its own

    def round(self, kind: str, seed: int) -> Round:
        """One round: its moment, and whether an older result is there, follow from the seed."""
        old = self.stage.older(self.known.name) if seed % 2 else None
        if kind == "operations":
            order = np.random.default_rng(0).permutation(self.known.operations) + 1
            return play(self.known, self.stage.place(), old, at=int(order[seed % len(order)]))
        rng = np.random.default_rng([zlib.crc32(f"{self.known.name} {kind}".encode()), seed])
        fresh, sent = kind == "kills" and seed % FRESH == FRESH - 1, signal.SIGTERM if kind == "terms" else signal.SIGKILL
        if fresh not in self._seconds:
            self._seconds[fresh] = play(self.known, self.stage.place(), None, fresh=True).seconds
        for _ in range(TRIES):
            after = rng.uniform(STARTED if fresh else 0, 1) * self._seconds[fresh]
            played = play(self.known, self.stage.place(), old, after, sent, fresh)
            if played.killed or played.half or played.differ:
                break
            self._seconds[fresh] = played.seconds  # it was done before: the machine has become faster
        return played
