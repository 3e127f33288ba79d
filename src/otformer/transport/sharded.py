"""`solve_sample` with the rows spread over the ranks of a process group (costs/ranks.py)."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from otformer import checks, weight_checks
from otformer.callers import own_keywords
from otformer.memory import lacking, needs
from otformer.transport.costs.ranks import TIMEOUT, Ranks, RanksCost
from otformer.transport.needs import VARIANT, of_points
from otformer.transport.problem.read import check_digits
from otformer.transport.problem.weights import scaled_to
from otformer.transport.result.finish import finish
from otformer.transport.result.result import Result
from otformer.transport.solvers.mixed import Mixed
from otformer.transport.types import Form, Goal, Problem, Support

T = TypeVar("T")


@own_keywords
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
    """`solve_sample` with X_a spread over the ranks of a process group: every rank calls this with its own rows.

    Parameters
    ----------
    X_a_local, a_local : array (n_r, d) and (n_r,)
        This rank's points and weights, n_r ≥ 0. By default weights are uniform over the points of all ranks, with mass 1.
    X_b, b, reg, tol, max_depth
        As in `solve_sample`, the same on every rank.
    group : process group, optional
        By default the group of all ranks.
    timeout : float
        Seconds that one rank waits for another.

    Returns
    -------
    Result
        The same on every rank, except ``potentials[0]`` and ``plan``, which belong to this rank's rows. The plan is formed
        on first access. The result is not differentiable, and input that requires a gradient is refused.

    Raises
    ------
    ValueError
        On every rank, if the input of one rank is invalid.
    RuntimeError
        On the other ranks, if a rank dies or does not answer for ``timeout`` seconds.

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
        check = partial(_checked, ranks, lost, X_a_local, X_b, a_local, b, reg, tol, max_depth)
        given = agreed(ranks, check, _Input.shared)
        place = X_a_local.device if isinstance(X_a_local, Tensor) else None
        problem = _problem(ranks, given, Form(place, given.x.dtype == torch.float32))
        goal = Goal.read(given.tol, given.max_depth, problem.mass)
        solved = Mixed().run(problem, goal)
        return finish(problem, solved, goal, warn=ranks.rank == 0)


def _problem(ranks: Ranks, given: _Input, form: Form) -> Problem:
    """The problem of all ranks, as this one sees it."""
    a, b, target, mass = _weights(ranks, given)
    rows, columns = (w.nonzero()[:, 0] for w in (a, b))  # a point without mass is absent
    cost = RanksCost(given.x[rows].double(), given.y[columns].double(), ranks)
    check_digits(given.reg, cost.spread)
    support = Support(rows, columns, (len(a), len(b)))
    return Problem(cost, a[rows], b[columns], target[columns], given.reg, mass, form, support)


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


def agreed(ranks: Ranks, check: Callable[[], T], shared: Callable[[T], str]) -> T:
    """What ``check`` gives on this rank; the same ValueError on all ranks where it fails on one, or ``shared`` differs."""
    checked, cause = None, None
    try:
        checked = check()
        said = shared(checked)
    except Exception as error:  # whatever it is, the others are waiting to hear it
        cause, said = error, f"{'~' if lacking(error) else '!'}{error}"
    texts = ranks.texts(said)
    for rank, text in enumerate(texts):
        if text[:1] in ("!", "~"):
            raise (ValueError if text[0] == "!" else MemoryError)(f"rank {rank}: {text[1:]}") from cause
    for rank, text in enumerate(texts):
        if text != texts[0]:
            raise checks.ArgumentError("ranks", f"agree, but rank 0 has {texts[0]} and rank {rank} has {text}")
    return checked  # type: ignore[return-value]


def _checked(ranks: Ranks, lost: bool, X_a: Any, X_b: Any, a: Any, b: Any, reg: Any, tol: Any, max_depth: Any) -> _Input:
    if lost:
        raise checks.ArgumentError("X_a_local, X_b, a_local, b and reg", "not require a gradient: a sharded result has none")
    x, y = checks.points("X_a_local", X_a), checks.points("X_b", X_b)
    if x.shape[1] != y.shape[1]:
        raise checks.ArgumentError("X_a_local and X_b", "have the same dimension", f"{tuple(x.shape)} and {tuple(y.shape)}")
    if len(y) == 0:
        raise checks.ArgumentError("X_b", "have points", f"shape {tuple(y.shape)}")
    if x.dtype != y.dtype or x.device != y.device:
        raise checks.ArgumentError("X_a_local and X_b", "agree", f"{x.dtype} on {x.device} and {y.dtype} on {y.device}")
    if ranks.nccl and not x.is_cuda:
        raise checks.ArgumentError("X_a_local", "be on a CUDA device in an nccl group", x.device)
    return _Input(
        x,
        y,
        None if a is None else weight_checks.weights("a_local", a, (len(x),), x, axis=None),
        None if b is None else weight_checks.weights("b", b, (len(y),), y),
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


def _weights(ranks: Ranks, given: _Input) -> tuple[Tensor, Tensor, Tensor, float]:
    """This rank's a, the whole b of equal mass over all ranks, b as given, and that mass; float64."""
    x, y = given.x, given.y
    n = int(ranks.reduce(torch.tensor(len(x), device=x.device)))
    if n == 0:
        raise checks.ArgumentError("X_a_local", "have points on at least one rank", "none on any")
    a = torch.full_like(x[:, 0], 1 / n, dtype=torch.float64) if given.a is None else given.a.double()
    b = torch.full_like(y[:, 0], 1 / len(y), dtype=torch.float64) if given.b is None else given.b.double()
    mass = ranks.reduce(a.sum())
    weight_checks.positive_sums("a_local", mass)
    weight_checks.same_mass(mass[None], b)
    scaled = scaled_to(mass[None], b)
    return a, scaled, scaled if given.b is None else b, float(mass)
