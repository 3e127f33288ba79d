"""``python -m mutations``: is each claim of the theory as strong as its tests can tell?

    make mutations                                        all claims; writes docs/theorem-tests.md
    make mutations MUTATIONS="--only C L.1"               the claims of some theorems; writes nothing

The tests run in copies of the tree, one for each job. Prints a line for each claim. Exit code 1 if a test fails without a
change, or if a stronger claim goes unnoticed; then the page stays as it was.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue

from mutations import claims, page
from mutations.claims import Claim, Seen
from mutations.trial import WARM, Copy

Tell = Callable[[str], None]


def trials(chosen: list[Claim], jobs: int, tell: Tell, root: Path, modules: Sequence[str]) -> dict[str, Seen]:
    """What is seen of each claim. Each job has a copy of its own; what runs there is killed if this one is stopped."""
    seen: dict[str, Seen] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        copies = [Copy(Path(folder) / str(k), root, modules) for k in range(jobs)]
        free: Queue[Copy] = Queue()

        def noticed(claim: Claim) -> tuple[str, str]:
            copy = free.get()
            try:
                return copy.noticed(claim)
            finally:
                free.put(copy)

        try:
            for found in pool.map(Copy.unchanged, copies, [chosen[k::jobs] for k in range(jobs)]):
                seen |= found
            tell("the tests have run without changes")
            for copy in copies:
                free.put(copy)
            running = {pool.submit(noticed, claim): claim for claim in chosen}
            for number, done in enumerate(as_completed(running), start=1):
                claim, (test, wrong) = running[done], done.result()
                seen[claim.name].noticed = test
                seen[claim.name].wrong += [wrong] if wrong else []
                tell(f"{number:>3}/{len(chosen)}  {claim.theorem:<12} {test or f'NOT NOTICED: {wrong}'}")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in copies:
                copy.stop()
    return seen


def run(
    chosen: list[Claim], jobs: int, tell: Tell, root: Path = claims.ROOT, modules: Sequence[str] = WARM
) -> tuple[dict[str, Seen], int]:
    """What is seen of these claims, and the exit code. ``modules`` are imported once for all runs."""
    seen = trials(chosen, jobs, tell, root, modules)
    for name, each in seen.items():
        for wrong in each.wrong:
            tell(f"{name}\n    {wrong}")
    bad = sum(bool(each.wrong) for each in seen.values())
    tell(f"{len(chosen)} claims, {bad} with something wrong")
    return seen, 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser("mutations")
    parser.add_argument("--only", nargs="*", default=[], help="claims whose theorem begins so")
    parser.add_argument("--jobs", type=int, default=2, help="copies in which tests run at once")
    given, known, began = parser.parse_args(), claims.load(), time.monotonic()
    chosen = [claim for claim in known if not given.only or claim.theorem.startswith(tuple(given.only))]
    if not chosen:
        parser.error(f"no claim of {' or '.join(given.only)}")
    print(f"{len(chosen)} claims, {given.jobs} jobs", flush=True)
    try:
        seen, code = run(chosen, given.jobs, lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        print("stopped; the page is as it was")
        return 130
    minutes = (time.monotonic() - began) / 60
    if code == 0 and len(chosen) == len(known):
        page.write([(claim, seen[claim.name]) for claim in known], minutes)
        print(f"{page.PAGE} is written; {minutes:.1f} minutes")
    return code


if __name__ == "__main__":
    sys.exit(main())
