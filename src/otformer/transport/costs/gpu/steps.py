r"""Sinkhorn steps on a CUDA device with safeguarded Anderson mixing: solvers/blocks.py and solvers/anderson.py, fused.

A step is two passes and a few small kernels (costs/gpu/step_loop.py); one row of numbers comes to the host for each: the
error, and the products of the newest residual and its last change with the changes before. The host keeps their Gram matrix,
to which a step adds one row, and solves for θ. Means are taken out of all residuals, for a constant in v changes nothing:
Σ w (f − f̄)(g − ḡ) = Σ w f g − (Σ w f)(Σ w g)/Σ w.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from otformer.transport.costs.gpu.layout import SINGLE
from otformer.transport.costs.gpu.passes import MARGIN
from otformer.transport.costs.gpu.step_loop import Loop

if TYPE_CHECKING:
    from otformer.transport.costs.gpu.laid_kernel import GpuStream

KNOWN_BELOW = 0.1  # error, as a share of the mass, from where a step tells what the next one will nearly find
SINGLE_RIDGE = 1e-9  # least ridge where residuals come from float32 passes: below it their products are rounding


class GpuSteps:
    """Steps from v [M] at one λ, without end: (u, v, error) with exact rows and error = Σ_j |Σ_i P_ij − b_j|."""

    def __init__(self, stream: GpuStream, loop: Loop, reg: float, v: Tensor, ridge: float) -> None:
        self.stream, self.loop, self.memory, self.mass, self.reg = stream, loop, loop.memory, stream.mass, reg
        self.exact = stream.precision is not SINGLE  # its verdict counts
        self.ridge = max(ridge, SINGLE_RIDGE) if loop.moves.dtype == torch.float32 else ridge
        self._gram, self._means = np.zeros((self.memory, self.memory)), np.zeros(self.memory)
        self._changes = 0  # of residuals, kept so far
        self._slot = -1  # of the change that the last step brought; −1 if it had none before it to compare with
        self._seen: np.ndarray | None = None  # the numbers of the last step
        self.least, self.best = math.inf, (v, torch.zeros_like(v))  # an error, and where it was seen: v and its residual
        loop.start(v, stream.numbers(reg))

    def __iter__(self) -> GpuSteps:
        return self

    def __next__(self) -> tuple[Tensor, Tensor, float]:
        loop, theta = self.loop, None if self._seen is None else self._decide(self._seen)
        before = loop.u.clone() if loop.hinted and self.exact else None
        self._seen = report = loop.run(self._slot, theta).copy()
        if before is not None and not self._as_expected(before):
            loop.restart(loop.v.clone(), torch.zeros_like(loop.v))
            self._slot = -1
            self._seen = report = loop.run(-1, None).copy()
        error = float(report[0]) / self.mass
        loop.known = error < KNOWN_BELOW
        if loop.hinted and not self.exact:
            loop.consts[3] = self.stream.bits(error) * math.log(2) * self.reg
        return loop.u.clone(), loop.v.clone(), float(report[0])

    def _as_expected(self, before: Tensor) -> bool:
        """Whether no row's, and no column's, sum has moved by more than MARGIN bits.

        What was left out rests on it if it has fallen, and the size of exponents if it has risen.
        """
        moved = torch.maximum((self.loop.u - before).nan_to_num(nan=0.0).abs().max(), self.loop.f.abs().max())
        return float(moved) <= MARGIN * math.log(2) * self.reg  # false where it is not a number

    def _decide(self, report: np.ndarray) -> np.ndarray | None:
        """θ of the next step. Where the error has doubled, it goes on from the best plain step, and forgets."""
        error = float(report[0])
        if not error <= 2 * self.least:  # also where it is not a number
            self.loop.restart(*self.best)
            self.least, self._changes, self._slot = math.inf, 0, -1
            return None
        if error < self.least:
            self.least, self.best = error, (self.loop.v.clone(), self.loop.f.clone())
        if not self.memory:
            return None
        theta = self._theta(report) if self._slot >= 0 else None
        self._slot = self._changes % self.memory
        return theta

    def _theta(self, report: np.ndarray) -> np.ndarray | None:
        """θ of the changes kept, by the normal equations with a ridge; None where they have no solution."""
        self._changes += 1
        slot, used, mass = self._slot, min(self._changes, self.memory), self.mass
        mean, self._means[slot] = report[1], report[2]
        self._gram[slot, :used] = self._gram[:used, slot] = report[4 : 4 + 2 * used : 2]
        means = self._means[:used] / mass
        gram = self._gram[:used, :used] - np.outer(means, means * mass)
        diagonal = gram.ravel()[:: used + 1]
        scale = float(diagonal.max())
        if not 0 < scale < math.inf:
            return None
        diagonal += self.ridge * scale
        try:
            theta = np.linalg.solve(gram / scale, (report[3 : 3 + 2 * used : 2] - mean * means) / scale)
        except np.linalg.LinAlgError:
            return None
        return theta if math.isfinite(float(theta.sum())) else None
