r"""The engineered prompt Z₀: one row per token, one row for the sink, columns by name (registers.py).

Token i carries x_i *and* y_i. Where there are more points on one side, or a point is absent (padding, a zero weight),
its square is set to ``ABSENT``: every logit towards it becomes −ABSENT/λ and softmax gives it exactly 0. The rest of
the network does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from otformer import checks, weight_checks
from otformer.network.edits import Editable
from otformer.network.features import Features
from otformer.network.registers import Registers

ABSENT = 1e18  # finite, so that 0 · ABSENT = 0; above any cost, and ABSENT/λ fits in float32 for λ > 1e-20


@dataclass(frozen=True, repr=False, eq=False)
class Prompt(Editable):
    """Z₀ and what it stands for. Shapes: Z [B, T+1, width]; a, x_present [B, n]; b, y_present [B, m]; T = max(n, m).

    ``blank``, ``scale``, ``add`` and ``copy`` edit its registers (edits.py); ``net(prompt)`` runs a network on it.
    """

    Z: Tensor
    registers: Registers
    a: Tensor
    b: Tensor
    x_present: Tensor
    y_present: Tensor
    batched: bool
    unit: Tensor | None = None  # [B]: the problem's costs are this times the prompt's; None: 1
    edits: tuple[str, ...] = ()  # what was changed, in words
    original: Prompt | None = None  # the prompt before its edits

    def __repr__(self) -> str:
        *batch, n, m = self.shape
        problem = f"{batch[0]} problems of {n}×{m} points" if batch else f"{n}×{m} points"
        edited = f", edited: {'; '.join(self.edits)}" if self.edits else ""
        return f"Prompt({problem}, {self.tokens} tokens and a sink, {', '.join(self.registers)}{edited})"

    @property
    def tokens(self) -> int:
        return self.Z.shape[-2] - 1

    @property
    def shape(self) -> tuple[int, ...]:
        """((B,) n, m): the shape of a plan."""
        whole = (*self.a.shape, self.b.shape[-1])
        return whole if self.batched else whole[1:]

    def out(self, t: Tensor, axis: int = 0) -> Tensor:
        """A result without its batch axis, if the points had none."""
        return t if self.batched else t.squeeze(axis)

    @property
    def complete(self) -> bool:
        """Whether every token holds both an x and a y: as many of one as of the other, none absent."""
        return self.a.shape == self.b.shape and bool(self.x_present.all() and self.y_present.all())


def engineered(
    features: Features, registers: Registers, a: Any = None, b: Any = None, auto: bool = False, mean: bool = False
) -> Prompt:
    """The paper's prompt, [B, T+1, width]. A weight of 0 means that the point is absent; ``auto``: costs are scaled to 1.

    Default weights are the paper's: a = 1, and b = n/m, so that both sides have mass n (for n = m: doubly stochastic).
    ``mean``: the sink's value is −1/n and all weights are 1/n, as in the author's notebooks.

    >>> from otformer.network.features import squared_euclidean
    >>> p = engineered(squared_euclidean([[2.0]], [[3.0]]), Registers(1, marginals=False))
    >>> [[int(z) for z in row] for row in p.Z[0]]
    [[2, 3, 4, 9, 1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0]]
    """
    batched = features.x.ndim == 3
    n, m = features.x.shape[-2], features.y.shape[-2]
    if n == 0 or m == 0:
        raise checks.ArgumentError("x and y", "hold at least one point each", f"{n} and {m}")
    a_, b_ = fill_weights(features, a, b)
    f, unit = features, None
    if not batched:
        f, a_, b_ = Features(f.x[None], f.y[None], f.x_sq[None], f.y_sq[None]), a_[None], b_[None]
    if auto:
        f, unit = unit_costs(f, a_ > 0, b_ > 0)
    if not registers.marginals and not (bool((a_ == 1).all()) and bool((b_ == 1).all())):
        raise ValueError("weights a and b, or n ≠ m, need the two marginal registers: use a network with marginals=True")

    Z = tokens(f, registers)
    if mean:
        if registers.marginals:
            raise ValueError("sink_value='mean' sets the weights itself: use a network with marginals=False")
        Z[:, -1, registers["sign"]], a_, b_ = -1 / n, a_ / n, b_ / n
    for name, log_weight, squares, weight in (("x", "log_a", f.x_sq, a_), ("y", "log_b", f.y_sq, b_)):
        if not bool((squares.abs() < ABSENT / 1e3).all()):
            largest = squares.abs().max().item()
            raise ValueError(f"{name} is too large: squared norms must stay below {ABSENT / 1e3:g}, got {largest:g}")
        if f"{name}_sq" not in registers:  # without squares no point can be absent, and by the weights above none is
            continue
        k, present = weight.shape[-1], weight > 0
        Z[:, :-1, registers[f"{name}_sq"]] = ABSENT
        Z[:, :k, registers.column(f"{name}_sq")] = torch.where(present, squares, ABSENT)
        if registers.marginals:
            Z[:, :k, registers.column(log_weight)] = torch.where(present, weight, 1).log()
    return Prompt(Z, registers, a_, b_, a_ > 0, b_ > 0, batched, unit)


def tokens(f: Features, registers: Registers) -> Tensor:
    """One row per token, register by register, and the sink's row last if there is a register ``sign``; [..., T(+1), width].

    >>> from otformer.network.registers import PLAIN
    >>> x = torch.tensor([[2.0]])
    >>> tokens(Features.of_points(x, x), Registers(1, marginals=False, names=PLAIN))       # Z' = [x, y, 0]: no sink
    tensor([[2., 2., 0.]])
    """
    T, sink = max(f.x.shape[-2], f.y.shape[-2]), int("sign" in registers)
    Z = f.x.new_zeros(*f.x.shape[:-2], T + sink, registers.width)
    for name, values in {"x": f.x, "y": f.y, "x_sq": f.x_sq[..., None], "y_sq": f.y_sq[..., None]}.items():
        if name in registers:
            Z[..., : values.shape[-2], registers[name]] = values
    for name in ("one1", "one2", "one3", "sign"):
        if name in registers:
            Z[..., :T, registers[name]] = 1
    if sink:
        Z[..., T, registers["sign"]] = -1
    return Z


def unit_costs(f: Features, x_present: Tensor, y_present: Tensor) -> tuple[Features, Tensor]:
    """Features of C/k, k the largest |C_ij| of present points, and k, [B]. Absent points become 0.

    The plan of (C, kλ) is that of (C/k, λ), and so a network with λ solves C at kλ: exactly.
    """
    C = (f.cost() * (x_present[..., :, None] & y_present[..., None, :])).abs()
    k = C.detach().amax((-1, -2))
    k = torch.where(k > 0, k, 1)
    root = k.sqrt()[:, None, None]
    x, y = (torch.where(present[..., None], t / root, 0) for t, present in ((f.x, x_present), (f.y, y_present)))
    squares = (torch.where(present, t / k[:, None], 0) for t, present in ((f.x_sq, x_present), (f.y_sq, y_present)))
    return Features(x, y, *squares), k


def fill_weights(f: Features, a: Any = None, b: Any = None) -> tuple[Tensor, Tensor]:
    """Checked weights of both sides. Where only one is given, the other is uniform with the same mass."""
    n, m = f.x.shape[-2], f.y.shape[-2]
    shape_a, shape_b = tuple(f.x_sq.shape), tuple(f.y_sq.shape)
    if a is None and b is None:
        return torch.ones_like(f.x_sq), torch.full_like(f.y_sq, n / m)
    a = None if a is None else weight_checks.weights("a", a, shape_a, f.x)
    b = (a.sum(-1, keepdim=True) / m).expand(shape_b) if b is None else weight_checks.weights("b", b, shape_b, f.x)
    a = (b.sum(-1, keepdim=True) / n).expand(shape_a) if a is None else a
    weight_checks.same_mass(a, b)
    return a, b
