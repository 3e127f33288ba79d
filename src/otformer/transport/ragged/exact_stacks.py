r"""Exact transport of many problems. Those of n points against n with equal weights are stacked, size by size:

    a list, or stacked arrays  ─▶  stacks [B, n, n]  ─▶  assignments, with proofs         exact/small_assignments.py
                               ─▶  all others, and what is not proved, one by one         result/exact_finish.py

A stack is solved in pieces that fit a cache, by as many threads as there are cores; on a CUDA device in large ones. Every
problem has its own certificate, as in rounds.py, and no result is made of a number that is not proved.
"""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import checks, weight_checks
from otformer.transport.costs.distances import squared_distances
from otformer.transport.exact.small_assignments import ALL_LOOKS, ON_MATRIX, Assigned, assign_stack
from otformer.transport.exact.whole_numbers import proved
from otformer.transport.ragged.batch import completed, read_alone, unstacked
from otformer.transport.ragged.padding import RaggedProblem, read
from otformer.transport.result.exact_finish import solve_exact
from otformer.transport.result.exact_result import ExactResult, sparse
from otformer.transport.result.finish import results
from otformer.transport.result.result import Result
from otformer.transport.solvers.stacked import STACK_ENTRIES
from otformer.transport.types import Array, Form, to_double, to_numpy

LARGEST = 512  # points of a problem in a stack: above, sparse graphs pay
PIECE = 2**18  # numbers that a thread takes at once: a few hundred problems of ten points, one of 512


class Stack(NamedTuple):
    """Problems of n points against n, side by side; all weights of a problem are equal."""

    places: Sequence[int]  # in the list
    matrices: tuple[Array, ...]  # C [B, n, n], or points [B, n, d] and [B, n, d]: numpy arrays, or tensors
    weights: tuple[np.ndarray, np.ndarray]  # of each point of a, and of b as given, [B]
    form: Form

    @property
    def n(self) -> int:
        return int(self.matrices[0].shape[1])

    def costs(self, part: slice) -> Array:
        """[b, n, n], for a subset of the problems."""
        given = [t[part] for t in self.matrices]
        return given[0] if len(given) == 1 else squared_distances(*(to_double(t) for t in given))

    def pieces(self, numbers: int) -> list[slice]:
        """All problems, as many at a time as have so many numbers, or one."""
        wide = self.matrices[1].shape[2] if len(self.matrices) == 2 else 1  # differences of coordinates
        step = max(1, numbers // (self.n * self.n * wide))
        return [slice(start, start + step) for start in range(0, len(self.places), step)]


def solve_exactly(problems: Any, tol: float, place: torch.device | None) -> list[Result]:
    """`solve_batch` for λ = 0, computed on ``place``, or where problems are."""
    whole = stacked(problems)
    problems = problems if whole is not None else unstacked(problems)
    results: list[Result | None] = [None] * len(problems if whole is None else whole.places)
    for stack in _from_list(problems) if whole is None else [whole]:
        where = place or stack.form.device or torch.device("cpu")
        run = _on_device if where.type == "cuda" else _in_threads
        found = run(stack, where)
        with _many_objects():
            for k, result in zip(stack.places, _results(stack, found, tol), strict=True):
                results[k] = result
    return completed(results, problems, lambda given: solve_exact(read_alone(given, None, place), tol))


def stacked(problems: Any) -> Stack | None:
    """Arrays that are stacked already, costs (B, n, n) or a tuple of points (B, n, d) and (B, n, d); None for anything else.

    >>> stacked(np.zeros((5, 3, 3))).places, stacked(np.zeros((5, 3, 4))) is None
    (range(0, 5), True)
    """
    matrices = problems if isinstance(problems, tuple) else (problems,)
    if len(matrices) > 2 or not all(isinstance(t, Tensor | np.ndarray) and t.ndim == 3 for t in matrices):
        return None
    if len({len(t) for t in matrices}) > 1 or not len(matrices[0]):
        return None
    first = read([tuple(t[0] for t in matrices) if len(matrices) == 2 else matrices[0][0]])  # all others are as it is
    if not first or not first[0].n == first[0].m <= LARGEST:
        return None
    count = len(matrices[0])
    each = np.full(count, 1 / first[0].n)
    return Stack(range(count), matrices, (each, each), first[0].kind.form)


def _from_list(problems: Sequence[Any]) -> Iterator[Stack]:
    buckets: dict[Any, list[RaggedProblem]] = defaultdict(list)
    for item in read(problems):
        if item.n == item.m <= LARGEST:
            buckets[item.n, item.kind].append(item)
    for (n, kind), items in buckets.items():
        weights = _equal_weights(items, n)
        chosen = np.flatnonzero(weights[0] > 0)
        if len(chosen):
            items = [items[k] for k in chosen]
            matrices = [[item.parts[side] for item in items] for side in range(1 if not kind.dimension else 2)]
            together: Any = np.stack if kind.form.device is None else torch.stack
            own = weights[0][chosen], weights[1][chosen]
            yield Stack([item.place for item in items], tuple(map(together, matrices)), own, kind.form)


def _equal_weights(items: list[RaggedProblem], n: int) -> tuple[np.ndarray, np.ndarray]:
    """What each point of a and of b weighs, [B] each; 0 where they are not all equal, or not valid."""
    kind = items[0].kind
    sides = []
    for given, at in ((kind.has_a, -2), (kind.has_b, -1)):
        w = np.stack([to_numpy(item.parts[at]) for item in items]).astype(np.float64) if given else None
        sides.append(None if w is None else np.where((w == w[:, :1]).all(1) & (w[:, 0] < np.inf), w[:, 0], 0.0))
    a, b = sides
    a = a if a is not None else b if b is not None else np.full(len(items), 1 / n)
    b = b if b is not None else a
    good = (a > 0) & (b > 0) & weight_checks.masses_agree(a, b)
    return np.where(good, a, 0.0), np.where(good, b, 0.0)


def _in_threads(stack: Stack, _: torch.device) -> Assigned:
    out = Assigned.empty(len(stack.places), stack.n)
    stack = stack._replace(matrices=tuple(to_numpy(t) for t in stack.matrices))

    def run(part: slice) -> None:
        with np.errstate(all="ignore"):  # what overflows is not proved
            C = np.require(stack.costs(part), np.float64, ["C", "A", "W"])  # one type, so that it is compiled once
            assign_stack(C, *out.part(part), ALL_LOOKS)

    pieces = stack.pieces(PIECE)
    with ThreadPoolExecutor(min(len(pieces), os.cpu_count() or 1) or 1) as pool:
        list(pool.map(run, pieces))
    return out


def _on_device(stack: Stack, where: torch.device) -> Assigned:
    from otformer.transport.costs.gpu.assign import assign

    stack = stack._replace(matrices=tuple(checks.unseen("problems", t).detach().to(where) for t in stack.matrices))
    parts = [assign(stack.costs(part)) for part in stack.pieces(STACK_ENTRIES["cuda"])]
    return Assigned(*(torch.cat(t).cpu().numpy() for t in zip(*parts, strict=True)))


def _results(stack: Stack, found: Assigned, tol: float) -> list[Result | None]:
    """A result of each, with as little work for one as can be; rows and masses are shared where all have the same."""
    form, n = stack.form, stack.n
    w_a, w_b = stack.weights
    mass = n * w_a
    with np.errstate(all="ignore"):
        value, gap = found.total * w_a + mass * found.low, found.gap * w_a
        sure, converged = (proved(gap, value, found.total * w_a, share) for share in (0.0, tol))
        bound = value - gap
        potentials = found.f + found.low[:, None], found.g
    to = _apart(form.place(found.to))
    alike = (w_a == w_a[0]).all()
    masses = repeat(form.give(np.full(n, w_a[0]))) if alike else _apart(form.give(np.repeat(w_a[:, None], n, 1)))
    f, g = (_apart(form.give(t, double=True)) for t in potentials)
    values, gaps = form.numbers(value), gap.tolist()
    pairs = list(zip(repeat(form.place(np.arange(n))), to, masses, strict=False))
    made = results(
        ExactResult,
        potentials=zip(f, g, strict=True),
        value=values,
        marginal_error=(n * abs(w_b - w_a)).tolist(),
        converged=converged.tolist(),
        depth=repeat(0),
        method=repeat(ON_MATRIX),
        mass=mass.tolist(),
        error=gaps,
        parts=[
            {"plan": partial(sparse, *pair, (n, n)), "value_linear": number}
            for pair, number in zip(pairs, values, strict=True)
        ],
        gap=gaps,
        bound=bound.tolist(),
        rounds=repeat(1),
        permutation=to,
        pairs=pairs,
    )
    out: list[Result | None] = [*made]
    for k in np.flatnonzero(~sure):
        out[k] = None
    return out


@contextmanager
def _many_objects() -> Iterator[None]:
    """Disable garbage collection while many results are created."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _apart(t: Array) -> Sequence[Array]:
    return t.unbind() if isinstance(t, Tensor) else list(t)
