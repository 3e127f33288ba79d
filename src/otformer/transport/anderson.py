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
        self._kept: Tensor | None = None  # [..., 1], 0 where the last iterate was dropped; None: nowhere
        self._steps = 0

    def step(self, v: Tensor, f: Tensor, forget: Tensor | None = None) -> Tensor:
        """The next iterate after v with residual f. Where ``forget`` [...] is true, the past and v itself are dropped."""
        if self._last is not None:
            slot, kept = self._steps % self._dV.shape[-2], 1 if self._kept is None else self._kept
            self._dV[..., slot, :], self._dF[..., slot, :] = (v - self._last[0]) * kept, (f - self._last[1]) * kept
            self._steps += 1
        self._kept = (~forget).to(v)[..., None] if forget is not None and bool(forget.any()) else None
        if self._kept is not None:
            self._dV *= self._kept[..., None]
            self._dF *= self._kept[..., None]
        self._last = v, f
        if self._steps == 0:
            return v + f
        used = min(self._steps, self._dV.shape[-2])
        dV, dF = self._dV[..., :used, :], self._dF[..., :used, :]
        scale = dF.abs().amax((-2, -1), keepdim=True).clamp_min(torch.finfo(f.dtype).tiny)
        scaled = dF / scale  # so that products of small residuals do not underflow
        weighted = scaled * self.weight[..., None, :]
        theta = self._solve(weighted @ scaled.mT, weighted @ (f[..., None] / scale))
        return v + f - ((dV + dF) * theta).sum(-2)

    def _solve(self, gram: Tensor, right: Tensor) -> Tensor:
        """θ [..., used, 1]; on the CPU, where so small a system takes less time than the launch of a solver on a GPU."""
        gram, right = gram.cpu(), right.cpu()
        largest = gram.diagonal(dim1=-2, dim2=-1).amax(-1)[..., None].clamp_min(torch.finfo(gram.dtype).tiny)
        gram.diagonal(dim1=-2, dim2=-1).add_(self.ridge * largest)
        theta, _ = torch.linalg.solve_ex(gram, right)
        return torch.nan_to_num(theta, nan=0.0, posinf=0.0, neginf=0.0).to(self.weight.device)
