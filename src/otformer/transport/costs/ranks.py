r"""A cost whose rows are spread over the ranks of a process group (torch.distributed), its columns on every rank.

Rank r holds the rows i ∈ I_r and their u_i; v is whole, and the same, everywhere. A rows head needs nobody else. A columns
head needs the sum over all rows, of which a rank knows its part, E_r = log(Σ_{i ∈ I_r} P_ij / b_j), [m]:

    log(Σ_i P_ij / b_j) = h_j + log Σ_r exp(E_r,j − h_j),     h_j = max_r E_r,j,

a maximum and a sum over ranks, two all-reduces of length m in every second layer. All-reduced numbers are the same bits on
every rank, so every rank mixes, anneals and stops alike; should they ever differ, each columns head finds out and says so.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from otformer import checks
from otformer.memory import lacking
from otformer.transport.costs.cost import Cost
from otformer.transport.costs.distances import squared_distances
from otformer.transport.costs.kernel import Kernel
from otformer.transport.costs.matrix import MatrixCost, plan_of
from otformer.transport.types import Answer, Problem, Solved

TIMEOUT = 300.0  # seconds one rank waits for another
LONGEST_WAIT = 1e6  # seconds, beyond which a longer timeout makes no difference
TEXT = 512  # bytes of a message between ranks


class Ranks:
    """A process group whose collectives end within ``timeout`` seconds: with a result, or with a RuntimeError."""

    def __init__(self, group: dist.ProcessGroup | None = None, timeout: float = TIMEOUT) -> None:
        self.timeout = timedelta(seconds=min(checks.positive("timeout", timeout), LONGEST_WAIT))
        if not dist.is_available() or not dist.is_initialized():
            raise checks.ArgumentError("group", "be a process group", "none", "call init_process_group first")
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise checks.ArgumentError("group", "contain this process", "a group of other ranks")
        self.group: Any = dist.group.WORLD if group is None else group
        self.nccl = dist.get_backend(group) == "nccl"

    def reduce(self, t: Tensor, op: Any = dist.ReduceOp.SUM) -> Tensor:
        """All-reduce in place."""
        options = dist.AllreduceOptions()
        options.reduceOp, options.timeout = op, self.timeout
        try:
            # `dist.all_reduce` takes no timeout. gloo heeds that of the options; waiting with one as well, we could give up
            # while its thread is at work, and that aborts the process at exit. nccl heeds the one it is waited for with.
            work = self.group.allreduce([t], options)
            work.wait(self.timeout) if self.nccl else work.wait()
        except RuntimeError as error:
            if lacking(error):
                raise
            why = str(error).split("This is typically")[0].strip()
            raise RuntimeError(f"a rank stopped answering; heard by rank {self.rank} of {self.size}: {why}") from error
        return t

    def log_sum(self, part: Tensor, same: Tensor) -> Tensor:
        """log Σ exp of the parts [m] of all ranks; ``same``, the sum of v and λ, has to be the same on every rank."""
        ends = torch.cat([part, same, -same])  # max x = −max(−x): all the same
        high, most, least = self.reduce(ends, dist.ReduceOp.MAX).split([len(part), len(same), len(same)])
        if not torch.equal(most, -least):
            raise RuntimeError(f"ranks disagree: sum of v and reg run from {(-least).tolist()} to {most.tolist()}")
        high = high.clamp_min(torch.finfo(part.dtype).min)
        return high + self.reduce((part - high).exp()).log()

    def texts(self, text: str) -> list[str]:
        """Gather the objects of all ranks, in the order of ranks."""
        table = torch.zeros(self.size, TEXT, dtype=torch.uint8, device="cpu")
        said = text.encode()[:TEXT]
        table[self.rank, : len(said)] = torch.tensor(list(said), dtype=torch.uint8, device="cpu")
        table = self.reduce(table.cuda() if self.nccl else table).cpu()
        return [bytes(row.tolist()).rstrip(b"\0").decode(errors="replace") for row in table]


class Sharded(Kernel):
    """The problem whose rows on this rank are those of ``local``, for any kernel with cost [n_r, m], log_a [n_r], log_b
    [m].

    Every rank of the group makes one, with the same log_b, and makes the same calls; n_r may be 0. Potentials: u is this
    rank's [n_r], v is whole [m]. All solvers take it.
    """

    def __init__(self, local: Kernel, ranks: Ranks | None = None) -> None:
        self.local, self.ranks = local, ranks or Ranks()
        self.log_a, self.log_b, self.spread = local.log_a, local.log_b, local.spread

    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """log(S/a) of this rank's rows [n_r], or log(S/b) of the columns [m], S summed over the rows of all ranks."""
        if rows:
            return self.local.log_ratio(u, v, reg, rows=True) if len(u) else u
        part = self.local.log_ratio(u, v, reg, rows=False) if len(u) else torch.full_like(v, -torch.inf)
        return self.ranks.log_sum(part, torch.stack([v.sum(), v.new_tensor(reg)]))


class RanksCost(MatrixCost):
    """‖x_i − y_j‖² of this rank's points x [n_r, d] and all y [m, d], float64; ``low`` and ``spread`` are of all ranks.

    Sums over columns are those of this rank's rows, sums over rows (not ``rows``) those of all ranks: every rank has to ask
    for them. `least` and `costs` are of this rank's rows alone.
    """

    def __init__(self, x: Tensor, y: Tensor, ranks: Ranks) -> None:
        C = squared_distances(x, y)
        ends = [float(C.max()), -float(C.min())] if C.numel() else [-torch.inf, -torch.inf]
        high, low = ranks.reduce(torch.tensor(ends, dtype=torch.float64, device=x.device), dist.ReduceOp.MAX).tolist()
        super().__init__(C + low, -low, high + low)  # only differences of costs matter
        self.x, self.y, self.ranks, self.device = x, y, ranks, x.device

    def log_sums(self, h: Tensor, reg: float, rows: bool) -> Tensor:
        part = super().log_sums(h, reg, rows)
        return part if rows else self.ranks.log_sum(part, h.new_tensor([reg]))

    def products(self, u: Tensor, v: Tensor, reg: float, values: Tensor, rows: bool) -> Tensor:
        part = super().products(u, v, reg, values, rows)
        return part if rows else self.ranks.reduce(part)

    def cost_sums(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        part = super().cost_sums(u, v, reg, rows)
        return part if rows else self.ranks.reduce(part)

    def take(self, rows: Any, columns: Any) -> RanksCost:
        return RanksCost(self.x[rows], self.y[columns], self.ranks)

    def kernel(
        self, log_a: Tensor, log_b: Tensor, reg: float, mass: float | None = None, damped: float | None = None
    ) -> Kernel:
        return Sharded(super().kernel(log_a, log_b, reg, mass, damped), self.ranks)

    def answer(self, problem: Problem, solved: Solved) -> Answer:
        """The same numbers on every rank, but for u and the plan, which are those of its rows."""
        u, v, reg, form = solved.u, solved.v, problem.entropy, problem.form
        P = plan_of(self.dense, u, v, reg)
        r, c = P.sum(1), self.ranks.reduce(P.sum(0))
        # λ log P = u + v − C − λ, so Σ P C + λ Σ P log P = Σ_i r_i u_i + Σ_j c_j v_j − λ Σ_i r_i.
        mine = torch.stack([(r - problem.a).abs().sum(), (r * (u - reg)).sum(), (P * self.dense).sum(), r.sum()])
        error, value, linear, mass = self.ranks.reduce(mine).tolist()
        error, value = error + float((c - problem.target).abs().sum()), value + float((c * v).sum()) + self.low * mass
        potentials = form.give(problem.whole(u + self.low, 0), double=True), form.give(problem.whole(v, 1), double=True)
        light = replace(problem, cost=Cost())  # the plan is formed when it is read, and C again with it
        parts = {
            "plan": partial(_plan, self.x, self.y, u + self.low, v, light),
            "value_linear": form.number(linear + self.low * mass),
        }
        return Answer(potentials, form.number(value), mass, error, parts)


def _plan(x: Tensor, y: Tensor, u: Tensor, v: Tensor, problem: Problem) -> Any:
    """This rank's rows of the plan, [n_r, m]."""
    return problem.form.give(problem.whole_plan(plan_of(squared_distances(x, y), u, v, problem.entropy)))
