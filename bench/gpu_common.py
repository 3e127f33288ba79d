"""What the sections of the GPU benchmark share: the run they belong to, problems, the clock, and the error in float64."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import otformer as of

TOL = 1e-4
EXACT = 50_000  # points: from here on the float64 error is that of SAMPLE rows and columns, scaled up
SAMPLE = 4096
SHORT = 0.1  # seconds: what takes less is called five times more, and the median stands beside the second call
Potentials = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Bench:
    """One section's run: where it computes, where its rows go, how much of the work it does."""

    section: str
    out: Path
    device: str = "cuda"
    shrink: int = 1  # sizes are divided by it, for a try without a GPU
    tune_all: bool = False  # flash-sinkhorn tunes over all of its kernel shapes
    seconds: float = 90.0  # for the random problems

    def add(self, **values: Any) -> None:
        """A row of results, or what is known of one: the table joins rows of equal ``case``."""
        row = {"section": self.section, **values}
        with (self.out / "gpu.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print("  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()), flush=True)

    @contextmanager
    def attempt(self, who: str, case: str = "") -> Iterator[None]:
        """One side's part of a case: if it is absent or fails, a row says why and the next one has its turn."""
        try:
            yield
        except Exception as error:  # a peer may raise anything
            self.add(case=case, **{f"{who} failed": one_line(error)})
            if self.device == "cuda":
                torch.cuda.empty_cache()

    def size(self, n: int) -> int:
        return max(2, n // self.shrink)

    def timed(self, run: Callable[[], Any]) -> Timed:
        return timed(run, self.device)

    def second(self, run: Callable[[], Any]) -> tuple[Timed, float | None]:
        """The second call (the first compiles), and the median of five more where it was short."""
        run()
        timed = self.timed(run)
        return timed, self.median(run, 5) if timed.seconds < SHORT else None

    def median(self, run: Callable[[], Any], calls: int) -> float:
        return sorted(self.timed(run).seconds for _ in range(calls))[calls // 2]


def one_line(error: Exception) -> str:
    """What went wrong, without the rest of the story."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"


class Timed(NamedTuple):
    seconds: float
    result: Any
    gib: float


def timed(run: Callable[[], Any], device: str) -> Timed:
    """Seconds of one call, with all it started on the device, and the most GiB allocated meanwhile, points included."""
    cuda = device == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    result = run()
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return Timed(seconds, result, torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0)


class Problem(NamedTuple):
    """Points x [n, d] and y [m, d], weights a [n] and b [m] (None: uniform), and λ."""

    x: Tensor
    y: Tensor
    a: Tensor | None
    b: Tensor | None
    reg: float

    def weights(self, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """a and b written out: those not given are uniform, with the mass of the other side; of no less than ``dtype``."""
        return _weights(self.a, self.x, self.b, dtype), _weights(self.b, self.y, self.a, dtype)


def _weights(given: Tensor | None, points: Tensor, other: Tensor | None, dtype: torch.dtype) -> Tensor:
    if given is not None:
        return given.to(torch.promote_types(given.dtype, dtype))
    mass = 1.0 if other is None else float(other.double().sum())
    kind = torch.promote_types(points.dtype, dtype)
    return torch.full((len(points),), mass / len(points), dtype=kind, device=points.device)


def solve(p: Problem, tol: float = TOL, **options: Any) -> Any:
    """The public call, with what a user reads of its result."""
    r = of.solve_sample(p.x, p.y, p.a, p.b, reg=p.reg, tol=tol, executor="stream", **options)
    _ = r.value, r.potentials, r.converged
    return r


def marginal_error(p: Problem, u: Tensor, v: Tensor) -> float:
    """Σ_i |Σ_j P_ij − a_i| + Σ_j |Σ_i P_ij − b_j| in float64, for P_ij = exp((u_i + v_j − ‖x_i − y_j‖²)/λ − 1).

    b is scaled to the mass of a first, as the solver does. Where n > EXACT, it is the error of SAMPLE rows drawn at random
    times n/SAMPLE; the same for columns.
    """
    a, b = p.weights(torch.float64)
    sides = (p.x, p.y, u, v, a), (p.y, p.x, v, u, b * (a.sum() / b.sum()))
    return sum(_side_error(*side, p.reg) for side in sides)


def _side_error(x: Tensor, y: Tensor, u: Tensor, v: Tensor, a: Tensor, reg: float) -> float:
    generator = torch.Generator(x.device).manual_seed(1)
    rows = torch.arange(len(x), device=x.device)
    if len(x) > EXACT:
        rows = torch.randperm(len(x), generator=generator, device=x.device)[:SAMPLE]
    sums = row_sums(x[rows], y, u[rows], v, reg)
    return float((sums - a[rows]).abs().sum()) * len(x) / len(rows)


def row_sums(x: Tensor, y: Tensor, u: Tensor, v: Tensor, reg: float) -> Tensor:
    """Σ_j exp((u_i + v_j − ‖x_i − y_j‖²)/λ − 1) in float64, in blocks of rows."""
    return torch.cat([(logs - 1).exp().sum(1) for logs in log_blocks(x, y, u, v, reg)])


def log_blocks(x: Tensor, y: Tensor, u: Tensor, v: Tensor, reg: float) -> Iterator[Tensor]:
    """(u_i + v_j − ‖x_i − y_j‖²)/λ in float64, block of rows after block.

    ‖x − y‖² = ‖x‖² + ‖y‖² − 2 x·y around the mean of y: rounding is some 10⁻¹⁶ of the largest cost.
    """
    middle = y.double().mean(0)
    x, y = x.double() - middle, y.double() - middle
    u, v = u.double() - (x * x).sum(1), v.double() - (y * y).sum(1)
    for part in torch.arange(len(x), device=x.device).split(max(1, 2**26 // len(y))):
        yield torch.addmm(v, x[part], y.mT, alpha=2).add_(u[part, None]).div_(reg)
