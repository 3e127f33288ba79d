r"""The shortest prompt we know: [x, y, sign, u, v], 2d + 3 columns where the paper has 2d + 9, and a frozen sink.

**What can go.** A plan does not change when a function of i, or a function of j, is added to C_ij, and u and v absorb a
constant. So the squares, the constant −1 and the ones that multiply them are not needed: solve C_ij = −2 x_i·y_j with

    M_ij = exp((u_i + v_j + 2 x_i·y_j)/λ),   S_i = Σ_j M_ij.

**What the sink does.** The ones that multiply a token's own dual go too, by letting the sink carry half of it:

    query (token i)   key (token j)   on real tokens (sign = 1)   on the sink's key (sign = −1, all else 0)
    2/λ · x           y               2 x_i·y_j/λ                 0
    1/(2λ) · u        sign            u_i/2λ                      −u_i/2λ
    sign              1/λ · v         v_j/λ                       0

Softmax sees differences only, and the logit of j less that of the sink is (u_i + v_j + 2 x_i·y_j)/λ = log M_ij. So the head
returns (S_i − 1)/(S_i + 1) as before: each layer is that of network/weights.py for this C, number for number.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from otformer.network.read import Scale
from otformer.network.registers import Registers
from otformer.network.schedule import Schedule
from otformer.network.transformer import AligningTransformer
from otformer.network.weights import Head, HeadName, Term

MINIMAL = ("x", "y", "sign", "u", "v")


class MinimalTransformer(AligningTransformer):
    """The aligning transformer on the prompt of 2d + 3 columns: as many x as y, weights 1.

    Its potentials belong to the cost −2 x·y: those of ‖x − y‖² are u_i + ‖x_i‖² + λ and v_j + ‖y_j‖². Parameters as in
    `AligningTransformer`. Points far from 0 have large products: centre them, or let ``scale="auto"`` do it.

    >>> net = MinimalTransformer(dim=1, reg=0.01, depth=200, schedule="annealed")
    >>> net.registers
    Registers(5 columns: x 0, y 1, sign 2, u 3, v 4)
    >>> net([[0.9], [0.1], [0.5]], [[0.0], [0.5], [1.0]]).attention().argmax(1)
    tensor([2, 0, 1])
    """

    def __init__(self, dim: int, reg: float, depth: int, schedule: str | Schedule = "gradient", scale: Scale = None) -> None:
        super().__init__(dim, reg, depth, schedule, marginals=False, scale=scale)

    def _describe(self, dim: int, marginals: bool, *others: Any, **named: Any) -> None:
        super()._describe(dim, marginals, *others, **named)
        self.registers = Registers(dim, marginals, MINIMAL)

    def _head(self, name: HeadName, reg: float) -> Head:
        own, other, own_dual, other_dual = "xyuv" if name == "rows" else "yxvu"
        terms = (
            Term({own: 2 / reg}, {other: 1.0}),
            Term({own_dual: 1 / (2 * reg)}, {"sign": 1.0}),
            Term({"sign": 1.0}, {other_dual: 1 / reg}),
        )
        return Head(terms, value="sign", writes=own_dual)

    def log_plan(self, logits: Tensor) -> Tensor:
        return logits[..., :-1] - logits[..., -1:]
