r"""The absorbed kernel: log-sum-exp passes as matrix–vector products.

Fix reference potentials (u⁰, v⁰) and keep K_ij = exp((u⁰_i + v⁰_j − C_ij)/λ) in memory. Then

    log Σ_j exp((v_j − C_ij)/λ) = log Σ_j K_ij exp((v_j − v⁰_j)/λ) − u⁰_i/λ,

a product with K instead of n·m exponentials. K is made again ("absorbed") when λ changes, or when v has moved so far from
its reference, or u so far above its own, that what underflowed in K could matter: by more than ``DRIFT``·λ. With u⁰ the
minimum of C − v⁰ in its row, no row of K is ever empty. A column can be, far from the solution: its sum is then taken as
the smallest float, and the step that follows is long but finite.

[1] B. Schmitzer: Stabilized sparse scaling algorithms for entropy regularized transport problems. SIAM J. Sci. Comput. 2019.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer.transport.costs.kernel import Kernel

Array = Any  # numpy.ndarray or Tensor
DRIFT = {torch.float64: 100.0, torch.float32: 20.0}  # in units of λ


class Absorbed(Kernel):
    """A cost C [..., n, m] with the logs of positive weights; the same numbers as `Dense`, several times cheaper."""

    def __init__(self, C: Tensor, log_a: Tensor, log_b: Tensor, spread: float = math.inf) -> None:
        self.C, self.log_a, self.log_b, self.spread = C, log_a, log_b, spread
        self._K: Tensor | None = None
        self._reg = 0.0
        self._u, self._v = log_a, log_b  # references, meaningless until K is made

    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """log(S/a) of the rows [..., n], or log(S/b) of the columns [..., m]."""
        K = self._kernel(u, v, reg, rows)
        u_moved, v_moved = (u - self._u) / reg, (v - self._v) / reg
        if rows:
            return _log((K @ v_moved.exp()[..., None])[..., 0]) + u_moved - 1 - self.log_a
        return _log((u_moved.exp()[..., None, :] @ K)[..., 0, :]) + v_moved - 1 - self.log_b

    def plan(self, u: Tensor, v: Tensor, reg: float) -> Tensor:
        """P_ij = exp((u_i + v_j − C_ij)/λ − 1), [..., n, m]: no exponentials but those of u and v."""
        P = self._kernel(u, v, reg, rows=False)
        self._K = None  # its memory is the plan's from here on
        return P.mul_(((v - self._v) / reg).exp()[..., None, :]).mul_(((u - self._u) / reg - 1).exp()[..., None])

    def _kernel(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """K, absorbed again if what underflowed in it could matter; u counts only where it is exponentiated."""
        limit = DRIFT[self.C.dtype] * reg
        stale = self._K is None or reg != self._reg or bool(((v - self._v).abs() > limit).any())
        if stale or (not rows and bool((u - self._u > limit).any())):
            self._K, self._u = absorb(self.C, v, reg)
            self._v, self._reg = v, reg
        assert self._K is not None
        return self._K


def absorb(C: Array, v: Array, reg: float) -> tuple[Array, Array]:
    """K [..., n, m] and u⁰ [..., n] for v⁰ = v [..., m]; numpy arrays or tensors."""
    K = C - v[..., None, :]
    u = K.amin(-1) if isinstance(K, Tensor) else K.min(-1)
    K -= u[..., None]
    K *= -1 / reg
    return (K.exp_() if isinstance(K, Tensor) else np.exp(K, out=K)), u


def _log(sums: Tensor) -> Tensor:
    return sums.clamp_min(torch.finfo(sums.dtype).tiny).log()
