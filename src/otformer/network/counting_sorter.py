r"""Sorting by counting, in two attention layers: the depth of the sorting networks belongs to transport, not to sorting.

The rank of x_i is the number of smaller x_j. Write numbers with bits b_1 b_2 … ∈ {−1, +1}, the highest first. x_j < x_i
if and only if, for exactly one t, the bits before t agree, b_t(i) = +1 and b_t(j) = −1. Head t counts those j. Its logit

    β (Σ_{s<t} b_s(i) b_s(j) + b_t(i) − b_t(j) − (t + 1))

is 0 if all of that holds and at most −2β otherwise: each of the t + 1 signs counts 1 where it fits and −1 where not. The
sink has the logit log W; the value is 1 on tokens and 0 on the sink. With c such j, softmax gives tokens the share c/(c + W)
up to n e^{−2β}/W, and W times that is c − c²/(c + W): c itself up to c²/W. All heads add into one register r, so

    |r_i − rank_i| ≤ n²/W + bits · n e^{−2β}.

The second layer reads the place: its logit β(2 r_i j − j²) = β r_i² − β(r_i − j)² is largest at j = rank_i while |r_i −
rank_i| < ½.
Nothing depends on n or on the numbers; W = 2⁴⁰ serves all n below 500,000.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from otformer import checks
from otformer.network.registers import Registers

SHARP = 30.0  # β: n e^{−2β} is below 1e-20 for every n that fits into memory
SINK_WEIGHT = 2.0**40  # W
COLUMNS = ("x", "one", "sink", "place", "place_sq", "rank")  # x: the bits


class CountingSorter(nn.Module):
    """Two attention layers with frozen weights that sort distinct numbers in [0, 1), read to ``bits`` binary places.

    Numbers that agree in all those places share a rank, and therefore a place. Columns of the prompt: the bits, then one
    (1, the sink 0), sink (0, the sink 1), place j, j², and the register r. ``P`` [bits, width, width] are the bilinear
    forms of the first layer's heads, ``P_out`` that of the second layer.

    >>> net = CountingSorter()
    >>> net([0.9, 0.1, 0.5]).argmax(-1)            # the place of each number
    tensor([2, 0, 1])
    """

    P: Tensor
    P_out: Tensor

    def __init__(self, bits: int = 53) -> None:
        super().__init__()
        if checks.count("bits", bits) > 53:
            raise checks.ArgumentError("bits", "be at most 53 (float64 holds no more)", bits)
        self.bits = bits
        r = self.registers = Registers(bits, marginals=False, names=COLUMNS)
        one, sink, place, place_sq, rank = (r.column(name) for name in COLUMNS[1:])
        P = torch.zeros(bits, r.width, r.width, dtype=torch.float64, device="cpu")
        for t in range(bits):  # bits before t: t of them, so the constant is t + 2
            P[t, range(t), range(t)] = SHARP
            P[t, t, one], P[t, one, t], P[t, one, one] = SHARP, -SHARP, -SHARP * (t + 2)
        P[:, one, sink] = math.log(SINK_WEIGHT)
        P_out = torch.zeros_like(P[0])
        P_out[rank, place], P_out[one, place_sq] = 2 * SHARP, -SHARP
        self.register_buffer("P", P)
        self.register_buffer("P_out", P_out)

    def prompt(self, values: Any) -> Tensor:
        """Z₀ [B, n+1, bits + 5] of numbers (n,) or (B, n) in [0, 1)."""
        x = checks.tensor("values", values).double()
        if x.ndim not in (1, 2) or x.shape[-1] == 0:
            raise checks.ArgumentError("values", "have shape (n,) or (B, n), n ≥ 1", tuple(x.shape))
        if not bool(((x >= 0) & (x < 1)).all()):
            raise checks.ArgumentError("values", "be in [0, 1)", f"{float(x.min()):g} to {float(x.max()):g}")
        x = x.reshape(-1, x.shape[-1])
        whole = (x * 2.0**self.bits).long()[..., None]
        digits = (whole >> torch.arange(self.bits - 1, -1, -1, device=x.device)) & 1
        r, n, places = self.registers, x.shape[1], torch.arange(x.shape[1], dtype=torch.float64, device=x.device)
        Z = x.new_zeros(len(x), n + 1, r.width)
        Z[:, :n, r["x"]] = 2.0 * digits - 1
        Z[:, :n, r["one"]] = 1
        Z[:, n, r["sink"]] = 1
        Z[:, :n, r.column("place")], Z[:, :n, r.column("place_sq")] = places, places**2
        return Z

    def count(self, Z: Tensor) -> Tensor:
        """The first layer: r ← r + W Σ_heads softmax(Z P_t Zᵀ) · one, the sink frozen; head by head, to save memory."""
        r = self.registers
        shares = [torch.softmax(Z[:, :-1] @ P @ Z.mT, dim=-1) @ Z[..., r["one"]] for P in self.P]  # [B, n, 1] each
        Z = Z.clone()
        Z[:, :-1, r.column("rank")] += SINK_WEIGHT * torch.cat(shares, dim=-1).sum(-1)
        return Z

    def forward(self, values: Any) -> Tensor:
        """Attention of the second layer over real tokens, [(B,) n, n]: row i is the place of number i."""
        Z = self.count(self.prompt(values))[:, :-1]
        A = torch.softmax(Z @ self.P_out @ Z.mT, dim=-1)
        return A if checks.tensor("values", values).ndim == 2 else A[0]
