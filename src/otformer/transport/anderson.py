r"""Anderson mixing: extrapolates a fixed-point iteration v ← v + f(v) from its last few residuals.

Keep the last differences ΔV, ΔF of iterates and residuals, find the combination θ of the ΔF nearest to the present
residual, and step to where that linear model puts the zero:

    θ = argmin ‖f − Σ θ_k ΔF_k‖²_w,        v ← v + f − Σ θ_k (ΔV_k + ΔF_k).

For a linear map this is GMRES; near the solution a layer is linear. Problems of a batch are mixed each for itself.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Anderson:
    """State of the mixing for vectors [..., m]; ``weight`` [..., m] is the metric w of the least-squares problem."""

    def __init__(self, weight: Tensor, memory: int = 32, ridge: float = 1e-12) -> None:
        self.weight, self.ridge = weight, ridge
        self._dV = weight.new_zeros(*weight.shape[:-1], memory, weight.shape[-1])  # a slot of zeros has no effect
        self._dF = torch.zeros_like(self._dV)
        self._last: tuple[Tensor, Tensor] | None = None
        self._dropped = torch.zeros(weight.shape[:-1], dtype=torch.bool, device=weight.device)
        self._steps = 0

    def step(self, v: Tensor, f: Tensor, forget: Tensor | None = None) -> Tensor:
        """The next iterate after v with residual f. Where ``forget`` [...] is true, the past and v itself are dropped."""
        if self._last is not None:
            slot = self._steps % self._dV.shape[-2]
            self._dV[..., slot, :], self._dF[..., slot, :] = v - self._last[0], f - self._last[1]
            self._dV[self._dropped, slot], self._dF[self._dropped, slot] = 0, 0
            self._steps += 1
        if forget is not None:
            self._dV[forget], self._dF[forget] = 0, 0
            self._dropped = forget
        self._last = v, f
        if self._steps == 0:
            return v + f
        used = min(self._steps, self._dV.shape[-2])
        dV, dF = self._dV[..., :used, :], self._dF[..., :used, :]
        scale = dF.abs().amax((-2, -1), keepdim=True).clamp_min(torch.finfo(f.dtype).tiny)
        scaled = dF / scale  # so that products of small residuals do not underflow
        weighted = scaled * self.weight[..., None, :]
        gram = weighted @ scaled.mT
        largest = gram.diagonal(dim1=-2, dim2=-1).amax(-1)[..., None].clamp_min(torch.finfo(f.dtype).tiny)
        gram.diagonal(dim1=-2, dim2=-1).add_(self.ridge * largest)
        theta, _ = torch.linalg.solve_ex(gram, weighted @ (f[..., None] / scale))  # [..., used, 1]
        theta = torch.nan_to_num(theta, nan=0.0, posinf=0.0, neginf=0.0)
        return v + f - ((dV + dF) * theta).sum(-2)

    def select(self, keep: Tensor) -> None:
        """Go on with some of the problems only; ``keep`` are indices into the batch axis."""
        self.weight, self._dV, self._dF = self.weight[keep], self._dV[keep], self._dF[keep]
        self._dropped = self._dropped[keep]
        if self._last is not None:
            self._last = self._last[0][keep], self._last[1][keep]
