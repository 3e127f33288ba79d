r"""Anderson mixing: extrapolates a fixed-point iteration v ← v + f(v) from its last few residuals.

Keep the last differences ΔV, ΔF of iterates and residuals, find the combination θ of the ΔF nearest to the present
residual, and step to where that linear model puts the zero:

    θ = argmin ‖f − Σ θ_k ΔF_k‖²_w,        v ← v + f − Σ θ_k (ΔV_k + ΔF_k).

For a linear map this is GMRES; near the solution a layer is linear. Problems of a batch are mixed each for itself.

Far from the solution the model can be wrong, so `Safeguarded` mixing watches how much mass an iterate has still to move.
When that doubles, the mixing forgets and restarts from the best plain step; a step longer than potentials of any plan are
apart is replaced by a plain one.

[1] D. G. Anderson: Iterative procedures for nonlinear integral equations. J. ACM 12(4), 1965.
[2] H. F. Walker, P. Ni: Anderson acceleration for fixed-point iterations. SIAM J. Numer. Anal. 49(4), 2011.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

Number = Any  # a float for one problem, a tensor [...] for a batch: for one problem torch costs more than the comparison
# z [..., k] → T(z) [..., k], mass still to move [...], error of z [...], the other side's potential [..., l]
Step = Callable[[Tensor], tuple[Tensor, Any, Any, Tensor]]


class Mixing(NamedTuple):
    """The number of mixed residuals (0: none), and the ridge of the least-squares problem, relative to its diagonal."""

    memory: int = 32
    ridge: float = 1e-12


MIXING = Mixing()


class Anderson:
    """State of the mixing for vectors [..., m]; ``weight`` [..., m] is the metric w of the least-squares problem.

    On a GPU a small problem takes as long as its operations are many: residuals lie beside each other, so that all their
    products are one matrix product, and one copy each way.
    """

    def __init__(self, weight: Tensor, mixing: Mixing = MIXING) -> None:
        memory, self.ridge = mixing
        self.weight = weight
        self._moves = weight.new_zeros(*weight.shape[:-1], memory, weight.shape[-1])  # ΔV + ΔF; zeros have no effect
        self._residuals = weight.new_zeros(*weight.shape[:-1], 1 + memory, weight.shape[-1])  # f, then ΔF
        self._last: tuple[Tensor, Tensor] | None = None
        self._dropped: Tensor | None = None  # [..., 1, 1], true where the last iterate was dropped; None: nowhere
        self._steps = 0

    def step(self, v: Tensor, f: Tensor, keep: bool | Tensor = True) -> Tensor:
        """The next iterate after v with residual f. Where ``keep`` [...] is false, the past and v itself are dropped."""
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
        if not every(keep):
            self._dropped = ~torch.as_tensor(keep, device=v.device)[..., None, None]
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


class Least:
    """Keep the best iterate so far, of every problem of a batch: ``state``, tensors [..., k], at the least ``error``."""

    def __init__(self, *state: Tensor) -> None:
        self.state: tuple[Any, ...] = state
        self.error: Number = number(state[0].new_full(state[0].shape[:-1], torch.inf))

    def see(self, error: Number, *state: Any) -> bool:
        """Take every iterate that is no worse than its best; return whether there was any."""
        better = error <= self.error
        improved = better if isinstance(better, bool) else bool(better.any())
        if improved:
            self.error = pick(better, error, self.error)
            self.state = tuple(pick(better, new, old) for new, old in zip(state, self.state, strict=True))
        return improved


class Safeguarded:
    """Choose what follows an iterate z, by what a `Step` found there: the mixed step where it can be trusted, see above."""

    def __init__(self, weight: Tensor, reach: float = torch.inf, mixing: Mixing = MIXING) -> None:
        self.mixing, self.reach = Anderson(weight, mixing), reach
        self.best: Least | None = None  # plain step

    def __call__(self, z: Tensor, found: tuple[Tensor, Any, Any, Tensor]) -> Tensor:
        self.best = best = self.best or Least(z)
        image, size = found[0], number(found[1])
        keep = size <= 2 * best.error  # not where it is not a number
        best.see(size, image)
        best.error = pick(keep, best.error, torch.inf)
        mixed = self.mixing.step(z, image - z, keep)
        tame = number(torch.linalg.vector_norm(mixed - z, torch.inf, -1)) <= self.reach
        return pick(keep, pick(tame, mixed, image), best.state[0])


def number(t: float | Tensor) -> Number:
    return t if isinstance(t, Tensor) and t.ndim else float(t)


def every(true: bool | Tensor) -> bool:
    return true if isinstance(true, bool) else bool(true.all())


def pick(where: bool | Tensor, new: Any, old: Any) -> Any:
    """Select ``new`` where the condition holds, per problem of a batch: numbers [...], or tensors [..., k]."""
    if isinstance(where, bool):
        return new if where else old
    return torch.where(where.reshape(where.shape + (1,) * (new.ndim - where.ndim)), new, old)
