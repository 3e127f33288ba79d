"""The corpus engine over Ray Data: the same function, in the workers of a cluster.

An actor that dies is started again and its chunk made again; results arrive once, whole, in the order of the chunks. The
text is read here and travels in windows, so that neither this process nor the object store holds a corpus. Without a cluster
(``RAY_ADDRESS``, or `ray.init` called before) one is started on this machine for the run, then ended. Whoever reaches Ray's
ports can run code, for they ask for no password: those of our own cluster listen on this machine alone (127.0.0.1).
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from typing import Any

from otformer.extras import absence, install
from otformer.words.jobs.jobs import Item, Work

WINDOW_CHUNKS = 1000  # chunks given to Ray Data at a time
ONLY_HERE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # Ray's switch, at 0: all its servers listen on 127.0.0.1


class _Worker:
    """The work as Ray Data calls it, on a row that holds a chunk."""

    def __init__(self, factory: Callable[[], Work]) -> None:
        self.work = factory()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"data": pickle.dumps(self.work(pickle.loads(row["chunk"]))), "error": ""}
        except ValueError as error:  # bad input is an answer; Ray would add its traceback
            return {"data": b"", "error": str(error)}


def execute(factory: Callable[[], Work], chunks: Iterator[list[Item]], workers: int = 1) -> Iterator[Any]:
    """The result of every chunk, in order, made by ``workers`` actors."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import_module("ray.data")
    except ImportError as error:
        raise ValueError(f"engine ray is {absence(error, 'ray')}: {install('ray')}") from None
    ray = import_module("ray")
    with _cluster(ray, workers):
        while window := list(itertools.islice(chunks, WINDOW_CHUNKS)):
            rows = [{"chunk": pickle.dumps(chunk)} for chunk in window]
            given = ray.data.from_items(rows, override_num_blocks=len(rows))
            done = given.map(_Worker, fn_constructor_args=(factory,), concurrency=min(workers, len(rows)), num_cpus=1)
            for row in done.iter_rows():
                if row["error"]:
                    raise ValueError(row["error"])
                yield pickle.loads(row["data"])


@contextmanager
def _cluster(ray: Any, workers: int) -> Iterator[None]:
    """A cluster to run on, and Ray Data set to keep the order and be quiet; all as it was before, afterwards."""
    ours = not ray.is_initialized()
    if ours:
        own: dict[str, Any] = {}
        if "RAY_ADDRESS" not in os.environ:
            os.environ[ONLY_HERE] = "0"  # for its processes; ray itself, if it was imported before, has read it already
            import_module("ray._private.ray_constants").ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]
            own = {"address": "local", "num_cpus": workers, "include_dashboard": False}
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **own)
    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars, context.execution_options.preserve_order
    context.enable_progress_bars, context.execution_options.preserve_order = False, True
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with redirect_stdout(sys.stderr):
        try:
            yield
        finally:
            context.enable_progress_bars, context.execution_options.preserve_order = before
            if ours:
                ray.shutdown()  # in here, as its messages come until then
