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
    return torch.eye(size, dtype=torch.float64)[k - 1]


def _table(dim: int, reg: float, twice: tuple[str, str], columns: dict[str, Tensor]) -> Tensor:
    """P from λP: 2I in the block of rows and columns ``twice``, and the columns given, each filled up with zeros above."""
    r = Registers(dim, marginals=False)
    table = torch.zeros(r.width, r.width, dtype=torch.float64)
    table[r[twice[0]], r[twice[1]]] = 2 * torch.eye(dim, dtype=torch.float64)
    for name, tail in columns.items():
        table[-len(tail) :, r.column(name)] = tail
    return table / reg


def printed_rows(dim: int, reg: float, *, misprint: bool = True) -> Tensor:
    """P^(1) of the table. Its entry for v is e_{2d+5}^{(p)} with p = d + 9; ``misprint=False`` puts e_{d+5}^{(p)}."""
    d, p = dim, dim + 9
    columns = {
        "y_sq": -_e(d + 3, p),
        "one1": -_e(d + 1, p),
        "one2": _e(d + 7, p),
        "one3": -reg * _e(d + 5, p),
        "v": _e(2 * d + 5 if misprint else d + 5, p),
    }
    return _table(d, reg, ("x", "y"), columns)


def printed_columns(dim: int, reg: float, *, misprint: bool = True) -> Tensor:
    """P^(2) of the table. Its vector columns hold I_d where 0_d must stand; only d = 1 has a consistent shape."""
    if misprint and dim != 1:
        raise ValueError(f"the table stacks 0_d, I_d×d and a 9-vector in one column: no such column for d = {dim}")
    columns = {"x_sq": -_e(3, 9), "one1": -_e(2, 9), "one2": _e(8, 9), "one3": -reg * _e(5, 9), "u": _e(5, 9)}
    if misprint:
        columns = {name: torch.cat([tail.new_ones(1), tail]) for name, tail in columns.items()}  # I_1 = 1 as printed
    return _table(dim, reg, ("y", "x"), columns)


def printed_layer(Z: Tensor, P: tuple[Tensor, Tensor], step: float) -> Tensor:
    """One layer exactly as printed: Z + Σ_j softmax(Z P_j Zᵀ) Z V_j B_j with B = +γI, every row updated."""
    registers = Registers((Z.shape[-1] - 9) // 2, marginals=False)
    out = Z.clone()
    for bilinear, written in zip(P, ("u", "v"), strict=True):
        A = torch.softmax(Z @ bilinear @ Z.T, dim=-1)
        out[:, registers[written]] += step * (A @ Z[:, registers["sign"]])  # V moves ``sign`` into ``written``
    return out
