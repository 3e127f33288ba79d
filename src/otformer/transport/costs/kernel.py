"""A cost between weighted points, as the layers of the network see it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from otformer.errors import ArgumentError

ENTROPY = 100.0  # λ: more than the logs of weights make potentials differ by
Steps = Iterator[tuple[Tensor, Tensor, float]]  # u, v and the marginal error of their plan, without end


class Kernel:
    """The sums that a layer needs, of exp((u_i + v_j − C_ij)/λ − 1) over rows and columns.

    A kernel has ``log_a`` [..., n] and ``log_b`` [..., m], the logs of the weights; ``spread``, a bound on the range of its
    costs; and `log_ratio`. All other verbs are for kernels that can do more: passes in float32, on fewer points, or in an
    order of their own.
    """

    log_a: Tensor
    log_b: Tensor
    spread: float
    suffix = ""  # of a method's name: how passes are computed
    finish = "float64"  # in which passes decide
    coarsens = False  # whether `thinned` leaves points out

    def log_ratio(self, u: Tensor, v: Tensor, reg: float, rows: bool) -> Tensor:
        """log(S/a) of the rows [..., n] or log(S/b) of the columns [..., m], S the sums of exp((u + v − C)/λ − 1)."""
        raise NotImplementedError

    def plan(self, u: Tensor, v: Tensor, reg: float) -> Any:
        """The plan of these potentials, or the kernel that represents it."""
        return self

    # Precision

    def deciding(self, tol: float, reg: float) -> Kernel:
        """The same, with passes whose rounding is far below ``tol``, a share of the mass."""
        return self

    def rounding(self, reg: float) -> float:
        """A bound on the error of a side's sums, as a share of the mass; 0 for that of float64."""
        return 0.0

    def rough(self, single: bool, tol: float) -> Kernel | None:
        """Return a float32 version, or None if float32 cannot help; ``single``: the input is float32."""
        return None

    @property
    def squares(self) -> float:
        """Estimate the largest number in a pass."""
        return self.spread

    def expect(self, u: Tensor) -> None:
        """A hint: the next steps begin with a u near this one."""

    def release(self) -> None:
        """Memory held for steps is free for another problem."""

    # Order

    @property
    def laid(self) -> Kernel:
        """The kernel whose vectors are in the order that is best for it."""
        return self

    def lay(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Potentials in the order of `laid`."""
        return u, v

    def take(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Potentials of `laid`, as the points were given."""
        return u, v

    # Fewer points

    def strides(self, reg: float, fewest: int) -> tuple[int, int]:
        """The number of neighbours on either side that can be merged into one point at this λ."""
        return 1, 1

    def thinned(self, rows: int, columns: int) -> Kernel:
        """Every ``rows`` and ``columns`` neighbours as one point, with their mass."""
        return self

    def steps(self, reg: float, v: Tensor, memory: int, ridge: float) -> Steps | None:
        """Sinkhorn steps from v at one λ, where a kernel has its own; otherwise solvers/blocks.py takes them."""
        return None


def mass_of(kernel: Kernel) -> float:
    """Σ b, which a kernel may know: on a GPU to ask is to wait."""
    known: float | None = getattr(kernel, "mass", None)
    return float(kernel.log_b.exp().sum()) if known is None else known


def nothing(log_weights: Tensor) -> Tensor:
    """Return zero potentials, −∞ for points without mass."""
    return torch.where(log_weights > -math.inf, 0.0, log_weights)


def returned(cost: Any, verb: str, t: Any, shape: tuple[int, ...]) -> Tensor:
    """What a verb of a cost has returned, if it is the tensor that the layers go on with."""
    if isinstance(t, Tensor) and t.dtype == torch.float64 and t.shape == shape:
        return t
    came = f"{t.dtype} of shape {tuple(t.shape)}" if isinstance(t, Tensor) else f"{type(t).__module__}.{type(t).__name__}"
    raise ArgumentError("M", f"return a float64 tensor of shape {shape} from {type(cost).__name__}.{verb}", came)


def reach(spread: float, reg: float) -> float:
    """How far apart potentials of a plan can be: as costs are, and a little entropy."""
    return spread + ENTROPY * reg
