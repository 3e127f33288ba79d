"""``python -m fuzz.hard``: problems with big M, must-link entries and blocks, judged by optima in whole numbers.

    python -m fuzz.hard --cases 5000 --jobs 1                    5,000 cases over all families
    python -m fuzz.hard --only "big_m solve" --first 17 --cases 1     one case again

Cases run in a process that is killed when a call takes ten seconds; a slow call is given again, since it may have compiled.
Prints a table, family × what came of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import time
import warnings
from collections import Counter, defaultdict
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

import otformer
from fuzz.hard import doors, draws, judge
from fuzz.hard.families import FAMILIES, Verdict, posed, pot_seconds, run

TRIES = (10.0, 60.0, 10.0)  # seconds of a call, after which it is killed; if it was slow, again: it may have compiled
GIVEN_UP = 120.0  # seconds of the judge
FORK = multiprocessing.get_context("fork")


def work(pipe: Connection, most: int) -> None:
    """Cases as they come, until there are no more; the first calls compile, on no one's clock."""
    warnings.simplefilter("ignore")
    warm()
    pipe.send("ready")
    while (given := pipe.recv()) is not None:
        pipe.send(run(*given, most, pipe.send))


def warm() -> None:
    """Ordinary problems by every entry point, a few times: they choose by chance, and by size, what they compile."""
    rng = np.random.default_rng(0)
    ways = {door for _, door in FAMILIES.values()}
    for door, n in itertools.product(sorted(ways, key=str), (9, 9, 60, 60, 60)):
        w, part = rng.random(n), np.zeros(n, int)
        case = draws.Case(rng.random((n, n)), w / w.sum(), w / w.sum(), np.zeros((n, n), bool), [], (part, part))
        pot_seconds(case)
        doors.quiet(door(rng, case)[-2])


class Worker:
    """A process that can be killed, and the case it has."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.case: tuple[str, int] | None = None
        self.start()

    def start(self) -> None:
        self.pipe, other = FORK.Pipe()
        self.process = FORK.Process(target=work, args=(other, self.most), daemon=True)
        self.process.start()
        other.close()
        assert self.pipe.recv() == "ready"
        self.case, self.since, self.doing = None, 0.0, ""

    def give(self, case: tuple[str, int], tried: int = 0) -> None:
        self.case, self.since, self.doing, self.tried = case, time.monotonic(), "drawing", tried
        self.pipe.send(case)

    def heard(self) -> Verdict | None:
        """A verdict if there is one by now: by the worker, by its death, or by the clock."""
        try:
            while self.pipe.poll():
                came = self.pipe.recv()
                if isinstance(came, Verdict):
                    return came
                self.doing, self.since = came, time.monotonic()
        except EOFError:
            self.process.join()
            code = self.process.exitcode
            self.start_again()
            return Verdict("error", f"the process died, exit code {code}", "", 0.0, 0.0)
        limit = TRIES[self.tried] if self.doing == "calling" else GIVEN_UP
        if time.monotonic() - self.since <= limit:
            return None
        kind = "hang" if self.doing == "calling" else "judge gave up"
        self.start_again()
        assert self.case is not None
        words = ", ".join(posed(*self.case, self.most).case.words)
        return Verdict(kind, f"killed after {limit:g} s", words, limit, 0.0)

    def start_again(self) -> None:
        case = self.case
        self.process.kill()
        self.process.join()
        self.start()
        self.case = case

    def end(self) -> None:
        self.pipe.send(None)
        self.process.join()


def campaign(cases: list[tuple[str, int]], jobs: int, most: int, seconds: float) -> dict[tuple[str, int], Verdict]:
    """The verdict of every case, of as many as the time is enough for."""
    found: dict[tuple[str, int], Verdict] = {}
    left, ends = iter(cases), time.monotonic() + seconds
    workers = [Worker(most) for _ in range(jobs)]
    busy = [w for w in workers if _next(w, left)]
    while busy:
        wait([w.pipe for w in busy], timeout=0.5)
        for worker in [*busy]:
            if (verdict := worker.heard()) is None:
                continue
            assert worker.case is not None
            if verdict.seconds > TRIES[0] / 2 and worker.tried < (1 if verdict.kind == "hang" else 2):
                worker.give(worker.case, worker.tried + 1)
                continue
            found[worker.case] = verdict
            tell(worker.case, verdict)
            if time.monotonic() > ends or not _next(worker, left):
                busy.remove(worker)
    for worker in workers:
        worker.end()
    return found


def _next(worker: Worker, left: Any) -> bool:
    case = next(left, None)
    if case is not None:
        worker.give(case)
    return case is not None


def tell(case: tuple[str, int], verdict: Verdict) -> None:
    if verdict.kind not in judge.GOOD:
        again = f'--only "{case[0]}" --first {case[1]} --cases 1'
        print(f"{verdict.kind}: {again}   ({verdict.words}; {verdict.seconds:.1f} s)\n    {verdict.why}", flush=True)


def table(found: dict[tuple[str, int], Verdict]) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for (family, _), verdict in found.items():
        counts[family][verdict.kind] += 1
        counts["all"][verdict.kind] += 1
    kinds = [k for k in judge.KINDS if counts["all"][k] or k != "judge gave up"]
    lines = ["| family | cases | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 2) + "|"]
    for family in [*(f for f in FAMILIES if f in counts), "all"]:
        row = counts[family]
        lines.append(f"| {family} | {row.total()} | " + " | ".join(str(row[k] or "") for k in kinds) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser("fuzz.hard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=300, help="in all")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--most", type=int, default=300, help="points of a side")
    parser.add_argument("--only", choices=FAMILIES, nargs="*", help="these families")
    parser.add_argument("--out", type=Path, help="verdicts as lines of JSON")
    given = parser.parse_args()
    families = given.only or [*FAMILIES]
    cases = [(families[k % len(families)], given.first + k // len(families)) for k in range(given.cases)]
    print(f"otformer of {Path(otformer.__file__).parent}")
    began = time.monotonic()
    found = campaign(cases, given.jobs, given.most, given.seconds)
    print(table(found))
    print(f"{len(found)} cases in {time.monotonic() - began:.0f} s, {given.jobs} jobs")
    if given.out:
        given.out.write_text("".join(json.dumps([*case, *verdict]) + "\n" for case, verdict in found.items()))
    return int(any(v.kind not in judge.HONEST for v in found.values()))


if __name__ == "__main__":
    sys.exit(main())
