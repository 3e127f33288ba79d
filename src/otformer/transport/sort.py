r"""Sorting by transport: a list is sorted by moving it onto an increasing list.

For d = 1 the optimal plan between x and y_1 < … < y_n is monotone, so y_j receives the j-th smallest value. Blocks run at
falling λ; after every stage the answer is read by argmax and *checked*. It is returned only if it is a sorted permutation;
otherwise there is an error that says which values were too close. Equal values are one point with the weight of all of
them: ties need no rule.

Where values crowd, a second round sorts their soft ranks instead. With any potential v, one row head that reads y,

    r(x) = Σ_j y_j e^{(v_j − (x − y_j)²)/λ} / Σ_j e^{(v_j − (x − y_j)²)/λ},      r'(x) = (2/λ) Var(y | x) > 0,

is increasing in x: it keeps the order exactly, and a plan near the optimal one spreads the values evenly.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.executors.absorbed import Absorbed
from otformer.transport.problem.problem import like_input, squared_distances
from otformer.transport.solvers.blocks import LAYERS, Blocks

ROUNDS = 6


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
    return like_input(values, _order(x)[0])


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


def _order(x: Tensor) -> tuple[Tensor, int]:
    """The sorting permutation of x [n], and the number of layers it took."""
    places: dict[float, list[int]] = {}
    for i, value in enumerate(x.tolist()):
        places.setdefault(value, []).append(i)
    distinct = torch.tensor(list(places), dtype=torch.float64, device=x.device)  # [k], in order of appearance
    counts = torch.tensor([len(where) for where in places.values()], device=x.device)
    if len(distinct) <= 1:
        return torch.arange(len(x), device=x.device), 0
    pick, depth = _transport(distinct, counts)
    groups = [torch.tensor(where, device=x.device) for where in places.values()]
    # Targets of one value are neighbours in a sorted answer: expand each value to its places once.
    kept = pick[torch.cat([pick.new_ones(1, dtype=torch.bool), pick[1:] != pick[:-1]])]
    return torch.cat([groups[k] for k in kept.tolist()]), depth


def _transport(distinct: Tensor, counts: Tensor) -> tuple[Tensor, int]:
    """For every target j the value (index into ``distinct``) that it receives, checked to be sorted."""
    n, depth = int(counts.sum()), 0
    if not bool(torch.isfinite(distinct.max() - distinct.min())):
        ends = f"{distinct.min().item()} to {distinct.max().item()}"
        raise ValueError(f"values must span less than the largest float, got {ends}")
    y = torch.linspace(0, 1, n, dtype=distinct.dtype, device=distinct.device)
    x = (distinct - distinct.min()) / (distinct.max() - distinct.min())
    start = 1.0
    for _ in range(ROUNDS):
        problem = Absorbed(squared_distances(x[:, None], y[:, None]), counts.log(), torch.zeros_like(y))
        v, lam = torch.zeros_like(y), 4 * start
        while lam > 0.4 / n**2:  # at 0.1/n² neighbours in y are told apart
            lam /= 4
            u, v, layers = _stage(problem, lam, v)
            depth += layers
            pick = (u[:, None] - problem.C).argmax(0)  # v_j is constant in a column
            if torch.equal(torch.bincount(pick, minlength=len(x)), counts) and bool((distinct[pick].diff() >= 0).all()):
                return pick, depth
        x = torch.softmax((v - problem.C) / lam, dim=1) @ y
        start = min(1.0, 4 / n)
    raise ValueError(_too_close(distinct))


def _stage(problem: Absorbed, lam: float, v: Tensor) -> tuple[Tensor, Tensor, int]:
    """At most twenty steps at one λ, fewer once every column is right to 1e-3."""
    steps = []
    for step in islice(Blocks(problem, lam, v, spread=1.0), 20):
        steps.append(step)
        if float(step[2].max()) < 1e-3:
            break
    u, v, _ = steps[-1]
    return u, v, len(steps) * LAYERS


def _too_close(distinct: Tensor) -> str:
    gaps = (distinct[:, None] - distinct[None, :]).abs().fill_diagonal_(torch.inf)
    i, j = divmod(int(gaps.argmin()), len(distinct))
    share = float(gaps[i, j] / (distinct.max() - distinct.min()))
    return (
        f"values crowd too much to be told apart by transport in float64: {float(distinct[i])!r} and {float(distinct[j])!r} "
        f"differ by {share:.2g} of the range"
    )
