"""Transport as a layer of a network that learns: `Transport` between point sets, `SoftSort` of numbers.

Forward solves to ``tol``; backward is the implicit derivative of the solution (transport/gradient.py), not that of the
iterations. Both solve in float64 whatever the dtype of the input, because float32 does not reach a ``tol`` of 1e-6; outputs
have the dtype of the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from otformer import checks
from otformer.transport.result import Result
from otformer.transport.solve import eager, solve, solve_sample


class Transport(nn.Module):
    """The entropic plan between two point sets, squared Euclidean cost, or for a cost; or the points it carries x to.

    reg : λ. With ``learnable`` a parameter, kept positive as exp(log_reg).
    output : "plan" gives P (n, m); "points" gives Σ_j P_ij y_j / Σ_j P_ij, (n, d): every x in the place of its partners.
    tol, max_depth : as in `otformer.solve`.

    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> Transport(reg=0.01, output="points")(x, x.flip(0) + 0.1).round(decimals=2).tolist()
    [[0.10000000149011612], [1.100000023841858], [2.0999999046325684]]
    """

    log_reg: Tensor

    def __init__(
        self, reg: float = 0.1, learnable: bool = False, tol: float = 1e-6, max_depth: int = 10_000, output: str = "plan"
    ) -> None:
        super().__init__()
        log_reg = torch.tensor(math.log(checks.positive("reg", reg)), dtype=torch.float64)
        if learnable:
            self.log_reg = nn.Parameter(log_reg)
        else:
            self.register_buffer("log_reg", log_reg)
        self.tol, self.max_depth = checks.not_negative("tol", tol), checks.count("max_depth", max_depth, least=2)
        self.output = checks.choice("output", output, ("plan", "points"))

    @property
    def reg(self) -> Tensor:
        return self.log_reg.double().exp()

    @eager
    def forward(
        self,
        x: Tensor | None = None,
        y: Tensor | None = None,
        a: Tensor | None = None,
        b: Tensor | None = None,
        x_mask: Tensor | None = None,
        y_mask: Tensor | None = None,
        *,
        cost: Tensor | None = None,
    ) -> Tensor:
        """x (n, d) and y (m, d), or cost (n, m); with a batch axis in front of all or none.

        a, b : weights (n,), (m,), default uniform over the points that are there.
        x_mask, y_mask : boolean, True = there. What is not there is not read; its rows and columns of the output are 0.
        """
        given = {"x": x, "y": y} if cost is None else {"cost": cost}
        if any(t is None for t in given.values()) or (cost is not None and (x is not None or y is not None)):
            raise ValueError("give two point sets x and y, or a cost alone")
        if cost is not None and self.output == "points":
            raise ValueError("output='points' needs x and y, got a cost")
        sets = _batched(given)  # [B, n, d] and [B, m, d], or [B, n, m] alone
        n, m = sets[0].shape[1], sets[-1].shape[1 if cost is None else 2]
        batch = next(t.shape[:-2] for t in given.values() if t is not None)
        rows, columns = _mask("x_mask", x_mask, batch, n, sets[0]), _mask("y_mask", y_mask, batch, m, sets[0])
        weights = _weights("a", a, batch, n), _weights("b", b, batch, m)

        problems = []
        for k, (r, c) in enumerate(zip(rows, columns, strict=True)):
            parts = (sets[0][k][r], sets[1][k][c]) if cost is None else (sets[0][k][r][:, c],)
            problems.append((*parts, *(w if w is None else w[k][p] for w, p in zip(weights, (r, c), strict=True))))
        results = _solve_each(problems, self.reg, self.tol, self.max_depth)

        outputs = []
        for result, problem, r, c in zip(results, problems, rows, columns, strict=True):
            if self.output == "points":
                outputs.append(_place(result.map(problem[1]), r))
            else:
                outputs.append(_place(_place(result.plan, r).T, c).T)
        out = torch.stack(outputs).to(next(t.dtype for t in given.values() if t is not None))
        return out if batch else out[0]

    def extra_repr(self) -> str:
        return f"reg={float(self.reg.detach()):.4g}, learnable={self.log_reg.requires_grad}, output={self.output!r}"


class SoftSort(nn.Module):
    r"""Differentiable sorting and ranking, ascending: transport of n values onto an increasing grid of n places.

    Values and grid are brought to mean 0 and variance 1, so that reg means the same for all values. P (n, n) has all
    marginals 1/n; then sorted_j = n Σ_i P_ij x_i and rank_i = n Σ_j P_ij j, j = 0 … n − 1: exact as reg → 0, otherwise
    blurred over about √reg standard deviations. Evenly spaced neighbours are told apart if reg is well below 24/n².

    >>> soft = SoftSort(reg=0.001)
    >>> soft(torch.tensor([3.0, -1.0, 2.0])).round(decimals=3).tolist()
    [-1.0, 2.0, 3.0]
    >>> soft.rank(torch.tensor([3.0, -1.0, 2.0])).round(decimals=3).tolist()
    [2.0, 0.0, 1.0]
    """

    def __init__(self, reg: float = 0.1, tol: float = 1e-6, max_depth: int = 10_000) -> None:
        super().__init__()
        self.reg = checks.positive("reg", reg)
        self.tol, self.max_depth = checks.not_negative("tol", tol), checks.count("max_depth", max_depth, least=2)

    @eager
    def forward(self, values: Tensor) -> Tensor:
        """values (..., n) → soft sorted values (..., n)."""
        columns = [n_P.T @ row for n_P, row in zip(self._plans(values), _rows(values), strict=True)]
        return torch.stack(columns).to(values.dtype).reshape(values.shape)

    @eager
    def rank(self, values: Tensor) -> Tensor:
        """values (..., n) → soft ranks (..., n), from 0 for the smallest to n − 1."""
        places = torch.arange(values.shape[-1], dtype=torch.float64, device=values.device)
        return torch.stack([n_P @ places for n_P in self._plans(values)]).to(values.dtype).reshape(values.shape)

    def _plans(self, values: Tensor) -> list[Tensor]:
        """n P for every list of values."""
        rows = _rows(values)
        n = rows.shape[1]
        grid = _standard(torch.arange(n, dtype=rows.dtype, device=rows.device))[:, None]
        problems = [(x[:, None], grid, None, None) for x in _standard(rows)]
        return [n * result.plan for result in _solve_each(problems, self.reg, self.tol, self.max_depth)]

    def extra_repr(self) -> str:
        return f"reg={self.reg:g}"


def _solve_each(problems: Sequence[tuple[Any, ...]], reg: float | Tensor, tol: float, max_depth: int) -> list[Result]:
    """Problems (cost, a, b) or (x, y, a, b), each solved for itself; an error names the one it comes from."""
    results = []
    for k, problem in enumerate(problems):
        run: Callable[..., Result] = solve if len(problem) == 3 else solve_sample
        try:
            results.append(run(*problem, reg=reg, tol=tol, max_depth=max_depth))
        except ValueError as error:
            raise ValueError(f"problem {k}: {error}" if len(problems) > 1 else str(error)) from None
    return results


def _batched(given: Mapping[str, Tensor | None]) -> list[Tensor]:
    """The arrays in float64 with a batch axis, of equal batches and, if there are two, equal dimension."""
    sets = []
    for name, t in given.items():
        if not isinstance(t, Tensor) or not t.is_floating_point():
            raise ValueError(f"{name} must be a tensor of floats, got {getattr(t, 'dtype', type(t).__name__)}")
        if t.ndim not in (2, 3):
            last = "m" if name == "cost" else "d"
            raise ValueError(f"{name} must have shape (n, {last}) or (batch, n, {last}), got {tuple(t.shape)}")
        sets.append(t)
    if len(sets) == 2 and (sets[0].shape[:-2] != sets[1].shape[:-2] or sets[0].shape[-1] != sets[1].shape[-1]):
        shapes = f"{tuple(sets[0].shape)} and {tuple(sets[1].shape)}"
        raise ValueError(f"x and y must have the same batch and dimension, got {shapes}")
    return [t.double() if t.ndim == 3 else t.double()[None] for t in sets]


def _mask(name: str, mask: Tensor | None, batch: torch.Size, size: int, like: Tensor) -> Tensor:
    """Boolean [B, size], by default all there; a side with nothing there is an error."""
    if mask is None:
        return torch.ones(*(batch or (1,)), size, dtype=torch.bool, device=like.device)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or tuple(mask.shape) != (*batch, size):
        came = f"{tuple(mask.shape)} of {mask.dtype}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"{name} must be a boolean tensor of shape {(*batch, size)}, got {came}")
    mask = mask.reshape(-1, size)
    empty = (~mask.any(1)).nonzero()
    if len(empty):
        where = f" for problem {int(empty[0])} of the batch" if batch else ""
        raise ValueError(f"{name} leaves no point{where}: mass has nowhere to go")
    return mask


def _weights(name: str, weights: Tensor | None, batch: torch.Size, size: int) -> Tensor | None:
    if weights is None:
        return None
    if not isinstance(weights, Tensor) or tuple(weights.shape) != (*batch, size):
        came = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ValueError(f"{name} must be a tensor of shape {(*batch, size)}, got {came}")
    return weights.double().reshape(-1, size)


def _place(rows: Tensor, there: Tensor) -> Tensor:
    """Rows put back to where the mask is true; zeros elsewhere."""
    return rows if bool(there.all()) else rows.new_zeros(len(there), rows.shape[1]).index_put((there,), rows)


def _rows(values: Tensor) -> Tensor:
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.ndim == 0 or values.shape[-1] == 0:
        came = f"{tuple(values.shape)} of {values.dtype}" if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"values must be a tensor of floats of shape (..., n) with n at least 1, got {came}")
    return values.double().reshape(-1, values.shape[-1])


def _standard(values: Tensor) -> Tensor:
    """Mean 0 and variance 1 along the last axis; equal values become 0."""
    centred = values - values.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred / torch.where(variance > 0, variance, 1.0).sqrt()
