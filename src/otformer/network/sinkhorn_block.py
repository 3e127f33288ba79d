r"""Attention + feed-forward = Sinkhorn, exactly.

**The block.** A head returns t = (S − a)/(S + a) = tanh(½ log(S/a)) (weights.py), and Sinkhorn's half-step is
u ← u − λ log(S/a) = u − 2λ atanh(t). So let the head write t into the register ``spare``, and let a position-wise
feed-forward layer read it there:

    attention       spare ← 0 + t
    feed-forward    u ← u − 2λ φ(t),   spare ← t − t = 0       (v in every second layer: alternating heads)

With φ = atanh a layer is a half-step of Sinkhorn. The sink and the empty tokens hold t = 0, and φ(0) = 0 leaves them.

**Saturation.** In floating point t is ±1 once S/a leaves (ε, 1/ε), and atanh(±1) = ±∞. We clamp |t| ≤ 1 − ε, ε of the
dtype: φ never exceeds atanh(1 − ε) ≈ ½ log(2/ε), 18.4 in float64 and 8.3 in float32. Below that, rounding t costs
ε cosh²(s) in s = atanh(t): the step is accurate while |log(S/a)| is moderate, and near the solution it is tiny.

**As a ReLU network of width W.** Knots at ±t_k, t_k = tanh(kΔ), k = 0 … K−1, K = W/2, Δ = s_max/K, and

    φ(t) = Σ_k c_k [relu(t − t_k) − relu(−t − t_k)],   c_k = m_k − m_{k−1},   m_k = Δ/(t_{k+1} − t_k),   m_{−1} = 0,

the odd, piecewise linear interpolant of atanh. On one piece its error is ½ f''(t)(t − t_k)(t_{k+1} − t) to first order,
with f'' = 2t/(1 − t²)² and t_{k+1} − t_k ≈ (1 − t²)Δ; the product of the two distances is at most a quarter of that squared:

    |φ(t) − atanh(t)| ≲ ⅛ · 2|t|/(1 − t²)² · (1 − t²)²Δ² = |t| Δ²/4 ≤ s_max²/W².

- 0 is a knot, so φ(t) = 0 only at t = 0: the fixed points are Sinkhorn's, and the plan is *exact* for every W.
- The slope at 0 is ω = Δ/tanh Δ ≈ 1 + Δ²/3 instead of 1: near the solution the block is Sinkhorn over-relaxed by ω, which
  converges for ω < 2, or Δ < 1.915. With s_max = 6 that asks for W ≥ 8.
- Far from it, moving u by −λθ changes a row's part of the dual by λa(e^{ℓ−θ} − e^ℓ + θ), ℓ = log(S/a): negative for
  θ = 2φ(t) and every W ≥ 8 (tests/network/test_sinkhorn_block.py), so the dual falls in every layer, from any start.
- Past s_max the last piece goes on straight, to φ(1) = s_max + Δ/(e^{2Δ} − 1) ≤ s_max + ½: no clamp is needed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import checks
from otformer.network.cost_layer import MOST_UNITS
from otformer.network.read import Scale
from otformer.network.transformer import AligningTransformer

REACH = 6.0  # s_max: the ReLU network interpolates atanh on |s| ≤ 6, S/a from e^−12 to e^12
LEAST_WIDTH = 8  # the narrowest network with Δ/tanh Δ < 2


def relu_atanh(width: int, reach: float = REACH) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (w, b, c), each [width], of the interpolant φ(t) = Σ_k c_k relu(w_k t + b_k) of atanh.

    >>> w, b, c = relu_atanh(64)
    >>> t = torch.tensor([0.0, 0.5, -0.9], dtype=torch.float64)
    >>> (torch.relu(t[:, None] * w + b) @ c - torch.atanh(t)).abs().max() < (6 / 64) ** 2
    tensor(True)
    """
    if checks.count("width", width, least=2, most=MOST_UNITS) % 2:
        raise checks.ArgumentError("width", "be even (the same knots on both sides of 0)", width)
    s = torch.linspace(0, checks.positive("reach", reach), width // 2 + 1, dtype=torch.float64, device="cpu")
    knots = torch.tanh(s)
    slopes = s.diff() / knots.diff()
    changes = torch.diff(slopes, prepend=slopes.new_zeros(1))
    sides = torch.tensor([1.0, -1.0], dtype=torch.float64, device="cpu")
    one = torch.ones(width // 2, dtype=torch.float64, device="cpu")
    return torch.kron(sides, one), -knots[:-1].repeat(2), torch.kron(sides, changes)


class SinkhornTransformer(AligningTransformer):
    """A transformer whose layer is a half-step of Sinkhorn: softmax attention, then a feed-forward layer.

    Parameters
    ----------
    dim, reg, depth, marginals, scale
        As in `AligningTransformer`; alternating heads, rows first.
    width : int, optional
        An even number ≥ 8 of ReLU units that interpolate atanh; without it there is one exact atanh unit.

    Notes
    -----
    More buffers than an `AligningTransformer`: ``W_1`` [width, hidden], ``b_1`` [hidden] and ``W_2``
    [weights, hidden, width] of the feed-forward layer Z + act(Z W_1 + b_1) W_2. Two of its units are
    relu(t) and relu(−t), whose difference t clears the register ``spare``.

    Examples
    --------
    >>> net = SinkhornTransformer(dim=1, reg=1.0, depth=40)
    >>> net([[0.0], [1.0]], [[0.0], [1.0]]).plan().sum(1)
    tensor([1., 1.], dtype=torch.float64)
    """

    W_1: Tensor
    b_1: Tensor
    W_2: Tensor

    def __init__(
        self, dim: int, reg: float, depth: int, width: int | None = None, marginals: bool = True, scale: Scale = None
    ) -> None:
        super().__init__(dim, reg, depth, schedule="alternating", marginals=marginals, scale=scale)
        if width is not None:
            checks.count("width", width, least=LEAST_WIDTH)
        spare = self.registers.column("spare")
        move = self.W_O.sum(1)  # [weights, 1, width]: −2λ in the column of the dual whose turn it is
        turn = (self.W_O != 0).any(-1).to(self.W_O)  # [weights, 2, 1]
        self.W_O = torch.zeros_like(self.W_O)
        self.W_O[..., spare] = turn

        # Hidden units: the two that clear ``spare``, then those of φ. Each reads w·spare + b.
        one = torch.tensor([1.0, -1.0], dtype=torch.float64, device="cpu")
        none = torch.zeros_like(one)
        w, b, c = (one[:1], none[:1], one[:1]) if width is None else relu_atanh(width)
        W_1 = torch.zeros(self.registers.width, len(w) + 2, dtype=torch.float64, device="cpu")
        W_1[spare] = torch.cat([one, w])
        W_2 = torch.cat([none, c])[:, None] * move
        W_2[..., spare] = torch.cat([-one, 0 * c])
        self.register_buffer("W_1", W_1)
        self.register_buffer("b_1", torch.cat([none, b]))
        self.register_buffer("W_2", W_2)

    @property
    def exact(self) -> bool:
        """Whether φ is one atanh unit (behind the two that clear ``spare``) and not a ReLU network."""
        return len(self.b_1) == 3

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, width={None if self.exact else len(self.b_1) - 2}"

    def written(self) -> list[int]:
        """u and v: ``spare`` is written by attention and cleared in the same layer."""
        return [self.registers.column("u"), self.registers.column("v")]

    def feed_forward(self, Z: Tensor, layer: int) -> Tensor:
        """Z + act(Z W_1 + b_1) W_2, position-wise, [B, T+1, width]."""
        hidden = Z @ self.W_1.to(Z) + self.b_1.to(Z)
        clear, t = hidden[..., :2].relu(), hidden[..., 2:]
        limit = 1 - torch.finfo(Z.dtype).eps
        phi = t.clamp(-limit, limit).atanh() if self.exact else t.relu()
        return Z + torch.cat([clear, phi], dim=-1) @ self.W_2[int(self.layer[layer])].to(Z)

    def block(self, Z: Tensor, layer: int) -> Tensor:
        """Layer ``layer`` (0-based): attention into ``spare``, then the feed-forward layer; [B, T+1, width]."""
        return self.feed_forward(super().block(Z, layer), layer)
