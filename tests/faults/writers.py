"""Many writers of one file and one folder, some of them killed, and a reader to whom nothing may be half.

    make faults FAULTS="--only writers"
    PYTHONPATH=src:tests python -m faults.writers 200     so many writes of each thread

Every thread of every process writes the file and the folder again and again; what it writes is one text, its own, many times
over. The reader opens them without end. A folder that it has opened may be replaced, and removed, before it has read it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from otformer.files import written, written_folder

if TYPE_CHECKING:
    from faults.stage import Stage

PROCESSES, THREADS, WRITES = 2, 2, 500  # writes of each thread, of the file and of the folder
LENGTH = 4096  # times that a text stands in a file
INSIDE = ("first", "second")  # files of the folder
BETWEEN = 0.05  # seconds between two kills, in the mean
MOST = 300.0  # seconds in which all must be done


def _write(place: Path, tell: int, seed: int) -> None:
    """Write both without end, and tell of each."""
    drawn = random.Random(seed)
    while True:
        text = f"{drawn.getrandbits(60):015x}\n".encode() * LENGTH
        for kind in b"file", b"folder":
            try:
                if kind == b"file":
                    with written(place / "file") as out:
                        out.write(text[: len(text) // 2])
                        out.write(text[len(text) // 2 :])
                else:
                    with written_folder(place / "folder") as folder:
                        for name in INSIDE:
                            (folder / name).write_bytes(text)
                os.write(tell, kind + b"\n")
            except Exception:
                traceback.print_exc()
                os.write(tell, b"refused\n")


def _started(place: Path, tell: int, seed: int) -> int:
    """The id of a process whose threads write."""
    child = os.fork()
    if child:
        return child
    for k in range(THREADS):
        threading.Thread(target=_write, args=(place, tell, 100 * seed + k), daemon=True).start()
    time.sleep(2 * MOST)
    os._exit(1)


def _whole(data: bytes) -> bool:
    return len(data) == 16 * LENGTH and data == data[:16] * LENGTH


def _look(place: Path, seen: Counter[str]) -> None:
    """Read the file, and the folder; count what is wrong."""
    try:
        seen["file read"] += 1
        seen["file half"] += not _whole((place / "file").read_bytes())
    except FileNotFoundError:
        seen["file missing"] += 1
    try:
        handle = os.open(place / "folder", os.O_RDONLY)
    except FileNotFoundError:
        seen["folder missing"] += 1
        return
    try:
        seen["folder read"] += 1
        texts = []
        for name in INSIDE:
            with open(name, "rb", opener=lambda path, flags: os.open(path, flags, dir_fd=handle)) as file:
                texts.append(file.read())
        seen["folder half"] += texts[0] != texts[1] or not _whole(texts[0])
    except FileNotFoundError:  # it is being removed: then another must be in its place
        with suppress(FileNotFoundError):  # in a race by two renames there may be none
            seen["folder half"] += os.path.samestat(os.fstat(handle), os.stat(place / "folder"))
    finally:
        os.close(handle)


def race(place: Path, seed: int, writes: int = WRITES) -> Counter[str]:
    """Write, kill and read until every thread, in the mean, has made so many writes; then look at what is left."""
    drawn, seen = random.Random(seed), Counter[str]()
    for name in ("file", "folder"):
        with written(place / name) if name == "file" else written_folder(place / name) as new:
            for part in [new.write] if name == "file" else [(new / each).write_bytes for each in INSIDE]:
                part(b"0123456789abcde\n" * LENGTH)
    hear, tell = os.pipe()
    os.set_blocking(hear, False)
    children = [_started(place, tell, seed + k) for k in range(PROCESSES)]
    ends, kill_at = time.monotonic() + MOST, time.monotonic()
    try:
        while seen["folder"] < PROCESSES * THREADS * writes and time.monotonic() < ends:
            _look(place, seen)
            with suppress(BlockingIOError):
                seen.update(os.read(hear, 1 << 16).decode().split())  # a word is written at once, and read whole
            if time.monotonic() > kill_at:
                kill_at = time.monotonic() + drawn.expovariate(1 / BETWEEN)
                k = drawn.randrange(PROCESSES)
                _end(children[k])
                seen["killed"] += 1
                children[k] = _started(place, tell, seed + 1000 * seen["killed"])
    finally:
        for child in children:
            _end(child)
    os.close(hear)
    os.close(tell)
    with written(place / "file") as out, written_folder(place / "folder"):
        out.write(b"the last")
    seen["left behind"] = len(list(place.iterdir())) - 2
    return seen


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def judged(place: Path, seed: int, writes: int = WRITES) -> tuple[str, list[str]]:
    """A race, what it counted, and what is wrong. Between two renames a folder may be missing, and must come back."""
    seen = race(place, seed, writes)
    bad = ["refused", "file missing", "file half", "folder half", "left behind"]
    wrong = [f"{seen[each]} {each}" for each in bad if seen[each]]
    wrong += ["too slow"] if seen["folder"] < PROCESSES * THREADS * writes else []
    counts = ("file", "folder", "killed", "file read", "folder read", "folder missing")
    return ", ".join(f"{each} {seen[each]}" for each in counts), wrong


def writers(stage: Stage, first: int) -> Iterator[tuple[str, list[str]]]:
    """One race."""
    yield judged(stage.place().out, first)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        what, found = judged(Path(made), 0, int(sys.argv[1]))
    print(f"{what}: {'; '.join(found) or 'as it should be'}")
    sys.exit(bool(found))
