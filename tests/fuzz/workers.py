"""Cases in processes that are killed when a call takes too long, and a table of what came of them."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

GIVEN_UP = 120.0  # seconds of the judge
FORK = multiprocessing.get_context("fork")
Named = tuple[str, int]  # a family and a seed: one case


class Verdict(NamedTuple):
    kind: str
    why: str
    words: str  # what was drawn
    seconds: float  # of the call
    pot: float  # seconds that POT takes


class Job(NamedTuple):
    """What a worker does. ``run`` says "calling" before each call and "judging" after it: someone watches the clock."""

    run: Callable[[str, int, Callable[[str], None]], Verdict]
    warm: Callable[[], None]  # the first calls compile, on no one's clock
    words: Callable[[str, int], str]  # what a case is, where its process was killed
    tries: tuple[float, ...]  # seconds of a call, after which it is killed; if it was slow, again: it may have compiled


class Worker:
    """A process that can be killed, and the case it has."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.case: Named | None = None
        self.start()

    def start(self) -> None:
        self.pipe, other = FORK.Pipe()
        self.process = FORK.Process(target=work, args=(other, self.job), daemon=True)
        self.process.start()
        other.close()
        assert self.pipe.recv() == "ready"
        self.case, self.since, self.doing = None, 0.0, ""

    def give(self, case: Named, tried: int = 0) -> None:
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
        limit = self.job.tries[self.tried] if self.doing == "calling" else GIVEN_UP
        if time.monotonic() - self.since <= limit:
            return None
        kind = "hang" if self.doing == "calling" else "judge gave up"
        self.start_again()
        assert self.case is not None
        return Verdict(kind, f"killed after {limit:g} s", self.job.words(*self.case), limit, 0.0)

    def again(self, verdict: Verdict) -> bool:
        """Give a slow case again, if it has tries left."""
        if verdict.seconds <= self.job.tries[0] / 2 or self.tried >= (1 if verdict.kind == "hang" else 2):
            return False
        assert self.case is not None
        self.give(self.case, self.tried + 1)
        return True

    def start_again(self) -> None:
        case = self.case
        self.process.kill()
        self.process.join()
        self.start()
        self.case = case

    def end(self) -> None:
        self.pipe.send(None)
        self.process.join()


def work(pipe: Connection, job: Job) -> None:
    """Cases as they come, until there are no more."""
    warnings.simplefilter("ignore")
    job.warm()
    pipe.send("ready")
    while (given := pipe.recv()) is not None:
        pipe.send(job.run(*given, pipe.send))


def campaign(
    job: Job, cases: Iterable[Named], jobs: int, seconds: float, tell: Callable[[Named, Verdict], None]
) -> dict[Named, Verdict]:
    """The verdict of every case, of as many as the time is enough for."""
    found: dict[Named, Verdict] = {}
    left, ends = iter(cases), time.monotonic() + seconds
    workers = [Worker(job) for _ in range(jobs)]
    busy = [w for w in workers if _next(w, left)]
    while busy:
        wait([w.pipe for w in busy], timeout=0.5)
        for worker in [*busy]:
            if (verdict := worker.heard()) is None or worker.again(verdict):
                continue
            assert worker.case is not None
            found[worker.case] = verdict
            tell(worker.case, verdict)
            if time.monotonic() > ends or not _next(worker, left):
                busy.remove(worker)
    for worker in workers:
        worker.end()
    return found


def _next(worker: Worker, left: Iterator[Named]) -> bool:
    case = next(left, None)
    if case is not None:
        worker.give(case)
    return case is not None


def table(found: dict[Named, Verdict], families: Iterable[str], kinds: Sequence[str]) -> str:
    """Family × what came of it."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for (family, _), verdict in found.items():
        counts[family][verdict.kind] += 1
        counts["all"][verdict.kind] += 1
    lines = ["| family | cases | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 2) + "|"]
    for family in [*(f for f in families if f in counts), "all"]:
        row = counts[family]
        lines.append(f"| {family} | {row.total()} | " + " | ".join(str(row[k] or "") for k in kinds) + " |")
    return "\n".join(lines)
