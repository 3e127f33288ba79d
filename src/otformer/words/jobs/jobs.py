"""Work on a corpus of sentence pairs, chunk by chunk: memory stays bounded, and what was interrupted goes on.

A `Job` makes, once per worker, a function from a chunk of pairs to a result, any object. A pair may carry more than its two
sentences: it is any tuple of texts. `stream` gives the results of all chunks, in order, and keeps nothing. `run_resumable`
and `run` keep the result of every finished chunk, as bytes, in a folder beside the output, under a name that is a hash of
the chunk's text and of the job's settings: the same command goes on where it stopped, other settings start anew.

Engines: ``local``, this process, or ``workers`` processes of this machine; ``ray``, the workers of a Ray cluster
(words/jobs/ray_engine.py).
"""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import os
import re
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from otformer import checks
from otformer.array_files import read_whole
from otformer.files import checked_out, written
from otformer.locks import held
from otformer.memory import lacking

ENGINES = ("local", "ray")
LARGEST_CHUNK = 2**32  # bytes of a kept result
KEY = re.compile(r"[0-9a-f]{32}")  # the name of a kept result
OURS = re.compile(rf"{KEY.pattern}|\.{KEY.pattern}(\.[0-9a-f]{{8}})?\.otformer-\w+")  # or one that a kill left unfinished
Item = tuple[str, ...]  # a Pair, perhaps with more
Work = Callable[[Sequence[Any]], Any]  # from the items of a chunk to its result
Progress = Callable[[int], Any]  # called with the number of pairs that were finished since the last call


@dataclass(frozen=True)
class Job:
    """A function to run over a corpus in chunks, and its engine.

    factory : makes the function of a chunk; it is pickled, and called once in every worker.   settings : all but the text
    that decides the results, as plain values.   chunk : pairs in a chunk.   workers : processes, or workers of the cluster.
    pack, unpack : a result as bytes, and back; used only where chunks are kept.
    """

    factory: Callable[[], Work]
    settings: Mapping[str, Any] = field(default_factory=dict)
    chunk: int = 256
    engine: str = "local"
    workers: int = 1
    pack: Callable[[Any], bytes] = bytes
    unpack: Callable[[bytes], Any] = bytes

    def __post_init__(self) -> None:
        checks.count("chunk", self.chunk)
        checks.count("workers", self.workers)
        checks.choice("engine", self.engine, ENGINES)

    def key(self, chunk: Sequence[Item]) -> str:
        """The hash of a chunk's text and the settings.

        >>> job = Job(str.encode, {"reg": 0.1})
        >>> job.key([("a", "b")]) == job.key([("a b", "")])
        False
        """
        text = repr((sorted(self.settings.items()), [tuple(item) for item in chunk]))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def chunks(pairs: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """``size`` pairs at a time.

    >>> [len(chunk) for chunk in chunks([("a", "b")] * 5, 2)]
    [2, 2, 1]
    """
    pairs = iter(pairs)
    while chunk := list(itertools.islice(pairs, size)):
        yield chunk


def stream(job: Job, pairs: Iterable[Item], progress: Progress = lambda done: None) -> Iterator[Any]:
    """The result of every chunk, in order; nothing is kept."""
    for chunk, result in _execute(job, chunks(pairs, job.chunk)):
        progress(len(chunk))
        yield result


def _execute(job: Job, given: Iterator[list[Item]]) -> Iterator[tuple[list[Item], Any]]:
    """Every chunk and the job's function of it, in order."""
    given, done = itertools.tee(given)
    if job.engine == "ray":
        from otformer.words.jobs.ray_engine import execute

        results = execute(job.factory, given, job.workers)
    else:
        results = _in_processes(job, given) if job.workers > 1 else map(job.factory(), given)
    return ((next(done), result) for result in results)


_work: Work  # of a worker process


def _start(factory: Callable[[], Work], workers: int) -> None:
    """Set up a worker process: its share of the cores, as more threads than cores wait for each other, and the work."""
    global _work
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(max(1, torch.get_num_threads() // workers))
    _work = factory()


def _end_with_parent() -> None:
    """A worker whose parent is killed would wait for the next chunk for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _one(chunk: list[Item]) -> Any:
    return _work(chunk)


def _in_processes(job: Job, given: Iterator[list[Item]]) -> Iterator[Any]:
    from concurrent.futures import Future, ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    pool = ProcessPoolExecutor(job.workers, get_context("spawn"), _start, (job.factory, job.workers))
    waiting: deque[Future[Any]] = deque()
    try:
        for chunk in given:
            with interrupts_held():
                waiting.append(pool.submit(_one, chunk))
            if len(waiting) > 2 * job.workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise ValueError("a worker process has died (killed, or out of memory)") from None
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the end of the block. Processes started in it never see it: the one that starts them ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ChunkFolder:
    """The folder of finished chunks of an output file, ``<out>.parts``."""

    def __init__(self, out: Path) -> None:
        self.folder = out.with_name(f"{out.name}.parts")

    def file(self, key: str) -> Path:
        return self.folder / key

    def kept(self) -> list[Path]:
        """The finished chunks. The folder may hold other files, a user's own, which are none of ours."""
        return [each for each in self.folder.iterdir() if KEY.fullmatch(each.name)] if self.folder.is_dir() else []

    def __len__(self) -> int:
        return len(self.kept())

    def remove(self) -> None:
        """Remove the chunks, finished or not, and the folder if nothing else is in it."""
        for each in self.folder.iterdir() if self.folder.is_dir() else ():
            if OURS.fullmatch(each.name):
                each.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    @contextmanager
    def held(self) -> Iterator[None]:
        """The folder for one process at a time; without chunks in the end, it goes again. The lock file lies beside it."""
        if self.folder.is_symlink():
            raise ValueError(f"{self.folder} is a link, which is not followed: remove it, or name another file")
        if self.folder.exists() and not self.folder.is_dir():
            raise checks.ArgumentError(self.folder, "be a folder for finished chunks", "a file", "remove it")
        with held(self.folder.with_name(f".{self.folder.name}.otformer-lock"), self.folder.with_suffix("")):
            try:
                yield
            finally:
                if not len(self):
                    self.remove()


def run_resumable(
    job: Job, pairs: Iterable[Item], folder: ChunkFolder, progress: Progress = lambda done: None
) -> Iterator[Any]:
    """Make the chunks that are not in the folder yet, which is held; then read the results of all from there, in order."""
    keys: list[str] = []

    def unfinished() -> Iterator[list[Item]]:
        for chunk in chunks(pairs, job.chunk):
            keys.append(job.key(chunk))
            if folder.file(keys[-1]).is_file():
                progress(len(chunk))
            else:
                yield chunk

    for chunk, result in _execute(job, unfinished()):
        data = job.pack(result)
        folder.folder.mkdir(exist_ok=True)
        with written(folder.file(job.key(chunk)), ours=True) as out:
            out.write(data)
        progress(len(chunk))
    return (_unpacked(job, folder.file(key)) for key in keys)


def _unpacked(job: Job, file: Path) -> Any:
    """Read a stored chunk; raise ValueError if it is damaged."""
    try:
        return job.unpack(read_whole(file, LARGEST_CHUNK))
    except Exception as error:  # whatever the work's own way of unpacking says of bytes that are not its own
        if lacking(error) or isinstance(error, OSError):  # then the file may be good
            raise
        raise ValueError(f"{file} is damaged: remove the folder {file.parent} and give the command again") from None


def run(
    job: Job,
    pairs: Iterable[Item],
    out: str | Path,
    encode: Callable[[Any], bytes] = bytes,
    progress: Progress = lambda done: None,
) -> None:
    """Write ``encode`` of the result of every chunk, in order, to the file ``out``, whole or not at all.

    Interrupted, it leaves the finished chunks in the folder ``<out>.parts``, and the same call goes on from them; the folder
    is removed when the output is there. A second call for the same file is refused while the first works. A device or a pipe
    is written to as the chunks come.
    """
    out = checked_out(out)
    folder, special = ChunkFolder(out), out.exists() and not out.is_file()
    with nullcontext() if special else folder.held():
        results = stream(job, pairs, progress) if special else run_resumable(job, pairs, folder, progress)
        with written(out) as file:
            file.writelines(map(encode, results))
        folder.remove()
