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
import sys
import time
from pathlib import Path

import numpy as np

import otformer
from fuzz.hard import doors, draws, judge
from fuzz.hard.families import FAMILIES, posed, pot_seconds, run
from fuzz.workers import Job, Verdict, campaign, table

TRIES = (10.0, 60.0, 10.0)  # seconds of a call: see Job


def warm() -> None:
    """Ordinary problems by every entry point, a few times: they choose by chance, and by size, what they compile."""
    rng = np.random.default_rng(0)
    ways = {door for _, door in FAMILIES.values()}
    for door, n in itertools.product(sorted(ways, key=str), (9, 9, 60, 60, 60)):
        w, part = rng.random(n), np.zeros(n, int)
        case = draws.Case(rng.random((n, n)), w / w.sum(), w / w.sum(), np.zeros((n, n), bool), [], (part, part))
        pot_seconds(case)
        doors.quiet(door(rng, case)[-2])


def job(most: int) -> Job:
    """Cases of at most so many points a side."""

    def words(family: str, seed: int) -> str:
        return ", ".join(posed(family, seed, most).case.words)

    return Job(lambda family, seed, say: run(family, seed, most, say), warm, words, TRIES)


def tell(case: tuple[str, int], verdict: Verdict) -> None:
    if verdict.kind not in judge.GOOD:
        again = f'--only "{case[0]}" --first {case[1]} --cases 1'
        print(f"{verdict.kind}: {again}   ({verdict.words}; {verdict.seconds:.1f} s)\n    {verdict.why}", flush=True)


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
    found = campaign(job(given.most), cases, given.jobs, given.seconds, tell)
    kinds = {verdict.kind for verdict in found.values()}
    print(table(found, FAMILIES, [k for k in judge.KINDS if k in kinds or k != "judge gave up"]))
    print(f"{len(found)} cases in {time.monotonic() - began:.0f} s, {given.jobs} jobs")
    if given.out:
        given.out.write_text("".join(json.dumps([*case, *verdict]) + "\n" for case, verdict in found.items()))
    return int(any(v.kind not in judge.HONEST for v in found.values()))


if __name__ == "__main__":
    sys.exit(main())
