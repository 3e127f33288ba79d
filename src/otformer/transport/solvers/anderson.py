r"""Anderson mixing: extrapolates a fixed-point iteration v ← v + f(v) from its last few residuals.

Keep the last differences ΔV, ΔF of iterates and residuals, find the combination θ of the ΔF nearest to the present
residual, and step to where that linear model puts the zero:

    θ = argmin ‖f − Σ θ_k ΔF_k‖²_w,        v ← v + f − Σ θ_k (ΔV_k + ΔF_k).

For a linear map this is GMRES; near the solution a layer is linear. Problems of a batch are mixed each for itself.

[1] D. G. Anderson: Iterative procedures for nonlinear integral equations. J. ACM 12(4), 1965.
[2] H. F. Walker, P. Ni: Anderson acceleration for fixed-point iterations. SIAM J. Numer. Anal. 49(4), 2011.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Anderson:
    """State of the mixing for vectors [..., m]; ``weight`` [..., m] is the metric w of the least-squares problem.

    On a GPU a small problem takes as long as its operations are many: residuals lie beside each other, so that all their
    products are one matrix product, and one copy each way.
    """

    def __init__(self, weight: Tensor, memory: int = 32, ridge: float = 1e-12) -> None:
        self.weight, self.ridge = weight, ridge
        self._moves = weight.new_zeros(*weight.shape[:-1], memory, weight.shape[-1])  # ΔV + ΔF; zeros have no effect
        self._residuals = weight.new_zeros(*weight.shape[:-1], 1 + memory, weight.shape[-1])  # f, then ΔF
        self._last: tuple[Tensor, Tensor] | None = None
        self._dropped: Tensor | None = None  # [..., 1, 1], true where the last iterate was dropped; None: nowhere
        self._steps = 0

    def step(self, v: Tensor, f: Tensor, forget: Tensor | None = None) -> Tensor:
        """The next iterate after v with residual f. Where ``forget`` [...] is true, the past and v itself are dropped."""
        memory = self._moves.shape[-2]
        if self._last is not None:
            slot = self._steps % memory
            move, change = self._moves[..., slot, :], self._residuals[..., slot + 1, :]
            torch.sub(f, self._last[1], out=change)
            torch.sub(v, self._last[0], out=move).add_(change)
            if self._dropped is not None:
                move.masked_fill_(self._dropped[..., 0], 0)
                change.masked_fill_(self._dropped[..., 0], 0)
            self._steps += 1
        self._dropped = None
        if forget is not None and bool(forget.any()):
            self._dropped = forget.to(v.device)[..., None, None]
            self._moves.masked_fill_(self._dropped, 0)
            self._residuals.masked_fill_(self._dropped, 0)
        self._last = v, f
        if self._steps == 0:
            return v + f
        used = min(self._steps, memory)
        self._residuals[..., 0, :] = f
        residuals = self._residuals[..., : used + 1, :]
        scale = torch.linalg.vector_norm(residuals[..., 1:, :], torch.inf, (-2, -1), keepdim=True)
        residuals = residuals / scale.clamp_min(torch.finfo(f.dtype).tiny)  # so that products of small ones do not underflow
        with torch.autocast(v.device.type, enabled=False):  # products in float32 stay in float32
            theta = self._solve((residuals * self.weight[..., None, :]) @ residuals.mT)
            return v + f - (theta @ self._moves[..., :used, :])[..., 0, :]

    def _solve(self, products: Tensor) -> Tensor:
        """θ [..., 1, used]; on the CPU, where so small a system takes less time than the launch of a solver on a GPU."""
        products = products.cpu()
        gram, right = products[..., 1:, 1:], products[..., 1:, :1]
        diagonal = gram.diagonal(dim1=-2, dim2=-1)
        diagonal.add_(self.ridge * diagonal.amax(-1)[..., None].clamp_min(torch.finfo(gram.dtype).tiny))
        theta, _ = torch.linalg.solve_ex(gram, right)
        theta = torch.nan_to_num(theta, nan=0.0, posinf=0.0, neginf=0.0).mT
        return theta.to(self.weight.device, non_blocking=True)
