r"""The paper's table of parameters, letter by letter, so that its misprints can be shown (docs/errata.md).

The table gives λP as a row of column blocks. Indices below are the paper's, 1-based; e(k, size) is its e_k^{(size)}.
Where a block has no consistent shape the builder raises, as it must.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otformer.network.registers import Registers


def _e(k: int, size: int) -> Tensor:
    if not 1 <= k <= size:
        raise ValueError(f"the table asks for the unit vector e_{k} of length {size}: there is none")
    vector = torch.zeros(size, dtype=torch.float64)
    vector[k - 1] = 1.0
    return vector


def printed_rows(dim: int, reg: float, *, misprint: bool = True) -> Tensor:
    """P^(1) of the table. Its entry for v is e_{2d+5}^{(p)} with p = d + 9; ``misprint=False`` puts e_{d+5}^{(p)}."""
    d, p, width = dim, dim + 9, 2 * dim + 9
    top = torch.zeros(d, dtype=torch.float64)

    def column(tail: Tensor) -> Tensor:
        return torch.cat([top, tail])[:, None]

    empty = torch.zeros(width, 1, dtype=torch.float64)
    twice = torch.cat([2 * torch.eye(d), torch.zeros(p, d)]).double()
    blocks = [
        torch.zeros(width, d, dtype=torch.float64),
        twice,
        empty,
        column(-_e(d + 3, p)),
        column(-_e(d + 1, p)),
        column(_e(d + 7, p)),
        column(-reg * _e(d + 5, p)),
        empty,
        empty,
        column(_e(2 * d + 5 if misprint else d + 5, p)),
        empty,
    ]
    return torch.cat(blocks, dim=1) / reg


def printed_columns(dim: int, reg: float, *, misprint: bool = True) -> Tensor:
    """P^(2) of the table. Its vector columns hold I_d where 0_d must stand; only d = 1 has a consistent shape."""
    d, width = dim, 2 * dim + 9
    if misprint and d != 1:
        raise ValueError(f"the table stacks 0_{d}, I_{d}×{d} and a 9-vector in one column: no such column for d = {d}")

    def column(tail: Tensor) -> Tensor:
        middle = torch.ones(d) if misprint else torch.zeros(d)  # I_1 = 1 as printed
        return torch.cat([torch.zeros(d), middle, tail]).double()[:, None]

    empty = torch.zeros(width, 1, dtype=torch.float64)
    twice = torch.cat([torch.zeros(d, d), 2 * torch.eye(d), torch.zeros(9, d)]).double()
    blocks = [
        twice,
        torch.zeros(width, d, dtype=torch.float64),
        column(-_e(3, 9)),
        empty,
        column(-_e(2, 9)),
        column(_e(8, 9)),
        column(-reg * _e(5, 9)),
        empty,
        column(_e(5, 9)),
        empty,
        empty,
    ]
    return torch.cat(blocks, dim=1) / reg


def printed_layer(Z: Tensor, P: tuple[Tensor, Tensor], step: float) -> Tensor:
    """One layer exactly as printed: Z + Σ_j softmax(Z P_j Zᵀ) Z V_j B_j with B = +γI, every row updated."""
    registers = Registers((Z.shape[-1] - 9) // 2, marginals=False)
    out = Z.clone()
    for bilinear, written in zip(P, ("u", "v"), strict=True):
        A = torch.softmax(Z @ bilinear @ Z.T, dim=-1)
        V = torch.zeros(registers.width, registers.width, dtype=Z.dtype)
        V[registers.column("sign"), registers.column(written)] = 1.0
        out = out + A @ Z @ V @ (step * torch.eye(registers.width, dtype=Z.dtype))
    return out
