"""``python -m fuzz``: cases on the public functions and the command line, until so many or so much time.

    make fuzz                                             2,000 cases of each family, ten minutes at most
    make fuzz FUZZ="--only sort --first 17 --cases 1"     one case again
    make fuzz FUZZ="--first 100000 --cases 3000 --seconds 3600 --record docs/trust.md"     the counts that this page shows

Prints for each family how many cases were answered, refused, and found wrong, with the command that runs each finding again;
then how often every public name, command, option and surrounding was tried, and those that never were.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from fuzz import api, commands, environments, public
from fuzz.hard import families as hard

HANG = 20  # seconds of the processor for one case; a new Python has its own limit
STILL = 900  # seconds by the clock, for what hangs without computing; machines may be loaded
TIMERS = ((signal.SIGVTALRM, signal.ITIMER_VIRTUAL, HANG), (signal.SIGALRM, signal.ITIMER_REAL, STILL))
KINDS = ("answered", "refused", "found")
BEGINS, ENDS = "<!-- counts", "<!-- end of counts -->"  # around the table of docs/trust.md
RUNS: dict[str, Callable[[str, int], str]] = {
    **dict.fromkeys(environments.FAMILIES, environments.run),
    **dict.fromkeys(commands.FAMILIES, commands.run),
    **dict.fromkeys(api.FAMILIES, api.run),
    **dict.fromkeys(hard.KEPT, hard.fuzzed),
}
# What the first case of a family would have to compile for longer than it may take.
WARM: dict[str, Callable[[], Any]] = dict.fromkeys(("train", "load_aligner", "cli align", "cli transfer"), commands.aligner)


class Found(NamedTuple):
    """What came of a family's cases: counts, findings as (seed, what was said), reads of public names, seconds."""

    family: str
    counts: Counter[str]
    findings: list[tuple[int, str]]
    names: Counter[str]
    seconds: float


def case(family: str, seed: int) -> tuple[str, str]:
    """What came of a case, and of a finding its last lines."""

    def stop(number: int, _: Any) -> None:
        raise TimeoutError(f"over {HANG} s of the processor" if number == signal.SIGVTALRM else f"over {STILL} s")

    WARM.get(family, lambda: None)()
    for number, timer, seconds in TIMERS:
        signal.signal(number, stop)
        signal.setitimer(timer, seconds)
    try:
        return RUNS[family](family, seed), ""
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "found", f"{type(error).__name__}: {str(error)[:300]} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})"
    finally:
        for _, timer, _ in TIMERS:
            signal.setitimer(timer, 0)


def family_cases(family: str, seeds: range, seconds: float) -> Found:
    """The cases of a family, until all are done or the time is over."""
    warnings.simplefilter("ignore")
    counts, findings, began = Counter[str](), [], time.monotonic()
    public.COUNTS.clear()
    for seed in seeds:
        if time.monotonic() - began > seconds:
            break
        came, said = case(family, seed)
        counts[came] += 1
        findings += [(seed, said)] if came == "found" else []
    return Found(family, counts, findings, Counter(public.COUNTS), time.monotonic() - began)


def never_tried() -> list[str]:
    """Public names, commands and options that no family tries, by construction."""
    return api.never_tried() + commands.missing()


def main() -> int:
    parser = argparse.ArgumentParser("fuzz")
    parser.add_argument("--cases", type=int, default=2000, help="of each family")
    parser.add_argument("--seconds", type=float, default=600.0, help="for all")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--only", choices=RUNS, nargs="*", help="these families")
    parser.add_argument("--record", type=Path, help="write the counts into this page")
    given = parser.parse_args()
    families, seeds = given.only or list(RUNS), range(given.first, given.first + given.cases)
    share = given.seconds * given.jobs / len(families)
    print(
        f"seeds from {seeds.start}, {len(seeds)} of each of {len(families)} families, {given.seconds:g} s, {given.jobs} jobs"
    )
    all_found: list[Found] = []
    with ProcessPoolExecutor(given.jobs) as pool:
        for done in as_completed([pool.submit(family_cases, family, seeds, share) for family in families]):
            all_found.append(found := done.result())
            tell(found)
    total = sum((found.counts for found in all_found), Counter[str]())
    names = sum((found.names for found in all_found), Counter[str]())
    print("tried: " + ", ".join(f"{name} {count}" for name, count in sorted(names.items())))
    print(f"never tried by any family: {', '.join(never_tried()) or 'nothing'}")
    print(f"{total.total()} cases: {total['answered']} answered, {total['refused']} refused, {total['found']} found")
    if given.record:
        record(given.record, all_found, given.first)
    return 1 if total["found"] else 0


def tell(found: Found) -> None:
    for seed, said in found.findings:
        print(f"  FOUND by: make fuzz FUZZ=\"--only '{found.family}' --first {seed} --cases 1\"\n    {said}")
    counts = found.counts
    print(f"{found.family:<22} {counts.total():>6} cases in {found.seconds:5.0f} s: {counts['answered']} answered, "
          f"{counts['refused']} refused, {counts['found']} found", flush=True)  # fmt: skip


def record(page: Path, all_found: list[Found], first: int) -> None:
    """Write the counts of families into a page's table, between its marks; those of other families stay."""
    before, mark, rest = page.read_text("utf-8").partition(BEGINS)
    between, end, after = rest.partition(ENDS)
    if not end:
        raise SystemExit(f"{page} has no place for counts: a line {BEGINS}… and a line {ENDS}")
    said, _, old = between.partition("\n")
    rows = {
        cells[0]: [int(cell) for cell in cells[1:]] for cells in map(_cells, old.splitlines()) if cells and cells[0] in RUNS
    }
    rows |= {each.family: [first, each.counts.total(), *(each.counts[kind] for kind in KINDS)] for each in all_found}
    lines = [f"| {name} | " + " | ".join(map(str, rows[name])) + " |" for name in RUNS if name in rows]
    totals = " | ".join(f"{sum(row[k] for row in rows.values()):,}" for k in range(1, 5))
    table = ["| family | first seed | cases | answered | refused | found |", "|---|---|---|---|---|---|", *lines]
    table.append(f"| all | | {totals} |")
    page.write_text(f"{before}{mark}{said}\n\n" + "\n".join(table) + f"\n\n{end}{after}", "utf-8")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split("|")]


if __name__ == "__main__":
    sys.exit(main())
