"""A task of the benchmark in a process of its own: one library's memory, threads and crashes are not another's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

Spec = dict[str, Any]


def outside(task: Callable[[Spec], Any], spec: Spec, threads: int) -> dict[str, Any]:
    """{"done": what ``task(spec)`` returns, as JSON} of a process with so many threads, or {"failed": why there is none}."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    env = os.environ | dict.fromkeys(names, str(threads)) | {"JAX_PLATFORMS": "cpu", "KEOPS_VERBOSE": "0"}
    call = [sys.executable, "-m", __name__, task.__module__, task.__name__, json.dumps(spec), str(threads)]
    done = subprocess.run(call, env=env, capture_output=True, text=True, check=False)
    if done.returncode == -signal.SIGPROF:
        return {"failed": f"over {spec['limit']:g} s"}
    if done.returncode != 0:
        return {"failed": (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1][:200]}
    outcome: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return outcome


def _pin(threads: int) -> None:
    """Keep this process on so many processors: libraries that ignore OMP_NUM_THREADS (XLA) obey that."""
    if hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        first = os.getpid() % len(mine)
        os.sched_setaffinity(0, (mine[first:] + mine[:first])[:threads])


def main() -> None:
    module, task, spec, threads = sys.argv[1:]
    _pin(int(threads))
    warnings.simplefilter("ignore")
    try:
        outcome = {"done": getattr(import_module(module), task)(json.loads(spec))}
    except (RuntimeError, ValueError, ArithmeticError, MemoryError, AssertionError) as error:
        outcome = {"failed": str(error).splitlines()[0] if str(error) else type(error).__name__}
    print("\n" + json.dumps(outcome))


if __name__ == "__main__":
    main()
