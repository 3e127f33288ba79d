"""What the ranks of test_sharded.py run.

`torchrun … sharded_worker.py all OUT` does, on every rank: the program of docs/sharded.md, every case, every kind of bad
input, a fixed-weight network; what came out goes to OUT/RANK.pt. Last, rank 2 kills itself in the middle of a solve.
`torchrun … sharded_worker.py cuda OUT`: every case, the ranks sharing one GPU.
`python sharded_worker.py plain OUT`: four processes without a launcher of which one dies, then four of which one is silent.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from otformer.network.schedule import named
from otformer.transport.costs.distances import squared_distances
from otformer.transport.costs.matrix import Dense
from otformer.transport.costs.ranks import Sharded
from otformer.transport.sharded import solve_sharded
from otformer.transport.solvers.network import run

RANKS = 4
DOCS = Path(__file__).parents[2] / "docs" / "sharded.md"


@dataclass(frozen=True)
class Case:
    shards: tuple[int, ...]  # rows of each rank
    m: int
    d: int
    reg: float
    tol: float = 1e-12
    weights: bool = False
    dtype: torch.dtype = torch.float64

    def problem(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        g = torch.Generator().manual_seed(sum(self.shards) + self.m)
        x, y = (torch.rand(k, self.d, generator=g, dtype=self.dtype) for k in (sum(self.shards), self.m))
        if not self.weights:
            return x, y, None, None
        a, b = (torch.rand(k, generator=g, dtype=self.dtype) + 0.1 for k in (len(x), self.m))
        a[::7], b[3] = 0, 0
        return x, y, a / a.sum(), b / b.sum()

    def mine(self, rank: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        x, y, a, b = self.problem()
        return x.split(self.shards)[rank], y, None if a is None else a.split(self.shards)[rank], b


CASES = {
    "even": Case((25, 25, 25, 25), 80, 2, reg=0.05),
    "uneven": Case((13, 1, 40, 23), 50, 3, reg=0.05),
    "a rank without rows": Case((20, 0, 31, 0), 30, 2, reg=0.05),
    "weights, some 0": Case((11, 9, 2, 20), 37, 2, reg=0.05, weights=True),
    "a shard of zeros": Case((1, 20, 20, 20), 25, 2, reg=0.05, weights=True),
    "small reg, annealed": Case((15, 16, 17, 18), 60, 2, reg=0.005),
    "loose": Case((25, 25, 25, 25), 80, 2, reg=0.01, tol=1e-6),
    "float32": Case((25, 26, 27, 28), 80, 2, reg=0.05, tol=1e-5, dtype=torch.float32),
}


def bad_inputs(rank: int) -> dict[str, dict[str, Any]]:
    """Arguments of which only rank 2's are bad, or different."""
    x, y, odd = torch.rand(5, 2, dtype=torch.float64), CASES["even"].problem()[1], rank == 2
    uniform = torch.full((5,), 1 / 20, dtype=torch.float64)
    return {
        "nan": {"X_a_local": torch.full_like(x, torch.nan) if odd else x, "X_b": y},
        "dimension": {"X_a_local": torch.rand(5, 3) if odd else x, "X_b": y},
        "both dimensions": {"X_a_local": x[:, :1] if odd else x, "X_b": y[:, :1] if odd else y},
        "other targets": {"X_a_local": x, "X_b": y + 1 if odd else y},
        "dtype": {"X_a_local": x.float() if odd else x, "X_b": y.float() if odd else y},
        "reg": {"X_a_local": x, "X_b": y, "reg": 0.2 if odd else 0.1},
        "bad reg": {"X_a_local": x, "X_b": y, "reg": -1.0 if odd else 0.1},
        "weights on one": {"X_a_local": x, "X_b": y, "a_local": uniform if odd else None},
        "negative weight": {"X_a_local": x, "X_b": y, "a_local": -uniform if odd else uniform},
        "mass": {"X_a_local": x, "X_b": y, "a_local": 2 * uniform if odd else uniform},
        "nothing": {"X_a_local": x[:0], "X_b": y},
        "object": {"X_a_local": object() if odd else x, "X_b": y},
    }


def solved(rank: int, device: str = "cpu") -> dict[str, Any]:
    found = {}
    for name, case in CASES.items():
        mine = (None if t is None else t.to(device) for t in case.mine(rank))
        found[name] = solve_sharded(*mine, reg=case.reg, tol=case.tol)
    return found


def refused(rank: int) -> dict[str, str]:
    said = {}
    for name, arguments in bad_inputs(rank).items():
        try:
            solve_sharded(**arguments, timeout=20)
            said[name] = "no error"
        except ValueError as error:
            said[name] = str(error)
    return said


def fixed(rank: int) -> tuple[Tensor, Tensor]:
    """A fixed-weight network of 50 layers on the ranks."""
    x, y, _, _ = CASES["uneven"].mine(rank)
    executor = Sharded(Dense(squared_distances(x, y), x.new_zeros(len(x)), y.new_zeros(len(y))))
    return list(run(executor, named("gradient").layers(0.1, 50)))[-1]  # type: ignore[arg-type]


def disagree(rank: int) -> str:
    """Ranks that hold different v."""
    x, y, _, _ = CASES["even"].mine(rank)
    executor = Sharded(Dense(squared_distances(x, y), x.new_zeros(len(x)), y.new_zeros(len(y))))
    try:
        executor.log_ratio(x[:, 0], y[:, 0] + (1e-15 if rank == 2 else 0.0), 0.1, rows=False)
    except RuntimeError as error:
        return str(error)
    return "no error"


def hit_midway(rank: int, how: signal.Signals, timeout: float) -> None:
    """A solve that would never end, in whose 21st head rank 2 sends itself a signal."""
    heads, log_ratio = 0, Sharded.log_ratio

    def counting(self: Sharded, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        nonlocal heads
        heads += 1
        if heads == 21 and rank == 2:
            os.kill(os.getpid(), how)
        return log_ratio(self, u, v, reg, rows)

    Sharded.log_ratio = counting  # type: ignore[method-assign]
    solve_sharded(*CASES["even"].mine(rank), reg=0.001, tol=0.0, max_depth=10**9, timeout=timeout)


def fork_and_hit(out: Path, how: signal.Signals, timeout: float) -> None:
    """Four processes without a launcher; OUT/RANK.end holds exit status and seconds, OUT/RANK.err what was said."""
    out.mkdir()
    started = time.monotonic()
    children = {}
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            os.dup2(os.open(out / f"{rank}.err", os.O_WRONLY | os.O_CREAT), 2)
            dist.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=RANKS)
            hit_midway(rank, how, timeout)
            sys.exit("the solve ended")
        children[rank] = child
    for rank, child in sorted(children.items(), key=lambda item: item[0] == 2):  # rank 2 last: it may be stopped, not dead
        if rank == 2 and how == signal.SIGSTOP:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        (out / f"{rank}.end").write_text(f"{status} {time.monotonic() - started}")


def everything(out: Path) -> None:
    program = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert program
    exec(program[1].replace("dist.destroy_process_group()", ""), {})  # its group stays, for what follows
    rank = dist.get_rank()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = {"solved": solved(rank), "refused": refused(rank), "fixed": fixed(rank), "disagree": disagree(rank)}
    torch.save(found, out / f"{rank}.pt")
    hit_midway(rank, signal.SIGKILL, timeout=20)


def on_gpu(out: Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.save({"solved": solved(rank, "cuda")}, out / f"{rank}.pt")
    dist.destroy_process_group()


def plain(out: Path) -> None:
    fork_and_hit(out / "dead", signal.SIGKILL, timeout=60)
    fork_and_hit(out / "silent", signal.SIGSTOP, timeout=2)


if __name__ == "__main__":
    {"all": everything, "cuda": on_gpu, "plain": plain}[sys.argv[1]](Path(sys.argv[2]))
