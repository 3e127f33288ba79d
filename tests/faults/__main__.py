"""``python -m faults``: commands are killed at random moments and given again; then other faults of a machine.

    make faults                                        50 kills of each command and all else, a quarter of an hour
    make faults FAULTS="--only train --kills 5"        some of one command

Kills are by SIGKILL from outside, at moments drawn from a seed between the start and the end of the work: nine in ten in a
child forked from a process that has imported everything, one in a process of its own. More are by SIGTERM, and by SIGKILL
before the command's file operations, which random moments seldom meet. Every second round begins with an older result in
place. Prints each finding with the command that plays it again, and a table.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from faults.commands import COMMANDS, write_inputs
from faults.others import OTHERS
from faults.process import Place, warm
from faults.rounds import Round, Undisturbed, play, waited

FRESH = 10  # of so many kills one is of a process of its own
TRIES = 20  # for a moment before the end: the time of a command varies
STARTED = 0.4  # share of the time of a process of its own after which it may be killed; until then it imports
KINDS = ("kills", "terms", "operations")
HEAD = "command    kills    moments, s  SIGTERM  operations     equal  half  left"


class Player:
    """Plays the rounds of one command, each in a folder of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        self.known = Undisturbed.of(name, folder, folder / "given")
        self.folder, self.given, self.number, self.fresh_seconds = folder / name, folder / "given", 0, 0.0

    def round(self, kind: str, seed: int) -> Round:
        """One round of a kind: its moment, and whether there is an older result, follow from the seed."""
        rng = np.random.default_rng([zlib.crc32(f"{self.known.name} {kind}".encode()), seed])
        fresh = kind == "kills" and seed % FRESH == FRESH - 1
        if kind == "operations":
            order = np.random.default_rng(0).permutation(self.known.operations) + 1
            return play(self.known, self._place(), bool(seed % 2), at=int(order[seed % len(order)]))
        sent = signal.SIGTERM if kind == "terms" else signal.SIGKILL
        for _ in range(TRIES):
            first = STARTED if fresh else 0.0
            after = rng.uniform(first, 1) * (self._seconds() if fresh else self.known.seconds)
            played = play(self.known, self._place(), bool(seed % 2), after, sent, fresh)
            if played.killed or played.wrong:
                break
        return played

    def _seconds(self) -> float:
        """The time of the command as a process of its own, measured once."""
        if not self.fresh_seconds:
            began, command, place = time.monotonic(), self.known.command, self._place()
            code = waited(place.start(command.first, command.stdin, fresh=True))
            assert code == 0, place.said.read_text()
            self.fresh_seconds = time.monotonic() - began
        return self.fresh_seconds

    def _place(self) -> Place:
        self.number += 1
        return Place(self.folder / str(self.number), self.given)


def rounds(player: Player, counts: dict[str, int], first: int, ends: float) -> Iterator[tuple[str, Round]]:
    """Play so many rounds of each kind, until the time is up; tells what is found."""
    for kind, count in counts.items():
        for seed in range(first, first + count):
            if time.monotonic() > ends:
                return
            played = player.round(kind, seed)
            if played.wrong:
                others = " ".join(f"--{each} {int(each == kind)}" for each in KINDS)
                print(f'  FOUND by: make faults FAULTS="--only {player.known.name} --first {seed} {others}"', flush=True)
                print("".join(f"    {line}\n" for line in played.wrong[:8]), end="", flush=True)
            yield kind, played


def line(name: str, found: list[tuple[str, Round]]) -> str:
    """A line of the table: kills by kind, and of all rounds how many ended alike, showed a half file, left something."""
    killed = {kind: [played for of, played in found if of == kind and played.killed] for kind in KINDS}
    moments = [played.seconds for played in killed["kills"]] or [0.0]
    alike = sum(not played.differ for _, played in found)
    half, left = sum(bool(played.half) for _, played in found), sum(bool(played.left) for _, played in found)
    span = f"{min(moments):.2f}–{max(moments):.2f}"
    return (
        f"{name:<10} {len(killed['kills']):>5} {span:>13} {len(killed['terms']):>8} {len(killed['operations']):>11} "
        f"{f'{alike}/{len(found)}':>9} {half:>5} {left:>5}"
    )


def main() -> int:
    parser = argparse.ArgumentParser("faults")
    parser.add_argument("--kills", type=int, default=50, help="of each command, at random moments")
    parser.add_argument("--terms", type=int, default=5, help="more of each by SIGTERM")
    parser.add_argument("--operations", type=int, default=20, help="more of each before file operations")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=1800.0, help="for all")
    parser.add_argument("--only", choices=[*COMMANDS, *OTHERS], nargs="*", help="these commands and faults")
    given = parser.parse_args()
    chosen, ends = given.only or [*COMMANDS, *OTHERS], time.monotonic() + given.seconds
    counts = {kind: getattr(given, kind) for kind in KINDS}
    print(f"seeds from {given.first}; of each command {counts}; at most {given.seconds:g} s", flush=True)
    wrong, lines = 0, []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        warm()
        write_inputs(folder / "given")
        for name in filter(COMMANDS.__contains__, chosen):
            found = list(rounds(Player(name, folder), counts, given.first, ends))
            wrong += sum(bool(played.wrong) for _, played in found)
            lines.append(line(name, found))
            print(f"{HEAD}\n{lines[-1]}", flush=True)
        if len(lines) > 1:
            print("\n".join(["", HEAD, *lines]), flush=True)
        for name in filter(OTHERS.__contains__, chosen):
            for what, said in OTHERS[name](folder, given.first):
                print(f"{name:<10} {what}: {said or 'as it should be'}", flush=True)
                wrong += bool(said)
    print(f"{wrong} found" if time.monotonic() < ends else f"{wrong} found; the time was up before the end")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
