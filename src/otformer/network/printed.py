r"""The paper's table of parameters with its misprints, and the network it describes, to be run (docs/errata.md).

The table gives λP as a row of column blocks. Indices below are the paper's, 1-based; e(k, size) is its e_k^{(size)}.
What the print leaves open, and how it is filled here, so that there is something to run:

- P^(2) has the blocks 0_d, 0_d, 0_3 (twice) and 0_{d×2}, 0_{d×2}, 0_{3×2}: 2d + 3 rows in a matrix of 2d + 9, for every d.
  The missing six rows are taken to be 0, so 0_3 is read as 0_9.
- P^(2) has I_d between 0_d and a 9-vector in one column, which is a column for d = 1 alone: other d raise.
- K and Q are not given, only P = K Qᵀ; logits are Z P Zᵀ, as in the proof, not ⟨K z_i, Q z_j⟩ (erratum 17).
- γ is not in the table: it is an argument (free in theorem 3.1, the lemma's in theorem 3.2).
- The sink's duals, "?" in the proof, start from the 0 of the prompt.

Nothing else is changed: e_{2d+5}, I_d, B = +γI and an updated sink are as printed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch
from torch import Tensor

from otformer import checks
from otformer.network.features import squared_euclidean
from otformer.network.prompt import engineered
from otformer.network.registers import Registers

MISPRINTS = (1, 2, 3, 4)  # the errata of `printed_network`: B's sign, P^(1), P^(2), the sink


def _e(k: int, size: int) -> Tensor:
    if not 1 <= k <= size:
        raise ValueError(f"the table asks for the unit vector e_{k} of length {size}: there is none")
    return torch.eye(size, dtype=torch.float64, device="cpu")[k - 1]


def _table(dim: int, reg: float, twice: tuple[str, str], columns: dict[str, Tensor]) -> Tensor:
    """P from λP: 2I in the block of rows and columns ``twice``, and the columns given, each filled up with zeros above."""
    r = Registers(dim, marginals=False)
    table = torch.zeros(r.width, r.width, dtype=torch.float64, device="cpu")
    table[r[twice[0]], r[twice[1]]] = 2 * torch.eye(dim, dtype=torch.float64, device="cpu")
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
    """P^(2) of the table. Its vector columns hold I_d where 0_d must stand: only for d = 1 are they columns."""
    if misprint and dim != 1:
        raise ValueError(f"the table stacks 0_d, I_d×d and a 9-vector in one column: no such column for d = {dim}")
    columns = {"x_sq": -_e(3, 9), "one1": -_e(2, 9), "one2": _e(8, 9), "one3": -reg * _e(5, 9), "u": _e(5, 9)}
    if misprint:
        columns = {name: torch.cat([tail.new_ones(1), tail]) for name, tail in columns.items()}  # I_1 = 1 as printed
    return _table(dim, reg, ("y", "x"), columns)


def printed_layer(Z: Tensor, P: tuple[Tensor, Tensor], step: float) -> Tensor:
    """One layer as printed: Z + Σ_j softmax(Z P_j Zᵀ) Z V_j B_j with B = +γI, every row updated."""
    registers = Registers((Z.shape[-1] - 9) // 2, marginals=False)
    out = Z.clone()
    for bilinear, written in zip(P, ("u", "v"), strict=True):
        A = torch.softmax(Z @ bilinear @ Z.T, dim=-1)
        out[:, registers[written]] += step * (A @ Z[:, registers["sign"]])  # V moves ``sign`` into ``written``
    return out


def printed_network(x: Tensor, y: Tensor, reg: float, step: float, corrected: Collection[int] = ()) -> Iterator[Tensor]:
    """Z_0, Z_1, … [n+1, 2d+9] of the network as printed, for ever: the table, B = +γI, every row updated.

    Parameters
    ----------
    x, y : Tensor
        Points, [n, d]; d = 1 unless erratum 3 is corrected.
    reg, step : float
        λ and γ.
    corrected : collection of int
        Errata to correct, among 1 (B = −γI), 2 (P^(1): e_{d+5}), 3 (P^(2): 0_d) and 4 (the sink stays as it is).
        With all four the columns u and v are gradient descent on the dual.

    Examples
    --------
    >>> points = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> for errata in ((), MISPRINTS):                       # u and v of the first token after one layer
    ...     Z = list(zip(range(2), printed_network(points, points, reg=1.0, step=1.0, corrected=errata)))[1][1]
    ...     print([round(float(z), 3) for z in Z[0, 8:10]])  # S = (1 + 1/e)/e = 0.503: ∂L/∂u = S − 1, so u must rise
    [-0.33, -0.33]
    [0.33, 0.33]
    """
    reg, step = checks.positive("reg", reg), checks.positive("step", step)
    unknown = sorted(set(corrected) - set(MISPRINTS))
    if unknown:
        raise checks.ArgumentError("corrected", "hold errata from 1 to 4", unknown[0])
    registers = Registers(x.shape[-1], marginals=False)
    tables = (2, printed_rows), (3, printed_columns)
    P = tuple(table(registers.dim, reg, misprint=k not in corrected) for k, table in tables)
    Z = engineered(squared_euclidean(x, y), registers).Z[0]
    return _layers(Z, (P[0], P[1]), -step if 1 in corrected else step, frozen=4 in corrected)


def _layers(Z: Tensor, P: tuple[Tensor, Tensor], step: float, frozen: bool) -> Iterator[Tensor]:
    while True:
        yield Z
        after = printed_layer(Z, P, step)
        Z = torch.cat([after[:-1], Z[-1:]]) if frozen else after
