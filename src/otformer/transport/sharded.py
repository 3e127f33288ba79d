r"""The sharded executor: rows over the ranks of a process group (torch.distributed), columns on every rank.

Rank r holds the rows i ∈ I_r and their u_i; v is whole, and the same, everywhere. A rows head needs nobody else. A columns
head needs the sum over all rows, of which a rank knows its part, E_r = log(Σ_{i ∈ I_r} P_ij / b_j), [m]:

    log(Σ_i P_ij / b_j) = h_j + log Σ_r exp(E_r,j − h_j),     h_j = max_r E_r,j,

a maximum and a sum over ranks, two all-reduces of length m in every second layer. All-reduced numbers are the same bits on
every rank, so every rank mixes, anneals and stops alike; should they ever differ, each columns head finds out and says so.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from otformer import checks
from otformer.memory import lacking, needs
from otformer.transport.executors.absorbed import Absorbed
from otformer.transport.executors.dense import Dense
from otformer.transport.needs import VARIANT, of_points
from otformer.transport.problem.finish import tell
from otformer.transport.problem.problem import Form, Goal, squared_distances
from otformer.transport.problem.read_stream import MOST_RATIO
from otformer.transport.problem.result import Result
from otformer.transport.solvers.annealing import direct_then_annealed, least_error
from otformer.transport.solvers.blocks import Executor

TIMEOUT = 300.0  # seconds one rank waits for another
LONGEST_WAIT = 1e6  # seconds, beyond which a longer timeout makes no difference
TEXT = 512  # bytes of a message between ranks


class Ranks:
    """A process group whose collectives end within ``timeout`` seconds: with a result, or with a RuntimeError."""

    def __init__(self, group: dist.ProcessGroup | None = None, timeout: float = TIMEOUT) -> None:
        self.timeout = timedelta(seconds=min(checks.positive("timeout", timeout), LONGEST_WAIT))
        if not dist.is_available() or not dist.is_initialized():
            raise ValueError("group must be a process group, got none: call torch.distributed.init_process_group first")
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("group must contain this process, got a group of other ranks")
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

    def texts(self, text: str) -> list[str]:
        """What every rank has to say, in the order of ranks."""
        table = torch.zeros(self.size, TEXT, dtype=torch.uint8, device="cpu")
        said = text.encode()[:TEXT]
        table[self.rank, : len(said)] = torch.tensor(list(said), dtype=torch.uint8, device="cpu")
        table = self.reduce(table.cuda() if self.nccl else table).cpu()
        return [bytes(row.tolist()).rstrip(b"\0").decode(errors="replace") for row in table]


class Sharded:
    """The problem whose rows on this rank are those of ``local``, any executor with cost [n_r, m], log_a [n_r], log_b [m].

    Every rank of the group makes one, with the same log_b, and makes the same calls; n_r may be 0. Potentials: u is this
    rank's [n_r], v is whole [m]. It is an `Executor`: `blocks` and `run` take it.
    """

    def __init__(self, local: Executor | Dense, ranks: Ranks | None = None) -> None:
        self.local, self.ranks = local, ranks or Ranks()
        self.log_a, self.log_b = local.log_a, local.log_b

    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """log(S/a) of this rank's rows [n_r], or log(S/b) of the columns [m], S summed over the rows of all ranks."""
        if rows:
            return self.local.log_ratio(u, v, reg, rows=True) if len(u) else u
        part = self.local.log_ratio(u, v, reg, rows=False) if len(u) else torch.full_like(v, -torch.inf)
        mark = torch.stack([v.sum(), v.new_tensor(reg)])  # max x = −max(−x): all the same
        high, most, least = self.ranks.reduce(torch.cat([part, mark, -mark]), dist.ReduceOp.MAX).split([len(v), 2, 2])
        if not torch.equal(most, -least):
            raise RuntimeError(f"ranks disagree: sum of v and reg run from {(-least).tolist()} to {most.tolist()}")
        high = high.clamp_min(torch.finfo(v.dtype).min)
        return high + self.ranks.reduce((part - high).exp()).log()


@needs(lambda X_a_local, X_b, **_: of_points(X_a_local, X_b, VARIANT, "use more ranks"))
def solve_sharded(
    X_a_local: Any,
    X_b: Any,
    a_local: Any = None,
    b: Any = None,
    reg: float = 0.1,
    tol: float = 1e-6,
    max_depth: int = 10_000,
    group: dist.ProcessGroup | None = None,
    timeout: float = TIMEOUT,
) -> Result:
    """`solve_sample` with X_a spread over the ranks of a process group: every rank of it calls this with its own rows.

    Parameters
    ----------
    X_a_local, a_local : array (n_r, d) and (n_r,)
        This rank's points and weights, n_r ≥ 0. By default weights are uniform over the points of all ranks, with mass 1.
    X_b, b, reg, tol, max_depth
        As in `solve_sample`, the same on every rank.
    group : process group, optional
        By default that of all ranks.
    timeout : float
        Seconds that one rank waits for another.

    Returns
    -------
    Result
        The same on every rank, but for ``potentials[0]`` and ``plan``, which are those of this rank's rows; the plan is
        formed when it is read. Nothing of it is differentiable, and input that requires a gradient is refused.

    Raises
    ------
    ValueError
        On every rank, where the input of one is bad.
    RuntimeError
        On the others, where a rank dies, or is silent for ``timeout`` seconds.

    Examples
    --------
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> r = solve_sharded([[0.0], [1.0]], [[0.1], [0.9]], reg=0.01)
    >>> round(r.value, 4), r.converged
    (0.0031, True)
    >>> dist.destroy_process_group()
    """
    ranks, lost = Ranks(group, timeout), checks.derivative_wanted(X_a_local, X_b, a_local, b, reg)
    with torch.no_grad():
        given = _agreed(ranks, lost, X_a_local, X_b, a_local, b, reg, tol, max_depth)
        place = X_a_local.device if isinstance(X_a_local, Tensor) else None
        return _solved(ranks, given, Form(place, given.x.dtype == torch.float32))


def _solved(ranks: Ranks, given: _Input, form: Form) -> Result:
    x, y, reg, tol = given.x, given.y, given.reg, given.tol
    a, b, mass = _weights(ranks, given)
    tol = tol * min(1.0, mass)  # little mass is no excuse
    rows, columns = a > 0, b > 0  # a point without mass is absent
    C = squared_distances(x[rows], y[columns])

    # As in `solve`, the smallest of all costs is taken out while layers run.
    ends = [float(C.max()), -float(C.min())] if C.numel() else [-math.inf, -math.inf]
    high, minus_low = ranks.reduce(torch.tensor(ends, dtype=torch.float64, device=x.device), dist.ReduceOp.MAX).tolist()
    spread = high + minus_low
    if not spread <= MOST_RATIO * reg:  # the potentials would have no digits left for the plan
        raise ValueError(f"reg is too small for float64: costs are {spread / reg:.2g} times reg apart, at most 2⁵⁰ times")
    u, v = torch.full_like(a, -torch.inf), torch.full_like(b, -torch.inf)
    local = Absorbed(C + minus_low, a[rows].log(), b[columns].log())
    states = direct_then_annealed(Sharded(local, ranks), None, spread, reg, tol, given.max_depth)
    u[rows], v[columns], _, depth = least_error(states)
    del local  # two n × m arrays
    u -= minus_low

    C = C if C.dtype == torch.float64 else squared_distances(x[rows].double(), y[columns].double())
    exact = Sharded(Dense(C, a[rows].double().log(), b[columns].double().log()), ranks)
    target = exact.log_b.exp() if given.b is None else given.b[columns].double()
    value, linear, error, moved = _measured(exact, C, target, u[rows].double(), v[columns].double(), reg)
    if not (math.isfinite(error) and math.isfinite(value)):  # on all ranks, or on none
        kind = str(x.dtype).removeprefix("torch.")
        raise ValueError(f"reg = {reg:g} is out of reach of {kind} for costs {spread:g} apart: the plan is infinite")
    plan = partial(_plan, x, y, u, v, reg, form)
    parts = {"plan": plan, "value_linear": form.number(linear)}
    method = f"Sinkhorn blocks, Anderson-mixed, on {ranks.size} ranks"
    if ranks.rank == 0 and not error < tol:
        tell(error, depth, Goal(tol, given.max_depth), reg)
    potentials = form.give(u, double=True), form.give(v, double=True)
    return Result(potentials, form.number(value), error, error < tol, depth, method, moved, error, parts)


def _plan(x: Tensor, y: Tensor, u: Tensor, v: Tensor, reg: float, form: Form) -> Any:
    """This rank's rows of the plan, [n_r, m]."""
    C = squared_distances(x.double(), y.double())
    return form.give(((u.double()[:, None] + v.double() - C) / reg - 1).exp())


@dataclass(frozen=True)
class _Input:
    """Checked input of one rank."""

    x: Tensor  # [n_r, d]
    y: Tensor  # [m, d]
    a: Tensor | None
    b: Tensor | None
    reg: float
    tol: float
    max_depth: int

    def shared(self) -> str:
        """All that must be the same on every rank, in words."""
        a = "None" if self.a is None else "given"
        numbers = f"reg {self.reg!r}, tol {self.tol!r}, max_depth {self.max_depth}"
        return f"X_b {_print(self.y)}, b {_print(self.b)}, a_local {a}, {numbers}"


def _agreed(ranks: Ranks, *given: Any) -> _Input:
    """This rank's checked input, if that of every rank is good and fits; otherwise the same ValueError on all of them."""
    checked, cause = None, None
    try:
        checked = _checked(ranks, *given)
        said = checked.shared()
    except Exception as error:  # whatever it is, the others are waiting to hear it
        cause, said = error, f"{'~' if lacking(error) else '!'}{error}"
    texts = ranks.texts(said)
    for rank, text in enumerate(texts):
        if text[0] in "!~":
            raise (ValueError if text[0] == "!" else MemoryError)(f"rank {rank}: {text[1:]}") from cause
    for rank, text in enumerate(texts):
        if text != texts[0]:
            raise ValueError(f"ranks must agree, but rank 0 has {texts[0]} and rank {rank} has {text}")
    assert checked is not None
    return checked


def _checked(ranks: Ranks, lost: bool, X_a: Any, X_b: Any, a: Any, b: Any, reg: Any, tol: Any, max_depth: Any) -> _Input:
    if lost:
        raise ValueError("X_a_local, X_b, a_local, b and reg must not require a gradient: a sharded result has none")
    x, y = checks.points("X_a_local", X_a), checks.points("X_b", X_b)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"X_a_local and X_b must have the same dimension, got {tuple(x.shape)} and {tuple(y.shape)}")
    if len(y) == 0:
        raise ValueError(f"X_b must have points, got shape {tuple(y.shape)}")
    if x.dtype != y.dtype or x.device != y.device:
        raise ValueError(f"X_a_local and X_b must agree, got {x.dtype} on {x.device} and {y.dtype} on {y.device}")
    if ranks.nccl and not x.is_cuda:
        raise ValueError(f"X_a_local must be on a CUDA device in an nccl group, got {x.device}")
    return _Input(
        x,
        y,
        None if a is None else checks.weights("a_local", a, (len(x),), x),
        None if b is None else checks.weights("b", b, (len(y),), y),
        checks.positive("reg", reg),
        checks.not_negative("tol", tol),
        checks.count("max_depth", max_depth, least=2),
    )


def _print(t: Tensor | None) -> str:
    """What must be the same on all ranks about an array: shape, dtype, kind of device, checksum."""
    if t is None:
        return "None"
    kind = f"{str(t.dtype).removeprefix('torch.')} {t.device.type}"
    return f"{tuple(t.shape)} {kind} [{zlib.crc32(t.detach().cpu().contiguous().numpy().tobytes()):08x}]"


def _weights(ranks: Ranks, given: _Input) -> tuple[Tensor, Tensor, float]:
    """This rank's a and the whole b, of equal mass over all ranks; that mass."""
    x, y = given.x, given.y
    n = int(ranks.reduce(torch.tensor(len(x), device=x.device)))
    if n == 0:
        raise ValueError("X_a_local must have points on at least one rank, got none on any")
    a = x.new_full((len(x),), 1 / n) if given.a is None else given.a
    b = y.new_full((len(y),), 1 / len(y)) if given.b is None else given.b
    mass, mass_b = ranks.reduce(a.double().sum()), b.double().sum()
    for name, total in (("a_local", mass), ("b", mass_b)):
        if float(total) <= 0:
            raise ValueError(f"{name} must have a positive sum, got all zeros")
    checks.same_mass(mass[None], b)
    return a, (b.double() * (mass / mass_b)).to(b), float(mass)


def _measured(
    problem: Sharded, C: Tensor, target: Tensor, u: Tensor, v: Tensor, reg: float
) -> tuple[float, float, float, float]:
    r"""Value of the plan, Σ P C, its marginal error against a and ``target``, and its mass.

    λ log P = u + v − C − λ, so with the row sums r and the column sums c

    Σ P C + λ Σ P log P = Σ P (u + v − λ) = Σ_i r_i u_i + Σ_j c_j v_j − λ Σ_i r_i.
    """
    P = ((u[:, None] + v - C) / reg - 1).exp()  # as `_plan` gives it out: where costs are great, other ways round otherwise
    r, c = P.sum(1), problem.ranks.reduce(P.sum(0))
    mine = torch.stack([(r - problem.log_a.exp()).abs().sum(), (r * (u - reg)).sum(), (P * C).sum(), r.sum()])
    error, value, linear_, mass = problem.ranks.reduce(mine).tolist()
    return value + float((c * v).sum()), linear_, error + float((c - target).abs().sum()), mass
