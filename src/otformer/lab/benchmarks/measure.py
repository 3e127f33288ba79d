"""One peer on one problem: effort raised until the *computed* error is below tol, then time and memory of that run."""

from __future__ import annotations

import math
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import numpy as np

from otformer.lab.benchmarks.peers import PEERS, Answer, Peer
from otformer.lab.benchmarks.problems import Problem, make

T = TypeVar("T")
EFFORTS = 1024.0  # factor by which a tolerance is tightened at most; iterations are doubled until time is up
LOOSER = 64.0  # factor by which it is loosened at most
QUICK = 2.0  # processor seconds; a run that takes less is repeated, and the repeat is timed
WARM = 48  # points of the small problem that warms a library up


class TimedSolve(NamedTuple):
    """``seconds``: wall clock; ``cpu``: of all threads; ``memory``: MiB the solve added to the peak; ``error``: L1."""

    seconds: float
    cpu: float
    memory: float
    error: float
    passes: float | None
    effort: float


def marginal_error(problem: Problem, answer: Answer, reg: float, rows: int = 512) -> float:
    """Σ_i |Σ_j P_ij − a_i| + Σ_j |Σ_i P_ij − b_j| in float64, from log scalings alone, a block of rows at a time."""
    f, g = np.asarray(answer.f, dtype=np.float64), np.asarray(answer.g, dtype=np.float64)
    if f.shape != problem.a.shape or g.shape != problem.b.shape:
        raise ValueError(f"an answer must have shapes {problem.a.shape} and {problem.b.shape}, got {f.shape} and {g.shape}")
    columns, error = np.zeros_like(problem.b), 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(f), rows):
            part = slice(start, start + rows)
            P = np.exp(f[part, None] + g - problem.C[part] / reg)
            columns += P.sum(0)
            error += float(np.abs(P.sum(1) - problem.a[part]).sum())
    error += float(np.abs(columns - problem.b).sum())
    return error if math.isfinite(error) else math.inf


def attempt(peer: Peer, problem: Problem, reg: float, tol: float, effort: float, limit: float = math.inf) -> TimedSolve:
    """One timed run; a quick one is made twice and the second timed, when its memory is no longer new to the process.

    A solve that uses more processor seconds than a finite ``limit`` ends this *process*.
    """
    call = peer.prepare(problem, reg, tol, effort)
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:  # Linux: the peak starts again from here
        file.write("5")
    before = peak_memory()
    wall, cpu, answer = timed(call, limit)
    memory = max(peak_memory() - before, 0.0)
    if cpu < QUICK:
        wall, cpu, answer = timed(call, limit)
    return TimedSolve(wall, cpu, memory, marginal_error(problem, answer, reg), answer.passes, effort)


def timed(call: Callable[[], T], limit: float) -> tuple[float, float, T]:
    """Seconds by the clock, processor seconds, and the answer; a call of more than ``limit`` of these ends this process."""
    if math.isfinite(limit):
        # A signal's default action needs no interpreter: it works inside a library's C++ loop too.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, limit)
    wall, cpu = time.perf_counter(), _cpu()
    answer = call()
    wall, cpu = time.perf_counter() - wall, _cpu() - cpu
    signal.setitimer(signal.ITIMER_PROF, 0)
    return wall, cpu, answer


def _cpu() -> float:
    """Processor seconds of this process, all threads. Not time.process_time: a running limit makes that one coarse."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_memory() -> float:
    """Peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def tuned(peer: Peer, problem: Problem, reg: float, tol: float, limit: float = math.inf) -> TimedSolve:
    """The run at the least effort (to within 2 in tolerance, 10 % in iterations) whose computed error is below ``tol``.

    A peer whose own tolerance is stricter than ours is given a looser one. Raises RuntimeError if none arrives. A claim of
    the peer's own that it has converged counts for nothing. Between too few iterations and enough there are three secant
    steps on the logarithm of the error.
    """
    low = high = attempt(peer, problem, reg, tol, 1.0, limit)
    while not high.error < tol:
        if not math.isfinite(high.error) or (high.effort >= EFFORTS and not peer.counts):
            raise RuntimeError(f"computed error {high.error:.2g} at {high.effort:g} times the effort")
        if peer.counts and 2 * high.cpu > limit:
            raise RuntimeError(f"computed error {high.error:.2g} after {high.cpu:.1f} s, the next takes over {limit:g} s")
        low, high = high, attempt(peer, problem, reg, tol, 2 * high.effort, limit)
    while not peer.counts and 1 / LOOSER < high.effort <= 1:
        low = attempt(peer, problem, reg, tol, high.effort / 2, limit)
        if not low.error < tol:
            break
        high = low
    for _ in range(3):
        if not peer.counts or high.effort < 1.1 * low.effort:
            break
        part = math.log(low.error / tol) / math.log(low.error / max(high.error, 1e-15))
        effort = low.effort + min(max(1.05 * part, 0.1), 0.95) * (high.effort - low.effort)
        run = attempt(peer, problem, reg, tol, effort, limit)
        low, high = (low, run) if run.error < tol else (run, high)
    return high


def single(spec: dict[str, Any]) -> dict[str, Any]:
    """A `TimedSolve`, of a process: ``spec`` names peer, family, n, seed, reg, tol, limit, and the effort where it is known.

    A small problem of the same kind comes first: imports, threads and (KeOps) kernels are in place before anything is timed.
    """
    peer, reg, tol, limit = PEERS[spec["peer"]], spec["reg"], spec["tol"], spec["limit"]
    with suppress(RuntimeError):
        peer.prepare(make(spec["family"], WARM), max(reg, 0.05), 1e-2, 1.0)()
    problem = make(spec["family"], spec["n"], spec["seed"])
    if spec["effort"] is None:
        return tuned(peer, problem, reg, tol, limit)._asdict()
    run = attempt(peer, problem, reg, tol, spec["effort"], limit)
    if not run.error < tol:
        raise RuntimeError(f"computed error {run.error:.2g} in a repeat")
    return run._asdict()
