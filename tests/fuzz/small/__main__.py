"""``python -m fuzz.small``: small problems of all families, by every exact function, against optima in exact fractions.

    python -m fuzz.small --cases 10000                               10,000 problems, four calls each
    python -m fuzz.small --only drawn --first 17 --cases 1           one problem again

Every second problem is drawn by the grammar of `otformer bench exact --family drawn-SEED`. Calls run in a process that is
killed when one takes ten seconds. Prints each finding, a table, family × what came of it, and the counts that must be 0.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import otformer
from fuzz.hard.doors import quiet
from fuzz.hard.judge import truth
from fuzz.small.doors import DOORS
from fuzz.small.judge import GOOD, KINDS, judged
from fuzz.small.problems import FAMILIES, small
from fuzz.workers import Job, Named, Verdict, campaign, table

TRIES = (10.0, 60.0, 10.0)  # seconds of a call: see Job
PATIENCE = 5.0  # seconds of a call
MUST_BE_NONE = ("wrong value", "wrong bound", "bad plan", "hang", "slow", "converged, not optimal", "refused", "error")


def run(family: str, seed: int, say: Callable[[str], None], most: int = 12) -> Verdict:
    """The worst that any of the functions does with one problem."""
    say("judging")
    one = small(family, seed, most)
    known, worst = truth(one.case), Verdict("ok", "", one.words, 0.0, 0.0)
    for door in DOORS:
        say("calling")
        began = time.perf_counter()
        try:
            answer, _ = quiet(partial(door, one))
            kind, why = judged(one.case, answer, known)
        except Exception as error:
            kind = "refused" if isinstance(error, ValueError) else "error"
            why = f"{type(error).__name__}: {error}"[:200]
        seconds = time.perf_counter() - began
        say("judging")
        if kind == "ok" and seconds > PATIENCE:
            kind, why = "slow", f"{seconds:.1f} s"
        if worst.kind in GOOD and kind != "ok" and not (worst.kind == "not converged" and kind in GOOD):
            worst = worst._replace(kind=kind, why=f"{door.__name__}: {why}")
        worst = worst._replace(seconds=max(worst.seconds, seconds))
    return worst


def warm() -> None:
    """Problems of several sizes: they choose by size what they compile."""
    for family, seed in (("uniform-2d", 0), ("uniform-2d", 1), ("weights", 0), ("weights", 1), ("zero-one", 0)):
        run(family, seed, lambda _: None)


def job(most: int) -> Job:
    """Problems of at most so many points a side."""
    return Job(partial(run, most=most), warm, lambda family, seed: small(family, seed, most).words, TRIES)


def tell(case: Named, verdict: Verdict) -> None:
    if verdict.kind != "ok":
        again = f"--only {case[0]} --first {case[1]} --cases 1"
        print(f"{verdict.kind}: {again}   ({verdict.words}; {verdict.seconds:.1f} s)\n    {verdict.why}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser("fuzz.small", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000, help="in all")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=7200.0, help="for all")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--most", type=int, default=12, help="points of a side")
    parser.add_argument("--only", choices=sorted(set(FAMILIES)), nargs="*", help="these families")
    given = parser.parse_args()
    print(f"otformer of {Path(otformer.__file__).parent}")
    began = time.monotonic()
    cases = named(given.only or FAMILIES, given.first, given.cases)
    found = campaign(job(given.most), cases, given.jobs, given.seconds, tell)
    kinds = [verdict.kind for verdict in found.values()]
    print(table(found, dict.fromkeys(FAMILIES), [kind for kind in KINDS if kind in kinds]))
    print(f"{len(found)} problems, {len(found) * len(DOORS)} calls, in {time.monotonic() - began:.0f} s")
    print("; ".join(f"{kind}: {kinds.count(kind)}" for kind in (*MUST_BE_NONE, *GOOD[1:])))
    return int(any(kind in MUST_BE_NONE for kind in kinds))


def named(families: tuple[str, ...] | list[str], first: int, count: int) -> list[Named]:
    """So many cases, families in turn, each with seeds of its own.

    >>> named(["ring", "drawn", "ties", "drawn"], 5, 6)
    [('ring', 5), ('drawn', 5), ('ties', 5), ('drawn', 6), ('ring', 6), ('drawn', 7)]
    """
    seeds = dict.fromkeys(families, first)
    cases = []
    for k in range(count):
        family = families[k % len(families)]
        cases.append((family, seeds[family]))
        seeds[family] += 1
    return cases


if __name__ == "__main__":
    sys.exit(main())
