r"""What sorts a list of ``draws`` without comparing its numbers: baselines for the trained networks.

The numbers are n of 50 fixed ones and y_j = j/n. A network could therefore give every number a place of its own, whatever
stands beside it. Row i then takes the x_j whose place is nearest to i:

``nearest``   the place of x is n x: the match that is nearest to y_i.
``lookup``    the place of x is its mean rank (n − 1)·50x/49 among n draws, which a table of 50 entries holds.
``table``     a table of 50 entries for each row: row i takes the x_j that has rank i most often.

``counting`` compares: it gives x its number of smaller ones, and is right always. ``constant`` returns the mean of the i-th
smallest, the best list for the squared error that does not look at x.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import torch
from torch import Tensor

from otformer.lab.training.data import DRAWN_FROM, TEST, Problems, generator


def _places(x: Tensor) -> Tensor:
    """The place in 0 … 49 of numbers k/50."""
    return (x * DRAWN_FROM).round().long()


def _by_place(places: Tensor) -> Tensor:
    """Row i takes the column whose place is nearest to i, [B, n] → [B, n]."""
    rows = torch.arange(places.shape[-1], dtype=places.dtype)
    return (places[:, None, :] - rows[:, None]).abs().argmin(-1)


def nearest(x: Tensor) -> Tensor:
    """The column of every row by the nearest y, x [B, n]."""
    return _by_place(x * x.shape[1])


def lookup(x: Tensor) -> Tensor:
    """The column of every row by the mean rank of each number."""
    return _by_place((x.shape[1] - 1) * _places(x).double() / (DRAWN_FROM - 1))


def table(x: Tensor) -> Tensor:
    """The column of every row by the share of draws in which a number has that rank."""
    return rank_shares(x.shape[1])[:, _places(x)].permute(1, 0, 2).argmax(-1)


def counting(x: Tensor) -> Tensor:
    """The column of every row by counting smaller numbers."""
    return _by_place((x[:, None, :] < x[:, :, None]).sum(-1).double())


def rank_shares(n: int) -> Tensor:
    """How often the number k/50 has rank i among n draws that hold it, [n, 50]: hypergeometric.

    >>> rank_shares(2)[0, [0, 49]].tolist()
    [1.0, 0.0]
    """
    total, last = comb(DRAWN_FROM - 1, n - 1), DRAWN_FROM - 1
    shares = [[comb(k, i) * comb(last - k, n - 1 - i) / total for k in range(DRAWN_FROM)] for i in range(n)]
    return torch.tensor(shares, dtype=torch.float64)


def constant_error(n: int) -> float:
    """The squared error of the best list that does not look at x: the mean variance of the i-th smallest of n draws.

    >>> round(constant_error(7), 4)
    0.0183
    """
    share = rank_shares(n) / rank_shares(n).sum(1, keepdim=True)  # of number k among those of rank i: all k are as likely
    numbers = torch.arange(DRAWN_FROM, dtype=torch.float64) / DRAWN_FROM
    return float((share @ numbers**2 - (share @ numbers) ** 2).mean())


SHORTCUTS: dict[str, Callable[[Tensor], Tensor]] = dict(nearest=nearest, lookup=lookup, table=table, counting=counting)


def shortcut_scores(n: int, problems: int = 1_000, seed: int = 0) -> dict[str, dict[str, float]]:
    """Share of rows and of lists right, and squared error of the list, of every shortcut on lists of n ``draws``."""
    batch = Problems(("draws",), (n,)).draw(problems, generator(seed, TEST, n))
    x, found = batch.x[..., 0].double(), {}
    for name, pick in SHORTCUTS.items():
        columns = pick(x)
        right = columns == batch.target
        error = (x.gather(1, columns) - x.sort(1).values).square().mean()
        found[name] = {
            "rows": float(right.double().mean()),
            "lists": float(right.all(1).double().mean()),
            "error": float(error),
        }
    return {**found, "constant": {"rows": float("nan"), "lists": float("nan"), "error": constant_error(n)}}
