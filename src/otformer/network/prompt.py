r"""The engineered prompt Z₀: one row a token, one sink row, columns by name (registers.py).

Token i carries x_i *and* y_i. Where there are more points on one side, or a point is absent (padding, a zero weight),
its square is set to ``ABSENT``: every logit towards it becomes −ABSENT/λ and softmax gives it exactly 0. The rest of
the network does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.network.features import Features
from otformer.network.registers import Registers

ABSENT = 1e18  # finite, so that 0 · ABSENT = 0; above any cost, and ABSENT/λ fits in float32 for λ > 1e-20


@dataclass(frozen=True)
class Prompt:
    """Z₀ and what it stands for. Shapes: Z [B, T+1, width]; a, x_present [B, n]; b, y_present [B, m]; T = max(n, m)."""

    Z: Tensor
    a: Tensor
    b: Tensor
    x_present: Tensor
    y_present: Tensor
    batched: bool

    @property
    def tokens(self) -> int:
        return self.Z.shape[-2] - 1

    @property
    def complete(self) -> bool:
        """Whether every token holds both an x and a y: as many of one as of the other, none absent."""
        return self.a.shape == self.b.shape and bool(self.x_present.all() and self.y_present.all())


def engineered(features: Features, registers: Registers, a: Any = None, b: Any = None) -> Prompt:
    """The paper's prompt, [B, T+1, width]. A weight of 0 means that the point is absent.

    Default weights are the paper's: a = 1, and b = n/m, so that both sides have mass n (for n = m: doubly stochastic).

    >>> from otformer.network.features import squared_euclidean
    >>> p = engineered(squared_euclidean([[2.0]], [[3.0]]), Registers(1, marginals=False))
    >>> [[int(z) for z in row] for row in p.Z[0]]
    [[2, 3, 4, 9, 1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0]]
    """
    batched = features.x.ndim == 3
    n, m = features.x.shape[-2], features.y.shape[-2]
    if n == 0 or m == 0:
        raise ValueError(f"x and y must hold at least one point each, got {n} and {m}")
    for name, squares in (("x", features.x_sq), ("y", features.y_sq)):
        if not bool((squares.abs() < ABSENT / 1e3).all()):
            largest = squares.abs().max().item()
            raise ValueError(f"{name} is too large: squared norms must stay below {ABSENT / 1e3:g}, got {largest:g}")
    a_, b_ = fill_weights(features, a, b)
    f = features
    if not batched:
        f, a_, b_ = Features(f.x[None], f.y[None], f.x_sq[None], f.y_sq[None]), a_[None], b_[None]
    if not registers.marginals and not (bool((a_ == 1).all()) and bool((b_ == 1).all())):
        raise ValueError("weights a and b need the two marginal registers: build the network with marginals=True")

    T, B = max(n, m), f.x.shape[0]
    Z = f.x.new_zeros(B, T + 1, registers.width)
    Z[:, :T, registers["sign"]] = 1
    Z[:, T, registers["sign"]] = -1
    for name in ("one1", "one2", "one3"):
        Z[:, :T, registers[name]] = 1
    for point, square, log_weight, values, squares, weight in (
        ("x", "x_sq", "log_a", f.x, f.x_sq, a_),
        ("y", "y_sq", "log_b", f.y, f.y_sq, b_),
    ):
        k = values.shape[-2]
        present = weight > 0
        Z[:, :k, registers[point]] = values
        Z[:, :T, registers[square]] = ABSENT
        Z[:, :k, registers.column(square)] = torch.where(present, squares, ABSENT)
        if registers.marginals:
            Z[:, :k, registers.column(log_weight)] = torch.where(present, weight, 1).log()
    return Prompt(Z, a_, b_, a_ > 0, b_ > 0, batched)


def fill_weights(f: Features, a: Any = None, b: Any = None) -> tuple[Tensor, Tensor]:
    """Checked weights of both sides. Where only one is given, the other is uniform with the same mass."""
    n, m = f.x.shape[-2], f.y.shape[-2]
    shape_a, shape_b = tuple(f.x_sq.shape), tuple(f.y_sq.shape)
    if a is None and b is None:
        return torch.ones_like(f.x_sq), torch.full_like(f.y_sq, n / m)
    if a is not None:
        a = checks.weights("a", a, shape_a, f.x)
    if b is not None:
        b = checks.weights("b", b, shape_b, f.x)
    if a is None:
        a = (b.sum(-1, keepdim=True) / n).expand(shape_a)
    if b is None:
        b = (a.sum(-1, keepdim=True) / m).expand(shape_b)
    for name, weight in (("a", a), ("b", b)):
        if bool((weight.sum(-1) <= 0).any()):
            raise ValueError(f"{name} must have a positive sum, got all zeros")
    checks.same_mass(a, b)
    return a, b


def plain(x: Tensor, y: Tensor) -> Tensor:
    """The prompt without engineering, Z' = [x, y, 0] of shape [..., n, 2d+1]: no squares, no ones, no memory, no sink."""
    return torch.cat([x, y, torch.zeros_like(x[..., :1])], dim=-1)


def pad(problems: Sequence[Features], weights: Sequence[tuple[Tensor, Tensor]]) -> tuple[Features, Tensor, Tensor]:
    """Ragged problems as one batch: absent points get weight 0. Returns features, a [B, n], b [B, m]."""
    n, m = max(f.x.shape[-2] for f in problems), max(f.y.shape[-2] for f in problems)
    batch = Features(
        x=torch.stack([_fill(f.x, n) for f in problems]),
        y=torch.stack([_fill(f.y, m) for f in problems]),
        x_sq=torch.stack([_fill(f.x_sq, n) for f in problems]),
        y_sq=torch.stack([_fill(f.y_sq, m) for f in problems]),
    )
    a, b = torch.stack([_fill(a, n) for a, _ in weights]), torch.stack([_fill(b, m) for _, b in weights])
    return batch, a, b


def _fill(t: Tensor, length: int) -> Tensor:
    """Zeros behind the rows of t up to ``length``."""
    return torch.cat([t, t.new_zeros(length - t.shape[0], *t.shape[1:])])
