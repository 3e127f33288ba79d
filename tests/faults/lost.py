"""Processes that work together, and one is killed: ranks of a sharded solve, the workers of a corpus, or their parent."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from faults.process import Place, forked
from faults.stage import Stage, waited
from jobs.test_jobs import running

RANKS, TIMES = 3, 4
WAIT = 30.0  # seconds in which workers start, and in which they end when their parent was killed
ALIGN = "align {given}/text --by spaces --out links --matrix scores.npz --workers 2"
Found = Iterator[tuple[str, list[str]]]


def ranks(stage: Stage, first: int) -> Found:
    """A rank is killed at a random moment of a solve: the others say so and end; all together again give the same bytes."""
    began, place = time.monotonic(), stage.place()
    codes, wrong, killed = _solve(place), list[str](), 0
    seconds, expected = time.monotonic() - began, _potentials(place)
    assert not any(codes), codes
    for seed in range(first, first + TIMES):
        rng, place = np.random.default_rng(seed), stage.place()
        lost = int(rng.integers(RANKS))
        codes = _solve(place, lost, rng.uniform(0, seconds))
        killed += codes[lost] == -signal.SIGKILL
        for rank in range(RANKS) if codes[lost] else ():
            said = (place.folder / f"said-{rank}").read_text(errors="replace")
            told = codes[rank] == 0 or "a rank stopped answering" in said or "connect" in said.lower()
            wrong += [] if rank == lost or told else [f"seed {seed}, rank {rank}: exit code {codes[rank]}, {said[-200:]!r}"]
        again = stage.place()
        codes = _solve(again)
        wrong += [] if not any(codes) and _potentials(again) == expected else [f"seed {seed}: again {codes}"]
    yield f"{TIMES} solves of {RANKS} ranks, {killed} lost one", wrong


def _solve(place: Place, lost: int = 0, after: float | None = None) -> list[int]:
    """The exit codes of the ranks, of which one is killed after so many seconds."""
    children = [forked(lambda rank=rank: _rank(rank, place), place, place.folder / f"said-{rank}") for rank in range(RANKS)]
    if after is not None:
        time.sleep(after)
        os.kill(children[lost], signal.SIGKILL)
    return [waited(child) for child in children]


def _rank(rank: int, place: Place) -> None:
    import torch
    import torch.distributed as dist

    from otformer.files import write_npz
    from otformer.transport.sharded import solve_sharded

    dist.init_process_group("gloo", init_method=f"file://{place.folder}/store", rank=rank, world_size=RANKS)
    points = torch.rand(2, 300, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = solve_sharded(points[0].tensor_split(RANKS)[rank], points[1], reg=0.002, tol=1e-9, timeout=30)
    write_npz(place.out / f"{rank}.npz", **{name: t.numpy() for name, t in zip("uv", result.potentials, strict=True)})


def _potentials(place: Place) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.out.iterdir()}


def workers(stage: Stage, first: int) -> Found:
    """A worker, or the process that started them, is killed: one line, no process left, the same bytes when given again."""
    died = "otformer: a worker process has died (killed, or out of memory)\n"
    for who, expected in (("a worker", (2, died)), ("the parent", (-signal.SIGKILL, ""))):
        place = stage.place()
        child = place.start(ALIGN, fresh=True)
        until = time.monotonic() + WAIT
        while len(made := _spawned(child)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(np.random.default_rng(first).uniform(0, 1))
        os.kill(made[0] if who == "a worker" else child, signal.SIGKILL)
        found = waited(child), place.said.read_text()
        wrong = [] if found == expected else [f"exit code and text were {found}"]
        until = time.monotonic() + WAIT
        while (left := running(child)) and time.monotonic() < until:
            time.sleep(0.1)
        wrong += [f"{len(left)} processes are left"] if left else []
        for process in left:
            os.kill(process, signal.SIGKILL)
        code = waited(place.start(ALIGN, fresh=True))
        wrong += [f"exit code {code}: {place.said.read_text()[-300:]}"] if code else []
        yield f"{who} is killed", wrong + stage.known("align").differences(place)


def _spawned(session: int) -> list[int]:
    """The worker processes of a session."""
    return [each for each in running(session) if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]
