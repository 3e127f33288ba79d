r"""Many problems of different sizes in one call: buckets of similar size, padded, each problem finishing for itself.

A point that is not there gets a weight of 1e-30 of the mass. Its share of every marginal is far below rounding, so the
arithmetic needs no masks; its row or column is cut off at the end. Buckets go through transport/ragged/stacked.py in
pieces that stay
in the processor's cache, or on a GPU in large ones. Whatever that does not finish, large problems, and those that are not
plain arrays go through `solve`, one by one.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, repeat, starmap
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.fast_path import quietly
from otformer.transport.problem.result import Result
from otformer.transport.ragged.padding import Bucket, Item, Kind, compact, host, on, pack, read
from otformer.transport.ragged.stacked import FARTHEST, LARGE, LEAST, NETWORK, ROOM, Array, solve_stack, stages
from otformer.transport.solve import solve, solve_sample
from otformer.transport.solvers.blocks import LAYERS

CPU = torch.device("cpu")


class Goal(NamedTuple):
    reg: float
    tol: float
    max_depth: int


class BrokenProblems(ValueError):
    """Some problems of a batch were not valid.

    ``errors``: index → what was wrong; ``results``: those of the others, None where broken.
    """

    def __init__(self, errors: dict[int, str], results: list[Result | None]) -> None:
        first, message = next(iter(errors.items()))
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"problem {first}: {message}{more}; the others are in .results")
        self.errors, self.results = errors, results

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errors, self.results)


def solve_batch(
    problems: Sequence[Any],
    reg: float = 0.1,
    tol: float = 1e-6,
    max_depth: int = 10_000,
    device: str | torch.device | None = None,
) -> list[Result]:
    """`solve` for a list of problems of any sizes: a cost matrix M, (M, a, b), points (X_a, X_b) or (X_a, X_b, a, b).

    Every result has its own ``converged``, ``marginal_error`` and ``depth``. An invalid problem raises `BrokenProblems`,
    which names its index and holds the results of all others.

    device : where to compute, ``"cpu"`` or ``"cuda"``; default: where a problem is. Results are always what the problem
    was, numpy arrays or tensors on its device.

    >>> results = solve_batch([[[0.0, 1.0], [1.0, 0.0]], ([[0.0], [1.0], [2.0]], [[2.0], [0.0]])], reg=0.05)
    >>> [r.plan.shape for r in results], all(r.converged for r in results)
    ([(2, 2), (3, 2)], True)
    """
    goal = Goal(checks.positive("reg", reg), checks.not_negative("tol", tol), checks.count("max_depth", max_depth, least=2))
    place = None if device is None else checks.device(device)
    problems = list(problems)
    results: list[Result | None] = [None] * len(problems)
    errors: dict[int, str] = {}
    with quietly():
        for part, where in _parts(read(problems), place):
            for item, result in zip(part, _solve_part(part, goal, where), strict=True):
                results[item.place] = result
        for k, result in enumerate(results):
            if result is None:
                try:
                    results[k] = _alone(problems[k], goal, place)
                except (ValueError, TypeError, RuntimeError) as error:
                    errors[k] = str(error).partition("\n")[0]
    if errors:
        raise BrokenProblems(errors, results)
    done = [r for r in results if r is not None]
    left = [r.marginal_error for r in done if not r.converged]
    if left:
        warnings.warn(
            f"not converged: {len(left)} of {len(done)} problems, marginal error up to {max(left):.3g}, tol is {tol:g}",
            RuntimeWarning,
            stacklevel=2,
        )
    return done


def _parts(items: Sequence[Item], place: torch.device | None) -> Iterator[tuple[list[Item], torch.device]]:
    """Problems of similar size and one kind, and where to solve them. Few problems are better padded than left alone."""
    steps = {"cpu": 8 if len(items) >= 1000 else 16 if len(items) >= 100 else 64, "cuda": 32}
    buckets: dict[tuple[int, int, Kind], list[Item]] = defaultdict(list)
    for item in items:
        step = steps[_where(item.kind, place).type]
        buckets[-(-item.n // step) * step, -(-item.m // step) * step, item.kind].append(item)
    for (n, m, kind), members in buckets.items():
        where = _where(kind, place)
        members = [item for item in members if item.n * item.m <= LARGE[where.type]]
        room = max(1, ROOM[where.type] // (n * m))
        for start in range(0, len(members), room):
            yield members[start : start + room], where


def _where(kind: Kind, place: torch.device | None) -> torch.device:
    return place or kind.device or CPU


def _solve_part(items: list[Item], goal: Goal, where: torch.device) -> list[Result | None]:
    """Results; None where a problem is not valid."""
    bucket, spread = pack(items, where)
    good = spread < FARTHEST * goal.reg
    falls = np.where(good, stages(np.where(good, spread, 0), goal.reg), -1)
    if good.all() and (falls == falls[0]).all():
        return [*_solve_alike(items, bucket, goal, int(falls[0]))]
    out: list[Result | None] = [None] * len(items)
    for fall in set(falls[good].tolist()):
        chosen = np.flatnonzero(falls == fall)
        results = _solve_alike([items[k] for k in chosen], bucket.take(on(chosen, where)), goal, fall)
        for k, result in zip(chosen, results, strict=True):
            out[k] = result
    return out


def _solve_alike(items: list[Item], bucket: Bucket, goal: Goal, falls: int) -> list[Result]:
    C, a, b, low, inside = bucket
    kind, mass = items[0].kind, a.sum(1)[:, None]
    tol = goal.tol * mass[:, 0].clip(None, 1)  # little mass is no excuse
    weights = a.clip(LEAST * mass, None), (b * (mass / b.sum(1)[:, None])).clip(LEAST * mass, None)
    u, v, done, depth = solve_stack(C, *weights, goal.reg, tol, goal.max_depth, falls)
    P, error, value, linear = _plans(bucket, u, v, goal.reg, kind)
    u[a == 0], v[b == 0] = -math.inf, -math.inf
    n, m = [item.n for item in items], [item.m for item in items]
    flat = _cut(P, inside, [item.n * item.m for item in items], kind)
    plans = (plan.reshape(i, j) for plan, i, j in zip(flat, n, m, strict=True))
    us, vs = _cut(u + low[:, None], inside[:, :, 0], n, kind), _cut(v, inside[:, 0, :], m, kind)
    values, linears = (t.tolist() if kind.device is None else _like(kind, t).unbind() for t in (value, linear))
    errors, layers = error.tolist(), [int(d) for d in depth.tolist()]
    potentials, converged = zip(us, vs, strict=True), (error < tol).tolist()
    facts = zip(plans, potentials, values, linears, errors, converged, layers, repeat(NETWORK), strict=False)
    out = list(starmap(Result, facts))
    for k in [k for k, finished in enumerate(done.tolist()) if not finished]:
        if layers[k] + LAYERS <= goal.max_depth or not math.isfinite(errors[k]):
            parts = tuple(part.cpu() if isinstance(part, Tensor) else part for part in items[k].parts)
            out[k] = _home(_alone(parts, goal, None), kind.device)  # small, so on the CPU
    return out


def _plans(bucket: Bucket, u: Array, v: Array, reg: float, kind: Kind) -> tuple[Array, Array, Array, Array]:
    """Plans [B, n, m], and what is true of them: the error once rounded to the input's dtype, value, value_linear: [B]."""
    C, a, b, low, _ = bucket
    xp: Any = torch if isinstance(C, Tensor) else np
    P = xp.where(a > 0, u / reg - 1, -math.inf)[:, :, None] + xp.where(b > 0, v / reg, -math.inf)[:, None, :]
    P -= C / reg
    xp.exp(P, out=P)
    rows, columns = P.sum(2), P.sum(1)
    total = rows.sum(1)
    linear = (P * C).sum((1, 2)) + low * total
    value = (u * rows).sum(1) + (v * columns).sum(1) + (low - reg) * total  # log P is linear in u, v and C
    if kind.single:
        rounded = P.float().double() if isinstance(P, Tensor) else P.astype(np.float32).astype(np.float64)
        rows, columns = rounded.sum(2), rounded.sum(1)
    return P, xp.abs(rows - a).sum(1) + xp.abs(columns - b).sum(1), value, linear


def _like(kind: Kind, t: Array) -> Any:
    """In the dtype, and the form, of the input."""
    if kind.device is None:
        return host(t).astype(np.float32 if kind.single else np.float64, copy=False)
    return torch.as_tensor(t, dtype=torch.float32 if kind.single else torch.float64, device=kind.device)


def _cut(array: Array, there: Array, lengths: list[int], kind: Kind) -> Sequence[Any]:
    """What is there of an array [B, …], as one vector for each problem, in the form of the input."""
    flat = _like(kind, compact(array, there))
    if isinstance(flat, Tensor):
        return flat.split(lengths)
    return [flat[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]


def _alone(given: Any, goal: Goal, place: torch.device | None) -> Result:
    """A problem as it was given, large or out of the ordinary or wrong."""
    parts: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    if isinstance(given, tuple) and len(given) not in (2, 3, 4):
        raise ValueError(f"a problem is M, (M, a, b), (X_a, X_b) or (X_a, X_b, a, b), got a tuple of {len(given)}")
    run: Callable[..., Result] = solve if len(parts) in (1, 3) else solve_sample
    learning = any(isinstance(t, Tensor) and t.requires_grad for t in parts)
    if place is None or place.type == "cpu" or learning:
        return run(*parts, **goal._asdict())
    moved = [torch.as_tensor(t).to(place) if isinstance(t, (Tensor, np.ndarray)) else t for t in parts]
    return _home(run(*moved, **goal._asdict()), parts[0].device if isinstance(parts[0], Tensor) else None)


def _home(result: Result, device: torch.device | None) -> Result:
    """A result's numbers as numpy's, or as tensors on the given device."""
    dtype = result.plan.dtype if isinstance(result.plan, Tensor) else torch.from_numpy(result.plan).dtype

    def move(t: Any) -> Any:
        if device is not None:
            return torch.as_tensor(t, dtype=dtype, device=device)
        return t if not isinstance(t, Tensor) else t.cpu().numpy() if t.ndim else float(t)

    u, v = result.potentials
    return replace(
        result,
        plan=move(result.plan),
        potentials=(move(u), move(v)),
        value=move(result.value),
        value_linear=move(result.value_linear),
    )
