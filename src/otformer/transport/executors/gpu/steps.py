r"""Sinkhorn steps on a CUDA device with safeguarded Anderson mixing: solvers/blocks.py and solvers/anderson.py, fused.

A step is two passes and three small kernels; one row of numbers comes to the host for each step: the error, and the products
of the newest residual and its last change with the changes before. The host keeps their Gram matrix, so that a step adds one
row to it, and solves for θ. Means are taken out of all residuals, for a constant in v changes nothing:
Σ w (f − f̄)(g − ḡ) = Σ w f g − (Σ w f)(Σ w g)/Σ w.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from otformer.transport.executors.gpu import mixing_kernels as kernels
from otformer.transport.executors.gpu.layout import BLOCK
from otformer.transport.executors.gpu.passes import Columns

if TYPE_CHECKING:
    from otformer.transport.executors.gpu.stream import GpuStream

SINGLE_RIDGE = 1e-9  # least ridge where residuals come from float32 passes: below it their products are rounding


class GpuSteps:
    """Steps from v [M] at one λ, for ever: (u, v, error) with exact rows and error = Σ_j |Σ_i P_ij − b_j|."""

    def __init__(self, stream: GpuStream, reg: float, v: Tensor, memory: int, ridge: float) -> None:
        self.stream, self.reg, self.v, self.memory = stream, reg, v, memory
        numbers = stream.passes.precision.numbers
        self.ridge = max(ridge, SINGLE_RIDGE) if numbers == torch.float32 else ridge
        self._numbers = stream.numbers(reg)
        self._columns: Columns = stream.columns(v, rows=False)
        self._moves, self._changes = (v.new_empty(max(memory, 1), len(v), dtype=numbers) for _ in range(2))
        self._gram, self._means = np.zeros((memory, memory)), np.zeros(memory)
        self._last: tuple[Tensor, Tensor] | None = None  # v and its residual, of the step before
        self._steps = 0  # residual changes kept so far
        self._seen: tuple[Tensor, float, np.ndarray] | None = None  # residual, error, products of the last step
        self.least, self.best = math.inf, (v, torch.zeros_like(v))  # an error, and where it was seen: v and its residual

    def __iter__(self) -> GpuSteps:
        return self

    def __next__(self) -> tuple[Tensor, Tensor, float]:
        if self._seen is not None:  # not before: after the last step no other is needed
            self._advance(*self._seen)
        u, columns = self.stream.block(self._columns, self._numbers, rows=True)
        f = self.stream.residual(columns, self._numbers, self.v)
        report = self._remember(f)
        self._seen = f, float(report[0]), report
        return u, self.v, float(report[0])

    def _remember(self, f: Tensor) -> np.ndarray:
        """The error and the products of residuals; the last change is kept."""
        m = len(f)
        slot = self._steps % self.memory if self._last is not None and self.memory else -1
        used = min(self._steps + 1, self.memory) if slot >= 0 else 0
        last_v, last_f = self._last or (f, f)
        out = f.new_zeros(m // BLOCK, 3 + 2 * used)
        kernels.remember[(m // BLOCK, max(used, 1))](
            self.v, f, last_v, last_f, self.stream.log_b, self._numbers, self._moves, self._changes, out, m, out.shape[1],
            slot, BLOCK=BLOCK,
        )  # fmt: skip
        return out.sum(0).cpu().numpy()

    def _advance(self, f: Tensor, error: float, report: np.ndarray) -> None:
        """The v after this one: mixed, or the best plain step where the error has doubled."""
        lost = not error <= 2 * self.least  # also where it is not a number
        if error < self.least:
            self.least, self.best = error, (self.v, f)
        v, theta = self.v, None
        if lost:
            v, f = self.best
            self.least, self._last, self._steps = math.inf, None, 0
        else:
            theta = self._theta(report) if self._last is not None and self.memory else None
            self._last = v, f
        self.v, self._columns = self.stream.passes.advance(self.stream.y, v, f, self._moves, theta)

    def _theta(self, report: np.ndarray) -> np.ndarray:
        """θ of the changes kept, by the normal equations with a ridge; 0 where they have no solution."""
        slot, used = self._steps % self.memory, min(self._steps + 1, self.memory)
        self._steps += 1
        mean, self._means[slot], mass = report[1], report[2], self.stream.mass
        self._gram[slot, :used] = self._gram[:used, slot] = report[4::2]
        means = self._means[:used]
        gram = self._gram[:used, :used] - np.outer(means, means) / mass
        right = report[3::2] - mean * means / mass
        diagonal = gram.diagonal()
        scale = float(diagonal.max(initial=0.0))
        if not 0 < scale < math.inf:
            return np.zeros(used)
        try:
            theta = np.linalg.solve(gram / scale + self.ridge * np.eye(used), right / scale)
        except np.linalg.LinAlgError:
            return np.zeros(used)
        return theta if bool(np.isfinite(theta).all()) else np.zeros(used)
