"""``python -m fuzz``: cases on the public functions and the command line, until so many or so much time.

    make fuzz                                  2,000 cases of each family, ten minutes at most
    make fuzz FUZZ="--only sort --first 17 --cases 1"     one case again

Prints for each family how many cases were answered, refused, and found wrong, with the command that runs each finding again.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from fuzz import api, commands

HANG = 20  # seconds for one case
RUNS: dict[str, Callable[[str, int], str]] = {
    **dict.fromkeys(api.FAMILIES, api.run),
    **dict.fromkeys(commands.FAMILIES, commands.run),
}


def case(family: str, seed: int) -> tuple[str, str]:
    """What came of a case, and of a finding its last lines."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"over {HANG} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANG)
    try:
        return RUNS[family](family, seed), ""
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "found", f"{type(error).__name__}: {str(error)[:200]} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})"
    finally:
        signal.alarm(0)


def main() -> int:
    parser = argparse.ArgumentParser("fuzz")
    parser.add_argument("--cases", type=int, default=2000, help="of each family")
    parser.add_argument("--seconds", type=float, default=600.0, help="for all")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", choices=RUNS, nargs="*", help="these families")
    given = parser.parse_args()
    families, ends, total = given.only or list(RUNS), time.monotonic() + given.seconds, Counter[str]()
    print(f"seeds {given.first} to {given.first + given.cases - 1} of {len(families)} families, at most {given.seconds:g} s")
    for place, family in enumerate(families, 1):
        counts, began = Counter[str](), time.monotonic()
        share = began + (ends - began) / (len(families) - place + 1)
        for seed in range(given.first, given.first + given.cases):
            if time.monotonic() > share:
                break
            came, said = case(family, seed)
            counts[came] += 1
            if came == "found":
                print(f'  FOUND by: make fuzz FUZZ="--only {family} --first {seed} --cases 1"\n    {said}', flush=True)
        total += counts
        seconds = time.monotonic() - began
        print(f"{family:<14} {counts.total():>6} cases in {seconds:5.0f} s: {counts['answered']} answered, "
              f"{counts['refused']} refused, {counts['found']} found", flush=True)  # fmt: skip
    print(f"{total.total()} cases: {total['answered']} answered, {total['refused']} refused, {total['found']} found")
    return 1 if total["found"] else 0


if __name__ == "__main__":
    sys.exit(main())
