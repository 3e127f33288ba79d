r"""The two attention heads of a layer, from what they read to their matrices.

**What a head must do.** Let C_ij = ‖x_i − y_j‖², M_ij = exp((u_i + v_j − C_ij)/λ − 1) and S_i = Σ_j M_ij.
Head ``rows`` has to move u_i against the gradient of the dual, ∂L/∂u_i = S_i − a_i.

**How softmax does it.** Give token i the logit log M_ij for every real token j and the logit log a_i for the sink,
and let the value be +1 on real tokens and −1 on the sink. Softmax normalises by S_i + a_i, so the head returns

    t_i = (S_i · (+1) + a_i · (−1)) / (S_i + a_i) = (S_i − a_i)/(S_i + a_i) = tanh(½ log(S_i/a_i)),

and writing −γ t_i into register u is u ← u − D ∇_u L with the step sizes D_ii = γ/(S_i + a_i) of the paper.

**The logit as a sum of products.** Softmax attention sees a query token i and a key token j only through products
(reading of i) × (reading of j). Expand the square:

    log M_ij = 2 x_i·y_j/λ − ‖y_j‖²/λ − ‖x_i‖²/λ + u_i/λ − 1 + v_j/λ

    query (token i)   key (token j)       on real tokens        on the sink's key (only sign = −1)
    2/λ · x           y                   2 x_i·y_j/λ            0
    one1              −1/λ · y_sq         −‖y_j‖²/λ              0
    −1/λ · x_sq       one1                −‖x_i‖²/λ              0
    1/λ · u           one2                u_i/λ                  0
    one3              −one3               −1                     0
    one3              1/λ · v             v_j/λ                  v_sink/λ (0 while the sink is frozen)
    log_a             one3 − sign         log a_i · (1 − 1) = 0  log a_i · (0 + 1) = log a_i

The last line is ours (the paper has a = 1, where it is 0). Head ``columns`` is the same with x, u, a exchanged for
y, v, b. Nothing above depends on n or on the points: those are in the prompt.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from otformer.network.registers import Registers

HeadName = Literal["rows", "columns"]
HEADS: tuple[HeadName, HeadName] = ("rows", "columns")

Reading = dict[str, float]  # register -> coefficient: a linear function of a token


class Term(NamedTuple):
    """One product (reading of the query token) × (reading of the key token); vector registers are dotted."""

    query: Reading
    key: Reading

    def matrix(self, reading: Reading, registers: Registers) -> Tensor:
        """One of the two readings, [width, number of products]: d for a dot product of points, otherwise 1."""
        count = max(registers[name].stop - registers[name].start for name in (*self.query, *self.key))
        W = torch.zeros(registers.width, count, dtype=torch.float64, device="cpu")
        for name, coefficient in reading.items():
            W[registers[name], :] = coefficient * torch.eye(count, dtype=torch.float64, device="cpu")
        return W


class Head(NamedTuple):
    """A softmax head: its logit as a sum of terms, the value it reads and the register it writes."""

    terms: tuple[Term, ...]
    value: str
    writes: str

    def query(self, registers: Registers) -> Tensor:
        """The paper's K, [width, d+5 or d+6]: a column for every product in the logit."""
        return torch.cat([term.matrix(term.query, registers) for term in self.terms], dim=1)

    def key(self, registers: Registers) -> Tensor:
        """The paper's Q, of the same shape, so that P = K Qᵀ."""
        return torch.cat([term.matrix(term.key, registers) for term in self.terms], dim=1)

    def bilinear(self, registers: Registers) -> Tensor:
        """P = K Qᵀ, [width, width]: logits = Z P Zᵀ."""
        return self.query(registers) @ self.key(registers).T


def head(name: HeadName, reg: float, registers: Registers) -> Head:
    """The corrected head of the paper's table, for one λ = ``reg``.

    >>> h = head("rows", 0.1, Registers(dim=1, marginals=False))
    >>> tuple(h.bilinear(Registers(dim=1, marginals=False)).shape), h.writes
    ((11, 11), 'u')
    """
    own, other, own_dual, other_dual, own_weight = "xyuva" if name == "rows" else "yxvub"
    terms = [
        Term({own: 2 / reg}, {other: 1.0}),
        Term({"one1": 1.0}, {f"{other}_sq": -1 / reg}),
        Term({f"{own}_sq": -1 / reg}, {"one1": 1.0}),
        Term({own_dual: 1 / reg}, {"one2": 1.0}),
        Term({"one3": 1.0}, {"one3": -1.0}),
        Term({"one3": 1.0}, {other_dual: 1 / reg}),
    ]
    if registers.marginals:
        terms.append(Term({f"log_{own_weight}": 1.0}, {"one3": 1.0, "sign": -1.0}))
    return Head(tuple(terms), value="sign", writes=own_dual)
