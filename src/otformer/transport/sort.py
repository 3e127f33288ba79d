r"""Sorting by transport: a list is sorted by moving it onto an increasing list.

For d = 1 the optimal plan between x and y_1 < … < y_n is monotone, so y_j receives the j-th smallest value. Blocks run at
falling λ; after every stage the answer is read by argmax and *checked*. It is returned only if it is a sorted permutation;
otherwise there is an error that says which values were too close. Equal values are one point with the weight of all of
them: ties need no rule.

Two things are read off the *soft rank*. With any potential v, one row head that reads y,

    r(x) = Σ_j y_j e^{(v_j − (x − y_j)²)/λ} / Σ_j e^{(v_j − (x − y_j)²)/λ},      r'(x) = (2/λ) Var(y | x) > 0,

is increasing in x: it keeps the order exactly, and a plan near the optimal one spreads the values evenly. Where values
crowd, a second round sorts their soft ranks instead. And a long list is first moved onto only ``BANDS`` places, λ falling
until these are told apart: the values whose soft rank is near one place form a band, every value of a band lies below every
value of the next, and each band is a shorter list of its own, scaled to [0, 1] again. No mass is left out, so there is no
tail to bound: an inexact plan makes bands uneven, never wrong, and two bands between which rounding has swapped values are
joined. n numbers so take O(n) memory and O(n log n) time, against n² for the plan of the whole list.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.executors.absorbed import Absorbed
from otformer.transport.problem.problem import like_input, squared_distances
from otformer.transport.solvers.blocks import Blocks

ROUNDS = 6  # in which a short list is sorted, the soft ranks of one being the values of the next
BANDS = 64  # places onto which a long list is moved first
ENTRIES = 2**16  # of the plan of a short list, values × places


def argsort(values: Any) -> Any:
    """Indices that sort a list of numbers, stable, found by transport; numpy for lists and arrays, a tensor for tensors.

    >>> argsort([0.3, -1.0, 2.5, 0.3]).tolist()
    [1, 0, 3, 2]
    """
    x = checks.tensor("values", values)
    if x.ndim != 1:
        raise ValueError(f"values must be a list of numbers, got shape {tuple(x.shape)}")
    if x.dtype == torch.float64 and bool((x.abs() >= 2**53).any()) and not _is_float(values):
        raise ValueError("values must be whole numbers below 2**53 or floats: larger whole numbers are not exact in float64")
    return like_input(values, _order(x))


def _is_float(values: Any) -> bool:
    kind = values.dtype if isinstance(values, Tensor) else np.asarray(values).dtype
    return "float" in str(kind)


def sort(values: Any) -> Any:
    """A sorted copy of a list of numbers, by transport: exact, or a ValueError that says why not.

    >>> sort([0.3, -1.0, 2.5]).tolist()
    [-1.0, 0.3, 2.5]
    """
    order = argsort(values)
    return values[order] if isinstance(values, Tensor) else np.asarray(values)[order]


def _order(x: Tensor) -> Tensor:
    """The sorting permutation of x [n]."""
    places: dict[float, list[int]] = {}
    for i, value in enumerate(x.tolist()):
        places.setdefault(value, []).append(i)
    groups = list(places.values())
    distinct = torch.tensor(list(places), dtype=torch.float64, device=x.device)  # [k], in order of appearance
    counts = torch.tensor([len(where) for where in groups], device=x.device)
    if len(distinct) and not bool(torch.isfinite(distinct.max() - distinct.min())):
        ends = f"{distinct.min().item()} to {distinct.max().item()}"
        raise ValueError(f"values must span less than the largest float, got {ends}")
    order = [i for k in _ordered(distinct, counts) for i in groups[k]]
    return torch.tensor(order, dtype=torch.long, device=x.device)


def _ordered(distinct: Tensor, counts: Tensor) -> Iterator[int]:
    """Indices of the values in increasing order."""
    waiting = [torch.arange(len(distinct), device=distinct.device)]  # lists of indices, the least values last
    while waiting:
        some = waiting.pop()
        x, weights = distinct[some], counts[some]
        if len(x) <= 1:
            yield from some.tolist()
        elif len(x) * int(weights.sum()) <= ENTRIES:
            yield from some[_transport(x, weights)].tolist()
        else:
            waiting += [some[band] for band in reversed(_bands(x, weights))]


def _bands(values: Tensor, counts: Tensor) -> list[Tensor]:
    """Indices of the values cut into bands: those of one are less than those of the next."""
    log_b = torch.full((BANDS,), float(counts.sum()) / BANDS, dtype=values.dtype, device=values.device).log()
    y = (torch.arange(BANDS, dtype=values.dtype, device=values.device) + 0.5) / BANDS
    problem = Absorbed(squared_distances(_scaled(values)[:, None], y[:, None]), counts.log(), log_b)
    v, lam = torch.zeros_like(y), 4.0
    while lam > 0.4 / BANDS**2:
        lam /= 4
        _, v = _stage(problem, lam, v)
    band = (_soft_rank(problem, v, lam, y) * BANDS).long().clamp(0, BANDS - 1)
    least = values.new_full((BANDS,), torch.inf).scatter_reduce_(0, band, values, "amin")
    greatest = values.new_full((BANDS,), -torch.inf).scatter_reduce_(0, band, values, "amax")
    apart = greatest.cummax(0).values[:-1] < least.flip(0).cummin(0).values.flip(0)[1:]  # all below k + 1, and the others
    if not bool((apart & (least[1:] < torch.inf)).any()):
        raise ValueError(_too_close(values))
    band = torch.cat([band.new_zeros(1), apart.cumsum(0)])[band]
    return [(band == k).nonzero()[:, 0] for k in range(int(band.max()) + 1)]


def _transport(distinct: Tensor, counts: Tensor) -> Tensor:
    """Indices of the values in increasing order: for every place j the value that it receives, checked to be sorted."""
    n = int(counts.sum())
    y = torch.linspace(0, 1, n, dtype=distinct.dtype, device=distinct.device)
    x = _scaled(distinct)
    start = 1.0
    for _ in range(ROUNDS):
        problem = Absorbed(squared_distances(x[:, None], y[:, None]), counts.log(), torch.zeros_like(y))
        v, lam = torch.zeros_like(y), 4 * start
        while lam > 0.4 / n**2:  # at 0.1/n² neighbours in y are told apart
            lam /= 4
            u, v = _stage(problem, lam, v)
            pick = (u[:, None] - problem.C).argmax(0)  # v_j is constant in a column
            if torch.equal(torch.bincount(pick, minlength=len(x)), counts) and bool((distinct[pick].diff() >= 0).all()):
                # Places of one value are neighbours.
                return pick[torch.cat([pick.new_ones(1, dtype=torch.bool), pick[1:] != pick[:-1]])]
        x = _soft_rank(problem, v, lam, y)
        start = min(1.0, 4 / n)
    raise ValueError(_too_close(distinct))


def _scaled(values: Tensor) -> Tensor:
    return (values - values.min()) / (values.max() - values.min())


def _soft_rank(problem: Absorbed, v: Tensor, lam: float, y: Tensor) -> Tensor:
    return torch.softmax((v - problem.C) / lam, dim=1) @ y


def _stage(problem: Absorbed, lam: float, v: Tensor) -> tuple[Tensor, Tensor]:
    """At most twenty steps at one λ, fewer once every column is right to 1e-3."""
    for u, v, error in islice(Blocks(problem, lam, v, spread=1.0), 20):  # noqa: B007
        if float(error.max()) < 1e-3:
            break
    return u, v


def _too_close(distinct: Tensor) -> str:
    ordered = distinct.sort().values  # of an error's words alone
    gaps = ordered.diff()
    low, high = ordered[gaps.argmin() :][:2].tolist()
    share = float(gaps.min() / (ordered[-1] - ordered[0]))
    return (
        f"values crowd too much to be told apart by transport in float64: {low!r} and {high!r} differ by {share:.2g} of the "
        f"range {ordered[0].item()!r} to {ordered[-1].item()!r}"
    )
