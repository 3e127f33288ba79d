r"""Where alignment models (words/align/hmm/model.py) expect the next word, and the posteriors of a sentence pair under that.

    order "diagonal"   p(a_j = i) ∝ exp(−κ |(i + ½)/n − (j + ½)/m|)        (fast_align: Dyer, Chahuneau and Smith 2013)
    order "jumps"      p(a_j = i' | a_{j−1} = i) ∝ s(i' − i)                (Vogel, Ney and Tillmann 1996)

for target word j of m that source word a_j of n generates; a_{j−1} is the last place used. A word comes from the null word
with probability p₀. All arrays are of B sentence pairs of one shape. Counts of jumps are taken for s as they are, as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from otformer.words.align.aligners import off_diagonal
from otformer.words.align.vectors import Array

ORDERS = ("diagonal", "jumps")
FURTHEST = 15  # words; longer jumps count as this one
KAPPAS = (0.1, 30.0)  # the least and the largest κ
MOST_DENSE = 200  # places of a sentence from which on the jumps of `forward_backward` are no matrix


@dataclass(frozen=True)
class Direction:
    """One direction's parameters: t of every pair of words met, t of the null word, and the order."""

    table: Array  # [pair keys]
    null: Array  # [words generated]
    kappa: float
    jumps: Array  # [2 FURTHEST + 1], s


class OrderCounts(NamedTuple):
    """What a block says of the order: Σ posterior · distance and Σ posterior of a shape, or counts of jumps."""

    distance: float = 0.0
    mass: float = 0.0
    jumps: Any = 0.0


def posterior(
    t: Array, null: Array, direction: Direction, order: str, p_null: float, count: bool = True
) -> tuple[Array, OrderCounts]:
    """p(a_j = i | e, f) [B, m, n] for t [B, m, n] and t of the null word [B, m], and what it says of the order.

    Jumps are counted only if ``count``.
    """
    m, n = t.shape[1:]
    if order == "jumps":
        post, jumps = forward_backward(t, null, direction.jumps, p_null, count)
        return post, OrderCounts(jumps=jumps)
    distance = off_diagonal(m, n)
    weights = t * ((1 - p_null) * near(distance, direction.kappa)).astype(np.float32)
    post = weights / (weights.sum(2) + p_null * null)[:, :, None]
    by_place = post.sum(0)
    return post, OrderCounts(float((by_place * distance).sum()), float(by_place.sum()))


def near(distance: Array, kappa: float) -> Array:
    """p(a_j = i) of order "diagonal" [m, n], rows add up to 1."""
    weights = np.exp(-kappa * distance)
    return np.asarray(weights / weights.sum(1, keepdims=True))


def fit_kappa(seen: Sequence[OrderCounts], shapes: Sequence[tuple[int, int]], kappa: float) -> float:
    """The κ in [0.1, 30] under which the expected distance from the diagonal is the one found; as it was without any."""
    found, mass = sum(o.distance for o in seen), np.array([o.mass for o in seen])
    if not mass.sum():
        return kappa
    from scipy.optimize import brentq

    distances = [off_diagonal(*shape) for shape in shapes]

    def excess(k: float) -> float:  # falls with k
        means = [float((d * near(d, k)).sum(1).mean()) for d in distances]
        return float(mass @ means) - found

    low, high = KAPPAS
    if excess(low) <= 0 or excess(high) >= 0:
        return low if excess(low) <= 0 else high
    return float(brentq(excess, low, high, xtol=1e-3))


def forward_backward(t: Array, null: Array, jumps: Array, p_null: float, count: bool = True) -> tuple[Array, Array]:
    """Posteriors [B, m, n] and, if ``count``, expected jumps, of order "jumps".

    The state after word j is the place last used, 0 … n with 0 before the first word; a word of the null word keeps it.
    Forward, and backward from w_m = 1, both scaled so that Σ_k u_j(k) w_j(k) = 1:

        v_j(k) = (1 − p₀) t_j(k) Σ_l u_{j−1}(l) S(l, k) + p₀ t_j(∅) u_{j−1}(k),       u_j = v_j / z_j,  z_j = Σ_k v_j(k)
        w_{j−1}(l) = [(1 − p₀) Σ_k S(l, k) t_j(k) w_j(k) + p₀ t_j(∅) w_j(l)] / z_j

    The first part of v_j(k), times w_j(k) / z_j, is the posterior of word j and place k.
    """
    B, m, n = t.shape
    t = np.ascontiguousarray(t.transpose(1, 0, 2))
    forward, backward = (_matrix if n <= MOST_DENSE else _band)(jumps, n, 1 - p_null)
    u = np.zeros((m + 1, B, n + 1), np.float32)
    u[0, :, 0] = 1
    z = np.empty((m, B, 1), np.float32)
    said = np.empty((m, B, n), np.float32)
    for j in range(m):
        said[j] = forward(u[j]) * t[j]
        u[j + 1] = p_null * null[:, j, None] * u[j]
        u[j + 1, :, 1:] += said[j]
        z[j] = u[j + 1].sum(1, keepdims=True)
        u[j + 1] /= z[j]
    post = np.empty((B, m, n), np.float32)
    after = np.ones((B, n + 1), np.float32)
    moves = np.zeros((n + 1, n) if count else (0, 0))
    for j in reversed(range(m)):
        post[:, j] = said[j] / z[j] * after[:, 1:]
        weight = np.minimum(t[j] / z[j] * after[:, 1:], 1e30)
        if count:
            moves += u[j].T @ weight
        after = np.minimum(backward(weight) + p_null * null[:, j, None] / z[j] * after, 1e30)  # of states that u rules out
    seen = moves * _jump_matrix(jumps, n, 1 - p_null) if count else moves
    return post, np.bincount(_steps(n).ravel() if count else [], seen.ravel(), 2 * FURTHEST + 1)


Spread = Callable[[Array], Array]


def _steps(n: int) -> Array:
    """[n + 1, n]: which jump leads from place l = 0 … n to place k = 1 … n."""
    return np.asarray(np.clip(np.arange(1, n + 1) - np.arange(n + 1)[:, None], -FURTHEST, FURTHEST) + FURTHEST)


def _jump_matrix(jumps: Array, n: int, share: float) -> Array:
    """``share`` times S [n + 1, n]."""
    S = jumps[_steps(n)]
    return np.asarray((share * S / S.sum(1, keepdims=True)).astype(np.float32))


def _matrix(jumps: Array, n: int, share: float) -> tuple[Spread, Spread]:
    """u ↦ Σ_l u(l) S(l, k), [B, n] of [B, n + 1], and w ↦ Σ_k S(l, k) w(k), the other way round; both times ``share``."""
    S = _jump_matrix(jumps, n, share)
    return lambda u: np.asarray(u @ S), lambda w: np.asarray(w @ S.T)


def _band(jumps: Array, n: int, share: float) -> tuple[Spread, Spread]:
    """The same in O(n), not O(n²), time and memory.

    All jumps of F = FURTHEST and more have the weight s(F), or s(−F). With r(l) = u(l) / Σ_k s(k − l), therefore,

        Σ_l u(l) S(l, k) = Σ_{|d| < F} s(d) r(k − d)  +  s(F) Σ_{l ≤ k−F} r(l)  +  s(−F) Σ_{l ≥ k+F} r(l):

    a convolution and two running sums. Backward, s(−d) takes the place of s(d). Nothing is subtracted but in Σ_k s(k − l).
    """
    from scipy.ndimage import convolve1d

    def spread(x: Array, s: Array) -> Array:
        near = np.concatenate([[0.0], s[1:-1], [0.0]])
        y: Array = convolve1d(x, near, axis=1, mode="constant")
        y[:, FURTHEST:] += s[-1] * np.cumsum(x, 1)[:, :-FURTHEST]
        y[:, :-FURTHEST] += s[0] * np.cumsum(x[:, ::-1], 1)[:, ::-1][:, FURTHEST:]
        return y

    sums = np.cumsum(jumps[np.clip(np.arange(-n, n + 1), -FURTHEST, FURTHEST) + FURTHEST])  # of s(−n) … s(d), at d + n
    scale = share / (sums[n:][::-1] - sums[: n + 1][::-1])  # Σ_k of k = 1 … n, for l = 0 … n
    return (
        lambda u: spread(u * scale, jumps)[:, 1:].astype(np.float32),
        lambda w: (spread(np.pad(w.astype(float), ((0, 0), (1, 0))), jumps[::-1]) * scale).astype(np.float32),
    )
