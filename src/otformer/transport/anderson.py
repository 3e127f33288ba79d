r"""Anderson mixing: extrapolates a fixed-point iteration v ← v + f(v) from its last few residuals.

Keep the last differences ΔV, ΔF of iterates and residuals, find the combination θ of the ΔF nearest to the present
residual, and step to where that linear model puts the zero:

    θ = argmin ‖f − Σ θ_k ΔF_k‖²_w,        v ← v + f − Σ θ_k (ΔV_k + ΔF_k).

For a linear map this is GMRES; near the solution a layer is linear.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Anderson:
    """State of the mixing for vectors of one length; ``weight`` is the metric w of the least-squares problem."""

    weight: Tensor
    memory: int = 16
    ridge: float = 1e-12
    _points: list[Tensor] = field(default_factory=list)
    _residuals: list[Tensor] = field(default_factory=list)

    def forget(self) -> None:
        self._points.clear()
        self._residuals.clear()

    def step(self, v: Tensor, f: Tensor) -> Tensor:
        """The next iterate after v with residual f."""
        self._points.append(v)
        self._residuals.append(f)
        if len(self._points) > self.memory + 1:
            del self._points[0], self._residuals[0]
        if len(self._points) == 1:
            return v + f
        dV, dF = torch.stack(self._points).diff(dim=0), torch.stack(self._residuals).diff(dim=0)
        scale = dF.abs().max().clamp_min(torch.finfo(f.dtype).tiny)
        W = dF / scale * self.weight  # scaled, so that products of small residuals do not underflow
        gram = W @ (dF / scale).mT
        gram = gram + self.ridge * gram.diagonal().max() * torch.eye(len(gram), dtype=f.dtype, device=f.device)
        theta, info = torch.linalg.solve_ex(gram, W @ (f / scale))
        if int(info) or not bool(torch.isfinite(theta).all()):
            return v + f
        return v + f - theta @ (dV + dF)
