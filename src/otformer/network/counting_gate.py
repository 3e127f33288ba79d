r"""A network that transports up to N points and stops beyond: two layers and two columns in front of the construction.

Theorem N of docs/exactness.md: on at most N points it differs from the network that never stops by a multiple of e^{−sharp}.

**Counting.** A head with logits 0 attends to all n + 1 tokens alike. Its value is one1 − sign, which is 0 on real tokens and
1 on the sink. It returns 1/(n + 1) and writes it into the register ``count``.

**The gate.** With θ = 1/(N + 3/2), the logit of a real token towards the sink is β(count − θ), and 0 towards real tokens:

    query (token i)              key (token j)    on real tokens    on the sink's key
    β · count − βθ · one1        one1 − sign      0                 β(1/(n + 1) − θ)    (one1 = 0, sign = −1)

The value is one1. The head returns g = n/(n + e^{β(1/(n+1) − θ)}) and writes it into ``gate``. For every whole n,
1/(n + 1) is at least 1/(2(N + 3/2)(N + 2)) away from θ. So with β = 2(N + 3/2)(N + 2)·sharp

    g ≤ N e^{−sharp}  for n ≤ N,      1 − g ≤ e^{−sharp}/n  for n > N.

**Stopping.** The frozen sink has gate 0. All later heads have the value sign − 2·gate in place of sign. It is 1 − 2g on real
tokens and −1 on the sink. Instead of (S − 1)/(S + 1) a head returns

    ((1 − 2g)S − 1)/(S + 1):    within 2g of that,  and within 2(1 − g) of −1,

whatever S. For n > N all u, and all v, move by one number, which attention over real tokens does not see.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.network.registers import Registers
from otformer.network.schedule import Layer, Schedule
from otformer.network.transformer import AligningTransformer
from otformer.network.weights import Head, Term

EXTRA = ("count", "gate")
FRONT = len(EXTRA)  # layers in front of the construction
SHARPEST = 600.0  # e^{−600} is still above 0 in float64


class CountingGate(AligningTransformer):
    """The aligning transformer behind a gate that counts: as many x as y, weights 1, 2d + 11 columns.

    Parameters
    ----------
    dim, reg, depth, schedule
        As in `AligningTransformer`. There are ``depth`` layers of the schedule, and two in front of them.
    most : int
        N. Up to N points the layers are those of the construction, but for at most 2N e^{−sharp} in what a head returns.
    stops : bool
        Whether later heads read the gate. If not, this network is the construction for every n: the layers in front write
        two columns that nobody reads.
    sharp : float
        How sharp the gate is. Use float64: for large N rounding moves 1/(n + 1) past θ in float32.

    Examples
    --------
    >>> net, twin = (CountingGate(dim=1, reg=0.05, depth=60, most=3, stops=stops) for stops in (True, False))
    >>> x, y = [[0.9], [0.1], [0.5]], [[0.0], [0.5], [1.0]]
    >>> float((net(x, y, warn=False).attention() - twin(x, y, warn=False).attention()).abs().max()) < 1e-12
    True
    >>> x, y = [*x, [0.6]], [*y, [0.6]]                       # a fourth point: attention is that of layer 2
    >>> trace = net(x, y, warn=False)
    >>> float((trace.attention(-1) - trace.attention(2)).abs().max()) < 1e-12
    True
    """

    def __init__(
        self,
        dim: int,
        reg: float,
        depth: int,
        schedule: str | Schedule = "gradient",
        most: int = 7,
        stops: bool = True,
        sharp: float = 40.0,
    ) -> None:
        self._most, self._stops = checks.count("most", most), stops
        self._sharp = checks.positive("sharp", sharp)
        if self._sharp > SHARPEST:
            raise checks.ArgumentError("sharp", f"be at most {SHARPEST:g}: 1/e^sharp must be a number", f"{sharp:g}")
        super().__init__(dim, reg, depth, schedule, marginals=False)
        self.reg = torch.cat([self.reg[:1].expand(FRONT), self.reg])
        self.layer = torch.cat([torch.arange(FRONT, device=self.layer.device), self.layer + FRONT])

    def _describe(self, dim: int, marginals: bool, *others: Any, **named: Any) -> None:
        super()._describe(dim, marginals, *others, **named)
        self.registers = Registers(dim, marginals, extra=EXTRA)

    def _weights(self, layers: list[Layer]) -> dict[str, Tensor]:
        r, later = self.registers, super()._weights(layers)
        if self._stops:
            later["W_V"][:, :, r.column("gate")] = -2
        front = [self._front(head, value, later) for head, value in ((self._count(), _SINK), (self._gate(), {"one1": 1.0}))]
        return {name: torch.cat([*(each[name] for each in front), t]) for name, t in later.items()}

    def _count(self) -> Head:
        return Head((Term({"one1": 0.0}, {"one1": 0.0}),), value="", writes="count")

    def _gate(self) -> Head:
        beta = 2 * (self._most + 1.5) * (self._most + 2) * self._sharp
        return Head((Term({"count": beta, "one1": -beta / (self._most + 1.5)}, _SINK),), value="", writes="gate")

    def _front(self, head: Head, value: dict[str, float], like: dict[str, Tensor]) -> dict[str, Tensor]:
        """The weights of a layer of one head that adds what it reads to a register; its second head writes nothing."""
        r, found = self.registers, {name: torch.zeros_like(t[:1]) for name, t in like.items()}
        for name, each in (("W_Q", head.query(r)), ("W_K", head.key(r))):
            found[name][0, 0, :, : each.shape[1]] = each
        for name, coefficient in value.items():
            found["W_V"][0, 0, r[name]] = coefficient
        found["W_O"][0, 0, :, r[head.writes]] = 1
        return found


_SINK = {"one1": 1.0, "sign": -1.0}  # a reading: 0 on real tokens, 1 on the sink
