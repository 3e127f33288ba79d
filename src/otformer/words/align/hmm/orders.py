r"""Where alignment models (words/align/hmm/model.py) expect the next word, and the posteriors of a sentence pair under that.

    order "diagonal"   p(a_j = i) ∝ exp(−κ |(i + ½)/n − (j + ½)/m|)        (fast_align: Dyer, Chahuneau and Smith 2013)
    order "jumps"      p(a_j = i' | a_{j−1} = i) ∝ s(i' − i)                (Vogel, Ney and Tillmann 1996)

for target word j of m that source word a_j of n generates; a_{j−1} is the last place used. A word comes from the null word
with probability p₀. Counts of jumps are taken for s as they are, as usual; all jumps of F words and more have one s, their
counts together. So each far place has what belongs to all of them, and F must be so large that few jumps are as far.

The loops are compiled; the innermost goes over the B sentence pairs of one shape, the last axis of an array, so that one
instruction serves several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from otformer.transport.compiled import compiled
from otformer.words.align.vectors import Array

ORDERS = ("diagonal", "jumps")
FURTHEST = 60  # words; longer jumps count as this one. A law of fewer jumps is as good
MOST_AFTER = np.float32(1e30)  # bound on what states give that are ruled out already
KAPPAS = (0.1, 30.0)  # the least and the largest κ
LINES = 6  # of the room that `jump_posterior` works in, besides one for every word


@dataclass(frozen=True)
class Direction:
    """One direction's parameters: t of every pair of words met, t of the null word, and the order."""

    table: Array  # [pair keys]
    null: Array  # [words generated]
    kappa: float
    jumps: Array  # [2 F + 1], s of −F … F and what is beyond


def posterior(t: Array, null: Array, direction: Direction, order: str, p_null: float) -> tuple[Array, Array, Array]:
    """p(a_j = i | e, f) [m, n, B] for t [m, n, B] and t of the null word [m, B], of B sentence pairs of one shape.

    Also expected jumps [2 F + 1], and the sums of posterior · distance from the diagonal and of the posterior [2].
    """
    post, jumps, diagonal = np.empty(t.shape, np.float32), np.zeros(len(direction.jumps)), np.zeros(2)
    given = np.ascontiguousarray(t, np.float32), np.ascontiguousarray(null, np.float32)
    if order == "jumps":
        jump_posterior(
            *given, direction.jumps.astype(np.float32), p_null, post, jumps, np.empty(room_for(*t.shape), np.float32)
        )
    else:
        diagonal_posterior(*given, direction.kappa, p_null, post, diagonal, np.empty(t.shape[1], np.float32))
    return post, jumps, diagonal


def room_for(m: int, n: int, B: int) -> tuple[int, int, int]:
    """The shape of the room that `jump_posterior` works in."""
    return LINES + m, max(m, n) + 1, B


@compiled
def distance(i: int, j: int, n: int, m: int) -> float:
    """The distance of place i of n and word j of m from the diagonal."""
    return abs((i + 0.5) / n - (j + 0.5) / m)


@compiled
def near(j: int, m: int, kappa: float, line: Any) -> None:
    """Write p(a_j = i) of order "diagonal" for every place i: [n], of sum 1.

    On either side of the diagonal the weights are a geometric series of ratio q = exp(−κ/n).
    """
    n = len(line)
    q = np.exp(-kappa / n)
    cut = first_right(j, m, n)
    total, weight = 0.0, np.exp(-kappa * distance(cut, j, n, m))
    for i in range(cut, n):
        line[i] = weight
        total += weight
        weight *= q
    weight = np.exp(-kappa * distance(cut - 1, j, n, m))
    for i in range(cut - 1, -1, -1):
        line[i] = weight
        total += weight
        weight *= q
    for i in range(n):
        line[i] /= total


@compiled
def diagonal_posterior(t: Any, null: Any, kappa: float, p_null: float, post: Any, seen: Any, prior: Any) -> None:
    """The posterior of order "diagonal"; Σ posterior · distance and Σ posterior are added to ``seen`` [2]."""
    m, n, B = t.shape
    for j in range(m):
        near(j, m, kappa, prior)
        total = p_null * null[j]
        for i in range(n):
            _times(post[j, i], (1 - p_null) * prior[i], t[j, i])
            _add(total, 1, post[j, i])
        for i in range(n):
            found = 0.0
            for b in range(B):
                post[j, i, b] /= total[b]
                found += post[j, i, b]
            seen[0] += found * distance(i, j, n, m)
            seen[1] += found


@compiled
def expected_distance(mass: Any, kappa: float) -> float:
    """Σ mass[m, n] · the mean distance from the diagonal, under κ, of a word of a sentence pair of m and n words.

    With k places on one side of the diagonal, the first at distance d and the next each 1/n further, weights and weighted
    distances are, for q = exp(−κ/n), exp(−κ d) times Σ qⁱ = (1 − qᵏ)/(1 − q) and

        d Σ qⁱ + Σ i qⁱ / n,      Σ i qⁱ = q (1 − k qᵏ⁻¹ + (k − 1) qᵏ)/(1 − q)².
    """
    total = 0.0
    for m in range(1, mass.shape[0]):
        for n in range(1, mass.shape[1]):
            if mass[m, n] > 0:
                q = np.exp(-kappa / n)
                for j in range(m):
                    cut = first_right(j, m, n)
                    weights, weighted = 0.0, 0.0
                    for k, d in ((n - cut, distance(cut, j, n, m)), (cut, distance(cut - 1, j, n, m))):
                        last, scale = q**k, np.exp(-kappa * d)
                        series = (1 - last) / (1 - q)
                        rising = (q - k * last + (k - 1) * last * q) / (1 - q) ** 2
                        weights += scale * series
                        weighted += scale * (d * series + rising / n)
                    total += mass[m, n] / m * weighted / weights
    return total


@compiled
def first_right(j: int, m: int, n: int) -> int:
    """The first place that is on the diagonal of word j, or right of it."""
    return min(int(np.ceil((j + 0.5) / m * n - 0.5)), n)


def fit_kappa(found: float, mass: Array, kappa: float) -> float:
    """The κ in [0.1, 30] for which the expected distance from the diagonal equals the observed one, Σ posterior · distance,
    for the Σ posterior [m, n] of sentence pairs of m and n words; ``kappa`` if there are none."""
    if not mass.any():
        return kappa
    from scipy.optimize import brentq

    def excess(k: float) -> float:  # falls with k
        return float(expected_distance(mass, k)) - found

    low, high = KAPPAS
    if excess(low) <= 0 or excess(high) >= 0:
        return low if excess(low) <= 0 else high
    return float(brentq(excess, low, high, xtol=1e-3))


@compiled
def jump_posterior(t: Any, null: Any, s: Any, p_null: float, post: Any, seen: Any, room: Any) -> None:
    """The posterior of order "jumps", forward and backward; expected jumps are added to ``seen`` [2 F + 1].

    The state after word j is the place last used, 0 … n with 0 before the first word; a word of the null word keeps it.
    With S(l, k) = s(k − l) / Σ_k' s(k' − l), forward, and backward from w_m = 1, both scaled so that Σ_k u_j(k) w_j(k) = 1:

        v_j(k) = (1 − p₀) t_j(k) Σ_l u_{j−1}(l) S(l, k) + p₀ t_j(∅) u_{j−1}(k),       u_j = v_j / z_j,  z_j = Σ_k v_j(k)
        w_{j−1}(l) = [(1 − p₀) Σ_k S(l, k) t_j(k) w_j(k) + p₀ t_j(∅) w_j(l)] / z_j

    The first part of v_j(k), times w_j(k) / z_j, is the posterior of word j and place k.
    """
    m, n, _ = t.shape
    width = n + 1
    r, x, after, back, z, u = room[0, :width], room[1, :width], room[2, :width], room[3, :width], room[4], room[5:, :width]
    scale, mirrored, counts = np.empty(width, s.dtype), s[::-1].copy(), np.zeros((len(s), t.shape[2]), s.dtype)
    _scales(s, 1 - p_null, scale)
    u[0] = 0
    u[0, 0] = 1
    for j in range(m):
        for l in range(width):
            _times(r[l], scale[l], u[j, l])
        _spread(r, s, x)
        _forward(x, t[j], p_null, null[j], u[j], u[j + 1], post[j], z[j])
    after[:] = 1
    x[0] = 0
    for j in range(m - 1, -1, -1):
        _backward(x, t[j], z[j], after, post[j])
        for l in range(width):
            _times(r[l], scale[l], u[j, l])
        _count(r, x, counts)
        _spread(x, mirrored, back)
        for l in range(width):
            for b in range(len(z[j])):
                after[l, b] = min(scale[l] * back[l, b] + p_null * null[j, b] / z[j, b] * after[l, b], MOST_AFTER)
    for d in range(len(s)):
        seen[d] += s[d] * counts[d].sum()


@compiled
def _forward(x: Any, t: Any, p_null: float, null: Any, u: Any, after: Any, post: Any, z: Any) -> None:
    """Write z_j, u_j, and the first part of v_j(k) / z_j."""
    stay = np.float32(p_null) * null
    for b in range(len(z)):
        after[0, b] = z[b] = stay[b] * u[0, b]
    for k in range(len(t)):
        for b in range(len(z)):
            post[k, b] = x[k + 1, b] * t[k, b]
            after[k + 1, b] = post[k, b] + stay[b] * u[k + 1, b]
            z[b] += after[k + 1, b]
    for k in range(len(t)):
        for b in range(len(z)):
            post[k, b] /= z[b]
    for k in range(len(after)):
        for b in range(len(z)):
            after[k, b] /= z[b]


@compiled
def _backward(x: Any, t: Any, z: Any, after: Any, post: Any) -> None:
    """Write t_j(k) w_j(k) / z_j, and finish the posterior of word j."""
    for k in range(len(t)):
        for b in range(len(z)):
            post[k, b] *= after[k + 1, b]
            x[k + 1, b] = min(t[k, b] / z[b] * after[k + 1, b], MOST_AFTER)


@compiled
def _scales(s: Any, share: float, scale: Any) -> None:
    """Write share / Σ_k s(k − l), the sum over k = 1 … n, for l = 0 … n."""
    F, n = len(s) // 2, len(scale) - 1
    total = 0.0
    for k in range(1, n + 1):
        total += s[F + min(k, F)]
    for l in range(n + 1):
        scale[l] = share / total
        total += float(s[F + max(-l, -F)]) - s[F + min(n - l, F)]


@compiled
def _spread(r: Any, s: Any, out: Any) -> None:
    """Write Σ_l r(l) s(k − l) for k = 0 … n, in O(n F) and not O(n²) for 2 F + 1 weights s.

    All jumps of F and more have the weight s(F), or s(−F):

        Σ_l r(l) s(k − l) = Σ_{|d| < F} s(d) r(k − d)  +  s(F) Σ_{l ≤ k−F} r(l)  +  s(−F) Σ_{l ≥ k+F} r(l).
    """
    (end, B), F = r.shape, len(s) // 2
    out[:] = 0
    for l in range(end):
        for k in range(max(0, l - F + 1), min(end, l + F)):
            weight = s[k - l + F]
            for b in range(B):
                out[k, b] += weight * r[l, b]
    if end > F:
        before, beyond = np.zeros(B, s.dtype), np.zeros(B, s.dtype)
        for k in range(F, end):
            last = end - 1 - k
            _add(before, 1, r[k - F])
            _add(out[k], s[2 * F], before)
            _add(beyond, 1, r[last + F])
            _add(out[last], s[0], beyond)


@compiled
def _count(r: Any, x: Any, counts: Any) -> None:
    """Add Σ_l r(l) x(l + d) to the count of every jump d, all of F and more in one."""
    (end, B), F = r.shape, len(counts) // 2
    for l in range(end):
        for k in range(max(0, l - F + 1), min(end, l + F)):
            for b in range(B):
                counts[k - l + F, b] += r[l, b] * x[k, b]
    if end > F:
        before, beyond = np.zeros(B, r.dtype), np.zeros(B, r.dtype)
        for k in range(F, end):
            last = end - 1 - k
            _add(before, 1, r[k - F])
            _add(beyond, 1, r[last + F])
            for b in range(B):
                counts[2 * F, b] += x[k, b] * before[b]
                counts[0, b] += x[last, b] * beyond[b]


@compiled
def _add(out: Any, weight: Any, values: Any) -> None:
    """out += weight · values."""
    for k in range(len(out)):
        out[k] += weight * values[k]


@compiled
def _times(out: Any, weight: Any, values: Any) -> None:
    """out = weight · values."""
    for k in range(len(out)):
        out[k] = weight * values[k]
