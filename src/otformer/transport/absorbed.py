r"""The absorbed executor: log-sum-exp passes as matrix–vector products.

Fix reference potentials (u⁰, v⁰) and keep K_ij = exp((u⁰_i + v⁰_j − C_ij)/λ) in memory. Then

    log Σ_j exp((v_j − C_ij)/λ) = log Σ_j K_ij exp((v_j − v⁰_j)/λ) − u⁰_i/λ,

a product with K instead of n·m exponentials. K is made again ("absorbed") when λ changes, or when a potential has moved
so far from its reference that what underflowed in K could matter: by more than ``drift``·λ. With u⁰ the soft minimum that
belongs to v⁰ no row of K is ever empty. A column can be, far from the solution: its sum is then taken as the smallest
float, and the step that follows is long but finite.
"""

from __future__ import annotations

import torch
from torch import Tensor

DRIFT = {torch.float64: 100.0, torch.float32: 20.0}


class Absorbed:
    """A cost C [..., n, m] with the logs of positive weights; the same numbers as `Dense`, several times cheaper."""

    def __init__(self, C: Tensor, log_a: Tensor, log_b: Tensor) -> None:
        self.C, self.log_a, self.log_b = C, log_a, log_b
        self._K: Tensor | None = None
        self._reg = 0.0
        self._u, self._v = log_a, log_b  # references, meaningless until K is made

    def excess(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """log(S/a) of the rows [..., n], or log(S/b) of the columns [..., m]."""
        if self._K is None or reg != self._reg or self._far(self._v, v) or (not rows and self._far(self._u, u)):
            self._absorb(v, reg)
        assert self._K is not None
        u_moved, v_moved = (u - self._u) / reg, (v - self._v) / reg
        if rows:
            return _log((self._K @ v_moved.exp()[..., None])[..., 0]) + u_moved - 1 - self.log_a
        return _log((u_moved.exp()[..., None, :] @ self._K)[..., 0, :]) + v_moved - 1 - self.log_b

    def _far(self, reference: Tensor, potential: Tensor) -> bool:
        return float((potential - reference).abs().max()) > DRIFT[self.C.dtype] * self._reg

    def _absorb(self, v: Tensor, reg: float) -> None:
        u = (self.C - v[..., None, :]).amin(-1)
        K = v[..., None, :] - self.C
        self._K = K.add_(u[..., None]).mul_(1 / reg).exp_()
        self._u, self._v, self._reg = u, v, reg


def _log(sums: Tensor) -> Tensor:
    return sums.clamp_min(torch.finfo(sums.dtype).tiny).log()
