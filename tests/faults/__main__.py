"""``python -m faults``: commands are killed at random moments and given again; then other faults of a machine.

    make faults                                        50 kills of each command and all else
    make faults FAULTS="--only train --kills 5"        some of one command

Kills are by SIGKILL from outside, at moments drawn from a seed between the start and the end of the work: nine in ten in a
child forked from a process that has imported everything, one in a process of its own. More are by SIGTERM, and by SIGKILL
before the command's file operations, which random moments seldom meet. Every second round begins with an older result in
place. Prints each finding with the command that plays it again, and a table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from faults.commands import COMMANDS
from faults.lost import ranks, workers
from faults.others import clock, disk, twice
from faults.process import warm
from faults.rounds import KINDS, Player, Round
from faults.stage import Stage
from faults.writers import writers

OTHERS = {"twice": twice, "clock": clock, "disk": disk, "ranks": ranks, "workers": workers, "writers": writers}
HEAD = "command    kills    moments, s  SIGTERM  operations     equal  half  left"


def rounds(player: Player, counts: dict[str, int], first: int, ends: float) -> Iterator[tuple[str, Round]]:
    """Play so many rounds of each kind, until the time is up; tells what is found."""
    for kind, count in counts.items():
        for seed in range(first, first + count):
            if time.monotonic() > ends:
                return
            played = player.round(kind, seed)
            if wrong := played.half + played.differ:
                others = " ".join(f"--{each} {int(each == kind)}" for each in KINDS)
                print(f'  FOUND by: make faults FAULTS="--only {player.known.name} --first {seed} {others}"')
                print("".join(f"    {each}\n" for each in wrong[:8]), end="", flush=True)
            yield kind, played


def line(name: str, found: list[tuple[str, Round]]) -> str:
    """A line of the table: kills by kind, and of all rounds how many ended alike, showed a half file, left something."""
    killed = {kind: [played for of, played in found if of == kind and played.killed] for kind in KINDS}
    moments = [played.seconds for played in killed["kills"]] or [0.0]
    equal = f"{sum(played.equal for _, played in found)}/{len(found)}"
    half, left = sum(bool(played.half) for _, played in found), sum(played.left for _, played in found)
    kills, terms, operations = (len(killed[kind]) for kind in KINDS)
    span = f"{min(moments):.2f}–{max(moments):.2f}"
    return f"{name:<10} {kills:>5} {span:>13} {terms:>8} {operations:>11} {equal:>9} {half:>5} {left:>5}"


def main() -> int:
    parser = argparse.ArgumentParser("faults")
    parser.add_argument("--kills", type=int, default=50, help="of each command, at random moments")
    parser.add_argument("--terms", type=int, default=5, help="more of each by SIGTERM")
    parser.add_argument("--operations", type=int, default=20, help="more of each before file operations")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all")
    parser.add_argument("--only", choices=[*COMMANDS, *OTHERS], nargs="*", help="these commands and faults")
    given = parser.parse_args()
    chosen, ends, lines, wrong = given.only or [*COMMANDS, *OTHERS], time.monotonic() + given.seconds, [HEAD], 0
    counts = {kind: getattr(given, kind) for kind in KINDS}
    print(f"seeds from {given.first}; of each command {counts}; at most {given.seconds:g} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        warm()
        stage = Stage(Path(folder))
        for name in filter(COMMANDS.__contains__, chosen):
            found = list(rounds(Player(name, stage), counts, given.first, ends))
            wrong += sum(bool(played.half or played.differ) for _, played in found)
            lines.append(line(name, found))
            print(f"{name}: {len(found)} rounds", flush=True)
        print("\n".join(lines), flush=True)
        for name in filter(OTHERS.__contains__, chosen):
            for what, said in OTHERS[name](stage, given.first):
                print(f"{name:<8} {what}: {'; '.join(said) or 'as it should be'}", flush=True)
                wrong += bool(said)
    late = time.monotonic() > ends
    print(f"{wrong} found" + ("; the time was up before all was tried" if late else ""))
    return 1 if wrong or late else 0


if __name__ == "__main__":
    sys.exit(main())
