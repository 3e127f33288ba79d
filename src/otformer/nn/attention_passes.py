"""Passes over the attention of many problems, a block of rows at a time: column sums, and what gradients need of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

BLOCK_ENTRIES = {"cpu": 2**20, "cuda": 2**23}  # of the matrices, held at once
BLOCK_ROWS = 64  # of a block, at least, before fewer problems are taken together


@dataclass(frozen=True)
class Passes:
    """Softmax attention of B problems, a block of rows at a time."""

    x: Tensor  # queries [B, n, d], already scaled; or logits [B, n, m], −∞ where forbidden
    y: Tensor | None  # keys [B, m, d]; None: x are logits
    own: Tensor  # [B, m], added to the logits of each key; −∞ for one that is not there
    rows: Tensor  # [B, n], true for a row that is there; the others are 0 in A
    causal: bool = False  # row i sees keys up to i

    def to(self, dtype: torch.dtype) -> Passes:
        y = None if self.y is None else self.y.to(dtype)
        return replace(self, x=self.x.to(dtype), y=y, own=self.own.to(dtype))

    def at(self, problems: slice) -> Passes:
        y = None if self.y is None else self.y[problems]
        return Passes(self.x[problems], y, self.own[problems], self.rows[problems], self.causal)

    def parts(self) -> list[slice]:
        """The problems that are taken together."""
        step = max(1, BLOCK_ENTRIES[self.x.device.type] // (BLOCK_ROWS * max(1, self.own.shape[1])))
        return [slice(start, start + step) for start in range(0, len(self.x), step)]

    @cached_property
    def wanted(self) -> Tensor:
        """b [B, m] in float64: rows that are there over keys that are there; 0 for others."""
        there = self.own > -torch.inf
        return there * (self.rows.sum(1, keepdim=True).double() / there.sum(1, keepdim=True))

    def spread(self) -> float:
        """A bound on the range of finite logits."""
        if self.y is None:
            finite = torch.where(self.x.isfinite(), self.x, 0.0)
            return float(finite.max() - finite.min())
        sizes = [torch.linalg.vector_norm(t.detach(), dim=2).max() for t in (self.x, self.y)]
        return 2 * float(sizes[0] * sizes[1])

    @cached_property
    def reached(self) -> Tensor:
        """Which keys some row may attend to, [B, m]."""
        there = self.own > -torch.inf
        if self.y is None:
            return there & ((self.x > -torch.inf) & self.rows[:, :, None]).any(1)
        if self.causal:
            last = torch.where(self.rows, torch.arange(self.rows.shape[1], device=self.own.device), -1).amax(1, keepdim=True)
            return there & (torch.arange(self.own.shape[1], device=self.own.device) <= last)
        return there

    def blocks(self, g: Tensor, heat: float = 1.0) -> Iterator[tuple[slice, Tensor]]:
        """Rows, and A [B, r, m] of these, for logits divided by ``heat``, with biases g [B, m]."""
        (B, n), m = self.rows.shape, self.own.shape[1]
        bias = (self.own / heat + g)[:, None]
        step = max(1, BLOCK_ENTRIES[self.x.device.type] // max(1, B * m))
        for start in range(0, n, step):
            rows = slice(start, min(n, start + step))
            if self.y is None:
                logits = self.x[:, rows] / heat + bias
            else:
                logits = torch.baddbmm(bias, self.x[:, rows], self.y.mT, alpha=1 / heat)
            if self.causal:
                places = torch.arange(m, device=g.device)
                logits.masked_fill_(places > torch.arange(rows.start, rows.stop, device=g.device)[:, None], -torch.inf)
            yield rows, logits.softmax(2).masked_fill_(~self.rows[:, rows, None], 0.0)

    def columns(self, g: Tensor, heat: float = 1.0) -> Tensor:
        """c = Aᵀ1, [B, m], in float64."""
        total = torch.zeros_like(self.own, dtype=torch.float64)
        for _, A in self.blocks(g, heat):
            total += A.sum(1)
        return total

    def gram(self, g: Tensor, w: Tensor) -> Tensor:
        """AᵀA w for w [B, m]."""
        total = torch.zeros_like(self.own, dtype=torch.float64)
        for _, A in self.blocks(g):
            total += (A.mT @ (A @ w[:, :, None]))[:, :, 0]
        return total.to(w)

    def residual(self, g: Tensor, slack: float, heat: float = 1.0) -> Tensor:
        """log(b_j/c_j) − g_j/ρ [B, m] in float64 at g, in float64 too, slack = 1/ρ; 0 for keys that are not reached."""
        c = self.columns(g.to(self.own.dtype), heat).clamp_min(torch.finfo(self.own.dtype).tiny)
        return torch.where(self.reached, self.wanted.log() - c.log() - slack * g, 0.0)
