r"""Other costs: a frozen ReLU layer that computes their features, before the attention layers.

The heads solve C_ij = p_i + q_j − 2 f_i·g_j (features.py). For a cost that is not of this form, a position-wise
feed-forward layer, Linear → ReLU → Linear, computes from the raw point x numbers (f, p) for which it *almost* is, and
from y numbers (g, q). The points live in a known box; apart from that the weights know neither n nor the input.

The hidden units are the same for all costs here: relu(θ·x − τ_k) on equally spaced thresholds τ_k = lo + kh,
k = 0 … K−1, of a direction θ whose projection of the box is [lo, hi], h = (hi − lo)/K.

If ‖C̃ − C‖_∞ ≤ ε, the transport value (entropic or not) of C̃ is within ε·mass of that of C, since both minimise over the
same plans; and the exact plan of C̃ costs at most 2ε·mass too much under C.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from otformer import checks
from otformer.network.features import Features, pair

MOST_UNITS = 20_000  # ReLU units: weights have the square of that


class CostLayer(nn.Module):
    """relu(x W_1 + b_1), then one linear reading for each side: x → (f, p) and y → (g, q).

    Buffers, all in ``state_dict``: ``W_1`` [dim, width], ``b_1`` [width], and ``W_x``, ``W_y`` [width, features + 1],
    ``b_x``, ``b_y`` [features + 1], whose last column is p or q; ``low``, ``high`` [dim], the box.
    """

    W_1: Tensor
    b_1: Tensor
    W_x: Tensor
    b_x: Tensor
    W_y: Tensor
    b_y: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, low: Tensor, high: Tensor, **weights: Tensor) -> None:
        super().__init__()
        for name, weight in {"low": low, "high": high, **weights}.items():
            self.register_buffer(name, weight)

    @property
    def width(self) -> int:
        """The number of ReLU units."""
        return len(self.b_1)

    @property
    def features(self) -> int:
        """The number of features: the ``dim`` of the network that follows."""
        return len(self.b_x) - 1

    def forward(self, x: Any, y: Any) -> Features:
        """Features of points x [..., n, dim] and y [..., m, dim] of the box."""
        x, y = pair(x, y, len(self.low))
        f, g = self._read("x", x, self.W_x, self.b_x), self._read("y", y, self.W_y, self.b_y)
        return Features(f[..., :-1], g[..., :-1], f[..., -1], g[..., -1])

    def exact(self, x: Tensor, y: Tensor) -> Tensor:
        """The cost that the layer approximates, [..., n, m]."""
        raise NotImplementedError

    def _read(self, name: str, points: Tensor, W: Tensor, b: Tensor) -> Tensor:
        if bool((points < self.low.to(points)).any() or (points > self.high.to(points)).any()):
            box = f"[{self.low.tolist()}, {self.high.tolist()}]"
            raise checks.ArgumentError(name, f"lie in the layer's box {box}", f"{points.min():g} to {points.max():g}")
        hidden = torch.relu(points @ self.W_1.to(points) + self.b_1.to(points))
        return hidden @ W.to(points) + b.to(points)


class EuclideanDistance(CostLayer):
    r"""C = ‖x − y‖, and |x − y| for dim = 1, by thresholds along directions.

    **On the line**, min(s, t) = lo + ∫ 1[s > τ] 1[t > τ] dτ over τ ≥ lo, so

        |s − t| = s + t − 2 min(s, t) = (s − lo) + (t − lo) − 2 ∫ 1[s > τ] 1[t > τ] dτ:

    features are the indicators "s is above τ", and p(s) = s − lo. The indicator of cell [τ_k, τ_k + h] becomes the ramp
    r_k(s) = clamp((s − τ_k)/h, 0, 1) = (relu(s − τ_k) − relu(s − τ_{k+1}))/h, and f_k = g_k = √h r_k; p is the unit k = 0.
    Two points in different cells get |s − t| exactly. In one cell, at τ_k + αh and τ_k + βh, they get
    h(α + β − 2αβ): too much by 2h min(α, β)(1 − max(α, β)) ≤ h/2. Hence ‖C̃ − C‖_∞ = (hi − lo)/(2·width): order −1.

    **In d dimensions** ‖z‖ = c_d · mean |θ·z| over unit vectors θ, with c_d = √π Γ((d+1)/2)/Γ(d/2) (c_1 = 1, c_2 = π/2,
    c_3 = 2): each |θ·x − θ·y| is the case of the line. We take M directions and K thresholds on each.
    d = 2: angles (m + ½)π/M, off by a factor 1 ± π²/(12M²) at most (to first order). d ≥ 3: lines that repelled one another,
    from a start given by ``seed``. The best M directions are off by about M^{−q}, q = (d+2)/(2(d−1)) [1], the thresholds by
    c_d h/2 ∝ 1/K. With both errors alike, M ∝ W^{1/(1+q)} of width W = MK and the error is W^{−q/(1+q)}: W^{−2/3} for d = 2.

    ``width`` is the number of ReLU units asked for (2·dim or more, if dim > 1); ``layer.width`` = MK is the number used.
    ``low``, ``high``: the box, a number, or one per coordinate.

    [1] Bourgain and Lindenstrauss (1988), Distribution of points on spheres and approximation by zonotopes.

    >>> layer = EuclideanDistance(dim=1, width=10, low=0.0, high=1.0)
    >>> layer([[0.25], [0.9]], [[0.4]]).cost()
    tensor([[0.1500],
            [0.5000]], dtype=torch.float64)
    """

    def __init__(self, dim: int, width: int, low: Any, high: Any, seed: int = 0) -> None:
        least = 1 if checks.count("dim", dim, most=MOST_UNITS) == 1 else 2 * dim
        M = direction_count(dim, checks.count("width", width, least, most=MOST_UNITS))
        K = width // M
        low_, high_ = _box(low, high, dim)
        theta = unit_directions(dim, M, seed)  # [M, dim]
        ends = torch.stack([theta * low_, theta * high_])  # [2, M, dim]
        lo, h = ends.amin(0).sum(1), (ends.amax(0) - ends.amin(0)).sum(1) / K
        scale = math.sqrt(math.pi) * math.exp(math.lgamma((dim + 1) / 2) - math.lgamma(dim / 2)) / M  # c_d / M

        thresholds = lo[:, None] + h[:, None] * torch.arange(K, device="cpu")  # [M, K]
        ramps = torch.block_diag(*(math.sqrt(scale / float(each)) * _ramps(K) for each in h))  # √h/h = 1/√h
        p = scale * torch.eye(1, K, dtype=torch.float64, device="cpu").repeat(1, M)  # relu(θ·x − lo) = θ·x − lo
        W = torch.cat([ramps, p.T], dim=1)
        b = torch.zeros(M * K + 1, dtype=torch.float64, device="cpu")
        W_1 = theta.T.repeat_interleave(K, dim=1)
        super().__init__(low_, high_, W_1=W_1, b_1=-thresholds.reshape(-1), W_x=W, b_x=b, W_y=W.clone(), b_y=b.clone())

    def exact(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def direction_count(dim: int, width: int) -> int:
    """M ≈ W^{1/(1+q)} directions, q = (d+2)/(2(d−1)), but at least d of them and at least two thresholds on each."""
    if dim == 1:
        return 1
    q = (dim + 2) / (2 * (dim - 1))
    return max(dim, min(round(width ** (1 / (1 + q))), width // 2))


def unit_directions(dim: int, count: int, seed: int = 0, steps: int = 100) -> Tensor:
    """Unit vectors whose lines are spread evenly, [count, dim]: equal angles in the plane, repelling lines above.

    Repulsion is descent on Σ_{i≠j} 1/sin∠(θ_i, θ_j) = Σ (1 − (θ_i·θ_j)²)^{−1/2} with shrinking steps.
    """
    if dim == 1:
        return torch.ones(count, 1, dtype=torch.float64, device="cpu")
    if dim == 2:
        angles = math.pi * (torch.arange(count, dtype=torch.float64, device="cpu") + 0.5) / count
        return torch.stack([angles.cos(), angles.sin()], dim=1)
    start = torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, device="cpu")
    theta = nn.functional.normalize(start, dim=1)
    for k in range(steps):
        cosines = (theta @ theta.T).fill_diagonal_(0)
        slope = (cosines * (1 - cosines**2).clamp_min(1e-12) ** -1.5) @ theta
        slope -= (slope * theta).sum(1, keepdim=True) * theta  # along the sphere
        longest = 0.5 * count ** (-1 / (dim - 1)) * (1 - k / steps)  # half the distance of neighbours, then less
        theta = nn.functional.normalize(theta - longest * slope / slope.norm(dim=1).max().clamp_min(1e-300), dim=1)
    return theta


class SmoothCost(CostLayer):
    r"""Any cost C(x, y) of numbers x, y in [low, high], by bilinear interpolation at width + 1 knots.

        C̃(x, y) = Σ_kl hat_k(x) C(τ_k, τ_l) hat_l(y),   f_k = hat_k(x),   g_k = −½ Σ_l C(τ_k, τ_l) hat_l(y),   p = q = 0,

    where hat_k = r_{k−1} − r_k is a difference of the ramps above (r_{−1} = 1, r_K = 0). For C with bounded second
    derivatives the error is at most h²/8 · (max|C_xx| + max|C_yy|) to first order: order −2. For C = |x − y| it is
    h/2, the numbers of `EuclideanDistance`: order −1.

    ``cost_function(x, y)`` takes tensors, element by element, with broadcasting. In d dimensions the knots form a grid:
    (width + 1)^d features, the products of d hats, which one ReLU layer does not compute; only d = 1 is built here.

    >>> layer = SmoothCost(lambda x, y: (x - y) ** 2, width=8, low=0.0, high=1.0)
    >>> layer([[0.25]], [[0.5], [1.0]]).cost()          # knots: exact
    tensor([[0.0625, 0.5625]], dtype=torch.float64)
    """

    def __init__(self, cost_function: Callable[[Tensor, Tensor], Tensor], width: int, low: float, high: float) -> None:
        K = checks.count("width", width, most=MOST_UNITS)
        low_, high_ = _box(low, high, 1)
        knots = torch.linspace(float(low_), float(high_), K + 1, dtype=torch.float64, device="cpu")
        C = checks.tensor("cost_function(x, y)", cost_function(knots[:, None], knots[None, :])).double()
        if tuple(C.shape) != (K + 1, K + 1):
            raise checks.ArgumentError("cost_function", f"broadcast to shape {(K + 1, K + 1)}", tuple(C.shape))
        eye = torch.eye(K, K + 1, dtype=torch.float64, device="cpu")
        hats = K / float(high_ - low_) * _ramps(K) @ (eye.roll(1, 1) - eye)  # hidden units → hats
        W = torch.cat([hats, eye[:1]])  # and behind them the constants: hat_0 = 1 − r_0
        (W_x, b_x), (W_y, b_y) = (nn.functional.pad(w, (0, 1)).split([K, 1]) for w in (W, -W @ C.T / 2))  # p = q = 0
        ones = torch.ones(1, K, dtype=torch.float64, device="cpu")
        super().__init__(low_, high_, W_1=ones, b_1=-knots[:-1], W_x=W_x, b_x=b_x[0], W_y=W_y, b_y=b_y[0])
        self.cost_function = cost_function

    def exact(self, x: Tensor, y: Tensor) -> Tensor:
        return self.cost_function(x, y.mT)


def _ramps(count: int) -> Tensor:
    """From the hidden units relu(s − τ_k) to h r_k = relu(s − τ_k) − relu(s − τ_{k+1}), [count, count]."""
    one = torch.eye(count, dtype=torch.float64, device="cpu")
    return one - one.roll(1, 0).tril(-1)


def _box(low: Any, high: Any, dim: int) -> tuple[Tensor, Tensor]:
    """The box as two vectors [dim], low below high."""
    for name, value in (("low", low), ("high", high)):
        shape = tuple(checks.tensor(name, value).shape)
        if shape not in ((), (1,), (dim,)):
            raise checks.ArgumentError(name, f"be a number or {dim} numbers", f"shape {shape}")
    low, high = (torch.as_tensor(value, dtype=torch.float64, device="cpu").expand(dim).clone() for value in (low, high))
    if bool((low >= high).any()):
        raise checks.ArgumentError("low", "be below high", f"{low.tolist()} and {high.tolist()}")
    return low, high
